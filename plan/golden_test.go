package plan_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/graph/rewrite"
	"github.com/optimem/optimem/internal/fixtures"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/search"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

var rewriteGolden = flag.Bool("rewrite", false, "write the plans in testdata from what is planned")

// opened returns the graph of a committed model.
func opened(t *testing.T, path string, shapes ...tensor.Shape) *graph.Graph {
	t.Helper()
	ckpt, err := loader.Open(filepath.FromSlash(path))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ckpt.Close() })
	model, err := models.Build(ckpt, models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	in := make(map[string]tensor.Shape)
	for i, s := range shapes {
		in[model.Inputs()[i].Name] = s
	}
	g, err := model.Graph(in)
	if err != nil {
		t.Fatal(err)
	}
	return rewrite.Prune(g)
}

// source is a file of a size that nobody reads.
type source int64

func (s source) Size() int64 { return int64(s) }
func (s source) ReadAt(context.Context, []byte, int64) error {
	return errors.New("read while planning")
}

// drawn makes a graph by hand: linear layers of the given widths, and, with skip, the first one's result added to the
// last one's.
func drawn(t *testing.T, rows int, skip bool, widths ...int) *graph.Graph {
	t.Helper()
	g := &graph.Graph{}
	x := g.AddInput("x", tensor.Float32, tensor.Shape{rows, widths[0]})
	emit := func(path string, kind graph.Kind, in ...graph.Operand) graph.ValueID {
		out, err := g.Emit(graph.Standard(), graph.Op{Kind: kind, Path: path, In: in})
		if err != nil {
			t.Fatal(err)
		}
		return out[0]
	}
	var at int64
	first := graph.NoValue
	for i := range len(widths) - 1 {
		n := int64(widths[i]) * int64(widths[i+1]) * 4
		shape := tensor.Contiguous(widths[i+1], widths[i])
		w := g.AddWeight(tensor.Weight{
			Name: fmt.Sprintf("%d.weight", i), DType: tensor.Float32, Layout: shape,
			Extent: storage.Extent{Source: source(1 << 30), Offset: at, Bytes: n},
		}, graph.Weight)
		at += n
		x = emit(fmt.Sprint(i), "linear", g.Whole(x), graph.Operand{Value: w, Layout: shape})
		if first == graph.NoValue {
			first = x
		}
	}
	if skip {
		x = emit("", "add", g.Whole(x), g.Whole(first))
	}
	g.Outputs = []graph.Output{{Name: "y", Operand: g.Whole(x)}}
	return g
}

// spoken makes the graph of a table of words, two of which are looked up, and a head that shares the table.
func spoken(t *testing.T) *graph.Graph {
	t.Helper()
	g := &graph.Graph{}
	ids := g.AddInput("ids", tensor.Int64, tensor.Shape{1, 2})
	shape := tensor.Contiguous(30_000, 64)
	table := graph.Operand{Layout: shape, Value: g.AddWeight(tensor.Weight{
		Name: "words.weight", DType: tensor.Float32, Layout: shape,
		Extent: storage.Extent{Source: source(1 << 30), Bytes: 30_000 * 64 * 4},
	}, graph.Weight)}
	x, err := g.Emit(graph.Standard(), graph.Op{Kind: "embedding", Path: "words", In: []graph.Operand{table, g.Whole(ids)}})
	if err != nil {
		t.Fatal(err)
	}
	y, err := g.Emit(graph.Standard(), graph.Op{Kind: "linear", Path: "head", In: []graph.Operand{g.Whole(x[0]), table}})
	if err != nil {
		t.Fatal(err)
	}
	g.Outputs = []graph.Output{{Name: "y", Operand: g.Whole(y[0])}}
	return g
}

// TestGolden compares plans with those committed.
func TestGolden(t *testing.T) {
	emu := plan.Target{Name: "emu", AlignBytes: 256}
	half, least := int64(-2), int64(-1) // of what all weights take, and what works
	digits := func(t *testing.T) *graph.Graph {
		return opened(t, "../examples/digits/digits.pt2", tensor.Shape{4, 1, 8, 8})
	}
	gpt2 := func(t *testing.T) *graph.Graph {
		return opened(t, filepath.Join(fixtures.Folder("../loader/testdata/valid.tar.bz2"), "hf_gpt2_sharded"), tensor.Shape{1, 7})
	}
	hill := func(t *testing.T) *graph.Graph { return drawn(t, 64, true, 32, 128, 128, 256, 128, 128) }
	sum := func(t *testing.T) *graph.Graph { return drawn(t, 64, true, 32, 128, 128) }
	big := func(t *testing.T) *graph.Graph { return drawn(t, 1, false, 64, 64, 2048, 64, 64) }
	row := func(t *testing.T) *graph.Graph { return drawn(t, 1, false, 256, 256, 256, 256, 256, 256) }
	for _, c := range []struct {
		name  string
		graph func(t *testing.T) *graph.Graph
		o     search.Options
	}{
		{"digits_resident", digits, search.Options{Mode: plan.Resident}},
		{"digits_page", digits, search.Options{Mode: plan.Page}},
		{"digits_page_least", digits, search.Options{Mode: plan.Page, MemoryBytes: least}},
		{"digits_auto_half", digits, search.Options{Mode: plan.Auto, MemoryBytes: half}},
		{"digits_chunk", digits, search.Options{Mode: plan.Chunk, Capacity: plan.Limit{N: 1000, Unit: plan.Params}}},
		{"gpt2_page_tied_stays", gpt2, search.Options{Mode: plan.Page, Target: emu}},
		{"gpt2_page_tied_moves", gpt2, search.Options{Mode: plan.Page, Target: emu, MemoryBytes: least}},
		{"gpt2_blocks", gpt2, search.Options{Mode: plan.Page, MaxGroup: plan.Limit{N: 100_000, Unit: plan.Params}}},
		{"hill_activations_wait", hill, search.Options{Mode: plan.Page, Target: emu, MemoryBytes: least}},
		{"hill_instances", hill, search.Options{Mode: plan.Page, Target: emu, MemoryBytes: least, Instances: 4}},
		{"sum_in_place", sum, search.Options{Mode: plan.Page, MemoryBytes: least}},
		{"big_weight_in_rows", big, search.Options{Mode: plan.Page, MemoryBytes: least}},
		{"big_auto_half", big, search.Options{Mode: plan.Auto, Target: emu, MemoryBytes: half}},
		{"words_page", spoken, search.Options{Mode: plan.Page}},
		{"words_auto_half", spoken, search.Options{Mode: plan.Auto, Target: emu, MemoryBytes: half}},
		{"row_host_helps", row, search.Options{Mode: plan.Auto, Target: emu, MemoryBytes: half, HostLower: lower,
			Rates: cost.Rates{CopyBytes: 1e9}, HostRates: cost.Rates{MemoryBytes: 20e9, FLOPs: 20e9}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := lower(c.graph(t))
			if err != nil {
				t.Fatal(err)
			}
			o := c.o
			o.Lower = lower
			if budget := o.MemoryBytes; budget < 0 {
				o.MemoryBytes = 0
				free, err := search.Plan(l, o)
				if err != nil {
					t.Fatal(err)
				}
				if o.MemoryBytes = free.MinBytes; budget == half {
					o.MemoryBytes = max(free.MinBytes, free.PeakBytes()-free.Fixed.Bytes/2)
				}
			}
			p, err := search.Plan(l, o)
			if err != nil {
				t.Fatal(err)
			}
			got := fmt.Sprintf("budget %d\n%vbound by %s\n", o.MemoryBytes, p, p.Forecast.Bound)
			path := filepath.Join("testdata", c.name+".txt")
			if *rewriteGolden {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if got != strings.ReplaceAll(string(want), "\r\n", "\n") {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// lower is a device whose products need scratch memory for as much as they read, and whose linear layers take weights
// in strips of sixteen rows, and which writes sums over what is added: plans do not change with any real device's
// kernels.
func lower(g *graph.Graph) (*graph.Lowered, error) {
	l := &graph.Lowered{Graph: g, Steps: make([]graph.Step, len(g.Ops))}
	for i, op := range g.Ops {
		switch op.Kind {
		case "add", "relu":
			l.Steps[i].InPlace = []int{0}
		case "linear", "matmul", "conv":
			l.Steps[i].WorkBytes = g.Values[op.In[0].Value].Bytes()
		}
		if op.Kind == "linear" {
			shape := op.In[1].Layout.Shape
			strips := (shape[0] + 15) / 16
			l.Steps[i].Packs = []graph.Pack{{In: 1, Bytes: int64(strips*16*shape[1]) * 4, Form: "strips", Step: 16}}
		}
	}
	return l, nil
}
