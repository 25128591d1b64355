package pager

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/device/emulated"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/search"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// counted is a source that counts the bytes read of it.
type counted struct {
	*file
	bytes atomic.Int64
}

func (c *counted) ReadAt(ctx context.Context, p []byte, off int64) error {
	c.bytes.Add(int64(len(p)))
	return c.file.ReadAt(ctx, p, off)
}

const (
	words, wordWidth = 20_000, 64
	wordRow          = 4 * wordWidth
)

// sentence returns an embedding of a view of its input, which has the given dtype and holds every index twice, and a
// linear layer behind it.
func sentence(t *testing.T, dtype tensor.DType) (*graph.Lowered, *counted) {
	return sentenceOf(t, dtype, words)
}

// sentenceOf is sentence with a table of so many words.
func sentenceOf(t *testing.T, dtype tensor.DType, words int64) (*graph.Lowered, *counted) {
	t.Helper()
	src := &counted{file: newFile(words*wordRow + wordWidth*wordRow)}
	g := &graph.Graph{}
	ids := g.AddInput("ids", dtype, tensor.Shape{2, 5})
	weight := func(name string, at int64, rows int) graph.Operand {
		w := g.AddWeight(tensor.Weight{
			Name: name, DType: tensor.Float32, Layout: tensor.Contiguous(rows, wordWidth),
			Extent: storage.Extent{Source: src, Offset: at, Bytes: int64(rows) * wordRow},
		}, graph.Weight)
		return graph.Operand{Value: w, Layout: tensor.Contiguous(rows, wordWidth)}
	}
	turned := graph.Operand{Value: ids, Layout: tensor.Layout{Shape: tensor.Shape{5, 2}, Strides: []int{1, 5}}}
	out, err := g.Emit(graph.Standard(), graph.Op{
		Kind: "embedding", Path: "words", In: []graph.Operand{weight("words.weight", 0, int(words)), turned},
	})
	if err != nil {
		t.Fatal(err)
	}
	out, err = g.Emit(graph.Standard(), graph.Op{
		Kind: "linear", Path: "out", In: []graph.Operand{g.Whole(out[0]), weight("out.weight", words*wordRow, wordWidth)},
	})
	if err != nil {
		t.Fatal(err)
	}
	g.Outputs = []graph.Output{{Name: "y", Operand: g.Whole(out[0])}}
	l, err := newCPU(t).Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	return l, src
}

func spoken(l *graph.Lowered, instances int) *transfer {
	x := newTransfer(l.Graph, instances)
	for i := range x.in {
		for k := range 10 {
			id := 1 + (k%5)*(words/5-1) + i
			if l.Graph.Values[l.Graph.Inputs[0]].DType == tensor.Int32 {
				binary.LittleEndian.PutUint32(x.in[i][4*k:], uint32(id))
			} else {
				binary.LittleEndian.PutUint64(x.in[i][8*k:], uint64(id))
			}
		}
	}
	return x
}

// TestRowsOfEmbeddings: of a paged table, a pass reads the rows that it needs, each once, and the result is that of the
// whole table, in the memory that was planned.
func TestRowsOfEmbeddings(t *testing.T) {
	const instances = 3
	for _, dtype := range []tensor.DType{tensor.Int64, tensor.Int32} {
		l, src := sentence(t, dtype)
		host := newCPU(t)
		want := spoken(l, instances)
		resident := mustPlan(t, l, search.Options{Mode: plan.Resident, Instances: instances})
		if err := newPager(t, host, Options{}).Pass(t.Context(), resident, want); err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(want.out[0], want.out[1]) {
			t.Fatal("the instances cannot be told apart")
		}
		for _, target := range []plan.Target{plan.CPU, {Name: "emu", AlignBytes: 256}} {
			for _, mode := range []plan.Mode{plan.Page, plan.Auto} {
				o := search.Options{Mode: mode, Target: target, Instances: instances, Lower: host.Lower, MemoryBytes: 1 << 20}
				made := mustPlan(t, l, o)
				if len(made.Gathers) != 1 || made.MinBytes > 128<<10 || !strings.Contains(made.String(), "rows") {
					t.Fatalf("the table is there\n%v", made)
				}
				dev := emulated.New(emulated.Options{MemoryBytes: made.PeakBytes(), CheckOrder: true})
				p := newPager(t, dev, Options{})
				if target.Direct {
					p = newPager(t, host, Options{})
				}
				for range 3 {
					src.bytes.Store(0)
					got := spoken(l, instances)
					if err := p.Pass(t.Context(), made, got); err != nil {
						t.Fatal(err)
					}
					for i := range got.out {
						if !bytes.Equal(got.out[i], want.out[i]) {
							t.Fatalf("%s, instance %d: other bits", target.Name, i)
						}
					}
				}
				if n := src.bytes.Load(); n < 5*instances*wordRow || n > 5*instances*wordRow+2*wordWidth*wordRow {
					t.Errorf("%s: a pass reads %d bytes, and its rows are %d", target.Name, n, 5*instances*wordRow)
				}
				if p.Held().Total() != made.PassBytes() || !target.Direct && made.GatherBytes == 0 ||
					p.HostBytes() > made.HostBytes() {
					t.Errorf("%s: %d bytes are held, %d planned; %d of the host's for %d",
						target.Name, p.Held().Total(), made.PeakBytes(), p.HostBytes(), made.HostBytes())
				}
			}
		}
	}
}

// TestTablesStayInTheFile: in the mode auto a processor's large embedding is not brought though there is room, where its
// rows take next to nothing of the pass, and stays away for other shapes; it is brought where a pass is short, where it is
// small, where something else reads it, and in the mode resident.
func TestTablesStayInTheFile(t *testing.T) {
	const many = 70_000
	slow := cost.Rates{FLOPs: 1e6}
	l, src := sentenceOf(t, tensor.Int64, many)
	host := newCPU(t)
	o := search.Options{Mode: plan.Auto, Instances: 1, Lower: host.Lower, Rates: slow}
	spared := mustPlan(t, l, o)
	if len(spared.Gathers) != 1 || spared.Fixed.Bytes > many*wordRow/2 {
		t.Fatalf("the table is there:\n%v", spared)
	}
	o.Mode = plan.Resident
	whole := mustPlan(t, l, o)
	if len(whole.Gathers) != 0 || whole.Fixed.Bytes < many*wordRow {
		t.Fatalf("the table is not there:\n%v", whole)
	}
	want, got := spoken(l, 1), spoken(l, 1)
	if err := newPager(t, host, Options{}).Pass(t.Context(), whole, want); err != nil {
		t.Fatal(err)
	}
	src.bytes.Store(0)
	if err := newPager(t, host, Options{}).Pass(t.Context(), spared, got); err != nil {
		t.Fatal(err)
	}
	if n := src.bytes.Load(); n > many*wordRow/2 || !bytes.Equal(got.out[0], want.out[0]) {
		t.Errorf("%d bytes were read", n)
	}
	o.Mode, o.Rates, o.Like = plan.Auto, cost.Rates{FLOPs: 1e12, MemoryBytes: 1e12, OpSeconds: 1e-9}, spared
	if p := mustPlan(t, l, o); len(p.Gathers) != 1 || !plan.SameFixed(p, spared) {
		t.Errorf("the table is brought for the plan after:\n%v", p)
	}
	o.Like = nil
	if p := mustPlan(t, l, o); len(p.Gathers) != 0 {
		t.Errorf("rows are brought where that takes as long as all else:\n%v", p)
	}
	few, _ := sentence(t, tensor.Int64)
	o.Rates = slow
	if p := mustPlan(t, few, o); len(p.Gathers) != 0 {
		t.Errorf("rows are brought of a small table:\n%v", p)
	}
	g := *l.Graph
	g.Outputs = append([]graph.Output{{Name: "table", Operand: g.Whole(g.Ops[0].In[0].Value)}}, g.Outputs...)
	read, err := host.Lower(&g)
	if err != nil {
		t.Fatal(err)
	}
	if p := mustPlan(t, read, o); len(p.Gathers) != 0 {
		t.Errorf("the table is an output, and not there:\n%v", p)
	}
}

// TestRowsThatAreNotThere: an index without a row is the op's error, a row that cannot be read that of a load, and the
// pager goes on.
func TestRowsThatAreNotThere(t *testing.T) {
	l, src := sentence(t, tensor.Int64)
	host := newCPU(t)
	made := mustPlan(t, l, search.Options{Mode: plan.Page, MemoryBytes: 1 << 20})
	p := newPager(t, host, Options{})
	for _, id := range []int64{-1, words} {
		x := spoken(l, 1)
		binary.LittleEndian.PutUint64(x.in[0][8*3:], uint64(id))
		paged := p.Pass(t.Context(), made, x)
		whole := newPager(t, host, Options{}).Pass(t.Context(), mustPlan(t, l, search.Options{Mode: plan.Resident}), x)
		var op *OpError
		if !errors.As(paged, &op) || op.Path != "words" || whole == nil || paged.Error() != whole.Error() {
			t.Errorf("index %d: %v with rows, %v with the table", id, paged, whole)
		}
	}
	for _, src.panics = range []bool{false, true} {
		src.failAt = <-src.reads + 3
		src.reads <- src.failAt - 3
		err := p.Pass(t.Context(), made, spoken(l, 1))
		var group *GroupError
		if !errors.As(err, &group) || !errors.Is(err, errDisk) || group.Step != "load" {
			t.Errorf("a row cannot be read: %v", err)
		}
		if err := p.Pass(t.Context(), made, spoken(l, 1)); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	}
}
