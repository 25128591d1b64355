// Package states has the kernels that walk a sequence with a state that lies in a cache: the causal convolution,
// Mamba's scans and the gated delta rule.
//
// It knows operands and threads (package ops) and the loops of package kernel. It does not know matrices or devices.
//
//	maps.Copy(all, states.Kernels) // by kind: "causal_conv", "selective_scan", "delta_rule"
package states

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/optimem/optimem/graph"
	simd "github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/tensor"
)

// Kernels are the kernels of the package, by kind.
var Kernels = map[graph.Kind]ops.Kernel{
	"causal_conv":    {Run: runWalk(walkConv), WorkOn: walkWork(walkConv)},
	"selective_scan": {Run: runWalk(walkScan), WorkOn: walkWork(walkScan)},
	"delta_rule":     {Run: runWalk(walkDelta), WorkOn: walkWork(walkDelta)},
}

// A walkKind is one of the ops.
type walkKind int

const (
	walkConv walkKind = iota
	walkScan
	walkDelta
)

// walkSizes are those of a call. A unit of work is some channels or heads: their state and all rows, one after the
// other, so that no bit depends on the threads or on how rows are cut into passes.
type walkSizes struct {
	kind              walkKind
	sequences, tokens int
	// heads are how many heads or channels there are, together how many a unit has, of which the last may have fewer.
	heads, together int
	// rows and columns are the numbers of a head's state: taps and 1, N and P, D and E.
	rows, columns int
	// each is how many heads have a group's operands.
	each int
}

// How many channels, and how many heads of one channel, make a unit.
const (
	convTogether = 256
	scanTogether = 32
)

func sizesOfWalk(kind walkKind, shape func(i int) tensor.Shape) walkSizes {
	x := shape(0)
	s := walkSizes{kind: kind, sequences: x[0], tokens: x[1], heads: x[2], together: 1, each: 1}
	switch kind {
	case walkConv:
		s.together, s.rows, s.columns = convTogether, shape(1)[1]-1, 1
	case walkScan:
		s.rows, s.columns, s.each = shape(3)[3], x[3], x[2]/shape(3)[2]
		if s.columns == 1 {
			for s.together = min(scanTogether, s.each); s.each%s.together != 0; s.together-- {
			}
		}
	case walkDelta:
		v := shape(2)
		s.heads, s.rows, s.columns, s.each = v[2], x[3], v[3], v[2]/x[2]
	}
	s.together = max(min(s.together, s.heads), 1)
	return s
}

func (s *walkSizes) units() int { return (s.heads + s.together - 1) / s.together }

// laneFloats is the scratch of one thread: a state, two pieces as large, and rows of operands.
func (s *walkSizes) laneFloats() int {
	state := s.together * s.rows * s.columns
	if s.kind == walkConv {
		return state + s.together*(s.rows+4)
	}
	return 3*state + 3*s.rows + 3*s.columns + 4*s.together
}

// mostLanes bounds the threads that work at one call.
const mostLanes = 64

// lanes is how many threads work at a call at most.
func (s *walkSizes) lanes(threads int) int { return max(min(s.units(), threads, mostLanes), 1) }

func walkWork(kind walkKind) func(threads int, in, _ []graph.Spec, _ graph.Attrs) int64 {
	return func(threads int, in, _ []graph.Spec, _ graph.Attrs) int64 {
		s := sizesOfWalk(kind, func(i int) tensor.Shape { return in[i].Shape })
		return int64(s.lanes(threads)) * int64(s.laneFloats()) * 4
	}
}

// A walking is a call being computed: a task whose parts are lanes, which take units until none is left.
type walking struct {
	walkSizes
	c      *ops.Call
	set    *simd.Set
	cache  ops.View
	states ops.View
	out    []float32
	next   atomic.Int64
}

var walkings = sync.Pool{New: func() any { return new(walking) }}

func runWalk(kind walkKind) func(c *ops.Call) error {
	operand, _ := map[walkKind]graph.Kind{walkConv: "causal_conv", walkScan: "selective_scan", walkDelta: "delta_rule"}[kind].StateOperand()
	return func(c *ops.Call) error {
		w := walkings.Get().(*walking)
		w.walkSizes = sizesOfWalk(kind, func(i int) tensor.Shape { return c.In[i].Shape() })
		w.c, w.set, w.cache, w.states = c, c.Pool.Set, c.Operand(operand), c.Operand(operand+1)
		w.out = ops.Row[float32](c.Out[0])
		err := w.check(operand + 1)
		if err == nil && len(w.out) > 0 {
			w.next.Store(0)
			lanes := w.lanes(min(c.Pool.Threads(), max(len(c.Work)/4/max(w.laneFloats(), 1), 1)))
			c.Pool.Do(lanes, 1, w)
			err = c.Ctx.Err()
		}
		w.c, w.set, w.cache, w.states, w.out = nil, nil, ops.View{}, ops.View{}, nil
		walkings.Put(w)
		return err
	}
}

// check returns an error where a row finds no state.
func (w *walking) check(operand int) error {
	if w.states.Absent() {
		return nil
	}
	places := int64(w.cache.Shape()[0])
	before := false // there is a row before whose state can be gone on with
	for t := range w.tokens {
		from, to := w.place(t, 0), w.place(t, 1)
		bad := from >= places || from < graph.StateAbsent || from == graph.StateBefore && !before
		if bad {
			return &graph.IndexError{Index: from, Size: places, Operand: operand}
		}
		if to >= places {
			return &graph.IndexError{Index: to, Size: places, Operand: operand}
		}
		before = from != graph.StateAbsent
	}
	return nil
}

// place returns where a row begins, 0, or leaves its state, 1.
func (w *walking) place(t, column int) int64 {
	if w.states.Absent() {
		switch {
		case column == 1 || t == 0:
			return graph.StateNone
		}
		return graph.StateBefore
	}
	l := &w.states.Layout
	return ops.Elements[int64](w.states)[l.Offset+t*l.Strides[0]+column*l.Strides[1]]
}

// Run implements Task.
func (w *walking) Run(from, to int) {
	for lane := from; lane < to; lane++ {
		floats := w.laneFloats()
		room := ops.Elements[float32](ops.View{Data: w.c.Work[lane*floats*4:][:floats*4]})
		for n := int(w.next.Add(1)) - 1; n < w.units() && w.c.Ctx.Err() == nil; n = int(w.next.Add(1)) - 1 {
			u := walkUnit{walking: w, head: n * w.together, count: min(w.together, w.heads-n*w.together), room: room}
			u.walk()
		}
	}
}

// A walkUnit computes some heads or channels with scratch of its own.
type walkUnit struct {
	*walking
	head, count int
	room        []float32
	// local holds a state, if state, that of the row being computed, does not lie in the cache.
	local, state []float32
	// wide and wider have the size of a state; taps are the weights of a convolution, tap by tap, and its bias.
	wide, wider, taps []float32
}

func (u *walkUnit) take(n int) []float32 {
	piece := u.room[:n:n]
	u.room = u.room[n:]
	return piece
}

// walk computes all rows.
func (u *walkUnit) walk() {
	n := u.count * u.rows * u.columns
	u.local = u.take(n)
	if u.kind == walkConv {
		u.taps = u.take((u.rows + 2) * u.count)
		u.loadTaps()
	} else {
		u.wide, u.wider = u.take(n), u.take(n)
	}
	if u.kind == walkScan && u.columns == 1 && u.c.In[2].Shape()[1] > 1 {
		for i := range u.count {
			u.load(u.wider[i*u.rows:][:u.rows], 2, (u.head+i)*u.c.In[2].Layout.Strides[0], 1)
		}
	}
	step := [...]func(b, t int){u.convolve, u.scan, u.correct}[u.kind]
	if u.kind == walkScan && u.columns == 1 {
		step = u.scanTogether
	}
	width := len(u.out) / max(u.sequences*u.tokens, 1)
	for b := range u.sequences {
		for t := range u.tokens {
			from, to := u.place(t, 0), u.place(t, 1)
			if from == graph.StateAbsent {
				each := width / u.heads
				clear(u.out[t*width+u.head*each:][:u.count*each])
				continue
			}
			// A state that nobody goes on with in this pass is computed where it lies.
			here := from >= 0 && from == to && u.kind != walkConv &&
				(t+1 == u.tokens || u.place(t+1, 0) != graph.StateBefore)
			switch {
			case here:
				u.state = u.part(from, 0)[:n]
			case from >= 0:
				u.state = u.local
				u.copyState(from, false)
			case from == graph.StateNone:
				u.state = u.local
				clear(u.local)
			}
			step(b, t)
			if to >= 0 && !here {
				u.copyState(to, true)
			}
		}
	}
}

// part returns the cache from the unit's part of a state on; of a convolution that of a row of it.
func (u *walkUnit) part(place int64, row int) []float32 {
	all := ops.Elements[float32](u.cache)
	if u.kind == walkConv {
		return all[(int(place)*u.rows+row)*u.heads+u.head:]
	}
	return all[(int(place)*u.heads+u.head)*u.rows*u.columns:]
}

// copyState copies the state from or to a place of the cache.
func (u *walkUnit) copyState(place int64, out bool) {
	parts, n := 1, len(u.local)
	if u.kind == walkConv {
		parts, n = u.rows, u.count
	}
	for i := range parts {
		own, there := u.local[i*n:][:n], u.part(place, i)[:n]
		if out {
			copy(there, own)
		} else {
			copy(own, there)
		}
	}
}

// load reads elements of an operand, stride apart along its dimension dim, from an index on that is relative to its
// offset.
func (u *walkUnit) load(dst []float32, operand, first, dim int) {
	l := &u.c.In[operand].Layout
	ops.LoadStrided(dst, u.c.In[operand], l.Offset+first, l.Strides[dim])
}

// at is where the elements of token t begin in an operand, of which dimension 2 has an index.
func (u *walkUnit) at(operand, b, t, index int) int {
	s := u.c.In[operand].Layout.Strides
	return b*s[0] + t*s[1] + index*s[2]
}

func (u *walkUnit) loadTaps() {
	s := u.c.In[1].Layout.Strides
	for k := range u.rows + 1 {
		u.load(u.taps[k*u.count:][:u.count], 1, u.head*s[0]+k*s[1], 0)
	}
	bias := u.taps[(u.rows+1)*u.count:]
	if u.c.Operand(2).Absent() {
		clear(bias)
	} else {
		u.load(bias, 2, u.head*u.c.In[2].Layout.Strides[0], 0)
	}
}

// result is the unit's part of a token's result.
func (u *walkUnit) result(b, t int) []float32 {
	n := u.count
	if u.kind != walkConv {
		n *= u.columns
	}
	return u.out[((b*u.tokens+t)*u.heads+u.head)*(n/u.count):][:n]
}

// convolve computes a row of a convolution.
func (u *walkUnit) convolve(b, t int) {
	n, y, x := u.count, u.result(b, t), u.room[:u.count]
	u.load(x, 0, u.at(0, b, t, u.head), 2)
	copy(y, u.taps[(u.rows+1)*n:][:n])
	for k := range u.rows {
		u.addProducts(y, u.taps[k*n:][:n], u.state[k*n:][:n])
	}
	u.addProducts(y, u.taps[u.rows*n:][:n], x)
	copy(u.state, u.state[n:])
	copy(u.state[(u.rows-1)*n:], x)
}

// scan computes a head of a row whose state is [N P].
func (u *walkUnit) scan(b, t int) {
	room := u.room
	x, in, out := room[:u.columns], room[u.columns:][:u.rows], room[u.columns+u.rows:][:u.rows]
	var step, rate [1]float32
	u.load(x, 0, u.at(0, b, t, u.head), 3)
	u.load(step[:], 1, u.at(1, b, t, u.head), 2)
	u.load(rate[:], 2, u.head*u.c.In[2].Layout.Strides[0], 1)
	u.load(in, 3, u.at(3, b, t, u.head/u.each), 3)
	u.load(out, 4, u.at(4, b, t, u.head/u.each), 3)
	for i := range x {
		x[i] *= step[0]
	}
	u.outer(in, x)
	u.addScaled(u.state, u.wide, u.state, float32(math.Exp(float64(float32(step[0]*rate[0])))))
	u.weigh(out, u.result(b, t))
}

// scanTogether computes some heads of one element each, whose states are [heads N].
func (u *walkUnit) scanTogether(b, t int) {
	n, room := u.count, u.room
	x, steps, in, out := room[:n], room[n:][:n], room[2*n:][:u.rows], room[2*n+u.rows:][:u.rows]
	u.load(x, 0, u.at(0, b, t, u.head), 2)
	u.load(steps, 1, u.at(1, b, t, u.head), 2)
	u.load(in, 3, u.at(3, b, t, u.head/u.each), 3)
	u.load(out, 4, u.at(4, b, t, u.head/u.each), 3)
	decay := u.wide
	if u.c.In[2].Shape()[1] > 1 {
		u.scaleRows(steps, decay, u.wider, u.rows)
		u.exp(decay)
	} else {
		rates := room[2*n+2*u.rows:][:n]
		u.load(rates, 2, u.head*u.c.In[2].Layout.Strides[0], 0)
		for i := range rates {
			rates[i] *= steps[i]
		}
		u.exp(rates)
		for i, r := range rates {
			for k := range u.rows {
				decay[i*u.rows+k] = r
			}
		}
	}
	u.multiply(u.state, decay)
	for i := range x {
		x[i] *= steps[i]
	}
	u.scaleRows(x, decay, in, 0)
	u.add(u.state, decay)
	y := u.result(b, t)
	for i := range y {
		y[i] = u.dot(u.state[i*u.rows:][:u.rows], out)
	}
}

// correct computes a head of a row of the gated delta rule, whose state is [D E].
func (u *walkUnit) correct(b, t int) {
	room := u.room
	q, k := room[:u.rows], room[u.rows:][:u.rows]
	value, seen := room[2*u.rows:][:u.columns], room[2*u.rows+u.columns:][:u.columns]
	var by, share [1]float32
	u.load(q, 0, u.at(0, b, t, u.head/u.each), 3)
	u.load(k, 1, u.at(1, b, t, u.head/u.each), 3)
	u.load(value, 2, u.at(2, b, t, u.head), 3)
	u.load(share[:], 4, u.at(4, b, t, u.head), 2)
	if len(u.c.In[3].Shape()) == 4 {
		each := room[2*u.rows+2*u.columns:][:u.rows]
		u.load(each, 3, u.at(3, b, t, u.head), 3)
		u.exp(each)
		u.scaleRows(each, u.state, u.state, u.columns)
	} else {
		u.load(by[:], 3, u.at(3, b, t, u.head), 2)
	}
	decay := float32(math.Exp(float64(by[0])))
	u.weigh(k, seen)
	for i, v := range value {
		seen[i] = share[0] * (v - float32(decay*seen[i]))
	}
	u.outer(k, seen)
	u.addScaled(u.state, u.wide, u.state, decay)
	u.weigh(q, u.result(b, t))
}

// outer makes wide the products of a column and a row.
func (u *walkUnit) outer(column, row []float32) { u.scaleRows(column, u.wide, row, 0) }

// scaleRows computes to[r][i] = x[r][i]·by[r], where the rows of x lie pitch apart.
func (u *walkUnit) scaleRows(by, to, x []float32, pitch int) {
	n := len(to) / len(by)
	if u.set != nil {
		u.set.ScaleRows(by, n, to, n, x, pitch)
		return
	}
	for r, v := range by {
		for i := range n {
			to[r*n+i] = x[r*pitch+i] * v
		}
	}
}

// weigh computes y[j] = Σ_i w[i]·state[i][j], over i in order.
func (u *walkUnit) weigh(w, y []float32) {
	clear(y)
	if u.set != nil {
		u.set.Weighted(w, u.state, u.columns, y)
		return
	}
	for i, v := range w {
		for j := range y {
			y[j] += float32(v * u.state[i*u.columns+j])
		}
	}
}

func (u *walkUnit) dot(a, b []float32) float32 {
	var sum [1]float32
	whole := 0
	if u.set != nil {
		if whole = len(a) / u.set.Lanes * u.set.Lanes; whole > 0 {
			u.set.Dot(1, 1, whole, a, len(a), b, len(b), sum[:])
		}
	}
	for i := whole; i < len(a); i++ {
		sum[0] += float32(a[i] * b[i])
	}
	return sum[0]
}

func (u *walkUnit) exp(x []float32) {
	if u.set != nil {
		u.set.Map(simd.MapExp, x, x, nil, nil, 0, 0, 0)
		return
	}
	for i, v := range x {
		x[i] = float32(math.Exp(float64(v)))
	}
}

func (u *walkUnit) multiply(to, x []float32) {
	if u.set != nil {
		u.set.Map(simd.MapMul, to, to, x, nil, 0, 0, 0)
		return
	}
	for i, v := range x {
		to[i] *= v
	}
}

func (u *walkUnit) add(to, x []float32) {
	if u.set != nil {
		u.set.Map(simd.MapAdd, to, to, x, nil, 0, 0, 0)
		return
	}
	for i, v := range x {
		to[i] += v
	}
}

// addScaled computes to = a + by·b.
func (u *walkUnit) addScaled(to, a, b []float32, by float32) {
	if u.set != nil {
		u.set.Map(simd.MapAddScaled, to, a, b, nil, by, 0, 0)
		return
	}
	for i := range to {
		to[i] = a[i] + float32(by*b[i])
	}
}

// addProducts computes to += a·b.
func (u *walkUnit) addProducts(to, a, b []float32) {
	if u.set != nil {
		u.set.Map(simd.MapAddProduct, to, to, a, b, 1, 0, 0)
		return
	}
	for i := range to {
		to[i] += float32(a[i] * b[i])
	}
}
