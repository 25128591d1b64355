//go:build !files

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/optimem/optimem/cmd/optimem/internal/command"
	"github.com/optimem/optimem/cmd/optimem/internal/newfile"
	"github.com/optimem/optimem/cmd/optimem/internal/running"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/tensor"
)

var synthLong = `Write a checkpoint of a known architecture with random weights, so that sizes can be tried with no
download. The name of FILE chooses the format: .pt, .pth and .bin are PyTorch's own zip format, which
torch.load(FILE, weights_only=True) reads; .safetensors is the format of that name. The weights are scaled so that
activations neither vanish nor explode, and the same seed gives the same weights on every machine.

The file is written as it is made, so that a large one takes no memory. A file of that name is replaced once the new
one is complete; a run that fails or is interrupted leaves nothing behind.

Names, order, shapes and dtypes are those of the model in Python, so that load_state_dict takes the file.

Architectures:

  mlp   --layers linear layers with a ReLU between them, all --width wide, named as torch.nn.Sequential names them:
        0.weight, 0.bias, 2.weight, …

` + wrapped(models.Architectures(), 110)

const synthExamples = `  optimem synth mlp -o mlp.pt
  optimem synth resnet101 -o resnet101.pt
  optimem synth gpt2 -o gpt2.pt
  optimem synth vit_b_16 --dtype bfloat16 -o vit.safetensors
  optimem synth mlp --layers 24 --width 4096 -o big.pt          1.5 GiB
  optimem synth mlp --layers 24 --width 18432 -o 30GB.pt        does not fit in most memories
  optimem synth mlp --in-features 784 --out-features 10 --dtype bfloat16 -o digits.safetensors`

// A synth is one run of the command.
type synth struct {
	*command.Line
	output, dtype                          string
	seed                                   uint64
	layers, width, inFeatures, outFeatures int
	quiet                                  bool
}

// synthDTypes lists the dtypes that random weights come in.
var synthDTypes = []tensor.DType{tensor.Float32, tensor.Float16, tensor.BFloat16}

func synthCommand(c *command.Line) *cobra.Command {
	s := synth{Line: c}
	cmd := &cobra.Command{
		Use:     "synth ARCH -o FILE [flags]",
		Short:   "Write a checkpoint with random weights",
		Long:    synthLong,
		Example: synthExamples,
		Args: c.Arguments(func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("give one architecture")
			}
			return nil
		}),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return models.Architectures(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: c.Enter(func(cmd *cobra.Command, args []string) error { return s.run(cmd, args[0]) }),
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVarP(&s.output, "output", "o", "", "write to `FILE` (required)")
	flags.Uint64Var(&s.seed, "seed", 0, "seed of the random weights, a number `N`")
	flags.StringVar(&s.dtype, "dtype", "float32", "`DTYPE` of the weights: float32, float16 or bfloat16")
	flags.IntVar(&s.layers, "layers", 4, "mlp: `N` linear layers")
	flags.IntVar(&s.width, "width", 1024, "mlp: `N` features in a hidden layer")
	flags.IntVar(&s.inFeatures, "in-features", 0, "mlp: `N` features go in (default: the width)")
	flags.IntVar(&s.outFeatures, "out-features", 0, "mlp: `N` features come out (default: the width)")
	flags.BoolVar(&s.quiet, "quiet", false, "draw no progress")
	_ = cmd.RegisterFlagCompletionFunc(
		"dtype", cobra.FixedCompletions(dtypeNames(), cobra.ShellCompDirectiveNoFileComp),
	)
	return cmd
}

func dtypeNames() []string {
	var names []string
	for _, d := range synthDTypes {
		names = append(names, d.String())
	}
	return names
}

func (s *synth) run(cmd *cobra.Command, arch string) error {
	if s.output == "" {
		return command.UsageError(cmd, errors.New("no output file given"), "name it with -o, for instance -o "+arch+".pt")
	}
	write, err := s.format()
	if err != nil {
		return command.UsageError(cmd, err, "the name ends in .pt, .pth, .bin or .safetensors")
	}
	tensors, err := s.tensors(cmd, arch)
	if err != nil {
		return err
	}
	return s.write(cmd.Context(), tensors, write)
}

// tensors lists what the architecture consists of.
func (s *synth) tensors(cmd *cobra.Command, arch string) ([]loader.TensorData, error) {
	dtype := tensor.Invalid
	for _, d := range synthDTypes {
		if d.String() == s.dtype {
			dtype = d
		}
	}
	if dtype == tensor.Invalid {
		return nil, command.UsageError(cmd, fmt.Errorf("unknown dtype %q", s.dtype),
			"write one of "+strings.Join(dtypeNames(), ", "))
	}
	if arch == "mlp" {
		tensors, err := s.mlp(dtype)
		if err != nil {
			return nil, command.UsageError(cmd, fmt.Errorf("%s: %w", arch, err))
		}
		return tensors, nil
	}
	for _, name := range mlpFlags {
		if cmd.Flags().Changed(name) {
			return nil, command.UsageError(cmd, fmt.Errorf("--%s is for mlp; %s has sizes of its own", name, arch))
		}
	}
	a, err := models.NewArchitecture(arch)
	if err != nil {
		var unknown *models.UnknownArchitectureError
		if errors.As(err, &unknown) {
			return nil, command.UsageError(cmd, err, running.ArchitectureHint(unknown))
		}
		return nil, err
	}
	return models.Synthesize(a, s.seed, dtype)
}

// mlpFlags are for one architecture only.
var mlpFlags = []string{"layers", "width", "in-features", "out-features"}

// wrapped writes names as indented lines.
func wrapped(names []string, columns int) string {
	var b strings.Builder
	line := " "
	for _, n := range names {
		if n == "mlp" {
			continue
		}
		if len(line)+1+len(n) > columns {
			b.WriteString(line + "\n")
			line = " "
		}
		line += " " + n
	}
	b.WriteString(line)
	return b.String()
}

// write makes the file.
func (s *synth) write(ctx context.Context, tensors []loader.TensorData, write synthWriter) error {
	var totalBytes int64
	for _, t := range tensors {
		n, err := t.Shape.NumElements()
		if err != nil {
			return err
		}
		totalBytes += n * int64(t.DType.Size())
	}
	const recordBytes = 512 // headers and padding around the data of one tensor, roughly
	if err := newfile.CheckRoom(s.output, totalBytes+int64(len(tensors))*recordBytes); err != nil {
		return err
	}
	var bar *command.Progress
	if s.quiet {
		bar = &command.Progress{}
	} else {
		bar = command.NewProgress(s.Stderr, filepath.Base(s.output), totalBytes)
	}
	defer bar.Clear()
	return newfile.Write(s.output, func(f *os.File) error {
		b := bufio.NewWriterSize(command.CountingWriter{W: f, Tick: bar.Add}, 1<<20)
		if err := write(ctx, b, tensors); err != nil {
			return err
		}
		return b.Flush()
	})
}

// A synthWriter writes tensors in one format.
type synthWriter func(ctx context.Context, w io.Writer, tensors []loader.TensorData) error

// format chooses the writer by the name of the output.
func (s *synth) format() (synthWriter, error) {
	name := filepath.Base(s.output)
	ext := filepath.Ext(name)
	switch strings.ToLower(ext) {
	case ".pt", ".pth", ".bin":
		return func(ctx context.Context, w io.Writer, tensors []loader.TensorData) error {
			return loader.WriteTorchZip(ctx, w, strings.TrimSuffix(name, ext), tensors)
		}, nil
	case ".safetensors":
		return func(ctx context.Context, w io.Writer, tensors []loader.TensorData) error {
			return loader.WriteSafetensors(ctx, w, tensors, map[string]string{"format": "pt"})
		}, nil
	}
	return nil, fmt.Errorf("%s: no format goes by that name", s.output)
}
