package plan

import (
	"github.com/optimem/optimem/layers"
)

// Rates are what a host and its device do in a second: the table from which plans are costed. Numbers that are zero stand
// for guesses.
type Rates struct {
	// FLOPs is the arithmetic of dense products (matrix products, convolutions), KindFLOPs that of ops by kind.
	FLOPs     float64
	KindFLOPs map[layers.Kind]float64
	// MemoryBytes is what ops that move more than they compute read and write.
	MemoryBytes float64
	// OpSeconds is what an op costs whatever its size.
	OpSeconds float64
	// CopyBytes is the rate of copies to the device, CopySeconds what each costs whatever its size. A target that is
	// Direct has no such copies.
	CopyBytes   float64
	CopySeconds float64
	// DiskBytes is the rate of reads of the checkpoint, ReadSeconds what each costs whatever its size.
	DiskBytes   float64
	ReadSeconds float64
	// Measured says that the numbers are the host's own.
	Measured bool
}

// guesses are the rates of a small server without a GPU.
var guesses = Rates{
	FLOPs: 20e9, MemoryBytes: 8e9, OpSeconds: 2e-6, CopyBytes: 12e9, CopySeconds: 10e-6, DiskBytes: 1e9, ReadSeconds: 100e-6,
}

// withGuesses returns the rates with guesses where there is nothing.
func (r Rates) withGuesses() Rates {
	for _, f := range []struct{ have, guess *float64 }{
		{&r.FLOPs, &guesses.FLOPs}, {&r.MemoryBytes, &guesses.MemoryBytes}, {&r.OpSeconds, &guesses.OpSeconds},
		{&r.CopyBytes, &guesses.CopyBytes}, {&r.CopySeconds, &guesses.CopySeconds},
		{&r.DiskBytes, &guesses.DiskBytes}, {&r.ReadSeconds, &guesses.ReadSeconds},
	} {
		if *f.have == 0 {
			*f.have = *f.guess
		}
	}
	return r
}

// opSeconds returns what an op is expected to take.
func (r Rates) opSeconds(kind layers.Kind, c layers.Cost) float64 {
	flops := r.FLOPs
	if f, ok := r.KindFLOPs[kind]; ok && f > 0 {
		flops = f
	}
	return r.OpSeconds + max(float64(c.FLOPs)/flops, float64(c.Bytes)/r.MemoryBytes)
}

// Seconds returns what an op is expected to take.
func (r Rates) Seconds(ops *layers.Registry, op *layers.Op, in, out []layers.Spec) float64 {
	def, ok := ops.Lookup(op.Kind)
	if !ok {
		return 0
	}
	return r.withGuesses().opSeconds(op.Kind, def.Cost(in, out, op.Attrs))
}

// graphSeconds returns what each op of a lowered graph is expected to take.
func (r Rates) graphSeconds(l *layers.Lowered, ops *layers.Registry) []float64 {
	g := l.Graph
	seconds := make([]float64, len(g.Ops))
	var in, out []layers.Spec
	for i := range g.Ops {
		op := &g.Ops[i]
		if c := l.Steps[i].Cost; c != (layers.Cost{}) {
			seconds[i] = r.opSeconds(op.Kind, c)
			continue
		}
		def, ok := ops.Lookup(op.Kind)
		if !ok {
			continue
		}
		in, out = in[:0], out[:0]
		for _, o := range op.In {
			in = append(in, g.Spec(o))
		}
		for _, id := range op.Out {
			out = append(out, layers.Spec{DType: g.Values[id].DType, Shape: g.Values[id].Shape})
		}
		seconds[i] = r.opSeconds(op.Kind, def.Cost(in, out, op.Attrs))
	}
	return seconds
}
