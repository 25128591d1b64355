package pack

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/storage/packed"
)

// A place says when a pass wants something: what comes before the layers, layers in order, what comes behind them; of a
// layer each expert by itself, behind what all rows need.
type place struct {
	stage         int
	stack         string
	layer, expert int
}

// The stages of a pass.
const (
	before = iota
	within
	behind
)

// A part is bytes of a file with when they are wanted.
type part struct {
	packed.Run
	place
}

func (p *part) end() int64 { return p.Offset + p.Bytes }

// runsOf returns the parts of a file of weights in the order in which a pass is expected to want them, as far as names
// tell; nil where the file says nothing of that. What is wrong with a file is not said here: as bytes it can be packed.
func runsOf(ctx context.Context, path string, size int64) []packed.Run {
	ckpt, err := loader.OpenWith(ctx, path, loader.Options{})
	if err != nil {
		return nil
	}
	defer ckpt.Close()
	var list []part
	var only storage.Source
	for i := range ckpt.Weights {
		w := &ckpt.Weights[i]
		file, ok := w.Extent.Source.(*storage.File)
		if !ok || file.Size() != size {
			continue
		}
		if only == nil {
			only = file
		}
		if only == storage.Source(file) {
			shape := []int(w.Layout.Shape)
			if !w.Layout.IsContiguous() {
				shape = nil
			}
			list = append(list, partsOf(w.Name, w.Span(), shape)...)
		}
	}
	return arrange(list, size)
}

// partsOf returns the parts of a weight that lies in one piece: one, or that of each expert. shape is nil where it does not.
func partsOf(name string, at storage.Extent, shape []int) []part {
	p := part{packed.Run{Offset: at.Offset, Bytes: at.Bytes}, placeOf(name)}
	experts := int64(1)
	if len(shape) == 3 && p.stage == within && p.expert < 0 && ofExperts(name) {
		experts = int64(shape[0])
	}
	if experts < 2 || at.Bytes%experts != 0 || at.Bytes == 0 {
		return []part{p}
	}
	list := make([]part, experts)
	for e := range list {
		p.expert, p.Bytes = e, at.Bytes/experts
		p.Offset = at.Offset + int64(e)*p.Bytes
		list[e] = p
	}
	return list
}

// ofExperts reports whether a weight of three dimensions has those of a layer's experts, one after the other.
func ofExperts(name string) bool {
	for c := range strings.SplitSeq(name, ".") {
		if c == "experts" || strings.HasSuffix(c, "_exps") {
			return true
		}
	}
	return false
}

// placeOf says by a weight's name when it is wanted. The first number in it is that of a layer, one behind "experts" that
// of an expert.
func placeOf(name string) place {
	words := strings.Split(name, ".")
	p := place{stage: behind, layer: -1, expert: -1}
	for i, word := range words {
		n, err := strconv.Atoi(word)
		switch {
		case err != nil || n < 0:
		case p.stage != within:
			p.stage, p.stack, p.layer = within, strings.Join(words[:i], "."), n
		case words[i-1] == "experts" && p.expert < 0:
			p.expert = n
		}
	}
	if p.stage == behind && slices.ContainsFunc(words, func(w string) bool {
		return strings.Contains(w, "emb") || w == "wte" || w == "wpe"
	}) {
		p.stage = before
	}
	return p
}

// arrange returns the runs of a file of so many bytes: its parts in order, and what is between them behind what it
// follows. Small neighbours are one run, since blocks begin anew with each.
func arrange(list []part, size int64) []packed.Run {
	slices.SortStableFunc(list, func(a, b part) int { return cmp.Compare(a.Offset, b.Offset) })
	whole := []part{{place: place{stage: before - 1, layer: -1, expert: -1}}} // what comes before the weights
	stacks := make(map[string]int)                                            // in the order of the file
	for _, p := range list {
		last := &whole[len(whole)-1]
		if _, ok := stacks[p.stack]; !ok {
			stacks[p.stack] = len(stacks)
		}
		if p.Bytes <= 0 || p.Offset < last.end() { // others share the bytes
			last.Bytes = max(last.end(), min(p.end(), size)) - last.Offset
			continue
		}
		last.Bytes = p.Offset - last.Offset
		if p.place == last.place && min(p.Bytes, last.Bytes) < packed.DefaultBlockBytes {
			last.Bytes += p.Bytes
			continue
		}
		whole = append(whole, p)
	}
	last := &whole[len(whole)-1]
	last.Bytes = size - last.Offset
	slices.SortStableFunc(whole, func(a, b part) int {
		return cmp.Or(cmp.Compare(a.stage, b.stage), cmp.Compare(stacks[a.stack], stacks[b.stack]),
			cmp.Compare(a.layer, b.layer), cmp.Compare(a.expert, b.expert))
	})
	var runs []packed.Run
	for _, p := range whole {
		if p.Bytes > 0 {
			runs = append(runs, p.Run)
		}
	}
	return runs
}
