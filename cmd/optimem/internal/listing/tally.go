package listing

import (
	"cmp"
	"math"
	"slices"

	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// A count is an amount of tensor data: elements and bytes.
type count struct{ params, bytes int64 }

// plus adds and saturates: a sparse file can claim storages that no sum of int64 holds.
func (c count) plus(d count) count {
	return count{addSat(c.params, d.params), addSat(c.bytes, d.bytes)}
}

func addSat(a, b int64) int64 {
	if b > math.MaxInt64-a {
		return math.MaxInt64
	}
	return a + b
}

// A tally counts every storage once, however many tensors are views of it: what the tensors cover of it, but never
// more than their own elements (a strided view skips some, an expanded one repeats some).
type tally struct {
	total count
	// own is what a tensor takes by itself, fresh what it adds to those before it in order.
	own, fresh []count
	// storage names the storage of a tensor by the index of the first tensor in it.
	storage []int32
	// sharesWith is the index of the first tensor before this one whose storage overlaps, −1 where none does.
	sharesWith []int32
	// order lists all tensors so that the views of one storage are consecutive.
	order []int32
}

func newTally(weights []tensor.Weight) *tally {
	t := &tally{
		own:     make([]count, len(weights)),
		fresh:   make([]count, len(weights)),
		storage: storages(weights),
		order:   make([]int32, 0, len(weights)),
	}
	views := make(map[int32][]int32) // by first tensor, for storages with several
	for i, first := range t.storage {
		t.own[i] = ownCount(weights[i])
		if first != int32(i) {
			views[first] = append(views[first], int32(i))
		}
	}
	t.sharesWith = sharing(weights, t.storage)
	for i := range weights {
		switch group := views[int32(i)]; {
		case t.storage[i] != int32(i):
		case len(group) > 0:
			t.sweep(weights, append([]int32{int32(i)}, group...))
		default:
			t.fresh[i] = t.own[i]
			t.order = append(t.order, int32(i))
		}
	}
	for _, n := range t.fresh {
		t.total = t.total.plus(n)
	}
	return t
}

// storages returns for every weight the first weight in the same storage. Extents that overlap are one storage: the
// legacy format has storages that are part of another.
func storages(weights []tensor.Weight) []int32 {
	sources := make(map[storage.Source]int)
	order := make([]int32, 0, len(weights))
	first := make([]int32, len(weights))
	for i, w := range weights {
		first[i] = int32(i)
		if w.Extent.Bytes == 0 {
			continue
		}
		if _, known := sources[w.Extent.Source]; !known {
			sources[w.Extent.Source] = len(sources)
		}
		order = append(order, int32(i))
	}
	slices.SortFunc(order, func(i, j int32) int {
		a, b := weights[i].Extent, weights[j].Extent
		return cmp.Or(cmp.Compare(sources[a.Source], sources[b.Source]), cmp.Compare(a.Offset, b.Offset))
	})
	for from := 0; from < len(order); {
		extent := weights[order[from]].Extent
		end := extent.Offset + extent.Bytes
		least := order[from]
		to := from + 1
		for ; to < len(order); to++ {
			next := weights[order[to]].Extent
			if next.Source != extent.Source || next.Offset >= end {
				break
			}
			end = max(end, next.Offset+next.Bytes)
			least = min(least, order[to])
		}
		for _, i := range order[from:to] {
			first[i] = least
		}
		from = to
	}
	return first
}

// sharing returns for every weight the first weight before it that it shares bytes of a storage with, −1 for none.
func sharing(weights []tensor.Weight, storage []int32) []int32 {
	with := make([]int32, len(weights))
	distinct := make(map[int32][]int32) // by storage: the first weight of each extent
	for i, w := range weights {
		with[i] = -1
		if w.Extent.Bytes == 0 {
			continue
		}
		extents := distinct[storage[i]]
		known := false
		for _, j := range extents {
			if with[i] < 0 && w.SharesStorage(weights[j]) {
				with[i] = j
			}
			if known = w.Extent == weights[j].Extent; known {
				break
			}
		}
		if !known {
			distinct[storage[i]] = append(extents, int32(i))
		}
	}
	return with
}

// ownCount counts the elements of w, those that a zero stride repeats once.
func ownCount(w tensor.Weight) count {
	size := int64(w.DType.Size())
	n := min(w.NumElements(), w.Span().Bytes/size)
	return count{n, n * size}
}

// sweep walks the views of one storage by position. What a view skips stays available to those that follow, so that
// interleaved views (x[::2] and x[1::2]) count in full, and the same view again counts nothing.
func (t *tally) sweep(weights []tensor.Weight, group []int32) {
	slices.SortStableFunc(group, func(i, j int32) int {
		a, b := weights[i].Span(), weights[j].Span()
		return cmp.Or(cmp.Compare(a.Offset, b.Offset), cmp.Compare(b.Bytes, a.Bytes))
	})
	var covered, skipped int64
	for k, i := range group {
		span := weights[i].Span()
		end := span.Offset + span.Bytes
		newBytes := int64(0)
		if k == 0 || end > covered {
			newBytes = end - max(span.Offset, covered)
			covered = end
		}
		available := skipped + newBytes
		freshBytes := min(t.own[i].bytes, available)
		if k > 0 && sameView(weights[i], weights[group[k-1]]) {
			freshBytes = 0
		}
		skipped = available - freshBytes
		t.fresh[i] = count{freshBytes / int64(weights[i].DType.Size()), freshBytes}
	}
	t.order = append(t.order, group...)
}

func sameView(a, b tensor.Weight) bool {
	return a.DType == b.DType && a.Span() == b.Span() && a.Layout.Shape.Equal(b.Layout.Shape) &&
		slices.Equal(a.Layout.Strides, b.Layout.Strides)
}
