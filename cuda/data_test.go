//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"math"
	"strings"
	"testing"

	"github.com/optimem/optimem/cuda"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// TestFailsOnData: what an op cannot do with its data is an error after the pass, nothing beyond the operands is read, which
// interpret looks at, and the device computes on.
func TestFailsOnData(t *testing.T) {
	dev, _ := open(t, "order=lazy:3 memory=64M")
	floats := func(list ...float32) *tensor.Tensor { return tensor.Of(list, len(list)) }
	ints := func(list ...int64) *tensor.Tensor { return tensor.Of(list, len(list)) }
	const outside, counts = "index out of range", "another number of elements"
	for name, c := range map[string]struct {
		kind  graph.Kind
		attrs graph.Attrs
		in    []*tensor.Tensor
		want  string
	}{
		"embedding, above":  {"embedding", nil, []*tensor.Tensor{floats(1, 2, 3), ints(0, 3)}, outside},
		"embedding, below":  {"embedding", nil, []*tensor.Tensor{floats(1, 2, 3), ints(-1, 0)}, outside},
		"embedding":         {"embedding", nil, []*tensor.Tensor{floats(1, 2, 3), ints(2, 0)}, ""},
		"index wraps once":  {"index", graph.Attrs{"dim": 0, "wrap": true}, []*tensor.Tensor{floats(1, 2), ints(-3)}, outside},
		"gather":            {"gather", graph.Attrs{"dim": 0}, []*tensor.Tensor{floats(1, 2), ints(2, 0)}, outside},
		"scatter":           {"scatter", graph.Attrs{"dim": 0, "reduce": "sum"}, []*tensor.Tensor{floats(1, 2), ints(-1), floats(5)}, outside},
		"index_put":         {"index_put", graph.Attrs{"dim": 0}, []*tensor.Tensor{floats(1, 2), floats(5), ints(7)}, outside},
		"repeats, too many": {"repeat_indices", graph.Attrs{"size": 4}, []*tensor.Tensor{ints(2, 3)}, counts},
		"repeats, too few":  {"repeat_indices", graph.Attrs{"size": 6}, []*tensor.Tensor{ints(2, 3)}, counts},
		"repeats, below":    {"repeat_indices", graph.Attrs{"size": 1}, []*tensor.Tensor{ints(2, -1)}, counts},
		"repeats":           {"repeat_indices", graph.Attrs{"size": 5}, []*tensor.Tensor{ints(2, 3)}, ""},
		"histogram of NaN":  {"histc", graph.Attrs{"bins": 3, "min": 0.0, "max": 0.0}, []*tensor.Tensor{floats(1, float32(math.NaN()))}, "range"},
		"histogram of all":  {"histc", graph.Attrs{"bins": 3, "min": 0.0, "max": 0.0}, []*tensor.Tensor{floats(3e38, 0, -3e38)}, "range"},
		"histogram":         {"histc", graph.Attrs{"bins": 3, "min": 0.0, "max": 0.0}, []*tensor.Tensor{floats(1, 5)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			l := loweredOp(t, graph.Op{Kind: c.kind, Attrs: c.attrs, Path: "here"}, c.in)
			_, err := interpret(t.Context(), dev, l, nil)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, not %q", err, c.want)
			}
		})
	}
}

// loweredOp returns a program of one op over constants, whose first result is its output.
func loweredOp(t *testing.T, op graph.Op, in []*tensor.Tensor) *graph.Lowered {
	t.Helper()
	g := &graph.Graph{Modules: make(map[string]graph.Operand)}
	for _, x := range in {
		if x == nil {
			op.In = append(op.In, graph.Absent)
			continue
		}
		op.In = append(op.In, g.Whole(g.AddConst(x)))
	}
	out, err := g.Emit(graph.Standard(), op)
	if err != nil {
		t.Fatal(err)
	}
	for i, id := range out {
		g.Outputs = append(g.Outputs, graph.Output{Name: []string{"y", "z"}[i], Operand: g.Whole(id)})
	}
	l, err := cuda.Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	return l
}
