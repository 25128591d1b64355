//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"strconv"
	"testing"

	"github.com/optimem/optimem/cuda"
	"github.com/optimem/optimem/cuda/kernels"
	"github.com/optimem/optimem/cuda/sim/ptx"
	"github.com/optimem/optimem/device/devicetest"
	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models"
	"time"
)

// TestCommittedPTX computes the recorded calls from the PTX that ships.
func TestCommittedPTX(t *testing.T) {
	dev, lib := open(t, "order=lazy:1 memory=1G")
	in := lib.Interpret(t)
	t.Cleanup(func() {
		for _, f := range []string{"attention", "cast", "conv", "copy", "elementwise", "index", "linear", "pool", "recurrent", "resample", "rows", "sort", "special"} {
			text, _ := kernels.Image(f, 80)
			m, _ := ptx.Parse(text)
			for _, name := range m.Kernels() {
				k, _ := m.Kernel(name)
				ran, _ := in.Ran(name)
				t.Logf("COVER %s %d of %d %.0f%%", name, ran, k.Len(), 100*float64(ran)/float64(k.Len()))
			}
		}
	})
	cases, err := devicetest.Cases()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		g, err := models.BuildCall(layers.Standard(), c.Target, c.Args)
		if err != nil {
			t.Fatalf("%s%v: %v", c.Target, c.Args, err)
		}
		t.Run(c.Name, func(t *testing.T) {
			lowered, err := cuda.Lower(g)
			if err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			out, err := interpret(t.Context(), dev, lowered, c.Inputs)
			if d := time.Since(start); d > 100*time.Millisecond {
				t.Logf("SLOW %v %s", d, c.Name)
			}
			if err != nil {
				t.Fatalf("%s%v: %v", c.Target, c.Args, err)
			}
			for i, want := range c.Outputs {
				if err := devicetest.Compare(out[strconv.Itoa(i)], want, c.Bound); err != nil {
					t.Errorf("%s%v: result %d: %v", c.Target, c.Args, i, err)
				}
			}
		})
	}
}
