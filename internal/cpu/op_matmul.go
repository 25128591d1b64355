package cpu

import (
	"sync"
	"sync/atomic"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/tensor"
)

// runMatmul: out[…, i, j] = beta·in[2][…, i, j] + alpha·Σ_k in[0][…, i, k]·in[1][…, k, j]: torch.matmul, addmm, baddbmm.
func runMatmul(c *ops.Call) error {
	switch c.In[0].DType {
	case tensor.Float64:
		matmul[float64](c)
	case tensor.Float32, tensor.Float16, tensor.BFloat16:
		matmul[float32](c)
	default:
		return integerMatmul(c)
	}
	return nil
}

// matmulSizes are those of a batch of products.
type matmulSizes struct{ batch, m, n, k int }

func sizesOfMatmul(x, y tensor.Shape) matmulSizes {
	r := len(x)
	return matmulSizes{batch: ops.Volume(x[:r-2]), m: x[r-2], n: y[r-1], k: x[r-1]}
}

// lanes returns how many products of a batch are computed side by side, each by one thread with scratch of its own; 1 is
// one after the other, each by all threads.
func (s matmulSizes) lanes() int {
	const small, most = 1 << 22, 16
	if s.batch < 2 || int64(s.m)*int64(s.n)*int64(s.k) > small {
		return 1
	}
	return min(s.batch, most)
}

// laneBytes returns the scratch of a lane.
func (s matmulSizes) laneBytes(f productForm) int64 {
	return productWork(1, s.m, s.n, s.k, f)
}

func matmulWork(threads int, in, out []graph.Spec, a graph.Attrs) int64 {
	s := sizesOfMatmul(in[0].Shape, in[1].Shape)
	f := formOf(in, out, a)
	if s.batch == 0 { // matrices that are not there may be of any size
		return 0
	}
	if lanes := s.lanes(); lanes > 1 && ops.IsReal(f.out) {
		return int64(min(lanes, threads)) * s.laneBytes(f)
	}
	return productWork(threads, s.m, s.n, s.k, f)
}

// matmulPacks offers the right factor of a single product in panels.
func matmulPacks(in, _ []graph.Spec, a graph.Attrs) []graph.Pack {
	y := in[1].Shape
	r := len(y)
	if ops.Volume(y[:r-2]) != 1 || !ops.IsReal(in[0].DType) {
		return nil
	}
	return panelPacks(y[r-1], y[r-2], r-1, in[1].DType, rounds(a))
}

func packMatmul(pool *ops.Pool, a graph.Attrs, _ graph.Pack, raw ops.View, dst []byte) error {
	l, r := raw.Layout, len(raw.Layout.Shape)
	packPanels(pool, matrix[float32]{
		data: raw.Data, dtype: raw.DType, offset: l.Offset, line: l.Strides[r-1], step: l.Strides[r-2],
	}, l.Shape[r-1], l.Shape[r-2], rounds(a), dst)
	return nil
}

// A matmulCall is a batch of products being computed, a task whose parts are lanes.
type matmulCall[T ops.Real] struct {
	matmulSizes
	pool      *ops.Pool
	x, y, out ops.View
	end       ending[T]
	work      []byte
	how       manner
	laneSize  int
	next      atomic.Int64
}

var matmulCalls32, matmulCalls64 sync.Pool

func matmul[T ops.Real](c *ops.Call) {
	calls := &matmulCalls32
	if ops.RealDType[T]() == tensor.Float64 {
		calls = &matmulCalls64
	}
	m, ok := calls.Get().(*matmulCall[T])
	if !ok {
		m = new(matmulCall[T])
	}
	m.x, m.y, m.out, m.pool, m.work = c.In[0], c.In[1], c.Out[0], c.Pool, c.Work
	m.matmulSizes = sizesOfMatmul(m.x.Shape(), m.y.Shape())
	m.end.alpha, m.end.beta = T(c.Attrs.Float("alpha")), T(c.Attrs.Float("beta"))
	m.how = mannerOf(c.Attrs)
	m.end.scaled = m.end.alpha != 1
	if m.end.beta != 0 {
		m.end.addend = c.Operand(2)
	}
	if lanes := m.lanes(); lanes > 1 {
		m.laneSize = int(m.laneBytes(productForm{left: m.x.DType, right: m.y.DType, out: m.out.DType, how: m.how}))
		lanes = min(lanes, len(m.work)/m.laneSize)
		m.next.Store(0)
		c.Pool.Do(lanes, 1, m)
	} else {
		for i := range m.batch {
			m.one(c.Pool, i, c.Work)
		}
	}
	*m = matmulCall[T]{}
	calls.Put(m)
}

// Run computes products until none is left.
func (m *matmulCall[T]) Run(lane, _ int) {
	work := m.work[lane*m.laneSize:][:m.laneSize]
	for i := int(m.next.Add(1)) - 1; i < m.batch; i = int(m.next.Add(1)) - 1 {
		m.one(nil, i, work)
	}
}

// one computes product i of the batch.
func (m *matmulCall[T]) one(p *ops.Pool, i int, work []byte) {
	rank := len(m.x.Layout.Shape)
	// last returns the matrix of a view, as a layout.
	last := func(l tensor.Layout) tensor.Layout {
		return tensor.Layout{
			Shape: l.Shape[rank-2:], Strides: l.Strides[rank-2:], Offset: l.Leading(2).OffsetOf(i),
		}
	}
	x, y := last(m.x.Layout), last(m.y.Layout)
	end := m.end
	if !end.addend.Absent() {
		end.addend.Layout = last(end.addend.Layout)
	}
	left := factor{v: m.x, offset: x.Offset, line: x.Strides[0], step: x.Strides[1]}
	right := factor{v: m.y, offset: y.Offset, line: y.Strides[1], step: y.Strides[0]}
	one := product[T]{
		m: m.m, n: m.n, k: m.k, a: left, b: right, out: m.out, at: m.out.Layout.Offset + i*m.m*m.n, end: end,
		how:  m.how,
		work: work,
	}
	one.run(p, m.pool.Set)
}

// scaleAndAdd: sums = alpha·sums + beta·v, for elements of v that lie stride apart from index at on.
func scaleAndAdd[T ops.Real](sums []T, alpha, beta T, v ops.View, at, stride int) {
	var chunk [64]T
	for from := 0; from < len(sums); from += len(chunk) {
		part := sums[from:min(from+len(chunk), len(sums))]
		ops.LoadReal(chunk[:len(part)], v, at+from*stride, stride)
		for j := range part {
			part[j] = T(alpha*part[j]) + T(beta*chunk[j])
		}
	}
}
