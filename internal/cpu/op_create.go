package cpu

import (
	"math"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/tasks"
	"github.com/optimem/optimem/tensor"
)

// createKernels make tensors from nothing, or keep a part of one.
var createKernels = map[graph.Kind]kernel{
	"arange":           {run: runArange},
	"linspace":         {run: runLinspace},
	"eye":              {run: runEye},
	"tril":             {run: func(c *call) error { return runTriangle(c, false) }},
	"triu":             {run: func(c *call) error { return runTriangle(c, true) }},
	"triangle_indices": {run: runTriangleIndices},
}

// A sequence is numbers that depend on their positions, as the task of storing them: a part is some blocks.
type sequence struct {
	out view
	// exact are those of integers: first + i × by.
	exact     bool
	first, by int64
	// start + i × step is a number before middle, end − (last − i) × step one from there on.
	start, end, step float64
	middle, last     int
}

func (s *sequence) at(i int) float64 {
	if i < s.middle {
		return s.start + float64(s.step*float64(i))
	}
	return s.end - float64(s.step*float64(s.last-i))
}

// Run implements Task.
func (s *sequence) Run(from, to int) {
	buffer := newBlockBuffer()
	floats, ints := blockOf[float64](buffer), blockOf[int64](buffer)
	whole := !isFloatDType(s.out.dtype)
	for first := from; first < to; first += blockElements {
		n := min(blockElements, to-first)
		for i := range n {
			switch {
			case s.exact:
				ints[i] = s.first + int64(first+i)*s.by
			case whole:
				ints[i] = truncate64(math.Trunc(s.at(first + i)))
			default:
				floats[i] = s.at(first + i)
			}
		}
		if whole {
			storesOfInt64[s.out.dtype](s.out, first, ints[:n])
		} else {
			storesOfFloat64[s.out.dtype](s.out, first, floats[:n])
		}
	}
	blockBuffers.Put(buffer)
}

func isFloatDType(d tensor.DType) bool { return loadsFloat32[d] != nil || loadsFloat64[d] != nil }

// runArange: out[i] = start + i × step: torch.arange.
func runArange(c *call) error {
	n := c.out[0].size()
	s := sequence{out: c.out[0], exact: !isFloatDType(c.out[0].dtype), middle: n}
	if s.exact {
		s.first, s.by = int64(c.attrs.Int("start")), int64(c.attrs.Int("step"))
	} else {
		s.start, s.step = c.attrs.Float("start"), c.attrs.Float("step")
	}
	tasks.Do(c.pool, n, grain, s)
	return nil
}

// runLinspace: out[i] = start + i × step in the first half and end − (steps − 1 − i) × step in the second, so that both
// ends are exact: torch.linspace.
func runLinspace(c *call) error {
	steps := c.attrs.Int("steps")
	s := sequence{
		out: c.out[0], start: c.attrs.Float("start"), end: c.attrs.Float("end"), middle: steps / 2, last: steps - 1,
	}
	if steps == 1 {
		s.end = s.start
	} else if loadsFloat32[c.out[0].dtype] != nil {
		s.step = float64(float32(s.end-s.start) / float32(steps-1))
	} else {
		s.step = (s.end - s.start) / float64(steps-1)
	}
	tasks.Do(c.pool, c.out[0].size(), grain, s)
	return nil
}

// oneFloat and oneInt are what an eye has on its diagonal.
var (
	oneFloat = []float64{1}
	oneInt   = []int64{1}
)

// runEye: out[i][j] = 1 where i = j, else 0: torch.eye.
func runEye(c *call) error {
	clear(c.out[0].data)
	shape := c.out[0].shape()
	one := view{data: c.out[0].data, dtype: c.out[0].dtype}
	for i := range min(shape[0], shape[1]) {
		at := i*shape[1] + i
		if isFloatDType(one.dtype) {
			storesOfFloat64[one.dtype](one, at, oneFloat)
		} else {
			storesOfInt64[one.dtype](one, at, oneInt)
		}
	}
	return nil
}

// runTriangle: out[…][i][j] = in[0][…][i][j] where j − i ≤ diagonal (upper: ≥), else 0: torch.tril, torch.triu.
func runTriangle(c *call, upper bool) error {
	gather(c.pool, c.out[0].data, c.in[0])
	shape := c.out[0].shape()
	rows, columns := shape[len(shape)-2], shape[len(shape)-1]
	diagonal := min(max(c.attrs.Int("diagonal"), -rows-1), columns+1)
	size := c.out[0].dtype.Size()
	if columns == 0 {
		return nil
	}
	tasks.Do(c.pool, c.out[0].size()/columns, max(grain/columns, 1), triangle{
		data: c.out[0].data, rows: rows, columns: columns, size: size, diagonal: diagonal, upper: upper,
	})
	return nil
}

// triangle is the task of runTriangle: a part is some rows, of which it clears what is left out.
type triangle struct {
	data                          []byte
	rows, columns, size, diagonal int
	upper                         bool
}

// Run implements Task.
func (t *triangle) Run(from, to int) {
	for r := from; r < to; r++ {
		row := t.data[r*t.columns*t.size:][:t.columns*t.size]
		kept := r%t.rows + t.diagonal // the column on the diagonal
		if t.upper {
			clear(row[:min(max(kept, 0), t.columns)*t.size])
		} else {
			clear(row[min(max(kept+1, 0), t.columns)*t.size:])
		}
	}
}

// runTriangleIndices: out[0][k], out[1][k] are the row and column of place k: torch.tril_indices, torch.triu_indices.
func runTriangleIndices(c *call) error {
	if c.out[0].dtype == tensor.Int32 {
		triangleIndices(c, elements[int32](c.out[0]))
	} else {
		triangleIndices(c, elements[int64](c.out[0]))
	}
	return nil
}

func triangleIndices[T int32 | int64](c *call, out []T) {
	rows, columns, upper := c.attrs.Int("rows"), c.attrs.Int("columns"), c.attrs.Bool("upper")
	offset := min(max(c.attrs.Int("offset"), -rows-1), columns+1)
	size := c.out[0].shape()[1]
	first, end := max(-offset, 0), rows // of the rows that have a place
	if upper {
		first, end = 0, min(rows, columns-offset)
	}
	if size == 0 {
		return
	}
	at := 0
	for i := first; i < end; i++ {
		from, to := 0, min(max(i+offset+1, 0), columns)
		if upper {
			from, to = min(max(i+offset, 0), columns), columns
		}
		for j := from; j < to; j++ {
			out[at], out[size+at] = T(i), T(j)
			at++
		}
	}
}
