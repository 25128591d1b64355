//go:build !files

package main

import (
	"fmt"
	"os"
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

// A modelFlags is what plan, run, bench and profile let a user choose: which model, in which memory, for which inputs.
type modelFlags struct {
	inputs, shapes []string
	preprocess     string
	arch           string
	// loras are those of --lora, loraName that of --adapter.
	loras    []string
	loraName string
	// class is the architecture where --arch names none.
	class      string
	mode       string
	device     string
	memory     budgetFlag
	assertPeak sizeFlag
	hostMemory sizeFlag
	swap       sizeFlag
	swapFolder string
	capacity   limitFlag
	maxLayer   limitFlag
	batch      int
	look       lookFor // from --batch auto
	batchAxes  []string
	precision  string
	exact      bool
	verify     bool
	runs       int
	threads    int
	seed       uint64
	// stages says which machines compute, for run, generate and plan.
	stages stagesFlags
	// steps is for plan only.
	steps          stepsFlags
	asJSON         bool
	quiet, verbose bool
	maxMemory      sizeFlag
}

// The values that some flags take, the default first.
var (
	modes      = []string{string(plan.Auto), string(plan.Resident), string(plan.Page), string(plan.Chunk)}
	precisions = []string{"fp32", "bf16", "tf32", "int8"}
)

const deviceHint = "there is: cpu; cuda or cuda:N, a GPU ('optimem devices' lists them); cuda:0,cuda:1, several; " +
	"and simulated, emu:memory=2GiB,bandwidth=12GB/s,latency=10us"

// shareFlags defines the flags of modelFlags, with runs as the default of --runs.
func (r *run) shareFlags(cmd *cobra.Command, runs int) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringArrayVar(&r.inputs, "input", nil,
		"read an input: `NAME=FILE`, FILE alone, or random in its place (repeatable)")
	flags.StringArrayVar(&r.shapes, "shape", nil, "shape of an input without a file: `NAME=2,3,224,224` (repeatable)")
	flags.Var(&batchFlag{&r.batch, &r.look}, "batch",
		"compute `N` rows in a run, as micro-batches where need be; plan takes auto, too")
	flags.StringArrayVar(&r.batchAxes, "batch-axis", nil,
		"axis of an input that counts rows: `NAME=N` (repeatable)")
	flags.StringVar(&r.preprocess, "preprocess", "", "say `HOW` pictures become numbers: "+preprocess.Names)
	flags.Uint64Var(&r.seed, "seed", 0, "seed of random inputs, a number `N`")
	grouped(flags, inputGroup, "input", "shape", "batch", "batch-axis", "preprocess", "seed")

	r.sessionFlags(cmd)
	flags.Var(&r.assertPeak, "assert-peak", "exit 3 before anything runs if the plan's peak is above this")
	grouped(flags, memoryGroup, "assert-peak")
	flags.StringVar(&r.precision, "precision", precisions[0],
		"round products to a `HOW`: fp32; bf16; tf32, on a GPU; int8 codes")
	flags.BoolVar(&r.exact, "exact", false, "sum in the reference's order, no Winograd")
	grouped(flags, deviceGroup, "precision", "exact")

	flags.IntVar(&r.runs, "runs", runs, "run `N` times")
	grouped(flags, measureGroup, "runs")
	_ = cmd.RegisterFlagCompletionFunc("precision", cobra.FixedCompletions(precisions, cobra.ShellCompDirectiveNoFileComp))
}

// sessionFlags defines the flags that every command with a session has.
func (r *run) sessionFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVar(&r.asJSON, "json", false, "print one JSON object")
	flags.BoolVar(&r.quiet, "quiet", false, "print no facts and no warnings")
	flags.BoolVar(&r.verbose, "verbose", false, "say more on standard error")
	grouped(flags, outputGroup, "json", "quiet", "verbose")

	flags.StringVar(&r.arch, "arch", "", "the `NAME` of an architecture, a file with the code, or config.json")
	flags.BoolVar(&r.verify, "verify", false, "read the whole file first and compare its checksums")
	flags.Var(&r.maxMemory, "open-memory", "memory that opening a file may take (default 12 × its size)")
	flags.StringArrayVar(&r.loras, "lora", nil, "a LoRA adapter, a folder of peft: `NAME=DIR`, or DIR alone (repeatable)")
	flags.StringVar(&r.loraName, "adapter", "", "use this `NAME` of --lora, or none (default: the only one)")
	grouped(flags, modelGroup, "arch", "verify", "open-memory", "lora", "adapter")

	flags.StringVar(&r.mode, "mode", modes[0], "a `MODE`: resident, page, chunk, or auto, the fastest that fits")
	flags.Var(&r.memory, "memory", "bytes on the device for everything, or 50% of them (default: what is free)")
	flags.Var(&r.hostMemory, "host-memory", "bytes of host memory for staging and copies")
	flags.Var(&r.swap, "swap", "cpu: let activations wait in a file of at most this size (default: none)")
	flags.StringVar(&r.swapFolder, "swap-folder", "", "the `FOLDER` of that file (default: /var/tmp, else that of temporary files)")
	flags.Var(&r.capacity, "capacity", "chunk: pin this much, parameters, or bytes with a unit (default: all)")
	r.maxLayer.set = true // −1 is what a user may write, too
	flags.Var(&r.maxLayer, "max-layer-size", "do not cut smaller modules, parameters, or bytes with a unit")
	grouped(flags, memoryGroup, "mode", "memory", "host-memory", "swap", "swap-folder", "capacity", "max-layer-size")

	flags.StringVar(&r.device, "device", "",
		"a `DEVICE`: cpu, cuda:N, cuda:0,cuda:1 or emu:… (default: a GPU, else the CPU)")
	flags.IntVar(&r.threads, "threads", 0, "compute with `N` threads (default: one for each processor)")
	grouped(flags, deviceGroup, "device", "threads")
	flags.StringVar(&r.topSocket, "top-socket", "", "tell 'optimem top' on this `SOCKET` what goes on")
	grouped(flags, measureGroup, "top-socket")
	for name, values := range map[string][]string{
		"mode": modes, "device": {"cpu", "cuda", "emu:memory=2GiB,bandwidth=12GB/s,latency=10us"},
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

// checkFlags looks at the flags alone.
func (r *run) checkFlags() error {
	changed := r.cmd.Flags().Changed
	if slices.Contains([]string{"plan", "bench", "profile"}, r.cmd.Name()) {
		for _, name := range onlyRun {
			if changed(name) {
				return r.usage("'optimem run' writes and prints outputs",
					"--%s does nothing for 'optimem %s'", name, r.cmd.Name())
			}
		}
	}
	switch {
	case r.topSocket != "" && r.cmd.Name() == "plan":
		return r.usage("", "--top-socket does nothing for 'optimem plan', which runs nothing")
	case !slices.Contains(modes, r.mode):
		return r.usage("there is: "+strings.Join(modes, ", "), "unknown mode %q", r.mode)
	case !slices.Contains(precisions, r.precision):
		return r.usage("there is: "+strings.Join(precisions, ", "), "unknown precision %q", r.precision)
	case r.stages.list+r.stages.machines != "" && (changed("lora") || changed("adapter")):
		return r.usage("merge the adapter into a copy of the weights", "adapters are for one machine, and --stages and --machines name others")
	case changed("capacity") && r.mode != string(plan.Chunk):
		return r.usage("add --mode chunk", "--capacity is for --mode chunk")
	case r.maxLayer.Limit != plan.Limit{} && r.mode == string(plan.Resident):
		return r.usage("leave it out, or choose another mode",
			"--max-layer-size is for modes that bring groups: with --mode resident everything stays")
	case changed("assert-peak") && r.assertPeak == 0:
		return r.usage("for instance --assert-peak 2GiB", "--assert-peak takes a size of 1 byte or more")
	case changed("memory") && !r.memory.given():
		return r.usage("for instance --memory 2GiB", "--memory takes a size of 1 byte or more")
	case r.threads < 0 || r.threads > runtime.MaxThreads:
		return r.usage("", "--threads takes a number of threads, 0 to %d", runtime.MaxThreads)
	case r.runs < 1:
		return r.usage("", "--runs takes a number of runs, 1 or more")
	case r.look != "" && r.cmd.Name() != "plan":
		return r.usage(fmt.Sprintf("'optimem plan --batch %s' says which number is the fastest", r.look),
			"--batch takes a number of rows")
	case changed("batch") && r.batch < 1 && r.cmd.Name() != "generate":
		return r.usage("", "--batch takes a number of rows, 1 or more")
	case r.quiet && r.verbose:
		return r.usage("", "--quiet and --verbose contradict each other")
	}
	if err := r.checkRecords(); err != nil {
		return err
	}
	if err := r.checkAdapters(); err != nil {
		return err
	}
	if r.preprocess != "" {
		var err error
		if r.spec, err = preprocess.Parse(r.preprocess); err != nil {
			return r.usage("there is: "+preprocess.Names+"; options, after a colon: "+preprocess.Options, "%w", err)
		}
	}
	if r.threads == 0 {
		r.threads = goruntime.GOMAXPROCS(0)
	}
	if r.device == "" {
		r.device = r.defaultDevice()
	}
	return r.checkSwap()
}

// checkSwap looks at what is said of the file in which activations wait.
func (r *run) checkSwap() error {
	switch {
	case r.cmd.Flags().Changed("swap-folder") && r.swap == 0 && (r.cmd.Name() != "generate" || !r.cmd.Flags().Changed("batch")):
		return r.usage("add --swap SIZE", "--swap-folder is for --swap")
	case r.swap > 0 && r.device != "cpu":
		return r.usage("--host-memory bounds what they take there",
			"--swap is for the CPU: the activations of %s wait in the host's memory", r.device)
	}
	return nil
}

// defaultDevice is the first GPU, or the CPU where none can be used.
func (r *run) defaultDevice() string {
	gpu, err := runtime.FirstGPU(os.Getenv(libraryVariable))
	switch {
	case err != nil && !r.quiet:
		r.say("note", fmt.Sprintf("the CPU computes, for no GPU can be used: %v", err))
	case gpu != "":
		return gpu
	}
	return "cpu"
}

// parseBatchAxes reads --batch-axis.
func (r *run) parseBatchAxes() (map[string]int, error) {
	axes := make(map[string]int)
	for _, text := range r.batchAxes {
		name, number, ok := strings.Cut(text, "=")
		axis, err := strconv.Atoi(number)
		if !ok || err != nil || axis < -1 {
			return nil, r.usage("write it as --batch-axis NAME=0; -1 is an input that is the same for all rows",
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

func (l *limitFlag) Type() string { return "N|SIZE" }
