package cpu

import (
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/tasks"
	"github.com/optimem/optimem/tensor"
)

// factorKernels compute in the dtype of the matrices, as LAPACK does. Each product is rounded before it is subtracted, so that
// every machine gives the same bits.
var factorKernels = map[graph.Kind]kernel{
	// A = P L U, torch.linalg.lu_factor_ex: partial pivoting, of equal candidates the first.
	"lu_factor": {run: runLUFactor},
	// L U X = Pᵀ B, torch.linalg.lu_solve.
	"lu_solve": {run: runLUSolve},
}

// plainReal is an element that is computed with as it is.
type plainReal interface{ float32 | float64 }

// factorRows is how many rows of a matrix one part changes; factorColumns, how many columns one part solves for.
const (
	factorRows    = 32
	factorColumns = 32
)

func runLUFactor(c *call) error {
	gather(c.pool, c.out[0].data, c.in[0])
	if c.in[0].dtype == tensor.Float64 {
		return luFactor[float64](c)
	}
	return luFactor[float32](c)
}

// luFactor takes apart the matrices in the first result.
func luFactor[T plainReal](c *call) error {
	info := elements[int32](c.out[2])
	s := c.out[0].shape()
	if n := s[len(s)-1]; n > 0 {
		t := factoring[T]{a: elements[T](c.out[0]), pivots: elements[int32](c.out[1]), info: info, n: n}
		if len(info) == 1 {
			t.pool = c.pool // the parts are those of one matrix
			t.matrix(0)
		} else {
			tasks.Do(c.pool, len(info), 1+factorRows*factorRows/n, t)
		}
	} else {
		clear(info)
	}
	if c.attrs.Bool("strict") {
		for m, first := range info {
			if first != 0 {
				return &graph.SingularError{Matrix: m, Pivot: int(first) - 1}
			}
		}
	}
	return nil
}

// factoring is the task of luFactor: a part is some matrices.
type factoring[T plainReal] struct {
	a            []T
	pivots, info []int32
	n            int
	// pool, where it is not nil, shares the rows of a matrix.
	pool *Pool
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

func absolute[T plainReal](x T) T {
	if x < 0 {
		return -x
	}
	return x
}

// eliminating makes column k zero below its pivot: a part is some of the rows below.
type eliminating[T plainReal] struct {
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
func subtract[T plainReal](line []T, by T, other []T) {
	line = line[:len(other)]
	for j, x := range other {
		line[j] -= T(by * x)
	}
}

func runLUSolve(c *call) error {
	gather(c.pool, c.out[0].data, c.in[2])
	n := c.in[0].shape()[len(c.in[0].shape())-1]
	if err := visitIndices(c.in[1], func(_ int, i int64) error {
		_, err := wrapIndex(i-1, n, false)
		return err
	}); err != nil {
		return err
	}
	if c.in[0].dtype == tensor.Float64 {
		solve[float64](c, n)
	} else {
		solve[float32](c, n)
	}
	return nil
}

func solve[T plainReal](c *call, n int) {
	s := c.out[0].shape()
	columns := s[len(s)-1]
	if c.out[0].size() == 0 {
		return
	}
	blocks := (columns + factorColumns - 1) / factorColumns
	matrices := c.out[0].size() / (n * columns)
	tasks.Do(c.pool, matrices*blocks, 1+factorRows*factorRows/n, solving[T]{
		lu: c.in[0], pivots: c.in[1], x: elements[T](c.out[0]), n: n, columns: columns, blocks: blocks,
	})
}

// solving is the task of solve: a part is some blocks of the columns of a matrix, which are B at first.
type solving[T plainReal] struct {
	lu, pivots         view
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
	pivots, step := elements[int32](t.pivots), lastStride(t.pivots.layout)
	at := t.pivots.layout.Leading(1).OffsetOf(m)
	for i := range n {
		if p := int(pivots[at+i*step]) - 1; p != i {
			upper, lower := line(i), line(p)
			for j := range upper {
				upper[j], lower[j] = lower[j], upper[j]
			}
		}
	}
	strides := t.lu.layout.Strides[len(t.lu.layout.Strides)-2:]
	lu, corner := elements[T](t.lu), t.lu.layout.Leading(2).OffsetOf(m)
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
