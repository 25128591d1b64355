//go:build !files

package running

import (
	"cmp"
	"fmt"
	"os"

	"github.com/optimem/optimem/cmd/optimem/internal/command"

	goruntime "runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/optimem/optimem/internal/ascii"
	"github.com/optimem/optimem/internal/preprocess"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/runtime"
)

// A ModelFlags is what plan, run, bench and profile let a user choose: which model, in which memory, for which inputs.
type ModelFlags struct {
	inputs, shapes []string
	Preprocess     string
	Arch           string
	// Loras are those of --lora, LoraName that of --adapter.
	Loras    []string
	LoraName string
	// Class is the architecture where --arch names none.
	Class      string
	Mode       string
	Device     string
	Memory     command.BudgetFlag
	assertPeak command.SizeFlag
	HostMemory command.SizeFlag
	Swap       command.SwapFlag
	swapFolder string
	capacity   limitFlag
	maxLayer   limitFlag
	batch      int
	look       lookFor // from --batch auto
	batchAxes  []string
	Precision  string
	exact      bool
	Verify     bool
	Runs       int
	Threads    int
	Seed       uint64
	// Stages says which machines compute, for run, generate and plan.
	Stages stagesFlags
	// steps is for plan only.
	steps          stepsFlags
	AsJSON         bool
	Quiet, Verbose bool
	MaxMemory      command.SizeFlag
}

// The values that some flags take, the default first.
var (
	Modes      = []string{string(plan.Auto), string(plan.Resident), string(plan.Page), string(plan.Chunk)}
	Precisions = []string{"fp32", "bf16", "tf32", "int8"}
)

const deviceHint = "there is: cpu; cuda or cuda:N, a GPU ('optimem devices' lists them); cuda:0,cuda:1, several; " +
	"and simulated, emu:memory=2GiB,bandwidth=12GB/s,latency=10us"

// shareFlags defines the flags of ModelFlags, with runs as the default of --runs.
func (r *Run) shareFlags(cmd *cobra.Command, runs int) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringArrayVar(&r.inputs, "input", nil,
		"read an input: `NAME=FILE`, FILE alone, or random in its place (repeatable)")
	flags.StringArrayVar(&r.shapes, "shape", nil, "shape of an input without a file: `NAME=2,3,224,224` (repeatable)")
	flags.Var(&batchFlag{&r.batch, &r.look}, "batch",
		"compute `N` rows in a run, as micro-batches where need be; plan takes auto, too")
	flags.StringArrayVar(&r.batchAxes, "batch-axis", nil,
		"axis of an input that counts rows: `NAME=N` (repeatable)")
	flags.StringVar(&r.Preprocess, "preprocess", "", "say `HOW` pictures become numbers: "+preprocess.Names)
	flags.Uint64Var(&r.Seed, "seed", 0, "seed of random inputs, a number `N`")
	command.Grouped(flags, command.InputGroup, "input", "shape", "batch", "batch-axis", "preprocess", "seed")

	r.SessionFlags(cmd)
	flags.Var(&r.assertPeak, "assert-peak", "exit 3 before anything runs if the plan's peak is above this")
	command.Grouped(flags, command.MemoryGroup, "assert-peak")
	flags.StringVar(&r.Precision, "precision", Precisions[0],
		"round products to a `HOW`: fp32; bf16; tf32, on a GPU; int8 codes")
	flags.BoolVar(&r.exact, "exact", false, "sum in the reference's order, no Winograd")
	command.Grouped(flags, command.DeviceGroup, "precision", "exact")

	flags.IntVar(&r.Runs, "runs", runs, "run `N` times")
	command.Grouped(flags, command.MeasureGroup, "runs")
	_ = cmd.RegisterFlagCompletionFunc("precision", cobra.FixedCompletions(Precisions, cobra.ShellCompDirectiveNoFileComp))
}

// PoolFlags defines the flags of commands that have several models under one budget.
func (r *Run) PoolFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Var(&r.Memory, "memory", "bytes on the device for all models together (default: what is free)")
	flags.Var(&r.HostMemory, "host-memory", "bytes of host memory for staging and copies")
	command.Grouped(flags, command.MemoryGroup, "memory", "host-memory")
	flags.Var(&r.MaxMemory, "open-memory", "memory that opening a file may take (default 12 × its size)")
	command.Grouped(flags, command.ModelGroup, "open-memory")
	flags.StringVar(&r.Device, "device", "", "a `DEVICE`: cpu, cuda:N, cuda:0,cuda:1 for texts, or emu:… (default: a GPU, else the CPU)")
	flags.IntVar(&r.Threads, "threads", 0, "compute with `N` threads (default: one for each processor)")
	command.Grouped(flags, command.DeviceGroup, "device", "threads")
	flags.BoolVar(&r.Quiet, "quiet", false, "print no facts and no warnings")
	flags.BoolVar(&r.Verbose, "verbose", false, "say more on standard error")
	command.Grouped(flags, command.OutputGroup, "quiet", "verbose")
}

// SessionFlags defines the flags that every command with a session has.
func (r *Run) SessionFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVar(&r.AsJSON, "json", false, "print one JSON object")
	flags.BoolVar(&r.Quiet, "quiet", false, "print no facts and no warnings")
	flags.BoolVar(&r.Verbose, "verbose", false, "say more on standard error")
	command.Grouped(flags, command.OutputGroup, "json", "quiet", "verbose")

	flags.StringVar(&r.Arch, "arch", "", "the `NAME` of an architecture, a file with the code, or config.json")
	flags.BoolVar(&r.Verify, "verify", false, "read the whole file first and compare its checksums")
	flags.Var(&r.MaxMemory, "open-memory", "memory that opening a file may take (default 12 × its size)")
	flags.StringArrayVar(&r.Loras, "lora", nil, "a LoRA adapter, a folder of peft: `NAME=DIR`, or DIR alone (repeatable)")
	flags.StringVar(&r.LoraName, "adapter", "", "use this `NAME` of --lora, or none (default: the only one)")
	command.Grouped(flags, command.ModelGroup, "arch", "verify", "open-memory", "lora", "adapter")

	flags.StringVar(&r.Mode, "mode", Modes[0], "a `MODE`: resident, page, chunk, or auto, the fastest that fits")
	flags.Var(&r.Memory, "memory", "bytes on the device for everything, or 50% of them (default: what is free)")
	flags.Var(&r.HostMemory, "host-memory", "bytes of host memory for staging and copies")
	flags.Var(&r.Swap, "swap",
		"let idle tensors wait in a file of this size, or in host memory (host:SIZE)")
	flags.StringVar(&r.swapFolder, "swap-folder", "", "the `FOLDER` of that file (default: /var/tmp, else that of temporary files)")
	flags.Var(&r.capacity, "capacity", "chunk: pin this much, parameters, or bytes with a unit (default: all)")
	r.maxLayer.set = true // −1 is what a user may write, too
	flags.Var(&r.maxLayer, "max-layer-size", "do not cut smaller modules, parameters, or bytes with a unit")
	command.Grouped(flags, command.MemoryGroup, "mode", "memory", "host-memory", "swap", "swap-folder", "capacity", "max-layer-size")

	flags.StringVar(&r.Device, "device", "",
		"a `DEVICE`: cpu, cuda:N, cuda:0,cuda:1 or emu:… (default: a GPU, else the CPU)")
	flags.IntVar(&r.Threads, "threads", 0, "compute with `N` threads (default: one for each processor)")
	command.Grouped(flags, command.DeviceGroup, "device", "threads")
	flags.StringVar(&r.TopSocket, "top-socket", "", "tell 'optimem top' on this `SOCKET` what goes on")
	command.Grouped(flags, command.MeasureGroup, "top-socket")
	for name, values := range map[string][]string{
		"mode": Modes, "device": {"cpu", "cuda", "emu:memory=2GiB,bandwidth=12GB/s,latency=10us"},
	} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
}

// defaultSwapFolder is where activations wait if nobody says where: /var/tmp is on a disk where /tmp may be memory.
func defaultSwapFolder() string {
	const onDisk = "/var/tmp"
	if info, err := os.Stat(onDisk); err == nil && info.IsDir() {
		return onDisk
	}
	return os.TempDir()
}

// CheckFlags looks at the flags alone.
func (r *Run) CheckFlags() error {
	changed := r.Cmd.Flags().Changed
	if slices.Contains([]string{"plan", "bench", "profile"}, r.Cmd.Name()) {
		for _, name := range onlyRun {
			if changed(name) {
				return r.Usage("'optimem run' writes and prints outputs",
					"--%s does nothing for 'optimem %s'", name, r.Cmd.Name())
			}
		}
	}
	switch {
	case r.TopSocket != "" && r.Cmd.Name() == "plan":
		return r.Usage("", "--top-socket does nothing for 'optimem plan', which runs nothing")
	case !slices.Contains(Modes, r.Mode):
		return r.Usage("there is: "+strings.Join(Modes, ", "), "unknown mode %q", r.Mode)
	case !slices.Contains(Precisions, r.Precision):
		return r.Usage("there is: "+strings.Join(Precisions, ", "), "unknown precision %q", r.Precision)
	case r.Stages.List+r.Stages.machines != "" && (changed("lora") || changed("adapter")):
		return r.Usage("merge the adapter into a copy of the weights", "adapters are for one machine, and --stages and --machines name others")
	case changed("capacity") && r.Mode != string(plan.Chunk):
		return r.Usage("add --mode chunk", "--capacity is for --mode chunk")
	case r.maxLayer.Limit != plan.Limit{} && r.Mode == string(plan.Resident):
		return r.Usage("leave it out, or choose another mode",
			"--max-layer-size is for modes that bring groups: with --mode resident everything stays")
	case changed("assert-peak") && r.assertPeak == 0:
		return r.Usage("for instance --assert-peak 2GiB", "--assert-peak takes a size of 1 byte or more")
	case changed("memory") && !r.Memory.Given():
		return r.Usage("for instance --memory 2GiB", "--memory takes a size of 1 byte or more")
	case r.Threads < 0 || r.Threads > runtime.MaxThreads:
		return r.Usage("", "--threads takes a number of threads, 0 to %d", runtime.MaxThreads)
	case r.Runs < 1:
		return r.Usage("", "--runs takes a number of runs, 1 or more")
	case r.look != "" && r.Cmd.Name() != "plan":
		return r.Usage(fmt.Sprintf("'optimem plan --batch %s' says which number is the fastest", r.look),
			"--batch takes a number of rows")
	case changed("batch") && r.batch < 1 && r.Cmd.Name() != "generate":
		return r.Usage("", "--batch takes a number of rows, 1 or more")
	case r.Quiet && r.Verbose:
		return r.Usage("", "--quiet and --verbose contradict each other")
	}
	if err := r.checkRecords(); err != nil {
		return err
	}
	if err := r.CheckAdapters(); err != nil {
		return err
	}
	if r.Preprocess != "" {
		var err error
		if r.Spec, err = preprocess.Parse(r.Preprocess); err != nil {
			return r.Usage("there is: "+preprocess.Names+"; options, after a colon: "+preprocess.Options, "%w", err)
		}
	}
	if r.Threads == 0 {
		r.Threads = goruntime.GOMAXPROCS(0)
	}
	if r.Device == "" {
		r.Device = r.defaultDevice()
	}
	return r.checkSwap()
}

// checkSwap looks at what is said of the file in which activations wait.
func (r *Run) checkSwap() error {
	switch {
	case r.Cmd.Flags().Changed("swap-folder") && (r.Swap.Bytes == 0 || r.Swap.Host) &&
		(r.Swap.Host || r.Cmd.Name() != "generate" || !r.Cmd.Flags().Changed("batch")):
		return r.Usage("add --swap SIZE", "--swap-folder is for --swap")
	case r.Swap.Host:
		return r.checkHostSwap()
	case r.Swap.Bytes > 0 && r.Device != "cpu" && r.Cmd.Name() == "generate":
		hint := "--swap host:" + ascii.FormatSize(r.Swap.Bytes) + " has keys and values wait in the host's memory, with --batch"
		return r.Usage(hint,
			"--swap SIZE is for the CPU, and the device is %s", r.Device)
	case r.Swap.Bytes > 0 && r.Device != "cpu":
		return r.Usage("--host-memory bounds what they take there",
			"--swap is for the CPU: the activations of %s wait in the host's memory", r.Device)
	}
	return nil
}

// checkHostSwap looks at what is said of the host's memory in which keys and values wait.
func (r *Run) checkHostSwap() error {
	switch {
	case r.Device == "cpu":
		return r.Usage("--swap SIZE has them wait in a file", "--swap host:SIZE is for a GPU: the CPU's memory is the host's")
	case r.Cmd.Name() != "generate" || !r.Cmd.Flags().Changed("batch"):
		return r.Usage("activations wait there without it, and --host-memory bounds them",
			"--swap host:SIZE is for the keys and values of 'optimem generate --batch'")
	case strings.HasPrefix(r.Device, "cuda") && strings.Contains(r.Device, ",") ||
		r.Stages.List != "" || r.Cmd.Flags().Changed("stage-device"):
		return r.Usage("name one device", "--swap host:SIZE is for one device")
	}
	return nil
}

// defaultDevice is the first GPU, or the CPU where none can be used.
func (r *Run) defaultDevice() string {
	gpu, err := runtime.FirstGPU(os.Getenv(LibraryVariable))
	switch {
	case err != nil && !r.Quiet:
		r.Say("note", fmt.Sprintf("the CPU computes, for no GPU can be used: %v", err))
	case gpu != "":
		return gpu
	}
	return "cpu"
}

// parseBatchAxes reads --batch-axis.
func (r *Run) parseBatchAxes() (map[string]int, error) {
	axes := make(map[string]int)
	for _, text := range r.batchAxes {
		name, number, ok := strings.Cut(text, "=")
		axis, err := strconv.Atoi(number)
		if !ok || err != nil || axis < -1 {
			return nil, r.Usage("write it as --batch-axis NAME=0; -1 is an input that is the same for all rows",
				"--batch-axis %s names no axis", text)
		}
		axes[name] = axis
	}
	return axes, nil
}

// limitFlag is a flag such as --capacity 1e9, parameters, or --capacity 2GiB, bytes.
type limitFlag struct {
	plan.Limit
	// set is set where a flag has −1 for "no limit".
	set bool
}

// Set implements [pflag.Value].
func (l *limitFlag) Set(text string) error {
	if l.set && text == "-1" {
		l.Limit = plan.Limit{}
		return nil
	}
	n, err := ascii.ParseSize(text)
	if err != nil {
		return err
	}
	l.Limit = plan.Limit{N: n, Unit: plan.Bytes}
	if last := text[len(text)-1]; last >= '0' && last <= '9' || last == '.' {
		l.Unit = plan.Params
	}
	return nil
}

// String implements [pflag.Value].
func (l *limitFlag) String() string {
	switch {
	case l.Unit == plan.Params:
		return strconv.FormatInt(l.N, 10)
	case l.Unit == plan.Bytes:
		return ascii.FormatSize(l.N)
	case l.set:
		return "-1"
	}
	return ""
}

// Type implements [pflag.Value].
func (l *limitFlag) Type() string { return "N|SIZE" }

// fileBytes is how large the file may be in which activations wait.
func (r *Run) fileBytes() int64 {
	if r.Swap.Host {
		return 0
	}
	return r.Swap.Bytes
}

// WaitFolder is where what waits does.
func (r *Run) WaitFolder() string { return cmp.Or(r.swapFolder, defaultSwapFolder()) }
