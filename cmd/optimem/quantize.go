//go:build !files

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/optimem/optimem/cmd/optimem/internal/command"
	"github.com/optimem/optimem/cmd/optimem/internal/jsonout"
	"github.com/optimem/optimem/cmd/optimem/internal/newfile"
	"github.com/optimem/optimem/internal/ascii"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/quantize"
)

const quantizeLong = `Write a smaller folder of a Hugging Face folder of safetensors: the linear layers of its blocks as codes of 4 or 8 bits, in the
format of compressed-tensors, which vLLM, transformers and optimem read. This is lossy: what each layer loses is printed.
Embeddings, norms, biases, routers and layers outside blocks, such as lm_head, stay as they are, and so do layers that
do not fit, which are listed.

Scales are those with which a group's numbers have the least squared error. What the model computes with its weights is
not looked at unless --calibrate gives a text like those that it will read: then the model reads it, and codes of
integers are chosen as GPTQ does, so that what a layer computes of such a text changes little, or with --channels channels
are scaled as AWQ does. That takes longer and loses less. Try the result: --text prints the perplexity of a text before and after.

  int8         8 bits, one scale for each row; int8:GROUP one for so many numbers of a row
  int4[:GROUP] 4 bits, one scale for each 128 or GROUP numbers of a row
  fp8          float8_e4m3fn, one scale for each row

With --format gguf the result is one file for llama.cpp, optimem and others, with tokenizer and template: --to is then
q8_0, q6_k, q4_k (with Q6_K for what is most sensitive, as Q4_K_M files have it), q4_1 or q4_0. Embeddings and lm_head are
quantised, too. Models of the types llama, mistral, qwen2 and qwen3 can be written, with tokenizers of BPE over bytes.

One part of a tensor is in memory at a time. DIR must not exist; it is there once all is written, and a run that fails or
is interrupted leaves nothing behind.`

const quantizeExamples = `  optimem quantize ./Qwen3-4B -o ./Qwen3-4B-int8 --to int8
  optimem quantize ./Qwen3-4B -o ./Qwen3-4B-int4 --to int4:32 --minimum
  optimem quantize ./model -o ./model-fp8 --to fp8 --keep 'model.layers.0.*' --keep '*.down_proj'
  optimem quantize ./Qwen3-4B -o ./Qwen3-4B-int8 --to int8 --text sample.txt
  optimem quantize ./Qwen3-4B -o ./Qwen3-4B.Q4_K_M.gguf --format gguf --to q4_k
  optimem quantize ./Qwen3-4B -o ./Qwen3-4B-int4 --to int4 --calibrate many.txt --text sample.txt --memory 8GiB`

// A quantizing is one run of the command quantize.
type quantizing struct {
	*command.Line
	cmd                    *cobra.Command
	output, to, text       string
	format                 string
	calibrate              string
	context                int
	keep                   []string
	memory, openMemory     command.SizeFlag
	minimum, asJSON, quiet bool
	actOrder, channels     bool
}

func quantizeCommand(c *command.Line) *cobra.Command {
	q := quantizing{Line: c}
	cmd := &cobra.Command{
		Use:     "quantize MODEL -o DIR --to SCHEME [flags]",
		Short:   "Write a folder with smaller weights, lossy",
		Long:    quantizeLong,
		Example: quantizeExamples,
		Args: c.Arguments(func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("give one folder")
			}
			return nil
		}),
		RunE: c.Enter(func(cmd *cobra.Command, args []string) error {
			q.cmd = cmd
			return q.run(cmd.Context(), args[0])
		}),
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVarP(&q.output, "output", "o", "", "write the folder `DIR`, which must not exist (required)")
	flags.StringVar(&q.text, "text", "", "print the perplexity of a `FILE` of text, before and after")
	flags.IntVar(&q.context, "context", 0, "with --text and --calibrate: windows of `N` tokens (default: 1024, or what the model was made for)")
	flags.BoolVar(&q.asJSON, "json", false, "print one JSON object")
	flags.BoolVar(&q.quiet, "quiet", false, "draw no progress")
	command.Grouped(flags, command.OutputGroup, "output", "text", "context", "json", "quiet")
	flags.StringVar(&q.to, "to", "", "`SCHEME` of the weights: int8, int4, int8:GROUP, int4:GROUP or fp8; for a GGUF file q8_0, q6_k, q4_k, q4_1 or q4_0 (required)")
	flags.StringVar(&q.format, "format", "compressed-tensors", "write a folder in the `FORMAT` of compressed-tensors, or one gguf file")
	flags.BoolVar(&q.minimum, "minimum", false, "give each group a zero point beside its scale (asymmetric): int8 and int4 only")
	flags.StringArrayVar(&q.keep, "keep", nil, "leave modules that match a `PATTERN`, such as '*.layers.0.*', as they are; repeatable")
	flags.StringVar(&q.calibrate, "calibrate", "", "choose codes as GPTQ does, by what a `FILE` of text makes the model compute: int8 and int4 only")
	flags.BoolVar(&q.actOrder, "act-order", false, "with --calibrate: begin with the columns that are given most")
	flags.BoolVar(&q.channels, "channels", false, "with --calibrate: scale channels as AWQ does, instead of choosing codes as GPTQ does")
	command.Grouped(flags, command.ModelGroup, "to", "format", "minimum", "keep", "calibrate", "act-order", "channels")
	flags.Var(&q.memory, "memory", "memory for weights on their way (default 64 MiB), and to run the model for --text and --calibrate (default: what is free)")
	flags.Var(&q.openMemory, "open-memory", "memory that opening a file may take (default 12 × its size, from 32 to 256 MiB)")
	command.Grouped(flags, command.MemoryGroup, "memory", "open-memory")
	_ = cmd.RegisterFlagCompletionFunc("to", cobra.FixedCompletions(slices.Concat([]string{"int8", "int4", "fp8"}, quantize.GGUFKinds), cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions([]string{"compressed-tensors", "gguf"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// scheme checks the flags and returns what --to asks for.
func (q *quantizing) scheme(model string) (quantize.Scheme, error) {
	changed := q.cmd.Flags().Changed
	switch {
	case q.output == "":
		return quantize.Scheme{}, command.UsageError(q.cmd, errors.New("no output folder given"), "name it with -o, for instance -o "+filepath.Base(model)+"-int8")
	case q.to == "":
		return quantize.Scheme{}, command.UsageError(q.cmd, errors.New("no scheme given"), "say what weights become, for instance --to int8")
	case changed("text") && q.text == "":
		return quantize.Scheme{}, command.UsageError(q.cmd, errors.New("--text takes a file"))
	case changed("calibrate") && q.calibrate == "":
		return quantize.Scheme{}, command.UsageError(q.cmd, errors.New("--calibrate takes a file"))
	case (q.actOrder || q.channels) && q.calibrate == "", q.actOrder && q.channels:
		return quantize.Scheme{}, command.UsageError(q.cmd, errors.New("--act-order and --channels are for --calibrate, one of them"))
	case changed("context") && q.text == "" && q.calibrate == "":
		return quantize.Scheme{}, command.UsageError(q.cmd, errors.New("--context is for --text and --calibrate"))
	case changed("context") && q.context < 2:
		return quantize.Scheme{}, command.UsageError(q.cmd, errors.New("--context takes a number of 2 or more"))
	}
	scheme, err := quantize.ParseScheme(q.to)
	if err != nil {
		return scheme, command.UsageError(q.cmd, err)
	}
	if scheme.Minimum = q.minimum; q.minimum && scheme.Kind == "fp8" {
		return scheme, command.UsageError(q.cmd, errors.New("--minimum is for integers: fp8 has no zero points"))
	}
	if q.calibrate != "" && scheme.Kind == "fp8" {
		return scheme, command.UsageError(q.cmd, errors.New("--calibrate is for integers: what GPTQ chooses are codes between steps of one size"))
	}
	return scheme, nil
}

func (q *quantizing) run(ctx context.Context, model string) (err error) {
	switch q.format {
	case "gguf":
		return q.runGGUF(ctx, model)
	case "compressed-tensors":
	default:
		return command.UsageError(q.cmd, errors.New("--format is compressed-tensors or gguf"))
	}
	scheme, err := q.scheme(model)
	if err != nil {
		return err
	}
	opts := quantize.Options{
		Scheme: scheme, Keep: q.keep, MemoryBytes: int64(q.memory),
		Loader: loader.Options{Limits: loader.Limits{MemoryBytes: int64(q.openMemory)}},
	}
	calibration, err := q.calibration(ctx, model)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, calibration.close()) }()
	if calibration != nil {
		opts.Calibration, opts.ByUse, opts.Channels, opts.MemoryBytes = calibration.text, q.actOrder, q.channels, int64(q.memory)/weightShare
	}
	folder, err := quantize.Open(ctx, model, opts)
	if err != nil {
		if errors.Is(err, path.ErrBadPattern) {
			return command.UsageError(q.cmd, err)
		}
		return err
	}
	defer func() { err = cmp.Or(err, folder.Close()) }()
	return q.finish(ctx, model, quantized{
		scheme: scheme, outBytes: folder.OutBytes, workBytes: folder.WorkBytes, beforeNamed: &folder.BeforeNamed,
		write: folder.Write, place: calibration.place,
	})
}

// A quantized is a folder or a file that is about to be written.
type quantized struct {
	scheme              quantize.Scheme
	outBytes, workBytes int64
	beforeNamed         *func(ctx context.Context, written string) error
	write               func(ctx context.Context, name string, progress func(int64)) (*quantize.Report, error)
	place               func(error) error
}

// finish writes what was decided, and prints what became of it.
func (q *quantizing) finish(ctx context.Context, model string, w quantized) error {
	if err := newfile.CheckRoom(filepath.Clean(q.output), w.outBytes); err != nil {
		return err
	}
	if err := quantize.CheckNew(q.output); err != nil {
		return notNew(err)
	}
	text, err := q.measureBefore(ctx, model)
	if err != nil {
		return err
	}
	bar := &command.Progress{}
	if !q.quiet {
		bar = command.NewProgress(q.Stderr, filepath.Base(q.output), w.workBytes)
	}
	if text != nil {
		*w.beforeNamed = func(ctx context.Context, written string) error {
			bar.Clear()
			return text.measureAfter(ctx, written)
		}
	}
	report, err := w.write(ctx, q.output, func(n int64) { bar.Add(int(n)) })
	bar.Clear()
	if err != nil {
		return w.place(notNew(err))
	}
	if q.asJSON {
		return q.printJSON(report, w.scheme, text)
	}
	table := q.table(report, w.scheme)
	if text != nil {
		table += text.line()
	}
	_, err = io.WriteString(q.Stdout, table)
	return err
}

// checkGGUF refuses flags that have no use for a GGUF file.
func (q *quantizing) checkGGUF() error {
	switch {
	case q.output == "":
		return command.UsageError(q.cmd, errors.New("no output file given"), "name it with -o, for instance -o model.gguf")
	case !slices.Contains(quantize.GGUFKinds, strings.ToLower(q.to)):
		return command.UsageError(q.cmd, errors.New("--format gguf takes --to "+strings.Join(quantize.GGUFKinds, ", ")))
	case q.minimum, q.calibrate != "", q.actOrder, q.channels:
		return command.UsageError(q.cmd, errors.New("--minimum, --calibrate, --act-order and --channels are not for --format gguf"))
	case q.cmd.Flags().Changed("text") && q.text == "":
		return command.UsageError(q.cmd, errors.New("--text takes a file"))
	case q.cmd.Flags().Changed("context") && (q.text == "" || q.context < 2):
		return command.UsageError(q.cmd, errors.New("--context is for --text, and takes a number of 2 or more"))
	}
	return nil
}

// runGGUF writes a GGUF file.
func (q *quantizing) runGGUF(ctx context.Context, model string) (err error) {
	if err := q.checkGGUF(); err != nil {
		return err
	}
	scheme := quantize.Scheme{Kind: strings.ToLower(q.to)}
	file, err := quantize.OpenGGUF(ctx, model, quantize.GGUFOptions{
		Kind: scheme.Kind, Keep: q.keep, MemoryBytes: int64(q.memory),
		Loader: loader.Options{Limits: loader.Limits{MemoryBytes: int64(q.openMemory)}},
	})
	if errors.Is(err, path.ErrBadPattern) {
		return command.UsageError(q.cmd, err)
	}
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, file.Close()) }()
	return q.finish(ctx, model, quantized{
		scheme: scheme, outBytes: file.OutBytes, workBytes: file.WorkBytes, beforeNamed: &file.BeforeNamed,
		write: file.Write, place: (*calibrating)(nil).place,
	})
}

// notNew says what to do about a folder that is there.
func notNew(err error) error {
	if errors.Is(err, fs.ErrExist) {
		return &command.Failure{Err: err, Code: command.ExitFailed, Hints: []string{"it is never replaced: name another folder, or remove it first"}}
	}
	return err
}

// table writes what became of the layers.
func (q *quantizing) table(r *quantize.Report, scheme quantize.Scheme) string {
	columns := []ascii.Column{ascii.Left("LAYER"), ascii.Right("SHAPE"), ascii.Right("BITS"), ascii.Right("ERROR")}
	row := func(name, shape string, bits, lost float64, out string, before, after int64) []string {
		cells := []string{name, shape, fmt.Sprintf("%.2f", bits), percent(lost)}
		if q.calibrate != "" {
			cells = append(cells, out)
		}
		return append(cells, ascii.FormatSize(before), ascii.FormatSize(after))
	}
	if q.calibrate != "" {
		columns = append(columns, ascii.Right("OUTPUT"))
	}
	t := ascii.NewTable(append(columns, ascii.Right("BEFORE"), ascii.Right("AFTER"))...)
	var before, after, weights, few int64
	for _, l := range r.Layers {
		out := "not calibrated"
		switch {
		case l.Calibrated:
			out = percent(l.OutputError)
		case l.Routed:
			out = fmt.Sprintf("only %d rows", l.RoutedRows)
			few++
		}
		t.Row(row(l.Module, fmt.Sprintf("%d×%d", l.Rows, l.Columns), l.BitsPerWeight, l.Error, out, l.BytesBefore, l.BytesAfter)...)
		before, after, weights = before+l.BytesBefore, after+l.BytesAfter, weights+l.Rows*l.Columns
	}
	t.Row(row(fmt.Sprintf("%d layers", len(r.Layers)), "", 8*float64(after)/float64(weights), r.Error, percent(r.OutputError), before, after)...)
	all := row("all tensors", "", 0, 0, "", r.BytesBefore, r.BytesAfter)
	all[2], all[3] = "", ""
	t.Row(all...)
	var b strings.Builder
	b.WriteString(t.String())
	for _, k := range r.Kept {
		fmt.Fprintf(&b, "kept: %s: %s\n", ascii.Printable(k.Module), k.Reason)
	}
	for _, name := range r.NotCopied {
		fmt.Fprintf(&b, "not copied: %s\n", ascii.Printable(name))
	}
	fmt.Fprintf(&b, "%s is lossy: ERROR is the root mean square of what weights are off by, relative to theirs; ", scheme.Kind)
	if q.calibrate == "" {
		b.WriteString("not calibrated\n")
	} else {
		b.WriteString("OUTPUT that of what layers\ncompute of the text that they were calibrated with\n")
		if few > 0 {
			fmt.Fprintf(&b, "%d layers of experts were sent too few rows of the text, and are not calibrated\n", few)
		}
	}
	return b.String()
}

func percent(x float64) string { return fmt.Sprintf("%.3g %%", 100*x) }

// quantizedJSON is a layer; keys may be added to, never renamed.
type quantizedJSON struct {
	Name          string  `json:"name"`
	Shape         []int64 `json:"shape"`
	BitsPerWeight float64 `json:"bits_per_weight"`
	RelativeError float64 `json:"relative_error"`
	// OutputError is there of layers that were calibrated.
	OutputError *float64 `json:"output_error,omitempty"`
	// RoutedRows is there of experts: how many rows of the text they were sent.
	RoutedRows  *int64 `json:"routed_rows,omitempty"`
	BytesBefore int64  `json:"bytes_before"`
	BytesAfter  int64  `json:"bytes_after"`
}

type keptJSON struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

func (q *quantizing) printJSON(r *quantize.Report, scheme quantize.Scheme, text *textMeasure) error {
	layers := make([]quantizedJSON, len(r.Layers))
	for i, l := range r.Layers {
		layers[i] = quantizedJSON{l.Module, []int64{l.Rows, l.Columns}, l.BitsPerWeight, l.Error, nil, nil,
			l.BytesBefore, l.BytesAfter}
		if l.Calibrated {
			layers[i].OutputError = &l.OutputError
		}
		if l.Routed {
			layers[i].RoutedRows = &l.RoutedRows
		}
	}
	kept := make([]keptJSON, len(r.Kept))
	for i, k := range r.Kept {
		kept[i] = keptJSON{k.Module, k.Reason}
	}
	o := jsonout.New(q.Stdout)
	o.Set("output", q.output)
	o.Set("scheme", scheme.Kind)
	o.Set("group", scheme.Group)
	o.Set("symmetric", !scheme.Minimum)
	o.Set("lossy", true)
	o.Set("relative_error", r.Error)
	o.Set("calibrated", q.calibrate != "")
	if q.calibrate != "" {
		o.Set("output_error", r.OutputError)
	}
	o.Set("bytes_before", r.BytesBefore)
	o.Set("bytes_after", r.BytesAfter)
	if text != nil {
		text.setJSON(o)
	}
	jsonout.Array(o, "layers", slices.Values(layers))
	jsonout.Array(o, "kept", slices.Values(kept))
	jsonout.Array(o, "not_copied", slices.Values(r.NotCopied))
	return o.Close()
}
