// Package arrange chooses the layouts of values in graphs for the CPU: [Graph] returns an equivalent graph in which
// convolutions, products and the ops between them work on values in blocks of channels, wherever that is expected to be
// faster.
//
// It knows graphs, shapes, and which kinds internal/cpu has kernels for. It asks package blocked which convolutions
// that supports, and internal/cpu what its other kernels support. It does not know memory, threads or plans, and reads
// no weights.
//
//	g = arrange.Graph(rewrite.Optimise(g, …), false)
//	lowered, err := dev.Lower(g)
//
// # Regions
//
// Between convolutions, values are [N, ⌈C/16⌉, H, W, 16], channels padded with zeros to a multiple of sixteen, and
// their ops are kinds that only internal/cpu knows: conv16, pool16, cat16 … An elementwise op over whole values is
// unchanged if it keeps the padding zero. to16 and from16 convert at the borders; a region whose convolutions save less
// time than its borders cost is left alone. A first convolution of at most four channels reads its input unconverted.
//
// With bfloat16 on a CPU with AMX or AVX512-BF16 such values are bfloat16 in blocks of 32, and the rows that linears
// and attention read are [⌈C/32⌉, rows, 32], like the pixels of a convolution, rounded once.
package arrange

import (
	"fmt"
	"maps"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/graph/rewrite"
	"github.com/optimem/optimem/internal/cpu/blocked"
	simd "github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/tensor"
)

// Graph returns the graph with its convolutions and what stands between them over values whose channels lie in blocks of
// sixteen (package blocked), where that is expected to take less time. Such a value is [N, ⌈C/16⌉, H, W, 16], and the ops
// over it are kinds that [cpu.Lower] knows and no registry: "conv16", "pool16" and so on. "to16" and "from16" stand where
// such a region begins and ends. Inputs and outputs of the graph stay as they are. exact keeps to sums of products: no
// Winograd. Convolutions that may round to bfloat16 are computed by the processor's matrix unit, if it has one (see byUnits
// and byUnitRows).
//
// The graph given does not change. Every value of it that is still computed keeps its id.
func Graph(g *graph.Graph, exact bool) *graph.Graph {
	g = inBlocks(g, exact)
	if sets := simd.UnitSets(); sets[0].Vectors != nil {
		g = byUnitRows(byUnits(g, sets[0]), sets[0])
	}
	return g
}

// inBlocks is Graph without a matrix unit.
func inBlocks(g *graph.Graph, exact bool) *graph.Graph {
	left := make(map[int]bool)
	for range 8 { // a region that is left alone may leave another one alone
		a := newArranger(g, exact, left)
		for i := range g.Ops {
			a.op(i)
		}
		more := a.unworthy()
		if len(more) == 0 {
			return a.finish()
		}
		maps.Copy(left, more)
	}
	return g
}

// An arranger is a graph being made.
type arranger struct {
	g, out *graph.Graph
	exact  bool
	// left are convolutions that stay as they are.
	left map[int]bool
	// uses counts the readers of each value of g.
	uses []int
	// guards are those of the op that computes a value.
	guards [][]graph.Guard
	// planar says that a value of g is computed as it is; forms has the blocked forms of others, or besides.
	planar []bool
	forms  map[graph.ValueID]*form
	// rows are values with the channels of a pixel side by side, [N, H, W, C], views the forms of parts and turns of values.
	rows  map[graph.ValueID]graph.ValueID
	views map[string]*form
	// makers are the ops of the result that compute blocked values.
	makers  map[graph.ValueID]int
	regions []region
}

// A form is a value in blocks.
type form struct {
	id graph.ValueID
	// shape is the value's as convolutions see it: N×C×W or N×C×H×W.
	shape tensor.Shape
	// rows says that g has the value as [N, H, W, C], the channels of a pixel side by side.
	rows   bool
	region int
}

// A region is blocked values that ops connect.
type region struct {
	// into is the region that it became part of, −1 for none.
	into  int
	convs []int
	// seconds are what it is expected to save, less what its borders take.
	seconds float64
}

func newArranger(g *graph.Graph, exact bool, left map[int]bool) *arranger {
	out := *g
	out.Values, out.Ops = slices.Clone(g.Values), nil
	a := &arranger{
		g: g, out: &out, exact: exact, left: left, uses: make([]int, len(g.Values)),
		guards: make([][]graph.Guard, len(g.Values)), planar: make([]bool, len(g.Values)),
		forms: make(map[graph.ValueID]*form), makers: make(map[graph.ValueID]int),
		rows: make(map[graph.ValueID]graph.ValueID), views: make(map[string]*form),
	}
	for id := range g.Values {
		a.planar[id] = g.Values[id].Role != graph.Computed
	}
	for i := range g.Ops {
		for _, o := range g.Ops[i].In {
			if o.Value != graph.NoValue {
				a.uses[o.Value]++
			}
		}
		for _, id := range g.Ops[i].Out {
			a.guards[id] = g.Ops[i].Guard
		}
	}
	for _, o := range g.Outputs {
		a.uses[o.Operand.Value]++
	}
	for _, u := range g.Updates {
		if u.Operand.Value != graph.NoValue {
			a.uses[u.Operand.Value]++
		}
	}
	return a
}

// op adds op i, in blocks or as it is.
func (a *arranger) op(i int) {
	op := &a.g.Ops[i]
	if len(op.Out) == 1 && a.g.Values[op.Out[0]].DType == tensor.Float32 && a.blocks(i, op) {
		return
	}
	plain := *op
	plain.In = slices.Clone(op.In)
	for k, o := range op.In {
		if rows, ok := a.pixelRows(o, op); ok {
			plain.In[k] = rows
			continue
		}
		a.needPlanar(o.Value, op)
	}
	for _, c := range op.Guard {
		a.needPlanar(c.Predicate.Value, op)
	}
	a.out.Ops = append(a.out.Ops, plain)
	for _, id := range op.Out {
		a.planar[id] = true
	}
}

// blocks adds op i in blocks, and reports whether it did.
func (a *arranger) blocks(i int, op *graph.Op) bool {
	switch op.Kind {
	case "conv":
		return !a.left[i] && a.conv(i, op)
	case "max_pool", "avg_pool", "adaptive_avg_pool", "adaptive_max_pool":
		return a.pool(op)
	case "mean":
		return a.globalMean(op)
	case "batch_norm":
		return a.norm(op)
	case "cat":
		return a.cat(op)
	case "layer_norm":
		return a.layerNorm(op)
	case "linear":
		return !a.left[i] && a.linear(i, op)
	case "chain":
		return a.scaleAndAdd(op) || a.elementwise(op)
	}
	return a.elementwise(op)
}

// geometry returns a shape as images, channels, rows and columns.
func geometry(s tensor.Shape) (n, channels, height, width int, ok bool) {
	switch len(s) {
	case 3:
		n, channels, height, width = s[0], s[1], 1, s[2]
	case 4:
		n, channels, height, width = s[0], s[1], s[2], s[3]
	}
	return n, channels, height, width, n > 0 && channels > 0 && height > 0 && width > 0
}

// blockedShape returns the shape of a value in blocks.
func blockedShape(s tensor.Shape) (tensor.Shape, bool) {
	n, channels, height, width, ok := geometry(s)
	return tensor.Shape{n, blocked.Blocks(channels), height, width, blocked.Lanes}, ok
}

// emit adds an op over blocked values, whose result is value id of g in blocks.
func (a *arranger) emit(
	like *graph.Op, kind graph.Kind, attrs graph.Attrs, shape tensor.Shape, in ...graph.Operand,
) *form {
	s, _ := blockedShape(shape)
	a.out.Values = append(a.out.Values, graph.Value{DType: tensor.Float32, Shape: s})
	f := &form{id: graph.ValueID(len(a.out.Values) - 1), shape: shape, region: len(a.regions)}
	a.regions = append(a.regions, region{into: -1})
	a.makers[f.id] = len(a.out.Ops)
	a.out.Ops = append(a.out.Ops, graph.Op{
		Kind: kind, Path: like.Path, Source: like.Source, Guard: like.Guard, Attrs: attrs, In: in,
		Out: []graph.ValueID{f.id},
	})
	return f
}

// result says that a form is the result of an op of g, made from other forms.
func (a *arranger) result(op *graph.Op, f *form, from ...*form) bool {
	a.forms[op.Out[0]] = f
	for _, g := range from {
		if g != nil {
			a.join(f.region, g.region)
		}
	}
	return true
}

// all returns the operand that is all of a form.
func (f *form) all(g *graph.Graph) graph.Operand { return g.Whole(f.id) }

// whole reports whether an operand is all of a value, in a shape that has images and channels.
func (a *arranger) whole(o graph.Operand) bool {
	if o.Value == graph.NoValue || a.g.Values[o.Value].DType != tensor.Float32 || o.Layout.Offset != 0 ||
		!o.Layout.IsContiguous() {
		return false
	}
	_, _, _, _, ok := geometry(o.Layout.Shape)
	return ok && int64(volume(o.Layout.Shape))*4 == a.g.Values[o.Value].Bytes()
}

// formOf returns the form of what an operand shows where there is one already, nil where there is none.
func (a *arranger) formOf(o graph.Operand, like *graph.Op) *form {
	f := a.forms[o.Value]
	if f == nil || o.Value == graph.NoValue {
		return nil
	}
	switch {
	case a.shows(o, f, false):
		return f
	case f.rows:
		return nil
	}
	return a.slice(o, f, like)
}

// shows reports whether an operand is all of a form's value as [N, C, H, W], or as [N, H, W, C].
func (a *arranger) shows(o graph.Operand, f *form, rows bool) bool {
	if rows == f.rows {
		shape := f.shape
		if rows {
			shape = byRows(shape)
		}
		return a.whole(o) && o.Layout.Shape.Equal(shape)
	}
	if len(f.shape) != 4 || o.Layout.Offset != 0 {
		return false
	}
	n, channels, height, width, _ := geometry(f.shape)
	shape, strides := tensor.Shape{n, height, width, channels},
		[]int{channels * height * width, width, 1, height * width}
	if !rows {
		shape, strides = f.shape, []int{channels * height * width, 1, width * channels, channels}
	}
	if !o.Layout.Shape.Equal(shape) {
		return false
	}
	for d, size := range shape {
		if size > 1 && o.Layout.Strides[d] != strides[d] {
			return false
		}
	}
	return true
}

// byRows returns the shape [N, H, W, C] of a picture.
func byRows(s tensor.Shape) tensor.Shape { return tensor.Shape{s[0], s[2], s[3], s[1]} }

// slice returns channels of a form that begin at a block.
func (a *arranger) slice(o graph.Operand, f *form, like *graph.Op) *form {
	s, l := f.shape, o.Layout
	if len(l.Shape) != len(s) || !slices.Equal(l.Strides, tensor.Contiguous(s...).Strides) || l.Shape[0] != s[0] ||
		!slices.Equal(l.Shape[2:], s[2:]) {
		return nil
	}
	pixels := volume(s[2:])
	at, count := l.Offset/pixels, l.Shape[1]
	if l.Offset%pixels != 0 || at+count > s[1] || count == 0 || !blocked.CanCopy(count, s[1], at, count, 0) {
		return nil
	}
	part := a.emit(like, "slice16", graph.Attrs{"channel": at, "channels": s[1], "count": count}, l.Shape, f.all(a.out))
	a.join(part.region, f.region)
	return part
}

// needForm returns the form of what an operand shows, which it makes if need be; nil where that cannot be.
func (a *arranger) needForm(o graph.Operand, like *graph.Op) *form {
	if f := a.formOf(o, like); f != nil {
		return f
	}
	_, channels, _, _, ok := geometry(o.Layout.Shape)
	if v := &a.g.Values[o.Value]; !ok || v.Role == graph.Weight || v.DType != tensor.Float32 {
		return nil
	}
	if f := a.views[viewKey(o)]; f != nil {
		return f
	}
	a.needPlanar(o.Value, like)
	maker := *like
	maker.Guard = a.guards[o.Value] // for whoever reads it
	f := a.emit(&maker, "to16", graph.Attrs{"channels": channels}, o.Layout.Shape, o)
	if a.whole(o) && a.forms[o.Value] == nil {
		a.forms[o.Value] = f
	} else {
		a.views[viewKey(o)] = f
	}
	a.regions[f.region].seconds -= borderSeconds(o.Layout.Shape)
	return f
}

// viewKey names what an operand shows.
func viewKey(o graph.Operand) string { return fmt.Sprint(o.Value, o.Layout) }

// pixelRows returns an operand that shows all channels of one pixel after the other, [N, H, W, C] or [N, H·W, C], of a
// value in blocks: it is brought out of them in that order, unless it is out already.
func (a *arranger) pixelRows(o graph.Operand, like *graph.Op) (graph.Operand, bool) {
	f := a.forms[o.Value]
	if o.Value == graph.NoValue || f == nil || f.rows || a.planar[o.Value] || len(f.shape) != 4 ||
		o.Layout.Offset != 0 {
		return o, false
	}
	n, channels, height, width, _ := geometry(f.shape)
	shape := byRows(f.shape)
	if len(o.Layout.Shape) == 3 {
		pixels := height * width
		shape = tensor.Shape{n, pixels, channels}
		for d, stride := range []int{channels * pixels, 1, pixels} {
			if !o.Layout.Shape.Equal(shape) || shape[d] > 1 && o.Layout.Strides[d] != stride {
				return o, false
			}
		}
	} else if !a.shows(o, f, true) {
		return o, false
	}
	id, ok := a.rows[o.Value]
	if !ok {
		id = graph.ValueID(len(a.out.Values))
		a.out.Values = append(a.out.Values, graph.Value{
			DType: tensor.Float32, Shape: tensor.Shape{n, height, width, channels},
		})
		a.rows[o.Value] = id
		a.regions[f.region].seconds -= borderSeconds(f.shape)
		a.out.Ops = append(a.out.Ops, graph.Op{
			Kind: "from16", Path: like.Path, Source: like.Source, Guard: a.guards[o.Value],
			Attrs: graph.Attrs{"channels": channels, "pixel_rows": true}, In: []graph.Operand{f.all(a.out)},
			Out: []graph.ValueID{id},
		})
	}
	return graph.Operand{Value: id, Layout: tensor.Contiguous(shape...)}, true
}

// needPlanar makes a value as g has it, if it is not there, for an op.
func (a *arranger) needPlanar(id graph.ValueID, like *graph.Op) {
	if id == graph.NoValue || a.planar[id] {
		return
	}
	f := a.forms[id]
	if f == nil {
		panic("BUG: a value is read before it is computed")
	}
	a.planar[id] = true
	a.regions[f.region].seconds -= borderSeconds(f.shape)
	attrs, shape := graph.Attrs{"channels": f.shape[1]}, f.shape
	if f.rows {
		attrs["pixel_rows"], shape = true, byRows(shape)
	}
	a.out.Ops = append(a.out.Ops, graph.Op{
		Kind: "from16", Path: like.Path, Source: like.Source, Guard: a.guards[id],
		Attrs: attrs, In: []graph.Operand{f.all(a.out)}, Out: []graph.ValueID{id},
	})
	a.out.Values[id].Shape = shape
}

// finish returns the graph with its outputs.
func (a *arranger) finish() *graph.Graph {
	end := &graph.Op{}
	if n := len(a.g.Ops); n > 0 {
		end.Path = a.g.Ops[n-1].Path
	}
	for _, o := range a.g.Outputs {
		a.needPlanar(o.Operand.Value, end)
	}
	for _, u := range a.g.Updates {
		a.needPlanar(u.Operand.Value, end)
	}
	a.out.Modules = make(map[string]graph.Operand, len(a.g.Modules))
	for path, o := range a.g.Modules {
		if f := a.forms[o.Value]; o.Value == graph.NoValue || a.planar[o.Value] {
			a.out.Modules[path] = o
		} else if f != nil { // whoever cuts modules wants to know which there are
			a.out.Modules[path] = f.all(a.out)
		}
	}
	return rewrite.Prune(a.out)
}

// root returns the region that a region became part of.
func (a *arranger) root(r int) int {
	for a.regions[r].into >= 0 {
		r = a.regions[r].into
	}
	return r
}

// join makes one region of two.
func (a *arranger) join(r, s int) {
	r, s = a.root(r), a.root(s)
	if r == s {
		return
	}
	a.regions[s].into = r
	a.regions[r].convs = append(a.regions[r].convs, a.regions[s].convs...)
	a.regions[r].seconds += a.regions[s].seconds
	a.regions[s].convs, a.regions[s].seconds = nil, 0
}

// unworthy returns the convolutions of regions that are not expected to save time.
func (a *arranger) unworthy() map[int]bool {
	left := make(map[int]bool)
	for _, o := range a.g.Outputs {
		if f := a.forms[o.Operand.Value]; f != nil && !a.planar[o.Operand.Value] {
			a.regions[a.root(f.region)].seconds -= borderSeconds(f.shape)
		}
	}
	for r := range a.regions {
		if root := a.root(r); root != r {
			a.regions[root].seconds += a.regions[r].seconds
			a.regions[r].seconds = 0
		}
	}
	for _, r := range a.regions {
		if r.seconds < 0 {
			for _, i := range r.convs {
				left[i] = true
			}
		}
	}
	return left
}

// What one thread does in a second, roughly: as products of matrices, in blocks, where each output reads one channel, and
// bytes that change their layout. Only regions far from worth it, or far from not, are many.
const (
	productFLOPs   = 60e9
	blockedFLOPs   = 150e9
	depthwiseFLOPs = 2e9
	borderBytes    = 3e9
)

// volume returns the product of a shape that is known to be sound.
func volume(s tensor.Shape) int {
	n := 1
	for _, d := range s {
		n *= d
	}
	return n
}

// borderSeconds is what it takes to bring a value into blocks or out of them.
func borderSeconds(s tensor.Shape) float64 { return 8 * float64(volume(s)) / borderBytes }
