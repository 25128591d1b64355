//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/optimem/optimem/cuda"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// TestHopperPTXOrders: products by wgmma have the same bits whenever what they copy comes, and in whichever order.
func TestHopperPTXOrders(t *testing.T) {
	if testing.Short() {
		t.Skip("long under the race detector")
	}
	defer cuda.HopperFrom(1, 1)()
	x, w := numbers(tensor.BFloat16, 130, 520), numbers(tensor.BFloat16, 264, 520)
	g := loweredOp(t, graph.Op{Kind: "linear", Attrs: graph.Attrs{}}, []*tensor.Tensor{x, w}).Graph
	var first []byte
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			defer cuda.OnlyHopperBlocks(int(seed % 2))()
			dev, lib := open(t, "order=lazy:1 memory=64M cc=90")
			lib.Interpret(t).Seed = seed
			got := byWGMMA(t, dev, g).Data
			if first == nil {
				first = got
			}
			if !bytes.Equal(got, first) {
				t.Error("other bits")
			}
		})
	}
}
