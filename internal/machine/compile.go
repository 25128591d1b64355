package machine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/graph/rewrite"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/internal/cpu/arrange"
	"github.com/optimem/optimem/internal/panicked"
	"github.com/optimem/optimem/plan"
)

// A Compilation says how a graph is to be compiled.
type Compilation struct {
	Ops *graph.Registry
	// Without are the passes that are left out, Exact keeps to sums of products, and Precision is what factors of products
	// may be rounded to, "" for nothing narrower than the model's own.
	Without   rewrite.Passes
	Exact     bool
	Precision string
	// Mode is that of the plans: the CPU helps a device in [plan.Auto] alone, and has no narrow products beside one.
	Mode plan.Mode
	// Range is the part of the graph that is wanted. It is taken out of the whole once that is in its cheapest form, so
	// that its bits are those that the whole has.
	Range graph.Range
}

// A Compiled is a graph as a machine computes it.
type Compiled struct {
	Graph   *graph.Graph
	Lowered *graph.Lowered
	// HostOps are the ops that the device cannot compute and the CPU beside it does, nil where there are none.
	HostOps []bool
	// Section is what Graph is of the whole graph, nil where it is the whole.
	Section *graph.Section
}

// A compiler is the part of a machine that compiles.
type compiler struct {
	device Device
	// arrange chooses algorithms and layouts that the device computes fast.
	arrange func(*graph.Graph, Compilation) *graph.Graph
	// supports returns nil for ops that the device computes; nil where it computes all that the CPU does.
	supports func(op graph.Op, in, out []graph.Spec) error
	// encoded says of which encodings its products read weights as blocks of codes. Of others they are given the numbers, and of all
	// where it is nil.
	encoded func(encoding string) bool
	// gpu says that kernels are not the CPU's: precisions are then those that it has, and without why it has no other.
	gpu        bool
	precisions []string
	without    string
}

func (c *compiler) Device() *Device { return &c.device }

func (c *compiler) Compile(ctx context.Context, g *graph.Graph, o Compilation) (*Compiled, error) {
	g = rewrite.Optimise(g, o.Ops, o.Without,
		func(g *graph.Graph) ([][]byte, error) { return constants(ctx, o.Ops, g) })
	if err := ctx.Err(); err != nil {
		return nil, err // its constants may not be computed
	}
	g, err := c.narrowed(g, o)
	if err != nil {
		return nil, err
	}
	if c.encoded != nil && o.Without&rewrite.KeepEncodings == 0 {
		g = rewrite.KeepEncodedOf(g, c.encoded)
	}
	if !c.gpu && o.Precision == "int8" {
		var n int
		if g, n = rewrite.NarrowEncoded(g, o.Precision, cpu.MultipliesCodes); n == 0 {
			return nil, fmt.Errorf("%w: precision int8 on %s: no weights are blocks of integers", graph.ErrUnsupported,
				c.device.Name)
		}
	}
	made := &Compiled{Graph: c.arrange(rewrite.KeepRowsAlone(g), o)}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if o.Range != (graph.Range{}) {
		if made.Section, err = made.Graph.Section(o.Range); err != nil {
			return nil, err
		}
		made.Graph = made.Section.Graph
	}
	return made, c.lower(made, o)
}

// lower has the device say how it computes a graph. In the auto mode the CPU beside it computes the ops that the device
// cannot.
func (c *compiler) lower(made *Compiled, o Compilation) (err error) {
	g := made.Graph
	made.Lowered, err = c.device.Lower(g)
	if err == nil || !errors.Is(err, graph.ErrUnsupported) || c.supports == nil || c.device.HostLower == nil ||
		o.Mode != plan.Auto {
		return err
	}
	made.HostOps = make([]bool, len(g.Ops))
	for i, op := range g.Ops {
		in, out := g.Specs(&op, nil, nil)
		made.HostOps[i] = c.supports(op, in, out) != nil
	}
	made.Lowered, err = c.device.HostLower(g)
	return err
}

// arranged returns a graph in the layouts of the CPU's kernels, unless that is left out, or rows are to be alone: which
// layouts are worth it depends on how many rows there are, and so do then their bits.
func arranged(g *graph.Graph, o Compilation) *graph.Graph {
	if o.Without&rewrite.ArrangeLayouts != 0 || g.HasCaches() {
		return g
	}
	return arrange.Graph(g, o.Exact)
}

// constants computes a graph that has neither inputs nor weights, as the CPU does: for every device, so that they agree.
// What a kernel panics with is an error here as it is in a pass.
func constants(ctx context.Context, ops *graph.Registry, g *graph.Graph) (results [][]byte, err error) {
	pool := cpu.NewPool(1)
	defer pool.Close()
	defer func() {
		if v := recover(); v != nil {
			results, err = nil, panicked.By(v)
		}
	}()
	values, err := cpu.Interpret(ctx, pool, ops, g, nil, nil)
	if err != nil {
		return nil, err
	}
	results = make([][]byte, len(g.Outputs))
	for i, o := range g.Outputs {
		results[i] = values[o.Name].Data
	}
	return results, nil
}

// precisions are what [Compilation.Precision] may be, the default first.
var precisions = []string{"fp32", "bf16", "tf32", "int8"}

// CheckPrecision refuses what is no precision of any device.
func CheckPrecision(p string) error {
	if p == "" || slices.Contains(precisions, p) {
		return nil
	}
	return fmt.Errorf("no precision %q: there is %s", p, strings.Join(precisions, ", "))
}

// narrowed returns a graph in the precision that is asked for, with half weights read as they are where the device's
// kernels can.
func (c *compiler) narrowed(g *graph.Graph, o Compilation) (*graph.Graph, error) {
	g = rewrite.Prune(rewrite.FoldCasts(g))
	p := o.Precision
	refused := func(why string) error {
		if why != "" {
			why = ": " + why
		}
		return fmt.Errorf("%w: precision %s on %s%s", graph.ErrUnsupported, p, c.device.Name, why)
	}
	switch {
	case p == "" || p == precisions[0]:
		return g, nil
	case !c.gpu && p == "int8":
		return g, nil // once weights are blocks of codes
	case !c.gpu && p != "bf16":
		return nil, refused("it takes a GPU")
	case c.gpu && !slices.Contains(c.precisions, p):
		return nil, refused(c.without)
	case c.gpu && o.Mode != plan.Resident && o.Mode != plan.Page:
		// The CPU beside it may have no such products.
		return nil, refused("in mode " + string(o.Mode))
	}
	return rewrite.Narrow(g, p), nil
}
