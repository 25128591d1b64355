package quantize

import (
	"context"
	"sync"
	"sync/atomic"
)

// togetherRows is how many rows of a weight are quantised together, so that U is read once for all of them.
const togetherRows = 8

// A feedback quantises rows as GPTQ does (Frantar et al., 2022): column by column, and what a column is off by, the
// columns that follow make good as far as the inputs allow. Each row is for itself, so that codes do not depend on who
// shares its work.
//
//	for each column k, in order:
//		code[k] = the code nearest to w[k]
//		e = (w[k] − what the code stands for) ÷ U[k][k]
//		for each column j that follows: w[j] −= e · U[k][j]
//
// Where columns are in the file's order, the scale of a group is found when its first column's turn comes, for what its
// numbers have become; where they are not, scales are those of the numbers as they were.
type feedback struct {
	h     *hessian
	k     integers
	size  int // of a group
	block int // columns whose errors are given on together; groups begin where blocks do, or lie in one
}

func newFeedback(h *hessian, s Scheme, c *chunk) *feedback {
	const about = 128
	size := int(c.columns / c.groups)
	f := &feedback{h: h, k: integers{s.bits(), c.dtype}, size: size, block: about}
	switch {
	case c.groups == 1 || size%about == 0: // blocks of their own
	case size < about:
		f.block = (about + size - 1) / size * size
	default:
		f.block = size
	}
	return f
}

// A feedbackRoom is what a worker needs.
type feedbackRoom struct {
	numbers []float32      // of a row, or of a group
	w       [][]float64    // in the order of columns: numbers, then what their codes stand for
	errs    [][]float64    // of a block
	d       [][]float64    // what numbers, or their codes, are off by
	codes   [][]byte       // a code each, in the layer's order
	fits    [][][2]float32 // scale and zero of each group
}

func (f *feedback) room(columns, groups int64) *feedbackRoom {
	r := &feedbackRoom{numbers: make([]float32, columns)}
	for range togetherRows {
		r.w = append(r.w, make([]float64, columns))
		r.errs = append(r.errs, make([]float64, min(int64(f.block), columns)))
		r.d = append(r.d, make([]float64, columns))
		r.codes = append(r.codes, make([]byte, columns))
		r.fits = append(r.fits, make([][2]float32, groups))
	}
	return r
}

// feedbackBytes is what rooms take for each column of each row, and for each column.
const feedbackBytes = togetherRows*(8+8+8+1+8) + 4

// encodeCalibrated is encode with feedback.
func (c *chunk) encodeCalibrated(ctx context.Context, n int64, h *hessian) error {
	f := newFeedback(h, c.scheme, c)
	var next atomic.Int64
	var wait sync.WaitGroup
	bad := make([]*notFinite, len(c.numbers))
	for i := range c.numbers {
		wait.Go(func() {
			room := f.room(c.columns, c.groups)
			for r := (next.Add(1) - 1) * togetherRows; r < n && ctx.Err() == nil && bad[i] == nil; r = (next.Add(1) - 1) * togetherRows {
				bad[i] = f.encode(c, r, min(togetherRows, n-r), room)
			}
		})
	}
	wait.Wait()
	return firstOf(ctx, bad)
}

// encode makes the codes of some rows of a chunk.
func (f *feedback) encode(c *chunk, first, rows int64, room *feedbackRoom) *notFinite {
	w := room.w[:rows]
	for r := range w {
		row := first + int64(r)
		decode(room.numbers, c.raw[row*c.rowBytes:], c.dtype)
		all := 0.0
		for i, v := range room.numbers {
			if v-v != 0 {
				return &notFinite{row: row, column: int64(i), value: v}
			}
			all += float64(float64(v) * float64(v))
		}
		c.squares[row] = all
		for k := range w[r] {
			w[r][k] = float64(room.numbers[f.h.column(k)])
		}
		if f.h.order != nil || c.groups == 1 {
			f.fitAll(c, room, r)
		}
	}
	sums := c.outSquares[first : first+rows]
	clear(sums)
	f.h.weigh(w, sums)
	for begin := 0; begin < f.h.n; begin += f.block {
		end := min(begin+f.block, f.h.n)
		f.columns(c, room, int(rows), begin, end)
		f.giveOn(room, int(rows), begin, end)
	}
	for r := range w {
		row := first + int64(r)
		decode(room.numbers, c.raw[row*c.rowBytes:], c.dtype)
		lost := 0.0
		for k := range w[r] {
			d := float64(room.numbers[f.h.column(k)]) - w[r][k]
			room.d[r][k] = d
			lost += float64(d * d)
		}
		c.errors[row] = lost
		f.store(c, row, room.codes[r], room.fits[r])
	}
	sums = c.outErrors[first : first+rows]
	clear(sums)
	f.h.weigh(room.d[:rows], sums)
	return nil
}

// fitAll finds the scales of a row's groups for its numbers as they are.
func (f *feedback) fitAll(c *chunk, room *feedbackRoom, r int) {
	for g := range room.fits[r] {
		s, z := f.k.fit(room.numbers[g*f.size:][:f.size], nil, c.scheme.Minimum)
		room.fits[r][g] = [2]float32{s, z}
	}
}

// columns quantises the columns of a block.
func (f *feedback) columns(c *chunk, room *feedbackRoom, rows, begin, end int) {
	top := float32(int(1)<<f.k.bits - 1)
	for k := begin; k < end; k++ {
		u, column := f.h.upper[k*f.h.n:][:f.h.n], f.h.column(k)
		g := column / f.size
		for r := range rows {
			w := room.w[r]
			if f.h.order == nil && c.groups > 1 && k%f.size == 0 {
				for i := range f.size {
					room.numbers[i] = float32(w[k+i])
				}
				s, z := f.k.fit(room.numbers[:f.size], nil, c.scheme.Minimum)
				room.fits[r][g] = [2]float32{s, z}
			}
			scale, zero := room.fits[r][g][0], room.fits[r][g][1]
			code := f.k.code(float32(w[k]), 1/scale, zero, top)
			q := float64(rounded((code-zero)*scale, f.k.dtype))
			room.codes[r][column] = byte(code)
			e := (w[k] - q) / u[k]
			room.errs[r][k-begin] = e
			addTimes(w[k+1:end], u[k+1:end], -e)
			w[k] = q
		}
	}
}

// giveOn has the columns behind a block make good what its columns are off by.
func (f *feedback) giveOn(room *feedbackRoom, rows, begin, end int) {
	const wide = 512
	for from := end; from < f.h.n; from += wide {
		to := min(from+wide, f.h.n)
		for k := begin; k < end; k++ {
			u := f.h.upper[k*f.h.n+from : k*f.h.n+to]
			for r := range rows {
				addTimes(room.w[r][from:to], u, -room.errs[r][k-begin])
			}
		}
	}
}

// store writes a row's codes and scales.
func (f *feedback) store(c *chunk, row int64, codes []byte, fits [][2]float32) {
	to, width := c.codes[row*c.codeBytes():][:c.codeBytes()], int64(c.dtype.Size())
	for i, code := range codes {
		switch {
		case f.k.bits == 8:
			to[i] = code
		case i%2 == 0:
			to[i/2] = code
		default:
			to[i/2] |= code << 4
		}
	}
	scales := c.scales[row*c.groups*width:]
	for g, fit := range fits {
		store(scales[int64(g)*width:], fit[0], c.dtype)
		if c.zeros != nil {
			c.zeros[row*c.groups+int64(g)] = byte(fit[1])
		}
	}
}
