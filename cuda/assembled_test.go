//go:build linux && (amd64 || arm64) && !nocuda && !gorgonia

package cuda_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/optimem/optimem/cuda"
	"github.com/optimem/optimem/cuda/kernels"
	"github.com/optimem/optimem/cuda/sim"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// relu computes one op on a GPU whose assembled kernels are in a folder.
func relu(t *testing.T, settings, folder string) error {
	t.Helper()
	lib := sim.New(t, settings)
	dev, err := cuda.New(cuda.Options{Library: lib.Path, Cache: folder})
	if err != nil {
		return err
	}
	g := &graph.Graph{Modules: make(map[string]graph.Operand)}
	out, err := g.Emit(graph.Standard(), graph.Op{Kind: "relu", In: []graph.Operand{g.Whole(g.AddConst(numbers(tensor.Float32, 3, 5)))}})
	if err != nil {
		t.Fatal(err)
	}
	g.Outputs = []graph.Output{{Name: "y", Operand: g.Whole(out[0])}}
	l, err := cuda.Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	_, err = interpret(t.Context(), dev, l, nil)
	if err = errors.Join(err, dev.Close()); err == nil {
		lib.Check(t)
	}
	return err
}

func files(t *testing.T, folder string) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestAssembledKernelsAreKept: what the driver compiled is in the folder, is read from there where the driver's compiler is not, and is
// compiled again where it is damaged, is of another driver or of another GPU.
func TestAssembledKernelsAreKept(t *testing.T) {
	const gpu = "cc=80 driver=12040"
	folder := filepath.Join(t.TempDir(), "made", "here")
	if err := relu(t, gpu, folder); err != nil {
		t.Fatal(err)
	}
	made := files(t, folder)
	if len(made) != 2 { // what New loads, and relu
		t.Fatal(made)
	}
	if err := relu(t, gpu+" compiler=0", folder); err != nil {
		t.Error("assembled kernels need no compiler:", err)
	}
	for _, path := range made {
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for what, damaged := range map[string][]byte{"changed": append(want[:len(want)-1:len(want)-1], want[len(want)-1]^1), "short": want[:len(want)/2], "empty": nil} {
			if err := os.WriteFile(path, damaged, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := relu(t, gpu, folder); err != nil {
				t.Error(what, err)
			}
			if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: a file that is %s was not made again: %v", path, what, err)
			}
		}
	}
	for i, other := range []string{"cc=80 driver=12050", "cc=86 driver=12040"} {
		if err := relu(t, other+" compiler=0", folder); err == nil {
			t.Error("kernels of another driver or GPU were taken:", other)
		}
		if err := relu(t, other, folder); err != nil {
			t.Error(other, err)
		}
		if made := files(t, folder); len(made) != 4+2*i {
			t.Error(other, made)
		}
	}
}

// TestNoCompiler: a driver without its compiler is an error that says what is missing.
func TestNoCompiler(t *testing.T) {
	for _, folder := range []string{"", t.TempDir()} {
		err := relu(t, "compiler=0", folder)
		var failed *cuda.UnavailableError
		if !errors.As(err, &failed) || !strings.Contains(err.Error(), "libnvidia-ptxjitcompiler.so.1") {
			t.Error(err)
		}
	}
}

// TestAssembledKernelsOfARelease: files of whole families that name no driver serve all drivers, and PTX is there where one does not
// take them. A folder that cannot be written is no error.
func TestAssembledKernelsOfARelease(t *testing.T) {
	folder := t.TempDir()
	if err := relu(t, "cc=80 driver=12040", folder); err != nil {
		t.Fatal(err)
	}
	made := files(t, folder)
	one, err := kernels.ReadAssembled(made[0])
	if err != nil {
		t.Fatal(err)
	}
	head, _, _ := bytes.Cut(one, []byte("\n")) // what the simulated driver's assembler begins with
	for _, family := range []string{"copy", "elementwise"} {
		image, err := kernels.Image(family, 80)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(folder, kernels.AssembledName(family, 80, 0, image))
		if err := os.WriteFile(path, kernels.PackAssembled(slices.Concat(head, []byte("\n"), image)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range made {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	if err := relu(t, "cc=80 driver=12090 compiler=0", folder); err != nil {
		t.Error(err)
	}
	for _, path := range files(t, folder) {
		if err := os.WriteFile(path, kernels.PackAssembled([]byte("\x7fELF of another GPU")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := relu(t, "cc=80 driver=12040", folder); err != nil {
		t.Error(err)
	}
	if err := relu(t, "cc=80 driver=12040", filepath.Join(files(t, folder)[0], "no folder")); err != nil {
		t.Error(err)
	}
}

// TestOldestAssembledAreDropped: only what drivers compiled, and only as much as is too much.
func TestOldestAssembledAreDropped(t *testing.T) {
	folder := t.TempDir()
	for i, name := range []string{"a.sm80.00.12040.cubin", "b.sm80.00.12040.cubin", "c.sm80.00.12040.cubin", "d.sm80.00.cubin", "e.txt"} {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, make([]byte, 100), 0o600); err != nil {
			t.Fatal(err)
		}
		when := time.Unix(int64(1000-100*i), 0)
		if err := os.Chtimes(path, when, when); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		most int64
		left string
	}{{400, "abcde"}, {399, "abde"}, {200, "ade"}, {0, "de"}} {
		if err := kernels.DropOldest(folder, c.most); err != nil {
			t.Fatal(err)
		}
		var left string
		for _, path := range files(t, folder) {
			left += filepath.Base(path)[:1]
		}
		if left != c.left {
			t.Errorf("at most %d bytes: %s, want %s", c.most, left, c.left)
		}
	}
}

// TestFamiliesLoadOnce: streams that ask for a kernel at the same time get one module.
func TestFamiliesLoadOnce(t *testing.T) {
	dev, lib := openAlone(t, "fault=cuModuleLoadDataEx:2:200")
	var all sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		all.Go(func() { errs[i] = dev.LoadKernel("om_unary_f") })
	}
	all.Wait()
	if err := dev.LoadKernel("om_unary_f"); err != nil {
		t.Error("a kernel that could not be loaded is not tried again:", err)
	}
	if n := lib.Report().Left["modules"]; n != 2 {
		t.Errorf("%d modules", n)
	}
	if err := dev.Close(); err != nil {
		t.Error(err)
	}
	lib.Check(t)
}
