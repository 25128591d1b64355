// Package calibrate measures what a host does in a second, once, for the planner: how fast a disk is read past the page
// cache, how fast memory is copied, and how fast the CPU's kernels compute each kind of op.
//
// It does not know models, and plans nothing: it fills in the table that plans are costed from, and keeps that in a
// file of one entry for each processor and number of threads. Where that file lies is the caller's to say.
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

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/tensor"
)

// Options say how to measure. The zero value is right.
type Options struct {
	// Threads is the number of threads that compute; 0 is one for each processor.
	Threads int
	// OpTime is how long an op is repeated; 0 is a fifth of a second.
	OpTime time.Duration
	// Observe is told before each thing is measured: which of how many. It may be nil.
	Observe func(done, of int)
}

// CPU measures the kernels of the CPU and its memory. What it does not measure stays zero: the disk.
func CPU(ctx context.Context, o Options) (rates plan.Rates, err error) {
	if o.OpTime <= 0 {
		o.OpTime = time.Second / 5
	}
	dev := cpu.New(o.Threads, layers.Standard())
	defer func() { err = errors.Join(err, dev.Close()) }()
	stream, err := dev.NewStream()
	if err != nil {
		return rates, err
	}
	defer func() { err = errors.Join(err, stream.Close()) }()
	b := &bench{ctx: ctx, dev: dev, stream: stream, ops: layers.Standard(), time: o.OpTime}
	return b.rates(o.Observe)
}

// A bench runs one op again and again.
type bench struct {
	ctx    context.Context
	dev    *cpu.Device
	stream device.Stream
	ops    *layers.Registry
	time   time.Duration
}

// rates measures everything.
func (b *bench) rates(observe func(done, of int)) (plan.Rates, error) {
	r := plan.Rates{KindFLOPs: make(map[layers.Kind]float64), Measured: true}
	steps := len(samples) + 3
	tell := func(done int) {
		if observe != nil {
			observe(done, steps)
		}
	}
	tell(0)
	// An op of next to nothing shows what every op costs.
	tiny, err := b.measure(sample{kind: "add", in: []tensor.Shape{{4}, {4}}})
	if err != nil {
		return r, err
	}
	r.OpSeconds = tiny.seconds
	tell(1)
	// One row times a matrix that no cache holds is how weights are streamed from memory.
	row, err := b.measure(sample{kind: "linear", in: []tensor.Shape{{1, 4096}, {16384, 4096}}})
	if err != nil {
		return r, err
	}
	r.MemoryBytes = float64(row.cost.Bytes) / max(row.seconds-r.OpSeconds, minSeconds)
	tell(2)
	if r.CopyBytes, err = b.copies(); err != nil {
		return r, err
	}
	type sum struct{ flops, seconds float64 }
	sums := make(map[layers.Kind]sum)
	for i, s := range samples {
		tell(3 + i)
		m, err := b.measure(s)
		if err != nil {
			return r, err
		}
		for _, kind := range append([]layers.Kind{s.kind}, s.alike...) {
			t := sums[kind]
			t.flops += float64(m.cost.FLOPs)
			t.seconds += max(m.seconds-r.OpSeconds, minSeconds)
			sums[kind] = t
		}
	}
	for kind, t := range sums {
		r.KindFLOPs[kind] = t.flops / t.seconds
	}
	r.FLOPs = r.KindFLOPs["linear"]
	tell(steps)
	return r, nil
}

// minSeconds keeps rates finite where a clock is too coarse.
const minSeconds = 1e-9

// A measurement is what a sample takes.
type measurement struct {
	seconds float64
	cost    layers.Cost
}

// measure runs a sample for as long as the bench gives each, and returns the median time.
func (b *bench) measure(s sample) (measurement, error) {
	launch, cost, free, err := b.prepare(s)
	if err != nil {
		return measurement{}, fmt.Errorf("calibrate: %s: %w", s.kind, err)
	}
	defer free()
	var times []float64
	for begin := time.Now(); len(times) < 3 || time.Since(begin) < b.time && len(times) < 10_000; {
		start := time.Now()
		err := b.stream.Run(b.ctx, launch)
		if err == nil {
			err = b.stream.Sync(b.ctx)
		}
		if err != nil {
			return measurement{}, fmt.Errorf("calibrate: %s: %w", s.kind, err)
		}
		times = append(times, time.Since(start).Seconds())
	}
	times = times[1:] // the first one warms up
	slices.Sort(times)
	return measurement{times[len(times)/2], cost}, nil
}

// prepare makes a graph of a sample's op, and puts its operands in place.
func (b *bench) prepare(s sample) (l device.Launch, c layers.Cost, free func(), err error) {
	g := &layers.Graph{}
	op := layers.Op{Kind: s.kind, Attrs: s.attrs}
	for _, shape := range s.in {
		if shape == nil {
			op.In = append(op.In, layers.Absent)
			continue
		}
		op.In = append(op.In, g.Whole(g.AddInput("", tensor.Float32, shape)))
	}
	out, err := g.Emit(b.ops, op)
	if err != nil {
		return l, c, nil, err
	}
	for _, id := range out {
		g.Outputs = append(g.Outputs, layers.Output{Operand: g.Whole(id)})
	}
	lowered, err := b.dev.Lower(g)
	if err != nil {
		return l, c, nil, err
	}
	var held []device.Memory
	free = func() {
		for _, m := range held {
			_ = m.Free() // a second Free is none, and there is no other error on the CPU
		}
	}
	defer func() {
		if err != nil {
			free()
		}
	}()
	alloc := func(bytes int64) (device.Region, error) {
		if bytes == 0 {
			return device.Region{}, nil
		}
		m, err := b.dev.Alloc(bytes)
		if err != nil {
			return device.Region{}, err
		}
		held = append(held, m)
		return device.Region{Memory: m, Bytes: bytes}, nil
	}
	argument := func(o layers.Operand) (device.Argument, error) {
		if o.Value == layers.NoValue {
			return device.Argument{Operand: layers.Absent}, nil
		}
		region, err := alloc(g.Values[o.Value].Bytes())
		return device.Argument{Region: region, Operand: o, Spec: g.Spec(o)}, err
	}
	l = device.Launch{Step: lowered.Steps[0], Op: lowered.Graph.Ops[0]}
	var in, results []layers.Spec
	for i, o := range l.Op.In {
		a, err := argument(o)
		if err != nil {
			return l, c, nil, err
		}
		if err := b.fill(a.Region, uint64(i)); err != nil {
			return l, c, nil, err
		}
		l.In = append(l.In, a)
		in = append(in, a.Spec)
	}
	for _, id := range l.Op.Out {
		a, err := argument(g.Whole(id))
		if err != nil {
			return l, c, nil, err
		}
		l.Out = append(l.Out, a)
		results = append(results, a.Spec)
	}
	if l.Work, err = alloc(l.Step.WorkBytes); err != nil {
		return l, c, nil, err
	}
	def, _ := b.ops.Lookup(s.kind)
	return l, def.Cost(in, results, s.attrs), free, nil
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
