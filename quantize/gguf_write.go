package quantize

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/tensor"
)

// Write makes the GGUF file, which must not exist. It is written under another name beside it and renamed once all is
// on the disk: when Write fails or ctx is done, nothing is left. progress is as [Folder.Write] has it.
func (g *GGUF) Write(ctx context.Context, name string, progress func(nBytes int64)) (report *Report, err error) {
	name = filepath.Clean(name)
	if err := CheckNew(name); err != nil {
		return nil, err
	}
	if progress == nil {
		progress = func(int64) {}
	}
	parent, base := filepath.Split(name)
	const most = 100 // bytes of the name: a long one leaves no room for what is added
	short := strings.ToValidUTF8(base[:min(len(base), most)], "")
	temporary := filepath.Join(parent, fmt.Sprintf(".%s.%s.tmp.gguf", short, rand.Text()[:8]))
	defer func() {
		if err != nil {
			report, err = nil, errors.Join(err, os.RemoveAll(temporary))
		}
	}()
	report = &Report{Kept: g.kept, BytesBefore: g.InBytes, BytesAfter: g.OutBytes - int64(len(g.head))}
	if err := writeNew(temporary, func(file *os.File) error { return g.writeAll(ctx, file, report, progress) }); err != nil {
		return nil, err
	}
	var lost, all float64
	for _, l := range report.Layers {
		lost, all = lost+l.errors, all+l.squares
	}
	report.Error = relative(lost, all)
	if g.BeforeNamed != nil {
		if err := g.BeforeNamed(ctx, temporary); err != nil {
			return nil, err
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := CheckNew(name); err != nil {
		return nil, err
	}
	if err := os.Rename(temporary, name); err != nil {
		return nil, err
	}
	syncFolder(filepath.Dir(name))
	return report, nil
}

func (g *GGUF) writeAll(ctx context.Context, file *os.File, report *Report, progress func(int64)) error {
	if err := file.Truncate(g.OutBytes); err != nil { // zeros between tensors
		return err
	}
	if _, err := file.WriteAt(g.head, 0); err != nil {
		return err
	}
	for i := range g.all {
		t := &g.all[i]
		if t.numbers != nil {
			var raw []byte
			for _, x := range t.numbers {
				raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
			}
			if _, err := file.WriteAt(raw, g.offsets[i]); err != nil {
				return err
			}
			continue
		}
		layer, err := g.writeTensor(ctx, t, file, g.offsets[i], progress)
		var bad *notFinite
		switch {
		case errors.As(err, &bad):
			return bad
		case err != nil:
			return fmt.Errorf("%s: %w", t.from.Name, err)
		}
		if t.module != "" {
			report.Layers = append(report.Layers, layer)
		}
	}
	return nil
}

// A ggufChunk is rows of a tensor on their way into the file.
type ggufChunk struct {
	t             *ggufTensor
	from          tensor.Weight // of the folder
	columns       int64
	rowBytes, out int64 // of the folder, and of the file
	raw, blocks   []byte
	// errors and squares are each row's.
	errors, squares []float64
}

// writeTensor writes a tensor of the folder.
func (g *GGUF) writeTensor(ctx context.Context, t *ggufTensor, file *os.File, at int64, progress func(int64)) (Layer, error) {
	columns := int64(t.Shape[len(t.Shape)-1])
	rows, sources := int64(1), t.sources()
	if len(t.Shape) > 1 {
		rows = int64(t.Shape[len(t.Shape)-2])
	} else if t.heads > 0 { // a bias, whose numbers are moved as rows are
		rows, columns = columns, 1
	}
	bytes, err := t.Bytes()
	if err != nil {
		return Layer{}, err
	}
	before, all := int64(len(sources))*sources[0].Bytes(), int64(len(sources))*rows
	c := &ggufChunk{t: t, columns: columns, rowBytes: before / all, out: bytes / all}
	each := c.rowBytes + c.out + 16
	work := 8 * columns * int64(goruntime.GOMAXPROCS(0)) // the numbers of a row, and what they come back as
	const most = 32 << 20                                // bytes at a time: more is not faster
	n := min(max(min(g.opts.MemoryBytes-work, most)/each, 1), rows)
	if need := work + each; need > g.opts.MemoryBytes {
		return Layer{}, fmt.Errorf("%w: rows of %d numbers take %d bytes of memory", loader.ErrLimit, columns, need)
	}
	c.raw, c.blocks = make([]byte, n*c.rowBytes), make([]byte, n*c.out)
	c.errors, c.squares = make([]float64, n), make([]float64, n)
	layer := Layer{Module: t.module, Rows: all, Columns: columns, BytesBefore: before, BytesAfter: bytes}
	for i, from := range sources {
		c.from = from
		for first := int64(0); first < rows; first += n {
			n := min(n, rows-first)
			if err := c.read(ctx, rows, first, n); err != nil {
				return layer, err
			}
			if err := c.encode(ctx, first, n); err != nil {
				return layer, err
			}
			for r := range n {
				layer.errors, layer.squares = layer.errors+c.errors[r], layer.squares+c.squares[r]
			}
			if _, err := file.WriteAt(c.blocks[:n*c.out], at+(int64(i)*rows+first)*c.out); err != nil {
				return layer, err
			}
			progress(n * c.rowBytes)
		}
	}
	layer.Error = relative(layer.errors, layer.squares)
	layer.BitsPerWeight = 8 * float64(bytes) / (float64(all) * float64(columns))
	return layer, nil
}

// read reads rows as the file has them: those of a head that are turned together side by side.
func (c *ggufChunk) read(ctx context.Context, rows, first, n int64) error {
	span := c.from.Span()
	if c.t.heads == 0 {
		return span.ReadAt(ctx, c.raw[:n*c.rowBytes], first*c.rowBytes)
	}
	head := rows / c.t.heads
	for r := range n {
		row := first + r
		within := row % head
		from := row - within + within%2*(head/2) + within/2
		if err := span.ReadAt(ctx, c.raw[r*c.rowBytes:][:c.rowBytes], from*c.rowBytes); err != nil {
			return err
		}
	}
	return nil
}

// encode makes blocks of rows.
func (c *ggufChunk) encode(ctx context.Context, first, n int64) error {
	var next atomic.Int64
	var wait sync.WaitGroup
	errs := make([]error, min(int64(goruntime.GOMAXPROCS(0)), n))
	for i := range errs {
		wait.Go(func() {
			numbers, back := make([]float32, c.columns), make([]float32, c.columns)
			for r := next.Add(1) - 1; r < n && ctx.Err() == nil && errs[i] == nil; r = next.Add(1) - 1 {
				errs[i] = c.row(first, r, numbers, back)
			}
		})
	}
	wait.Wait()
	var bad *notFinite
	for _, err := range errs {
		var other *notFinite
		if errors.As(err, &other) && (bad == nil || other.row < bad.row) {
			bad = other
		}
	}
	if bad != nil {
		return bad
	}
	return ctx.Err()
}

// row makes the blocks of a row.
func (c *ggufChunk) row(first, r int64, numbers, back []float32) error {
	e, to := c.t.Encoding, c.blocks[r*c.out:][:c.out]
	raw := c.raw[r*c.rowBytes:][:c.rowBytes]
	if e.DType == c.from.DType {
		copy(to, raw)
		c.errors[r], c.squares[r] = 0, 0
		return nil
	}
	decode(numbers, raw, c.from.DType)
	for i, x := range numbers {
		if x-x != 0 {
			return &notFinite{name: c.from.Name, row: first + r, column: int64(i), value: x}
		}
	}
	if e.DType == tensor.Float32 {
		for i, x := range numbers {
			binary.LittleEndian.PutUint32(to[4*i:], math.Float32bits(x))
		}
		return nil
	}
	if k := e.Encode(to, numbers); k < len(numbers) {
		return &notFinite{name: c.from.Name, row: first + r, column: int64(k), value: numbers[k]}
	}
	e.Decode(back, to)
	lost, all := 0.0, 0.0
	for i, x := range numbers {
		d := float64(x) - float64(back[i])
		lost, all = lost+float64(d*d), all+float64(float64(x)*float64(x))
	}
	c.errors[r], c.squares[r] = lost, all
	return nil
}
