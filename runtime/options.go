package runtime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/graph/rewrite"
	"github.com/optimem/optimem/internal/machine"
	"github.com/optimem/optimem/internal/recent"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/search"
	"github.com/optimem/optimem/plan/slots"
)

// Options say how a model is run. The zero value is right.
type Options struct {
	// Mode is that of [Start], [plan.Auto] where it is "". The functions that have a mode's name take it or "".
	Mode plan.Mode
	// Device is where the model runs: "cpu", which "" stands for; "cuda" or "cuda:1", a GPU (package cuda);
	// "cuda:0,cuda:1", several of them, each of which has a part of the model, in order, and Memory for itself; or
	// "emu:memory=2GiB,bandwidth=12GB/s,latency=10us", an accelerator that is emulated (package device/emulated).
	Device string
	// CUDALibrary is the path of NVIDIA's driver; "" is the system's. It is opened only for a GPU.
	CUDALibrary string
	// CUBLASLt is the path of NVIDIA's library of that name, which then computes products of matrices on a GPU where it
	// can, or "auto" for the first one found. "none" is the kernels here. "" is those, but for large products on tensor cores where a
	// table says that the library is to compute them (GPUs of 9.x to 11.x) and it is found.
	CUBLASLt string
	// CUDAEnvironment returns variables of the environment: those that say where that library may be, such as VIRTUAL_ENV, and
	// OPTIMEM_WGMMA, of which "none" is that no kernel of wgmma computes. It is os.Getenv; nil is none.
	CUDAEnvironment func(name string) string
	// CUDACache is a folder with a GPU's kernels as they were assembled before, so that the driver need not compile them: those
	// of a release, and those that it compiled, which are added if the folder can be written. "" is none.
	CUDACache string
	// PlanOnly makes a session that plans and runs nothing, so that its runs end in [ErrPlanOnly]. A GPU need not be there
	// then, if Memory is given.
	PlanOnly bool
	// Memory is the budget in bytes on the device for weights, activations and workspace together. 0 is what is free when the
	// session starts: on the CPU what the process, or its container, has left, less 128 MiB or three eighths of it; on a GPU nine
	// tenths of it. [Session.Budget] tells what that came to.
	Memory int64
	// MemoryShare is the budget as a share of what there is: 0.5 is half of the GPU's memory, or of the host's or its
	// container's. Memory must be 0 then.
	MemoryShare float64
	// Reserve is what the caller is about to take of the host's memory, for inputs for instance: on the CPU a budget that nobody
	// gave leaves so many bytes.
	Reserve int64
	// HostMemory bounds in bytes what a device with memory of its own takes of the host's: staging, which is pinned, copies of
	// weights and what the CPU computes; 0 is four fifths of what is free.
	HostMemory int64
	// Swap lets activations that are needed much later wait, on the CPU, in a file of as many bytes at most: models whose
	// activations alone take more than Memory fit then. 0 is no file. It lies in SwapFolder, has no name there, and takes room
	// only while plans want it. On a device with memory of its own activations wait in the host's, within HostMemory.
	Swap       int64
	SwapFolder string
	// CachesAway has keys and values of a stepwise model wait while another layer is computed: memory has those of two layers, however
	// many there are. On the CPU they are in a file in SwapFolder, which has no name there either; on a device with memory of
	// its own in the host's, page-locked where there is such, within HostMemory.
	CachesAway bool
	// MaxGroup says from which size down a module is brought, or stays, as a whole. The zero value brings leaf modules, small
	// ones that follow each other at once where they come from a disk. [Resident] has no groups and refuses it.
	MaxGroup plan.Limit
	// Capacity is what [Chunk] pins: the largest prefix of the model that is within it. The zero value pins everything
	// that fits into Memory. Other modes refuse it.
	Capacity plan.Limit
	// BatchAxes names, for [Session.RunBatch], the dimension that counts the rows: of inputs and, where they cannot be
	// found, of outputs; −1 for one that is the same for all rows. The zero value looks for them.
	BatchAxes map[string]int
	// MicroBatch is how many rows [Session.RunBatch] gives at once to a program that takes any number; 0 is all of them
	// where memory admits that, else half, a quarter, … as long as that makes what the batch is expected to take shorter.
	MicroBatch int
	// MaxJoin is how many calls that wait with inputs of the same shapes go through one pass, if the budget admits it
	// without more bytes being brought; 0 is 8 where a pass brings weights, else 1.
	MaxJoin int
	// Threads is the number of threads that compute, [MaxThreads] at most; 0 is one for each processor. Results do not
	// depend on it.
	Threads int
	// Dump names modules whose outputs a run returns too, as "dump:" and the path. A path that the model does not have
	// is an [*OptionError]; that a module gives no tensor is only known once a graph is built, and is an [*OutputError] then.
	Dump []string
	// Range is the part of the model that the session computes: see [Session.RunSection]. The zero value is all of it.
	Range graph.Range
	// Extend, where it is not nil, is given each graph of the model, with what Dump adds, before it is compiled, and
	// returns the one that runs: the same with other outputs, and ops that compute them. It must not change the one
	// that it is given. What no output needs is not computed.
	Extend func(*graph.Graph) (*graph.Graph, error)
	// Once says that one run is all that is expected, whose result comes sooner on the CPU if no weight is made into a form that
	// later runs would compute faster with and if [Auto] keeps none of a large model. More runs can be made all the same, and
	// results are the same bits.
	Once bool
	// Ops is the registry of the ops; nil is that with which the model was built.
	Ops *graph.Registry
	// Exact keeps to sums of products: no convolution by Winograd's algorithms, which round a few digits earlier, on the CPU or
	// on a GPU.
	Exact bool
	// Precision is what factors of products may be rounded to: "bf16", on a CPU with AMX or AVX512-BF16, or on a GPU in
	// the modes that leave nothing to the CPU; "tf32", on a GPU of compute capability 8.0 or later in those modes;
	// "int8", on a CPU, of models with weights that are blocks of integers: inputs of their linears are codes of 8 bits
	// then; "" or "fp32" is nothing narrower than the model's own. Sums are float32 in any case; what a convolution
	// makes may be rounded too, for another one that reads it. What the device cannot do is an error.
	Precision string
	// Without are the graph passes that are left out, for who looks for an error in one. The zero value is none.
	Without rewrite.Passes
	// Rates are what the device does in a second, HostRates what the CPU beside it does, for the planner; the zero value
	// stands for guesses.
	Rates, HostRates cost.Rates
	// Observe is told what a session does, on the goroutine that runs the pass. It must not block, and not call the
	// session. See [Event], [TeeObserver], [LogObserver].
	Observe func(Event)
	// ObserveOps has Observe told of every op, too, as [OpDone]. The session waits for the device after each op then, devices
	// do not compute at the same time, and a pass takes longer; results are the same bits.
	ObserveOps bool
	// ObserveLoads has Observe told when the weights of each group that is paged were read and copied, too, as [LoadDone].
	ObserveLoads bool
	// Routing is what passes of the model have shown before of where rows of layers with experts go, by module, as
	// [Session.Routing] gives it: plans expect as many hits. Nil is that nothing is known.
	Routing map[string]*slots.Curve
	// Routed is told where rows of each layer with experts go that a pass reads as it needs them: its module, how many
	// rows there are, and the experts that they name, by id, which are not to be kept. It is called as Observe is.
	Routed func(module string, rows int, experts []int32)
}

// The options of each mode.
type (
	PageOptions     = Options
	ChunkOptions    = Options
	AutoOptions     = Options
	ResidentOptions = Options
)

// Start returns a session in the mode that the options name. The others are named after theirs.
func Start(ctx context.Context, model *models.Model, opts Options) (*Session, error) {
	return start(ctx, model, cmp.Or(opts.Mode, plan.Auto), opts)
}

// Resident returns a session that holds the whole model in memory. Weights are read when a pass first needs them.
func Resident(ctx context.Context, model *models.Model, opts ResidentOptions) (*Session, error) {
	return start(ctx, model, plan.Resident, opts)
}

// Page returns a session that brings each group of ops just before it runs, while the group before it computes.
func Page(ctx context.Context, model *models.Model, opts PageOptions) (*Session, error) {
	return start(ctx, model, plan.Page, opts)
}

// Chunk returns a session that pins the largest prefix of the model within a capacity for good. On the CPU the remainder
// is paged.
func Chunk(ctx context.Context, model *models.Model, opts ChunkOptions) (*Session, error) {
	return start(ctx, model, plan.Chunk, opts)
}

// Auto returns a session that keeps what the budget allows, chosen by simulation, and pages the rest.
func Auto(ctx context.Context, model *models.Model, opts AutoOptions) (*Session, error) {
	return start(ctx, model, plan.Auto, opts)
}

// MaxThreads is the largest number of threads that may compute: each has a goroutine and scratch memory of its own.
const MaxThreads = 4096

// An OptionError says that a session cannot have an option: its value is none, or the mode has no use for it.
type OptionError struct {
	Option, Msg string
}

// Error names the option.
func (e *OptionError) Error() string { return "option " + e.Option + ": " + e.Msg }

// check looks at the options alone.
func (o *Options) check(mode plan.Mode) error {
	switch {
	case !slices.Contains([]plan.Mode{plan.Auto, plan.Resident, plan.Page, plan.Chunk}, mode):
		return &OptionError{"Mode", fmt.Sprintf("there is no %q", mode)}
	case o.Mode != "" && o.Mode != mode:
		return &OptionError{"Mode", fmt.Sprintf("%s is not %s", o.Mode, mode)}
	case o.Memory < 0:
		return &OptionError{"Memory", fmt.Sprintf("a budget of %d bytes", o.Memory)}
	case !(o.MemoryShare >= 0 && o.MemoryShare <= 1):
		return &OptionError{"MemoryShare", fmt.Sprintf("%v is no share: it lies between 0 and 1", o.MemoryShare)}
	case o.MemoryShare > 0 && o.Memory > 0:
		return &OptionError{"MemoryShare", "Memory says how much already"}
	case o.Reserve < 0:
		return &OptionError{"Reserve", fmt.Sprintf("%d bytes", o.Reserve)}
	case o.HostMemory < 0:
		return &OptionError{"HostMemory", fmt.Sprintf("a budget of %d bytes", o.HostMemory)}
	case o.Swap < 0:
		return &OptionError{"Swap", fmt.Sprintf("a file of %d bytes", o.Swap)}
	case o.Swap > 0 && !o.onHost():
		return &OptionError{"Swap", "activations of a device with memory of its own wait in the host's: HostMemory bounds that"}
	case o.Swap > 0 && o.SwapFolder == "":
		return &OptionError{"SwapFolder", "no folder is given for the file in which activations wait"}
	case o.CachesAway && o.onHost() && o.SwapFolder == "":
		return &OptionError{"SwapFolder", "no folder is given for the file in which caches wait"}
	case o.MicroBatch < 0:
		return &OptionError{"MicroBatch", fmt.Sprintf("%d rows", o.MicroBatch)}
	case o.MaxJoin < 0:
		return &OptionError{"MaxJoin", fmt.Sprintf("%d calls in a pass", o.MaxJoin)}
	case o.Threads < 0 || o.Threads > MaxThreads:
		return &OptionError{"Threads", fmt.Sprintf("%d threads: 0 to %d are possible", o.Threads, MaxThreads)}
	case o.Capacity != plan.Limit{} && mode != plan.Chunk:
		return &OptionError{"Capacity", fmt.Sprintf("the mode %s pins no prefix", mode)}
	case o.Range != graph.Range{} && len(o.Dump) > 0:
		return &OptionError{"Dump", "outputs of modules of a range"}
	case o.MaxGroup != plan.Limit{} && mode == plan.Resident:
		return &OptionError{"MaxGroup", "everything stays: there are no groups"}
	}
	return machine.CheckPrecision(o.Precision)
}

func start(ctx context.Context, model *models.Model, mode plan.Mode, opts Options) (*Session, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := opts.check(mode); err != nil {
		return nil, err
	}
	if model == nil {
		return nil, errors.New("no model")
	}
	for _, path := range opts.Dump {
		if err := model.CheckModule(path); err != nil {
			return nil, &OptionError{"Dump", err.Error()}
		}
	}
	opts.Ops = cmp.Or(opts.Ops, model.Ops(), graph.Standard())
	opts.settle()
	s := &Session{}
	m, err := machine.Open(machine.Options{
		Device: opts.Device, CUDALibrary: opts.CUDALibrary, CUBLASLt: opts.CUBLASLt, CUDACache: opts.CUDACache,
		CUDAEnvironment: opts.CUDAEnvironment, Absent: opts.PlanOnly,
		MemoryBytes: opts.Memory, HostBytes: opts.HostMemory, SwapFolder: opts.SwapFolder, Threads: opts.Threads,
		Ops: opts.Ops, Rates: opts.Rates,
		Observe: s.told(opts.Observe), ObserveOps: opts.ObserveOps, ObserveLoads: opts.ObserveLoads,
		Routed: opts.Routed, Meter: &s.meter,
	})
	if err != nil {
		return nil, err
	}
	budgeted := opts.Memory > 0 || opts.MemoryShare > 0
	of := m.Device()
	var peers []search.Peer
	for _, p := range of.Peers {
		peers = append(peers, search.Peer{Name: p.Name, MemoryBytes: opts.budget(of, p.Memory)})
	}
	if of.Target.Direct {
		opts.Memory = opts.cpuBudget(0)
		m.Bound(opts.Memory)
	} else {
		opts.Memory = opts.budget(of, of.Memory)
	}
	*s = Session{
		model:    model,
		mode:     mode,
		opts:     opts,
		machine:  m,
		behind:   peers,
		limits:   limits{memory: opts.Memory, capacity: opts.Capacity},
		budgeted: budgeted, budgetBytes: opts.Memory,
		programs: recent.New[*graph.Graph, *program](maxPrograms),
		batches:  recent.New[string, *division](maxDivisions),
		turn:     make(chan struct{}, 1),
	}
	s.given = s.limits
	s.release()
	return s, nil
}
