package search

import (
	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/slots"
	"github.com/optimem/optimem/storage"
)

// Options say what to plan for.
type Options struct {
	Mode   plan.Mode
	Target plan.Target
	// MemoryBytes is the budget on the device for weights, activations and workspace; 0 is no limit.
	MemoryBytes int64
	// HostBytes bounds what a device that is not Direct takes of host memory; 0 is no limit.
	HostBytes int64
	// SwapBytes bounds what activations take of a file in which they wait, where the target is Direct and its memory is
	// all that the host has; 0 is that none waits.
	SwapBytes int64
	// CachesAway has caches of attention wait while no op has them: in a file where the target is Direct, else in the host's
	// memory, within HostBytes.
	CachesAway bool
	// SlotBlocks is how many blocks of such caches a slot has at least; 0 is as few as cost little time by the rates.
	SlotBlocks int
	// CacheBlocks is how many blocks caches of attention have for now that have so many in all, where the target is Direct
	// and caches do not wait away; the zero value is all.
	CacheBlocks CacheBlocks
	// MaxGroup says from which size down a module is not cut any further; unset is every leaf module, and of these small
	// ones that follow each other and come from a disk are joined.
	MaxGroup plan.Limit
	// Capacity is what the chunk mode pins.
	Capacity plan.Limit
	// Slots bounds how many groups may be on their way or in use at once in the ring; 0 is as many as lie in the memory of
	// four neighbours.
	Slots int
	// Instances is how many micro-batches pass through each group while it is there; 0 is 1.
	Instances int
	// Ops tells what ops cost; nil is graph.Standard().
	Ops *graph.Registry
	// Rates are the device's; the zero value stands for guesses.
	Rates cost.Rates
	// Once says that one pass is expected: weights that stay lie there as the file has them, since to make them into the
	// forms that a Direct target computes fastest with takes longer than a pass gains, nothing is brought for a next pass,
	// and in the mode Auto large weights do not stay at all.
	Once bool
	// Like is a plan of the same model for other shapes, whose weights stay where they are if the budget allows it.
	Like *plan.Plan
	// Within is a plan of the same model that had more memory: what stays is to be some of what stays there, so that none is read
	// for it. Nil is any.
	Within *plan.Plan
	// Lower lowers a part of the graph, or the graph changed, for the device, and HostLower for the host's processor,
	// which is to compute what the device does not hold. Where Lower is nil nothing is changed; where HostLower is nil the
	// device computes everything.
	Lower, HostLower func(*graph.Graph) (*graph.Lowered, error)
	// HostRates are those of the host's processor.
	HostRates cost.Rates
	// HostOps are the ops that the device cannot compute, by their number in the graph: in the auto mode the host's
	// processor computes their groups, and the graph is one that HostLower lowered. Nil is none.
	HostOps []bool
	// Peers are further devices of the same kind over which the groups are placed behind the first, in order.
	Peers []Peer
	// Routing is what passes have shown of the routing of layers, by module; nil is nothing.
	Routing map[string]*slots.Curve
	// Stop is asked now and then while a plan is looked for, and [Plan] ends with an error of it. Nil never does.
	Stop func() error

	// disks are those that weights lie on, where these are several.
	disks []storage.Disk
	// asGiven says that groups are not to be merged.
	asGiven bool
	// lending says which ops experts are lent to, and the slots; nil is none.
	lending *lending
	// tables are those of embeddings of which only rows are brought, by result.
	tables map[graph.ValueID]table
}

// CacheBlocks are blocks of caches: of Of that there are to be at last, Now.
type CacheBlocks struct{ Of, Now int }

// A Peer is another device of the same kind, with memory of its own.
type Peer struct {
	// Name is what reports call it.
	Name string
	// MemoryBytes is the budget on it, as [Options.MemoryBytes] is on the first device; 0 is no limit.
	MemoryBytes int64
}

// filled returns the options with what stands for what was not given.
func (o Options) filled() Options {
	if o.Ops == nil {
		o.Ops = graph.Standard()
	}
	o.Rates, o.HostRates = o.Rates.WithGuesses(), o.HostRates.WithGuesses()
	o.Instances = max(o.Instances, 1)
	o.Slots = max(o.Slots, 0)
	if o.Target.AlignBytes == 0 {
		o.Target = plan.CPU
	}
	return o
}
