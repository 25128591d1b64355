//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/cuda"
	"github.com/optimem/optimem/device/devicetest"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/tensor"
)

// TestTensorConvs runs convolutions on tensor cores, and those of few channels in half floats.
func TestTensorConvs(t *testing.T) {
	dev, _ := open(t, "order=lazy:3 memory=64M")
	compareConvs(t, dev, nil)
}

// TestTensorConvsOfOldGPUs: on GPUs before compute capability 8.0 other kernels compute them, but those of float16.
func TestTensorConvsOfOldGPUs(t *testing.T) {
	if testing.Short() {
		t.Skip("long under the race detector")
	}
	for _, capability := range []string{"70", "75"} {
		t.Run(capability, func(t *testing.T) {
			dev, lib := open(t, "order=lazy:3 memory=64M cc="+capability)
			in := lib.Interpret(t)
			// Other types than float16 are computed in float32 there, which the simplest cases show.
			compareConvs(t, dev, func(d tensor.DType, c *convCase) bool {
				return d == tensor.Float16 || len(c.attrs) == 0 && c.place == nil
			})
			for _, name := range []string{"f16_128", "f16_64", "f16_32", "bf16_64", "narrow_64"} {
				n, _ := in.Ran("om_conv_tensor_" + name)
				if want := name[:3] == "f16"; (n > 0) != want {
					t.Errorf("%s ran: %v", name, n > 0)
				}
			}
		})
	}
}

// A convCase has the sizes of an operand and of a weight.
type convCase struct {
	x, w   []int
	attrs  graph.Attrs
	blocks int // all but one of the sizes of blocks are left out
	ends   bool
	// reads says that the operand is whole and its channels last.
	reads bool
	// place changes how the operand and the weight lie.
	place func(w *written, x, weight operand) (operand, operand)
}

type operand = graph.Operand

func (c *convCase) groups() int { return max(c.attrs.Int("groups"), 1) }

var convCases = map[string]convCase{
	"1x1":         {x: []int{2, 16, 5, 7}, w: []int{40, 16, 1, 1}, blocks: 1},
	"3x3":         {x: []int{2, 24, 7, 6}, w: []int{72, 24, 3, 3}, attrs: graph.Attrs{"padding": []int{1, 1}}, blocks: 1, ends: true},
	"many pixels": {x: []int{3, 16, 11, 13}, w: []int{70, 16, 3, 3}, blocks: 1, ends: true},
	"many pixels, channels last": {x: []int{3, 16, 11, 12}, w: []int{68, 16, 3, 3},
		attrs: graph.Attrs{"stride": []int{1, 2}, "padding": []int{1, 2}}, blocks: 1, ends: true, place: lastAll, reads: true},
	"wide blocks":   {x: []int{1, 8, 12, 12}, w: []int{270, 8, 2, 2}, blocks: 0},
	"narrow blocks": {x: []int{1, 8, 13, 12}, w: []int{36, 8, 2, 2}, blocks: 2, ends: true},
	"stride": {x: []int{3, 16, 9, 8}, w: []int{20, 16, 3, 3},
		attrs: graph.Attrs{"stride": []int{2, 3}, "padding": []int{1, 2}}, blocks: 1},
	"dilation": {x: []int{1, 8, 9, 11}, w: []int{20, 8, 3, 3},
		attrs: graph.Attrs{"dilation": []int{2, 3}, "padding": []int{2, 3}}, blocks: 1},
	"few inputs": {x: []int{2, 3, 9, 8}, w: []int{18, 3, 7, 7},
		attrs: graph.Attrs{"stride": []int{2, 2}, "padding": []int{3, 3}}, blocks: 1},
	"groups": {x: []int{2, 24, 5, 5}, w: []int{36, 12, 3, 3},
		attrs: graph.Attrs{"groups": 2, "padding": []int{1, 1}}, blocks: 1, ends: true},
	"1-D":          {x: []int{2, 20, 33}, w: []int{17, 20, 5}, attrs: graph.Attrs{"padding": []int{2}}, blocks: 1},
	"3-D":          {x: []int{1, 9, 4, 5, 6}, w: []int{16, 9, 2, 3, 2}, attrs: graph.Attrs{"padding": []int{1, 0, 1}}, blocks: 1},
	"parts":        {x: []int{1, 72, 3, 3}, w: []int{20, 72, 3, 3}, attrs: graph.Attrs{"padding": []int{1, 1}}, blocks: 1, ends: true},
	"two channels": {x: []int{1, 6, 5, 6}, w: []int{2, 6, 3, 3}, attrs: graph.Attrs{"padding": []int{1, 1}}, blocks: 1, ends: true},
	"few outputs":  {x: []int{1, 8, 5, 6}, w: []int{12, 4, 3, 3}, attrs: graph.Attrs{"groups": 2, "stride": []int{2, 1}}, blocks: 1},
	"by themselves": {x: []int{2, 6, 7, 6}, w: []int{6, 1, 3, 3},
		attrs: graph.Attrs{"groups": 6, "padding": []int{1, 1}}, blocks: 1, ends: true},
	"twelve by themselves": {x: []int{2, 12, 7, 6}, w: []int{12, 1, 3, 2},
		attrs: graph.Attrs{"groups": 12, "padding": []int{1, 1}, "stride": []int{1, 2}}, blocks: 1, ends: true, place: lastAll, reads: true},
	"by themselves, 3-D": {x: []int{1, 8, 3, 4, 5}, w: []int{8, 1, 2, 3, 3},
		attrs: graph.Attrs{"groups": 8, "padding": []int{1, 1, 0}, "dilation": []int{1, 2, 1}}, blocks: 1, place: lastAll, reads: true},
	"no channels": {x: []int{1, 0, 3, 3}, w: []int{16, 0, 1, 1}, blocks: 1},
	"no images":   {x: []int{0, 16, 5, 7}, w: []int{40, 16, 1, 1}, blocks: 1},
	"channels last": {x: []int{2, 16, 5, 7}, w: []int{20, 16, 3, 2},
		blocks: 1, place: func(_ *written, x, weight operand) (operand, operand) {
			return lastly(x, 0, 16), lastly(weight, 0, 16)
		}},
	"channels last, 1x1":    {x: []int{2, 16, 5, 7}, w: []int{40, 16, 1, 1}, blocks: 1, ends: true, place: lastAll, reads: true},
	"channels last, groups": {x: []int{2, 16, 6, 7}, w: []int{33, 16, 3, 3}, blocks: 1, place: lastAll, reads: true},
	"channels last, parts":  {x: []int{1, 80, 3, 3}, w: []int{20, 80, 3, 3}, blocks: 1, ends: true, place: lastAll, reads: true},
	"some of channels last": {x: []int{2, 24, 5, 7}, w: []int{20, 9, 3, 2},
		blocks: 1, place: func(_ *written, x, weight operand) (operand, operand) {
			return lastly(x, 3, 9), weight
		}},
	"some of a weight's channels last": {x: []int{2, 16, 5, 7}, w: []int{20, 24, 3, 2},
		blocks: 1, place: func(_ *written, x, weight operand) (operand, operand) {
			return lastly(x, 0, 16), lastly(weight, 8, 16)
		}},
	"unaligned": {x: []int{2, 17, 5, 7}, w: []int{20, 17, 1, 1},
		blocks: 1, place: func(_ *written, x, weight operand) (operand, operand) {
			weight.Layout.Shape, weight.Layout.Strides = tensor.Shape{20, 16, 1, 1}, []int{16, 1, 1, 1}
			weight.Layout.Offset = 1
			return lastly(x, 1, 16), weight
		}},
}

// lastAll takes an operand with its channels last.
func lastAll(_ *written, x, weight graph.Operand) (graph.Operand, graph.Operand) {
	return lastly(x, 0, x.Layout.Shape[1]), weight
}

// lastly takes a constant as one with its channels last, and some of them.
func lastly(o graph.Operand, from, count int) graph.Operand {
	s := o.Layout.Shape
	l := tensor.Contiguous(append(append(tensor.Shape{s[0]}, s[2:]...), s[1])...)
	shape := append(tensor.Shape{s[0], count}, s[2:]...)
	strides := append([]int{l.Strides[0], 1}, l.Strides[1:len(s)-1]...)
	return graph.Operand{Value: o.Value, Layout: tensor.Layout{Shape: shape, Strides: strides, Offset: from}}
}

// channelsLast is an operand N×C×space as N×space×C.
func channelsLast(o graph.Operand) graph.Operand {
	l := o.Layout
	turn := func(list []int) []int { return append(append([]int{list[0]}, list[2:]...), list[1]) }
	o.Layout = tensor.Layout{Shape: turn(l.Shape), Strides: turn(l.Strides), Offset: l.Offset}
	return o
}

// rounding returns what rounds floats to a precision: bfloat16 to even, tf32 away from zero.
func rounding(precision string) func(bits uint32) uint32 {
	if precision == "bf16" {
		return func(bits uint32) uint32 { return (bits + 0x7fff + bits>>16&1) &^ 0xffff }
	}
	return func(bits uint32) uint32 { return (bits + 0x1000) &^ 0x1fff }
}

// compareConvs compares convolutions with those of the CPU, where factors are to be rounded with those of rounded factors; wanted says
// which, nil all.
func compareConvs(t *testing.T, dev *cuda.Device, wanted func(d tensor.DType, c *convCase) bool) {
	pool := cpu.NewPool(1)
	defer pool.Close()
	info := dev.Info()
	hopper := wanted != nil && info.Capability == 90
	for _, how := range []struct {
		name  string
		dtype tensor.DType
		bound float64
	}{{"f16", tensor.Float16, 2e-3}, {"bf16", tensor.BFloat16, 1.6e-2}, {"narrow", tensor.Float32, 1e-5}, {"tf32", tensor.Float32, 1e-5}} {
		for name, c := range convCases {
			if wanted != nil && !wanted(how.dtype, &c) {
				continue
			}
			run := func(t *testing.T, last bool) {
				defer cuda.OnlyConvBlocks(c.blocks)()
				attrs := graph.Attrs{"groups": 1}
				for _, list := range []string{"stride", "padding", "dilation"} {
					attrs[list] = slices.Repeat([]int{map[string]int{"padding": 0}[list] + map[bool]int{true: 1}[list != "padding"]}, len(c.x)-2)
				}
				for k, v := range c.attrs {
					attrs[k] = v
				}
				precision := map[string]string{"narrow": "bf16", "tf32": "tf32"}[how.name]
				// Without a precision it is a graph of floats, of factors that were rounded before.
				build := func(precision string, wide bool, round func(uint32) uint32) *graph.Graph {
					dtype := how.dtype
					if wide {
						dtype = tensor.Float32
					}
					w := &written{&graph.Graph{Modules: make(map[string]graph.Operand)}, t}
					factor := func(shape []int) graph.Operand {
						x := widened(numbers(how.dtype, shape...), dtype)
						for at := 0; round != nil && at < len(x.Data); at += 4 {
							binary.LittleEndian.PutUint32(x.Data[at:], round(binary.LittleEndian.Uint32(x.Data[at:])))
						}
						return w.Whole(w.AddConst(x))
					}
					a := graph.Attrs{"precision": precision, "eps": 1e-3}
					for k, v := range attrs {
						a[k] = v
					}
					if precision == "" {
						delete(a, "precision")
					}
					constant := func(shape ...int) graph.Operand {
						return w.Whole(w.AddConst(widened(numbers(how.dtype, shape...), dtype)))
					}
					in := []graph.Operand{factor(c.x), factor(c.w), constant(c.w[0])}
					if c.place != nil {
						in[0], in[1] = c.place(w, in[0], in[1])
					}
					if c.ends {
						specs := []graph.Spec{w.Spec(in[0]), w.Spec(in[1]), w.Spec(in[2])}
						def, _ := graph.Standard().Lookup("conv")
						out, err := def.Shape(specs, a)
						if err != nil {
							t.Fatal(err)
						}
						variance := w.Whole(w.AddConst(widened(positive(how.dtype, c.w[0]), dtype)))
						in = append(in, constant(c.w[0]), constant(c.w[0]), constant(c.w[0]), variance, constant(out[0].Shape...))
						a["act"], a["act_a"] = "leaky_relu", 0.25
					}
					y := w.op("conv", a, in...)
					if last && wide {
						y = w.op("copy", nil, channelsLast(y))
					} else if last {
						op := &w.Ops[len(w.Ops)-1]
						op.Attrs["channels_last"], op.Attrs["reads_channels_last"] = true, c.reads
						if len(in) > 3 {
							op.In[7] = channelsLast(in[7])
						}
						w.Values[y.Value].Shape = channelsLast(y).Layout.Shape
						y = w.Whole(y.Value)
					}
					if dtype != how.dtype {
						y = w.op("cast", graph.Attrs{"dtype": how.dtype}, y)
					}
					w.Outputs = []graph.Output{{Name: "y", Operand: y}}
					return w.Graph
				}
				lower := cuda.Lower
				if hopper {
					lower = dev.Lower
				}
				l, err := lower(build(precision, false, nil))
				if err != nil {
					t.Fatal(err)
				}
				if hopper && l.Steps[0].Kernel != cuda.HopperConvKernel {
					t.Errorf("computed by %s", l.Steps[0].Kernel)
				}
				if how.name == "narrow" && c.w[0]/c.groups() >= 16 && c.x[0]*c.x[1] > 0 && !strings.HasSuffix(l.Steps[0].Kernel, "_bf16") {
					t.Errorf("computed by %s", l.Steps[0].Kernel)
				}
				got, err := interpret(t.Context(), dev, l, nil)
				if err != nil {
					t.Fatal(err)
				}
				var round func(uint32) uint32
				rounds := precision != "" && info.Capability >= 80 && c.w[0]/c.groups() >= 16
				if rounds {
					round = rounding(precision)
				}
				want, err := cpu.Interpret(t.Context(), pool, graph.Standard(), build("", true, round), nil, nil)
				if err != nil {
					t.Fatal(err)
				}
				if err := devicetest.Compare(got["y"], want["y"], how.bound); err != nil {
					t.Error(err)
				}
				if how.name == "narrow" && rounds {
					sameInRoundedBlocks(t, dev, func() *graph.Graph { return build(precision, false, nil) })
				}
			}
			t.Run(how.name+", "+name, func(t *testing.T) { run(t, false) })
			if outputs := c.w[0] / c.groups(); info.Capability >= 80 && (outputs >= 16 || c.w[0]%4 == 0 && c.reads) && c.x[1] > 0 {
				t.Run(how.name+", "+name+", to channels last", func(t *testing.T) { run(t, true) })
			}
		}
		t.Run(how.name+", no numbers", func(t *testing.T) {
			x, w := numbers(how.dtype, 1, 8, 4, 4), numbers(how.dtype, 16, 8, 1, 1)
			size := how.dtype.Size()
			for at, v := range map[int]float32{3: float32(math.Inf(1)), 21: float32(math.NaN()), 40: float32(math.Inf(-1))} {
				put(x.Data[at*size:], how.dtype, v)
			}
			a := graph.Attrs{"stride": []int{1, 1}, "padding": []int{0, 0}, "dilation": []int{1, 1}, "groups": 1}
			bias := numbers(how.dtype, 16)
			in := []*tensor.Tensor{x, w, bias}
			want, err := cpu.Interpret(t.Context(), pool, graph.Standard(), loweredOp(t, graph.Op{Kind: "conv", Attrs: a}, in).Graph, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			if precision := map[string]string{"narrow": "bf16", "tf32": "tf32"}[how.name]; precision != "" {
				a["precision"] = precision
			}
			got, err := interpret(t.Context(), dev, loweredOp(t, graph.Op{Kind: "conv", Attrs: a}, in), nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := devicetest.Compare(got["y"], want["y"], 2e-2); err != nil {
				t.Error(err)
			}
		})
	}
}

// widened returns a tensor of half floats as float32.
func widened(x *tensor.Tensor, d tensor.DType) *tensor.Tensor {
	if x.DType == d {
		return x
	}
	y := &tensor.Tensor{DType: d, Layout: x.Layout}
	for at := 0; at < len(x.Data); at += 2 {
		bits := binary.LittleEndian.Uint16(x.Data[at:])
		f := math.Float32frombits(uint32(bits) << 16)
		if x.DType == tensor.Float16 {
			f = tensor.Float16ToFloat32(bits)
		}
		y.Data = binary.LittleEndian.AppendUint32(y.Data, math.Float32bits(f))
	}
	return y
}

// put writes a number as an element.
func put(to []byte, d tensor.DType, x float32) {
	switch d {
	case tensor.Float32:
		binary.LittleEndian.PutUint32(to, math.Float32bits(x))
	case tensor.Float16:
		binary.LittleEndian.PutUint16(to, tensor.Float16FromFloat32(x))
	case tensor.BFloat16:
		binary.LittleEndian.PutUint16(to, uint16(math.Float32bits(x)>>16))
	default:
		panic(fmt.Sprint("BUG: ", d))
	}
}

// positive returns numbers between a quarter and two.
func positive(d tensor.DType, n int) *tensor.Tensor {
	x := numbers(d, n)
	for i := range n {
		put(x.Data[i*d.Size():], d, 0.25+1.75*float32(i+1)/float32(n))
	}
	return x
}
