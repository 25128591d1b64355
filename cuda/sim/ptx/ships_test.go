package ptx_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/optimem/optimem/cuda/kernels"
	"github.com/optimem/optimem/cuda/sim/ptx"
)

// TestKnowsWhatShips makes every committed kernel ready.
func TestKnowsWhatShips(t *testing.T) {
	images, err := filepath.Glob("../../kernels/ptx/*.image.gz")
	if err != nil || len(images) == 0 {
		t.Fatal(images, err)
	}
	for _, path := range images {
		packed, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := kernels.Unpack(packed)
		if err != nil {
			t.Fatal(err)
		}
		m, err := ptx.Parse(text)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		version := 78
		if m.Only { // for 9.0, by an ISA that has its instructions
			version = 80
		}
		if len(m.Kernels()) == 0 || m.Version != version {
			t.Errorf("%s: version %d, kernels %v", path, m.Version, m.Kernels())
		}
		for _, name := range m.Kernels() {
			k, err := m.Kernel(name)
			var wrong *ptx.SyntaxError
			if errors.As(err, &wrong) {
				t.Errorf("%s:%v", path, err)
			} else if err != nil || k.Len() == 0 {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
