package pager

import (
	"context"
	"encoding/binary"
	"sync"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/panicked"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// A gather is an embedding of which rows are read.
type gather struct {
	*plan.Gather
	path     string
	rowBytes int64
	// ids is the view of the indices, one after the other in the order of the result's rows.
	ids     graph.Operand
	idDType tensor.DType
	// first has the position of the first of each index that is the same.
	first map[int64]int
	// index has all of them.
	index []int64
	// source is the table's where it can tell whether it changed.
	source storage.Guarded
}

// gathers makes the embeddings of a plan ready of which rows are read, by op.
func gathers(p *plan.Plan) map[int]*gather {
	all := make(map[int]*gather, len(p.Gathers))
	g := p.Lowered.Graph
	for i := range p.Gathers {
		x := &gather{Gather: &p.Gathers[i], path: module(p.Gathers[i].Weight.Name), first: make(map[int64]int)}
		op := &g.Ops[x.Op]
		x.ids, x.idDType = op.In[1], g.Values[op.In[1].Value].DType
		n, _ := x.ids.Layout.NumElements()
		x.index = make([]int64, n)
		x.rowBytes = g.Values[op.Out[0]].Bytes() / max(n, 1)
		x.source, _ = x.Weight.Extent.Source.(storage.Guarded)
		all[x.Op] = x
	}
	return all
}

// gather reads the rows that an embedding wants of its table, to where the result lies or, for a device that cannot be
// read into, through host memory.
func (g *Pager) gather(ctx context.Context, p *prepared, instance int, io IO) error {
	x := p.gather
	out := p.launch.Out[0].Region
	if out.Bytes == 0 {
		return nil
	}
	var ids, rows []byte
	layout := x.ids.Layout
	if g.current.plan.Target.Direct {
		host, err := g.hostVisible()
		if err != nil {
			return err
		}
		if err := g.stream.Sync(ctx); err != nil {
			return err
		}
		ids, rows = host.HostBytes(p.launch.In[1].Region), host.HostBytes(out)
		layout = p.launch.In[1].Operand.Layout
	} else {
		ids = io.Input(instance, x.ids.Value)
		rows = g.rowsMemory.Bytes()[x.HostOffset+int64(instance)*x.HostStride:][:out.Bytes]
	}
	if err := x.find(ids, layout); err != nil {
		return opError(&p.launch.Op, err)
	}
	if err := g.readRows(ctx, x, rows); err != nil {
		return &GroupError{x.path, "load", err}
	}
	if g.current.plan.Target.Direct {
		return nil
	}
	return g.stream.CopyIn(out, rows)
}

// find reads the indices and checks that there are such rows.
func (x *gather) find(ids []byte, layout tensor.Layout) error {
	size := x.idDType.Size()
	for i := range x.index {
		if b := ids[layout.OffsetOf(i)*size:]; size == 4 {
			x.index[i] = int64(int32(binary.NativeEndian.Uint32(b)))
		} else {
			x.index[i] = int64(binary.NativeEndian.Uint64(b))
		}
	}
	rows := x.Layout.Shape[0]
	clear(x.first)
	for i, id := range x.index {
		if id < 0 || id >= int64(rows) {
			return &graph.IndexError{Index: id, Size: int64(rows)}
		}
		if _, ok := x.first[id]; !ok {
			x.first[id] = i
		}
	}
	return nil
}

// readRows fills the result: each row is read once, several at a time, and copied where it is wanted again.
func (g *Pager) readRows(ctx context.Context, x *gather, out []byte) error {
	size := int64(x.Weight.DType.Size())
	from := func(id int64) int64 {
		return x.Weight.Extent.Offset + (int64(x.Layout.Offset)+id*int64(x.Layout.Strides[0]))*size
	}
	r := &g.rows
	r.begin(g.opts.Readers)
	for i, id := range x.index {
		if x.first[id] == i {
			r.read(row{ctx, x.Weight.Extent.Source, out[int64(i)*x.rowBytes:][:x.rowBytes], from(id)})
		}
	}
	err := r.wait()
	if x.source != nil {
		if changed := x.source.Unchanged(); changed != nil {
			return changed
		}
	}
	if err != nil {
		return err
	}
	for id := range x.first {
		g.stats.ReadBytes += storage.Extent{
			Source: x.Weight.Extent.Source, Offset: from(id), Bytes: x.rowBytes,
		}.StoredBytes()
	}
	for i, id := range x.index {
		if k := x.first[id]; k != i {
			copy(out[int64(i)*x.rowBytes:][:x.rowBytes], out[int64(k)*x.rowBytes:])
		}
	}
	return nil
}

// A row is a small read.
type row struct {
	ctx    context.Context
	source storage.Source
	into   []byte
	at     int64
}

// read reads the row. A panic of its source must not end the process.
func (x *row) read() (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = panicked.By(v)
		}
	}()
	return x.source.ReadAt(x.ctx, x.into, x.at)
}

// rowReaders read rows with several goroutines, which wait for the next ones in between.
type rowReaders struct {
	work    chan row
	ended   sync.WaitGroup
	pending sync.WaitGroup
	mu      sync.Mutex
	err     error
}

// begin starts the goroutines where they do not run.
func (r *rowReaders) begin(n int) {
	if r.work != nil {
		return
	}
	r.work = make(chan row, n)
	for range n {
		r.ended.Go(func() {
			for x := range r.work {
				if err := x.read(); err != nil {
					r.mu.Lock()
					if r.err == nil {
						r.err = err
					}
					r.mu.Unlock()
				}
				r.pending.Done()
			}
		})
	}
}

func (r *rowReaders) read(x row) {
	r.pending.Add(1)
	r.work <- x
}

// wait returns once all reads are done, with the first error.
func (r *rowReaders) wait() error {
	r.pending.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.err
	r.err = nil
	return err
}

func (r *rowReaders) close() {
	if r.work != nil {
		close(r.work)
		r.ended.Wait()
		r.work = nil
	}
}
