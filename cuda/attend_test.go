//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/optimem/optimem/cuda"
	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/device/devicetest"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/tensor"
)

// TestAttend compares attention over caches with the CPU's, and rows together with rows alone.
func TestAttend(t *testing.T) {
	dev, _ := open(t, "order=lazy:3 memory=64M")
	compareAttend(t, dev)
}

// TestAttendPTX does so from the PTX for the oldest GPUs.
func TestAttendPTX(t *testing.T) {
	interpreted(t, "order=lazy:3 memory=64M", compareAttend, "om_attend", "om_attend_write", "om_attend_spans")
}

// An attendCase is attention over caches: how heads are, and what a row looks at.
type attendCase struct {
	heads, groups, width, values int
	dtype, cache                 tensor.DType
	window, chunk                int
	softcap                      float64
	sinks                        bool
	// distances is how many of them a bias tells apart, 0 for no bias.
	distances int
}

var attendCases = map[string]attendCase{
	"plain":            {heads: 2, groups: 2, width: 64, values: 64},
	"groups":           {heads: 4, groups: 2, width: 16, values: 40},
	"odd widths":       {heads: 3, groups: 1, width: 19, values: 7, softcap: 1.5},
	"wide values":      {heads: 1, groups: 1, width: 130, values: 300, sinks: true},
	"window":           {heads: 2, groups: 1, width: 16, values: 16, window: 50},
	"chunk":            {heads: 2, groups: 2, width: 16, values: 16, chunk: 300, sinks: true},
	"bfloat16 caches":  {heads: 2, groups: 1, width: 33, values: 33, cache: tensor.BFloat16},
	"float16 caches":   {heads: 2, groups: 1, width: 24, values: 24, cache: tensor.Float16, window: 280, softcap: 2, sinks: true},
	"bias":             {heads: 4, groups: 2, width: 16, values: 16, distances: 540},
	"a short bias":     {heads: 2, groups: 2, width: 16, values: 16, distances: 20, sinks: true, softcap: 2},
	"bfloat16":         {heads: 2, groups: 2, width: 32, values: 32, dtype: tensor.BFloat16},
	"int8 caches":      {heads: 4, groups: 2, width: 64, values: 40, cache: tensor.Int8, sinks: true},
	"int8, odd widths": {heads: 3, groups: 1, width: 19, values: 7, cache: tensor.Int8, window: 300},
	"int8, wide":       {heads: 1, groups: 1, width: 130, values: 300, cache: tensor.Int8},
	"int8 of halves":   {heads: 2, groups: 2, width: 16, values: 16, dtype: tensor.Float16, cache: tensor.Int8},
	"float16":          {heads: 2, groups: 1, width: 8, values: 8, dtype: tensor.Float16, sinks: true},
}

// A place is a row's sequence, of two, and its position there.
type place struct{ sequence, position int64 }

// attendBlocks is how many blocks a sequence has: positions are in three spans.
const attendBlocks = 36

// An attendRun is what a pass computed, and what it left in the caches.
type attendRun struct{ y, keys, values *tensor.Tensor }

// in returns the operands of a pass over rows, whose queries, keys and values follow from their places alone.
func (c attendCase) in(rows []place, before attendRun) []*tensor.Tensor {
	at, table := tensor.Contiguous(len(rows)), tensor.Contiguous(len(rows), attendBlocks)
	in := []*tensor.Tensor{nil, nil, nil, before.keys, before.values, {DType: tensor.Int64, Layout: at}, {DType: tensor.Int64, Layout: table}}
	for i, shape := range [][2]int{{c.heads, c.width}, {c.groups, c.width}, {c.groups, c.values}} {
		x, each := &tensor.Tensor{DType: c.dtype, Layout: tensor.Contiguous(len(rows), shape[0], shape[1])}, shape[0]*shape[1]
		all := numbers(c.dtype, 1100*each).Data
		for _, r := range rows {
			from := (max(r.position, 0)*2 + r.sequence) * int64(each*c.dtype.Size())
			x.Data = append(x.Data, all[from:][:each*c.dtype.Size()]...)
		}
		in[i] = x
	}
	for _, r := range rows {
		in[5].Data = binary.LittleEndian.AppendUint64(in[5].Data, uint64(r.position))
		for b := range int64(attendBlocks) { // the sequences' blocks lie between each other
			block := (attendBlocks-1-b)*2 + r.sequence
			if r.position < 0 || b > r.position/graph.BlockRows {
				block = -7 // nobody is to look there
			}
			in[6].Data = binary.LittleEndian.AppendUint64(in[6].Data, uint64(block))
		}
	}
	if c.sinks {
		in = append(in, numbers(c.dtype, c.heads))
	}
	if c.distances > 0 {
		if !c.sinks {
			in = append(in, nil)
		}
		in = append(in, numbers(tensor.Float32, c.heads, c.distances))
	}
	return in
}

func (c attendCase) attrs() graph.Attrs {
	return graph.Attrs{"scale": 0.3, "window": c.window, "chunk": c.chunk, "softcap": c.softcap}
}

// filled returns the case with its dtypes, and caches in which something is.
func (c attendCase) filled() (attendCase, attendRun) {
	if c.dtype == tensor.Invalid {
		c.dtype = tensor.Float32
	}
	if c.cache == tensor.Invalid {
		c.cache = c.dtype
	}
	places := 2 * attendBlocks * graph.BlockRows
	return c, attendRun{keys: cacheOf(c.cache, places, c.groups, c.width), values: cacheOf(c.cache, places, c.groups, c.values)}
}

// cacheOf returns a cache in which something is.
func cacheOf(d tensor.DType, places, groups, width int) *tensor.Tensor {
	if d != tensor.Int8 {
		return numbers(d, places, groups, width)
	}
	x := &tensor.Tensor{DType: d, Layout: tensor.Contiguous(places, groups, graph.CacheWidth(d, width))}
	for i := range places * groups {
		for k := range width {
			x.Data = append(x.Data, byte(31*(i*width+k)+i/7))
		}
		x.Data = binary.LittleEndian.AppendUint32(x.Data, math.Float32bits(1.0/64))
	}
	return x
}

// run computes a pass on a device.
func (c attendCase) run(t *testing.T, dev device.Device, rows []place, before attendRun) (attendRun, error) {
	t.Helper()
	return c.runOn(t, dev, c.in(rows, before))
}

func (c attendCase) runOn(t *testing.T, dev device.Device, in []*tensor.Tensor) (attendRun, error) {
	t.Helper()
	l := loweredOp(t, graph.Op{Kind: "attend", Path: "here", Attrs: c.attrs()}, in)
	for i, name := range map[int]string{3: "keys", 4: "values"} {
		l.Graph.Outputs = append(l.Graph.Outputs, graph.Output{Name: name, Operand: l.Graph.Ops[0].In[i]})
	}
	got, err := interpret(t.Context(), dev, l, nil)
	return attendRun{got["y"], got["keys"], got["values"]}, err
}

func compareAttend(t *testing.T, dev device.Device) {
	pool := cpu.NewPool(1)
	defer pool.Close()
	together := []place{{0, 529}, {1, 17}, {0, -1}, {0, 528}, {0, 530}, {1, 16}}
	for name, c := range attendCases {
		t.Run(name, func(t *testing.T) {
			c, before := c.filled()
			_, own := c.filled() // which the CPU writes to
			in := c.in(together, own)
			out, err := cpu.Compute(t.Context(), pool, graph.Standard(), "attend", c.attrs(), in...)
			if err != nil {
				t.Fatal(err)
			}
			bound := map[tensor.DType]float64{tensor.Float32: 4e-6, tensor.Float16: 2e-3, tensor.BFloat16: 1.6e-2}[c.dtype]
			var runs []attendRun
			for _, enough := range []int64{1, math.MaxInt64} { // a block for all spans, and one for each
				undo := cuda.AttendingFrom(enough)
				got, err := c.run(t, dev, together, before)
				undo()
				if err != nil {
					t.Fatal(err)
				}
				if err := devicetest.Compare(got.y, out[0], bound); err != nil {
					t.Error(err)
				}
				if !bytes.Equal(got.keys.Data, in[3].Data) || !bytes.Equal(got.values.Data, in[4].Data) {
					t.Error("the caches are not those that the CPU leaves")
				}
				runs = append(runs, got)
			}
			if !bytes.Equal(runs[0].y.Data, runs[1].y.Data) {
				t.Error("a block for each span gives other bits than one for all")
			}
			in = c.in(together, runs[0])
			in[1], in[2] = nil, nil
			got, err := c.runOn(t, dev, in)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.y.Data, runs[0].y.Data) {
				t.Error("rows that only read give other bits than those that wrote what they see")
			}
			compareMirrors(t, dev, pool, c)
			each := len(runs[0].y.Data) / len(together)
			for _, i := range []int{3, 0, 4, 5, 1, 2} { // in the order of their sequences
				if before, err = c.run(t, dev, together[i:i+1], before); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(before.y.Data, runs[0].y.Data[i*each:][:each]) {
					t.Errorf("row %d alone has other bits than among others", i)
				}
			}
		})
	}
}

// compareMirrors compares rows that are written to further blocks with the CPU's.
func compareMirrors(t *testing.T, dev device.Device, pool *cpu.Pool, c attendCase) {
	rows := []place{{0, 17}, {0, 18}, {1, 19}, {0, -1}}
	operands := func() []*tensor.Tensor {
		_, before := c.filled()
		in, also := c.in(rows, before), &tensor.Tensor{DType: tensor.Int64, Layout: tensor.Contiguous(len(rows), 2)}
		own := func(sequence uint64) uint64 { return (attendBlocks-2)*2 + sequence }
		for _, block := range []uint64{own(0), own(1), own(1), own(0), own(1), own(1), 0, 0} {
			also.Data = binary.LittleEndian.AppendUint64(also.Data, block)
		}
		for len(in) < 9 {
			in = append(in, nil)
		}
		return append(in, also)
	}
	in := operands()
	out, err := cpu.Compute(t.Context(), pool, graph.Standard(), "attend", c.attrs(), in...)
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.runOn(t, dev, operands())
	if err != nil {
		t.Fatal(err)
	}
	bound := map[tensor.DType]float64{tensor.Float32: 4e-6, tensor.Float16: 2e-3, tensor.BFloat16: 1.6e-2}[c.dtype]
	if err := devicetest.Compare(got.y, out[0], bound); err != nil {
		t.Error(err)
	}
	if !bytes.Equal(got.keys.Data, in[3].Data) || !bytes.Equal(got.values.Data, in[4].Data) {
		t.Error("rows in further blocks are not those that the CPU leaves")
	}
}

// TestAttendWritesTheLast: of rows that have one place, the last is what the cache has afterwards.
func TestAttendWritesTheLast(t *testing.T) {
	dev, _ := open(t, "order=lazy:3 memory=64M")
	c, before := attendCases["groups"].filled()
	rows := make([]place, 300)
	for i := range rows {
		rows[i] = place{1, 40}
	}
	in := c.in(rows, before)
	in[1] = numbers(c.dtype, len(rows), c.groups, c.width) // which differ
	l := loweredOp(t, graph.Op{Kind: "attend", Attrs: c.attrs()}, in)
	l.Graph.Outputs = []graph.Output{{Name: "keys", Operand: l.Graph.Ops[0].In[3]}}
	got, err := interpret(t.Context(), dev, l, nil)
	if err != nil {
		t.Fatal(err)
	}
	each := c.groups * c.width * c.dtype.Size()
	at := ((attendBlocks-1-40/graph.BlockRows)*2+1)*graph.BlockRows + 40%graph.BlockRows
	if want := in[1].Data[(len(rows)-1)*each:]; !bytes.Equal(got["keys"].Data[at*each:][:each], want) {
		t.Error("it is not the last row")
	}
}

// TestAttendFails: a position beyond a row's blocks, and a block that the caches do not have, are errors after the pass; nothing
// outside is read or written, and the device computes on.
func TestAttendFails(t *testing.T) {
	dev, _ := open(t, "order=lazy:3 memory=64M")
	c, before := attendCases["groups"].filled()
	for name, spoil := range map[string]func(in []*tensor.Tensor){
		"a position":      func(in []*tensor.Tensor) { binary.LittleEndian.PutUint64(in[5].Data, attendBlocks*graph.BlockRows) },
		"a block, above":  func(in []*tensor.Tensor) { binary.LittleEndian.PutUint64(in[6].Data, 2*attendBlocks) },
		"a block, below":  func(in []*tensor.Tensor) { binary.LittleEndian.PutUint64(in[6].Data, math.MaxUint64) },
		"the row's block": func(in []*tensor.Tensor) { binary.LittleEndian.PutUint64(in[6].Data[300/16*8:], 1<<40) },
	} {
		in := c.in([]place{{0, 300}}, before)
		spoil(in)
		_, err := interpret(t.Context(), dev, loweredOp(t, graph.Op{Kind: "attend", Attrs: c.attrs()}, in), nil)
		var index *graph.IndexError
		if !errors.As(err, &index) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := c.run(t, dev, []place{{0, 300}}, before); err != nil {
		t.Error(err)
	}
}

// TestAttendIsLeftToTheCPU where there is no kernel for its dtypes or widths.
func TestAttendIsLeftToTheCPU(t *testing.T) {
	spec := func(d tensor.DType, shape ...int) graph.Spec { return graph.Spec{DType: d, Shape: shape} }
	for name, c := range map[string]struct {
		dtype, cache tensor.DType
		width        int
		takes        bool
	}{
		"floats":      {tensor.Float32, tensor.BFloat16, 1024, true},
		"int8 caches": {tensor.Float32, tensor.Int8, 1024, true},
		"int8 rows":   {tensor.Int8, tensor.Int8, 64, false},
		"doubles":     {tensor.Float64, tensor.Float64, 64, false},
		"wide heads":  {tensor.Float32, tensor.Float32, 1025, false},
	} {
		places := graph.CacheWidth(c.cache, c.width)
		in := []graph.Spec{
			spec(c.dtype, 1, 2, c.width), spec(c.dtype, 1, 1, c.width), spec(c.dtype, 1, 1, 8), spec(c.cache, 32, 1, places),
			spec(c.cache, 32, 1, graph.CacheWidth(c.cache, 8)), spec(tensor.Int64, 1), spec(tensor.Int64, 1, 2),
		}
		if err := cuda.Supports(graph.Op{Kind: "attend"}, in, nil); (err == nil) != c.takes {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRowsAlone: a row of a product of a program with caches has the same bits with any other rows and by itself, in blocks of any
// size.
func TestRowsAlone(t *testing.T) {
	for _, capability := range []string{"cc=70", "cc=80"} {
		t.Run(capability, func(t *testing.T) {
			dev, _ := open(t, "order=lazy:3 memory=64M "+capability)
			compareAlone(t, dev)
		})
	}
}

func compareAlone(t *testing.T, dev *cuda.Device) {
	const f32, f16, bf16, i8 = tensor.Float32, tensor.Float16, tensor.BFloat16, tensor.Int8
	for name, c := range map[string]struct {
		kind         graph.Kind
		rows, weight tensor.DType
		precision    string
		k            int
	}{
		"floats":         {"linear", f32, f32, "", 520},
		"below zero":     {"linear", f32, f32, "", 72}, // products that are too small for a number leave its sign
		"a matrix":       {"matmul", f32, f32, "", 520},
		"brain halves":   {"linear", bf16, bf16, "", 520},
		"halves":         {"linear", f16, f16, "", 77},
		"tf32":           {"linear", f32, f32, "tf32", 520},
		"brain weight":   {"linear", f32, bf16, "", 520},
		"rounded":        {"linear", f32, bf16, "bf16", 520},
		"int8":           {"linear", f32, i8, "", 520},
		"int8 of halves": {"linear", bf16, i8, "", 72},
	} {
		t.Run(name, func(t *testing.T) {
			const n = 44
			var first []byte
			for i, m := range []int{1, 9, 130, 1, 9, 130, 1, 9, 130, 33, 2} {
				undo := func() {}
				if i < 9 {
					undo = onlyBlocks(i / 3)
				}
				x, w := numbers(c.rows, m, c.k), numbers(c.weight, n, c.k)
				op := graph.Op{Kind: c.kind, Attrs: graph.Attrs{graph.RowsAlone: true, "act": ""}}
				if c.precision != "" {
					op.Attrs["precision"] = c.precision
				}
				if name == "below zero" {
					x = tensor.Of(slices.Repeat([]float32{1e-30}, m*c.k), m, c.k)
					w = tensor.Of(slices.Repeat([]float32{-1e-30}, n*c.k), n, c.k)
				}
				in := []*tensor.Tensor{x, w}
				switch {
				case c.kind == "matmul":
					in[1] = numbers(c.weight, c.k, n)
				case c.weight == i8:
					for i := range n * c.k {
						w.Data = append(w.Data, byte(31*i+i/7))
					}
					in = append(in, nil, nil, numbers(c.rows, n))
				}
				g := loweredOp(t, op, in).Graph
				l, err := dev.Lower(g)
				if err != nil {
					undo()
				}
				if errors.Is(err, graph.ErrUnsupported) && c.precision != "" {
					t.Skip(err)
				}
				if err != nil {
					t.Fatal(err)
				}
				got, err := interpret(t.Context(), dev, l, nil)
				undo()
				if err != nil {
					t.Fatal(err)
				}
				row := got["y"].Data[:n*c.rows.Size()]
				if first == nil {
					first = row
				}
				if !bytes.Equal(row, first) {
					t.Errorf("run %d: the first of %d rows has other bits than it has alone", i, m)
				}
			}
		})
	}
}

// onlyBlocks leaves one of the sizes of blocks that products have, until it is undone.
func onlyBlocks(i int) (undo func()) {
	all := []func(){cuda.OnlyFloatBlocks(i), cuda.OnlyTensorBlocks(i), cuda.OnlyWeightBlocks(min(i, 1))}
	return func() {
		for _, undo := range all {
			undo()
		}
	}
}
