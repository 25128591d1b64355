package stretch

import (
	"context"
	"encoding/binary"
	"math"
	"sync"
	"sync/atomic"

	"github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/internal/hostmem"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

const (
	// workers compute at a time. The number is the same on every host, and so is what they take.
	workers = 4
	// chunkBytes are read at a time at most, a part of a weight at least, so that for a small one it takes little, or
	// one row where that is more.
	chunkBytes, chunks = 256 << 10, 16
	// lanes is what lengths of rows are filled up to multiples of, with zeros: the depths that kernels take.
	lanes = 16
)

// A room says how the memory of one computation is divided, all in float32 but for the bytes that are read.
type room struct {
	raw int64
	// down is A, row by row; up is B, or, for turned weights, its transpose; gram is A·Aᵀ.
	down, up, gram int
	// each worker has some for rows that are widened, and halves to widen them from.
	wide, halves int
	// lengths are squares of lengths, of 8 bytes, on their way.
	lengths int
	// pitch is that of the rows of A, or of Bᵀ.
	pitch int
}

func (s *Source) room() room {
	r := room{lengths: filled(s.outputs)}
	longest := 0
	for _, w := range []*tensor.Weight{&s.parts.Weight, &s.parts.Down, &s.parts.Up, &s.parts.Strength} {
		row := w.Layout.Shape[len(w.Layout.Shape)-1]
		longest = max(longest, row)
		r.raw = max(r.raw, int64(row*w.DType.Size()), min(chunkBytes, w.Bytes()/chunks))
	}
	r.raw = (r.raw+storage.AlignBytes-1)/storage.AlignBytes*storage.AlignBytes + storage.AlignBytes
	r.halves = filled(longest)
	if s.parts.Turned {
		r.down, r.pitch = s.rank*s.inputs, filled(s.outputs)
		r.up = s.rank * r.pitch
		r.wide = 2*longest + s.rank // a row of W, one of A·B, a column of A
	} else {
		r.pitch, r.up = filled(s.inputs), s.outputs*s.rank
		r.down, r.gram = s.rank*r.pitch, s.rank*s.rank
		r.wide = kernel.DotRows * filled(longest)
	}
	r.wide = filled(r.wide)
	return r
}

// filled returns n, filled up to whole vectors.
func filled(n int) int { return (n + lanes - 1) / lanes * lanes }

// bytes is what all of it takes.
func (r room) bytes() int64 {
	return r.raw + 8*int64(r.lengths) + 4*int64(filled(r.down)+filled(r.up)+filled(r.gram)) +
		workers*(4*int64(r.wide)+2*int64(r.halves))
}

// A computation is one of the factors of a weight.
type computation struct {
	*Source
	room
	set            *kernel.Set
	raw            []byte
	squares        []float64
	down, up, gram []float32
	wide           [workers][]float32
	halves         [workers][]uint16
}

// compute returns the factors.
func (s *Source) compute(ctx context.Context) ([]byte, error) {
	c := &computation{Source: s, room: s.room(), set: kernel.Best()}
	buf, err := hostmem.Alloc(c.bytes(), hostmem.Workspace)
	if err != nil {
		return nil, err
	}
	defer buf.Free()
	c.divide(buf.Bytes())
	if err := c.matrices(ctx); err != nil {
		return nil, err
	}
	run := c.rows
	if s.parts.Turned {
		run = c.columns
	}
	if err := c.read(ctx, &s.parts.Weight, run); err != nil {
		return nil, err
	}
	kept := make([]byte, s.Size())
	err = c.read(ctx, &s.parts.Strength, func(first, n int, raw []byte) {
		lengths := c.wide[0][:n]
		c.widen(0, lengths, raw, s.parts.Strength.DType)
		for i, length := range lengths {
			factor := float32(float64(length) / math.Sqrt(max(c.squares[first+i], 0)))
			binary.LittleEndian.PutUint32(kept[4*(first+i):], math.Float32bits(factor))
		}
	})
	return kept, err
}

// divide hands out the memory.
func (c *computation) divide(b []byte) {
	floats := func(n int) (part []float32) { part, b = carve[float32](b, n, tensor.Float32); return part }
	c.raw, b = b[:c.room.raw], b[c.room.raw:]
	c.squares, b = carve[float64](b, c.lengths, tensor.Float64)
	c.down, c.up, c.gram = floats(c.room.down), floats(c.room.up), floats(c.room.gram)
	for w := range workers {
		c.wide[w] = floats(c.room.wide)
	}
	for w := range workers {
		c.halves[w], b = carve[uint16](b, c.room.halves, tensor.UInt16)
	}
}

// carve returns the first elements of memory that is aligned for them, and the rest of it, from where vectors may
// begin.
func carve[T tensor.Element](b []byte, n int, d tensor.DType) ([]T, []byte) {
	part, err := tensor.Slice[T](&tensor.Tensor{DType: d, Layout: tensor.Contiguous(n), Data: b})
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return part, b[filled(n)*d.Size():]
}

// matrices reads A and B.
func (c *computation) matrices(ctx context.Context) error {
	p, inputs := &c.parts, c.inputs
	pitch := c.pitch
	if p.Turned {
		pitch = inputs
	}
	err := c.read(ctx, &p.Down, func(first, n int, raw []byte) {
		for i := range n {
			c.widen(0, c.down[(first+i)*pitch:][:inputs], raw[i*inputs*p.Down.DType.Size():], p.Down.DType)
		}
	})
	if err != nil {
		return err
	}
	err = c.read(ctx, &p.Up, func(first, n int, raw []byte) {
		for i := range n {
			row := raw[i*c.rank*p.Up.DType.Size():]
			if !p.Turned {
				c.widen(0, c.up[(first+i)*c.rank:][:c.rank], row, p.Up.DType)
				continue
			}
			wide := c.wide[0][:c.rank]
			c.widen(0, wide, row, p.Up.DType)
			for k, v := range wide {
				c.up[k*c.pitch+first+i] = v
			}
		}
	})
	if err != nil || p.Turned {
		return err
	}
	for k := range c.rank {
		for l := range c.rank {
			c.dots(1, 1, c.down[k*pitch:], c.down[l*pitch:], c.gram[k*c.rank+l:])
		}
	}
	return nil
}

// read calls f with the bytes of some rows after the other; they are its own until it returns.
func (c *computation) read(ctx context.Context, w *tensor.Weight, f func(first, n int, raw []byte)) error {
	total, shape := 1, w.Layout.Shape
	if len(shape) == 2 {
		total = shape[0]
	}
	row := shape[len(shape)-1] * w.DType.Size()
	if len(shape) == 1 {
		total, row = shape[0], w.DType.Size()
	}
	at := w.Span()
	each := max(1, min(total, (len(c.raw)-storage.AlignBytes)/row))
	for first := 0; first < total; first += each {
		n := min(each, total-first)
		e := storage.Extent{Source: at.Source, Offset: at.Offset + int64(first)*int64(row),
			Bytes: int64(n) * int64(row)}
		raw, err := c.fetch(ctx, e)
		if err != nil {
			return err
		}
		f(first, n, raw)
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// fetch reads bytes past the page cache where there is room for what that takes around them.
func (c *computation) fetch(ctx context.Context, e storage.Extent) ([]byte, error) {
	around, skip := e.Aligned()
	if source, ok := e.Source.(storage.BulkSource); ok && around.Bytes <= int64(len(c.raw)) {
		return c.raw[skip:][:e.Bytes], source.ReadBulk(ctx, c.raw[:around.Bytes], around.Offset)
	}
	raw := c.raw[:e.Bytes]
	return raw, e.Source.ReadAt(ctx, raw, e.Offset)
}

// widen writes the numbers of raw bytes, at any address.
func (c *computation) widen(worker int, to []float32, raw []byte, d tensor.DType) {
	if d == tensor.Float32 {
		copy(tensor.Of(to, len(to)).Data, raw)
		return
	}
	from := c.halves[worker][:len(to)]
	copy(tensor.Of(from, len(from)).Data, raw)
	element, wider := kernel.BFloat16, tensor.BFloat16ToFloat32
	if d == tensor.Float16 {
		element, wider = kernel.Float16, tensor.Float16ToFloat32
	}
	done := 0
	if c.set != nil {
		done = c.set.WidenRow(element, to, from)
	}
	for i := done; i < len(to); i++ {
		to[i] = wider(from[i])
	}
}

// share has workers compute parts of [0, n), each of step but the last.
func share(n, step int, f func(worker, from, to int)) {
	var next atomic.Int64
	var wait sync.WaitGroup
	for w := range min(workers, (n+step-1)/step) {
		wait.Go(func() {
			for {
				from := int(next.Add(1)-1) * step
				if from >= n {
					return
				}
				f(w, from, min(from+step, n))
			}
		})
	}
	wait.Wait()
}

// rows computes the squares of the lengths of some rows: |w|² + 2·scale·(w·Aᵀ)·b + scale²·b·(A·Aᵀ)·b, with w and b
// those of W and of B. No row of B·A is computed.
func (c *computation) rows(first, n int, raw []byte) {
	size := c.parts.Weight.DType.Size()
	share(n, kernel.DotRows, func(worker, from, to int) {
		wide := c.wide[worker]
		for i := from; i < to; i++ {
			c.widen(worker, wide[(i-from)*c.pitch:][:c.inputs], raw[i*c.inputs*size:], c.parts.Weight.DType)
		}
		var crossed [kernel.DotRows]float64
		var sums [4 * kernel.DotRows]float32
		for k := 0; k < c.rank; {
			columns := 1
			if k+4 <= c.rank {
				columns = 4
			}
			c.dots(to-from, columns, wide, c.down[k*c.pitch:], sums[:])
			for i := range to - from {
				for j, up := range c.up[(first+from+i)*c.rank+k:][:columns] {
					crossed[i] += float64(up) * float64(sums[i*columns+j])
				}
			}
			k += columns
		}
		for i := range to - from {
			own, b := 0.0, c.up[(first+from+i)*c.rank:][:c.rank]
			if w := wide[i*c.pitch:][:c.inputs]; c.set != nil {
				own = c.set.Squares(w, 0)
			} else {
				for _, v := range w {
					own += float64(v) * float64(v)
				}
			}
			scale := c.parts.Scale
			c.squares[first+from+i] = own + 2*scale*crossed[i] + scale*scale*form(c.gram, b)
		}
	})
}

// form returns b·G·b.
func form(g, b []float32) (sum float64) {
	for k, x := range b {
		line := 0.0
		for l, y := range b {
			line += float64(g[k*len(b)+l]) * float64(y)
		}
		sum += float64(x) * line
	}
	return sum
}

// dots is [kernel.Set.Dot] for rows that lie one pitch apart.
func (c *computation) dots(rows, columns int, a, b, sums []float32) {
	if c.set != nil {
		c.set.Dot(rows, columns, c.pitch, a, c.pitch, b, c.pitch, sums)
		return
	}
	for i := range rows {
		for j := range columns {
			sum := float32(0)
			for k, x := range a[i*c.pitch:][:c.pitch] {
				sum += x * b[j*c.pitch+k]
			}
			sums[i*columns+j] = sum
		}
	}
}

// columns adds what some rows of a turned weight have to the squares of the lengths of its columns.
func (c *computation) columns(first, n int, raw []byte) {
	size, scale := c.parts.Weight.DType.Size(), float32(c.parts.Scale)
	step := filled((c.outputs + workers - 1) / workers)
	share(c.outputs, step, func(worker, from, to int) {
		wide := c.wide[worker]
		w, more, column := wide[:to-from], wide[c.outputs:][:to-from], wide[2*c.outputs:][:c.rank]
		for i := range n {
			c.widen(worker, w, raw[(i*c.outputs+from)*size:], c.parts.Weight.DType)
			for k := range column {
				column[k] = c.down[k*c.inputs+first+i]
			}
			clear(more)
			if c.set != nil {
				c.set.Weighted(column, c.up[from:], c.pitch, more)
			} else {
				for k, a := range column {
					for j, b := range c.up[k*c.pitch+from:][:to-from] {
						more[j] += a * b
					}
				}
			}
			for j, v := range w {
				sum := float64(v + scale*more[j])
				c.squares[from+j] += sum * sum
			}
		}
	})
}
