package pager

import (
	"cmp"
	"slices"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
)

// An Inventory is what a pager holds, and the plans that say what lies where.
type Inventory struct {
	Held
	// Weights is the plan whose weights stay on the device, nil for none, Constants those whose constants are there.
	Weights   *plan.Plan
	Constants []*plan.Plan
	// Caches are those on the device, by name.
	Caches []HeldCache
	// The host's memory: that through which the device is filled, copies of weights, activations that wait, and rows of
	// embeddings.
	StagingBytes, CopyBytes, SwapBytes, RowBytes int64
	// CacheHostBytes is the host memory in which caches wait, with that through which tables of their blocks pass.
	CacheHostBytes int64
	// FileBytes is the file in which activations wait, CacheFileBytes that in which caches do, and CacheSlotBytes the memory
	// in which these lie while ops have them.
	FileBytes, CacheFileBytes, CacheSlotBytes int64
}

// A HeldCache is memory that outlives passes: the graph's value that it is, and what it takes.
type HeldCache struct {
	graph.Value
	HeldBytes int64
}

// Inventory returns what the pager holds now, between passes.
func (g *Pager) Inventory() Inventory {
	x := Inventory{
		Held: g.Held(), Weights: g.held,
		StagingBytes: hostBytes(g.staging) + hostBytes(g.transferMemory), SwapBytes: hostBytes(g.swaps), RowBytes: hostBytes(g.rowsMemory),
	}
	if g.file != nil {
		x.FileBytes = g.file.Bytes()
	}
	x.CacheSlotBytes, x.CacheHostBytes = bytesOf(g.away.slots), g.waitingBytes()
	if file := g.opts.Caches.file; file != nil {
		x.CacheFileBytes = file.Bytes()
	}
	x.CopyBytes = g.copies.bytes()
	for _, p := range g.programs.All() {
		if p.consts != nil {
			x.Constants = append(x.Constants, p.plan)
		}
	}
	for _, c := range g.opts.Caches.of {
		if c.owner == g && c.file == nil && c.host == nil {
			x.Caches = append(x.Caches, HeldCache{c.value, bytesOf(c.memory)})
		}
	}
	slices.SortFunc(x.Caches, func(a, b HeldCache) int { return cmp.Compare(a.Name, b.Name) })
	return x
}

func hostBytes(m device.HostMemory) int64 {
	if m == nil {
		return 0
	}
	return int64(len(m.Bytes()))
}
