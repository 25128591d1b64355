package blocked

import (
	"context"
	"fmt"
	"math"
	"sync"
	"unsafe"

	"github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/internal/cpu/tasks"
)

// UnitHeads says where some matrices lie in rows of bfloat16, [blocks, Rows, 32]: the first 32 columns of matrix i begin at
// element First[i], those of its next row RowStep rows on, and its next 32 columns Rows rows on.
type UnitHeads struct {
	Rows, RowStep int
	First         []int
}

// end returns how many elements memory has at least that holds the matrices, of some rows and blocks of columns.
func (h *UnitHeads) end(rows, blocks int) int {
	end := 0
	for _, first := range h.First {
		end = max(end, first+((rows-1)*h.RowStep+(blocks-1)*h.Rows+1)*UnitLanes)
	}
	return end
}

// A UnitAttention is attention of one geometry by a matrix unit: for each matrix, softmax(q·kᵀ·Scale + mask)·v. Queries,
// keys, values, weights and results are bfloat16, scores and sums float32. All scores of some queries are computed before
// their softmax. It is immutable: any number of goroutines may use it.
type UnitAttention struct {
	Queries, Keys     int
	Width, ValueWidth int // multiples of 32
	Q, K, V, Y        UnitHeads
	Scale             float32
	// Causal says that query i sees the keys up to the i-th. Unseen is what a query gives that sees none: zero, or NaN.
	Causal bool
	Unseen float32

	set *kernel.UnitSet
	// rows are the queries that are computed with together, a part's are in the same range of splits.
	rows, splits  int
	queryOffsets  []int
	weightOffsets []int
	panels        int
}

// negative and positive limit nothing.
var negative, positive = float32(math.Inf(-1)), float32(math.Inf(1))

const (
	// unitMostKeys bounds the memory of a part: about a megabyte.
	unitMostKeys = 2048
	// unitMostWidth is that of a head.
	unitMostWidth = 512
)

// NewUnitAttention returns an attention, whose exported fields are set, by a set of kernels, or why there is none.
func NewUnitAttention(a UnitAttention, set *kernel.UnitSet) (*UnitAttention, error) {
	u := &a
	heads := len(u.Y.First)
	switch {
	case u.Width%UnitLanes != 0 || u.ValueWidth%UnitLanes != 0 || u.Width == 0 || u.ValueWidth == 0:
		return nil, fmt.Errorf("a head of width %d, and values of %d", u.Width, u.ValueWidth)
	case u.Width > unitMostWidth || u.ValueWidth > unitMostWidth:
		return nil, fmt.Errorf("a head of width %d, and values of %d", u.Width, u.ValueWidth)
	case u.Keys == 0 || u.Keys > unitMostKeys || u.Queries == 0:
		return nil, fmt.Errorf("%d queries of %d keys", u.Queries, u.Keys)
	case heads == 0 || len(u.Q.First) != heads || len(u.K.First) != heads || len(u.V.First) != heads:
		return nil, fmt.Errorf("%d matrices", heads)
	case u.Y.RowStep != 1 || u.Q.RowStep < 0 || u.K.RowStep < 0 || u.V.RowStep < 0:
		return nil, fmt.Errorf("rows %d, %d, %d and %d apart", u.Q.RowStep, u.K.RowStep, u.V.RowStep, u.Y.RowStep)
	}
	u.set = set
	u.panels = ceil(u.Keys, UnitLanes)
	const block, scores = 2 * kernel.UnitPixels, 1 << 16 // floats
	u.rows = min(max(scores/(u.panels*UnitLanes)/block*block, block), 4*block, roundUp(u.Queries, block))
	u.splits = min(max(1, unitParts/heads), ceil(u.Queries, u.rows))
	for b := range u.Width / UnitLanes {
		u.queryOffsets = append(u.queryOffsets, 2*b*u.Q.Rows*UnitLanes)
	}
	for b := range u.panels {
		u.weightOffsets = append(u.weightOffsets, 2*b*u.rows*UnitLanes)
	}
	return u, nil
}

// slotFloats is the scratch memory of a part: packed keys and values, scores, weights, a mask, and sums.
func (u *UnitAttention) slotFloats() int {
	keys := u.panels * UnitLanes
	return keys*(u.Width+u.ValueWidth)/2 + u.rows*keys*5/2 + 2*kernel.UnitSums
}

// WorkBytes is the scratch memory that Run needs on a pool of the given number of threads.
func (u *UnitAttention) WorkBytes(threads int) int64 { return 4 * int64(16+threads*u.slotFloats()) }

// UnitAttentionArgs are the operands of a UnitAttention.
type UnitAttentionArgs struct {
	Q, K, V, Y []uint16
	// Mask writes what is added to the scores of a query of a matrix, unless it is nil; it returns false where that is
	// nothing.
	Mask func(head, query int, to []float32) bool
	Work []float32
}

// Run computes the attention. It returns early, with the context's error, when that is cancelled.
func (u *UnitAttention) Run(ctx context.Context, pool Pool, a UnitAttentionArgs) error {
	width, values := u.Width/UnitLanes, u.ValueWidth/UnitLanes
	if len(a.Q) < u.Q.end(u.Queries, width) || len(a.K) < u.K.end(u.Keys, width) ||
		len(a.V) < u.V.end(u.Keys, values) ||
		len(a.Y) < u.Y.end(u.Queries, values) {
		panic("BUG: blocked: an operand of attention is smaller than its geometry")
	}
	work := a.Work[-int(uintptr(unsafe.Pointer(unsafe.SliceData(a.Work))))&63/4:]
	r := tasks.Take[attentionRun]()
	free := r.free[:0]
	*r = attentionRun{UnitAttention: u, ctx: ctx, a: a, free: free}
	for i := range pool.Threads() {
		r.free = append(r.free, work[i*u.slotFloats():(i+1)*u.slotFloats()])
	}
	for i := range r.scale {
		r.scale[i], r.ones[i] = u.Scale, 1
	}
	pool.Do(len(u.Y.First)*u.splits, 1, r)
	clear(r.free)
	*r = attentionRun{free: r.free[:0]}
	tasks.Give(r)
	return ctx.Err()
}

// An attentionRun is an attention being computed. It is a task whose parts are ranges of the queries of matrices.
type attentionRun struct {
	*UnitAttention
	ctx                context.Context
	a                  UnitAttentionArgs
	scale, ones, zeros [UnitLanes]float32
	mu                 sync.Mutex
	free               [][]float32
}

// Run implements tasks.Task.
func (r *attentionRun) Run(i, j int) {
	for ; i < j && r.ctx.Err() == nil; i++ {
		slot := r.take()
		r.part(i/r.splits, i%r.splits, slot)
		r.give(slot)
	}
}

func (r *attentionRun) take() []float32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	slot := r.free[len(r.free)-1]
	r.free = r.free[:len(r.free)-1]
	return slot
}

func (r *attentionRun) give(slot []float32) {
	r.mu.Lock()
	r.free = append(r.free, slot)
	r.mu.Unlock()
}

// part computes a range of the queries of a matrix.
func (r *attentionRun) part(head, split int, slot []float32) {
	take := func(n int) []float32 {
		part := slot[:n]
		slot = slot[n:]
		return part
	}
	keys := r.panels * UnitLanes
	packedKeys, packedValues := halvesOf(take(keys*r.Width/2)), halvesOf(take(keys*r.ValueWidth/2))
	scores, weights, mask := take(r.rows*keys), halvesOf(take(r.rows*keys/2)), take(r.rows*keys)
	sums := take(2 * kernel.UnitSums)
	chunks := ceil(r.Queries, r.rows)
	from, to := chunks*split/r.splits*r.rows, min(chunks*(split+1)/r.splits*r.rows, r.Queries)
	seen := r.Keys
	if r.Causal {
		seen = min(seen, to) // nobody sees those after the last query
	}
	r.packKeys(head, ceil(seen, UnitLanes), packedKeys)
	r.packValues(head, ceil(seen, UnitLanes), packedValues)
	for q := from; q < to; q += r.rows {
		rows := min(r.rows, to-q)
		if r.Causal {
			seen = min(r.Keys, q+rows)
		}
		r.scores(head, q, rows, ceil(seen, UnitLanes), packedKeys, scores)
		t := kernel.UnitScores{
			Scores: &scores[0], ScoresBlock: 4 * r.rows * UnitLanes, Y: &weights[0], YBlock: 2 * r.rows * UnitLanes,
			Rows: rows, Seen: r.Keys, Keys: r.Keys, Blocks: ceil(seen, UnitLanes), Unseen: r.Unseen,
		}
		if r.Causal {
			t.Seen, t.SeenStep = q+1, 1
		}
		if r.a.Mask != nil && r.mask(head, q, rows, mask[:rows*keys]) {
			t.Mask, t.MaskRow = &mask[0], 4*keys
		}
		r.weigh(t)
		r.add(head, q, rows, ceil(seen, UnitLanes), weights, packedValues, sums)
	}
}

// weigh makes weights of scores, a few rows with each call.
func (r *attentionRun) weigh(t kernel.UnitScores) {
	rows := t.Rows
	each := max(1, 1<<14/(t.Blocks*UnitLanes))
	for from := 0; from < rows; from += each {
		t.Rows = min(each, rows-from)
		r.set.Weigh(&t)
		t.Seen += t.Rows * t.SeenStep
		t.Scores = (*float32)(unsafe.Add(unsafe.Pointer(t.Scores), 128*t.Rows))
		t.Y = (*uint16)(unsafe.Add(unsafe.Pointer(t.Y), 64*t.Rows))
		if t.Mask != nil {
			t.Mask = (*float32)(unsafe.Add(unsafe.Pointer(t.Mask), t.MaskRow*t.Rows))
		}
	}
}

// mask writes what is added to the scores of some queries, and reports whether that is anything.
func (r *attentionRun) mask(head, q, rows int, mask []float32) bool {
	width, some := len(mask)/rows, false
	for i := range rows {
		line := mask[i*width:][:r.Keys]
		if r.a.Mask(head, q+i, line) {
			if !some {
				clear(mask[:i*width])
			}
			some = true
		} else if some {
			clear(line)
		}
	}
	return some
}

// packKeys writes panels of 32 keys: for each 32 columns pairs of them, key by key.
func (r *attentionRun) packKeys(head, panels int, dst []uint16) {
	const pairs = UnitLanes / 2
	pitch := r.K.RowStep * UnitLanes
	for p := range panels {
		keys := min(UnitLanes, r.Keys-p*UnitLanes)
		for b := range r.Width / UnitLanes {
			to := words(dst[(p*r.Width/UnitLanes+b)*UnitLanes*UnitLanes:][:UnitLanes*UnitLanes])
			src := r.a.K[r.K.First[head]+b*r.K.Rows*UnitLanes+p*UnitLanes*pitch:]
			if keys < UnitLanes {
				clear(to)
			}
			key := 0
			if r.set.Vectors != nil {
				for ; key+8 <= keys; key += 8 {
					r.set.Vectors.TransposePairs(2, src[key*pitch:], pitch, to[key:], UnitLanes)
				}
			}
			for ; key < keys; key++ {
				line := src[key*pitch:][:UnitLanes]
				for i := range pairs {
					to[i*UnitLanes+key] = uint32(line[2*i]) | uint32(line[2*i+1])<<16
				}
			}
		}
	}
}

// packValues writes panels of 32 columns: pairs of values.
func (r *attentionRun) packValues(head, panels int, dst []uint16) {
	size := r.panels * UnitLanes * UnitLanes
	pitch := r.V.RowStep * UnitLanes
	rows := min(r.Keys, panels*UnitLanes)
	for b := range r.ValueWidth / UnitLanes {
		to := dst[b*size:][:panels*UnitLanes*UnitLanes]
		src := r.a.V[r.V.First[head]+b*r.V.Rows*UnitLanes:]
		r.set.PairRows(rows/2, src, 2*pitch, to)
		if rest := to[rows/2*2*UnitLanes:]; len(rest) > 0 {
			clear(rest)
			if rows%2 == 1 {
				for i, v := range src[(rows-1)*pitch:][:UnitLanes] {
					rest[2*i] = v
				}
			}
		}
	}
}

// scores computes the scores of some queries for panels of keys.
func (r *attentionRun) scores(head, q, rows, panels int, packed []uint16, scores []float32) {
	x := halfAddress(r.a.Q, 2*(r.Q.First[head]+q*r.Q.RowStep*UnitLanes))
	for p := range panels {
		t := kernel.UnitTile{
			X: x, XPixel: 2 * r.Q.RowStep * UnitLanes, Offsets: &r.queryOffsets[0], Steps: len(r.queryOffsets),
			W: halfAddress(packed, 2*p*r.Width*UnitLanes), Keep: 1, Scale: &r.scale[0], Shift: &r.zeros[0],
			Low: negative, High: positive,
		}
		t.Ahead = uintptr(unsafe.Pointer(t.W))
		r.blocks(&t, rows, scores[p*r.rows*UnitLanes:])
	}
}

// add computes the sums of values with weights of some queries.
func (r *attentionRun) add(head, q, rows, panels int, weights, packed []uint16, sums []float32) {
	for b := range r.ValueWidth / UnitLanes {
		y := r.Y.First[head] + (q+b*r.Y.Rows)*UnitLanes
		t := kernel.UnitTile{
			X: halfAddress(weights, 0), XPixel: 2 * UnitLanes, Offsets: &r.weightOffsets[0], Steps: panels,
			W: halfAddress(packed, 2*b*r.panels*UnitLanes*UnitLanes), Y: halfAddress(r.a.Y, 2*y),
			Scale: &r.ones[0], Shift: &r.zeros[0], Mask: 1<<UnitLanes - 1, Low: negative, High: positive,
		}
		t.Ahead = uintptr(unsafe.Pointer(t.W))
		r.blocks(&t, rows, sums)
	}
}

// blocks computes a tile's blocks of 32 rows, and those that are left.
func (r *attentionRun) blocks(t *kernel.UnitTile, rows int, sums []float32) {
	const half, block = kernel.UnitPixels, 2 * kernel.UnitPixels
	t.XSecond, t.XBlock = half*t.XPixel, block*t.XPixel
	t.YSecond, t.YBlock = half*2*UnitLanes, block*2*UnitLanes
	t.Sums, t.Blocks = &sums[0], rows/block
	if t.Blocks > 0 {
		t.SetRows(half, half)
		r.set.Conv(t)
	}
	if rest := rows % block; rest > 0 {
		t.X = (*uint16)(unsafe.Add(unsafe.Pointer(t.X), t.Blocks*t.XBlock))
		if t.Keep != 0 {
			t.Sums = &sums[t.Blocks*kernel.UnitSums]
		} else {
			t.Y = (*uint16)(unsafe.Add(unsafe.Pointer(t.Y), t.Blocks*t.YBlock))
		}
		t.SetRows(min(rest, half), max(0, rest-half))
		t.Blocks = 1
		r.set.Conv(t)
	}
}
