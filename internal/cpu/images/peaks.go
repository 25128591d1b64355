package images

import (
	"context"
	"fmt"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/internal/cpu/tasks"
	"github.com/optimem/optimem/tensor"
)

// peakRows is how many rows of a region a part has the taps of at a time, peakParts how many parts there are at most, and
// peakSize the largest height and width of a region.
const (
	peakRows  = 256
	peakParts = 16
	peakSize  = 1 << 16
)

// peakRoom is the memory of one part: a column of a map of some height, and taps.
func peakRoom(height int) int { return 8*height + peakRows*(4*8+4*4) }

func peaksWork(in, _ []graph.Spec, _ graph.Attrs) int64 {
	return int64(peakRoom(in[0].Shape[2])) * int64(min(in[0].Shape[0]*in[0].Shape[1], peakParts))
}

// runPeaks checks the sizes before it computes.
func runPeaks(c *ops.Call) error {
	for _, out := range c.Out {
		clear(out.Data)
	}
	maps := c.In[0].Shape()
	n := maps[0]
	if len(c.In) > 2 && !c.In[2].Absent() {
		n = int(min(max(ops.Row[int64](c.In[2])[0], 0), int64(n)))
	}
	for k := range n {
		for d := range 2 {
			if size := regionSize(c.In[1], k, d); size < 1 || size > peakSize {
				return fmt.Errorf("a region of %d pixels along a dimension; 1 to %d are", size, peakSize)
			}
		}
	}
	if n *= maps[1]; n == 0 {
		return nil
	}
	if c.In[0].DType == tensor.Float64 {
		findPeaks[float64](c, n)
	} else {
		findPeaks[float32](c, n)
	}
	return c.Ctx.Err()
}

// regionSize returns the height or width of a region.
func regionSize(sizes ops.View, region, d int) int64 {
	l := sizes.Layout
	return ops.Elements[int64](sizes)[l.Offset+region*l.Strides[0]+d*l.Strides[1]]
}

func findPeaks[T ops.Real](c *ops.Call, n int) {
	all := c.In[0].Shape()[0] * c.In[0].Shape()[1]
	t := peaking[T]{
		ctx: c.Ctx, maps: c.In[0], sizes: c.In[1], places: ops.Row[int64](c.Out[0]), values: ops.Row[T](c.Out[1]),
		work: c.Work, grain: (all + peakParts - 1) / peakParts,
	}
	tasks.Do(c.Pool, n, t.grain, t)
}

// peaking is the task of runPeaks: a part is some maps.
type peaking[T ops.Real] struct {
	ctx         context.Context
	maps, sizes ops.View
	places      []int64
	values      []T
	work        []byte
	grain       int
}

// Run implements Task.
func (t *peaking[T]) Run(from, to int) {
	s := t.maps.Shape()
	room := t.work[from/t.grain*peakRoom(s[2]):]
	column := ops.Elements[T](ops.View{Data: room})[:s[2]]
	taps := room[8*s[2]:]
	for k := from; k < to; k++ {
		region := k / s[1]
		t.peak(k, int(regionSize(t.sizes, region, 0)), int(regionSize(t.sizes, region, 1)), column, taps)
	}
}

// peak finds the largest pixel of one map. Rows come in runs whose taps there is room for; of each run all columns are
// interpolated across once, and then down.
func (t *peaking[T]) peak(k, height, width int, column []T, taps []byte) {
	s, l := t.maps.Shape(), t.maps.Layout
	plane := ops.Elements[T](t.maps)
	origin := l.Offset + k/s[1]*l.Strides[0] + k%s[1]*l.Strides[1]
	weights := ops.Elements[[4]T](ops.View{Data: taps})[:peakRows]
	indices := ops.Elements[[4]int32](ops.View{Data: taps[peakRows*32:]})[:peakRows]
	down, across := T(s[2])/T(height), T(s[3])/T(width)
	best, row, col, found := T(0), 0, 0, false
	for top := 0; top < height; top += peakRows {
		rows := min(peakRows, height-top)
		for y := range rows {
			place("cubic", indices[y][:], weights[y][:], down, top+y, s[2], false)
		}
		for x := range width {
			if t.ctx.Err() != nil {
				return
			}
			var index [4]int32
			var weight [4]T
			place("cubic", index[:], weight[:], across, x, s[3], false)
			for y := range column {
				at := origin + y*l.Strides[2]
				var v T
				for i, w := range weight {
					v += T(w * plane[at+int(index[i])*l.Strides[3]])
				}
				column[y] = v
			}
			for y := range rows {
				w, i := &weights[y], &indices[y]
				v := T(w[0]*column[i[0]]) + T(w[1]*column[i[1]]) + T(w[2]*column[i[2]]) + T(w[3]*column[i[3]])
				greater := v > best || v != v && best == best
				same := v == best || v != v && best != best
				if r := top + y; !found || greater || same && (r < row || r == row && x < col) {
					best, row, col, found = v, r, x, true
				}
			}
		}
	}
	t.places[2*k], t.places[2*k+1], t.values[k] = int64(row), int64(col), best
}
