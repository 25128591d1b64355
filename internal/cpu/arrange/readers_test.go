package arrange

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/internal/cpu/blocked"
	simd "github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// stored adds a buffer that a value is stored to.
func (p *picture) stored(o graph.Operand) {
	shape := p.Values[o.Value].Shape
	w := tensor.Weight{Name: fmt.Sprint("s", len(p.Updates)), DType: tensor.Float32, Extent: storage.Extent{Bytes: int64(4 * volume(shape))}}
	p.Updates = append(p.Updates, graph.StateUpdate{State: p.AddWeight(w, graph.State), Operand: o})
}

// withStored returns a graph that gives what its buffers become, too.
func withStored(g *graph.Graph) *graph.Graph {
	h := *g
	h.Outputs, h.Updates = slices.Clone(g.Outputs), nil
	for i, u := range g.Updates {
		h.Outputs = append(h.Outputs, graph.Output{Name: fmt.Sprint("stored", i), Operand: u.Operand})
	}
	return &h
}

// readBesides are graphs whose values are read by more than the op that could take them with it.
var readBesides = map[string]func(p *picture){
	"a norm and its activation": func(p *picture) {
		x := p.conv(p.input(1, 3, 40, 40), 32, 3, 1, 1, "")
		y := p.op("batch_norm", graph.Attrs{"eps": 1.5}, x, p.weight(32), p.weight(32), p.weight(32), p.weight(32))
		z := p.conv(p.op("relu", nil, y), 48, 3, 1, 1, "")
		p.output(p.conv(p.op("add", nil, p.conv(z, 32, 1, 1, 1, ""), y), 32, 3, 1, 1, ""))
	},
	"a norm that is stored": func(p *picture) {
		x := p.conv(p.input(1, 3, 40, 40), 32, 3, 1, 1, "")
		y := p.op("batch_norm", graph.Attrs{"eps": 1.5}, x, p.weight(32), p.weight(32), p.weight(32), p.weight(32))
		p.stored(y)
		p.output(p.conv(p.op("relu", nil, y), 48, 3, 1, 1, ""))
	},
	"an expansion that is stored": func(p *picture) {
		y := p.conv(p.conv(p.input(1, 3, 40, 40), 32, 3, 1, 1, "relu"), 72, 1, 1, 1, "relu")
		p.stored(y)
		p.output(p.conv(p.conv(y, 72, 3, 1, 72, "relu"), 32, 1, 1, 1, ""))
	},
	"a linear that is scaled": func(p *picture) {
		x := p.conv(p.conv(p.input(2, 3, 40, 40), 48, 4, 4, 1, ""), 48, 5, 1, 1, "")
		n := p.op("layer_norm", graph.Attrs{"dims": 1, "eps": 1e-5}, turn(x, 0, 2, 3, 1), p.weight(48), p.weight(48))
		n = turn(p.linear(n, 48, nil), 0, 3, 1, 2)
		scale := p.weight(48)
		scale.Layout = tensor.Layout{Shape: x.Layout.Shape, Strides: []int{0, 1, 0, 0}}
		chain := graph.Attrs{"program": graph.Program{{Kind: "mul", Args: []int{0, 1}}, {Kind: "add", Args: []int{2, 3}}}}
		p.output(p.conv(p.op("chain", chain, n, scale, x), 64, 3, 1, 1, ""))
		p.output(p.conv(n, 64, 3, 1, 1, ""))
	},
}

// TestArrangeKeepsWhatOthersRead: whatever becomes of a value's reader, the others read the value, and buffers become it.
func TestArrangeKeepsWhatOthersRead(t *testing.T) {
	for name, build := range readBesides {
		p := newPicture(t)
		build(p)
		want := p.results(withStored(p.Graph))
		for k, got := range p.results(withStored(Graph(p.Graph, true))) {
			t.Run(name, func(t *testing.T) { near(t, got, want[k], 1e-4) })
		}
	}
}

// TestByUnitRowsKeepsWhatIsStored: rows that a buffer is made of are not rounded away.
func TestByUnitRowsKeepsWhatIsStored(t *testing.T) {
	p := newPicture(t)
	y := p.linear(p.input(40, 64), 64, nil)
	p.stored(y)
	p.output(p.linear(y, 40, nil))
	want := p.results(withStored(p.Graph))
	for _, set := range simd.UnitSets() {
		for k, got := range p.results(withStored(byUnitRows(roundingRows(p.Graph), set))) {
			near(t, got, want[k], 1.0/64)
		}
	}
}

// TestArrangeGuardsOfWhatGoesIntoBlocks: what brings a value into blocks runs when the value was computed, whoever reads it
// first.
func TestArrangeGuardsOfWhatGoesIntoBlocks(t *testing.T) {
	for _, yes := range []byte{0, 1} {
		p := newPicture(t)
		x := p.op("cumsum", graph.Attrs{"dim": 2}, p.input(1, 32, 40, 40))
		is := p.Whole(p.AddConst(&tensor.Tensor{DType: tensor.Bool, Layout: tensor.Contiguous(), Data: []byte{yes}}))
		branch := func(want bool) graph.Operand {
			first := len(p.Ops)
			y := p.conv(p.conv(x, 64, 3, 1, 1, "relu"), 32, 3, 1, 1, "")
			for i := first; i < len(p.Ops); i++ {
				p.Ops[i].Guard = []graph.Guard{{Predicate: is, Want: want}}
			}
			return y
		}
		a, b := branch(true), branch(false)
		p.output(p.op("choose", nil, is, a, b))
		g := Graph(p.Graph, true)
		if !slices.ContainsFunc(g.Ops, func(op graph.Op) bool { return op.Kind == "to16" }) {
			t.Fatalf("it became %s", kindsOf(g))
		}
		near(t, p.results(g)[0], p.results(p.Graph)[0], 1e-4)
	}
}

// TestPaddingStaysZero: the lanes that no channel has are zero in every value in blocks, whatever lay in its memory before.
func TestPaddingStaysZero(t *testing.T) {
	p := newPicture(t)
	images := turn(p.input(2, 40, 40, 20), 0, 3, 1, 2) // the channels of a pixel side by side
	x := p.conv(images, 20, 3, 1, 1, "")
	a := graph.Attrs{"eps": 0.5}
	x = p.op("sigmoid", nil, p.op("batch_norm", a, x, p.weight(20), p.weight(20), p.weight(20), p.weight(20)))
	x = p.op("sigmoid", nil, p.conv(x, 20, 3, 1, 1, "sigmoid"))
	x = p.op("exp", nil, p.conv(x, 20, 3, 1, 1, ""))
	x = p.op("cat", graph.Attrs{"dim": 1}, p.conv(x, 32, 3, 1, 1, "sigmoid"), p.conv(x, 7, 3, 1, 1, "sigmoid"))
	p.output(p.conv(x, 20, 3, 1, 1, ""))
	g := *inBlocks(p.Graph, false)
	g.Outputs = nil // but all that is computed, in memory that held NaN
	for _, op := range g.Ops {
		g.Outputs = append(g.Outputs, graph.Output{Name: fmt.Sprint(op.Out[0]), Operand: g.Whole(op.Out[0])})
	}
	inputs := make(map[string]*tensor.Tensor)
	for _, id := range g.Inputs {
		v := g.Values[id]
		inputs[v.Name] = tensor.Of(make([]float32, volume(v.Shape)), v.Shape...)
	}
	pool := cpu.NewPool(1)
	defer pool.Close()
	computed, err := cpu.Interpret(t.Context(), pool, graph.Standard(), &g, func(v graph.Value) ([]byte, error) {
		return tensor.Of(slices.Repeat([]float32{0.25}, volume(v.Shape)), v.Shape...).Data, nil
	}, inputs)
	if err != nil {
		t.Fatal(err)
	}
	channels, looked := make(map[graph.ValueID]int), make(map[graph.Kind]bool)
	for i := range g.Ops {
		op := &g.Ops[i]
		s := g.Values[op.Out[0]].Shape
		if len(s) != 5 {
			continue
		}
		n, known := op.Attrs["channels"].(int)
		switch conv, isConv := op.Attrs["conv"].(*blocked.Conv); {
		case isConv:
			n = conv.Out
		case !known:
			n = channels[op.In[0].Value]
		}
		if n == 0 {
			t.Fatalf("%s: nobody knows how many channels it gives", op.Kind)
		}
		channels[op.Out[0]], looked[op.Kind] = n, true
		for k, v := range floats(computed[g.Outputs[i].Name].Data) {
			lane := k/(s[2]*s[3]*s[4])%s[1]*blocked.Lanes + k%blocked.Lanes
			if lane >= n && v != 0 || lane < n && math.IsNaN(float64(v)) {
				t.Fatalf("%s: lane %d of %d channels is %v", op.Kind, lane, n, v)
			}
		}
	}
	for _, kind := range []graph.Kind{"to16", "conv16", "norm16", "act16", "cat16"} {
		if !looked[kind] {
			t.Errorf("no %s among %s", kind, kindsOf(&g))
		}
	}
}

// TestArrangeNormsBehindABias: a convolution in blocks adds its bias before the batch norm that ends it.
func TestArrangeNormsBehindABias(t *testing.T) {
	p := newPicture(t)
	x := p.conv(p.input(1, 3, 40, 40), 32, 3, 1, 1, "")
	a := graph.Attrs{
		"stride": []int{1, 1}, "padding": []int{1, 1}, "dilation": []int{1, 1}, "groups": 1, "eps": 1.5, "act": "relu",
	}
	x = p.op("conv", a, x, p.weight(48, 32, 3, 3), p.weight(48), p.weight(48), p.weight(48), p.weight(48), p.weight(48))
	p.output(p.conv(x, 32, 3, 1, 1, ""))
	near(t, p.results(Graph(p.Graph, true))[0], p.results(p.Graph)[0], 1e-4)
}
