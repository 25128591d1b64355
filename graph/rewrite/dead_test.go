package rewrite

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// describe writes a graph with values called by what computes them, so that ids do not matter.
func describe(g *graph.Graph) string {
	var b strings.Builder
	names := make([]string, len(g.Values))
	for id, v := range g.Values {
		names[id] = fmt.Sprint(v.Role, " ", v.Name)
	}
	operand := func(o graph.Operand) string {
		if o.Value == graph.NoValue {
			return "–"
		}
		return fmt.Sprint("(", names[o.Value], ")", o.Layout)
	}
	for _, op := range g.Ops {
		text := string(op.Kind) + op.Path
		for _, o := range op.In {
			text += " " + operand(o)
		}
		for _, c := range op.Guard {
			text += fmt.Sprint(" if ", operand(c.Predicate), c.Want)
		}
		for i, id := range op.Out {
			names[id] = fmt.Sprint(op.Path, ".", i)
		}
		fmt.Fprintln(&b, text)
	}
	for _, o := range g.Outputs {
		fmt.Fprintln(&b, o.Name, operand(o.Operand))
	}
	for _, u := range g.Updates {
		fmt.Fprintln(&b, names[u.State], operand(u.Operand))
	}
	return b.String()
}

// without returns a graph with some ops left out, as it is described.
func without(g *graph.Graph, leftOut func(op graph.Op) bool) string {
	h := *g
	h.Ops = slices.DeleteFunc(slices.Clone(g.Ops), leftOut)
	return describe(&h)
}

func TestPrune(t *testing.T) {
	g := &graph.Graph{Modules: make(map[string]graph.Operand)}
	emit := func(path string, kind graph.Kind, attrs graph.Attrs, in ...graph.Operand) []graph.ValueID {
		t.Helper()
		out, err := g.Emit(graph.Standard(), graph.Op{Kind: kind, Path: path, Attrs: attrs, In: in})
		if err != nil {
			t.Fatal(err)
		}
		g.Modules[path] = g.Whole(out[0])
		return out
	}
	x, unused := g.AddInput("x", tensor.Float32, tensor.Shape{4}), g.AddInput("unused", tensor.Bool, tensor.Shape{})
	weight := func(name string, role graph.Role) graph.ValueID {
		return g.AddWeight(tensor.Weight{Name: name, DType: tensor.Float32, Extent: storage.Extent{Bytes: 16}}, role)
	}
	dropped, kept, state := weight("dropped", graph.Weight), weight("kept", graph.Weight), weight("state", graph.State)
	predicate := g.AddConst(&tensor.Tensor{DType: tensor.Bool, Layout: tensor.Contiguous(), Data: []byte{1}})
	a := emit("a", "relu", nil, g.Whole(x))[0]
	emit("b", "add", nil, g.Whole(a), g.Whole(dropped))
	c := emit("c", "add", nil, g.Whole(a), g.Whole(kept))[0]
	emit("d", "relu", nil, g.Whole(c))
	e := emit("e", "topk", graph.Attrs{"dim": 0, "k": 2, "largest": true}, g.Whole(c))
	f := emit("f", "relu", nil, g.Whole(state))[0]
	g.Ops[len(g.Ops)-2].Guard = []graph.Guard{{Predicate: g.Whole(predicate), Want: true}}
	g.Outputs = []graph.Output{{Name: "y", Operand: g.Whole(e[1])}}
	g.Updates = []graph.StateUpdate{{State: state, Operand: g.Whole(f)}}

	before := describe(g)
	pruned := Prune(g)
	if diff := cmp.Diff(before, describe(g)); diff != "" {
		t.Errorf("the graph changed: %s", diff)
	}
	want := without(g, func(op graph.Op) bool { return op.Path == "b" || op.Path == "d" })
	if diff := cmp.Diff(want, describe(pruned)); diff != "" {
		t.Error(diff)
	}
	var names []string
	for _, v := range pruned.Values {
		if v.Role != graph.Computed {
			names = append(names, fmt.Sprint(v.Role, v.Name))
		}
	}
	// unused stays: it is an input.
	if diff := cmp.Diff([]string{"inputx", "inputunused", "weightkept", "statestate", "const"}, names); diff != "" {
		t.Error(diff)
	}
	if pruned.Values[pruned.Inputs[1]].Name != g.Values[unused].Name {
		t.Error("the inputs are in another order")
	}
	if got := slices.Sorted(maps.Keys(pruned.Modules)); !slices.Equal(got, []string{"a", "c", "e", "f"}) {
		t.Errorf("modules %v", got)
	}
}

// TestPruneKeepsWhatIsReachable compares with a search from the outputs, over random graphs.
func TestPruneKeepsWhatIsReachable(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		g := &graph.Graph{}
		ids := []graph.ValueID{g.AddInput("x", tensor.Float32, tensor.Shape{4})}
		any := func() graph.Operand { return g.Whole(ids[r.IntN(len(ids))]) }
		for i := range 1 + r.IntN(20) {
			out, err := g.Emit(graph.Standard(), graph.Op{Kind: "add", Path: fmt.Sprint(i), In: []graph.Operand{any(), any()}})
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, out[0])
		}
		for range r.IntN(3) {
			g.Outputs = append(g.Outputs, graph.Output{Operand: any()})
		}
		reached := make(map[string]bool)
		var visit func(id graph.ValueID)
		visit = func(id graph.ValueID) {
			for _, op := range g.Ops {
				if slices.Contains(op.Out, id) {
					reached[op.Path] = true
					visit(op.In[0].Value)
					visit(op.In[1].Value)
				}
			}
		}
		for _, o := range g.Outputs {
			visit(o.Operand.Value)
		}
		want := without(g, func(op graph.Op) bool { return !reached[op.Path] })
		if diff := cmp.Diff(want, describe(Prune(g))); diff != "" {
			t.Fatal(diff)
		}
	}
}
