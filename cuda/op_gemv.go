package cuda

import (
	"slices"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/tensor"
)

// Linears of few rows, and those whose weight is narrower than what it is multiplied with: kernels/gemv.cu.

// The constants of kernels/gemv.cu: the threads of a block, its lines and its rows.
const (
	gemvThreads       = 128
	gemvLines         = 4
	gemvRows          = 8
	gemvAcrossThreads = 512
)

// mostNarrowRows is how many rows a narrow weight is read again for, eight at a time, instead of being widened in memory.
const mostNarrowRows = 32

// narrowWeight reports whether a linear's weight or its bias is narrower than its rows: half floats beside float32, int8 with
// scales.
func narrowWeight(in []layers.Spec) bool {
	return isReal(in[0].DType) && (in[1].DType != in[0].DType || narrowBias(in))
}

func narrowBias(in []layers.Spec) bool {
	return len(in) > 2 && in[2].DType != tensor.Invalid && in[2].DType != in[0].DType
}

// byGemv reports whether a linear of m rows may be computed by lines of its weight: must says that it is, however its
// operands lie.
func byGemv(in []layers.Spec, m int64, a layers.Attrs) (may, must bool) {
	if narrowWeight(in) {
		return m <= mostNarrowRows, m <= mostNarrowRows
	}
	return m <= gemvRows && isReal(in[0].DType) && in[0].DType != tensor.Float64 && !narrow(a), false
}

// readNarrow reports whether a linear is computed with its narrow weight as it is, its rows not rounded either.
func readNarrow(in []layers.Spec) bool {
	_, m, _, _ := productSizes("linear", in)
	return narrowWeight(in) && m <= mostNarrowRows
}

// widenBytes is the scratch memory for a weight made as wide as its rows, and for its bias.
func widenBytes(in []layers.Spec) (weight, bias int64) {
	if in[1].DType != in[0].DType {
		weight = contiguousBytes(layers.Spec{DType: in[0].DType, Shape: in[1].Shape})
	}
	if narrowBias(in) {
		bias = contiguousBytes(layers.Spec{DType: in[0].DType, Shape: in[2].Shape})
	}
	return weight, bias
}

// linearWork is the scratch memory of a linear: what its product wants and, where the weight is widened, room for that.
func linearWork(in, out []layers.Spec, a layers.Attrs) int64 {
	_, m, _, _ := productSizes("linear", in)
	if _, must := byGemv(in, m, a); must {
		return 0
	}
	work := productWork("linear")(in, out, a)
	if narrowWeight(in) {
		weight, bias := widenBytes(in)
		work = ceilDiv(work, alignBytes)*alignBytes + weight + bias
	}
	return work
}

// specs are those of operands.
func specs(list []operand) []layers.Spec {
	all := make([]layers.Spec, len(list))
	for i, o := range list {
		all[i] = layers.Spec{DType: o.dtype, Shape: o.shape()}
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
	step := func(o operand) int {
		if o.absent() {
			return 0
		}
		return o.layout.Strides[len(o.layout.Strides)-1]
	}
	sizes := []int{
		int(m), int(n), int(k), rows, step(x), w.layout.Strides[0], w.layout.Strides[1], step(scales), step(bias), addedRows,
		step(added),
	}
	name, grid, threads := "om_gemv_any", dims{min(ceilDiv(m*n, gemvThreads/32), mostBlocks), 1, 1}, int64(gemvThreads)
	switch {
	case inVectors(x, w):
		name, grid = "om_gemv_8", dims{ceilDiv(n, gemvLines), ceilDiv(m, gemvRows), 1}
		if m == 1 {
			name = "om_gemv_1"
		}
	case w.layout.Strides[0] == 1:
		name, grid, threads = "om_gemv_across", dims{ceilDiv(n, 32), m, 1}, gemvAcrossThreads
	}
	c := l.call(name).write(out).i32(dtypeCodes[x.dtype]).read(x).read(w).i32(dtypeCodes[w.dtype])
	c.read(scales).i32(dtypeCodes[scales.dtype]).read(bias).i32(dtypeCodes[bias.dtype]).read(added)
	c.ints(len(sizes), sizes...).activation(l.attrs, tensor.Float32)
	return c.grid(grid, dims{threads, 1, 1}, 0)
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
