package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/optimem/optimem/cmd/optimem/internal/command"
	"github.com/optimem/optimem/cmd/optimem/internal/listing"
	"github.com/optimem/optimem/loader"
)

const inspectLong = `Say what is in a checkpoint: its format, every tensor with dtype, shape and size, which tensors
share storage, the tree of modules with their sizes, and what a program expects and returns. No weight is read, so the
answer comes as fast for 100 GB as for 100 kB.

CKPT is a file (.pt, .pth, .bin, .pt2, .ckpt, .safetensors, .gguf, an index of shards) or a Hugging Face folder; the format
is told by the content, not by the name. Nothing in the file is executed. Tensors of a training checkpoint are listed
under their full path, the optimizer's too; the module tree is that of the state dict.

Long listings are cut, and layers that are all alike are folded into one line; --all prints everything, and --json
prints one object with everything. A tensor's stride and offset count elements. A storage that several tensors share
counts once in the totals.`

const inspectExamples = `  optimem inspect resnet50.pth
  optimem inspect --all model.safetensors | grep lm_head
  optimem inspect --json model.pt | jq -r '.tensors[] | [.name, .dtype, .bytes] | @tsv'
  optimem inspect --open-memory 1GiB moe-with-100000-tensors.pt`

func inspectCommand(c *command.Line) *cobra.Command {
	var (
		asJSON    bool
		text      listing.TextOptions
		maxMemory command.SizeFlag
	)
	cmd := &cobra.Command{
		Use:     "inspect CKPT [flags]",
		Short:   "Say what is in a checkpoint, without reading a weight",
		Long:    inspectLong,
		Example: inspectExamples,
		Args:    c.Arguments(oneCheckpoint),
		RunE: c.Enter(func(cmd *cobra.Command, args []string) error {
			if text.Tensors < 0 {
				return command.UsageError(cmd, errors.New("--tensors takes a number of lines, 0 or more"))
			}
			return inspect(c, cmd.Context(), args[0], asJSON, text, loader.Limits{MemoryBytes: int64(maxMemory)})
		}),
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVar(&asJSON, "json", false, "print one JSON object, with every tensor and module")
	flags.IntVar(&text.Tensors, "tensors", 20, "list `N` tensors")
	flags.BoolVar(&text.All, "all", false, "list all tensors and all modules")
	flags.Var(
		&maxMemory, "open-memory", "memory that opening the file may take (default 12 × its size, from 32 to 256 MiB)",
	)
	return cmd
}

func oneCheckpoint(_ *cobra.Command, args []string) error {
	switch len(args) {
	case 0:
		return errors.New("no checkpoint given")
	case 1:
		return nil
	}
	return fmt.Errorf("one checkpoint at a time, not %d", len(args))
}

func inspect(c *command.Line,
	ctx context.Context, path string, asJSON bool, text listing.TextOptions, limits loader.Limits,
) (err error) {
	command.BoundHeap(limits, path)
	ckpt, err := loader.OpenWith(ctx, path, loader.Options{Limits: limits})
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, ckpt.Close()) }()
	l := listing.New(ckpt)
	if err := ctx.Err(); err != nil {
		return err
	}
	if asJSON {
		return l.WriteJSON(c.Stdout)
	}
	return l.WriteText(c.Stdout, text)
}
