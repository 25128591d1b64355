package cpu

import (
	"math"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/tensor"
)

// createKernels make tensors from nothing, or keep a part of one.
var createKernels = map[layers.Kind]kernel{
	"arange":           {run: runArange},
	"linspace":         {run: runLinspace},
	"eye":              {run: runEye},
	"tril":             {run: func(c *call) error { return runTriangle(c, false) }},
	"triu":             {run: func(c *call) error { return runTriangle(c, true) }},
	"triangle_indices": {run: runTriangleIndices},
}

// generate fills the result with numbers that at gives for positions, as the wider of integers and floats.
func generate(c *call, integer func(i int) int64, float func(i int) float64) {
	d := c.out[0].dtype
	n := c.out[0].size()
	if !isFloatDType(d) {
		store := storesOfInteger[int64](d)
		generateBlocks(c, n, integer, func(at int, block []int64) { store(c.out[0], at, block) })
		return
	}
	store := storesOfFloat[float64](d)
	generateBlocks(c, n, float, func(at int, block []float64) { store(c.out[0], at, block) })
}

func generateBlocks[T any](c *call, n int, at func(i int) T, store func(at int, block []T)) {
	c.pool.For(n, grain, func(from, to int) {
		buffer := newBlockBuffer()
		defer blockBuffers.Put(buffer)
		for first := from; first < to; first += blockElements {
			block := blockOf[T](buffer)[:min(blockElements, to-first)]
			for i := range block {
				block[i] = at(first + i)
			}
			store(first, block)
		}
	})
}

func isFloatDType(d tensor.DType) bool { return loadsFloat32[d] != nil || loadsFloat64[d] != nil }

// runArange: out[i] = start + i × step: torch.arange.
func runArange(c *call) error {
	if !isFloatDType(c.out[0].dtype) {
		start, step := int64(c.attrs.Int("start")), int64(c.attrs.Int("step"))
		generate(c, func(i int) int64 { return start + int64(i)*step }, nil)
		return nil
	}
	start, step := c.attrs.Float("start"), c.attrs.Float("step")
	generate(c, nil, func(i int) float64 { return start + float64(float64(i)*step) })
	return nil
}

// runLinspace: out[i] = start + i × step in the first half and end − (steps − 1 − i) × step in the second, so that both
// ends are exact: torch.linspace.
func runLinspace(c *call) error {
	start, end, steps := c.attrs.Float("start"), c.attrs.Float("end"), c.attrs.Int("steps")
	step := (end - start) / float64(steps-1)
	if loadsFloat32[c.out[0].dtype] != nil {
		step = float64(float32(end-start) / float32(steps-1))
	}
	at := func(i int) float64 {
		if i < steps/2 || steps == 1 {
			return start + float64(step*float64(i))
		}
		return end - float64(step*float64(steps-1-i))
	}
	if steps == 1 {
		at = func(int) float64 { return start }
	}
	generate(c, func(i int) int64 { return truncate64(math.Trunc(at(i))) }, at)
	return nil
}

// runEye: out[i][j] = 1 where i = j, else 0: torch.eye.
func runEye(c *call) error {
	clear(c.out[0].data)
	shape := c.out[0].shape()
	one := view{data: c.out[0].data, dtype: c.out[0].dtype}
	for i := range min(shape[0], shape[1]) {
		at := i*shape[1] + i
		if isFloatDType(one.dtype) {
			storesOfFloat[float64](one.dtype)(one, at, []float64{1})
		} else {
			storesOfInteger[int64](one.dtype)(one, at, []int64{1})
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
	c.pool.For(c.out[0].size()/columns, max(grain/columns, 1), func(from, to int) {
		for r := from; r < to; r++ {
			row := c.out[0].data[r*columns*size:][:columns*size]
			kept := r%rows + diagonal // the column on the diagonal
			if upper {
				clear(row[:min(max(kept, 0), columns)*size])
			} else {
				clear(row[min(max(kept+1, 0), columns)*size:])
			}
		}
	})
	return nil
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
