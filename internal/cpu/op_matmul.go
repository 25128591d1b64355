package cpu

import (
	"sync"
	"sync/atomic"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// runMatmul: out[…, i, j] = beta·in[2][…, i, j] + alpha·Σ_k in[0][…, i, k]·in[1][…, k, j]: torch.matmul, addmm, baddbmm.
func runMatmul(c *call) error {
	switch c.in[0].dtype {
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
	return matmulSizes{batch: volume(x[:r-2]), m: x[r-2], n: y[r-1], k: x[r-1]}
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
func (s matmulSizes) laneBytes(d tensor.DType, how manner) int64 {
	return productWork(1, s.m, s.n, s.k, d, how)
}

func matmulWork(threads int, in, out []graph.Spec, a graph.Attrs) int64 {
	s := sizesOfMatmul(in[0].Shape, in[1].Shape)
	d := out[0].DType
	if s.batch == 0 { // matrices that are not there may be of any size
		return 0
	}
	if lanes := s.lanes(); lanes > 1 && isReal(d) {
		return int64(min(lanes, threads)) * s.laneBytes(d, mannerOf(a))
	}
	return productWork(threads, s.m, s.n, s.k, d, mannerOf(a))
}

// matmulPacks offers the right factor of a single product in panels.
func matmulPacks(in, _ []graph.Spec, a graph.Attrs) []graph.Pack {
	y := in[1].Shape
	r := len(y)
	if volume(y[:r-2]) != 1 || !isReal(in[0].DType) {
		return nil
	}
	return panelPacks(y[r-1], y[r-2], r-1, in[1].DType, rounds(a))
}

func packMatmul(pool *Pool, a graph.Attrs, _ graph.Pack, raw view, dst []byte) error {
	l, r := raw.layout, len(raw.layout.Shape)
	packPanels(pool, matrix[float32]{
		data: raw.data, dtype: raw.dtype, offset: l.Offset, line: l.Strides[r-1], step: l.Strides[r-2],
	}, l.Shape[r-1], l.Shape[r-2], rounds(a), dst)
	return nil
}

// A matmulCall is a batch of products being computed, a task whose parts are lanes.
type matmulCall[T real] struct {
	matmulSizes
	pool      *Pool
	x, y, out view
	end       ending[T]
	work      []byte
	how       manner
	laneSize  int
	next      atomic.Int64
}

var matmulCalls32, matmulCalls64 sync.Pool

func matmul[T real](c *call) {
	calls := &matmulCalls32
	if realDType[T]() == tensor.Float64 {
		calls = &matmulCalls64
	}
	m, ok := calls.Get().(*matmulCall[T])
	if !ok {
		m = new(matmulCall[T])
	}
	m.x, m.y, m.out, m.pool, m.work = c.in[0], c.in[1], c.out[0], c.pool, c.work
	m.matmulSizes = sizesOfMatmul(m.x.shape(), m.y.shape())
	m.end.alpha, m.end.beta = T(c.attrs.Float("alpha")), T(c.attrs.Float("beta"))
	m.how = mannerOf(c.attrs)
	m.end.scaled = m.end.alpha != 1
	if m.end.beta != 0 {
		m.end.addend = c.operand(2)
	}
	if lanes := m.lanes(); lanes > 1 {
		m.laneSize = int(m.laneBytes(m.out.dtype, m.how))
		lanes = min(lanes, len(m.work)/m.laneSize)
		m.next.Store(0)
		c.pool.Do(lanes, 1, m)
	} else {
		for i := range m.batch {
			m.one(c.pool, i, c.work)
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
func (m *matmulCall[T]) one(p *Pool, i int, work []byte) {
	rank := len(m.x.layout.Shape)
	// last returns the matrix of a view, as a layout.
	last := func(l tensor.Layout) tensor.Layout {
		return tensor.Layout{
			Shape: l.Shape[rank-2:], Strides: l.Strides[rank-2:], Offset: l.Leading(2).OffsetOf(i),
		}
	}
	x, y := last(m.x.layout), last(m.y.layout)
	end := m.end
	if !end.addend.absent() {
		end.addend.layout = last(end.addend.layout)
	}
	left := factor{v: m.x, offset: x.Offset, line: x.Strides[0], step: x.Strides[1]}
	right := factor{v: m.y, offset: y.Offset, line: y.Strides[1], step: y.Strides[0]}
	one := product[T]{
		m: m.m, n: m.n, k: m.k, a: left, b: right, out: m.out, at: m.out.layout.Offset + i*m.m*m.n, end: end, how: m.how,
		work: work,
	}
	one.run(p, m.pool.set)
}

// scaleAndAdd: sums = alpha·sums + beta·v, for elements of v that lie stride apart from index at on.
func scaleAndAdd[T real](sums []T, alpha, beta T, v view, at, stride int) {
	var chunk [64]T
	for from := 0; from < len(sums); from += len(chunk) {
		part := sums[from:min(from+len(chunk), len(sums))]
		loadReal(chunk[:len(part)], v, at+from*stride, stride)
		for j := range part {
			part[j] = T(alpha*part[j]) + T(beta*chunk[j])
		}
	}
}
