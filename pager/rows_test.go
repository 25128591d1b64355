package pager

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/optimem/optimem/device/emulated"
	"github.com/optimem/optimem/device/late"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/search"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// computedRows returns an embedding whose indices are the sum of two inputs, of a table that begins within its storage.
func computedRows(t *testing.T, dev *cpu.Device, rows, width, skip int) (*graph.Lowered, *file) {
	t.Helper()
	src := newFile(int64((rows + skip) * width * 4))
	g := &graph.Graph{}
	emit := func(path string, kind graph.Kind, in ...graph.Operand) graph.Operand {
		out, err := g.Emit(graph.Standard(), graph.Op{Kind: kind, Path: path, In: in})
		if err != nil {
			t.Fatal(err)
		}
		return g.Whole(out[0])
	}
	a, b := g.AddInput("a", tensor.Int64, tensor.Shape{6}), g.AddInput("b", tensor.Int64, tensor.Shape{6})
	w := g.AddWeight(tensor.Weight{
		Name: "words.weight", DType: tensor.Float32, Layout: tensor.Contiguous(rows+skip, width),
		Extent: storage.Extent{Source: src, Bytes: int64((rows + skip) * width * 4)},
	}, graph.Weight)
	table := graph.Operand{Value: w, Layout: tensor.Layout{
		Shape: tensor.Shape{rows, width}, Strides: []int{width, 1}, Offset: skip * width,
	}}
	ids := emit("ids", "add", g.Whole(a), g.Whole(b))
	x := emit("words", "embedding", table, ids)
	x = emit("act", "tanh", x)
	g.Outputs = []graph.Output{{Name: "y", Operand: x}}
	l, err := dev.Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	return l, src
}

// indices are an IO whose inputs add up to indices.
type indices struct {
	g   *graph.Graph
	in  [2][]byte
	out []byte
}

func (x *indices) Input(_ int, id graph.ValueID) []byte {
	if id == x.g.Inputs[0] {
		return x.in[0]
	}
	return x.in[1]
}
func (x *indices) Output(int, int, bool) []byte { return x.out }

func newIndices(g *graph.Graph, width int, ids ...int64) *indices {
	x := &indices{g: g, out: make([]byte, len(ids)*width*4)}
	for k, id := range ids {
		x.in[0] = binary.NativeEndian.AppendUint64(x.in[0], uint64(id-int64(k)))
		x.in[1] = binary.NativeEndian.AppendUint64(x.in[1], uint64(k))
	}
	return x
}

// TestComputedIndices: the rows that computed indices name are those that the whole table has there, pass after pass with
// other indices, some of them twice, on a device that computes late, too; one behind the last row is an error, and the pass
// after it is right.
func TestComputedIndices(t *testing.T) {
	const rows, width, skip = 20_000, 64, 3
	host := newCPU(t)
	l, src := computedRows(t, host, rows, width, skip)
	made := mustPlan(t, l, search.Options{Mode: plan.Page, MemoryBytes: 1 << 20})
	if len(made.Gathers) != 1 {
		t.Fatalf("the table is there\n%v", made)
	}
	for seed := range uint64(5) {
		dev := late.New(host, late.Options{Seed: seed})
		p, err := New(dev, Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, ids := range [][]int64{
			{0, 5, 5, 17, 2999, 0}, {5, 0, 0, rows - 1, 17, 5}, {1, 2, 3, 4, 5, 6}, {rows, 0, 0, 0, 0, 0}, {9, 0, 0, 0, -1, 0},
			{0, 0, 0, 0, 0, 0}, {2999, 2998, 2997, 2998, 2999, 1},
		} {
			x := newIndices(l.Graph, width, ids...)
			err := p.Pass(t.Context(), made, x)
			bad := false
			var want []byte
			for _, id := range ids {
				if bad = bad || id < 0 || id >= rows; !bad {
					want = append(want, src.data[(id+skip)*width*4:][:width*4]...)
				}
			}
			var op *OpError
			if bad {
				if !errors.As(err, &op) || op.Path != "words" {
					t.Errorf("indices %v: %v", ids, err)
				}
				continue
			}
			if err != nil {
				t.Fatalf("indices %v: %v", ids, err)
			}
			if got := tanhOf(t, host, want); !bytes.Equal(x.out, got) {
				t.Errorf("seed %d, indices %v: other rows", seed, ids)
			}
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// tanhOf computes an op by itself.
func tanhOf(t *testing.T, host *cpu.Device, x []byte) []byte {
	t.Helper()
	out := make([]byte, len(x))
	operand := func(b []byte) []cpu.Operand {
		return []cpu.Operand{{Bytes: b, DType: tensor.Float32, Layout: tensor.Contiguous(len(b) / 4)}}
	}
	if err := host.Compute(t.Context(), &graph.Op{Kind: "tanh"}, operand(x), operand(out), nil); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestRowsOfEachInstance: where an index of one of several callers has no row, that caller is told and leaves, and the
// others get theirs; a row that cannot be read fails one pass and no other.
func TestRowsOfEachInstance(t *testing.T) {
	const instances = 3
	l, src := sentence(t, tensor.Int64)
	host := newCPU(t)
	want := spoken(l, instances)
	whole := mustPlan(t, l, search.Options{Mode: plan.Resident, Instances: instances})
	if err := newPager(t, host, Options{}).Pass(t.Context(), whole, want); err != nil {
		t.Fatal(err)
	}
	for _, target := range []plan.Target{plan.CPU, emu} {
		made := mustPlan(t, l, search.Options{
			Mode: plan.Page, Target: target, Instances: instances, Lower: host.Lower, MemoryBytes: 1 << 20,
		})
		var p *Pager
		if target.Direct {
			p = newPager(t, host, Options{})
		} else {
			p = newPager(t, late.New(emulated.New(emulated.Options{CheckOrder: true}), late.Options{}), Options{})
		}
		for wrong := range instances {
			x := &callers{transfer: spoken(l, instances), left: make([]error, instances)}
			binary.LittleEndian.PutUint64(x.in[wrong][8*4:], words)
			if err := p.Pass(t.Context(), made, x); err != nil {
				t.Fatalf("%s, instance %d asks for a row that is not there: %v", target.Name, wrong, err)
			}
			for i := range instances {
				var op *OpError
				if i == wrong && (!errors.As(x.left[i], &op) || op.Path != "words") {
					t.Errorf("%s: instance %d leaves with %v", target.Name, i, x.left[i])
				} else if i != wrong && (x.left[i] != nil || !bytes.Equal(x.out[i], want.out[i])) {
					t.Errorf("%s: instance %d asks for a row that is not there, and instance %d gets others: %v", target.Name, wrong, i, x.left[i])
				}
			}
		}
		src.failAt = <-src.reads + 2
		src.reads <- src.failAt - 2
		if err := p.Pass(t.Context(), made, spoken(l, instances)); !errors.Is(err, errDisk) {
			t.Errorf("%s: %v", target.Name, err)
		}
		n := <-src.reads // what is read ahead may still be read
		src.failAt = 0
		src.reads <- n
		for range 2 {
			x := spoken(l, instances)
			if err := p.Pass(t.Context(), made, x); err != nil || !bytes.Equal(x.out[2], want.out[2]) {
				t.Errorf("%s: after a row could not be read: %v, or other bits", target.Name, err)
			}
		}
	}
}

// callers are instances of several callers who stay.
type callers struct {
	*transfer
	left []error
}

func (x *callers) Instances() int             { return len(x.in) }
func (x *callers) Wanted(int) bool            { return true }
func (x *callers) Left(i int, err error) bool { x.left[i] = err; return true }
