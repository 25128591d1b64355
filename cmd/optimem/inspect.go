package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/storage/packed"
	"github.com/optimem/optimem/tensor"
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

func (c *commandLine) inspectCommand() *cobra.Command {
	var (
		asJSON    bool
		text      textOptions
		maxMemory sizeFlag
	)
	cmd := &cobra.Command{
		Use:     "inspect CKPT [flags]",
		Short:   "Say what is in a checkpoint, without reading a weight",
		Long:    inspectLong,
		Example: inspectExamples,
		Args:    c.arguments(oneCheckpoint),
		RunE: c.enter(func(cmd *cobra.Command, args []string) error {
			if text.tensors < 0 {
				return usageError(cmd, errors.New("--tensors takes a number of lines, 0 or more"))
			}
			return c.inspect(cmd.Context(), args[0], asJSON, text, loader.Limits{MemoryBytes: int64(maxMemory)})
		}),
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVar(&asJSON, "json", false, "print one JSON object, with every tensor and module")
	flags.IntVar(&text.tensors, "tensors", 20, "list `N` tensors")
	flags.BoolVar(&text.all, "all", false, "list all tensors and all modules")
	flags.Var(&maxMemory, "open-memory", "memory that opening the file may take (default 12 × its size, from 32 to 256 MiB)")
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

// An inspection is an open checkpoint and what its listing needs.
type inspection struct {
	*loader.Checkpoint
	dicts     []loader.StateDict
	tally     *tally
	tree      *moduleTree
	fileBytes int64
}

func (c *commandLine) inspect(
	ctx context.Context, path string, asJSON bool, text textOptions, limits loader.Limits,
) (err error) {
	boundHeap(limits, path)
	ckpt, err := loader.OpenWith(ctx, path, loader.Options{Limits: limits})
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, ckpt.Close()) }()
	in := newInspection(ckpt)
	if err := ctx.Err(); err != nil {
		return err
	}
	if asJSON {
		return in.writeJSON(c.stdout)
	}
	return in.writeText(c.stdout, text)
}

func newInspection(ckpt *loader.Checkpoint) *inspection {
	in := &inspection{Checkpoint: ckpt, dicts: ckpt.StateDicts(), tally: newTally(ckpt.Weights)}
	in.tree = modulesOf(ckpt, in.dicts, in.tally)
	in.fileBytes = sourceBytes(ckpt)
	return in
}

// sourceBytes is the size of what was opened: of the file, or of all files that hold weights.
func sourceBytes(ckpt *loader.Checkpoint) int64 {
	if ckpt.Format != loader.FormatSharded && ckpt.Format != loader.FormatHuggingFace {
		if info, err := os.Stat(ckpt.Path); err == nil && info.Mode().IsRegular() {
			return info.Size()
		}
	}
	var total int64
	seen := make(map[storage.Source]bool)
	for _, w := range ckpt.Weights {
		if s := w.Extent.Source; s != nil && !seen[s] {
			seen[s] = true
			if p, ok := s.(*packed.Source); ok {
				total = addSat(total, p.PackedBytes())
				continue
			}
			total = addSat(total, s.Size())
		}
	}
	return total
}

// A dtypeCount is a line of the histogram of dtypes.
type dtypeCount struct {
	dtype   tensor.DType
	tensors int
	count   count
}

// dtypes returns the dtypes in use, the one with most bytes first. A storage counts where its first view does.
func (in *inspection) dtypes() []dtypeCount {
	byDType := make(map[tensor.DType]*dtypeCount)
	for i, w := range in.Weights {
		d := byDType[w.DType]
		if d == nil {
			d = &dtypeCount{dtype: w.DType}
			byDType[w.DType] = d
		}
		d.tensors++
		d.count = d.count.plus(in.tally.fresh[i])
	}
	var all []dtypeCount
	for _, d := range byDType {
		all = append(all, *d)
	}
	slices.SortFunc(all, func(a, b dtypeCount) int {
		return cmp.Or(cmp.Compare(b.count.bytes, a.count.bytes), cmp.Compare(a.dtype, b.dtype))
	})
	return all
}

// storageBytes is the size of the storage that the tensors of a group share.
func (in *inspection) storageBytes(group []int32) int64 {
	first, end := int64(math.MaxInt64), int64(0)
	for _, i := range group {
		e := in.Weights[i].Extent
		first, end = min(first, e.Offset), max(end, e.Offset+e.Bytes)
	}
	return end - first
}

// shared returns the indices of tensors that share a storage, by storage, in order.
func (in *inspection) shared() [][]int32 {
	var groups [][]int32
	at := make(map[int32]int)
	for i, first := range in.tally.storage {
		if first == int32(i) {
			continue
		}
		g, ok := at[first]
		if !ok {
			g = len(groups)
			at[first] = g
			groups = append(groups, []int32{first})
		}
		groups[g] = append(groups[g], int32(i))
	}
	return groups
}
