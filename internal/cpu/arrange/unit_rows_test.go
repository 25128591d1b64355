package arrange

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/graph"
	simd "github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/tensor"
)

// roundingRows lets the linears of a graph round their factors, and its attention.
func roundingRows(g *graph.Graph) *graph.Graph {
	h := *g
	h.Ops = slices.Clone(g.Ops)
	for i, op := range h.Ops {
		switch op.Kind {
		case "linear", "scaled_dot_product_attention":
			h.Ops[i].Attrs = maps.Clone(op.Attrs)
			if h.Ops[i].Attrs == nil {
				h.Ops[i].Attrs = graph.Attrs{}
			}
			h.Ops[i].Attrs["precision"] = "bf16"
		}
	}
	return &h
}

// linear adds a linear with a bias.
func (p *picture) linear(x graph.Operand, outputs int, a graph.Attrs, residual ...graph.Operand) graph.Operand {
	in := []graph.Operand{x, p.weight(outputs, x.Layout.Shape[len(x.Layout.Shape)-1]), p.weight(outputs)}
	return p.op("linear", a, append(in, residual...)...)
}

// kindsOf returns the kinds of a graph's ops.
func kindsOf(g *graph.Graph) string {
	var kinds []string
	for _, op := range g.Ops {
		kinds = append(kinds, string(op.Kind))
	}
	return strings.Join(kinds, " ")
}

// rowGraphs are graphs of linears, and what becomes of them.
var rowGraphs = map[string]struct {
	build func(p *picture)
	want  string
}{
	"rows read three times": {func(p *picture) {
		x := p.input(2, 20, 96)
		for range 3 {
			p.output(p.linear(x, 64, nil))
		}
	}, "rows32 linear32 linear32 linear32"},
	"one after the other": {func(p *picture) {
		x := p.input(2, 20, 70)
		y := p.linear(p.linear(x, 200, graph.Attrs{"act": "gelu"}), 70, nil, x)
		p.output(p.linear(p.linear(y, 40, graph.Attrs{"act": "relu"}), 33, nil))
	}, "rows32 linear32 linear32 rows32 linear32 linear32"},
	"read by others too": {func(p *picture) {
		y := p.linear(p.input(3, 20, 64), 64, nil)
		p.output(p.linear(y, 40, graph.Attrs{"act": "silu"}))
		p.output(p.op("relu", nil, y))
	}, "rows32 linear32 rows32 linear32 relu"},
	"an output between": {func(p *picture) {
		y := p.linear(p.input(40, 64), 64, nil)
		p.output(p.linear(y, 40, nil))
		p.output(y)
	}, "rows32 linear32 rows32 linear32"},
	"some of the rows, and turned": {func(p *picture) {
		y := p.linear(p.input(40, 64), 64, nil)
		o := y
		o.Layout.Shape, o.Layout.Strides, o.Layout.Offset = []int{20, 64}, []int{128, 1}, 64
		p.output(p.linear(o, 40, nil))
		p.output(p.linear(turn(p.input(32, 40), 1, 0), 64, nil))
	}, "rows32 linear32 rows32 linear32 linear"},
	"few rows": {func(p *picture) {
		p.output(p.linear(p.input(3, 64), 64, nil))
	}, "linear"},
	"an activation before the residual": {func(p *picture) {
		x := p.input(40, 64)
		p.output(p.linear(x, 64, graph.Attrs{"act": "relu"}, x))
	}, "linear"},
}

// TestByUnitRows: what becomes of linears that may round, and that they compute nearly the same, by each set of kernels and
// in the same bits on any number of threads.
func TestByUnitRows(t *testing.T) {
	for name, c := range rowGraphs {
		t.Run(name, func(t *testing.T) {
			p := newPicture(t)
			c.build(p)
			want := p.results(p.Graph)
			for _, set := range simd.UnitSets() {
				g := byUnitRows(roundingRows(p.Graph), set)
				if got := kindsOf(g); got != c.want {
					t.Errorf("it became %q, want %q", got, c.want)
				}
				if best := simd.Best(); slices.Contains(strings.Fields(c.want), "linear") && (best == nil || !best.HasUnit()) {
					continue // what stays a linear takes a matrix unit
				}
				p.threads = 1
				one := p.results(g)
				for k := range one {
					near(t, one[k], want[k], 1.0/64)
				}
				p.threads = 3
				for k, got := range p.results(g) {
					if !bytes.Equal(got, one[k]) {
						t.Errorf("%s: three threads give other bits", set.Name)
					}
				}
			}
		})
	}
}

// headsOfRows returns the heads of an operand [batch, tokens, columns]: [batch, heads, tokens, width] from a column on.
func headsOfRows(o graph.Operand, count, width, from int) graph.Operand {
	l := o.Layout
	l.Shape = []int{l.Shape[0], l.Shape[1], count, width}
	l.Strides = []int{l.Strides[0], l.Strides[1], width, 1}
	l.Offset += from
	return turn(graph.Operand{Value: o.Value, Layout: l}, 0, 2, 1, 3)
}

// attend adds attention of heads, and brings what it gives together.
func (p *picture) attend(a graph.Attrs, in ...graph.Operand) graph.Operand {
	y := p.op("scaled_dot_product_attention", a, in...)
	y = p.op("copy", nil, turn(y, 0, 2, 1, 3))
	s := y.Layout.Shape
	return graph.Operand{Value: y.Value, Layout: tensor.Contiguous(s[0], s[1], s[2]*s[3])}
}

// A linear of few rows rounds even where its weight is an embedding, and asks for a copy of that.
func TestByUnitRowsOfAnEmbedding(t *testing.T) {
	set := simd.Best()
	if set == nil || !set.HasUnit() {
		t.Skip("nothing multiplies bfloat16")
	}
	p := newPicture(t)
	x, w := p.input(2, 64), p.weight(40, 64)
	p.output(p.op("linear", nil, x, w, graph.Absent))
	p.output(p.op("relu", nil, w))
	l, err := lowered(t, byUnitRows(roundingRows(p.Graph), simd.UnitSets()[0]))
	if err != nil {
		t.Fatal(err)
	}
	if packs := l.Steps[0].Packs; len(packs) != 1 || !packs[0].Copy {
		t.Errorf("the packs of %s are %v", l.Steps[0].Kernel, packs)
	}
}

func init() {
	scale := graph.Attrs{"scale": 0.125}
	rowGraphs["attention of three linears"] = struct {
		build func(p *picture)
		want  string
	}{func(p *picture) {
		x := p.input(2, 40, 96)
		q, k, v := p.linear(x, 64, nil), p.linear(x, 64, nil), p.linear(x, 64, nil)
		mask := p.input(2, 2, 40, 40)
		y := p.attend(scale, headsOfRows(q, 2, 32, 0), headsOfRows(k, 2, 32, 0), headsOfRows(v, 2, 32, 0), mask)
		p.output(p.linear(y, 96, nil, x))
	}, "rows32 linear32 linear32 linear32 attention32 linear32"}
	rowGraphs["attention of one linear"] = struct {
		build func(p *picture)
		want  string
	}{func(p *picture) {
		y := p.linear(p.input(2, 50, 64), 192, nil)
		a := graph.Attrs{"scale": 0.125, "is_causal": true}
		p.output(p.linear(p.attend(a, headsOfRows(y, 2, 32, 0), headsOfRows(y, 2, 32, 64), headsOfRows(y, 2, 32, 128)), 64, nil))
	}, "rows32 linear32 attention32 linear32"}
	rowGraphs["attention of copies"] = struct {
		build func(p *picture)
		want  string
	}{func(p *picture) {
		y := p.linear(p.input(2, 40, 64), 192, nil)
		l := tensor.Layout{Shape: []int{3, 2, 40, 64}, Strides: []int{64, 40 * 192, 192, 1}}
		c := p.op("copy", nil, graph.Operand{Value: y.Value, Layout: l})
		part := func(i int) graph.Operand {
			o := c
			o.Layout = tensor.Contiguous(2, 40, 64)
			o.Layout.Offset = i * 2 * 40 * 64
			return headsOfRows(o, 2, 32, 0)
		}
		p.output(p.linear(p.attend(scale, part(0), part(1), part(2)), 64, nil))
	}, "rows32 linear32 attention32 linear32"}
	rowGraphs["attention that others look at"] = struct {
		build func(p *picture)
		want  string
	}{func(p *picture) {
		x := p.input(2, 40, 64)
		q, k := p.linear(x, 64, nil), p.linear(x, 64, nil)
		y := p.attend(scale, headsOfRows(q, 2, 32, 0), headsOfRows(k, 2, 32, 0), headsOfRows(k, 2, 32, 0))
		p.output(p.linear(y, 64, nil))
		p.output(p.op("relu", nil, y))
		z := p.attend(scale, headsOfRows(q, 2, 32, 0), headsOfRows(k, 2, 32, 0), headsOfRows(x, 2, 32, 0))
		p.output(p.linear(z, 64, nil))
	}, "rows32 linear32 linear32 scaled_dot_product_attention copy rows32 linear32 relu rows32 rows32 attention32 linear32"}
	rowGraphs["attention of heads that no unit has"] = struct {
		build func(p *picture)
		want  string
	}{func(p *picture) {
		y := p.linear(p.input(2, 40, 64), 60, nil)
		p.output(p.linear(p.attend(scale, headsOfRows(y, 3, 20, 0), headsOfRows(y, 3, 20, 0), headsOfRows(y, 3, 20, 0)), 64, nil))
	}, "rows32 linear32 scaled_dot_product_attention copy rows32 linear32"}
}
