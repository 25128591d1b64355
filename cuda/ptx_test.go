//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"encoding/binary"
	"flag"
	"io/fs"
	"math"
	"strings"
	"testing"

	"github.com/optimem/optimem/cuda/kernels"
	"github.com/optimem/optimem/cuda/sim"
	"github.com/optimem/optimem/cuda/sim/ptx"
	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/tensor"
)

// TestCommittedPTX computes, from the PTX that ships, what PyTorch was recorded with, what is fused, and what neither asks
// for. Every kernel runs.
func TestCommittedPTX(t *testing.T) {
	if testing.Short() {
		t.Skip("interpreting every kernel takes long under the race detector")
	}
	older := make(map[string]*sim.Interpreter)
	for _, capability := range []string{"70", "75"} {
		t.Run("halves on "+capability, func(t *testing.T) {
			dev, lib := open(t, "order=lazy:1 memory=64M cc="+capability)
			in := lib.Interpret(t)
			older[capability] = in
			compareTensorCores(t, dev, tensor.Float16)
			compareHalves(t, dev)
			for _, name := range []string{"om_tensor_f16_128", "om_tensor_f16_64", "om_tensor_f16_32"} {
				if n, _ := in.Ran(name); n == 0 {
					t.Errorf("%s did not run", name)
				}
			}
		})
	}
	dev, lib := open(t, "order=lazy:1 memory=1G")
	in := lib.Interpret(t)
	t.Run("recorded", func(t *testing.T) { comply(t, dev, func(*graph.Graph) bool { return true }) })
	t.Run("fused", func(t *testing.T) { compareFused(t, dev) })
	t.Run("narrow", func(t *testing.T) { compareNarrow(t, dev, "bf16", "tf32") })
	t.Run("tensor cores", func(t *testing.T) { compareTensorCores(t, dev) })
	t.Run("weights", func(t *testing.T) { compareWeights(t, dev, true) })
	t.Run("weights, exact", func(t *testing.T) { compareExactWeights(t, dev) })
	t.Run("recorded, rounded", func(t *testing.T) { compareRecordedRounded(t, dev, "tf32") })
	t.Run("halves", func(t *testing.T) { compareHalves(t, dev) })
	t.Run("products", func(t *testing.T) { compareProducts(t, dev) })
	t.Run("convs", func(t *testing.T) { compareConvs(t, dev, nil) })
	t.Run("channels last", func(t *testing.T) {
		complyChannelsLast(t, dev)
		compareChannelsLast(t, dev, "each channel", "f16", "tf32")
	})
	t.Run("attention", func(t *testing.T) { compareAttention(t, dev) })
	t.Run("attend", func(t *testing.T) { compareAttend(t, dev) })
	t.Run("rows alone", func(t *testing.T) { compareAlone(t, dev) })
	t.Run("gemv", func(t *testing.T) { compareGemv(t, dev) })
	t.Run("codes", func(t *testing.T) { compareCodes(t, dev, false) })
	t.Run("states", func(t *testing.T) { compareStates(t, dev) })
	t.Run("experts", func(t *testing.T) { compareExperts(t, dev) })
	t.Run("rows", func(t *testing.T) { compareRows(t, dev) })
	t.Run("moved", func(t *testing.T) { compareMoved(t, dev) })
	t.Run("winograd", func(t *testing.T) { compareWinograd(t, dev) })
	t.Run("unpacked", func(t *testing.T) { compareUnpacked(t, dev) })
	t.Run("further", func(t *testing.T) { compareFurther(t, dev) })
	if some := flag.Lookup("test.run").Value.String(); !t.Failed() && !strings.Contains(some, "/") {
		covered(t, in, older["70"], older["75"])
	}
}

// covered fails for kernels that did not run, and logs how much of the instructions did.
func covered(t *testing.T, interpreters ...*sim.Interpreter) {
	t.Helper()
	sources, err := fs.Glob(kernels.Sources, "*.cu")
	if err != nil {
		t.Fatal(err)
	}
	entries, instructions, ran := 0, 0, 0
	for _, source := range sources {
		if strings.HasPrefix(source, kernels.Hopper) {
			continue // see TestHopperPTX
		}
		image, err := kernels.Image(strings.TrimSuffix(source, ".cu"), 80)
		if err != nil {
			t.Fatal(err)
		}
		m, err := ptx.Parse(image)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range m.Kernels() {
			var did, all int
			for _, in := range interpreters {
				d, n := in.Ran(name)
				did, all = max(did, d), max(all, n)
			}
			if did == 0 {
				t.Errorf("%s was never launched", name)
			}
			entries, instructions, ran = entries+1, instructions+all, ran+did
		}
	}
	t.Logf("%d kernels, %d of %d instructions ran", entries, ran, instructions)
}

// numbers returns a tensor of numbers between −2 and 2, or of whole ones.
func numbers(d tensor.DType, shape ...int) *tensor.Tensor {
	c := &tensor.Tensor{DType: d, Layout: tensor.Contiguous(shape...)}
	n, _ := c.Layout.NumElements()
	for i := range n {
		x := float64(int64(uint32(i+13)*2654435761)%4001)/1000 - 2
		switch d {
		case tensor.Float64:
			c.Data = binary.LittleEndian.AppendUint64(c.Data, math.Float64bits(x))
		case tensor.Complex128:
			c.Data = binary.LittleEndian.AppendUint64(c.Data, math.Float64bits(x))
			c.Data = binary.LittleEndian.AppendUint64(c.Data, math.Float64bits(-x/3))
		case tensor.Float32:
			c.Data = binary.LittleEndian.AppendUint32(c.Data, math.Float32bits(float32(x)))
		case tensor.Float16:
			c.Data = binary.LittleEndian.AppendUint16(c.Data, tensor.Float16FromFloat32(float32(x)))
		case tensor.BFloat16:
			c.Data = binary.LittleEndian.AppendUint16(c.Data, uint16(math.Float32bits(float32(x))>>16))
		case tensor.Bool:
			c.Data = append(c.Data, byte(i*i/3%2))
		case tensor.UInt8:
			c.Data = append(c.Data, byte(7*i+1))
		}
	}
	return c
}

// compareFurther runs on a device and on the CPU what no recorded call is.
func compareFurther(t *testing.T, dev device.Device) {
	pool := cpu.NewPool(1)
	defer pool.Close()
	window := graph.Attrs{"stride": []int{1, 1}, "padding": []int{1, 1}, "dilation": []int{1, 1}, "groups": 1}
	images := graph.Attrs{"kernel": []int{2, 2}, "stride": []int{1, 1}, "padding": []int{1, 0}, "dilation": []int{1, 1}}
	places := tensor.Of([]int64{3, 6, 0, 9}, 1, 1, 2, 2)
	conv := func(d tensor.DType) []*tensor.Tensor {
		return []*tensor.Tensor{numbers(d, 2, 3, 6, 5), numbers(d, 20, 3, 3, 3), numbers(d, 20)}
	}
	long := numbers(tensor.Float32, 1, 2, 5, 130)
	const c128 = tensor.Complex128
	for name, c := range map[string]struct {
		kind  graph.Kind
		attrs graph.Attrs
		in    []*tensor.Tensor
		bound float64
	}{
		"conv of float64":   {"conv", window, conv(tensor.Float64), 1e-13},
		"conv of float16":   {"conv", window, conv(tensor.Float16), 1e-3},
		"conv of bfloat16":  {"conv", window, conv(tensor.BFloat16), 8e-3},
		"attention, wide":   {"scaled_dot_product_attention", graph.Attrs{"scale": 0.1}, []*tensor.Tensor{long, long, long}, 1e-6},
		"im2col":            {"im2col", images, []*tensor.Tensor{numbers(c128, 1, 2, 4, 3)}, 0},
		"where":             {"where", nil, []*tensor.Tensor{numbers(tensor.Bool, 5), numbers(c128, 5), numbers(tensor.Complex128, 5)}, 0},
		"roll":              {"roll", graph.Attrs{"dims": []int{1}, "shifts": []int{2}}, []*tensor.Tensor{numbers(c128, 3, 5)}, 0},
		"gather":            {"gather", graph.Attrs{"dim": 1}, []*tensor.Tensor{numbers(c128, 2, 3), tensor.Of([]int64{2, 0, 1, 1}, 2, 2)}, 0},
		"triu":              {"triu", graph.Attrs{"diagonal": 1}, []*tensor.Tensor{numbers(c128, 4, 5)}, 0},
		"interpolate":       {"interpolate", graph.Attrs{"size": []int{5, 7}, "mode": "nearest"}, []*tensor.Tensor{numbers(c128, 1, 2, 3, 4)}, 0},
		"unpool of uint8":   {"max_unpool", graph.Attrs{"size": []int{3, 4}}, []*tensor.Tensor{numbers(tensor.UInt8, 1, 1, 2, 2), places}, 0},
		"unpool of float64": {"max_unpool", graph.Attrs{"size": []int{3, 4}}, []*tensor.Tensor{numbers(tensor.Float64, 1, 1, 2, 2), places}, 0},
		"masked, 1":         masked(tensor.UInt8),
		"masked, 2":         masked(tensor.Float16),
		"masked, 16":        masked(c128),
	} {
		t.Run(name, func(t *testing.T) {
			compareOp(t, dev, pool, graph.Op{Kind: c.kind, Attrs: c.attrs}, c.in, c.bound)
		})
	}
}

func masked(d tensor.DType) (c struct {
	kind  graph.Kind
	attrs graph.Attrs
	in    []*tensor.Tensor
	bound float64
}) {
	c.kind, c.in = "masked_scatter", []*tensor.Tensor{numbers(d, 9), numbers(tensor.Bool, 9), numbers(d, 10)}
	return c
}
