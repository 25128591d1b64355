// Package calibrate measures a host once for the planner: the disk's read rate without the page cache, the rate of
// memory copies, and the rate of the CPU's kernels for each kind of op.
//
// It knows neither models nor plans: it fills in the table of rates that plans are costed with, and stores it in a file
// with one entry per processor and number of threads. The caller chooses the file.
//
//	rates, err := calibrate.CPU(ctx, calibrate.Options{Threads: 2})
//	rates.DiskBytes, rates.ReadSeconds, err = calibrate.Disk(ctx, extents, 3*time.Second)
//	err = calibrate.Save(path, calibrate.Host{CPU: "…", Threads: 2}, rates)
package calibrate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/internal/cpu/arrange"
	"github.com/optimem/optimem/storage/packed"
	"github.com/optimem/optimem/tensor"
)

// Options say how to measure. The zero value is right.
type Options struct {
	// Threads is the number of threads that compute; 0 is one for each processor.
	Threads int
	// Time is roughly how long all of it takes; 0 is six seconds. In less than a second not every size is measured.
	Time time.Duration
	// Observe is told before each thing is measured: which of how many. It may be nil.
	Observe func(done, of int)
}

// CPU measures the kernels of the CPU and its memory. What it does not measure stays zero: the disk.
func CPU(ctx context.Context, o Options) (rates cost.Rates, err error) {
	if o.Time <= 0 {
		o.Time = 6 * time.Second
	}
	dev := cpu.New(o.Threads, graph.Standard())
	defer func() { err = errors.Join(err, dev.Close()) }()
	stream, err := dev.NewStream()
	if err != nil {
		return rates, err
	}
	defer func() { err = errors.Join(err, stream.Close()) }()
	b := &bench{ctx: ctx, dev: dev, stream: stream, ops: graph.Standard()}
	return b.rates(o)
}

// A bench runs one op again and again.
type bench struct {
	ctx    context.Context
	dev    *cpu.Device
	stream device.Stream
	ops    *graph.Registry
}

// rounds is how often everything is measured, some seconds apart where there are some: what else the host does now and
// then falls on one of them.
const rounds = 3

// rates measures everything.
func (b *bench) rates(o Options) (cost.Rates, error) {
	r := cost.Rates{
		KindFLOPs: make(map[graph.Kind]float64), Points: make(map[string][]cost.Point), Measured: true,
	}
	list, turns := samples, rounds
	if o.Time < time.Second {
		list, turns = quickSamples(), 1
	}
	list = append([]sample{nothing, streaming}, list...)
	each := o.Time / time.Duration(turns*len(list))
	best := make([][]measurement, len(list))
	for turn := range turns {
		for i, s := range list {
			if o.Observe != nil {
				o.Observe(turn*len(list)+i, turns*len(list)+1)
			}
			ops, err := b.measure(s, each)
			if err != nil {
				return r, fmt.Errorf("calibrate: %s: %w", s.kind, err)
			}
			for k := range ops {
				if turn == 0 {
					best[i] = append(best[i], ops[k])
				}
				best[i][k].seconds = min(best[i][k].seconds, ops[k].seconds)
			}
		}
	}
	if o.Observe != nil {
		o.Observe(turns*len(list), turns*len(list)+1)
	}
	var err error
	if r.CopyBytes, err = b.copies(); err != nil {
		return r, err
	}
	if r.DecodeBytes, err = packed.DecodeRate(b.ctx, decodeTime); err != nil {
		return r, err
	}
	r.OpSeconds = best[0][0].seconds
	stream := best[1][0]
	r.MemoryBytes = float64(stream.cost.Bytes) / max(stream.seconds-r.OpSeconds, minSeconds)
	sum(&r, list[2:], best[2:])
	if o.Observe != nil {
		o.Observe(turns*len(list)+1, turns*len(list)+1)
	}
	return r, nil
}

// sum makes rates of what was measured.
func sum(r *cost.Rates, list []sample, measured [][]measurement) {
	type total struct{ flops, seconds float64 }
	totals := make(map[graph.Kind]total)
	for i, ops := range measured {
		for _, m := range ops {
			seconds := max(m.seconds-r.OpSeconds, minSeconds)
			if p, ok := cost.ProductOf(m.product, m.op.Kind, m.in, m.out, m.op.Attrs); ok {
				if m.packed {
					p.Class = cost.PackedClass(p.Class)
				}
				r.Points[p.Class] = append(r.Points[p.Class], cost.Point{
					M: p.M, N: p.N, K: p.K, FLOPs: float64(m.cost.FLOPs) / seconds,
				})
			}
			if m.packed {
				continue
			}
			kinds := append([]graph.Kind{list[i].kind}, list[i].alike...)
			if m.op.Kind != list[i].kind { // what the device makes of it
				kinds = append(kinds, m.op.Kind)
			}
			for _, kind := range kinds {
				t := totals[kind]
				t.flops += float64(m.cost.FLOPs)
				t.seconds += seconds
				totals[kind] = t
			}
		}
	}
	for kind, t := range totals {
		if t.flops > 0 {
			r.KindFLOPs[kind] = t.flops / t.seconds
		}
	}
	r.FLOPs = r.KindFLOPs["linear"]
}

// decodeTime is how long packed blocks are decoded.
const decodeTime = 50 * time.Millisecond

// minSeconds keeps rates finite where a clock is too coarse.
const minSeconds = 1e-9

// A measurement is what an op takes.
type measurement struct {
	op      graph.Op
	product graph.Product // what the lowered step says
	in, out []graph.Spec
	// packed says that the weight lay packed.
	packed  bool
	cost    graph.Cost
	seconds float64
}

// measure runs the op of a sample for a while, as it is and with its weight packed, and returns what it takes when little
// else runs: the time that a quarter of the runs stay below. A device may make several ops of one.
func (b *bench) measure(s sample, limit time.Duration) ([]measurement, error) {
	ops, free, err := b.prepare(s)
	if err != nil {
		return nil, err
	}
	defer free()
	list := make([]measurement, len(ops))
	for i := range ops {
		list[i] = ops[i].measurement
		var times []float64
		// The first run warms up, unless there is no time for it.
		for begin := time.Now(); len(times) < 2 || time.Since(begin) < limit && len(times) < 10_000; {
			launch := &ops[i].launches[len(times)%len(ops[i].launches)]
			start := time.Now()
			err := b.stream.Run(b.ctx, *launch)
			if err == nil {
				err = b.stream.Sync(b.ctx)
			}
			if err != nil {
				return nil, err
			}
			times = append(times, time.Since(start).Seconds())
		}
		slices.Sort(times)
		list[i].seconds = times[(len(times)-1)/4]
	}
	return list, nil
}

// A prepared op has its operands in place, several times where they have to come from memory.
type prepared struct {
	measurement
	launches []device.Launch
}

// Weights of products are rotated among copies, as many as this takes, since a pass reads each of a model once; no cache
// that processors have to themselves holds it.
const (
	rotatedBytes = 64 << 20
	mostCopies   = 16
)

// prepare makes a graph of a sample's op, and puts the operands of all ops in place that the device makes of it.
func (b *bench) prepare(s sample) (ops []prepared, free func(), err error) {
	g, err := s.graph(b.ops)
	if err != nil {
		return nil, nil, err
	}
	lowered, err := b.dev.Lower(arrange.Graph(g, false)) // as sessions do
	if err != nil {
		return nil, nil, err
	}
	h := &held{bench: b}
	defer func() {
		if err != nil {
			h.free()
		}
	}()
	g = lowered.Graph
	for i := range g.Ops {
		if g.Ops[i].Path != sampled {
			continue
		}
		p, err := h.prepare(g, &g.Ops[i], lowered.Steps[i], s.weight)
		if err != nil {
			return nil, nil, err
		}
		ops = append(ops, p)
		if packed, ok, err := h.pack(p); err != nil {
			return nil, nil, err
		} else if ok {
			ops = append(ops, packed)
		}
	}
	return ops, h.free, nil
}

// prepare puts the operands of an op in place.
func (h *held) prepare(g *graph.Graph, op *graph.Op, step graph.Step, rotate bool) (p prepared, err error) {
	p.op, p.product = *op, step.Product
	l := device.Launch{Step: step, Op: *op}
	if l.Work, err = h.alloc(step.WorkBytes); err != nil {
		return p, err
	}
	for _, o := range op.In {
		a, err := h.argument(g, o)
		if err != nil {
			return p, err
		}
		l.In = append(l.In, a)
		p.in = append(p.in, a.Spec)
	}
	for _, id := range op.Out {
		a, err := h.argument(g, g.Whole(id))
		if err != nil {
			return p, err
		}
		l.Out = append(l.Out, a)
		p.out = append(p.out, a.Spec)
	}
	if p.cost = step.Cost; p.cost == (graph.Cost{}) {
		if def, ok := h.bench.ops.Lookup(op.Kind); ok {
			p.cost = def.Cost(p.in, p.out, op.Attrs)
		}
	}
	p.launches = []device.Launch{l}
	if _, ok := cost.ProductOf(step.Product, op.Kind, p.in, p.out, op.Attrs); ok && rotate {
		for len(p.launches) < min(mostCopies, int(rotatedBytes/max(l.In[1].Region.Bytes, 1))) {
			c := l
			c.In = slices.Clone(l.In)
			if c.In[1].Region, err = h.filled(l.In[1].Region.Bytes); err != nil {
				return p, err
			}
			p.launches = append(p.launches, c)
		}
	}
	return p, nil
}

// pack returns an op with its weights packed, false where that is no difference.
func (h *held) pack(raw prepared) (prepared, bool, error) {
	p := raw
	packer, ok := h.bench.stream.(device.Packer)
	if !ok || len(raw.launches[0].Step.Packs) == 0 {
		return p, false, nil
	}
	p.packed, p.launches = true, slices.Clone(raw.launches)
	for i := range p.launches {
		l := &p.launches[i]
		l.In = slices.Clone(l.In)
		for _, form := range l.Step.Packs {
			if form.Bytes == 0 || form.In != 1 {
				continue
			}
			into, err := h.alloc(form.Bytes)
			if err != nil {
				return p, false, err
			}
			if err := packer.Pack(h.bench.ctx, &l.Op, form, l.In[form.In], into); err != nil {
				return p, false, err
			}
			l.In[form.In].Region, l.In[form.In].Packed = into, true
		}
	}
	return p, p.launches[0].In[1].Packed, nil
}

// held is the memory of a sample.
type held struct {
	bench   *bench
	memory  []device.Memory
	regions map[graph.ValueID]device.Region
}

func (h *held) free() {
	for _, m := range h.memory {
		_ = m.Free() // a second Free is none, and there is no other error on the CPU
	}
}

func (h *held) alloc(bytes int64) (device.Region, error) {
	if bytes == 0 {
		return device.Region{}, nil
	}
	m, err := h.bench.dev.Alloc(bytes)
	if err != nil {
		return device.Region{}, err
	}
	h.memory = append(h.memory, m)
	return device.Region{Memory: m, Bytes: bytes}, nil
}

// filled returns memory with numbers in it.
func (h *held) filled(bytes int64) (device.Region, error) {
	r, err := h.alloc(bytes)
	if err == nil && bytes > 0 {
		err = h.bench.fill(r, uint64(len(h.memory)))
	}
	return r, err
}

// argument returns an operand, in memory that all operands of the same value share.
func (h *held) argument(g *graph.Graph, o graph.Operand) (device.Argument, error) {
	if o.Value == graph.NoValue {
		return device.Argument{Operand: graph.Absent}, nil
	}
	region, ok := h.regions[o.Value]
	if !ok {
		var err error
		if region, err = h.filled(g.Values[o.Value].Bytes()); err != nil {
			return device.Argument{}, err
		}
		if h.regions == nil {
			h.regions = make(map[graph.ValueID]device.Region)
		}
		h.regions[o.Value] = region
	}
	return device.Argument{Region: region, Operand: o, Spec: g.Spec(o)}, nil
}

// fill writes float32 numbers from a half to one, the same again and again in a large region: neither zeros nor
// denormals, which some processors compute in another time, and good for roots and logarithms.
func (b *bench) fill(r device.Region, seed uint64) error {
	const most = 1 << 20
	rng := rand.New(rand.NewPCG(seed, 1))
	values := make([]float32, min(r.Bytes/4, most))
	for i := range values {
		values[i] = 0.5 + rng.Float32()/2
	}
	data := tensor.Of(values, len(values)).Data
	for at := int64(0); at < r.Bytes; at += int64(len(data)) {
		piece := r
		piece.Offset, piece.Bytes = r.Offset+at, min(int64(len(data)), r.Bytes-at)
		if err := b.stream.CopyIn(piece, data[:piece.Bytes]); err != nil {
			return err
		}
	}
	return nil
}

// copies returns the bytes that a copy moves in a second, between memory that no cache holds.
func (b *bench) copies() (float64, error) {
	const bytes = 64 << 20
	m, err := b.dev.Alloc(bytes)
	if err != nil {
		return 0, fmt.Errorf("calibrate: %w", err)
	}
	defer func() { _ = m.Free() }()
	src := make([]byte, bytes)
	for i := 0; i < len(src); i += 4096 { // a page that was never written is one page of zeros
		src[i] = 1
	}
	var best time.Duration
	for i := 0; i < 3; i++ {
		if err := b.ctx.Err(); err != nil {
			return 0, err
		}
		start := time.Now()
		if err := b.stream.CopyIn(device.Region{Memory: m, Bytes: bytes}, src); err != nil {
			return 0, fmt.Errorf("calibrate: %w", err)
		}
		if took := time.Since(start); i == 1 || i > 1 && took < best {
			best = took
		}
	}
	return bytes / max(best.Seconds(), minSeconds), nil
}

// Arithmetic returns the FLOP/s that the processor's arithmetic gives as many threads at most, 0 where the CPU's kernels are not for
// it.
func Arithmetic(threads int) float64 { return cpu.Peak(threads) }
