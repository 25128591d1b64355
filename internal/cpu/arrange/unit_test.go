package arrange

import (
	"bytes"
	"encoding/binary"
	"maps"
	"math"
	"strings"
	"testing"

	"github.com/optimem/optimem/graph"
	simd "github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/tensor"
)

// rounding lets the convolutions of a graph that have no groups round their factors.
func rounding(g *graph.Graph) *graph.Graph {
	h := *g
	h.Ops = append([]graph.Op(nil), g.Ops...)
	for i, op := range h.Ops {
		if op.Kind == "conv" && op.Attrs.Int("groups") == 1 {
			h.Ops[i].Attrs = maps.Clone(op.Attrs)
			h.Ops[i].Attrs["precision"] = "bf16"
		}
	}
	return &h
}

// TestByUnits: what becomes of networks whose convolutions may round, and that they compute nearly the same, by each set of
// kernels: factors and what is handed on are off by 1/256 of themselves at most.
func TestByUnits(t *testing.T) {
	maxPool := graph.Attrs{
		"kernel": []int{3, 3}, "stride": []int{2, 2}, "padding": []int{1, 1}, "dilation": []int{1, 1}, "ceil_mode": false,
	}
	for name, c := range map[string]struct {
		build func(p *picture)
		want  string
	}{
		"a residual network": {func(p *picture) {
			x := p.conv(p.input(2, 3, 56, 48), 64, 7, 2, 1, "relu")
			x = p.op("max_pool", maxPool, x)
			y := p.conv(p.conv(x, 48, 1, 1, 1, "relu"), 64, 3, 2, 1, "relu")
			x = p.conv(y, 80, 1, 1, 1, "relu", p.conv(x, 80, 1, 2, 1, ""))
			p.output(p.op("adaptive_avg_pool", graph.Attrs{"size": []int{1, 1}}, x))
		}, "conv32 max32 conv32 conv32 conv32 conv32 from32 pool16 from16"},
		"channels by themselves between": {func(p *picture) {
			x := p.conv(p.input(1, 3, 40, 40), 24, 3, 2, 1, "hardswish")
			y := p.conv(p.conv(x, 72, 1, 1, 1, "silu"), 72, 5, 1, 72, "relu6")
			p.output(p.conv(y, 24, 1, 1, 1, "", x))
		}, "conv32 conv32 from32 conv16 to32 conv32 from32 from16"},
		"sums outside, and read twice": {func(p *picture) {
			x := p.conv(p.input(2, 3, 40, 40), 40, 3, 2, 1, "gelu")
			y := p.op("relu", nil, x)
			p.output(p.conv(y, 36, 3, 1, 1, "leaky_relu", p.conv(x, 36, 1, 1, 1, "")))
			p.output(y)
		}, "conv32 from32 relu conv32 to32 conv32 from32 from16 from16"},
		"lines": {func(p *picture) {
			a := graph.Attrs{"stride": []int{2}, "padding": []int{1}, "dilation": []int{1}, "groups": 1, "act": "gelu"}
			x := p.op("conv", a, p.input(2, 1, 4000), p.weight(64, 1, 7), graph.Absent)
			x = p.op("conv", a, x, p.weight(64, 64, 3), p.weight(64))
			p.output(x)
		}, "conv32 conv32 from32 from16"},
		"one that is no product of a unit": {func(p *picture) {
			p.output(p.conv(p.conv(p.input(1, 3, 40, 40), 64, 3, 1, 1, ""), 64, 3, 1, 4, ""))
		}, "conv32 from32 conv16 from16"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPicture(t)
			c.build(p)
			want := p.results(p.Graph)
			for _, set := range simd.UnitSets() {
				g := byUnits(inBlocks(rounding(p.Graph), false), set)
				var kinds []string
				for _, op := range g.Ops {
					kinds = append(kinds, string(op.Kind))
				}
				if got := strings.Join(kinds, " "); got != c.want {
					t.Errorf("it became %q, want %q", got, c.want)
				}
				for k, got := range p.results(g) {
					near(t, got, want[k], 1.0/64)
				}
			}
			if got := Graph(rounding(p.Graph), false); simd.UnitSets()[0].Vectors != nil && len(got.Ops) < len(p.Ops) {
				t.Errorf("%d ops are left of %d", len(got.Ops), len(p.Ops))
			}
		})
	}
}

// TestByUnitsRounds: what a set computes is what its operands, rounded, give in single precision, up to the rounding of the
// result.
func TestByUnitsRounds(t *testing.T) {
	p := newPicture(t)
	p.output(p.conv(p.input(2, 3, 150, 150), 40, 7, 2, 1, "relu"))
	round := func(x []byte) {
		for i, v := range floats(x) {
			v = tensor.BFloat16ToFloat32(tensor.BFloat16FromFloat32(v))
			binary.NativeEndian.PutUint32(x[4*i:], math.Float32bits(v))
		}
	}
	want := p.resultsOf(p.Graph, round)
	for _, set := range simd.UnitSets() {
		g := byUnits(inBlocks(rounding(p.Graph), false), set)
		if g.Ops[0].Kind != "conv32" {
			t.Fatalf("%s: it became %s", set.Name, g.Ops[0].Kind)
		}
		got := p.resultsOf(g, func([]byte) {})
		a, b := floats(got[0]), floats(want[0])
		for i := range a {
			if d := math.Abs(float64(a[i] - b[i])); d > math.Abs(float64(b[i]))/255+1e-3 {
				t.Fatalf("%s: element %d is %v, want %v", set.Name, i, a[i], b[i])
			}
		}
	}
}

// TestByUnitsGuards: borders run when what they convert was computed, whoever reads it first.
func TestByUnitsGuards(t *testing.T) {
	for _, yes := range []byte{0, 1} {
		p := newPicture(t)
		x := p.conv(p.conv(p.input(1, 3, 40, 40), 64, 3, 1, 1, ""), 32, 5, 1, 1, "")
		is := p.Whole(p.AddConst(&tensor.Tensor{DType: tensor.Bool, Layout: tensor.Contiguous(), Data: []byte{yes}}))
		for dim := 2; dim <= 3; dim++ {
			first := len(p.Ops)
			p.output(p.op("cumsum", graph.Attrs{"dim": dim}, x))
			for i := first; i < len(p.Ops); i++ {
				p.Ops[i].Guard = []graph.Guard{{Predicate: is, Want: dim == 2}}
			}
		}
		a, b := p.Outputs[0].Operand, p.Outputs[1].Operand
		p.Outputs = nil
		p.output(p.op("choose", nil, is, a, b))
		for _, set := range simd.UnitSets() {
			g := byUnits(inBlocks(rounding(p.Graph), false), set)
			if g.Ops[0].Kind != "conv32" {
				t.Fatalf("%s: it became %s", set.Name, g.Ops[0].Kind)
			}
			got := p.results(g)
			near(t, got[0], p.results(p.Graph)[0], 1.0/64)
		}
	}
}

// TestByUnitsThreads: the bits are those of one thread.
func TestByUnitsThreads(t *testing.T) {
	p := newPicture(t)
	x := p.conv(p.input(3, 3, 50, 46), 40, 3, 2, 1, "silu")
	p.output(p.conv(p.conv(x, 96, 3, 1, 1, "relu"), 40, 1, 1, 1, "", x))
	for _, set := range simd.UnitSets() {
		g := byUnits(inBlocks(rounding(p.Graph), false), set)
		p.threads = 1
		want := p.results(g)
		for _, threads := range []int{2, 5} {
			if p.threads = threads; !bytes.Equal(p.results(g)[0], want[0]) {
				t.Errorf("%s: %d threads give other bits", set.Name, threads)
			}
		}
	}
}
