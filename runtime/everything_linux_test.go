package runtime_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"testing"

	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// everythingChild is set in the process that TestEverythingOnTheCPU starts.
const everythingChild = "OPTIMEM_TEST_EVERYTHING"

// TestEverythingOnTheCPU: once everything is given back, a process of its own has its memory back but for what is documented: no
// byte off Go's heap, and of its resident set no more than graphs, plans and threads take.
func TestEverythingOnTheCPU(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a second")
	}
	if path := os.Getenv(everythingChild); path != "" {
		giveEverythingBack(t, path)
		return
	}
	path := filepath.Join(t.TempDir(), "layers.safetensors")
	writeLayers(t, path, 12, 2048)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestEverythingOnTheCPU$", "-test.v")
	cmd.Env = append(os.Environ(), everythingChild+"="+path)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}

func giveEverythingBack(t *testing.T, path string) {
	model := build(t, path, nil)
	debug.FreeOSMemory()
	before, idle := statusBytes(t, "VmRSS"), offHeap()
	s := start(t, model, optimem.Options{})
	in := optimem.Values{"x": tensor.Of(make([]float32, 2048), 1, 2048)}
	for range 2 {
		if _, err := s.Run(t.Context(), in); err != nil {
			t.Fatal(err)
		}
		// Pages of the program itself may go meanwhile.
		const weights, most = 12 * 2048 * 2048 * 4, 8 << 20
		if n := statusBytes(t, "VmRSS") - before; n < weights-most || offHeap()-idle < weights {
			t.Errorf("%d bytes more than before, and %d are weights", n, weights)
		}
		if err := s.GiveBack(t.Context(), optimem.Everything); err != nil {
			t.Fatal(err)
		}
		if n := offHeap(); n != idle || s.Metrics().HeldBytes != 0 {
			t.Errorf("%d bytes are left off the heap", n-idle)
		}
		n := statusBytes(t, "VmRSS") - before
		t.Logf("%d bytes more than before the session", n)
		if n > most {
			t.Errorf("%d bytes more than before the session", n)
		}
	}
}
