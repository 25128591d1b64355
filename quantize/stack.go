package quantize

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/tensor"
)

// Experts whose weights are one tensor, [experts, out, in] or turned, become layers of their own, as llm-compressor and vLLM name
// them: "experts.0.gate_proj", "experts.0.up_proj", "experts.0.down_proj". So they may be in the file of their tensor.

// A slice is what of a tensor of all experts is one's: its name, and its elements, in the tensor's.
type slice struct {
	name   string
	layout tensor.Layout
}

// of returns the slice of a tensor.
func (s *slice) of(w tensor.Weight) tensor.Weight {
	w.Name = s.name
	l := tensor.Layout{Shape: s.layout.Shape, Strides: s.layout.Strides, Offset: w.Layout.Offset + s.layout.Offset}
	w.Layout = l
	return w
}

// findStacks finds tensors of all experts, of modules where some become codes, and names the layers that they become.
func (f *Folder) findStacks(whole *loader.Checkpoint, a *layers.Architecture, linears map[string]linear) {
	f.stacks = make(map[string][]slice)
	stored := make(map[string]tensor.Weight, len(whole.Weights))
	for _, w := range whole.Weights {
		stored[w.Name] = w
	}
	a.Root.Walk(func(at string, m *layers.Module) {
		if m.Attrs["number"] == nil || m.Attrs["turned"] == nil || len(m.Children) > 0 || m.Text("suffix") != "" {
			return
		}
		found, some := make(map[string][]slice), false
		var kept []Kept
		for _, p := range m.Params {
			name := layers.Join(at, p.Name)
			name = cmp.Or(a.Weights[name], name)
			w, ok := stored[name]
			base, own := strings.CutSuffix(name, "."+p.Name)
			if parent := at[:strings.LastIndexByte(at, '.')+1]; !own && strings.HasPrefix(name, parent) { // such as Granite's
				base, own = at, true
			}
			if !ok || !own || !w.Layout.IsContiguous() || w.BigEndian {
				return // under another name, which nothing here knows
			}
			list := slicesOf(m, base, p)
			for i := range list {
				if module, is := strings.CutSuffix(list[i].name, ".weight"); is {
					why := f.keeps(module, list[i].of(w))
					if some = some || why == ""; why != "" && i == 0 {
						kept = append(kept, Kept{name, why})
					}
				}
			}
			found[name] = list
		}
		if !some { // they stay in one
			f.kept = append(f.kept, kept...)
			return
		}
		for name, list := range found {
			f.stacks[name] = list
			for _, s := range list {
				if module, is := strings.CutSuffix(s.name, ".weight"); is {
					linears[s.name] = linear{module, module}
				}
			}
		}
	})
}

// slicesOf divides a parameter of all experts.
func slicesOf(m *layers.Module, base string, p layers.Param) []slice {
	number, rank := p.Shape[0], len(p.Shape)
	which, bias := strings.CutSuffix(p.Name, "_bias")
	rows, columns, byRow, byColumn := p.Shape[rank-1], 1, 1, 1
	kind := ".bias"
	if !bias {
		kind = ".weight"
		rows, columns, byRow = p.Shape[1], p.Shape[2], p.Shape[2]
		if m.Bool("turned") {
			rows, columns, byRow, byColumn = columns, rows, 1, p.Shape[2]
		}
	}
	names, apart := []string{which}, 0
	if which == "gate_up_proj" {
		names, rows, apart = []string{"gate_proj", "up_proj"}, rows/2, rows/2*byRow
		if m.Bool("interleaved") {
			byRow, apart = 2*byRow, byRow
		}
	}
	all := 1
	for _, n := range p.Shape[1:] {
		all *= n
	}
	var list []slice
	for e := range number {
		for i, name := range names {
			l := tensor.Layout{Shape: tensor.Shape{rows, columns}, Strides: []int{byRow, byColumn}, Offset: e*all + i*apart}
			if bias {
				l.Shape, l.Strides = tensor.Shape{rows}, []int{byRow}
			}
			list = append(list, slice{fmt.Sprintf("%s.%d.%s%s", base, e, name, kind), l})
		}
	}
	return list
}

// runBytes is what a row needs while rows are read whose elements do not lie one behind the other: what of a column is read at once.
func runBytes(w tensor.Weight) int64 {
	l := w.Layout
	if len(l.Shape) < 2 || l.Strides[1] == 1 {
		return 0
	}
	return int64(l.Strides[0] * w.DType.Size())
}

// A rowReader reads rows of a matrix, or elements of a vector, however they lie.
type rowReader struct {
	weight tensor.Weight
	room   []byte
}

// read reads n rows from one on.
func (r *rowReader) read(ctx context.Context, to []byte, first, n int64) error {
	l, size, span := r.weight.Layout, int64(r.weight.DType.Size()), r.weight.Span()
	byRow, columns, byColumn := int64(l.Strides[0]), int64(1), int64(1)
	if len(l.Shape) == 2 {
		columns, byColumn = int64(l.Shape[1]), int64(l.Strides[1])
	}
	switch {
	case l.IsContiguous():
		return span.ReadAt(ctx, to, first*columns*size)
	case byColumn == 1 && columns > 1:
		for i := range n {
			if err := span.ReadAt(ctx, to[i*columns*size:][:columns*size], (first+i)*byRow*size); err != nil {
				return err
			}
		}
		return nil
	}
	run := ((n-1)*byRow + 1) * size
	r.room = slices.Grow(r.room[:0], int(run))[:run]
	for k := range columns {
		if err := span.ReadAt(ctx, r.room, (first*byRow+k*byColumn)*size); err != nil {
			return err
		}
		for i := range n {
			copy(to[(i*columns+k)*size:][:size], r.room[i*byRow*size:])
		}
	}
	return nil
}

// copyRows copies a tensor that stays, and whose elements do not lie one behind the other.
func (f *Folder) copyRows(ctx context.Context, it *item, file *os.File, at int64, progress func(int64)) error {
	w := it.weight
	rows := int64(w.Layout.Shape[0])
	rowBytes := w.Bytes() / rows
	const most = 1 << 20 // bytes
	some := max(1, min(rows, most/rowBytes, f.opts.MemoryBytes/4/rowBytes))
	buf, r := make([]byte, some*rowBytes), rowReader{weight: w}
	for first := int64(0); first < rows; first += some {
		n := min(some, rows-first)
		if err := r.read(ctx, buf[:n*rowBytes], first, n); err != nil {
			return fmt.Errorf("%s: %w", w.Name, err)
		}
		if _, err := file.WriteAt(buf[:n*rowBytes], at+first*rowBytes); err != nil {
			return err
		}
		progress(n * rowBytes)
	}
	return nil
}
