package runtime_test

import (
	"bufio"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"github.com/optimem/optimem/internal/hostmem"
	optimem "github.com/optimem/optimem/runtime"
)

// statusBytes returns a line of /proc/self/status, in bytes.
func statusBytes(t *testing.T, name string) int64 {
	t.Helper()
	f, err := os.Open("/proc/self/status")
	if err != nil {
		t.Skip("NOT CHECKED: ", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) == 3 && fields[0] == name+":" {
			n, err := strconv.ParseInt(fields[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n << 10
		}
	}
	t.Skip("NOT CHECKED: no ", name)
	return 0
}

// TestPeakMemory holds the process to what was planned and 64 MiB, and a closed session to nothing.
func TestPeakMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a second")
	}
	model := build(t, digitsModel, nil)
	x := pictures(512)
	debug.FreeOSMemory()
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		t.Skip("NOT CHECKED: the peak cannot be reset: ", err)
	}
	before := statusBytes(t, "VmRSS")
	s, err := optimem.Resident(t.Context(), model, optimem.ResidentOptions{})
	if err != nil {
		t.Fatal(err)
	}
	runDigits(t, s, x)
	planned := s.Metrics().PeakBytes
	if held := hostmem.InUse(hostmem.Weights) + hostmem.InUse(hostmem.Activations) +
		hostmem.InUse(hostmem.Workspace); held != planned {
		t.Errorf("%d bytes are held, %d counted", held, planned)
	}
	peak := statusBytes(t, "VmHWM")
	if took := peak - before; took > planned+64<<20 {
		t.Errorf("the process took %d bytes, planned are %d", took, planned)
	} else if took < planned/2 {
		t.Errorf("the process took %d bytes of the %d that were planned: nothing is measured here", took, planned)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	debug.FreeOSMemory()
	if left := statusBytes(t, "VmRSS") - before; left > 32<<20 {
		t.Errorf("%d bytes are left after Close", left)
	}
}
