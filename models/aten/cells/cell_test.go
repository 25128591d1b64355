package cells

import (
	"slices"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/tensor"
)

// kinds returns the kinds of a graph's ops in order.
func kinds(g *graph.Graph) []graph.Kind {
	var all []graph.Kind
	for _, op := range g.Ops {
		all = append(all, op.Kind)
	}
	return all
}

// TestMostFollowed: views by writes is not what a file can have a graph grow by.
func TestMostFollowed(t *testing.T) {
	b := &Builder{Graph: &graph.Graph{}, Ops: graph.Standard()}
	x := b.Own(b.Graph.AddInput("x", tensor.Float32, tensor.Shape{2, 3}))
	turned := b.Transpose(x, 0, 1)
	for range mostFollowed / 4 {
		out, err := b.Reshape(turned, tensor.Shape{6})
		if err != nil {
			t.Fatal(err)
		}
		b.Linked(turned, out)
	}
	zero, err := b.Scalar(0, tensor.Float32)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		if err = b.Write(x, zero); (err != nil) != (i == 4) {
			t.Fatalf("write %d: %v", i, err)
		}
	}
}

// TestWritesMoveNothing holds in-place writes, copies and constants to the ops that they need, and their results to
// those of PyTorch's memory.
func TestWritesMoveNothing(t *testing.T) {
	type program func(t *testing.T, b *Builder, x *Ref) []*Ref
	must := func(t *testing.T, r *Ref, err error) *Ref {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	write := func(t *testing.T, b *Builder, dst, src *Ref) {
		t.Helper()
		if err := b.Write(dst, src); err != nil {
			t.Fatal(err)
		}
	}
	add := func(t *testing.T, b *Builder, x *Ref, n float64) *Ref {
		t.Helper()
		r, err := b.Sum("add", x, n, 1)
		return must(t, r, err)
	}
	// x is [[1 2 3] [4 5 6]].
	for name, c := range map[string]struct {
		run   program
		kinds []graph.Kind
		want  [][]float32
	}{
		"x.add_(1), seen through a view made before": {
			func(t *testing.T, b *Builder, x *Ref) []*Ref {
				row := b.SelectAt(x, 0, 1)
				write(t, b, x, add(t, b, x, 1))
				return []*Ref{x, row}
			},
			[]graph.Kind{"add"}, [][]float32{{2, 3, 4, 5, 6, 7}, {5, 6, 7}},
		},
		"x.t().add_(1)": {
			func(t *testing.T, b *Builder, x *Ref) []*Ref {
				turned := b.Transpose(x, 0, 1)
				write(t, b, turned, add(t, b, turned, 1))
				return []*Ref{x}
			},
			[]graph.Kind{"add", "copy"}, [][]float32{{2, 3, 4, 5, 6, 7}},
		},
		"y = x.clone(); x.add_(1); y.add_(2)": {
			func(t *testing.T, b *Builder, x *Ref) []*Ref {
				r, err := b.Copy(x)
				y := must(t, r, err)
				write(t, b, x, add(t, b, x, 1))
				write(t, b, y, add(t, b, y, 2))
				return []*Ref{x, y}
			},
			[]graph.Kind{"add", "add"}, [][]float32{{2, 3, 4, 5, 6, 7}, {3, 4, 5, 6, 7, 8}},
		},
		"y = zeros(2, 3); y.copy_(x); x.add_(1)": {
			func(t *testing.T, b *Builder, x *Ref) []*Ref {
				r, err := b.Filled(0, tensor.Float32, tensor.Shape{2, 3})
				y := must(t, r, err)
				write(t, b, y, x)
				write(t, b, x, add(t, b, x, 1))
				return []*Ref{x, y}
			},
			[]graph.Kind{"add"}, [][]float32{{2, 3, 4, 5, 6, 7}, {1, 2, 3, 4, 5, 6}},
		},
		"y = ones(2, 3); z = y.clone(); y[1] = x[0]; x + z": {
			func(t *testing.T, b *Builder, x *Ref) []*Ref {
				r, err := b.Filled(1, tensor.Float32, tensor.Shape{2, 3})
				y := must(t, r, err)
				r, err = b.Copy(y)
				z := must(t, r, err)
				write(t, b, b.SelectAt(y, 0, 1), b.SelectAt(x, 0, 0))
				r, err = b.Sum("add", x, z, 1)
				return []*Ref{y, must(t, r, err), z}
			},
			[]graph.Kind{"write_view", "add", "copy"},
			[][]float32{{1, 1, 1, 1, 2, 3}, {2, 3, 4, 5, 6, 7}, {1, 1, 1, 1, 1, 1}},
		},
		"full((2, 3), 2).double().to(x.dtype) * x[0, 2]": {
			func(t *testing.T, b *Builder, x *Ref) []*Ref {
				r, err := b.Filled(2, tensor.Int64, tensor.Shape{2, 3})
				r, err = b.Cast(must(t, r, err), tensor.Float32)
				r, err = b.Arithmetic("mul", nil, tensor.Float32, must(t, r, err), b.SelectAt(b.SelectAt(x, 0, 0), 0, 2))
				return []*Ref{must(t, r, err)}
			},
			[]graph.Kind{"cast", "mul"}, [][]float32{{6, 6, 6, 6, 6, 6}},
		},
		"x[0].expand(2, 3) as it is and written to x": {
			func(t *testing.T, b *Builder, x *Ref) []*Ref {
				wide, err := b.Expand(b.SelectAt(x, 0, 0), tensor.Shape{4, 3})
				write(t, b, x, b.SelectAt(x, 0, 0))
				return []*Ref{x, must(t, wide, err)}
			},
			[]graph.Kind{"copy", "copy"}, [][]float32{{1, 2, 3, 1, 2, 3}, {1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := &Builder{Graph: &graph.Graph{}, Ops: graph.Standard()}
			x := b.Own(b.Graph.AddInput("x", tensor.Float32, tensor.Shape{2, 3}))
			for i, r := range c.run(t, b, x) {
				o, err := b.Result(r)
				if err != nil {
					t.Fatal(err)
				}
				b.Graph.Outputs = append(b.Graph.Outputs, graph.Output{Name: string(rune('0' + i)), Operand: o})
			}
			if got := kinds(b.Graph); !slices.Equal(got, c.kinds) {
				t.Errorf("ops %v, want %v", got, c.kinds)
			}
			pool := cpu.NewPool(1)
			defer pool.Close()
			in := map[string]*tensor.Tensor{"x": tensor.Of([]float32{1, 2, 3, 4, 5, 6}, 2, 3)}
			out, err := cpu.Interpret(t.Context(), pool, graph.Standard(), b.Graph, nil, in)
			if err != nil {
				t.Fatal(err)
			}
			for i, want := range c.want {
				got, err := tensor.Slice[float32](out[string(rune('0'+i))])
				if err != nil || !slices.Equal(got, want) {
					t.Errorf("result %d is %v, want %v: %v", i, got, want, err)
				}
			}
		})
	}
}

// TestFilledTooLarge: what no memory holds is refused where it is made.
func TestFilledTooLarge(t *testing.T) {
	b := &Builder{Graph: &graph.Graph{}, Ops: graph.Standard()}
	for _, shape := range []tensor.Shape{{1 << 62}, {1 << 40, 1 << 40}, {-1}} {
		if _, err := b.Filled(0, tensor.Float64, shape); err == nil {
			t.Errorf("a tensor of shape %v was made", shape)
		}
	}
}
