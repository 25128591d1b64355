package cuda

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// indexKernels move elements to or from places that indices name, or to others: kernels/index.cu.
var indexKernels = map[graph.Kind]kernel{
	"embedding":        {work: positionsWork(1), launch: func(l *launch) error { return launchIndex(l, 0, false) }},
	"embedding_rows":   {work: positionsWork(1), launch: launchEmbeddingRows},
	"index":            {work: positionsWork(1), launch: launchIndexAny},
	"gather":           {launch: launchPick},
	"index_put":        {supports: supportsPut, work: putWork, launch: launchIndexPut},
	"scatter":          {supports: supportsMerge, work: scatterWork, launch: launchScatter},
	"masked_scatter":   {work: ranksWork(1), launch: launchMaskedScatter},
	"embedding_bag":    {supports: realFirst, launch: launchBag},
	"searchsorted":     {supports: supportsReduction, launch: launchSearch},
	"repeat_indices":   {work: ranksWork(0), launch: launchRepeat},
	"nonzero":          {supports: onlyNumbers, work: ranksWork(0), launch: launchNonzero},
	"triangle_indices": {launch: launchTriangleIndices},
	"flip":             {launch: launchFlip},
	"roll":             {launch: launchRoll},
	"pad":              {launch: launchPad},
}

// padModes are those of kernels/index.cu.
var padModes = map[string]int32{"constant": 0, "reflect": 1, "replicate": 2, "circular": 3}

// merges are how elements are combined, in kernels/index.cu; the mean is the sum, divided later.
var merges = map[string]int32{"": 0, "sum": 1, "mean": 1, "prod": 2, "amax": 3, "amin": 4}

// positionsWork is room for where each position of the index tensors leads, the first of which is operand i.
func positionsWork(i int) func(in, _ []graph.Spec, _ graph.Attrs) int64 {
	return func(in, _ []graph.Spec, _ graph.Attrs) int64 {
		return contiguousBytes(graph.Spec{DType: tensor.Int64, Shape: in[i].Shape})
	}
}

// positions launches what computes where the index tensors lead in the dimensions from d on of a view.
func (l *launch) positions(view tensor.Layout, d int, index []operand, wrap bool) (span, int64, error) {
	n := index[0].size()
	at := l.work.slice(0, n*8)
	for k, o := range index {
		size := int64(view.Shape[d+k])
		c := l.call("om_index_at").scratch(at).i32(int32(min(k, 1))).read(o).i32(dtypeCodes[o.dtype]).layout(o.layout).i64(n)
		c.i64(size).i64(int64(view.Strides[d+k])).i32(int32(flag(wrap))).i64(0).i64(size)
		if err := c.status().over(n); err != nil {
			return at, n, err
		}
	}
	return at, n, nil
}

// around returns the dimensions before d and those from e on, and how many elements the latter have.
func around(view tensor.Layout, d, e int) (outer, inner tensor.Layout, width int64) {
	outer = tensor.Layout{Shape: view.Shape[:d], Strides: view.Strides[:d]}
	inner = tensor.Layout{Shape: view.Shape[e:], Strides: view.Strides[e:]}
	width = 1
	for _, n := range inner.Shape {
		width *= int64(n)
	}
	return outer, inner, width
}

// rows returns operands of an op that picks by indices in dimensions d to e − 1 of the first, with elements as large as
// the dimensions from e on allow.
func rows(e int, x, rest, out operand) (wx, wrest, wout operand) {
	inner := tensor.Layout{Shape: x.layout.Shape[e:], Strides: x.layout.Strides[e:]}.Joined()
	x.layout.Shape = append(slices.Clone(x.layout.Shape[:e]), inner.Shape...)
	x.layout.Strides = append(slices.Clone(x.layout.Strides[:e]), inner.Strides...)
	if !rest.absent() {
		rest = rest.joined()
	}
	wide := wider(x, rest, out.joined())
	return wide[0], wide[1], wide[2]
}

// pickRows launches om_index: what is nowhere is taken from rest.
func (l *launch) pickRows(x, rest, out operand, d, e int, at span, positions int64) error {
	outer, inner, width := around(x.layout, d, e)
	restView := rest.layout
	if rest.absent() {
		restView = tensor.Contiguous(1)
	}
	c := l.call(fmt.Sprintf("om_index_%d", out.dtype.Size())).write(out).read(x).layout(outer).layout(inner)
	c.scratch(at).divisor(positions, out.size()).divisor(width, out.size()).read(rest).layout(restView)
	return c.i64(out.size()).over(out.size())
}

func launchIndex(l *launch, d int, wrap bool) error {
	if l.out[0].size() == 0 {
		return nil
	}
	e := d + len(l.in) - 1
	x, _, out := rows(e, l.in[0], operand{}, l.out[0])
	at, n, err := l.positions(x.layout, d, l.in[1:], wrap)
	if err != nil {
		return err
	}
	return l.pickRows(x, operand{}, out, d, e, at, n)
}

func launchIndexAny(l *launch) error { return launchIndex(l, l.attrs.Int("dim"), l.attrs.Bool("wrap")) }

// launchEmbeddingRows picks rows from a part of a table.
func launchEmbeddingRows(l *launch) error {
	o, rest := l.in[1], operand{}
	if len(l.in) > 2 {
		rest = l.in[2]
	}
	table, rest, out := rows(1, l.in[0], rest, l.out[0])
	n := o.size()
	at := l.work.slice(0, n*8)
	c := l.call("om_index_at").scratch(at).i32(0).read(o).i32(dtypeCodes[o.dtype]).layout(o.layout).i64(n)
	c.i64(int64(l.attrs.Int("size"))).i64(int64(table.layout.Strides[0])).i32(0)
	c.i64(int64(l.attrs.Int("low"))).i64(int64(table.shape()[0]))
	if err := c.status().over(n); err != nil {
		return err
	}
	return l.pickRows(table, rest, out, 0, 1, at, n)
}

// across returns a layout over another shape with dimension d not counting, and that dimension's stride, 1 for scalars.
func across(view tensor.Layout, shape tensor.Shape, d int) (tensor.Layout, int64) {
	if len(view.Shape) == 0 {
		return tensor.Layout{}, 1
	}
	lines := tensor.Layout{Shape: shape, Strides: append([]int{}, view.Strides...)}
	lines.Strides[d] = 0
	return lines, int64(view.Strides[d])
}

// along returns the size of a dimension, 1 for scalars.
func along(s tensor.Shape, d int) int64 {
	if len(s) == 0 {
		return 1
	}
	return int64(s[d])
}

// launchPick computes out[i, j] = in[0][i, in[1][i, j]].
func launchPick(l *launch) error {
	x, index, out := l.in[0], l.in[1], l.out[0]
	n, d := out.size(), l.attrs.Int("dim")
	lines, stride := across(x.layout, index.shape(), d)
	c := l.call(fmt.Sprintf("om_pick_%d", out.dtype.Size())).write(out).read(x).layout(lines).i64(along(x.shape(), d)).i64(stride)
	return c.read(index).i32(dtypeCodes[index.dtype]).layout(index.layout).i64(n).status().over(n)
}

// supportsMerge takes all that is replaced, and numbers to be combined.
func supportsMerge(in, _ []graph.Spec, a graph.Attrs) error {
	if a.String("reduce") == "" && !a.Bool("accumulate") {
		return nil
	}
	if d := in[0].DType; d == tensor.UInt64 {
		return fmt.Errorf("it does not combine %v", d)
	}
	return onlyNumbers(in[:1], nil, a)
}

// supportsPut counts positions in ints.
func supportsPut(in, out []graph.Spec, a graph.Attrs) error {
	if n, err := in[2].Shape.NumElements(); err != nil || n > mostCounted {
		return fmt.Errorf("%v positions", in[2].Shape)
	}
	return supportsMerge(in, out, a)
}

// lastBytes is room for an int for each element, or for each half of one, of what is replaced.
func lastBytes(elements int64, d tensor.DType) int64 { return elements * 4 * int64(max(d.Size()/8, 1)) }

// putWork is room for where each position leads, and for which is the last to come to each element.
func putWork(in, out []graph.Spec, a graph.Attrs) int64 {
	bytes := positionsWork(2)(in, out, a)
	if n, err := in[0].Shape.NumElements(); err == nil && !a.Bool("accumulate") {
		bytes += lastBytes(n, in[0].DType)
	}
	return bytes
}

// half returns an operand of elements of sixteen bytes as its first or second eight, others as they are, and how many
// such parts there are.
func (o operand) half(part int) (operand, int) {
	if o.dtype.Size() <= 8 {
		return o, 1
	}
	o.dtype = tensor.Int64
	strides := make([]int, len(o.layout.Strides))
	for i, s := range o.layout.Strides {
		strides[i] = 2 * s
	}
	o.layout = tensor.Layout{Shape: o.layout.Shape, Strides: strides, Offset: 2*o.layout.Offset + part}
	return o, 2
}

// merging returns the suffix of a kernel that merges elements, and the code of their dtype there: what is only replaced
// goes as integers.
func merging(d tensor.DType, op int32) (string, int32) {
	switch {
	case op == merges[""]:
		return "i", map[int]int32{
			1: dtypeCodes[tensor.Int8], 2: dtypeCodes[tensor.Int16], 4: dtypeCodes[tensor.Int32], 8: dtypeCodes[tensor.Int64],
		}[d.Size()]
	case d == tensor.Float64:
		return "d", dtypeCodes[d]
	case isReal(d):
		return "f", dtypeCodes[d]
	}
	return "i", dtypeCodes[d]
}

// launchIndexPut merges in[1] into a copy of in[0].
func launchIndexPut(l *launch) error {
	if l.out[0].size() == 0 {
		return nil
	}
	if err := l.gather(l.out[0], l.in[0]); err != nil || l.in[1].size() == 0 {
		return err
	}
	d, op := l.attrs.Int("dim"), merges[""]
	if l.attrs.Bool("accumulate") {
		op = merges["sum"]
	}
	for part, parts := 0, 1; part < parts; part++ {
		var out operand
		out, parts = l.out[0].half(part)
		values, _ := l.in[1].half(part)
		at, positions, err := l.positions(out.layout, d, l.in[2:], l.attrs.Bool("wrap"))
		if err != nil {
			return err
		}
		outer, inner, width := around(out.layout, d, d+len(l.in)-2)
		suffix, code := merging(out.dtype, op)
		if op == merges[""] {
			if err := l.replace(out, values, placing{outer, inner, at, positions, width}, code); err != nil {
				return err
			}
			continue
		}
		n := values.size() / positions
		c := l.call("om_put_"+suffix).write(out).i32(code).layout(outer).layout(inner).scratch(at).i64(positions).divisor(width, n)
		if err := c.read(values).layout(values.layout).i32(op).i64(n).over(n); err != nil {
			return err
		}
	}
	return nil
}

// placing says where values go: each of so many positions, found at, is that of a block of inner elements, width of
// them, in each of the outer ones.
type placing struct {
	outer, inner     tensor.Layout
	at               span
	positions, width int64
}

// replace launches what writes, of all values that come to an element of out, the last.
func (l *launch) replace(out, values operand, p placing, code int32) error {
	outer, inner, at, positions, width := p.outer, p.inner, p.at, p.positions, p.width
	n, places := values.size(), lastBytes(l.out[0].size(), l.out[0].dtype)/4
	last := l.work.slice(ceilDiv(at.bytes, alignBytes)*alignBytes, places*4)
	if err := l.call("om_counts").scratch(last).i32(-1).i64(places).over(places); err != nil {
		return err
	}
	c := l.call("om_put_last").scratch(last).layout(outer).layout(inner).scratch(at).divisor(positions, n).divisor(width, n)
	if err := c.i64(n).over(n); err != nil {
		return err
	}
	c = l.call("om_put_chosen").write(out).i32(code).layout(outer).layout(inner).scratch(at).divisor(positions, n).divisor(width, n)
	return c.read(values).layout(values.layout).scratch(last).i64(n).over(n)
}

// countsWanted reports whether it matters how many elements come to a place.
func countsWanted(a graph.Attrs) bool {
	reduce := a.String("reduce")
	return reduce == "mean" || reduce != "" && !a.Bool("include_self")
}

// scatterWork is room for a count of each element, where that matters.
func scatterWork(in, _ []graph.Spec, a graph.Attrs) int64 {
	if !countsWanted(a) {
		return 0
	}
	return contiguousBytes(graph.Spec{DType: tensor.Int32, Shape: in[0].Shape})
}

// launchScatter merges in[2] into a copy of in[0], a line a thread.
func launchScatter(l *launch) error {
	n := l.out[0].size()
	if n == 0 {
		return nil
	}
	if err := l.gather(l.out[0], l.in[0]); err != nil || l.in[1].size() == 0 {
		return err
	}
	var counts span
	if countsWanted(l.attrs) {
		counts = l.work.slice(0, n*4)
		c := l.call("om_counts").scratch(counts).i32(int32(flag(l.attrs.Bool("include_self")))).i64(n)
		if err := c.over(n); err != nil {
			return err
		}
	}
	reduce := l.attrs.String("reduce")
	for part, parts := 0, 1; part < parts; part++ {
		var out operand
		out, parts = l.out[0].half(part)
		source, _ := l.in[2].half(part)
		if err := l.merge(out, source, counts, merges[reduce]); err != nil {
			return err
		}
	}
	if reduce != "mean" || l.out[0].dtype == tensor.Bool {
		return nil
	}
	suffix, code := merging(l.out[0].dtype, merges[reduce])
	return l.call("om_divide_" + suffix).write(l.out[0]).i32(code).scratch(counts).i64(n).over(n)
}

// merge launches what combines source with out where in[1] says; counts may be empty.
func (l *launch) merge(out, source operand, counts span, op int32) error {
	index, d := l.in[1], l.attrs.Int("dim")
	// The lines are the dimensions but d.
	shape := append(tensor.Shape{}, index.shape()...)
	length := along(shape, d)
	if len(shape) > 0 {
		shape[d] = 1
	}
	to, toStep := across(out.layout, shape, d)
	lines, indexStep := across(index.layout, shape, d)
	from, fromStep := across(source.layout, shape, d)
	n := index.size() / length
	suffix, code := merging(out.dtype, op)
	c := l.call("om_merge_" + suffix).write(out).i32(code).layout(to).i64(toStep).i64(along(out.shape(), d))
	c.read(index).i32(dtypeCodes[index.dtype]).layout(lines).i64(indexStep).i64(length)
	c.read(source).layout(from).i64(fromStep)
	c.scratch(counts)
	return c.i32(op).i64(n).status().over(n)
}

// ranksWork is room for a number for each element of operand i and one more.
func ranksWork(i int) func(in, _ []graph.Spec, _ graph.Attrs) int64 {
	return func(in, _ []graph.Spec, _ graph.Attrs) int64 {
		return contiguousBytes(graph.Spec{DType: tensor.Int64, Shape: in[i].Shape}) + alignBytes
	}
}

// rankers is RANKERS of kernels/index.cu.
const rankers = 256

// ranks launches what counts the elements before each that are not zero, or with sums adds them up.
func (l *launch) ranks(o operand, sums int32) (span, error) {
	n := o.size()
	rank := l.work.slice(0, (n+1)*8)
	c := l.call("om_ranks").scratch(rank).read(o).i32(dtypeCodes[o.dtype]).layout(o.layout).i64(n).i32(sums)
	return rank, c.status().grid(dims{1, 1, 1}, dims{rankers, 1, 1}, 0)
}

// launchMaskedScatter replaces elements where in[1] is true by those of in[2], in order.
func launchMaskedScatter(l *launch) error {
	x, mask, source, out := l.in[0], l.in[1], l.in[2], l.out[0]
	n := out.size()
	if n == 0 {
		return nil
	}
	rank, err := l.ranks(mask, 0)
	if err != nil {
		return err
	}
	c := l.call(fmt.Sprintf("om_masked_%d", out.dtype.Size())).write(out).read(x).layout(x.layout).read(mask).layout(mask.layout)
	return c.read(source).layout(source.layout).i64(source.size()).scratch(rank).i64(n).status().over(n)
}

// launchRepeat gives index i as often as in[0] says.
func launchRepeat(l *launch) error {
	x, out := l.in[0], l.out[0]
	size := out.size()
	rank, err := l.ranks(x, 1)
	if err != nil {
		return err
	}
	return l.call("om_repeat").write(out).scratch(rank).i64(x.size()).i64(size).status().over(size)
}

// launchNonzero gives the indices of what is not zero.
func launchNonzero(l *launch) error {
	x, out := l.in[0], l.out[0]
	if out.size() == 0 {
		return nil
	}
	rank, err := l.ranks(x, 0)
	if err != nil {
		return err
	}
	size, total := int64(l.attrs.Int("size")), max(x.size(), int64(l.attrs.Int("size")))
	c := l.call("om_nonzero").write(out).scratch(rank).layoutAs(x.layout).i64(size).i64(int64(l.attrs.Int("fill")))
	return c.i64(x.size()).i64(total).over(total)
}

// launchBag combines rows of in[0] in bags.
func launchBag(l *launch) error {
	table, index, offsets, out := l.in[0], l.in[1], l.in[2], l.out[0]
	scale, scaleStep := operand{}, 0
	if len(l.in) > 3 && !l.in[3].absent() {
		scale, scaleStep = l.in[3], l.in[3].layout.Strides[0]
	}
	n := out.size()
	c := l.call("om_bag").write(out).read(table).i32(dtypeCodes[table.dtype]).read(index).i32(dtypeCodes[index.dtype])
	c.read(offsets).i32(dtypeCodes[offsets.dtype]).read(scale)
	sizes := append([]int{table.shape()[0]}, l.s.divisorInts(int64(table.shape()[1]), n)...)
	sizes = append(sizes, table.layout.Strides[0], table.layout.Strides[1], index.shape()[0], index.layout.Strides[0],
		offsets.shape()[0], offsets.layout.Strides[0], scaleStep, l.attrs.Int("padding"), l.attrs.Int("mode"))
	c.ints(len(sizes), sizes...)
	return c.i64(n).status().over(n)
}

// launchSearch finds where elements of in[1] go in in[0].
func launchSearch(l *launch) error {
	sorted, x, out, order := l.in[0], l.in[1], l.out[0], operand{}
	if len(l.in) > 2 {
		order = l.in[2]
	}
	rank := len(sorted.shape())
	row := int64(0)
	if rank > 1 {
		row = int64(x.shape()[rank-1])
	}
	orders, orderStep := tensor.Contiguous(1), 0
	if !order.absent() {
		orders, orderStep = order.layout.Leading(1), order.layout.Strides[rank-1]
	}
	name := "om_search_i"
	if isReal(x.dtype) {
		name = "om_search_d"
	}
	n := out.size()
	c := l.call(name).write(out).i32(dtypeCodes[out.dtype]).read(sorted).layout(sorted.layout.Leading(1))
	c.i64(int64(sorted.layout.Strides[rank-1])).i64(int64(sorted.shape()[rank-1]))
	c.read(order).layout(orders).i64(int64(orderStep)).read(x).layout(x.layout).i32(dtypeCodes[x.dtype])
	return c.i64(row).i32(int32(flag(l.attrs.Bool("right")))).i64(n).status().over(n)
}

// launchTriangleIndices gives the rows and the columns of a triangle.
func launchTriangleIndices(l *launch) error {
	out, rows, columns := l.out[0], l.attrs.Int("rows"), l.attrs.Int("columns")
	if out.size() == 0 {
		return nil
	}
	offset := min(max(l.attrs.Int("offset"), -rows-1), columns+1)
	c := l.call("om_triangle_indices").write(out).i32(dtypeCodes[out.dtype]).i64(int64(rows)).i64(int64(columns))
	c.i64(int64(offset)).i32(int32(flag(l.attrs.Bool("upper")))).i64(int64(out.shape()[1]))
	return c.over(int64(rows))
}

// launchFlip copies with dimensions backwards.
func launchFlip(l *launch) error {
	x := l.in[0]
	if x.size() == 0 {
		return nil
	}
	view := tensor.Layout{Shape: x.shape(), Strides: append([]int{}, x.layout.Strides...), Offset: x.layout.Offset}
	for _, d := range l.attrs.Ints("dims") {
		view.Offset += (view.Shape[d] - 1) * view.Strides[d]
		view.Strides[d] = -view.Strides[d]
	}
	x.layout = view
	return l.gather(l.out[0], x)
}

// pad launches om_pad.
func (l *launch) pad(value operand, before []int, mode string) error {
	x, out := l.in[0], l.out[0]
	n := out.size()
	c := l.call(fmt.Sprintf("om_pad_%d", out.dtype.Size())).write(out).layoutAs(out.layout).read(x).layoutAs(x.layout)
	return c.read(value).ints(maxDims, before...).i32(padModes[mode]).i64(n).over(n)
}

// launchRoll turns dimensions: a shift is a padding that takes from the other end.
func launchRoll(l *launch) error {
	before := make([]int, len(l.in[0].shape()))
	for i, d := range l.attrs.Ints("dims") {
		if n := l.in[0].shape()[d]; n > 0 {
			before[d] = ((before[d]+l.attrs.Ints("shifts")[i])%n + n) % n
		}
	}
	return l.pad(operand{}, before, "circular")
}

func launchPad(l *launch) error {
	return l.pad(l.in[1], l.attrs.Ints("before"), l.attrs.String("mode"))
}
