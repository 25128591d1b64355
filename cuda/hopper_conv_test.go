//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/optimem/optimem/cuda"
	"github.com/optimem/optimem/cuda/sim"
	"github.com/optimem/optimem/device/devicetest"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// ofWGMMA says which convolutions wgmma computes where few outputs and pixels are enough.
func ofWGMMA(d tensor.DType, c *convCase) bool {
	k, each := (c.w[1]+7)/8*8, 1
	for _, s := range c.w[2:] {
		k *= s
	}
	for _, s := range c.x {
		each *= s
	}
	return d != tensor.Float32 && k >= 64 && c.w[0]/c.groups() >= 16 && each > 0
}

// TestHopperConvs computes convolutions of half floats on a GPU of 9.0 from the sources, by either size of blocks.
func TestHopperConvs(t *testing.T) {
	defer cuda.HopperConvsFrom(1, 1)()
	dev, _ := open(t, "order=lazy:3 memory=64M cc=90")
	for block := range 2 {
		undo := cuda.OnlyHopperBlocks(block)
		compareConvs(t, dev, ofWGMMA)
		undo()
	}
}

// TestHopperConvsPTX computes them from the PTX that ships, by which every kernel of it runs.
func TestHopperConvsPTX(t *testing.T) {
	if testing.Short() {
		t.Skip("long under the race detector")
	}
	defer cuda.HopperConvsFrom(1, 1)()
	dev, lib := open(t, "order=lazy:3 memory=64M cc=90")
	in := lib.Interpret(t)
	compareConvs(t, dev, ofWGMMA)
	t.Run("recorded", func(t *testing.T) {
		defer cuda.AnyChannels()()
		comply(t, dev, func(g *graph.Graph) bool {
			l, err := dev.Lower(g)
			return err == nil && slices.ContainsFunc(l.Steps, func(s graph.Step) bool { return s.Kernel == cuda.HopperConvKernel })
		})
	})
	undo := cuda.OnlyHopperBlocks(0)
	compareConvs(t, dev, func(d tensor.DType, c *convCase) bool { return ofWGMMA(d, c) && c.w[0] > 64 })
	undo()
	ranAll(t, in, "om_hopper_conv_")
}

// convOf is a graph of a convolution that pads by one.
func convOf(t *testing.T, d tensor.DType, x, w []int) *graph.Graph {
	t.Helper()
	two := func(n int) []int { return []int{n, n} }
	a := graph.Attrs{"groups": 1, "stride": two(1), "padding": two(1), "dilation": two(1)}
	in := []*tensor.Tensor{numbers(d, x...), numbers(d, w...), numbers(d, w[0])}
	return loweredOp(t, graph.Op{Kind: "conv", Attrs: a}, in).Graph
}

// TestHopperConvsPTXOrders: they have the same bits whenever the weights come, and in whichever order.
func TestHopperConvsPTXOrders(t *testing.T) {
	if testing.Short() {
		t.Skip("long under the race detector")
	}
	defer cuda.HopperConvsFrom(1, 1)()
	g := convOf(t, tensor.Float16, []int{2, 64, 9, 17}, []int{136, 64, 3, 3})
	var first []byte
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			defer cuda.OnlyHopperBlocks(int(seed % 2))()
			dev, lib := open(t, "order=lazy:1 memory=64M cc=90")
			lib.Interpret(t).Seed = seed
			l, err := dev.Lower(g)
			if err != nil {
				t.Fatal(err)
			}
			got, err := interpret(t.Context(), dev, l, nil)
			if err != nil {
				t.Fatal(err)
			}
			if first == nil {
				first = got["y"].Data
			}
			if !bytes.Equal(got["y"].Data, first) {
				t.Error("other bits")
			}
		})
	}
}

// TestHopperConvsChosen: which convolutions are those of wgmma follows from the GPU and from sizes.
func TestHopperConvsChosen(t *testing.T) {
	const bf16 = tensor.BFloat16
	for name, c := range map[string]struct {
		dtype      tensor.DType
		x, w       []int
		capability int
		chosen     bool
	}{
		"enough":         {bf16, []int{1, 64, 8, 16}, []int{64, 64, 3, 3}, 90, true},
		"float16":        {tensor.Float16, []int{1, 64, 8, 16}, []int{64, 64, 3, 3}, 90, true},
		"three channels": {bf16, []int{2, 3, 16, 16}, []int{64, 3, 3, 3}, 90, true},
		"few outputs":    {bf16, []int{1, 64, 8, 16}, []int{63, 64, 3, 3}, 90, false},
		"few pixels":     {bf16, []int{1, 64, 8, 15}, []int{64, 64, 3, 3}, 90, false},
		"few terms":      {bf16, []int{2, 3, 16, 16}, []int{64, 3, 1, 7}, 90, false},
		"float32":        {tensor.Float32, []int{1, 64, 8, 16}, []int{64, 64, 3, 3}, 90, false},
		"on 8.9":         {bf16, []int{1, 64, 8, 16}, []int{64, 64, 3, 3}, 89, false},
		"on 10.0":        {bf16, []int{1, 64, 8, 16}, []int{64, 64, 3, 3}, 100, false},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := cuda.LowerFor(convOf(t, c.dtype, c.x, c.w), c.capability)
			if err != nil {
				t.Fatal(err)
			}
			if is := l.Steps[0].Kernel == cuda.HopperConvKernel; is != c.chosen {
				t.Errorf("it is computed by %s", l.Steps[0].Kernel)
			}
		})
	}
}

// TestHopperConvsRefused: where the driver does not take kernels of wgmma, or they are unwanted, others compute, to the same bound.
func TestHopperConvsRefused(t *testing.T) {
	defer cuda.HopperConvsFrom(1, 1)()
	g := convOf(t, tensor.Float16, []int{2, 64, 5, 7}, []int{70, 64, 3, 3})
	var results []*tensor.Tensor
	for _, how := range []struct {
		settings, wanted, kernel string
	}{
		{"", "", cuda.HopperConvKernel}, {" driver=11080", "", cuda.HopperConvKernel}, {"", "none", "conv"},
	} {
		lib := sim.New(t, "order=lazy:2 memory=64M cc=90"+how.settings)
		dev, err := cuda.New(cuda.Options{Library: lib.Path, Environment: func(name string) string {
			return map[string]string{"OPTIMEM_WGMMA": how.wanted}[name]
		}})
		if err != nil {
			t.Fatal(err)
		}
		l, err := dev.Lower(g)
		if err != nil {
			t.Fatal(err)
		}
		if l.Steps[0].Kernel != how.kernel {
			t.Errorf("%+v: it is computed by %s", how, l.Steps[0].Kernel)
		}
		for range 2 {
			got, err := interpret(t.Context(), dev, l, nil)
			if err != nil {
				t.Fatal(err)
			}
			results = append(results, got["y"])
		}
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
		lib.Check(t)
	}
	for _, y := range results[1:] {
		if err := devicetest.Compare(y, results[0], 2e-3); err != nil {
			t.Error(err)
		}
	}
}

// TestHopperConvsPTXMistakes plants mistakes in the PTX, which the interpreter must find, or results.
func TestHopperConvsPTXMistakes(t *testing.T) {
	if testing.Short() {
		t.Skip("long under the race detector")
	}
	defer cuda.HopperConvsFrom(1, 1)()
	defer cuda.OnlyHopperBlocks(1)()
	plant(t, convOf(t, tensor.BFloat16, []int{1, 64, 5, 7}, []int{70, 64, 3, 3}), "om_hopper_conv_bf16_64", map[string]change{
		"windows are not waited for":          {"cp.async.wait_group 2;", "cp.async.wait_group 3;"},
		"windows are in no lot":               {"cp.async.commit_group;", ""},
		"wgmma is not told of windows":        {`wait_group 2;\s*fence.proxy.async.shared::cta;`, "wait_group 2;"},
		"a warp does not wait for its lanes":  {`(wait_group 2;\s*fence.proxy.async.shared::cta;)\s*bar.warp.sync -1;`, "$1"},
		"a lot is full without a warp's":      {`(mov.u32 %r\d+),5;(\s*mbarrier.init)`, "$1,4;$2"},
		"a lot is full with one warp's more":  {`(mov.u32 %r\d+),5;(\s*mbarrier.init)`, "$1,6;$2"},
		"a lot has fewer bytes than come":     {`(mov.u32 %r\d+),8192;(\s*mbarrier.arrive.expect_tx)`, "$1,8176;$2"},
		"weights come without being expected": {`mbarrier.arrive.expect_tx(.*),%r\d+;`, "mbarrier.arrive$1;"},
		"lots are not waited for":             {"mbarrier.try_wait.parity.shared::cta.b64 over", "setp.eq.u32 over,0,0;// "},
		"nobody says that lots are full":      {"mbarrier.arrive.shared::cta.b64", "// "},
		"lots are given back too early":       {"wgmma.wait_group.sync.aligned 1;", "wgmma.wait_group.sync.aligned 2;"},
		"barriers are not told to the unit":   {`fence.proxy.async.shared::cta;(\s*\$\w+:\s*bar.sync 0;)`, "$1"},
		"the first sums are added to":         {"setp.ne.b32 more,", "setp.eq.b32 more,"},
	})
}
