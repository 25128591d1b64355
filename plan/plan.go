// Package plan is the program that a pager executes: where every byte of a pass lies and when it gets there, decided
// before anything is allocated. It also has what follows from a plan: its report, and what holds memory at each op.
//
// It knows graphs and bytes. It does not know devices, clocks or goroutines, nor how a plan is found: that is
// [github.com/optimem/optimem/plan/search]. So plans can be printed, compared as text and costed without hardware, and
// a plan's peak memory is the size of its arenas.
//
//	fmt.Print(p)                               // a line for each group, then the sums
//	for op, h := range p.Holdings() { … }      // what is in use while each op runs
//	fmt.Println(p.PeakBytes(), p.Forecast.Seconds)
package plan

import (
	"fmt"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// A Mode is a way to fit a model into memory.
type Mode string

// The modes.
const (
	// Resident keeps everything on the device.
	Resident Mode = "resident"
	// Page streams groups through a ring of slots.
	Page Mode = "page"
	// Chunk pins the largest prefix that fits a capacity.
	Chunk Mode = "chunk"
	// Auto keeps what a budget allows, chosen by simulation, and streams the rest.
	Auto Mode = "auto"
)

// A Unit is what a limit counts.
type Unit uint8

// The units.
const (
	// Unset is the unit of a limit that was not given.
	Unset Unit = iota
	Params
	Bytes
)

// A Limit is a size in parameters or in bytes.
type Limit struct {
	N    int64
	Unit Unit
}

// String writes the limit as a user gives it.
func (l Limit) String() string {
	switch l.Unit {
	case Params:
		return fmt.Sprintf("%d parameters", l.N)
	case Bytes:
		return fmt.Sprintf("%d bytes", l.N)
	}
	return "no limit"
}

// A Target is what a plan must know of a device.
type Target struct {
	// Name is what reports say.
	Name string
	// AlignBytes is what every offset on the device is a multiple of.
	AlignBytes int64
	// Direct is set where files are read straight into the device's memory: on the CPU. Elsewhere bytes go through host
	// memory, which holds a copy of as many weights as it may.
	Direct bool
	// Unpacks is set where the device decodes blocks of packed files itself (device.Unpacker), so that they go through host
	// memory as files have them.
	Unpacks bool
	// Pins is set where the device copies by itself from and to memory of the host that is page-locked, and only then
	// while the host goes on: inputs and outputs pass through such memory.
	Pins bool
}

// CPU is the target whose memory is the host's: offsets at cache lines.
var CPU = Target{Name: "cpu", AlignBytes: 64, Direct: true}

// A Plan is where everything lies and when it gets there: for one graph, with the shapes of its inputs, and one kind of
// device.
//
// A pass runs the Groups in order, and for each group all instances one after the other. Before a group runs, its Parts
// lie in its slot of the ring, filled by the reads in its Spans once the slot is free (After); its Inputs are copied in
// and what waited in host memory comes back; then its ops run, each with operands where Fixed, the slot, Consts and
// Places say; last its Outputs are copied out, and what waits next leaves. Weights are never copied back. Where Sides
// is set two plans run in turns instead, and this one is their report.
//
// # Who owns what
//
// A plan owns nothing and is in nobody's memory: offsets count from the beginning of arenas that whoever runs it
// allocates, as large as its …Bytes say. It is not changed once it was made, so any number of goroutines and pagers may
// share one; a pager knows it by its address. Its spans name the sources of the checkpoint, which must stay open as
// long as passes run.
//
// # What is checked
//
// A plan is trusted: a pager that is given one checks neither offsets nor order. What makes it trustworthy is in the
// tests of the search, which follow drawn plans byte by byte: nothing is read that is not there, nothing is overwritten
// that is needed, no two things share a byte at one time, no arena is larger than the budget, and the forecast is what
// a simulation of the finished plan gives. Tests of the pager run plans on devices that do everything as late as events
// allow. What can go wrong in good plans (a file that is cut short or changed, a device that refuses memory) comes up
// in the pass, not here.
type Plan struct {
	Mode      Mode
	Target    Target
	Lowered   *graph.Lowered
	Instances int
	// Once says that one pass is expected: no paged group of the next is brought while it ends.
	Once bool
	// Early says that the first pass may begin before the weights that stay are there: see [Plan.FirstReads].
	Early bool
	// Groups are the steps of a pass, in order.
	Groups []Group
	// Disks are those that weights lie on, where these are several.
	Disks []storage.Disk
	// SplitBytes is the size above which weights are computed by rows, as groups of their own; 0 is none are.
	SplitBytes int64
	// Tied are the weights that several groups read.
	Tied []Tied
	// Places has one entry for each value of the graph; those of weights, states and constants are empty, since the
	// groups say where these are.
	Places []Place
	// Fixed are the weights that stay: residents and states.
	Fixed Fixed
	// Consts are the graph's constants, in an arena of their own, since they depend on the shapes of the inputs.
	Consts []Part
	// Caches are the graph's, each in memory of its own that outlives passes and plans, or away: in a file where the target is
	// Direct, else in the host's memory. CacheBytes is what they take together of the device's memory.
	Caches     []Cache
	CacheBytes int64
	// CacheSlots is how many slots of CacheSlotBytes each there are, within CacheBytes, in which caches that wait away lie
	// while an op has them: CacheSlotBlocks blocks of each, with which the op runs for some of its rows at a time, or all
	// where that is 0. The last CacheTableBytes of a slot are tables of these rows, through as much memory of the host's where
	// the target is not Direct. CacheAwayBytes is what caches take where they wait.
	CacheSlots, CacheSlotBlocks                     int
	CacheSlotBytes, CacheTableBytes, CacheAwayBytes int64
	// The device's other arenas: RingBytes for paged groups, ActivationBytes for inputs and results, WorkBytes for the
	// scratch memory of an op.
	ConstBytes, RingBytes, ActivationBytes, WorkBytes int64
	// LandBytes is the end of the ring that is no slot: blocks of packed files that the device decodes lie there on their way.
	LandBytes int64
	// StagingBytes is the host memory through which weights pass to a device that is not Direct, and HostCopyBytes that
	// in which weights stay so that the disk is read once.
	StagingBytes, HostCopyBytes int64
	// TransferBytes is the host memory through which inputs and outputs of a pass go where the target pins: of those
	// that have no room there the host waits for each copy.
	TransferBytes int64
	// SwapBytes is the host memory for activations that wait there until they are needed again; where the target is Direct
	// it is a file's.
	SwapBytes int64
	// DecodeBytes is the memory that reads of packed files take, of the host's.
	DecodeBytes int64
	// SourceBytes is the host memory of sources that compute what weights are: see [graph.Graph].
	SourceBytes int64
	// Gathers are embeddings whose tables are neither held nor moved, GatherBytes the host memory through which their rows
	// pass to a device that is not Direct.
	Gathers     []Gather
	GatherBytes int64
	// Experts are those that are lent to ops while they run, Routed what a pass reads of them.
	Experts []Experts
	Routed  Routed
	// MovedBytes counts what reaches the ring in one pass, over-read included.
	MovedBytes int64
	// PastCache says that what is paged is read from the disk even where the host's page cache holds it: to copy it out of there takes
	// processors from ops.
	PastCache bool
	// MinBytes is the least budget for which there is a plan in this mode.
	MinBytes int64
	// Forecast is what a pass is expected to take.
	Forecast Forecast
	// Sides is set where the host's processor computes some of the groups. What is above is then the device's part, and
	// Groups are those of both in the order of execution, for reports alone: the sides' plans are what runs.
	Sides *Sides

	// Cuts are the rows at which some weights of more than SplitBytes are cut; the others are cut into parts of about
	// equal size.
	Cuts map[CutWeight][]int
}

// A Group is a run of ops that need their weights at one time.
type Group struct {
	// Path is the module's. A group that several were joined to has that which all of them are in, and Joined lists them.
	Path   string
	Joined []Layer
	// The group runs the ops [First, End) of the graph.
	First, End int
	// Parts are the weights that its ops read and that are not among the fixed ones, in the slot; Params and WeightBytes
	// count all that its ops read.
	Parts               []Part
	Params, WeightBytes int64
	// Spans are the reads that fill the slot.
	Spans []Span
	// The slot is the bytes [SlotOffset, SlotOffset+SlotBytes) of the ring. It may be filled once the group that ran
	// After groups with a slot earlier is done, counted around from pass to pass; 0 is never to wait.
	SlotOffset, SlotBytes int64
	After                 int
	// Copied is set where the group's bytes stay in host memory, at CopyOffset of the copies, and the disk is read once.
	Copied     bool
	CopyOffset int64
	// Decoded is set where the bytes that Spans read come from blocks of packed files that stay ([Fixed.Stored]), and not
	// from the disk.
	Decoded bool
	// LandBytes is the device memory through which blocks of packed files go that the device decodes into the slot: Spans are
	// then reads of these files, not of what is packed there. 0 is that the host decodes, or that nothing is packed.
	LandBytes int64
	// Where EndRow is not 0, the group is a part of an op that is computed by rows of its weight: [FirstRow, EndRow).
	FirstRow, EndRow int
	// Inputs are copied in before the ops run, Outputs (indices of the graph's) copied out after.
	Inputs  []graph.ValueID
	Outputs []int
	// SwapIn are the activations that come back from host memory before the ops run, SwapOut those that go there after.
	// What comes back twice, unchanged as all values are, may have left once.
	SwapIn, SwapOut []Swap
	// Again are its ops that compute activations anew, which were not kept since an earlier op made them, in order.
	Again []Again
	// Rows says that an op of the group is an embedding of which only rows are brought.
	Rows bool
	// Lent says that experts are lent to an op of the group.
	Lent bool
	// OnHost is set for groups that the host's processor computes. Device is the number of the device that computes the
	// others, where there are several.
	OnHost bool
	Device int
	// Seconds is what its ops and the copies of its inputs, outputs and swaps are expected to take for one instance,
	// LoadSeconds what filling the slot does.
	Seconds, LoadSeconds float64
	// DiskSeconds are the parts of that by the disks of [Plan.Disks], which are read at the same time, nil where those are
	// not several.
	DiskSeconds []float64
	// SwapSeconds is that part of Seconds which its swaps take, AgainSeconds that of what it computes anew.
	SwapSeconds, AgainSeconds float64
}

// A Layer is a module's part of a group: so many of its ops, the weights that they read, and what they are expected to
// take for one instance.
type Layer struct {
	Path                string
	Ops                 int
	Params, WeightBytes int64
	Seconds             float64
}

// Layers lists what the group computes by module, in order: those that were joined to it, else itself.
func (g *Group) Layers() []Layer {
	if g.Joined == nil {
		return []Layer{{g.Path, g.End - g.First, g.Params, g.WeightBytes, g.Seconds}}
	}
	return g.Joined
}

// Paged reports whether the group has to be brought.
func (g *Group) Paged() bool { return len(g.Parts) > 0 }

// A Cache is one of the graph's: memory that plans of one session share by its name.
type Cache struct {
	Value graph.ValueID
	Name  string
	// Bytes is what is allocated for it, as rounded up to what the device aligns to: less than the value has where it is to
	// grow, 0 where it waits away.
	Bytes int64
	// Away is set where it waits away while no op has it, and then lies at Offset of a slot; −1 where none ever does.
	Away   bool
	Offset int64
}

// A Swap is a copy of an activation to or from host memory, where one instance's bytes begin at Offset, and the next
// instance's Stride bytes later. What comes back is a value of its own: the one that left, under another number.
type Swap struct {
	Value graph.ValueID
	// Bytes are those of one instance.
	Bytes          int64
	Offset, Stride int64
}

// An Again is an op, by its number in the graph, that computes an activation anew: the value that an earlier op made,
// under another number. To copy that to where activations wait, and back, would take longer.
type Again struct {
	Op    int
	Value graph.ValueID
	// Bytes are those of one instance.
	Bytes int64
}

// A Tied weight is one that several groups read. It stays, or is moved once for each of the groups that are paged.
type Tied struct {
	Value   graph.ValueID
	Readers int
	// Moves is how often it is moved in a pass.
	Moves int
}

// A Place is where a value lies in the arena of activations.
type Place struct {
	Offset int64
	Bytes  int64
	// Stride is the distance from one instance's copy to the next; 0 where an instance ends before the next begins.
	Stride int64
	// First and Last are the ops between which the value is alive: First writes it, Last is the last to read it.
	First, Last int
	// Over says that First writes the value over one of its operands, which has the same place and is not needed any more.
	// Operand is that value.
	Over    bool
	Operand graph.ValueID
}

// PassBytes returns the device memory that a pass takes.
func (p *Plan) PassBytes() int64 {
	return p.Fixed.Bytes + p.ConstBytes + p.CacheBytes + p.RingBytes + p.ActivationBytes + p.WorkBytes
}

// PeakBytes returns all the device memory that the plan takes: for a pass, or while weights are packed before the first
// one, whatever is more.
// Of several devices it is the one that takes the most.
func (p *Plan) PeakBytes() int64 {
	n := max(p.PassBytes(), p.Fixed.Bytes+p.CacheBytes+p.Fixed.PackingBytes)
	if p.Sides != nil && p.Sides.Peer != "" {
		n = max(n, p.Sides.Host.PeakBytes())
	}
	if p.Target.Direct {
		n += p.DecodeBytes + p.SourceBytes
	}
	return n
}

// WaitingBytes returns the host memory in which caches wait for ops of a device with memory of its own, and through which tables
// of their blocks pass.
func (p *Plan) WaitingBytes() int64 {
	if p.Target.Direct {
		return 0
	}
	return p.CacheAwayBytes + int64(p.CacheSlots)*p.CacheTableBytes
}

// HostBytes returns the host memory that the plan takes for a device with memory of its own.
func (p *Plan) HostBytes() int64 {
	n := p.StagingBytes + p.HostCopyBytes + p.GatherBytes + p.TransferBytes
	if !p.Target.Direct {
		n += p.SwapBytes + p.DecodeBytes + p.SourceBytes + p.WaitingBytes()
	}
	switch {
	case p.Sides != nil && p.Sides.Peer != "":
		n += p.Sides.Host.HostBytes() + p.Sides.CrossingBytes
	case p.Sides != nil:
		n += p.Sides.Host.PeakBytes() + p.Sides.CrossingBytes
	}
	return n
}

// A CapacityError says that a model does not fit.
type CapacityError struct {
	// Path is the group that does not fit, "" where it is everything together.
	Path string
	// NeedBytes is what it takes, HaveBytes what there is for it.
	NeedBytes, HaveBytes int64
	// MinBytes is the smallest budget that works in this mode.
	MinBytes int64
	// Host is set where it is the budget of host memory that is too small, beside a device with memory of its own.
	Host bool
}

// Error says what is missing.
func (e *CapacityError) Error() string {
	if e.Host {
		return fmt.Sprintf("what host memory has to hold does not fit: %d bytes needed, %d there", e.NeedBytes, e.HaveBytes)
	}
	what := "the model"
	if e.Path != "" {
		what = e.Path
	}
	return fmt.Sprintf("%s does not fit: %d bytes needed, %d there", what, e.NeedBytes, e.HaveBytes)
}

// A Gather is an embedding of which a pass brings the rows that its indices name, and no others, to where its result
// lies: the table is in no memory at all.
type Gather struct {
	// Op is the index of the embedding. Its table is absent in the graph that is planned.
	Op int
	// Weight is the storage of the table, Layout the table's view of it.
	Weight tensor.Weight
	Layout tensor.Layout
	// HostOffset is where the first instance's rows lie in host memory on the way to a device that is not Direct, and
	// HostStride how far apart those of two instances are.
	HostOffset, HostStride int64
}

// A Forecast is what a pass is expected to take once the session is warm.
type Forecast struct {
	Seconds float64
	// ComputeSeconds and LoadSeconds are what ops and loads take by themselves, StallSeconds how long ops wait for loads.
	ComputeSeconds, LoadSeconds, StallSeconds float64
	// SwapSeconds is that part of ComputeSeconds in which activations go to wait and come back.
	SwapSeconds float64
	// CacheSeconds is how long caches that wait away take to come and go, if sequences are as long as they may: a part of Seconds
	// where they are in a file, else ops run meanwhile.
	CacheSeconds float64
	// AgainSeconds is that part of ComputeSeconds in which activations are computed anew.
	AgainSeconds float64
	// LeastSeconds is what a pass takes whatever waits: what the processors do or what the loads take, whichever is more.
	LeastSeconds float64
	// Bound says what the time is bounded by: "compute", "transfer" or "disk".
	Bound string
	// Measured says that the rates were measured on the host and are not guesses.
	Measured bool
}

// A CutWeight is a view of the weight at an extent, where ops of a kind read it: so many rows from an element on.
type CutWeight struct {
	Extent      storage.Extent
	Kind        graph.Kind
	First, Rows int
}

// OutOfMemory reports that memory was short, for adapt.IsOutOfMemory: smaller inputs may fit.
func (*CapacityError) OutOfMemory() bool { return true }
