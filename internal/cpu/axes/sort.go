package axes

import (
	"cmp"
	"math"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/internal/cpu/tasks"
)

// sortKernels order lines by keys that are unsigned integers in the order of the elements, and by index where keys are
// equal: so every order is the only one.
var sortKernels = map[graph.Kind]ops.Kernel{
	// torch.sort with stable=True.
	"sort": {Run: runSort, Work: sortWork(0)},
	// torch.topk, sorted.
	"topk": {Run: runTopK, Work: sortWork(0)},
	// torch.kthvalue, torch.median and nanmedian, torch.mode.
	"kthvalue": {Run: runChoice(kth), Work: sortWork(0)},
	"median":   {Run: runChoice(median), Work: sortWork(0)},
	"mode":     {Run: runChoice(mode), Work: sortWork(0)},
}

// A Ranked is an element to be sorted.
type Ranked struct {
	key   uint64
	Index int
}

// ByKey compares by keys, and equal ones by where they stand.
func ByKey(a, b Ranked) int {
	if a.key != b.key {
		return cmp.Compare(a.key, b.key)
	}
	return cmp.Compare(a.Index, b.Index)
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
		return int64(min(sortParts, ops.Volume(s)/max(n, 1))) * int64(n) * 16
	}
}

// sortLines does each line of a call with its elements, in order of index.
func sortLines(c *ops.Call, do func(t *sorting, line, first int, items []Ranked)) {
	a := ops.AlongDim(c.In[0].Layout, c.Attrs.Int("dim"))
	if a.N == 0 || a.Count == 0 {
		return
	}
	size := (a.Count + sortParts - 1) / sortParts
	tasks.Do(c.Pool, a.Count, size, sorting{
		Along: a, c: c, do: do, size: size, descending: c.Attrs.Bool("descending") || c.Attrs.Bool("largest"),
	})
}

// sorting is the task of sortLines: a part is size lines.
type sorting struct {
	ops.Along
	c          *ops.Call
	size       int
	descending bool
	// do makes the results of a line from where its elements begin; it may change the items.
	do func(t *sorting, line, first int, items []Ranked)
}

// Run implements Task.
func (t *sorting) Run(from, to int) {
	items := ops.Elements[Ranked](ops.View{Data: t.c.Work})[from/t.size*t.N:][:t.N]
	t.Each(from, to, func(line, first int) {
		RankLine(items, t.c.In[0], first, t.Stride, t.descending)
		t.do(t, line, first, items)
	})
}

// RankLine fills items with the keys of a line.
func RankLine(items []Ranked, x ops.View, first, stride int, descending bool) {
	var ints [ops.Chunk]int64
	var reals [ops.Chunk]float64
	flip := uint64(0)
	if descending {
		flip = math.MaxUint64
	}
	for k := 0; k < len(items); k += ops.Chunk {
		n := min(ops.Chunk, len(items)-k)
		if ops.IsReal(x.DType) {
			ops.LoadReal(reals[:n], x, first+k*stride, stride)
		} else {
			ops.LoadInts(ints[:n], x, first+k*stride, stride)
		}
		for i := range n {
			key := uint64(ints[i]) ^ 1<<63
			if ops.IsReal(x.DType) {
				key = floatKey(reals[i])
			}
			items[k+i] = Ranked{key ^ flip, k + i}
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
func giveRanked(t *sorting, line, first int, items []Ranked) {
	to, indices := t.First(line, len(items)), ops.Elements[int64](t.c.Out[1])
	for i, it := range items {
		copyElement(t.c.Out[0], to+i*t.Inner, t.c.In[0], first+it.Index*t.Stride)
		indices[to+i*t.Inner] = int64(it.Index)
	}
}

// copyElement copies one element between views of one dtype.
func copyElement(dst ops.View, to int, src ops.View, from int) {
	size := src.DType.Size()
	copy(dst.Data[to*size:(to+1)*size], src.Data[from*size:(from+1)*size])
}

func runSort(c *ops.Call) error {
	sortLines(c, func(t *sorting, line, first int, items []Ranked) {
		slices.SortFunc(items, ByKey)
		giveRanked(t, line, first, items)
	})
	return nil
}

func runTopK(c *ops.Call) error {
	if c.Attrs.Int("k") == 0 {
		return nil
	}
	sortLines(c, func(t *sorting, line, first int, items []Ranked) {
		giveRanked(t, line, first, least(items, t.c.Attrs.Int("k")))
	})
	return nil
}

// least returns the first k items of the order, sorted.
func least(items []Ranked, k int) []Ranked {
	if k < len(items)/8 {
		// The first k are a heap with the last of them on top, which what comes before it replaces.
		heap := items[:k]
		for i := k/2 - 1; i >= 0; i-- {
			sink(heap, i)
		}
		for _, it := range items[k:] {
			if ByKey(it, heap[0]) < 0 {
				heap[0] = it
				sink(heap, 0)
			}
		}
		items = heap
	}
	slices.SortFunc(items, ByKey)
	return items[:k]
}

// sink moves item i down to where no item below comes after it.
func sink(heap []Ranked, i int) {
	for {
		child := 2*i + 1
		if child >= len(heap) {
			return
		}
		if child+1 < len(heap) && ByKey(heap[child], heap[child+1]) < 0 {
			child++
		}
		if ByKey(heap[i], heap[child]) >= 0 {
			return
		}
		heap[i], heap[child] = heap[child], heap[i]
		i = child
	}
}

// runChoice gives the one element of every line that choose returns.
func runChoice(choose func(c *ops.Call, items []Ranked) Ranked) func(c *ops.Call) error {
	do := func(t *sorting, line, first int, items []Ranked) {
		it := choose(t.c, items)
		copyElement(t.c.Out[0], line, t.c.In[0], first+it.Index*t.Stride)
		ops.Elements[int64](t.c.Out[1])[line] = int64(it.Index)
	}
	return func(c *ops.Call) error {
		sortLines(c, do)
		return nil
	}
}

func kth(c *ops.Call, items []Ranked) Ranked {
	slices.SortFunc(items, ByKey)
	return items[c.Attrs.Int("k")-1]
}

func median(c *ops.Call, items []Ranked) Ranked {
	slices.SortFunc(items, ByKey)
	n := len(items)
	if ops.IsReal(c.In[0].DType) && items[n-1].key == nanKey {
		nan := slices.IndexFunc(items, func(it Ranked) bool { return it.key == nanKey })
		if !c.Attrs.Bool("ignore_nan") || nan == 0 {
			return items[nan]
		}
		n = nan
	}
	return items[(n-1)/2]
}

func mode(_ *ops.Call, items []Ranked) Ranked {
	slices.SortFunc(items, ByKey)
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
