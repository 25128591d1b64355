package memory

import (
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
)

// Held is what somebody allocated on a device, by purpose, and whose plan said so.
type Held struct {
	Name        string
	BudgetBytes int64
	// DeviceBytes is what the device counts itself, DriverBytes what its driver says besides.
	DeviceBytes, DriverBytes int64
	// Weights is the plan whose weights stay there, nil for none, Constants those whose constants do.
	Weights   *plan.Plan
	Constants []*plan.Plan
	// Caches are those on the device, and what each takes.
	Caches []HeldCache
	// FixedBytes are weights that stay and constants, the others are the arenas of passes.
	FixedBytes, RingBytes, ActivationBytes, WorkBytes int64
	// StagingBytes, CopyBytes, SwapBytes, CacheHostBytes, RowBytes and CrossingBytes are of the host's memory.
	StagingBytes, CopyBytes, SwapBytes, CacheHostBytes, RowBytes, CrossingBytes int64
	// FileBytes is the file in which activations wait, CacheFileBytes that in which caches do, and CacheSlotBytes what
	// these lie in while ops have them.
	FileBytes, CacheFileBytes, CacheSlotBytes int64
}

// A HeldCache is memory that outlives passes: the value of a graph that it is, and what it takes.
type HeldCache struct {
	*graph.Value
	HeldBytes int64
}

// Now says what memory is for between passes.
func Now(list []Held, names Names) *Report {
	r := &Report{Moment: "now"}
	host := Device{Name: Host, Storages: []Storage{}}
	var staging, copies, wait, waiting, rows, crossings, file, caches int64
	for i := range list {
		h := &list[i]
		d := Device{
			Name: h.Name, BudgetBytes: h.BudgetBytes, HeldBytes: h.DeviceBytes, DriverBytes: h.DriverBytes,
			Storages: []Storage{}, Rest: []Rest{},
		}
		if h.Weights != nil && h.FixedBytes > 0 {
			d.fixed(h.Weights, names)
		}
		for _, p := range h.Constants {
			d.constants(p)
		}
		for _, c := range h.Caches {
			d.cache(c.Value, c.HeldBytes)
		}
		d.rest(cacheSlots, h.CacheSlotBytes)
		caches, waiting = caches+h.CacheFileBytes, waiting+h.CacheHostBytes
		d.rest("slots", h.RingBytes)
		d.rest("activations, none alive", h.ActivationBytes)
		d.rest("workspace", h.WorkBytes)
		r.Devices = append(r.Devices, d)
		staging, copies, wait = staging+h.StagingBytes, copies+h.CopyBytes, wait+h.SwapBytes
		rows, crossings, file = rows+h.RowBytes, crossings+h.CrossingBytes, file+h.FileBytes
	}
	if host.host(staging, copies, wait, waiting, rows, crossings); len(host.Rest) > 0 {
		host.HeldBytes = host.RestBytes()
		r.Devices = append(r.Devices, host)
	}
	r.file(file, caches)
	return r
}
