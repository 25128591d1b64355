package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/optimem/optimem/internal/ascii"
	"github.com/optimem/optimem/internal/preprocess"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/runtime"
)

const runLong = `Run a model once and print what comes out: dtype, shape, range and first values of each output, or with
--top the best classes of each row. One line of facts (time, memory, threads) goes to standard error.

MODEL is a program that torch.export.save wrote (.pt2). Inputs and outputs keep the names that 'optimem inspect' shows.

An input is a file: .npy; or .npz, .safetensors or what torch.save wrote, with one tensor in it, or several of which one
has the input's name. FILE alone is enough where the model has one input; a file with several tensors gives the inputs
that they are named for. The dtype must be the input's: nothing is converted. The word random stands for seeded random
numbers: floats from -1 to 1, bytes from 0 to 255, other integers 0 or 1.

A picture (.jpg, .png, .webp; or several of a batch, a.jpg,b.jpg) is resized, cropped and normalised as --preprocess says,
to the grey levels that torchvision gives:
  imagenet  the shorter side to 256, bilinear, the 224 x 224 in the centre, ImageNet's mean and deviation
  clip      the shorter side to 224, bicubic, the 224 x 224 in the centre, CLIP's mean and deviation
  vit       to 224 x 224, bilinear, from -1 to 1
  none      as it is, from 0 to 1
Options follow a colon, imagenet:resize=232,crop=224: resize=N, HxW or none; crop=N or none; filter=bilinear or bicubic;
mean=M and std=S, or three numbers, 0.485/0.456/0.406. What its EXIF data say about orientation is not applied.

The name of --output chooses the format: .safetensors, .json (NaN and infinities as text), or .npy for a single output.
--dump also writes the output of a module, by its path in the model, to see where results part from PyTorch's. A run
that fails or is interrupted leaves no file behind.`

const runExamples = `  optimem run digits.pt2 --input pictures.npy --top 1
  optimem run resnet50.pt2 --input x=batch.npy --labels imagenet.txt --top 5
  optimem run resnet50.pt2 --input cat.jpg --preprocess imagenet:resize=232 --labels imagenet.txt
  optimem run bert.pt2 --input tokens.safetensors --output hidden.safetensors
  optimem run model.pt2 --input random --shape x=4,3,224,224 --seed 7
  optimem run model.pt2 --input x.npy --dump layer3.0=layer3.npy`

// A run is one run of the command.
type run struct {
	*commandLine
	cmd            *cobra.Command
	model          string
	inputs, shapes []string
	dumps          []string
	preprocess     string
	output         string
	top            int
	labelsFile     string
	threads        int
	seed           uint64
	mode, device   string
	arch           string
	asJSON         bool
	quiet, verbose bool
	maxMemory      sizeFlag

	labels []string
	// code is the file that --arch names, nil where it is none.
	code *loader.Checkpoint
	spec preprocess.Spec
}

// The modes and devices that there will be; those that there are come first.
var (
	runModes   = []string{"auto", "resident"}
	laterModes = []string{"page", "chunk"}
	runDevices = []string{"cpu"}
)

func (c *commandLine) runCommand() *cobra.Command {
	r := run{commandLine: c}
	cmd := &cobra.Command{
		Use:     "run MODEL [flags]",
		Short:   "Run a model once and print its outputs",
		Long:    runLong,
		Example: runExamples,
		Args: c.arguments(func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("no model given")
			}
			if len(args) > 1 {
				return fmt.Errorf("one model at a time, not %d", len(args))
			}
			return nil
		}),
		RunE: c.enter(func(cmd *cobra.Command, args []string) error {
			r.cmd, r.model = cmd, args[0]
			if err := r.check(); err != nil {
				return err
			}
			return r.place(r.run(cmd.Context()))
		}),
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringArrayVar(&r.inputs, "input", nil, "`NAME=FILE`, or FILE alone, or random in FILE's place (repeatable)")
	flags.StringArrayVar(&r.shapes, "shape", nil, "`NAME=2,3,224,224`: shape of a random input (repeatable)")
	flags.StringVar(&r.preprocess, "preprocess", "", "`HOW` pictures become numbers: "+preprocess.Names+", and options")
	flags.StringVarP(&r.output, "output", "o", "", "write the outputs to `FILE`: .safetensors, .npy, .json")
	flags.StringArrayVar(&r.dumps, "dump", nil, "`PATH=FILE`: write the output of a module, too (repeatable)")
	flags.IntVar(&r.top, "top", 0, "print the `K` largest values of each row and where they are")
	flags.StringVar(&r.labelsFile, "labels", "", "`FILE` with a class on each line; --top is 5 where not given")
	flags.StringVar(&r.arch, "arch", "", "`NAME` of a state dict's architecture, or a file of the model with its code")
	flags.StringVar(&r.mode, "mode", "auto", "`MODE`: resident or auto, which is resident today")
	flags.StringVar(&r.device, "device", "cpu", "`DEVICE`: cpu")
	flags.IntVar(&r.threads, "threads", 0, "compute with `N` threads (default: one for each processor)")
	flags.Uint64Var(&r.seed, "seed", 0, "seed of random inputs, a number `N`")
	flags.BoolVar(&r.asJSON, "json", false, "print one JSON object")
	flags.BoolVar(&r.quiet, "quiet", false, "print no facts and no warnings")
	flags.BoolVar(&r.verbose, "verbose", false, "say more on standard error, and look for NaN in the weights")
	flags.Var(&r.maxMemory, "max-memory", "memory that opening a file may take (default 32MiB)")
	_ = cmd.RegisterFlagCompletionFunc("mode", cobra.FixedCompletions(runModes, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("device", cobra.FixedCompletions(runDevices, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// usage is an error of the command line; without hints it points to the help.
func (r *run) usage(hint string, format string, args ...any) error {
	if hint == "" {
		return usageError(r.cmd, fmt.Errorf(format, args...))
	}
	return usageError(r.cmd, fmt.Errorf(format, args...), hint)
}

// check looks at the flags alone.
func (r *run) check() error {
	switch {
	case slices.Contains(laterModes, r.mode):
		return r.usage("there is: "+strings.Join(runModes, ", "), "mode %s is not built yet", r.mode)
	case !slices.Contains(runModes, r.mode):
		return r.usage("there is: "+strings.Join(runModes, ", "), "unknown mode %q", r.mode)
	case !slices.Contains(runDevices, r.device):
		return r.usage("there is: "+strings.Join(runDevices, ", "), "device %q is not built yet, or none", r.device)
	case r.threads < 0:
		return r.usage("", "--threads takes a number of threads, 0 or more")
	case r.cmd.Flags().Changed("top") && r.top < 1:
		return r.usage("", "--top takes a number of classes, 1 or more")
	case r.quiet && r.verbose:
		return r.usage("", "--quiet and --verbose contradict each other")
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
	if r.labelsFile != "" {
		var err error
		if r.labels, err = readLabels(r.labelsFile); err != nil {
			return err
		}
		if r.top == 0 {
			r.top = 5
		}
	}
	return nil
}

func (r *run) run(ctx context.Context) (err error) {
	limits := loader.Limits{MemoryBytes: int64(r.maxMemory)}
	start := time.Now()
	defer func() { err = cmp.Or(err, r.closeCode()) }()
	ckpt, model, err := r.open(ctx, limits)
	if err != nil {
		return err
	}
	if arch := model.Arch(); arch != "" {
		r.note("%s: the architecture is %s", r.model, arch)
	}
	if !r.quiet {
		for _, n := range model.Notes() {
			r.say("note", n)
		}
	}
	defer func() { err = cmp.Or(err, ckpt.Close()) }()
	r.note("%s: %s, %s, opened and understood in %s", r.model, ckpt.Format,
		ascii.FormatSize(sourceBytes(ckpt)), seconds(time.Since(start)))
	files, dumped, err := r.targets(model.Outputs())
	if err != nil {
		return err
	}
	in, err := r.readInputs(ctx, model.Inputs(), limits)
	if err != nil {
		return err
	}
	defer in.free()
	if r.verbose {
		if err := r.scanWeights(ctx, ckpt); err != nil {
			return err
		}
	}
	session, err := runtime.Resident(ctx, model, runtime.ResidentOptions{Threads: r.threads, Dump: dumped})
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, session.Close()) }()
	start = time.Now()
	out, err := session.Run(ctx, in.values)
	if err != nil {
		return r.knowing(err, model, in.values)
	}
	facts := runFacts{
		Mode: "resident", Device: r.device, Threads: r.threads, Seconds: time.Since(start).Seconds(),
	}
	metrics := session.Metrics()
	facts.PeakDeviceBytes, facts.WeightBytes = metrics.PeakBytes, metrics.WeightBytes

	results := runOutputs(model.Outputs(), out)
	if err := r.write(ctx, files, results, out); err != nil {
		return err
	}
	if err := r.print(facts, results, in.rows); err != nil {
		return err
	}
	if !r.quiet {
		for _, res := range results {
			if res.nan > 0 {
				r.say("warning", fmt.Sprintf("output %s holds %d NaN of %d values", res.name, res.nan, res.n))
			}
		}
		_, _ = fmt.Fprintf(r.stderr, "optimem: %s, peak %s, weights %s, %s\n",
			seconds(time.Duration(facts.Seconds*float64(time.Second))), ascii.FormatSize(facts.PeakDeviceBytes), ascii.FormatSize(facts.WeightBytes), counted(r.threads, "thread"))
	}
	return nil
}

// open opens the model. While it does, the process is held to what opening may take; outputs may take what they need.
func (r *run) open(ctx context.Context, limits loader.Limits) (*loader.Checkpoint, *models.Model, error) {
	before := debug.SetMemoryLimit(-1)
	boundHeap(limits)
	defer debug.SetMemoryLimit(before)
	ckpt, err := loader.OpenWith(ctx, r.model, loader.Options{Limits: limits})
	if err != nil {
		return nil, nil, err
	}
	opts, err := r.architecture(ctx, ckpt, limits)
	if err != nil {
		return nil, nil, errors.Join(err, ckpt.Close())
	}
	model, err := models.Build(ckpt, opts)
	if err != nil {
		return nil, nil, errors.Join(err, ckpt.Close())
	}
	return ckpt, model, nil
}

// scanWeights says which weights hold NaN, which a model may.
func (r *run) scanWeights(ctx context.Context, ckpt *loader.Checkpoint) error {
	for _, w := range ckpt.Weights {
		t, err := w.Contents(ctx)
		if err != nil {
			return err
		}
		if e := elementsOf(t); e.float {
			if nan := summarize(w.Name, t).nan; nan > 0 {
				r.say("warning", fmt.Sprintf("weight %s holds %d NaN of %d values", w.Name, nan, e.n))
			}
		}
	}
	return nil
}

// note says something that only --verbose wants to know.
func (r *run) note(format string, args ...any) {
	if r.verbose {
		r.say("note", fmt.Sprintf(format, args...))
	}
}

// seconds writes a time for people, to four digits.
func seconds(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%.4g µs", float64(d)/1e3)
	case d < time.Second:
		return fmt.Sprintf("%.4g ms", float64(d)/1e6)
	case d < 1000*time.Second:
		return fmt.Sprintf("%.4g s", d.Seconds())
	}
	return fmt.Sprintf("%.0f s", d.Seconds())
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
