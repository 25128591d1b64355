package models_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/optimem/optimem/device/devicetest"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/models/aten"
	"github.com/optimem/optimem/tensor"
)

// mixing are the kinds whose rule keeps no dimension of any operand.
var mixing = []graph.Kind{
	"arange", "attend", "causal_conv", "delta_rule", "eye", "histc", "linspace", "masked_scatter", "nms", "nonzero", "repeat_indices",
	"selective_scan", "triangle_indices", "write_view",
}

// TestAxisRules holds every op's batch-axis rule to what it says, with the calls recorded from PyTorch: when all
// operands of an op are rearranged along the dimensions that become one of the result's, so is the result, to the bit.
// One of the arrangements repeats an index and drops another, so that a result which looks at others shows.
func TestAxisRules(t *testing.T) {
	if testing.Short() {
		t.Skip("every recorded call several times")
	}
	cases, err := devicetest.Cases()
	if err != nil {
		t.Fatal(err)
	}
	pool := cpu.NewPool(1)
	defer pool.Close()
	run := func(g *graph.Graph, in map[string]*tensor.Tensor) (map[string]*tensor.Tensor, error) {
		return cpu.Interpret(t.Context(), pool, graph.Standard(), g, nil, in)
	}
	checked := make(map[graph.Kind]map[string]int) // times each operand of a kind was rearranged
	for _, c := range cases {
		g, err := aten.BuildCall(graph.Standard(), c.Target, c.Args)
		if err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
		for _, op := range g.Ops {
			in, err := operands(g, op, c.Inputs, run)
			if err != nil {
				t.Fatalf("%s: %v", c.Name, err)
			}
			if checked[op.Kind] == nil {
				checked[op.Kind] = make(map[string]int)
			}
			if err := checkRule(op, in, checked[op.Kind], run); err != nil {
				t.Errorf("%s: %s: %v", c.Name, op.Kind, err)
			}
		}
	}
	yes := &tensor.Tensor{DType: tensor.Bool, Layout: tensor.Contiguous(), Data: []byte{1}}
	x, y := tensor.Of([]float32{1, 2, 3, 4, 5, 6}, 3, 2), tensor.Of([]float32{7, 8, 9, 10, 11, 12}, 3, 2)
	checked["choose"] = make(map[string]int) // a call is a conditional, not an op
	if err := checkRule(graph.Op{Kind: "choose"}, []*tensor.Tensor{yes, x, y}, checked["choose"], run); err != nil {
		t.Errorf("choose: %v", err)
	}
	checked["embedding_rows"] = make(map[string]int) // a pass makes it of an embedding
	if err := checkRule(
		graph.Op{Kind: "embedding_rows", Attrs: graph.Attrs{"low": 2, "size": 9}},
		[]*tensor.Tensor{y, tensor.Of([]int64{0, 3, 4, 2, 8, 3}, 2, 3), tensor.Of([]float32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, 2, 3, 2)},
		checked["embedding_rows"], run,
	); err != nil {
		t.Errorf("embedding_rows: %v", err)
	}
	checked["decode"] = make(map[string]int) // a pass makes it of an embedding, too
	codes := make([]uint8, 2*3*34)
	for i := range codes {
		codes[i] = uint8(i%34) + uint8(i/34)*16
	}
	if err := checkRule(
		graph.Op{Kind: "decode", Attrs: graph.Attrs{"encoding": "Q8_0"}}, []*tensor.Tensor{tensor.Of(codes, 2, 3, 34)},
		checked["decode"], run,
	); err != nil {
		t.Errorf("decode: %v", err)
	}
	checked["heatmap_peaks"] = make(map[string]int) // a call is torchvision's own function
	maps := make([]float32, 3*2*4*5)
	for i := range maps {
		maps[i] = float32(i * 7 % 41)
	}
	if err := checkRule(
		graph.Op{Kind: "heatmap_peaks"}, []*tensor.Tensor{tensor.Of(maps, 3, 2, 4, 5), tensor.Of([]int64{9, 7, 4, 5, 6, 11}, 3, 2)},
		checked["heatmap_peaks"], run,
	); err != nil {
		t.Errorf("heatmap_peaks: %v", err)
	}
	fusedRules(t, checked, run)
	for _, kind := range graph.Standard().Kinds() {
		def, _ := graph.Standard().Lookup(kind)
		switch mixes := slices.Contains(mixing, kind); {
		case def.Axes == nil:
			t.Errorf("%s has no batch-axis rule", kind)
		case mixes && len(checked[kind]) > 0:
			t.Errorf("%s keeps a dimension and is listed as mixing", kind)
		case !mixes && len(checked[kind]) == 0:
			t.Errorf("no recorded call shows that %s keeps a dimension", kind)
		}
	}
	for _, operand := range []string{
		"linear 0", "linear 1", "linear 2", "matmul 0", "matmul 1", "matmul 2", "conv 0", "conv 1", "conv 2",
		"conv 3", "conv 6", "conv 7", "linear 3", "chain 0", "chain 2",
		"scaled_dot_product_attention 0", "scaled_dot_product_attention 2", "scaled_dot_product_attention 3",
		"lstm 0", "lstm 2", "lstm 3", "gather 0", "gather 1", "scatter 2", "index 0", "index 1", "index_put 1", "embedding 1",
		"searchsorted 0", "searchsorted 1", "batch_norm 1", "batch_norm 4", "grid_sample 1", "cat 1", "where 0", "max_unpool 1",
	} {
		var kind graph.Kind
		var k string
		fmt.Sscan(operand, &kind, &k)
		if checked[kind][k] == 0 {
			t.Errorf("no recorded call shows that %s keeps a dimension of operand %s", kind, k)
		}
	}
}

// fusedRules checks the rules of ops that only passes make.
func fusedRules(t *testing.T, checked map[graph.Kind]map[string]int, run runner) {
	numbers := func(shape ...int) *tensor.Tensor {
		n, _ := tensor.Shape(shape).NumElements()
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(i%7) + 0.25*float32(i%3) + 0.5
		}
		return tensor.Of(x, shape...)
	}
	conv := func(groups int) graph.Attrs {
		return graph.Attrs{
			"stride": []int{1, 1}, "padding": []int{1, 1}, "dilation": []int{1, 1}, "groups": groups, "eps": 0.1, "act": "relu6",
		}
	}
	four := numbers(4)
	program := graph.Program{{Kind: "mul", Args: []int{0, 1}}, {Kind: "where", Args: []int{2, 3, 0}}}
	yes := &tensor.Tensor{DType: tensor.Bool, Layout: tensor.Contiguous(2, 3), Data: []byte{1, 0, 1, 1, 0, 0}}
	checked["chain"], checked["rotary"] = make(map[string]int), make(map[string]int)
	for _, c := range []struct {
		op graph.Op
		in []*tensor.Tensor
	}{
		{graph.Op{Kind: "chain", Attrs: graph.Attrs{"program": program}}, []*tensor.Tensor{numbers(2, 3), numbers(2, 3), yes}},
		{graph.Op{Kind: "rotary"}, []*tensor.Tensor{numbers(2, 3, 6), numbers(2, 3, 6), numbers(2, 3, 6)}},
		{graph.Op{Kind: "linear", Attrs: graph.Attrs{"act": "silu"}},
			[]*tensor.Tensor{numbers(2, 3, 5), numbers(4, 5), four, numbers(2, 3, 4)}},
		{graph.Op{Kind: "conv", Attrs: conv(1)}, []*tensor.Tensor{
			numbers(2, 3, 5, 5), numbers(4, 3, 3, 3), four, numbers(4), numbers(4), numbers(4), numbers(4), numbers(2, 4, 5, 5)}},
		{graph.Op{Kind: "conv", Attrs: conv(4)}, []*tensor.Tensor{
			numbers(2, 4, 5, 5), numbers(4, 1, 3, 3), nil, numbers(4), numbers(4), numbers(4), numbers(4), numbers(2, 4, 5, 5)}},
		{graph.Op{Kind: "conv", Attrs: conv(2)}, []*tensor.Tensor{
			numbers(2, 4, 5, 5), numbers(4, 2, 3, 3), four, numbers(4), numbers(4), numbers(4), numbers(4), numbers(2, 4, 5, 5)}},
	} {
		if err := checkRule(c.op, c.in, checked[c.op.Kind], run); err != nil {
			t.Errorf("%s: %v", c.op.Kind, err)
		}
	}
}

type runner func(*graph.Graph, map[string]*tensor.Tensor) (map[string]*tensor.Tensor, error)

// operands returns what an op of a graph reads.
func operands(g *graph.Graph, op graph.Op, inputs map[string]*tensor.Tensor, run runner) ([]*tensor.Tensor, error) {
	shown := *g
	shown.Outputs = nil
	for k, o := range op.In {
		if o.Value != graph.NoValue {
			shown.Outputs = append(shown.Outputs, graph.Output{Name: strconv.Itoa(k), Operand: o})
		}
	}
	out, err := run(&shown, inputs)
	in := make([]*tensor.Tensor, len(op.In))
	for k := range in {
		in[k] = out[strconv.Itoa(k)]
	}
	return in, err
}

// checkRule rearranges the operands of an op along each dimension of its results that they become.
func checkRule(op graph.Op, in []*tensor.Tensor, checked map[string]int, run runner) error {
	want, err := runOp(op, in, run)
	if err != nil {
		return err
	}
	def, _ := graph.Standard().Lookup(op.Kind)
	specs, results := specsOf(in), specsOf(want)
	axes := def.Axes(specs, results, op.Attrs)
	if len(axes) != len(in) {
		return fmt.Errorf("the rule has %d operands", len(axes))
	}
	for e := range results[0].Shape {
		if op.Kind == "cat" && e == op.Attrs.Int("dim") {
			continue
		}
		var moved []int
		n := results[0].Shape[e]
		for k := range axes {
			if len(axes[k]) != len(specs[k].Shape) {
				return fmt.Errorf("the rule of operand %d, %v, is %v", k, specs[k].Shape, axes[k])
			}
			if d := slices.Index(axes[k], e); d >= 0 {
				moved = append(moved, k)
				if specs[k].Shape[d] != n {
					return fmt.Errorf("dimension %d of operand %d, %v, is not dimension %d of the result, %v", d, k,
						specs[k].Shape, e, results[0].Shape)
				}
			}
		}
		if len(moved) == 0 || n < 2 {
			continue
		}
		for _, order := range [][]int{backwards(n), doubled(n)} {
			other := slices.Clone(in)
			for _, k := range moved {
				other[k] = take(in[k], slices.Index(axes[k], e), order)
			}
			got, err := runOp(op, other, run)
			if err != nil {
				return fmt.Errorf("rearranged along %d: %w", e, err)
			}
			for i := range want {
				if err := devicetest.Compare(got[i], take(want[i], e, order), 0); err != nil {
					return fmt.Errorf("%v: rearranged along dimension %d of %v: result %d: %w", op.Attrs, e, specs, i, err)
				}
			}
		}
		for _, k := range moved {
			checked[strconv.Itoa(k)]++
		}
	}
	return nil
}

// runOp computes an op of whole operands.
func runOp(op graph.Op, in []*tensor.Tensor, run runner) ([]*tensor.Tensor, error) {
	g := &graph.Graph{}
	inputs := make(map[string]*tensor.Tensor)
	single := graph.Op{Kind: op.Kind, Attrs: op.Attrs}
	for k, x := range in {
		if x == nil {
			single.In = append(single.In, graph.Absent)
			continue
		}
		name := "in" + strconv.Itoa(k)
		inputs[name] = x
		single.In = append(single.In, g.Whole(g.AddInput(name, x.DType, x.Layout.Shape)))
	}
	ids, err := g.Emit(graph.Standard(), single)
	if err != nil {
		return nil, err
	}
	for k, id := range ids {
		g.Outputs = append(g.Outputs, graph.Output{Name: strconv.Itoa(k), Operand: g.Whole(id)})
	}
	out, err := run(g, inputs)
	if err != nil {
		return nil, err
	}
	list := make([]*tensor.Tensor, len(ids))
	for k := range ids {
		list[k] = out[strconv.Itoa(k)]
	}
	return list, nil
}

func specsOf(list []*tensor.Tensor) []graph.Spec {
	specs := make([]graph.Spec, len(list))
	for i, x := range list {
		if x != nil {
			specs[i] = graph.Spec{DType: x.DType, Shape: x.Layout.Shape}
		}
	}
	return specs
}

// backwards is n−1 … 0.
func backwards(n int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = n - 1 - i
	}
	return order
}

// doubled has 1 twice and 0 not at all.
func doubled(n int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = max(i, 1)
	}
	return order
}

// take returns the slices of a contiguous tensor along a dimension in another order.
func take(x *tensor.Tensor, dim int, order []int) *tensor.Tensor {
	s := x.Layout.Shape
	inner := x.DType.Size()
	for _, n := range s[dim+1:] {
		inner *= n
	}
	out := &tensor.Tensor{DType: x.DType, Layout: x.Layout, Data: make([]byte, len(x.Data))}
	for at := 0; at < len(x.Data); at += inner {
		i := at / inner
		from := i/s[dim]*s[dim] + order[i%s[dim]]
		copy(out.Data[at:at+inner], x.Data[from*inner:])
	}
	return out
}
