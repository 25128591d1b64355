//go:build !files

package running

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/spf13/cobra"

	"github.com/optimem/optimem/cmd/optimem/internal/command"
	"github.com/optimem/optimem/cmd/optimem/internal/values"
	"github.com/optimem/optimem/cmd/optimem/internal/wording"
	"github.com/optimem/optimem/internal/preprocess"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/memory"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
	"github.com/optimem/optimem/top"
	"github.com/optimem/optimem/trace"
)

const runLong = `Run a model once and print what comes out: dtype, shape, range and first values of each output, or with
--top the best classes of each row. One line of facts (time, memory, threads) goes to standard error.

MODEL is a program that torch.export.save wrote (.pt2), or weights of an architecture that is known. Inputs and outputs
keep the names that 'optimem inspect' shows. It need not fit into memory: what does not stay is brought for every pass,
a group of layers at a time, within --memory; 'optimem plan' with the same flags says how.

An input is a file: .npy; or .npz, .safetensors or what torch.save wrote, with one tensor in it, or several of which one
has the input's name. FILE alone is enough where the model has one input; a file with several tensors gives the inputs
that they are named for. The dtype must be the input's: nothing is converted. The word random stands for seeded random
numbers: floats from -1 to 1, bytes from 0 to 255, other integers 0 or 1. Sizes that the program leaves open and that
neither --shape nor --batch gives are assumed then, and said; a number that the program's code computes with is its
default, or 1.

A picture (.jpg, .png, .webp; or several of a batch, a.jpg,b.jpg) is resized, cropped and normalised as --preprocess says, or
else the preprocessor_config.json of the model's folder,
to the grey levels that torchvision gives:
  imagenet  the shorter side to 256, bilinear, the 224 x 224 in the centre, ImageNet's mean and deviation
  clip      the shorter side to 224, bicubic, the 224 x 224 in the centre, CLIP's mean and deviation
  vit       to 224 x 224, bilinear, from -1 to 1
  none      as it is, from 0 to 1
Options follow a colon, imagenet:resize=232,crop=224: resize=N, HxW or none; crop=N or none; filter=bilinear or bicubic;
mean=M and std=S, or three numbers, 0.485/0.456/0.406. What its EXIF data say about orientation is not applied.

The name of --output chooses the format: .safetensors, .json (NaN and infinities as text), or .npy for a single output.
--dump also writes the output of a module, by its path in the model, to see where results part from PyTorch's. A run
that fails or is interrupted leaves no file behind. --verbose also looks for NaN in the weights.`

const runExamples = `  optimem run digits.pt2 --input pictures.npy --top 1
  optimem run resnet50.pt2 --input x=batch.npy --labels imagenet.txt --top 5
  optimem run resnet50.pt2 --input cat.jpg --preprocess imagenet:resize=232 --labels imagenet.txt
  optimem run bert.pt2 --input tokens.safetensors --output hidden.safetensors
  optimem run model.pt2 --input random --shape x=4,3,224,224 --seed 7
  optimem run model.pt2 --input x.npy --dump layer3.0=layer3.npy
  optimem run model.pt2 --input x.npy --memory 2GiB
  optimem run model.pt2 --input x.npy --mode chunk --capacity 1e9`

// A Run is one run of a command that plans for a model or runs it: run, plan, bench or profile.
type Run struct {
	*command.Line
	ModelFlags
	Cmd   *cobra.Command
	Model string
	// assume says that inputs which are not given are random; dry, that their shapes are all that counts.
	assume, dry bool
	// once says that the command is about one run, unless --runs asks for several.
	once bool
	// watchOps is told of every event of the session, ops among them; nil where nobody asks for those.
	watchOps func(runtime.Event)
	// assumed is set once sizes of inputs were assumed; assumedNumbers are the numbers of the program that were.
	assumed        bool
	assumedNumbers []string
	// setDType gives an input of the model the dtype of its file, where the model does not say which it has.
	setDType func(input string, d tensor.DType) bool
	// setNumber says for which value of an input that is a number of the program the model builds its graph.
	setNumber func(input string, t *tensor.Tensor) bool
	// axes are those that count the rows, as far as they are known. With batched set, the rows of --batch are cut into
	// micro-batches.
	axes    map[string]int
	batched bool
	// ranges are the least and the largest size of the program's symbols.
	ranges map[string][2]int64

	dumps []string
	// traceFile is that of --trace, trace what writes it.
	traceFile string
	trace     *trace.Trace
	// TopSocket is that of --top-socket, topServer who answers there, topEntry the session.
	TopSocket string
	topServer *top.Server
	topEntry  *top.Entry
	// snapshotFile, memoryReport and reportDevice are those flags, reports what is printed with --json.
	snapshotFile, memoryReport, reportDevice string
	reports                                  []*memory.Report
	output                                   string
	top                                      int
	labelsFile                               string

	labels []string
	// code is the file that --arch names, nil where it is none.
	code *loader.Checkpoint
	// Folders are those of --lora, adapters what they hold, once they are open; Adapter is the name of the one that is used where
	// nothing else says, "" for none.
	Folders  []adapterFolder
	adapters []*loader.Checkpoint
	Adapter  string
	Spec     preprocess.Spec
}

// RunCommand is 'optimem run', which runs a model once.
func RunCommand(c *command.Line) *cobra.Command {
	r := Run{Line: c, once: true}
	cmd := &cobra.Command{
		Use:     "run MODEL [flags]",
		Short:   "Run a model once and print its outputs",
		Long:    runLong,
		Example: runExamples,
		Args:    OneModel(c),
		RunE: c.Enter(func(cmd *cobra.Command, args []string) error {
			r.Cmd, r.Model = cmd, args[0]
			if err := r.check(); err != nil {
				return err
			}
			if r.Stages.List != "" {
				return r.Place(r.runOverStages(cmd.Context()))
			}
			return r.Place(r.traced(cmd.Context(), r.run))
		}),
	}
	r.outputFlags(cmd)
	r.shareFlags(cmd, 1)
	r.recordFlags(cmd)
	r.Stages.Define(cmd)
	return cmd
}

// outputFlags defines the flags that say what becomes of outputs.
func (r *Run) outputFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVarP(&r.output, "output", "o", "", "write the outputs to `FILE`: .safetensors, .npy, .json")
	flags.StringArrayVar(&r.dumps, "dump", nil, "write what a module gives, too: `PATH=FILE` (repeatable)")
	flags.IntVar(&r.top, "top", 0, "print the `K` largest values of each row and where they are")
	flags.StringVar(&r.labelsFile, "labels", "", "read a class on each line of `FILE`; --top is 5 where not given")
	command.Grouped(flags, command.OutputGroup, "output", "dump", "top", "labels")
}

// onlyRun are the flags of outputFlags that commands which plan or measure refuse.
var onlyRun = []string{"output", "top", "labels"}

// noOutputs defines the flags of outputFlags for a command that plans or measures. What --dump names is computed there, too,
// so that it takes what the run would; the others would do nothing, and CheckFlags says so.
func (r *Run) noOutputs(cmd *cobra.Command) {
	r.outputFlags(cmd)
	flags := cmd.Flags()
	flags.Lookup("dump").Usage = "compute what 'optimem run' would write of a module: `PATH=FILE` (repeatable)"
	for _, name := range onlyRun {
		flags.Lookup(name).Hidden = true
	}
}

// OneModel demands one positional argument.
func OneModel(c *command.Line) cobra.PositionalArgs {
	return c.Arguments(func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return errors.New("no model given")
		}
		if len(args) > 1 {
			return fmt.Errorf("one model at a time, not %d", len(args))
		}
		return nil
	})
}

// Usage is an error of the command line; without hints it points to the help.
func (r *Run) Usage(hint string, format string, args ...any) error {
	if hint == "" {
		return command.UsageError(r.Cmd, fmt.Errorf(format, args...))
	}
	return command.UsageError(r.Cmd, fmt.Errorf(format, args...), hint)
}

// check looks at the flags alone.
func (r *Run) check() error {
	if r.Cmd.Flags().Changed("top") && r.top < 1 {
		return r.Usage("", "--top takes a number of classes, 1 or more")
	}
	if err := r.CheckFlags(); err != nil {
		return err
	}
	if r.Cmd.Flags().Changed("labels") {
		var err error
		if r.labels, err = readLabels(r.Cmd.Context(), r.labelsFile); err != nil {
			return err
		}
		if r.top == 0 {
			r.top = 5
		}
	}
	return nil
}

func (r *Run) run(ctx context.Context) (err error) {
	m, err := r.prepare(ctx)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, m.Close()) }()
	var (
		out   runtime.Values
		facts runFacts
	)
	for range r.Runs {
		if out, facts, err = m.Pass(ctx); err != nil {
			return err
		}
	}
	if err := r.reportAfter(ctx, m); err != nil {
		return err
	}
	results := runOutputs(m.Model.Outputs(), out)
	if err := r.write(ctx, m.files, results, out); err != nil {
		return err
	}
	if err := r.print(facts, results, m.In.rows); err != nil {
		return err
	}
	if r.Quiet {
		return nil
	}
	if training(m.Ckpt.Module) {
		r.Say("warning", "the module was saved in training; it ran as after model.eval()")
	}
	for _, res := range results {
		if res.NaN > 0 {
			r.Say("warning", fmt.Sprintf("output %s holds %d NaN of %d values", res.Name, res.NaN, res.N))
		}
	}
	_, _ = fmt.Fprintf(r.Stderr, "optimem: %s\n", facts)
	if r.Mode == string(plan.Auto) {
		_, _ = fmt.Fprintf(r.Stderr, "optimem: %s\n", facts.expectation())
	}
	return nil
}

// open opens the model. While it does, the process is held to what opening may take; outputs may take what they need.
func (r *Run) open(ctx context.Context, limits loader.Limits) (*loader.Checkpoint, *models.Model, error) {
	defer command.BoundHeap(limits, r.Model)()
	ckpt, err := loader.OpenWith(ctx, r.Model, loader.Options{Limits: limits, Verify: r.Verify})
	if err != nil {
		return nil, nil, err
	}
	if f := ckpt.Format; r.Verify && !r.Quiet && (f == loader.FormatSafetensors || f == loader.FormatTorchLegacy) {
		r.Say("note", fmt.Sprintf("%s files hold no checksums: --verify had nothing to compare", f))
	}
	opts, err := r.architecture(ctx, ckpt, limits)
	if err != nil {
		return nil, nil, errors.Join(err, ckpt.Close())
	}
	if opts.Adapters, err = r.openAdapters(ctx, limits); err != nil {
		return nil, nil, errors.Join(err, ckpt.Close())
	}
	opts.Adapter = r.Adapter
	model, err := models.Build(ckpt, opts)
	if err != nil {
		return nil, nil, errors.Join(err, ckpt.Close())
	}
	return ckpt, model, nil
}

// ScanWeights says which weights hold NaN, which a model may.
func (r *Run) ScanWeights(ctx context.Context, ckpt *loader.Checkpoint) error {
	for _, w := range ckpt.Weights {
		t, err := w.Contents(ctx)
		if err != nil {
			return err
		}
		if e := values.Of(t); e.Float {
			if nan := values.Summarize(w.Name, t).NaN; nan > 0 {
				r.Say("warning", fmt.Sprintf("weight %s holds %d NaN of %d values", w.Name, nan, e.N))
			}
		}
	}
	return nil
}

// Note says something that only --verbose wants to know.
func (r *Run) Note(format string, args ...any) {
	if r.Verbose {
		r.Say("note", fmt.Sprintf(format, args...))
	}
}

// training reports whether a pickled module, or one in it, was saved in training mode. Nil is none.
func training(m *loader.Module) bool {
	return m != nil && (m.Training || slices.ContainsFunc(m.Children, training))
}

// Counted writes a number of things.
func Counted(n int, what string) string { return wording.Counted(n, what) }

// Logger writes what happens, and who came and went, to standard error.
func (r *Run) Logger() *slog.Logger {
	level := slog.LevelWarn
	switch {
	case r.Verbose:
		level = slog.LevelDebug
	case r.Quiet:
		level = slog.LevelError
	}
	return slog.New(slog.NewTextHandler(r.Stderr, &slog.HandlerOptions{Level: level}))
}
