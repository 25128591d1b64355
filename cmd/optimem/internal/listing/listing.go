// Package listing says what is in a checkpoint: its tensors and which of them share storage, its modules with their
// sizes, what a program takes and gives; as text for people and as JSON.
//
// It does not know flags, nor what a model computes.
//
//	err := listing.New(ckpt).WriteText(os.Stdout, listing.TextOptions{Tensors: 20})
package listing

import (
	"cmp"
	"math"
	"os"
	"slices"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/storage/packed"
	"github.com/optimem/optimem/tensor"
)

// A Listing is an open checkpoint and what listing it needs.
type Listing struct {
	*loader.Checkpoint
	dicts     []loader.StateDict
	tally     *tally
	tree      *Tree
	fileBytes int64
}

// New returns the listing of an open checkpoint, of which it reads no weight.
func New(ckpt *loader.Checkpoint) *Listing {
	in := &Listing{Checkpoint: ckpt, dicts: ckpt.StateDicts(), tally: newTally(ckpt.Weights)}
	in.tree = modulesOf(ckpt, in.dicts, in.tally)
	in.fileBytes = SourceBytes(ckpt)
	return in
}

// SourceBytes is the size of what was opened: of the file, or of all files that hold weights.
func SourceBytes(ckpt *loader.Checkpoint) int64 {
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
func (in *Listing) dtypes() []dtypeCount {
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
func (in *Listing) storageBytes(group []int32) int64 {
	first, end := int64(math.MaxInt64), int64(0)
	for _, i := range group {
		e := in.Weights[i].Extent
		first, end = min(first, e.Offset), max(end, e.Offset+e.Bytes)
	}
	return end - first
}

// shared returns the indices of tensors that share a storage, by storage, in order.
func (in *Listing) shared() [][]int32 {
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

// packedBytes returns what the packed files of a checkpoint take, and what they stand for.
func packedBytes(c *loader.Checkpoint) (taken, original int64) {
	for _, f := range c.Packed() {
		taken, original = taken+f.PackedBytes, original+f.Bytes
	}
	return taken, original
}
