package share

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// A kind is a model of a simulation: its levels, and how long a pass takes by the virtual clock.
type kind struct {
	levels []Level
	took   int64
}

// mixed returns models of sizes that differ by a factor of a hundred, each with five levels.
func mixed(n int, draw *rand.Rand) []kind {
	kinds := make([]kind, n)
	for i := range kinds {
		size := int64(1000 * math.Pow(100, draw.Float64()))
		work := size/20 + 100
		for k := range int64(5) {
			keep := size * k / 4
			pass := keep + work
			if k < 4 {
				pass += size / 5 // the ring
			}
			kinds[i].levels = append(kinds[i].levels, Level{KeepBytes: keep, PassBytes: pass, ReadBytes: size - keep})
		}
		kinds[i].took = 1 + size/1000
	}
	return kinds
}

// zipf draws which model each call is of: the first most often.
func zipf(models, calls int, draw *rand.Rand) []int {
	sums := make([]float64, models)
	var sum float64
	for i := range sums {
		sum += 1 / float64(i+1)
		sums[i] = sum
	}
	list := make([]int, calls)
	for i := range list {
		at := draw.Float64() * sum
		list[i] = min(slices.IndexFunc(sums, func(s float64) bool { return at < s }), models-1)
	}
	return list
}

// A simulation runs calls through a ledger by a virtual clock and checks what is promised at every step.
type simulation struct {
	t      *testing.T
	l      *Ledger
	budget int64
	kinds  []kind
	models []*Model
	now    int64
	read   int64
	log    []string
	// what each holds in truth, which a free changes only when it is done.
	keeps   []int64
	waits   map[*Turn]int64
	longest []int64
	running []run
}

type run struct {
	start *Start
	ends  int64
}

func newSimulation(t *testing.T, budget int64, passes int, kinds []kind) *simulation {
	s := &simulation{
		t: t, l: New(budget, passes), budget: budget, kinds: kinds, keeps: make([]int64, len(kinds)),
		waits: make(map[*Turn]int64), longest: make([]int64, len(kinds)),
	}
	for range kinds {
		s.models = append(s.models, s.l.Add())
	}
	return s
}

func (s *simulation) of(m *Model) int { return slices.Index(s.models, m) }

// call has a call come now.
func (s *simulation) call(model int) {
	s.l.Count(s.models[model])
	s.waits[s.l.Wait(s.models[model], s.kinds[model].levels)] = s.now
	s.begin()
}

// begin begins what may.
func (s *simulation) begin() {
	for st := s.l.Next(); st != nil; st = s.l.Next() {
		m := s.of(st.Turn.model)
		for _, f := range st.Frees {
			if f.All {
				s.keeps[s.of(f.Model)] = 0
			}
		}
		s.l.Settled(st)
		level := s.kinds[m].levels[st.Level]
		if s.keeps[m] != level.KeepBytes {
			if s.keeps[m] != 0 {
				s.t.Fatalf("%d: model %d goes from %d to %d kept bytes and frees nothing", s.now, m, s.keeps[m], level.KeepBytes)
			}
			s.read += level.KeepBytes
		}
		s.read += level.ReadBytes
		s.keeps[m] = level.KeepBytes
		if st.Bytes < level.PassBytes {
			s.t.Fatalf("%d: model %d runs in %d bytes and needs %d", s.now, m, st.Bytes, level.PassBytes)
		}
		if n := s.l.HeldBytes(); n > s.budget {
			s.t.Fatalf("%d: %d bytes of %d", s.now, n, s.budget)
		}
		for i, x := range s.models {
			if x.KeepBytes() != s.keeps[i] || x.HeldBytes() < s.keeps[i] {
				s.t.Fatalf("%d: model %d keeps %d, and %d of %d are written down", s.now, i, s.keeps[i], x.KeepBytes(), x.HeldBytes())
			}
		}
		s.longest[m] = max(s.longest[m], s.now-s.waits[st.Turn])
		delete(s.waits, st.Turn)
		s.running = append(s.running, run{st, s.now + s.kinds[m].took})
		s.log = append(s.log, fmt.Sprintf("%d: %d at %d in %d after %d", s.now, m, st.Level, st.Bytes, len(st.Frees)))
	}
}

// end ends the turn that ends first, and reports whether one ran.
func (s *simulation) end() bool {
	if len(s.running) == 0 {
		return false
	}
	first := 0
	for i := range s.running {
		if s.running[i].ends < s.running[first].ends {
			first = i
		}
	}
	r := s.running[first]
	s.running = slices.Delete(s.running, first, first+1)
	s.now = max(s.now, r.ends)
	s.l.Done(r.start.Turn, r.start.Bytes, true)
	s.begin()
	return true
}

// until lets time pass.
func (s *simulation) until(now int64) {
	for slices.ContainsFunc(s.running, func(r run) bool { return r.ends <= now }) {
		s.end()
	}
	s.now = max(s.now, now)
}

// drain ends everything, and nothing may be left waiting.
func (s *simulation) drain() {
	for s.end() {
	}
	if len(s.waits) > 0 {
		s.t.Fatalf("%d turns wait for ever", len(s.waits))
	}
}

// leastReads is what no choice of levels that is made once, in hindsight, reads less than, where one pass runs at a time: that
// in which a model may be between two levels.
func leastReads(kinds []kind, budget int64, traffic []int) float64 {
	calls := make([]float64, len(kinds))
	for _, m := range traffic {
		calls[m]++
	}
	order := make([]int, len(kinds))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return int(calls[b] - calls[a]) })
	best := math.Inf(1)
	for _, k := range kinds { // the model that takes most beside what stays
		for _, of := range k.levels {
			work := of.PassBytes - of.KeepBytes
			if reads, fits := leastWithin(kinds, order, calls, work, budget-work); fits {
				best = min(best, reads)
			}
		}
	}
	return best
}

// leastWithin is leastReads with so much for passes and so much for weights that stay.
func leastWithin(kinds []kind, order []int, calls []float64, work, room int64) (reads float64, fits bool) {
	const most = 4
	least := make([]int64, len(kinds))
	for i, k := range kinds {
		if calls[i] == 0 {
			continue
		}
		at := slices.IndexFunc(k.levels, func(l Level) bool { return l.PassBytes-l.KeepBytes <= work })
		if at < 0 {
			return 0, false
		}
		least[i] = k.levels[at].KeepBytes
		room -= least[i]
		reads += calls[i]*float64(k.levels[at].ReadBytes) + float64(least[i])
	}
	for _, i := range order {
		if calls[i] > 1 {
			more := min(kinds[i].levels[most].KeepBytes-least[i], max(room, 0))
			room -= more
			reads -= float64(more) * (calls[i] - 1)
		}
	}
	return reads, room >= 0
}

// TestReadsNearlyTheLeast: with 40 models of mixed sizes and Zipf's traffic, the ledger reads at most a fifth more than the
// best choice of weights that is made once, in hindsight; with two passes at one time, for which memory is set aside, at most
// a quarter more than that choice with one.
func TestReadsNearlyTheLeast(t *testing.T) {
	seeds := uint64(8)
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		draw := rand.New(rand.NewPCG(seed, 1))
		kinds := mixed(40, draw)
		var all int64
		for _, k := range kinds {
			all += k.levels[4].KeepBytes
		}
		for _, share := range []int64{2, 3, 5} {
			traffic := zipf(len(kinds), 8000, draw)
			least := leastReads(kinds, all/share, traffic)
			for passes, most := range map[int]float64{1: 1.2, 2: 1.25} {
				s := newSimulation(t, all/share, passes, kinds)
				for i, m := range traffic {
					s.until(int64(i) * 30)
					s.call(m)
				}
				s.drain()
				if ratio := float64(s.read) / least; ratio > most || ratio < 1 {
					t.Errorf("seed %d, 1/%d of the weights, %d passes: %d bytes read, %.2f of the least", seed, share, passes, s.read, ratio)
				}
			}
		}
	}
}

// TestTrafficMoves: when other models are called, they have the memory soon.
func TestTrafficMoves(t *testing.T) {
	var kinds []kind
	for range 8 {
		kinds = append(kinds, kind{levels: []Level{{0, 300, 1000}, {1000, 1100, 0}}, took: 1})
	}
	s := newSimulation(t, 4700, 1, kinds) // four stay
	ask := func(first, rounds int) int64 {
		before := s.read
		for i := range rounds * 4 {
			s.call(first + i%4)
			s.drain()
		}
		return s.read - before
	}
	ask(0, 100)
	if n := ask(0, 50); n != 0 {
		t.Errorf("%d bytes are read for what is called always", n)
	}
	ask(4, 200)
	if n := ask(4, 50); n != 0 {
		t.Errorf("%d bytes are read for what has been called always for long", n)
	}
}

// TestWaitIsBounded: a model whose passes are quick waits for a few of those of a slow one that always has calls, and never
// for a queue of them; and one that needs nearly all memory is passed by as often as it has to bear, and no more.
func TestWaitIsBounded(t *testing.T) {
	const slow, quick = 1000, 1
	kinds := []kind{
		{levels: []Level{{0, 600, 600}}, took: slow},
		{levels: []Level{{0, 300, 100}, {100, 300, 0}}, took: quick},
		{levels: []Level{{0, 950, 900}}, took: quick},
	}
	for i := range 5 {
		kinds = append(kinds, kind{levels: []Level{{0, 350, int64(100 + i)}}, took: quick})
	}
	s := newSimulation(t, 1000, 2, kinds)
	for i := range 3000 {
		s.until(int64(i) * 7)
		s.call([]int{0, 1, 3, 4, 5, 6, 7}[i%7])
		if i%100 == 0 {
			s.call(2)
		}
		if len(s.waits) > 50 { // what comes without end would wait without end, whatever the order
			s.drain()
		}
	}
	s.drain()
	// The turns of 8 models wait before one at most, if each has one, and each model's own before it.
	for m, n := range s.longest[1:] {
		if n > 50*(slow+quick) {
			t.Errorf("model %d waited for %d", m+1, n)
		}
	}
}

// TestOvertaking: a turn that waits for memory is overtaken by so many that need less, and then by none.
func TestOvertaking(t *testing.T) {
	l := New(1000, 3)
	small := []Level{{0, 300, 300}}
	first := l.Add()
	running := l.Wait(first, small)
	if s := l.Next(); s == nil || s.Turn != running {
		t.Fatal("nothing runs")
	}
	large := l.Wait(l.Add(), []Level{{0, 900, 900}})
	for i := range MaxOvertaken + 3 {
		next := l.Wait(l.Add(), small)
		s := l.Next()
		if i >= MaxOvertaken {
			if s != nil {
				t.Fatalf("overtaken %d times", i+1)
			}
			continue
		}
		if s == nil || s.Turn != next {
			t.Fatalf("the turn that needs less waits, after %d", i)
		}
		l.Done(next, 0, true)
	}
	l.Done(running, 300, true)
	s := l.Next()
	if s == nil || s.Turn != large {
		t.Fatal("the one that waits does not come first")
	}
	if len(s.Frees) != 1 || s.Frees[0].Model != first || s.Frees[0].All {
		t.Errorf("frees %+v", s.Frees)
	}
	if l.Next() != nil {
		t.Error("another one runs beside it")
	}
}

// TestTurnsOfOneModelFollowEachOther: a model runs one turn at a time, and others go on meanwhile.
func TestTurnsOfOneModelFollowEachOther(t *testing.T) {
	l := New(1000, 3)
	levels := []Level{{0, 300, 300}}
	a, b := l.Add(), l.Add()
	one, two := l.Wait(a, levels), l.Wait(a, levels)
	if s := l.Next(); s == nil || s.Turn != one {
		t.Fatal("the first does not begin")
	}
	other := l.Wait(b, levels)
	if s := l.Next(); s == nil || s.Turn != other {
		t.Fatal("the other model does not begin")
	}
	if l.Next() != nil {
		t.Fatal("two turns of a model at once")
	}
	l.Done(one, 300, true)
	if s := l.Next(); s == nil || s.Turn != two || len(s.Frees) != 0 {
		t.Error("the second does not begin in the memory of the first")
	}
}

// TestPassesAreCounted: no more turns run at one time than the ledger was made for.
func TestPassesAreCounted(t *testing.T) {
	l := New(1000, 2)
	var turns []*Turn
	for range 3 {
		turns = append(turns, l.Wait(l.Add(), []Level{{0, 100, 100}}))
	}
	for i := range 2 {
		if s := l.Next(); s == nil || s.Turn != turns[i] {
			t.Fatalf("turn %d does not begin", i)
		}
	}
	if l.Next() != nil {
		t.Fatal("a third runs")
	}
	l.Done(turns[1], 0, true)
	if s := l.Next(); s == nil || s.Turn != turns[2] {
		t.Error("the third does not begin after another")
	}
}

// TestWhoRunsKeeps: the weights of a model that runs, or that is being removed, are nobody else's.
func TestWhoRunsKeeps(t *testing.T) {
	l := New(1000, 3)
	a := l.Add()
	l.Count(a)
	ta := l.Wait(a, []Level{{0, 400, 600}, {500, 600, 0}})
	if s := l.Next(); s == nil || s.Level != 1 {
		t.Fatalf("%+v", s)
	}
	tb := l.Wait(l.Add(), []Level{{0, 550, 550}})
	if s := l.Next(); s != nil {
		t.Fatalf("%+v while the other one runs", s)
	}
	l.Done(ta, 600, true)
	l.Hold(a)
	if s := l.Next(); s != nil {
		t.Fatalf("%+v while the other one is being removed", s)
	}
	l.Freed(a)
	if s := l.Next(); s == nil || s.Turn != tb || len(s.Frees) != 0 {
		t.Errorf("%+v", s)
	}
}

// TestFreeingIsWaitedFor: a model that frees something for another turn begins none, and is not asked again, until that is done.
func TestFreeingIsWaitedFor(t *testing.T) {
	l := New(1000, 3)
	a, b, c := l.Add(), l.Add(), l.Add()
	levels := []Level{{0, 400, 600}, {500, 600, 0}}
	l.Count(a)
	ta := l.Wait(a, levels)
	if s := l.Next(); s == nil || s.Level != 1 || s.Bytes != 600 {
		t.Fatalf("%+v", s)
	}
	l.Done(ta, 600, true)
	if a.HeldBytes() != 600 || a.KeepBytes() != 500 || a.Running() {
		t.Fatalf("%+v", a)
	}
	tb := l.Wait(b, []Level{{0, 700, 700}})
	s := l.Next()
	if s == nil || s.Turn != tb || len(s.Frees) != 1 || !s.Frees[0].All {
		t.Fatalf("%+v", s)
	}
	again := l.Wait(a, []Level{{0, 300, 600}})
	if l.Next() != nil {
		t.Fatal("it runs while it frees")
	}
	l.Settled(s)
	if s := l.Next(); s == nil || s.Turn != again || s.Bytes != 300 {
		t.Fatalf("%+v", s)
	}
	l.Leave(again) // began already: nothing to leave
	l.Done(again, 300, true)
	l.Hold(a)
	l.Done(tb, 0, false)
	l.Wait(c, []Level{{0, 900, 900}})
	if l.Next() != nil {
		t.Fatal("takes what a model holds that is being removed")
	}
	l.Freed(a)
	l.Remove(a)
	if s := l.Next(); s == nil || s.Bytes != 900 {
		t.Fatalf("%+v", s)
	}
}

// TestFreedMemoryIsNotGivenTwice: what a turn has freed beyond its own need is nobody's before it is free.
func TestFreedMemoryIsNotGivenTwice(t *testing.T) {
	l := New(1000, 3)
	a := l.Add()
	l.Count(a)
	ta := l.Wait(a, []Level{{0, 300, 800}, {700, 800, 0}})
	if s := l.Next(); s == nil || s.Level != 1 {
		t.Fatalf("%+v", s)
	}
	l.Done(ta, 800, true)
	l.Wait(l.Add(), []Level{{0, 350, 300}})
	s := l.Next()
	if s == nil || s.Bytes != 350 || len(s.Frees) != 1 || !s.Frees[0].All {
		t.Fatalf("%+v", s)
	}
	if n := l.HeldBytes(); n != 800 {
		t.Errorf("%d bytes are held while 800 are to be freed", n)
	}
	next := l.Wait(l.Add(), []Level{{0, 250, 300}})
	if s := l.Next(); s != nil {
		t.Fatalf("%+v begins in memory that is not free", s)
	}
	l.Settled(s)
	if s := l.Next(); s == nil || s.Turn != next || l.HeldBytes() != 600 {
		t.Errorf("%+v, %d bytes", s, l.HeldBytes())
	}
}

// TestMoreIsASpareWish: what a turn could use besides is taken from memory that nobody needs, and drops no weights.
func TestMoreIsASpareWish(t *testing.T) {
	l := New(1000, 1)
	a, b := l.Add(), l.Add()
	l.Count(a)
	ta := l.Wait(a, []Level{{0, 400, 500}, {500, 600, 0}})
	l.Next()
	l.Done(ta, 600, true)
	tb := l.Wait(b, []Level{{0, 300, 300}})
	tb.MoreBytes = 900
	s := l.Next()
	if s == nil || s.Bytes != 500 || a.KeepBytes() != 500 || a.HeldBytes() != 500 {
		t.Fatalf("%+v of %+v", s, a)
	}
}

// TestLessIsTrimmed: a model that holds more than its next pass takes gives the rest back before, and keeps its weights.
func TestLessIsTrimmed(t *testing.T) {
	l := New(1000, 1)
	a := l.Add()
	large := l.Wait(a, []Level{{100, 900, 500}})
	l.Next()
	l.Done(large, 900, true)
	l.Wait(a, []Level{{100, 300, 500}})
	if s := l.Next(); s == nil || s.Bytes != 300 || len(s.Frees) != 1 || s.Frees[0] != (Free{Model: a}) {
		t.Errorf("%+v", s)
	}
}

// TestLostWeights: a model that lost what it was to keep reads it again, and frees nothing before.
func TestLostWeights(t *testing.T) {
	l := New(1000, 1)
	a := l.Add()
	levels := []Level{{0, 400, 500}, {500, 600, 0}}
	l.Count(a)
	turn := l.Wait(a, levels)
	l.Next()
	l.Done(turn, 0, false)
	if a.KeepBytes() != 0 || a.HeldBytes() != 0 {
		t.Fatalf("%+v", a)
	}
	l.Wait(a, levels)
	if s := l.Next(); s == nil || s.Level != 1 || len(s.Frees) != 0 {
		t.Errorf("%+v", s)
	}
}

// TestReplay: the same events give the same decisions.
func TestReplay(t *testing.T) {
	var logs [][]string
	for range 2 {
		draw := rand.New(rand.NewPCG(3, 3))
		kinds := mixed(20, draw)
		s := newSimulation(t, 200_000, 2, kinds)
		for i, m := range zipf(len(kinds), 1000, draw) {
			s.until(int64(i) * 20)
			s.call(m)
		}
		s.drain()
		logs = append(logs, s.log)
	}
	if !reflect.DeepEqual(logs[0], logs[1]) {
		t.Error("other decisions")
	}
	if len(logs[0]) != 1000 {
		t.Errorf("%d turns", len(logs[0]))
	}
}

// TestSwap: two turns of a model that were swapped begin in each other's place, among those of other models, and who
// was overtaken is the place.
func TestSwap(t *testing.T) {
	l := New(100, 1)
	m, other := l.Add(), l.Add()
	first := l.Wait(m, []Level{{PassBytes: 10, ReadBytes: 10}})
	between := l.Wait(other, []Level{{PassBytes: 10, ReadBytes: 10}})
	second := l.Wait(m, []Level{{PassBytes: 20, ReadBytes: 20}})
	l.Swap(second, first)
	for i, want := range []*Turn{second, between, first} {
		s := l.Next()
		if s == nil || s.Turn != want {
			t.Fatalf("turn %d is another", i)
		}
		if i == 0 && s.Bytes != 20 {
			t.Errorf("%d bytes for a pass of 20", s.Bytes)
		}
		l.Settled(s)
		l.Done(want, s.Bytes, true)
	}
}
