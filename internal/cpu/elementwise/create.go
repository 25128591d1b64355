package elementwise

import (
	"math"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/internal/cpu/tasks"
	"github.com/optimem/optimem/tensor"
)

// createKernels make tensors from nothing, or keep a part of one.
var createKernels = map[graph.Kind]ops.Kernel{
	"arange":           {Run: runArange},
	"linspace":         {Run: runLinspace},
	"eye":              {Run: runEye},
	"tril":             {Run: func(c *ops.Call) error { return runTriangle(c, false) }},
	"triu":             {Run: func(c *ops.Call) error { return runTriangle(c, true) }},
	"triangle_indices": {Run: runTriangleIndices},
}

// A sequence is numbers that depend on their positions, as the task of storing them: a part is some blocks.
type sequence struct {
	out ops.View
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
	buffer := ops.NewBlockBuffer()
	floats, ints := ops.BlockOf[float64](buffer), ops.BlockOf[int64](buffer)
	whole := !isFloatDType(s.out.DType)
	for first := from; first < to; first += ops.BlockElements {
		n := min(ops.BlockElements, to-first)
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
			storesOfInt64[s.out.DType](s.out, first, ints[:n])
		} else {
			storesOfFloat64[s.out.DType](s.out, first, floats[:n])
		}
	}
	ops.BlockBuffers.Put(buffer)
}

func isFloatDType(d tensor.DType) bool { return loadsFloat32[d] != nil || loadsFloat64[d] != nil }

// runArange: out[i] = start + i × step: torch.arange.
func runArange(c *ops.Call) error {
	n := c.Out[0].Size()
	s := sequence{out: c.Out[0], exact: !isFloatDType(c.Out[0].DType), middle: n}
	if s.exact {
		s.first, s.by = int64(c.Attrs.Int("start")), int64(c.Attrs.Int("step"))
	} else {
		s.start, s.step = c.Attrs.Float("start"), c.Attrs.Float("step")
	}
	tasks.Do(c.Pool, n, ops.Grain, s)
	return nil
}

// runLinspace: out[i] = start + i × step in the first half and end − (steps − 1 − i) × step in the second, so that both
// ends are exact: torch.linspace.
func runLinspace(c *ops.Call) error {
	steps := c.Attrs.Int("steps")
	s := sequence{
		out: c.Out[0], start: c.Attrs.Float("start"), end: c.Attrs.Float("end"), middle: steps / 2, last: steps - 1,
	}
	if steps == 1 {
		s.end = s.start
	} else if loadsFloat32[c.Out[0].DType] != nil {
		s.step = float64(float32(s.end-s.start) / float32(steps-1))
	} else {
		s.step = (s.end - s.start) / float64(steps-1)
	}
	tasks.Do(c.Pool, c.Out[0].Size(), ops.Grain, s)
	return nil
}

// oneFloat and oneInt are what an eye has on its diagonal.
var (
	oneFloat = []float64{1}
	oneInt   = []int64{1}
)

// runEye: out[i][j] = 1 where i = j, else 0: torch.eye.
func runEye(c *ops.Call) error {
	clear(c.Out[0].Data)
	shape := c.Out[0].Shape()
	one := ops.View{Data: c.Out[0].Data, DType: c.Out[0].DType}
	for i := range min(shape[0], shape[1]) {
		at := i*shape[1] + i
		if isFloatDType(one.DType) {
			storesOfFloat64[one.DType](one, at, oneFloat)
		} else {
			storesOfInt64[one.DType](one, at, oneInt)
		}
	}
	return nil
}

// runTriangle: out[…][i][j] = in[0][…][i][j] where j − i ≤ diagonal (upper: ≥), else 0: torch.tril, torch.triu.
func runTriangle(c *ops.Call, upper bool) error {
	ops.Gather(c.Pool, c.Out[0].Data, c.In[0])
	shape := c.Out[0].Shape()
	rows, columns := shape[len(shape)-2], shape[len(shape)-1]
	diagonal := min(max(c.Attrs.Int("diagonal"), -rows-1), columns+1)
	size := c.Out[0].DType.Size()
	if columns == 0 {
		return nil
	}
	tasks.Do(c.Pool, c.Out[0].Size()/columns, max(ops.Grain/columns, 1), triangle{
		data: c.Out[0].Data, rows: rows, columns: columns, size: size, diagonal: diagonal, upper: upper,
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
func runTriangleIndices(c *ops.Call) error {
	if c.Out[0].DType == tensor.Int32 {
		triangleIndices(c, ops.Elements[int32](c.Out[0]))
	} else {
		triangleIndices(c, ops.Elements[int64](c.Out[0]))
	}
	return nil
}

func triangleIndices[T int32 | int64](c *ops.Call, out []T) {
	rows, columns, upper := c.Attrs.Int("rows"), c.Attrs.Int("columns"), c.Attrs.Bool("upper")
	offset := min(max(c.Attrs.Int("offset"), -rows-1), columns+1)
	size := c.Out[0].Shape()[1]
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
