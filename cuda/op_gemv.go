package cuda

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/graph/rewrite"
	"github.com/optimem/optimem/tensor"
)

// Linears of few rows, and those whose weight is narrower than what it is multiplied with: kernels/gemv.cu and, at the end, kernels/few.cu.

// The constants of kernels/gemv.cu: the threads of a block, its lines and its rows.
const (
	gemvThreads       = 128
	gemvLines         = 4
	gemvRows          = 8
	gemvAcrossThreads = 512
)

// mostNarrowRows is how many rows a narrow weight is read again for, eight at a time. Beyond, it is widened for blocks.
const mostNarrowRows = 32

// narrowWeight reports whether a linear's weight or its bias is narrower than its rows: half floats beside float32, int8 with
// scales.
func narrowWeight(in []graph.Spec) bool {
	return isReal(in[0].DType) && (in[1].DType != in[0].DType || narrowBias(in))
}

func narrowBias(in []graph.Spec) bool {
	return len(in) > 2 && in[2].DType != tensor.Invalid && in[2].DType != in[0].DType
}

// byGemv reports whether a linear of m rows may be computed by lines of its weight: must says that it is, however its
// operands lie.
func byGemv(in []graph.Spec, m int64, a graph.Attrs) (may, must bool) {
	if a.Bool(graph.RowsAlone) { // blocks sum in the same order for any number of rows
		return false, false
	}
	if narrowWeight(in) {
		return m <= mostNarrowRows, m <= mostNarrowRows
	}
	return m <= gemvRows && isReal(in[0].DType) && in[0].DType != tensor.Float64 && !rounds(a), false
}

// readNarrow reports whether a linear is computed with its narrow weight as it is, its rows not rounded either.
func readNarrow(in, _ []graph.Spec, a graph.Attrs) bool {
	_, m, _, _ := productSizes("linear", in)
	_, must := byGemv(in, m, a)
	return must
}

// widensInBlocks reports whether a linear of many rows has a narrow weight that is widened on the way to where its blocks
// multiply: by kernels/tensor_weights.cu, or kernels/weights_f32.cu where rows are float32 and not rounded.
func widensInBlocks(in []graph.Spec, a graph.Attrs) bool {
	_, m, _, _ := productSizes("linear", in)
	_, must := byGemv(in, m, a)
	return in[1].DType != in[0].DType && narrowWeight(in) && !must && in[0].DType != tensor.Float64
}

// widensForTensorCores reports whether such a linear is one of tensor cores: a GPU without kernels for that widens the weight in
// memory.
func widensForTensorCores(in []graph.Spec, a graph.Attrs) bool {
	return widensInBlocks(in, a) && (isHalf(in[0].DType) || rounds(a))
}

// widensOnGPU reports whether a GPU widens the weight of such a linear on the way.
func widensOnGPU(in []graph.Spec, a graph.Attrs, capability int) bool {
	if !widensForTensorCores(in, a) {
		return widensInBlocks(in, a)
	}
	return capability >= wideningCapability && onTensorCores(capability, in[0].DType)
}

// wideningBlocks are those of such a linear.
func wideningBlocks(in []graph.Spec, a graph.Attrs) []blocking {
	if widensForTensorCores(in, a) {
		return weightBlocks
	}
	return floatBlocks
}

// wideningWork is the scratch memory of such a linear.
func wideningWork(in []graph.Spec, a graph.Attrs) int64 {
	_, m, n, k := productSizes("linear", in)
	if m*n == 0 {
		return 0
	}
	return divideColumns(wideningBlocks(in, a), 1, m, n, k, a).partsBytes(m * n)
}

// How four elements of a weight lie: the enum of kernels/weights_f32.cu.
const (
	termsAnyhow = iota
	termsBehind
	linesAnyhow
	linesBehind
)

// lieInFours says how the elements of a weight lie.
func lieInFours(w operand) int32 {
	switch line, step := w.layout.Strides[0], w.layout.Strides[1]; {
	case vectors(w, 4, step, line):
		return termsBehind
	case step == 1 || line != 1:
		return termsAnyhow
	case vectors(w, 4, line, step):
		return linesBehind
	}
	return linesAnyhow
}

// widening computes such a linear of m rows.
func (l *launch) widening(m int64) error {
	x, w, out := l.in[0], l.in[1], l.out[0]
	scales, n, k := l.optional(4), int64(w.shape()[0]), int64(w.shape()[1])
	in, rows := specs(l.in), x.layout.Leading(1)
	name, exact := suffix(x.dtype), !widensForTensorCores(in, l.attrs)
	if precision := l.attrs.String("precision"); precision != "" {
		name = map[string]string{"bf16": "narrow", "tf32": "tf32"}[precision]
	}
	left := lieInBytes(x, lastStep(x), rows, false)
	right := int32(flag(vectors(w, 16/x.dtype.Size(), w.layout.Strides[1], w.layout.Strides[0])))
	if exact {
		left, right = lie(x, lastStep(x), rows, false), lieInFours(w)
	}
	d := divideColumns(wideningBlocks(in, l.attrs), 1, m, n, k, l.attrs)
	if !exact && d.suffix == onlySixteens && left == anyhow {
		d = d.with(anyhowWeightBlocks, 1, m, n)
	}
	c := l.call("om_weights_" + name + d.suffix).write(out)
	parts := l.work.slice(0, d.partsBytes(out.size()))
	c.scratch(parts)
	c.read(x).layout(rows).i64(int64(lastStep(x))).read(w).i32(dtypeCodes[w.dtype]).
		i64(int64(w.layout.Strides[0])).i64(int64(lastStep(w)))
	c.scaledEnding(l, scales).i64(m).i64(n).i64(k).i64(d.part).i32(left).i32(right)
	c.i32(int32(flag(n%4 == 0 && out.address%16 == 0)))
	if err := c.grid(dims{d.blocks, 1, 1}, dims{d.threads, 1, 1}, 0); err != nil || d.parts < 2 {
		return err
	}
	if exact {
		scales = operand{} // the weight was scaled
	}
	c = l.call("om_weights_sum").write(out).i32(dtypeCodes[out.dtype]).scratch(parts)
	return c.scaledEnding(l, scales).i64(n).i64(out.size()).i32(int32(d.parts)).over(out.size())
}

// scaledEnding passes what such a linear ends with: SCALED_ENDING of kernels/weights.h.
func (c *call) scaledEnding(l *launch, scales operand) *call {
	bias, added, lines := l.optional(2), l.optional(3), tensor.Contiguous(1)
	if !added.absent() {
		lines = added.layout.Leading(1)
	}
	c.read(scales).i32(dtypeCodes[scales.dtype]).i64(int64(lastStep(scales)))
	c.read(bias).i32(dtypeCodes[bias.dtype]).i64(int64(lastStep(bias)))
	return c.read(added).layout(lines).i64(int64(lastStep(added))).activation(l.attrs, tensor.Float32)
}

// widenBytes is the scratch memory for a weight made as wide as its rows, and for its bias.
func widenBytes(in []graph.Spec) (weight, bias int64) {
	if in[1].DType != in[0].DType {
		weight = contiguousBytes(graph.Spec{DType: in[0].DType, Shape: in[1].Shape})
	}
	if narrowBias(in) {
		bias = contiguousBytes(graph.Spec{DType: in[0].DType, Shape: in[2].Shape})
	}
	return weight, bias
}

// linearWork is the scratch memory of a linear: what its product wants and, where the weight is widened, room for that.
func linearWork(in, out []graph.Spec, a graph.Attrs) int64 {
	_, m, _, _ := productSizes("linear", in)
	may, must := byGemv(in, m, a)
	if must {
		return gemvWork(in, a)
	}
	work := productWork("linear")(in, out, a)
	if widensInBlocks(in, a) {
		own := wideningWork(in, a)
		if !widensForTensorCores(in, a) {
			return own
		}
		work = max(work, own)
	}
	if may {
		work = max(work, gemvWork(in, a))
	}
	if narrowWeight(in) {
		weight, bias := widenBytes(in)
		work = ceilDiv(work, alignBytes)*alignBytes + weight + bias
	}
	return work
}

// specs are those of operands.
func specs(list []operand) []graph.Spec {
	all := make([]graph.Spec, len(list))
	for i, o := range list {
		all[i] = graph.Spec{DType: o.dtype, Shape: o.shape()}
	}
	return all
}

// inVectors reports whether a linear's weight and rows can be read eight elements at a time.
func inVectors(x, w operand) bool {
	rows, even := evenRows(x)
	each := 8
	if w.dtype == tensor.Float32 {
		each = 4
	}
	k := len(x.shape()) - 1
	return even && x.shape()[k]%8 == 0 && vectors(x, 16/x.dtype.Size(), x.layout.Strides[k], rows) &&
		vectors(w, each, w.layout.Strides[1], w.layout.Strides[0])
}

// launchGemv computes a linear of m rows.
func launchGemv(l *launch, m int64) error {
	x, w, out := l.in[0], l.in[1], l.out[0]
	bias, added, scales := l.optional(2), l.optional(3), l.optional(4)
	n, k := int64(w.shape()[0]), int64(w.shape()[1])
	rows, even := evenRows(x)
	addedRows, addedEven := evenRows(added)
	if !even || !addedEven {
		return l.rowByRow(m)
	}
	sizes := []int{
		int(m), int(n), int(k), int(k), rows, lastStep(x), w.layout.Strides[0], w.layout.Strides[1], lastStep(scales),
		lastStep(bias), addedRows, lastStep(added),
	}
	name, grid, threads := "om_gemv_any", dims{min(ceilDiv(m*n, gemvThreads/32), mostBlocks), 1, 1}, int64(gemvThreads)
	columns := int64(gemvLines)
	switch {
	case inVectors(x, w):
		name, grid = "om_gemv_8", dims{ceilDiv(n, columns), ceilDiv(m, gemvRows), 1}
		if m == 1 {
			name = "om_gemv_1"
		}
	case w.layout.Strides[0] == 1:
		columns = 32
		name, grid, threads = "om_gemv_across", dims{ceilDiv(n, columns), m, 1}, gemvAcrossThreads
	}
	var found span
	if name != "om_gemv_any" {
		whole := int64(rewrite.WholeColumns(l.attrs, int(n))) // of which this linear has some
		part, parts := gemvParts(ceilDiv(whole, columns)*grid[1], k, whole*k*int64(w.dtype.Size()))
		if parts > 1 {
			found = l.work.slice(0, parts*m*n*4)
		}
		sizes[3], grid[2] = int(part), parts
	}
	end := func(c *call, found span) *call {
		c.scratch(found)
		c.read(scales).i32(dtypeCodes[scales.dtype]).read(bias).i32(dtypeCodes[bias.dtype]).read(added)
		return c.ints(len(sizes), sizes...).activation(l.attrs, tensor.Float32)
	}
	c := l.call(name).write(out).i32(dtypeCodes[x.dtype]).read(x).read(w).i32(dtypeCodes[w.dtype])
	if err := end(c, found).grid(grid, dims{threads, 1, 1}, 0); err != nil || found.bytes == 0 {
		return err
	}
	c = l.call("om_gemv_sum").write(out).i32(dtypeCodes[x.dtype]).scratch(found).i32(int32(grid[2]))
	return end(c, span{}).over(m * n)
}

// gemvParts returns into how many parts the terms of a product of few rows are cut, and how many terms one has, where there are
// fewer blocks than a GPU has processors and enough bytes are read that another launch is little beside that.
func gemvParts(blocks, k, bytes int64) (part, parts int64) {
	const leastBytes, terms = 2 << 20, gemvThreads * 8
	if blocks < processors && bytes >= leastBytes {
		if most := min(2*processors/blocks, k/(2*terms), mostParts); most > 1 {
			part = ceilDiv(ceilDiv(k, most), terms) * terms
			return part, ceilDiv(k, part)
		}
	}
	return k, 1
}

// gemvWork is the scratch memory for what parts find, however the weight lies, and if rows are computed one at a time.
func gemvWork(in []graph.Spec, a graph.Attrs) int64 {
	_, m, n, k := productSizes("linear", in)
	if m*n*k == 0 {
		return 0
	}
	var most int64
	whole := int64(rewrite.WholeColumns(a, int(n)))
	for _, rows := range []int64{m, 1} {
		for _, blocks := range []int64{ceilDiv(whole, gemvLines) * ceilDiv(rows, gemvRows), ceilDiv(whole, 32) * rows} {
			if _, parts := gemvParts(blocks, k, whole*k*int64(in[1].DType.Size())); parts > 1 {
				most = max(most, parts*rows*n*4)
			}
		}
	}
	return ceilDiv(most, alignBytes) * alignBytes
}

// lastStep is how far apart the elements of an operand's last dimension lie, 0 if there is no operand.
func lastStep(o operand) int {
	if o.absent() {
		return 0
	}
	return o.layout.Strides[len(o.layout.Strides)-1]
}

// evenRows returns how far rows of an operand lie from each other, false where that is not one number.
func evenRows(o operand) (int, bool) {
	if o.absent() {
		return 0, true
	}
	rows := o.layout.Leading(1).Joined()
	if rows.Shape[0] == 1 {
		return 0, true
	}
	return rows.Strides[0], len(rows.Shape) == 1
}

// rowByRow computes rows that do not lie evenly one at a time.
func (l *launch) rowByRow(m int64) error {
	one := *l
	for r := range m {
		one.in, one.out = slices.Clone(l.in), slices.Clone(l.out)
		one.in[0].layout, one.out[0].layout = rowOf(l.in[0].layout, r), rowOf(l.out[0].layout, r)
		if added := l.optional(3); !added.absent() {
			one.in[3].layout = rowOf(added.layout, r)
		}
		if err := launchGemv(&one, 1); err != nil {
			return err
		}
	}
	return nil
}

// rowOf is a row of a view, as a matrix of one.
func rowOf(l tensor.Layout, r int64) tensor.Layout {
	n := len(l.Shape) - 1
	row := tensor.Layout{Offset: l.Offset, Shape: tensor.Shape{1, l.Shape[n]}, Strides: []int{0, l.Strides[n]}}
	for d := n - 1; d >= 0; d-- {
		row.Offset += int(r%int64(l.Shape[d])) * l.Strides[d]
		r /= int64(l.Shape[d])
	}
	return row
}

// widened returns the weight and the bias of a linear as wide as its rows, made so in the scratch memory's end.
func (l *launch) widened() (weight, bias operand, err error) {
	in := specs(l.in)
	bytes, biasBytes := widenBytes(in)
	from := l.work.bytes - bytes - biasBytes
	widen := func(o, scales operand, from, bytes int64) (operand, error) {
		wide := operand{span: l.work.slice(from, bytes), dtype: l.in[0].dtype, layout: tensor.Contiguous(o.shape()...)}
		line, step, terms := 0, o.layout.Strides[0], o.size()
		if len(o.shape()) > 1 {
			line, step, terms = step, o.layout.Strides[1], int64(o.shape()[1])
		}
		scaleStep := 0
		if !scales.absent() {
			scaleStep = scales.layout.Strides[0]
		}
		c := l.call("om_widen").scratch(wide.span).i32(dtypeCodes[wide.dtype]).read(o).i32(dtypeCodes[o.dtype])
		c.i64(int64(line)).i64(int64(step)).read(scales).i32(dtypeCodes[scales.dtype]).i64(int64(scaleStep))
		return wide, c.i64(terms).i64(o.size()).over(o.size())
	}
	if weight = l.in[1]; bytes > 0 {
		if weight, err = widen(weight, l.optional(4), from, bytes); err != nil {
			return weight, bias, err
		}
	}
	if bias = l.optional(2); biasBytes > 0 {
		bias, err = widen(bias, operand{}, from+bytes, biasBytes)
	}
	return weight, bias, err
}

// Linears of few rows of programs in which rows are alone ([graph.RowsAlone]): kernels/few.cu. They have the bits of those of many rows, so
// plans do not know them, and want no scratch memory.
//
// The constants of kernels/few.cu: lines and rows of a block, and how many lots are on their way.
const (
	fewLines, fewRows      = 32, 8
	fewLots, fewLotsOfRows = 5, 3
)

// asyncCapability is from which compute capability on what kernels read comes to shared memory asynchronously.
const asyncCapability = 80

// mostFewRows is how many rows are computed so, fewRows at a time: the weight is read again for each time, mostly from the GPU's cache.
const mostFewRows = 4 * fewRows

// byFew reports whether a linear of m rows is one of kernels/few.cu.
func (l *launch) byFew(m int64) bool {
	x, w := l.in[0], l.in[1]
	if !l.attrs.Bool(graph.RowsAlone) || m > mostFewRows || x.dtype != tensor.Float32 || rounds(l.attrs) || l.blas || w.dtype == tensor.Float64 ||
		!l.optional(4).absent() && w.dtype != tensor.Int8 {
		return false
	}
	rows, even := evenRows(x)
	return even && vectors(x, 4, lastStep(x), rows) && vectors(w, 16/w.dtype.Size(), w.layout.Strides[1], w.layout.Strides[0])
}

// few computes a linear of few rows.
func (l *launch) few(m int64) error {
	x, w, out := l.in[0], l.in[1], l.out[0]
	n, k, size := int64(w.shape()[0]), int64(w.shape()[1]), w.dtype.Size()
	d := divideColumns(floatBlocks, 1, m, n, k, l.attrs)
	apart, _ := evenRows(x)
	each := int64(1)
	if m > 1 {
		each = fewRows
	}
	c := l.call(fmt.Sprintf(fewKernel, size, each)).write(out).read(x).i64(int64(apart)).
		read(w).i32(dtypeCodes[w.dtype]).i64(int64(w.layout.Strides[0])).i64(int64(lastStep(w)))
	c.scaledEnding(l, l.optional(4)).i64(m).i64(n).i64(k).i64(d.part).i32(int32(d.parts))
	return c.grid(dims{ceilDiv(n, fewLines), ceilDiv(m, each), 1}, dims{32 * d.parts, 1, 1},
		fewSharedBytes(int64(size), each, d.parts, l.s.d.info.Capability))
}

// fewKernel is what a kernel is called by the bytes of an element of the weight and the rows of a block.
const fewKernel = "om_few_%d_%d"

// fewSharedBytes is the dynamic shared memory of a block.
func fewSharedBytes(size, rows, parts int64, capability int) int64 {
	lots := int64(fewLots)
	if rows > 1 {
		lots = fewLotsOfRows
	}
	if capability < asyncCapability {
		lots = 1
	}
	terms := min(128/size, 64)
	lot := fewLines*(terms*size+16) + rows*terms*4
	return parts * (lots*lot + rows*fewLines*4)
}
