//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"bytes"
	"maps"
	"slices"
	"strconv"
	"testing"

	"github.com/optimem/optimem/cuda"
	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/device/devicetest"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/graph/rewrite"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/models/aten"
	"github.com/optimem/optimem/tensor"
)

// TestRecordedChannelsLast runs the recorded calls that have convolutions on tensor cores with their values channels-last,
// and, where they are of floats, with factors rounded.
func TestRecordedChannelsLast(t *testing.T) {
	if testing.Short() {
		t.Skip("all calls take long under the race detector")
	}
	dev, _ := open(t, "order=lazy:2 memory=256M")
	if n := complyChannelsLast(t, dev); n < 20 {
		t.Errorf("%d calls ran", n)
	}
}

func complyChannelsLast(t *testing.T, dev device.Device) (ran int) {
	defer cuda.AnyChannels()()
	cases, err := devicetest.Cases()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		g, err := aten.BuildCall(graph.Standard(), c.Target, c.Args)
		if err != nil {
			t.Fatal(err)
		}
		bound := c.Bound
		if slices.ContainsFunc(g.Ops, func(op graph.Op) bool { return op.Kind == "conv" && g.Spec(op.In[0]).DType == tensor.Float32 }) {
			g, bound = rewrite.Narrow(g, "tf32"), max(bound, 4e-3)
		}
		arranged := cuda.ArrangeAll(g)
		if makes, _ := lastConvs(arranged); makes == 0 {
			continue
		}
		ran++
		t.Run(c.Name, func(t *testing.T) {
			l, err := cuda.Lower(arranged)
			if err != nil {
				t.Fatal(err)
			}
			out, err := interpret(t.Context(), dev, l, c.Inputs)
			if err != nil {
				t.Fatalf("%s%v: %v", c.Target, c.Args, err)
			}
			for i, want := range c.Outputs {
				if err := devicetest.Compare(out[strconv.Itoa(i)], want, bound); err != nil {
					t.Errorf("%s%v: result %d: %v", c.Target, c.Args, i, err)
				}
			}
		})
	}
	t.Logf("%d calls ran", ran)
	return ran
}

// lastConvs counts the convolutions of a graph that make results channels-last, and that read such.
func lastConvs(g *graph.Graph) (makes, reads int) {
	for _, op := range g.Ops {
		if op.Attrs.Bool("channels_last") {
			makes++
		}
		if op.Attrs.Bool("reads_channels_last") {
			reads++
		}
	}
	return makes, reads
}

// A layered network is one of a few layers of some kind.
type layered struct {
	*written
	dtype tensor.DType
}

func (n *layered) constant(shape ...int) graph.Operand {
	return n.Whole(n.AddConst(numbers(n.dtype, shape...)))
}

func (n *layered) conv(x graph.Operand, outputs, size, stride, groups int) graph.Operand {
	inputs := x.Layout.Shape[1]
	a := graph.Attrs{"stride": []int{stride, stride}, "padding": []int{size / 2, size / 2}, "dilation": []int{1, 1}, "groups": groups}
	shape := []int{outputs, inputs / groups, size, size}
	w := n.op("mul", nil, n.constant(shape...), expandedTo(n.scale(inputs/groups*size*size), shape...))
	return n.op("conv", a, x, w, n.constant(outputs))
}

// scale is a number that keeps sums of many terms about as large as the terms.
func (n *layered) scale(terms int) graph.Operand {
	c := &tensor.Tensor{DType: n.dtype, Layout: tensor.Contiguous(1), Data: make([]byte, n.dtype.Size())}
	put(c.Data, n.dtype, 1/float32(1+terms/4))
	return n.Whole(n.AddConst(c))
}

// expandedTo is a number as a tensor.
func expandedTo(o graph.Operand, shape ...int) graph.Operand {
	o.Layout = tensor.Layout{Shape: shape, Strides: make([]int, len(shape)), Offset: o.Layout.Offset}
	return o
}

func (n *layered) norm(x graph.Operand) graph.Operand {
	c := x.Layout.Shape[1]
	variance := n.Whole(n.AddConst(positive(n.dtype, c)))
	return n.op("batch_norm", graph.Attrs{"eps": 1e-3}, x, n.constant(c), n.constant(c), n.constant(c), variance)
}

func (n *layered) relu(x graph.Operand) graph.Operand { return n.op("relu", nil, x) }

// viewed is all of an operand in another order of its dimensions.
func viewed(o graph.Operand, order ...int) graph.Operand {
	l := tensor.Layout{Offset: o.Layout.Offset}
	for _, d := range order {
		l.Shape, l.Strides = append(l.Shape, o.Layout.Shape[d]), append(l.Strides, o.Layout.Strides[d])
	}
	o.Layout = l
	return o
}

// reshaped is all of an operand in another shape.
func (n *layered) reshaped(o graph.Operand, shape ...int) graph.Operand {
	l, ok := o.Layout.ViewAs(shape)
	if !ok {
		n.t.Fatal("no view")
	}
	o.Layout = l
	return o
}

// networks are written over pictures, and say how many convolutions make and read channels-last values.
var networks = map[string]struct {
	write        func(n *layered, x graph.Operand) graph.Operand
	makes, reads int
}{
	"residual": {func(n *layered, x graph.Operand) graph.Operand {
		x = n.relu(n.norm(n.conv(x, 16, 7, 2, 1)))
		x = n.op("max_pool", graph.Attrs{"kernel": []int{3, 3}, "stride": []int{2, 2}, "padding": []int{1, 1}, "dilation": []int{1, 1}}, x)
		for range 2 {
			y := n.relu(n.norm(n.conv(x, 16, 1, 1, 1)))
			y = n.relu(n.norm(n.conv(y, 16, 3, 1, 1)))
			y = n.norm(n.conv(y, 32, 1, 1, 1))
			if x.Layout.Shape[1] != 32 {
				x = n.norm(n.conv(x, 32, 1, 1, 1))
			}
			x = n.relu(n.op("add", graph.Attrs{"alpha": 1.0}, y, x))
		}
		x = n.op("adaptive_avg_pool", graph.Attrs{"size": []int{1, 1}}, x)
		return n.op("linear", nil, n.reshaped(x, 2, 32), n.constant(10, 32), n.constant(10))
	}, 8, 7},
	"each channel": {func(n *layered, x graph.Operand) graph.Operand {
		x = n.relu(n.norm(n.conv(x, 16, 3, 2, 1)))
		y := n.relu(n.norm(n.conv(x, 32, 1, 1, 1)))
		y = n.op("hardswish", nil, n.norm(n.conv(y, 32, 3, 1, 32)))
		s := n.relu(n.conv(n.op("mean", graph.Attrs{"dims": []int{2, 3}, "keepdim": true, "dtype": n.dtype}, y), 16, 1, 1, 1))
		s = n.op("sigmoid", nil, n.conv(s, 32, 1, 1, 1))
		h, w := y.Layout.Shape[2], y.Layout.Shape[3]
		s.Layout.Shape, s.Layout.Strides = tensor.Shape{2, 32, h, w}, []int{32, 1, 0, 0}
		y = n.norm(n.conv(n.op("mul", nil, y, s), 16, 1, 1, 1))
		x = n.op("add", graph.Attrs{"alpha": 1.0}, y, x)
		return n.conv(x, 32, 3, 2, 2)
	}, 4, 5},
	"dense": {func(n *layered, x graph.Operand) graph.Operand {
		x = n.conv(x, 16, 3, 1, 1)
		for range 2 {
			y := n.conv(n.relu(n.norm(x)), 16, 3, 1, 1)
			x = n.op("cat", graph.Attrs{"dim": 1}, x, y)
		}
		x = n.op("avg_pool", graph.Attrs{"kernel": []int{2, 2}, "stride": []int{2, 2}, "padding": []int{0, 0}, "count_include_pad": true}, x)
		return n.op("neg", nil, n.conv(n.relu(x), 20, 1, 1, 1))
	}, 3, 3},
	"norms of pixels": {func(n *layered, x graph.Operand) graph.Operand {
		x = n.conv(x, 16, 4, 4, 1)
		for range 2 {
			y := n.conv(x, 16, 3, 1, 16)
			y = n.op("layer_norm", graph.Attrs{"dims": 1, "eps": 1e-5}, viewed(y, 0, 2, 3, 1), n.constant(16), n.constant(16))
			y = n.op("linear", nil, y, n.constant(16, 16), n.constant(16))
			x = n.op("add", graph.Attrs{"alpha": 1.0}, x, viewed(y, 0, 3, 1, 2))
		}
		return n.conv(x, 16, 2, 2, 1)
	}, 3, 1},
	"flat at the end": {func(n *layered, x graph.Operand) graph.Operand {
		x = n.relu(n.conv(n.relu(n.conv(x, 16, 3, 4, 1)), 16, 3, 4, 1))
		return n.op("linear", nil, n.reshaped(x, 2, 64), n.constant(5, 64), n.constant(5))
	}, 1, 1},
	"nobody to save for": {func(n *layered, x graph.Operand) graph.Operand {
		return n.op("softmax", graph.Attrs{"dim": 3}, n.relu(n.conv(x, 16, 3, 1, 1)))
	}, 0, 0},
}

// TestChannelsLast runs networks with regions and without.
func TestChannelsLast(t *testing.T) {
	dev, _ := open(t, "order=lazy:3 memory=64M")
	if testing.Short() {
		compareChannelsLast(t, dev, "each channel", "f16")
		return
	}
	for name := range networks {
		compareChannelsLast(t, dev, name, "f16", "of bf16", "bf16", "tf32")
	}
}

// compareChannelsLast runs a network with its regions and without, as half floats or with factors rounded.
func compareChannelsLast(t *testing.T, dev device.Device, name string, kinds ...string) {
	pool := cpu.NewPool(1)
	defer pool.Close()
	c := networks[name]
	for _, how := range kinds {
		d, half := map[string]tensor.DType{"f16": tensor.Float16, "of bf16": tensor.BFloat16}[how]
		if !half {
			d = tensor.Float32
		}
		t.Run(name+", "+how, func(t *testing.T) {
			n := &layered{&written{&graph.Graph{Modules: make(map[string]graph.Operand)}, t}, d}
			y := c.write(n, n.constant(2, 3, 20, 18))
			n.Outputs = []graph.Output{{Name: "y", Operand: y}}
			want, err := cpu.Interpret(t.Context(), pool, graph.Standard(), n.Graph, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			g := rewrite.Optimise(n.Graph, graph.Standard(), rewrite.FoldConstants, nil)
			if d == tensor.Float32 {
				g = rewrite.Narrow(g, how)
			}
			before := maps.Clone(g.Ops[0].Attrs)
			arranged := cuda.Arrange(g)
			if makes, reads := lastConvs(arranged); makes != c.makes || reads != c.reads {
				t.Errorf("%d convolutions make channels-last values and %d read them, not %d and %d", makes, reads, c.makes, c.reads)
			}
			if makes, reads := lastConvs(g); makes+reads != 0 || len(before) != len(g.Ops[0].Attrs) {
				t.Error("the graph itself changed")
			}
			if half { // modes in which the CPU computes beside the GPU have the same graph
				beside, err := cpu.Interpret(t.Context(), pool, graph.Standard(), arranged, nil, nil)
				if err != nil {
					t.Fatal(err)
				}
				if err := devicetest.Compare(beside["y"], want["y"], 1e-2); err != nil {
					t.Errorf("on the CPU: %v", err)
				}
			}
			results := make(map[string]*tensor.Tensor)
			for how, g := range map[string]*graph.Graph{"as it is": g, "arranged": arranged, "all": cuda.ArrangeAll(g)} {
				l, err := cuda.Lower(g)
				if err != nil {
					t.Fatal(err)
				}
				out, err := interpret(t.Context(), dev, l, nil)
				if err != nil {
					t.Fatalf("%s: %v", how, err)
				}
				results[how] = out["y"]
				if err := devicetest.Compare(out["y"], want["y"], 3e-2); err != nil {
					t.Errorf("%s: %v", how, err)
				}
			}
			for how, got := range results {
				if name == "dense" { // means of windows are summed in another order
					if err := devicetest.Compare(got, results["as it is"], 4e-3); err != nil {
						t.Errorf("%s: %v", how, err)
					}
				} else if !bytes.Equal(got.Data, results["as it is"].Data) {
					t.Errorf("%s: other bits", how)
				}
			}
		})
	}
}
