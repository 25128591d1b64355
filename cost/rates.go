// Package cost holds the rates of hosts and devices, and estimates from them how long ops, reads and copies take.
//
// It knows the shapes of ops and the sizes of transfers. It does not know plans, or how the rates were measured.
//
//	rates := cost.Rates{FLOPs: 50e9, DiskBytes: 2e9}
//	seconds := rates.WithGuesses().Reading(512<<20, 3)
package cost

import (
	"cmp"
	"maps"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/storage"
)

// Rates are what a host and its device do in a second: the table from which plans are costed. Numbers that are zero stand
// for guesses.
type Rates struct {
	// FLOPs is the arithmetic of dense products (matrix products, convolutions), KindFLOPs that of ops by kind.
	FLOPs     float64
	KindFLOPs map[graph.Kind]float64
	// Points are products by class and size, for which they are better known than by kind.
	Points map[string][]Point
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
	// Disks are those numbers of single disks, as far as they are known apart; DiskBytes and ReadSeconds stand for others.
	Disks map[storage.Disk]Disk
	// DecodeBytes is the rate at which a processor makes bytes of packed files, counted as they are then.
	DecodeBytes float64
	// CachedBytes is the rate of reads of what the host's page cache holds of the checkpoint, 0 where it is not known.
	CachedBytes float64
	// Measured says that the numbers are the host's own.
	Measured bool
	// CachedShare is how much of what a pass reads the page cache holds; see [Rates.Cached].
	CachedShare float64
}

// A Disk is what is known of one disk: the rate of reads, and what each costs whatever its size.
type Disk struct{ Bytes, ReadSeconds float64 }

// On returns the rates where a disk is read.
func (r Rates) On(disk storage.Disk) Rates {
	d, ok := r.Disks[disk]
	if !ok {
		return r
	}
	r.DiskBytes, r.ReadSeconds = cmp.Or(d.Bytes, r.DiskBytes), cmp.Or(d.ReadSeconds, r.ReadSeconds)
	return r
}

// WithDisks returns the rates with those of disks that are not known apart.
func (r Rates) WithDisks(bytes map[storage.Disk]float64) Rates {
	added := false
	for disk, rate := range bytes {
		if _, ok := r.Disks[disk]; ok {
			continue
		}
		if !added {
			added = true
			if r.Disks = maps.Clone(r.Disks); r.Disks == nil {
				r.Disks = make(map[storage.Disk]Disk)
			}
		}
		r.Disks[disk] = Disk{Bytes: rate}
	}
	return r
}

// guesses are the rates of a small server without a GPU.
var guesses = Rates{
	FLOPs: 20e9, MemoryBytes: 8e9, OpSeconds: 2e-6, CopyBytes: 12e9, CopySeconds: 10e-6, DiskBytes: 1e9,
	ReadSeconds: 100e-6,
	DecodeBytes: 2e9,
}

// WithGuesses returns the rates with guesses where there is nothing.
func (r Rates) WithGuesses() Rates { return r.Or(guesses) }

// Or returns the rates with those of others where there is nothing, but for products, kinds of ops and the page cache.
func (r Rates) Or(others Rates) Rates {
	for _, f := range []struct{ have, other *float64 }{
		{&r.FLOPs, &others.FLOPs}, {&r.MemoryBytes, &others.MemoryBytes}, {&r.OpSeconds, &others.OpSeconds},
		{&r.CopyBytes, &others.CopyBytes}, {&r.CopySeconds, &others.CopySeconds},
		{&r.DiskBytes, &others.DiskBytes}, {&r.ReadSeconds, &others.ReadSeconds}, {&r.DecodeBytes, &others.DecodeBytes},
	} {
		if *f.have == 0 {
			*f.have = *f.other
		}
	}
	return r
}

// opSeconds returns what an op is expected to take that does what cost says.
func (r Rates) opSeconds(op *graph.Op, in, out []graph.Spec, c graph.Cost) float64 {
	return r.LaunchSeconds(graph.Product{}, op, in, out, c, false)
}

// LaunchSeconds returns what an op is expected to take, with its weight packed or as it is. made is what its step says that
// it is as a product.
func (r Rates) LaunchSeconds(
	made graph.Product, op *graph.Op, in, out []graph.Spec, c graph.Cost, packed bool,
) float64 {
	computing := float64(c.FLOPs) / r.kindFLOPs(op.Kind)
	if p, ok := ProductOf(made, op.Kind, in, out, op.Attrs); ok {
		flops := 0.0
		if packed {
			flops = r.productFLOPs(product(PackedClass(p.Class), p.M, p.N, p.K))
		}
		if flops == 0 {
			flops = r.rawFLOPs(p)
		}
		if flops > 0 {
			computing = float64(c.FLOPs) / flops
		}
		if kind, _ := graph.Activation(op.Attrs); kind != "" {
			each := 1 / r.kindFLOPs(kind)
			if op.Kind != "linear" {
				each = max(each-1/r.kindFLOPs(ConvActivation), 0)
			}
			computing += float64(elements(out[0].Shape)) * each
		}
	}
	if program := op.Attrs.Program("program"); op.Kind == "chain" {
		computing = 0
		for _, step := range program {
			computing += float64(elements(out[0].Shape)) / r.kindFLOPs(step.Kind)
		}
	}
	return r.OpSeconds + max(computing, float64(c.Bytes)/r.MemoryBytes)
}

// kindFLOPs returns how fast ops of a kind are.
func (r Rates) kindFLOPs(kind graph.Kind) float64 {
	if f, ok := r.KindFLOPs[kind]; ok && f > 0 {
		return f
	}
	return r.FLOPs
}

// Seconds returns what an op is expected to take.
func (r Rates) Seconds(ops *graph.Registry, op *graph.Op, in, out []graph.Spec) float64 {
	def, ok := ops.Lookup(op.Kind)
	if !ok {
		return 0
	}
	return r.WithGuesses().opSeconds(op, in, out, def.Cost(in, out, op.Attrs))
}

// GraphSeconds returns what each op of a lowered graph is expected to take.
func (r Rates) GraphSeconds(l *graph.Lowered, ops *graph.Registry) []float64 {
	g := l.Graph
	seconds := make([]float64, len(g.Ops))
	var in, out []graph.Spec
	for i := range g.Ops {
		op, step := &g.Ops[i], &l.Steps[i]
		if _, ok := ops.Lookup(op.Kind); !ok && step.Cost == (graph.Cost{}) {
			continue
		}
		in, out = g.Specs(op, in[:0], out[:0])
		seconds[i] = r.LaunchSeconds(step.Product, op, in, out, StepCost(ops, step, op, in, out), false)
	}
	return seconds
}

// StepCost returns what an op costs the way that a step says.
func StepCost(ops *graph.Registry, step *graph.Step, op *graph.Op, in, out []graph.Spec) graph.Cost {
	if step.Cost != (graph.Cost{}) {
		return step.Cost
	}
	def, ok := ops.Lookup(op.Kind)
	if !ok {
		return graph.Cost{}
	}
	return def.Cost(in, out, op.Attrs)
}

// Cached returns the rates where the page cache holds a share of what a pass reads.
func (r Rates) Cached(share float64) Rates {
	if r.CachedBytes <= 0 || share <= 0 {
		return r
	}
	all := r.WithGuesses()
	r.CachedShare = share
	cached := func(rate float64) float64 { return 1 / (share/r.CachedBytes + (1-share)/rate) }
	each := func(seconds float64) float64 { return share*min(CachedReadSeconds, seconds) + (1-share)*seconds }
	r.DiskBytes, r.ReadSeconds = cached(all.DiskBytes), each(all.ReadSeconds)
	r.Disks = maps.Clone(r.Disks)
	for k, d := range r.Disks {
		if d.Bytes > 0 {
			d.Bytes = cached(d.Bytes)
		}
		d.ReadSeconds = each(d.ReadSeconds)
		r.Disks[k] = d
	}
	return r
}

// StepSeconds returns what an op is expected to take the way that a step says.
func (r Rates) StepSeconds(
	ops *graph.Registry, step *graph.Step, op *graph.Op, in, out []graph.Spec,
) float64 {
	return r.WithGuesses().LaunchSeconds(step.Product, op, in, out, StepCost(ops, step, op, in, out), false)
}

// Reading returns what a number of reads of so many bytes together take.
func (r Rates) Reading(bytes int64, reads int) float64 {
	return float64(bytes)/r.DiskBytes + float64(reads)*r.ReadSeconds
}

// ReadingPacked returns what a number of reads of packed files take, which are of so many bytes and stand for so many
// decoded ones: blocks are decoded while others are read, so that it is what the slower of the two takes, with one processor at
// least that decodes.
func (r Rates) ReadingPacked(bytes, decoded int64, reads int) float64 {
	return max(float64(bytes)/r.DiskBytes, r.Decoding(decoded)) + float64(reads)*r.ReadSeconds
}

// Decoding returns what making so many bytes of packed files takes of a processor.
func (r Rates) Decoding(bytes int64) float64 {
	if bytes == 0 {
		return 0
	}
	return float64(bytes) / r.DecodeBytes
}

// Copying returns what a number of copies to the device of so many bytes together take.
func (r Rates) Copying(bytes int64, copies int) float64 {
	return float64(bytes)/r.CopyBytes + float64(copies)*r.CopySeconds
}

// CopiedShare is how much of copying out of the page cache takes time from ops. The rest is done while they leave a
// processor alone.
const CopiedShare = 0.8

// OutOfCache returns what copying so many bytes, as far as the page cache holds them, takes from ops on the same processors.
func (r Rates) OutOfCache(bytes int64) float64 {
	if r.CachedShare == 0 {
		return 0
	}
	return CopiedShare * r.CachedShare * float64(bytes) / r.CachedBytes
}
