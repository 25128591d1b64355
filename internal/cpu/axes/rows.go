package axes

import (
	"math"
	"sync"

	simd "github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/tensor"
)

// rows are an op that treats every row of a view by itself, where the elements of a row lie one behind the other. It is
// computed with the processor's kernels: float32 in place, halves in a buffer of float32.
type rows struct {
	set *simd.Set
	in  ops.View
	out ops.View
	// at is the layout of the rows' first elements, n how many elements each has.
	at tensor.Layout
	n  int
	// per is how many rows there are from each of those elements on.
	per int
	// many computes count rows that lie pitch elements apart, where it is not nil.
	many  func(r *rows, count int, to, x []float32)
	pitch int
	// do computes a row. to has as many elements as the row, or is nil where a result is one number that put stores.
	do  func(r *rows, i int, to, x []float32)
	one bool

	eps              float64
	w, b             []float32
	centred, safe    bool
	logarithm, root  bool
	divisor          float64
	channels, groups int
	mean, gain, add  []float64
}

var rowsPool = sync.Pool{New: func() any { return new(rows) }}

// rowsOfCall returns a task over rows that the last dims dimensions of the first operand make, nil where they do not lie
// in order or the processor has no kernels.
func rowsOfCall(c *ops.Call, dims int) *rows {
	x := c.In[0]
	rank := len(x.Shape())
	if c.Pool.Set == nil || !ops.IsSingle(x.DType) || dims > rank {
		return nil
	}
	n := 1
	for d := rank - 1; d >= rank-dims; d-- {
		if x.Shape()[d] != 1 && x.Layout.Strides[d] != n {
			return nil
		}
		n *= x.Shape()[d]
	}
	if n == 0 || ops.IsHalf(x.DType) && n > ops.BufferFloats {
		return nil
	}
	r := rowsPool.Get().(*rows)
	*r = rows{set: c.Pool.Set, in: x, out: c.Out[0], at: x.Layout.Leading(dims), n: n, per: 1}
	return r
}

// groupRows is rowsOfCall for rows that are a picture's groups of channels, nil where they do not lie in order.
func groupRows(c *ops.Call, groups int) *rows {
	r := rowsOfCall(c, len(c.In[0].Shape())-1)
	if r != nil {
		r.n /= groups
		r.per = groups
	}
	return r
}

// run computes all rows and ends the use of r.
func (r *rows) run(p *ops.Pool) {
	p.Do(ops.Volume(r.at.Shape)*r.per, max(1, ops.Grain/r.n), r)
	*r = rows{}
	rowsPool.Put(r)
}

// Run implements Task.
func (r *rows) Run(from, to int) {
	if !ops.IsHalf(r.in.DType) {
		in, out := ops.Elements[float32](r.in), ops.Elements[float32](r.out)
		if r.many != nil {
			r.many(r, to-from, out[from*r.n:], in[r.at.Offset+from*r.pitch:])
			return
		}
		for i := from; i < to; i++ {
			first := r.first(i)
			var dst []float32
			if !r.one {
				dst = out[i*r.n:][:r.n]
			}
			r.do(r, i, dst, in[first:first+r.n])
		}
		return
	}
	buffer := ops.NewBlockBuffer()
	row := ops.FloatsIn(buffer)[:r.n]
	for i := from; i < to; i++ {
		ops.LoadSingle(r.set, row, r.in, r.first(i), 1)
		r.do(r, i, row, row)
		if !r.one {
			ops.NarrowRow(r.set, r.out, i*r.n, row)
		}
	}
	ops.BlockBuffers.Put(buffer)
}

// first returns where row i begins.
func (r *rows) first(i int) int { return r.at.OffsetOf(i/r.per) + i%r.per*r.n }

// put stores a row's result.
func (r *rows) put(i int, x float64) { ops.StoreFloat(r.out, r.out.Layout.Offset+i, x) }

// softmaxOf is softmax or log_softmax of a row.
func softmaxOf(r *rows, _ int, to, x []float32) {
	top := r.set.Max(x)
	if r.safe && math.IsInf(float64(top), -1) {
		clear(to)
		return
	}
	if !r.logarithm {
		sum := r.set.ExpSum(to, x, 1, top)
		r.set.Map(simd.MapAffine, to, to, nil, nil, 0, float32(1/sum), 0)
		return
	}
	sum := expSumOf(r.set, x, top)
	r.set.Map(simd.MapAffine, to, x, nil, nil, top, 1, float32(-math.Log(sum)))
}

// expSumOf returns Σ exp(x − top) and writes nothing.
func expSumOf(set *simd.Set, x []float32, top float32) float64 {
	buffer := ops.NewBlockBuffer()
	room := ops.FloatsOf(&buffer)
	sum := 0.0
	for len(x) > 0 {
		n := min(len(x), len(room))
		sum += set.ExpSum(room[:n], x[:n], 1, top)
		x = x[n:]
	}
	ops.BlockBuffers.Put(buffer)
	return sum
}

// normOf is layer_norm or rms_norm of a row.
func normOf(r *rows, _ int, to, x []float32) {
	if r.w != nil {
		r.set.NormRows(1, to, r.n, x, r.n, r.w, r.b, r.eps, r.centred)
		return
	}
	shift, scale := r.moments(x)
	r.set.Map(simd.MapAffine, to, x, nil, nil, shift, scale, 0)
	if r.b != nil {
		r.set.Map(simd.MapAdd, to, to, r.b, nil, 0, 0, 0)
	}
}

// normMany is normOf of many rows.
func normMany(r *rows, count int, to, x []float32) {
	r.set.NormRows(count, to, r.n, x, r.pitch, r.w, r.b, r.eps, r.centred)
}

// moments is momentsOf with kernels.
func (r *rows) moments(x []float32) (shift, scale float32) {
	n, mean := float64(len(x)), 0.0
	if r.centred {
		mean = r.set.Sum(x) / n
	}
	return float32(mean), float32(1 / math.Sqrt(r.set.Squares(x, mean)/n+r.eps))
}

// groupNormOf is group_norm of a group: all its channels one behind the other.
func groupNormOf(r *rows, i int, to, x []float32) {
	shift, scale := r.moments(x)
	each := r.channels / r.groups
	pixels := len(x) / each
	for k := range each {
		ch := i%r.groups*each + k
		gain, add := scale, float32(0)
		if r.w != nil {
			gain *= r.w[ch]
		}
		if r.b != nil {
			add = r.b[ch]
		}
		r.set.Map(simd.MapAffine, to[k*pixels:(k+1)*pixels], x[k*pixels:(k+1)*pixels], nil, nil, shift, gain, add)
	}
}

// batchNormOf is batch_norm of a channel's elements in one picture.
func batchNormOf(r *rows, i int, to, x []float32) {
	ch := i % r.channels
	r.set.Map(simd.MapAffine, to, x, nil, nil,
		float32(r.mean[ch]), float32(r.gain[ch]), float32(affine(0, nil, r.add, ch)))
}

// sumOfRow, meanOfRow and those that follow reduce a row.
func sumOfRow(r *rows, i int, _, x []float32) { r.put(i, r.set.Sum(x)) }

func meanOfRow(r *rows, i int, _, x []float32) { r.put(i, r.set.Sum(x)/float64(len(x))) }

func maxOfRow(r *rows, i int, _, x []float32) { r.put(i, float64(r.set.Max(x))) }

func minOfRow(r *rows, i int, _, x []float32) { r.put(i, float64(r.set.Min(x))) }

func lengthOfRow(r *rows, i int, _, x []float32) { r.put(i, math.Sqrt(r.set.Squares(x, 0))) }

func varianceOfRow(r *rows, i int, _, x []float32) {
	v := r.set.Squares(x, r.set.Sum(x)/float64(len(x))) / r.divisor
	if r.root {
		v = math.Sqrt(v)
	}
	r.put(i, v)
}

func logSumExpOfRow(r *rows, i int, _, x []float32) {
	top := r.set.Max(x)
	if math.IsInf(float64(top), 0) {
		top = 0
	}
	r.put(i, math.Log(expSumOf(r.set, x, top))+float64(top))
}

// reduceRows reduces the rows of a call whose reduced dimensions are the last ones, side by side in memory; it reports
// whether it could.
func reduceRows(c *ops.Call, do func(r *rows, i int, to, x []float32)) bool {
	r := reducedRows(c)
	if r == nil {
		return false
	}
	r.do = do
	r.run(c.Pool)
	return true
}

// varianceRows is reduceRows for var and std.
func varianceRows(c *ops.Call, divisor float64, root bool) bool {
	r := reducedRows(c)
	if r == nil {
		return false
	}
	r.do, r.divisor, r.root = varianceOfRow, divisor, root
	r.run(c.Pool)
	return true
}

func reducedRows(c *ops.Call) *rows {
	rank := len(c.In[0].Shape())
	dims := c.Attrs.Ints("dims")
	for i, d := range dims {
		if d != rank-len(dims)+i {
			return nil
		}
	}
	if len(dims) == 0 || !ops.IsReal(c.Out[0].DType) {
		return nil
	}
	r := rowsOfCall(c, len(dims))
	if r != nil {
		r.one = true
	}
	return r
}

// singleParameter returns operand i as float32: its memory, or its elements written to the scratch; nil where it is
// absent.
func singleParameter(c *ops.Call, s *ops.Scratch, i int) []float32 {
	if i >= len(c.In) || c.In[i].Absent() {
		return nil
	}
	v := c.In[i]
	if v.DType == tensor.Float32 && v.Contiguous() {
		return ops.Row[float32](v)
	}
	p := ops.TakeReal[float32](s, v.Size())
	ops.LoadAll(p, v)
	return p
}

// rowsFirst is a reduction that is computed by rows where it can.
func rowsFirst(do func(r *rows, i int, to, x []float32), otherwise func(c *ops.Call) error) func(c *ops.Call) error {
	return func(c *ops.Call) error {
		if reduceRows(c, do) {
			return nil
		}
		return otherwise(c)
	}
}
