package cpu

import (
	"fmt"
	"strconv"

	"github.com/optimem/optimem/graph"
	simd "github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/tensor"
	"github.com/optimem/optimem/tensor/encoded"
)

// linearKernels are products of matrices. Half floats are computed in float32 and rounded once.
var linearKernels = map[graph.Kind]ops.Kernel{
	"linear": {
		Run: runLinear, WorkOn: linearWork, Supports: linearSupports, Packs: linearPacks, Pack: packLinear,
		Label: productLabel("linear"),
	},
	"matmul": {
		Run: runMatmul, WorkOn: matmulWork, Supports: matmulSupports, Packs: matmulPacks, Pack: packMatmul,
		Label: productLabel("matmul"),
	},
	"grouped_matmul": {Run: runGroupedMatmul, WorkOn: groupedMatmulWork, Supports: ops.OnlyReal},
}

// linearSupports takes floats and integers, and epilogues of float32.
func linearSupports(in, out []graph.Spec, a graph.Attrs) error {
	if err := epilogueSupports(in, out, a); err != nil {
		return err
	}
	if byCodes(a) {
		return codesSupports(in, a)
	}
	return matmulSupports(in, out, a)
}

// matmulSupports takes floats and integers, in a precision that the processor has.
func matmulSupports(in, out []graph.Spec, a graph.Attrs) error {
	if err := precisionSupports(in, a); err != nil {
		return err
	}
	return ops.OnlyNumbers(in, out, a)
}

// A manner is how a product is to be computed.
type manner struct {
	// round says that factors may be rounded to bfloat16.
	round bool
	// alone says that the bits of a row are not to depend on how many rows there are: a matrix unit, which sums in an order of
	// its own, computes any number of them then, or none.
	alone bool
}

func mannerOf(a graph.Attrs) manner { return manner{round: rounds(a), alone: a.Bool(graph.RowsAlone)} }

// A productForm is what the scratch of a product depends on besides its sizes.
type productForm struct {
	left, right, out tensor.DType
	how              manner
}

// formOf returns that of an op.
func formOf(in, out []graph.Spec, a graph.Attrs) productForm {
	return productForm{left: in[0].DType, right: in[1].DType, out: out[0].DType, how: mannerOf(a)}
}

// productWork returns the scratch that product takes on a number of threads.
func productWork(threads, m, n, k int, f productForm) int64 {
	d, how := f.out, f.how
	switch {
	case !ops.IsReal(d):
		return 0
	case how.round && m >= leastRowsOf(how):
		return unitWork(m, n, k, threads, 1, how)
	}
	bytes := gemmWorkOn(threads, m, n, k, ops.RealBytes(d), ops.IsHalf(d))
	if d == tensor.BFloat16 && !how.alone {
		bytes = max(bytes, unitWork(m, n, k, threads, 1, how))
	}
	if how.alone && f.left == tensor.Float32 && f.right == tensor.BFloat16 && unitOf(simd.Best()) == simd.UnitTiles {
		bytes = max(bytes, unitWork(m, n, k, threads, simd.UnitParts, how))
	}
	return bytes
}

// A factor is a matrix in the memory of a view; see [matrix].
type factor struct {
	v                  ops.View
	offset, line, step int
	rows               tensor.Layout
	// encoding is that of the blocks in v, nil for numbers.
	encoding *encoded.Encoding
}

// rowsOf returns all but the last dimension of a view as the lines of a left factor.
func rowsOf(v ops.View) factor {
	f := factor{v: v, offset: v.Layout.Offset, step: ops.LastStride(v.Layout)}
	lead := v.Layout.Leading(1)
	stride, even := ops.Evenly(lead)
	if !even {
		f.rows = lead
	}
	f.line = stride
	return f
}

// A product is m rows of out, n wide, from element at of out's memory on: out = a·b for factors of depth k, plus bias
// for each column unless it is nil, and what the ending says.
type product[T ops.Real] struct {
	m, n, k int
	a, b    factor
	out     ops.View
	at      int
	bias    []T
	end     ending[T]
	how     manner
	work    []byte
}

func (x *product[T]) run(p *ops.Pool, set *simd.Set) {
	if x.m == 0 || x.n == 0 {
		return
	}
	g := takeGemm[T]()
	a, b := &x.a, &x.b
	g.left = matrix[T]{data: a.v.Data, dtype: a.v.DType, offset: a.offset, line: a.line, step: a.step, rows: a.rows}
	g.right = matrix[T]{
		data: b.v.Data, dtype: b.v.DType, offset: b.offset, line: b.line, step: b.step, packed: b.v.Packed, encoding: b.encoding,
	}
	g.a, g.b = &g.left, &g.right
	g.m, g.n, g.k, g.work, g.set = x.m, x.n, x.k, x.work, set
	g.o = gemmOptions[T]{columnBias: x.bias, ending: x.end}
	if ops.IsHalf(x.out.DType) {
		g.o.half, g.o.halfAt = x.out, x.at
	} else {
		g.c, g.ldc = ops.Elements[T](x.out)[x.at:], x.n
	}
	g.round = x.how.round
	switch {
	case g.byUnit(x.how):
		g.runUnit(p)
	case x.how.round && set != nil:
		g.roundFew()
		g.run(p)
	default:
		g.run(p)
	}
	g.release()
}

// runLinear: out[r, j] = Σ_k in[0][r, k]·in[1][j, k] + in[2][j]: torch.nn.functional.linear.
func runLinear(c *ops.Call) error {
	switch c.In[0].DType {
	case tensor.Float64:
		linear[float64](c)
	case tensor.Float32, tensor.Float16, tensor.BFloat16:
		if byCodes(c.Attrs) {
			linearByCodes(c)
			return nil
		}
		linear[float32](c)
	default:
		return integerLinear(c)
	}
	return nil
}

func linearWork(threads int, in, out []graph.Spec, a graph.Attrs) int64 {
	n, k := in[1].Shape[0], in[0].Shape[len(in[0].Shape)-1]
	m := ops.Volume(in[0].Shape[:len(in[0].Shape)-1])
	if byCodes(a) {
		return ops.ScratchBytes(4, n) + codesWork(threads, m, n, k)
	}
	rows := []int{n}
	if graph.HasScales(in) {
		rows = append(rows, n)
	}
	return ops.ScratchBytes(ops.RealBytes(in[0].DType), rows...) + productWork(threads, m, n, k, formOf(in, out, a))
}

// linearPacks offers the weight in panels.
func linearPacks(in, _ []graph.Spec, a graph.Attrs) []graph.Pack {
	if !ops.IsReal(in[0].DType) || graph.IsEncoded(a) {
		return nil
	}
	return panelPacks(in[1].Shape[0], in[1].Shape[1], 0, in[1].DType, rounds(a))
}

// panelPacks offers operand 1, a right factor n×k, in panels, rounded to bfloat16 or as it is; its columns are
// dimension dim.
func panelPacks(n, k, dim int, d tensor.DType, round bool) []graph.Pack {
	set := simd.Best()
	if _, ok := elementOf(d); !ok || set == nil || n == 0 || k == 0 {
		return nil
	}
	form := "panels of " + strconv.Itoa(set.Columns)
	copied := round && d == tensor.Float32
	if round {
		d, form = tensor.BFloat16, form+", bfloat16"
	}
	return []graph.Pack{{In: 1, Bytes: panelBytes(n, k, d), Form: form, Dim: dim, Step: stripColumns, Copy: copied}}
}

func packLinear(pool *ops.Pool, a graph.Attrs, _ graph.Pack, raw ops.View, dst []byte) error {
	l := raw.Layout
	packPanels(pool, matrix[float32]{
		data: raw.Data, dtype: raw.DType, offset: l.Offset, line: l.Strides[0], step: l.Strides[1],
	}, l.Shape[0], l.Shape[1], rounds(a), dst)
	return nil
}

func linear[T ops.Real](c *ops.Call) {
	x, w, out := c.In[0], c.In[1], c.Out[0]
	n, k := w.Shape()[0], x.Shape()[len(x.Shape())-1]
	work := ops.Scratch(c.Work)
	bias := rowIn(c.Operand(2), ops.TakeReal[T](&work, n))
	right := factor{v: w, offset: w.Layout.Offset, line: w.Layout.Strides[0], step: w.Layout.Strides[1]}
	right.encoding = graph.EncodingOf(c.Attrs)
	end := ending[T]{residual: c.Operand(3), act: activationOf(c.Attrs)}
	if s := c.Operand(4); !s.Absent() {
		end.scales, end.bias, bias = rowIn(s, ops.TakeReal[T](&work, n)), bias, nil
	}
	m := ops.Volume(x.Shape()[:len(x.Shape())-1])
	made := product[T]{
		m: m, n: n, k: k, a: rowsOf(x), b: right, out: out, at: out.Layout.Offset, bias: bias, end: end, how: mannerOf(c.Attrs),
		work: work,
	}
	made.run(c.Pool, c.Pool.Set)
}

// rowIn returns the elements of a vector, in room if they do not lie in a row as T; nil for one that is absent.
func rowIn[T ops.Real](v ops.View, room []T) []T {
	if v.Absent() {
		return nil
	}
	if v.DType == ops.RealDType[T]() && v.Layout.Strides[0] == 1 {
		return ops.Elements[T](v)[v.Layout.Offset:][:len(room)]
	}
	ops.LoadReal(room, v, v.Layout.Offset, v.Layout.Strides[0])
	return room
}

// runGroupedMatmul: out[r] = in[0][r]·in[1][g] for rows r in [in[2][g−1], in[2][g]), zero after the last group:
// torch.nn.functional.grouped_mm.
func runGroupedMatmul(c *ops.Call) error {
	if c.In[0].DType == tensor.Float64 {
		return groupedMatmul[float64](c)
	}
	return groupedMatmul[float32](c)
}

func groupedMatmulWork(threads int, in, out []graph.Spec, a graph.Attrs) int64 {
	return productWork(threads, in[0].Shape[0], in[1].Shape[2], in[1].Shape[1], formOf(in, out, a))
}

func groupedMatmul[T ops.Real](c *ops.Call) error {
	x, w, out := c.In[0], c.In[1], c.Out[0]
	rows, k, n := x.Shape()[0], x.Shape()[1], w.Shape()[2]
	start := 0
	for g := range w.Shape()[0] {
		end := int(ops.IntegerAt(c.In[2], g))
		if end < start || end > rows {
			return fmt.Errorf("group %d of %d rows ends at %d, the one before at %d", g, rows, end, start)
		}
		left := factor{
			v: x, offset: x.Layout.Offset + start*x.Layout.Strides[0], line: x.Layout.Strides[0], step: x.Layout.Strides[1],
		}
		right := factor{
			v: w, offset: w.Layout.Offset + g*w.Layout.Strides[0], line: w.Layout.Strides[2], step: w.Layout.Strides[1],
		}
		group := product[T]{
			m: end - start, n: n, k: k, a: left, b: right, out: out, at: start * n, how: mannerOf(c.Attrs), work: c.Work,
		}
		group.run(c.Pool, c.Pool.Set)
		start = end
	}
	clear(out.Data[start*n*out.DType.Size():][:(rows-start)*n*out.DType.Size()])
	return nil
}
