package index

import (
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/internal/cpu/tasks"
	"github.com/optimem/optimem/tensor"
)

// factorKernels compute in the dtype of the matrices, as LAPACK does. Each product is rounded before it is subtracted, so that
// every machine gives the same bits.
var factorKernels = map[graph.Kind]ops.Kernel{
	// A = P L U, torch.linalg.lu_factor_ex: partial pivoting, of equal candidates the first.
	"lu_factor": {Run: runLUFactor},
	// L U X = Pᵀ B, torch.linalg.lu_solve.
	"lu_solve": {Run: runLUSolve},
}

// factorRows is how many rows of a matrix one part changes; factorColumns, how many columns one part solves for.
const (
	factorRows    = 32
	factorColumns = 32
)

func runLUFactor(c *ops.Call) error {
	ops.Gather(c.Pool, c.Out[0].Data, c.In[0])
	if c.In[0].DType == tensor.Float64 {
		return luFactor[float64](c)
	}
	return luFactor[float32](c)
}

// luFactor takes apart the matrices in the first result.
func luFactor[T ops.Real](c *ops.Call) error {
	info := ops.Elements[int32](c.Out[2])
	s := c.Out[0].Shape()
	if n := s[len(s)-1]; n > 0 {
		t := factoring[T]{a: ops.Elements[T](c.Out[0]), pivots: ops.Elements[int32](c.Out[1]), info: info, n: n}
		if len(info) == 1 {
			t.pool = c.Pool // the parts are those of one matrix
			t.matrix(0)
		} else {
			tasks.Do(c.Pool, len(info), 1+factorRows*factorRows/n, t)
		}
	} else {
		clear(info)
	}
	if c.Attrs.Bool("strict") {
		for m, first := range info {
			if first != 0 {
				return &graph.SingularError{Matrix: m, Pivot: int(first) - 1}
			}
		}
	}
	return nil
}

// factoring is the task of luFactor: a part is some matrices.
type factoring[T ops.Real] struct {
	a            []T
	pivots, info []int32
	n            int
	// pool, where it is not nil, shares the rows of a matrix.
	pool *ops.Pool
}

// Run implements Task.
func (t *factoring[T]) Run(from, to int) {
	for m := from; m < to; m++ {
		t.matrix(m)
	}
}

// matrix takes one matrix apart where it is, column by column.
func (t *factoring[T]) matrix(m int) {
	n := t.n
	a, pivots := t.a[m*n*n:][:n*n], t.pivots[m*n:][:n]
	t.info[m] = 0
	for k := range n {
		p := k
		for i := k + 1; i < n; i++ {
			if absolute(a[i*n+k]) > absolute(a[p*n+k]) {
				p = i
			}
		}
		pivots[k] = int32(p + 1)
		if a[p*n+k] == 0 {
			if t.info[m] == 0 {
				t.info[m] = int32(k + 1)
			}
			continue // all of the column is zero
		}
		if p != k {
			upper, lower := a[k*n:][:n], a[p*n:][:n]
			for j := range upper {
				upper[j], lower[j] = lower[j], upper[j]
			}
		}
		rows := eliminating[T]{a: a, n: n, k: k}
		if t.pool != nil {
			tasks.Do(t.pool, n-k-1, factorRows, rows)
		} else {
			rows.Run(0, n-k-1)
		}
	}
}

func absolute[T ops.Real](x T) T {
	if x < 0 {
		return -x
	}
	return x
}

// eliminating makes column k zero below its pivot: a part is some of the rows below.
type eliminating[T ops.Real] struct {
	a    []T
	n, k int
}

// Run implements Task.
func (t *eliminating[T]) Run(from, to int) {
	n, k := t.n, t.k
	top := t.a[k*n:][:n]
	for i := k + 1 + from; i < k+1+to; i++ {
		line := t.a[i*n:][:n]
		by := line[k] / top[k]
		line[k] = by
		subtract(line[k+1:], by, top[k+1:])
	}
}

// subtract takes a multiple of a row from another.
func subtract[T ops.Real](line []T, by T, other []T) {
	line = line[:len(other)]
	for j, x := range other {
		line[j] -= T(by * x)
	}
}

func runLUSolve(c *ops.Call) error {
	ops.Gather(c.Pool, c.Out[0].Data, c.In[2])
	n := c.In[0].Shape()[len(c.In[0].Shape())-1]
	if err := visitIndices(c.In[1], func(_ int, i int64) error {
		_, err := wrapIndex(i-1, n, false)
		return err
	}); err != nil {
		return err
	}
	if c.In[0].DType == tensor.Float64 {
		solve[float64](c, n)
	} else {
		solve[float32](c, n)
	}
	return nil
}

func solve[T ops.Real](c *ops.Call, n int) {
	s := c.Out[0].Shape()
	columns := s[len(s)-1]
	if c.Out[0].Size() == 0 {
		return
	}
	blocks := (columns + factorColumns - 1) / factorColumns
	matrices := c.Out[0].Size() / (n * columns)
	tasks.Do(c.Pool, matrices*blocks, 1+factorRows*factorRows/n, solving[T]{
		lu: c.In[0], pivots: c.In[1], x: ops.Elements[T](c.Out[0]), n: n, columns: columns, blocks: blocks,
	})
}

// solving is the task of solve: a part is some blocks of the columns of a matrix, which are B at first.
type solving[T ops.Real] struct {
	lu, pivots         ops.View
	x                  []T
	n, columns, blocks int
}

// Run implements Task.
func (t *solving[T]) Run(from, to int) {
	for part := from; part < to; part++ {
		t.block(part/t.blocks, part%t.blocks*factorColumns)
	}
}

func (t *solving[T]) block(m, first int) {
	n := t.n
	width := min(factorColumns, t.columns-first)
	x := t.x[m*n*t.columns+first:]
	line := func(i int) []T { return x[i*t.columns:][:width] }
	pivots, step := ops.Elements[int32](t.pivots), ops.LastStride(t.pivots.Layout)
	at := t.pivots.Layout.Leading(1).OffsetOf(m)
	for i := range n {
		if p := int(pivots[at+i*step]) - 1; p != i {
			upper, lower := line(i), line(p)
			for j := range upper {
				upper[j], lower[j] = lower[j], upper[j]
			}
		}
	}
	strides := t.lu.Layout.Strides[len(t.lu.Layout.Strides)-2:]
	lu, corner := ops.Elements[T](t.lu), t.lu.Layout.Leading(2).OffsetOf(m)
	for i := range n {
		row := corner + i*strides[0]
		for k := range i {
			subtract(line(i), lu[row+k*strides[1]], line(k))
		}
	}
	for i := n - 1; i >= 0; i-- {
		row := corner + i*strides[0]
		for k := i + 1; k < n; k++ {
			subtract(line(i), lu[row+k*strides[1]], line(k))
		}
		by, y := lu[row+i*strides[1]], line(i)
		for j := range y {
			y[j] /= by
		}
	}
}
