package cpu

import (
	"cmp"
	"math"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/tasks"
)

// sortKernels order lines by keys that are unsigned integers in the order of the elements, and by index where keys are
// equal: so every order is the only one.
var sortKernels = map[graph.Kind]kernel{
	// torch.sort with stable=True.
	"sort": {run: runSort, work: sortWork(0)},
	// torch.topk, sorted.
	"topk": {run: runTopK, work: sortWork(0)},
	// torch.kthvalue, torch.median and nanmedian, torch.mode.
	"kthvalue": {run: runChoice(kth), work: sortWork(0)},
	"median":   {run: runChoice(median), work: sortWork(0)},
	"mode":     {run: runChoice(mode), work: sortWork(0)},
}

// A ranked is an element to be sorted.
type ranked struct {
	key   uint64
	index int
}

func byKey(a, b ranked) int {
	if a.key != b.key {
		return cmp.Compare(a.key, b.key)
	}
	return cmp.Compare(a.index, b.index)
}

// nanKey is the key of NaN, the largest.
const nanKey = math.MaxUint64

// sortParts bounds how many lines are sorted at a time.
const sortParts = 8

// sortWork is room for one line in each part.
func sortWork(operand int) func(in, _ []graph.Spec, a graph.Attrs) int64 {
	return func(in, _ []graph.Spec, a graph.Attrs) int64 {
		s := in[operand].Shape
		n := 1
		if len(s) > 0 {
			n = s[a.Int("dim")]
		}
		return int64(min(sortParts, volume(s)/max(n, 1))) * int64(n) * 16
	}
}

// sortLines does each line of a call with its elements, in order of index.
func sortLines(c *call, do func(t *sorting, line, first int, items []ranked)) {
	a := alongDim(c.in[0].layout, c.attrs.Int("dim"))
	if a.n == 0 || a.count == 0 {
		return
	}
	size := (a.count + sortParts - 1) / sortParts
	tasks.Do(c.pool, a.count, size, sorting{
		along: a, c: c, do: do, size: size, descending: c.attrs.Bool("descending") || c.attrs.Bool("largest"),
	})
}

// sorting is the task of sortLines: a part is size lines.
type sorting struct {
	along
	c          *call
	size       int
	descending bool
	// do makes the results of a line from where its elements begin; it may change the items.
	do func(t *sorting, line, first int, items []ranked)
}

// Run implements Task.
func (t *sorting) Run(from, to int) {
	items := elements[ranked](view{data: t.c.work})[from/t.size*t.n:][:t.n]
	t.each(from, to, func(line, first int) {
		rankLine(items, t.c.in[0], first, t.stride, t.descending)
		t.do(t, line, first, items)
	})
}

// rankLine fills items with the keys of a line.
func rankLine(items []ranked, x view, first, stride int, descending bool) {
	var ints [chunk]int64
	var reals [chunk]float64
	flip := uint64(0)
	if descending {
		flip = math.MaxUint64
	}
	for k := 0; k < len(items); k += chunk {
		n := min(chunk, len(items)-k)
		if isReal(x.dtype) {
			loadReal(reals[:n], x, first+k*stride, stride)
		} else {
			loadInts(ints[:n], x, first+k*stride, stride)
		}
		for i := range n {
			key := uint64(ints[i]) ^ 1<<63
			if isReal(x.dtype) {
				key = floatKey(reals[i])
			}
			items[k+i] = ranked{key ^ flip, k + i}
		}
	}
}

// floatKey orders floats: −0 is 0.
func floatKey(v float64) uint64 {
	switch bits := math.Float64bits(v); {
	case v != v:
		return nanKey
	case v == 0:
		return 1 << 63
	case bits>>63 == 1:
		return ^bits
	default:
		return bits | 1<<63
	}
}

// giveRanked writes the elements at items' indices, and these, to line of the results.
func giveRanked(t *sorting, line, first int, items []ranked) {
	to, indices := t.first(line, len(items)), elements[int64](t.c.out[1])
	for i, it := range items {
		copyElement(t.c.out[0], to+i*t.inner, t.c.in[0], first+it.index*t.stride)
		indices[to+i*t.inner] = int64(it.index)
	}
}

// copyElement copies one element between views of one dtype.
func copyElement(dst view, to int, src view, from int) {
	size := src.dtype.Size()
	copy(dst.data[to*size:(to+1)*size], src.data[from*size:(from+1)*size])
}

func runSort(c *call) error {
	sortLines(c, func(t *sorting, line, first int, items []ranked) {
		slices.SortFunc(items, byKey)
		giveRanked(t, line, first, items)
	})
	return nil
}

func runTopK(c *call) error {
	if c.attrs.Int("k") == 0 {
		return nil
	}
	sortLines(c, func(t *sorting, line, first int, items []ranked) {
		giveRanked(t, line, first, least(items, t.c.attrs.Int("k")))
	})
	return nil
}

// least returns the first k items of the order, sorted.
func least(items []ranked, k int) []ranked {
	if k < len(items)/8 {
		// The first k are a heap with the last of them on top, which what comes before it replaces.
		heap := items[:k]
		for i := k/2 - 1; i >= 0; i-- {
			sink(heap, i)
		}
		for _, it := range items[k:] {
			if byKey(it, heap[0]) < 0 {
				heap[0] = it
				sink(heap, 0)
			}
		}
		items = heap
	}
	slices.SortFunc(items, byKey)
	return items[:k]
}

// sink moves item i down to where no item below comes after it.
func sink(heap []ranked, i int) {
	for {
		child := 2*i + 1
		if child >= len(heap) {
			return
		}
		if child+1 < len(heap) && byKey(heap[child], heap[child+1]) < 0 {
			child++
		}
		if byKey(heap[i], heap[child]) >= 0 {
			return
		}
		heap[i], heap[child] = heap[child], heap[i]
		i = child
	}
}

// runChoice gives the one element of every line that choose returns.
func runChoice(choose func(c *call, items []ranked) ranked) func(c *call) error {
	do := func(t *sorting, line, first int, items []ranked) {
		it := choose(t.c, items)
		copyElement(t.c.out[0], line, t.c.in[0], first+it.index*t.stride)
		elements[int64](t.c.out[1])[line] = int64(it.index)
	}
	return func(c *call) error {
		sortLines(c, do)
		return nil
	}
}

func kth(c *call, items []ranked) ranked {
	slices.SortFunc(items, byKey)
	return items[c.attrs.Int("k")-1]
}

func median(c *call, items []ranked) ranked {
	slices.SortFunc(items, byKey)
	n := len(items)
	if isReal(c.in[0].dtype) && items[n-1].key == nanKey {
		nan := slices.IndexFunc(items, func(it ranked) bool { return it.key == nanKey })
		if !c.attrs.Bool("ignore_nan") || nan == 0 {
			return items[nan]
		}
		n = nan
	}
	return items[(n-1)/2]
}

func mode(_ *call, items []ranked) ranked {
	slices.SortFunc(items, byKey)
	best, most := items[0], 0
	for from := 0; from < len(items); {
		to := from
		for to < len(items) && items[to].key == items[from].key {
			to++
		}
		if to-from > most {
			best, most = items[to-1], to-from
		}
		from = to
	}
	return best
}
