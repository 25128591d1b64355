//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	"github.com/optimem/optimem/cuda"
	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// TestRoundedBlocks runs products in the blocks that round floats on their way to shared memory, as the host computes them;
// TestCommittedPTX does from the PTX.
func TestRoundedBlocks(t *testing.T) {
	dev, _ := open(t, "order=lazy:6 memory=64M")
	compareRoundedBlocks(t, dev)
}

// compareRoundedBlocks compares products whose factors are rounded with the CPU's, by blocks that round on the way to shared memory and
// by those that do not: both sum up in the same order, so that bits are the same.
func compareRoundedBlocks(t *testing.T, dev device.Device) {
	f, m := tensor.Float32, multiplications[2]
	for what, c := range map[string]struct {
		op     graph.Op
		in     []*tensor.Tensor
		across bool // the lines of the right factor lie so, too
	}{
		"one block and some": {graph.Op{Kind: "linear"}, []*tensor.Tensor{numbers(f, 131, 77), numbers(f, 283, 77), numbers(f, 283)}, true},
		"all at the end": {
			graph.Op{Kind: "linear", Attrs: graph.Attrs{"act": "gelu"}},
			[]*tensor.Tensor{numbers(f, 2, 9, 24), numbers(f, 20, 24), numbers(f, 20), numbers(f, 2, 9, 20)}, false,
		},
		"parts":      {graph.Op{Kind: "linear"}, []*tensor.Tensor{numbers(f, 9, 1050), numbers(f, 22, 1050), numbers(f, 22)}, true},
		"several":    {graph.Op{Kind: "matmul", Attrs: graph.Attrs{"alpha": 0.5}}, []*tensor.Tensor{numbers(f, 2, 3, 9, 40), numbers(f, 2, 3, 40, 24)}, false},
		"one of all": {graph.Op{Kind: "matmul", Attrs: graph.Attrs{"alpha": 1.0}}, []*tensor.Tensor{numbers(f, 1, 4), numbers(f, 4, 4)}, false},
		"not finite": {graph.Op{Kind: "linear"}, []*tensor.Tensor{notFinite(f, 20, 40), numbers(f, 20, 40)}, true},
		"all terms":  {graph.Op{Kind: "linear"}, []*tensor.Tensor{numbers(f, 33, 64), notFinite(f, 256, 64)}, true},
	} {
		for _, how := range []string{"aligned", "in sixteens", "in sixteens, the right one across"} {
			if how != "aligned" && !c.across {
				continue
			}
			t.Run(fmt.Sprint(what, ", ", how), func(t *testing.T) {
				var first []byte
				for _, blocks := range []int{0, -1, 1, 2} {
					speed := 0.0
					if blocks < 0 {
						speed, blocks = math.Inf(1), 0
					}
					undo, slow := cuda.OnlyTensorBlocks(blocks), cuda.RoundedSpeed(speed)
					y := m.compare(t, dev, c.op, c.in, lays[how])
					slow()
					undo()
					if first == nil {
						first = y.Data
					}
					if !bytes.Equal(y.Data, first) {
						t.Errorf("the bits depend on blocks: %d at %g", blocks, speed)
					}
				}
			})
		}
	}
}

// sameInRoundedBlocks compares a convolution's bits by the largest blocks that round in registers with those by blocks that round on the
// way to shared memory.
func sameInRoundedBlocks(t *testing.T, dev device.Device, build func() *graph.Graph) {
	t.Helper()
	defer cuda.OnlyConvBlocks(0)()
	var first []byte
	for _, speed := range []float64{0, math.Inf(1)} {
		undo := cuda.RoundedSpeed(speed)
		l, err := cuda.Lower(build())
		if err != nil {
			t.Fatal(err)
		}
		got, err := interpret(t.Context(), dev, l, nil)
		undo()
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = got["y"].Data
		}
		if !bytes.Equal(got["y"].Data, first) {
			t.Error("blocks that round on the way to shared memory have other bits")
		}
	}
}
