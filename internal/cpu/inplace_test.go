package cpu_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/optimem/optimem/device/devicetest"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/internal/cpu/arrange"
	"github.com/optimem/optimem/models/aten"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// TestInPlace: every kernel that says that its result may lie over an operand gives the same bits there: for all calls that
// PyTorch was recorded with, and in networks of kinds that no program has.
func TestInPlace(t *testing.T) {
	dev := cpu.New(2, graph.Standard())
	defer func() { _ = dev.Close() }()
	ran := make(map[graph.Kind]int)
	run := func(name string, g *graph.Graph, storage func(v graph.Value) []byte) {
		t.Helper()
		kinds, err := devicetest.InPlace(t.Context(), dev, dev.Lower, g, storage)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for kind, n := range kinds {
			ran[kind] += n
		}
	}
	cases, err := devicetest.Cases()
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range cases {
		if testing.Short() && i%8 != 0 {
			continue
		}
		g, err := aten.BuildCall(graph.Standard(), c.Target, c.Args)
		if err != nil {
			t.Fatal(err)
		}
		run(c.Name, g, func(v graph.Value) []byte { return c.Inputs[v.Name].Data })
	}
	for name, build := range map[string]func(n *network){
		"residuals": func(n *network) {
			x := n.conv(n.input(2, 3, 44, 36), 24, 3, 2, 1, "relu")
			for _, act := range []string{"relu", "silu", "sigmoid", ""} {
				x = n.conv(n.conv(x, 24, 1, 1, 1, "relu"), 24, 3, 1, 1, act, x) // by Winograd
				x = n.conv(n.conv(x, 40, 1, 1, 1, "relu"), 24, 1, 1, 1, act, x)
				x = n.conv(n.conv(x, 24, 1, 1, 1, "relu"), 24, 5, 1, 24, act, x)
			}
			n.output(x)
		},
		"residuals of sums that are added up in the output": func(n *network) {
			x := n.conv(n.input(1, 3, 20, 20), 24, 3, 1, 1, "relu")
			n.output(n.conv(n.conv(x, 600, 1, 1, 1, "relu"), 24, 1, 1, 1, "relu", x))
		},
		"norms, gates and activations": func(n *network) {
			x := n.conv(n.input(2, 3, 40, 40), 72, 3, 2, 1, "hardswish")
			s := n.op("adaptive_avg_pool", graph.Attrs{"size": []int{1, 1}}, x)
			s = n.conv(s, 72, 1, 1, 1, "sigmoid")
			s.Layout = tensor.Layout{Shape: x.Layout.Shape, Strides: []int{72, 1, 0, 0}}
			x = n.op("mul", nil, s, x)
			x = n.op("sigmoid", nil, n.conv(x, 20, 1, 1, 1, ""))
			a := graph.Attrs{"eps": 0.5}
			x = n.op("batch_norm", a, n.conv(x, 72, 1, 1, 1, ""), n.weight(72), n.weight(72), n.weight(72), n.weight(72))
			n.output(n.conv(n.op("relu", nil, x), 30, 3, 1, 2, ""))
		},
		"norms of pixels": func(n *network) {
			x := n.conv(n.input(2, 3, 40, 40), 48, 4, 4, 1, "")
			x = n.norm(x, 48)
			x = n.norm(n.conv(x, 48, 7, 1, 48, ""), 48)
			n.output(n.conv(x, 64, 3, 1, 1, ""))
		},
		"chains": func(n *network) {
			for _, width := range []int{1, 7, 16, 33, 1000, 5000} {
				x, y := n.input(3, width), n.input(3, width)
				program := graph.Program{{Kind: "silu", Args: []int{0}}, {Kind: "mul", Args: []int{2, 1}}, {Kind: "add", Args: []int{3, 0}}}
				n.output(n.op("chain", graph.Attrs{"program": program}, x, y))
			}
		},
	} {
		n := &network{Graph: &graph.Graph{}, t: t}
		build(n)
		run(name, arrange.Graph(n.Graph, false), n.storage)
	}
	for _, kind := range cpu.KindsInPlace() {
		if ran[kind] == 0 && !testing.Short() {
			t.Errorf("%s did not run in place", kind)
		}
	}
}

// TestInPlaceFails: kernels that cannot write over an operand are found out where they are said to.
func TestInPlaceFails(t *testing.T) {
	dev := cpu.New(2, graph.Standard())
	defer func() { _ = dev.Close() }()
	for name, build := range map[string]func(n *network){
		"reversed": func(n *network) { n.output(n.op("flip", graph.Attrs{"dims": []int{0}}, n.input(40))) },
		"sums of many products": func(n *network) {
			x := n.conv(n.input(1, 3, 20, 20), 24, 3, 1, 1, "relu")
			n.output(n.conv(n.conv(x, 600, 1, 1, 1, "relu"), 24, 1, 1, 1, "relu", x))
		},
		"a linear layer's residual": func(n *network) {
			x := n.input(40, 600)
			n.output(n.op("linear", nil, x, n.weight(600, 600), graph.Absent, x))
		},
	} {
		n := &network{Graph: &graph.Graph{}, t: t}
		build(n)
		bold := func(g *graph.Graph) (*graph.Lowered, error) {
			l, err := dev.Lower(g)
			if err != nil {
				return nil, err
			}
			for i := range l.Steps {
				l.Steps[i].InPlace = nil
				for k := range g.Ops[i].In {
					l.Steps[i].InPlace = append(l.Steps[i].InPlace, k)
				}
			}
			return l, nil
		}
		if _, err := devicetest.InPlace(t.Context(), dev, bold, arrange.Graph(n.Graph, false), n.storage); err == nil {
			t.Errorf("%s: nothing was found", name)
		}
	}
}

// A network is a graph being written down, with weights and inputs of its own.
type network struct {
	*graph.Graph
	t *testing.T
}

// storage returns numbers that depend on a value's name and size alone.
func (n *network) storage(v graph.Value) []byte {
	r := rand.New(rand.NewPCG(uint64(v.Bytes()), 1))
	data := make([]byte, v.Bytes())
	for i := 0; i < len(data); i += 4 {
		binary.LittleEndian.PutUint32(data[i:], math.Float32bits(float32(r.Float64()-0.35)/4))
	}
	return data
}

func (n *network) input(shape ...int) graph.Operand {
	return n.Whole(n.AddInput(fmt.Sprint("x", len(n.Inputs)), tensor.Float32, shape))
}

func (n *network) weight(shape ...int) graph.Operand {
	l := tensor.Contiguous(shape...)
	count, _ := l.NumElements()
	w := tensor.Weight{Name: fmt.Sprint(len(n.Values)), DType: tensor.Float32, Extent: storage.Extent{Bytes: 4 * count}}
	return graph.Operand{Value: n.AddWeight(w, graph.Weight), Layout: l}
}

func (n *network) op(kind graph.Kind, a graph.Attrs, in ...graph.Operand) graph.Operand {
	n.t.Helper()
	out, err := n.Emit(graph.Standard(), graph.Op{Kind: kind, Attrs: a, In: in})
	if err != nil {
		n.t.Fatal(err)
	}
	return n.Whole(out[0])
}

func (n *network) output(o graph.Operand) {
	n.Outputs = append(n.Outputs, graph.Output{Name: fmt.Sprint("y", len(n.Outputs)), Operand: o})
}

// conv adds a convolution with a window of k×k.
func (n *network) conv(
	x graph.Operand, outputs, k, stride, groups int, act string, residual ...graph.Operand,
) graph.Operand {
	n.t.Helper()
	a := graph.Attrs{
		"stride": []int{stride, stride}, "padding": []int{k / 2, k / 2}, "dilation": []int{1, 1}, "groups": groups,
	}
	if act != "" {
		a["act"] = act
	}
	in := []graph.Operand{x, n.weight(outputs, x.Layout.Shape[1]/groups, k, k), n.weight(outputs)}
	if len(residual) > 0 {
		in = append(in, graph.Absent, graph.Absent, graph.Absent, graph.Absent, residual[0])
	}
	return n.op("conv", a, in...)
}

// norm normalises each pixel over its channels.
func (n *network) norm(x graph.Operand, channels int) graph.Operand {
	n.t.Helper()
	turned := func(o graph.Operand, dims ...int) graph.Operand {
		l := tensor.Layout{}
		for _, d := range dims {
			l.Shape, l.Strides = append(l.Shape, o.Layout.Shape[d]), append(l.Strides, o.Layout.Strides[d])
		}
		return graph.Operand{Value: o.Value, Layout: l}
	}
	a := graph.Attrs{"dims": 1, "eps": 1e-5}
	return turned(n.op("layer_norm", a, turned(x, 0, 2, 3, 1), n.weight(channels), n.weight(channels)), 0, 3, 1, 2)
}
