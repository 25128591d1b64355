package quantize

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	goruntime "runtime"
	"sync"
	"sync/atomic"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/tensor"
)

// A notFinite is a number that no code stands for.
type notFinite struct {
	name        string
	row, column int64
	value       float32
}

func (e *notFinite) Error() string {
	return fmt.Sprintf("%s: %v: row %d, column %d is %v, which no scale fits", e.name, loader.ErrFormat, e.row, e.column, e.value)
}

func (e *notFinite) Unwrap() error { return loader.ErrFormat }

// A chunk holds some rows of a weight, and their codes.
type chunk struct {
	scheme   Scheme
	dtype    tensor.DType
	columns  int64
	groups   int64
	rowBytes int64 // of the file

	raw    []byte
	codes  []byte
	scales []byte
	zeros  []byte // a byte for each group of each row; [row][group]
	words  []byte // the zero points in words
	// errors and squares are each row's squared error, and squares.
	errors, squares []float64
	// outErrors and outSquares are those of what it computes of the inputs, where these are known.
	outErrors, outSquares []float64
	numbers               [][]float32 // a row for each worker
	// turned says how the numbers are scaled before they become codes, nil for not; first is the first row.
	turned *turned
	first  int64
}

func newChunk(s Scheme, it *item, rows int64) *chunk {
	c := &chunk{
		scheme: s, dtype: it.weight.DType, columns: it.columns, groups: s.groups(it.columns), rowBytes: it.columns * int64(it.weight.DType.Size()),
		errors: make([]float64, rows), squares: make([]float64, rows), outErrors: make([]float64, rows), outSquares: make([]float64, rows),
	}
	c.raw = make([]byte, rows*c.rowBytes)
	c.codes = make([]byte, rows*c.codeBytes())
	c.scales = make([]byte, rows*c.groups*int64(c.dtype.Size()))
	if s.Minimum {
		c.zeros = make([]byte, rows*c.groups)
		c.words = make([]byte, rows*s.bits()/8*c.groups)
	}
	c.numbers = make([][]float32, min(int64(goruntime.GOMAXPROCS(0)), rows))
	for i := range c.numbers {
		c.numbers[i] = make([]float32, it.columns)
	}
	return c
}

// codeBytes are those of a row.
func (c *chunk) codeBytes() int64 { return c.columns * c.scheme.bits() / 8 }

// encode makes the codes of the first n rows. Rows are shared out among threads, each its own, so that the codes do not depend on
// how many there are.
func (c *chunk) encode(ctx context.Context, n int64) error {
	var next atomic.Int64
	var wait sync.WaitGroup
	bad := make([]*notFinite, len(c.numbers))
	for i, numbers := range c.numbers {
		wait.Go(func() {
			for r := next.Add(1) - 1; r < n && ctx.Err() == nil && bad[i] == nil; r = next.Add(1) - 1 {
				bad[i] = c.encodeRow(r, numbers)
			}
		})
	}
	wait.Wait()
	return firstOf(ctx, bad)
}

// firstOf returns what is wrong with the first row, or why not all were looked at.
func firstOf(ctx context.Context, bad []*notFinite) error {
	var first *notFinite
	for _, b := range bad {
		if b != nil && (first == nil || b.row < first.row) {
			first = b
		}
	}
	if first != nil {
		return first
	}
	return ctx.Err()
}

func (c *chunk) encodeRow(r int64, numbers []float32) *notFinite {
	decode(numbers, c.raw[r*c.rowBytes:], c.dtype)
	all, lost := 0.0, 0.0
	for i, v := range numbers {
		if v-v != 0 {
			return &notFinite{row: r, column: int64(i), value: v}
		}
		all += float64(float64(v) * float64(v))
	}
	if t := c.turned; t != nil {
		c.outErrors[r], c.outSquares[r] = 0, t.all(numbers)
		if all = t.turn(numbers, c.first+r); all-all != 0 {
			return &notFinite{row: r, value: float32(all)}
		}
	}
	codes := c.codes[r*c.codeBytes():][:c.codeBytes()]
	width := int64(c.dtype.Size())
	scales := c.scales[r*c.groups*width:]
	if c.scheme.isFloat() {
		s := fitFloat8(numbers, c.dtype)
		store(scales, s, c.dtype)
		lost = encodeFloat8(numbers, s, c.dtype, codes)
	} else {
		k := integers{c.scheme.bits(), c.dtype}
		size := c.columns / c.groups
		for g := range c.groups {
			x := numbers[g*size:][:size]
			s, z := k.fit(x, c.turned.weightsOf(g*size, size), c.scheme.Minimum)
			store(scales[g*width:], s, c.dtype)
			if c.zeros != nil {
				c.zeros[r*c.groups+g] = byte(z)
			}
			lost += k.encode(x, s, z, codes[g*size*k.bits/8:])
			if c.turned != nil {
				c.outErrors[r] += c.turned.lost(k, x, s, z, g*size)
			}
		}
	}
	if t := c.turned; t != nil && t.rows != nil {
		by := float64(t.rows[c.first+r])
		c.outErrors[r] *= by * by
	}
	c.errors[r], c.squares[r] = lost, all
	return nil
}

// write puts the codes and scales of n rows from the first on in their places.
func (c *chunk) write(file *os.File, at []int64, first, n int64) error {
	scaleBytes := c.groups * int64(c.dtype.Size())
	if _, err := file.WriteAt(c.codes[:n*c.codeBytes()], at[codesPart]+first*c.codeBytes()); err != nil {
		return err
	}
	if _, err := file.WriteAt(c.scales[:n*scaleBytes], at[scalesPart]+first*scaleBytes); err != nil {
		return err
	}
	if c.zeros == nil {
		return nil
	}
	// A word has the zero points of rows that follow each other, of one group.
	each := 32 / c.scheme.bits()
	words := (n + each - 1) / each
	for w := range words {
		for g := range c.groups {
			var word uint32
			for i := range min(each, n-w*each) {
				word |= uint32(c.zeros[(w*each+i)*c.groups+g]) << (i * c.scheme.bits())
			}
			binary.LittleEndian.PutUint32(c.words[(w*c.groups+g)*4:], word)
		}
	}
	_, err := file.WriteAt(c.words[:words*c.groups*4], at[zerosPart]+first/each*c.groups*4)
	return err
}
