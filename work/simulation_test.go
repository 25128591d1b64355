package work

import (
	"cmp"
	"container/heap"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// A simulation is many workers on one clock that jumps from event to event. Which model a worker takes items of is said
// by the turns of workers, which are those of [Queue.Work]; queues, passes, disks and deaths are simulated.
type simulation struct {
	shape  simulated
	now    time.Time
	events simEvents
	count  int
	random *rand.Rand

	queues  []simQueue
	workers []*simWorker
	done    int
	// lost is how many items died under way, switches how often weights were read for a pass, reads all bytes that
	// were.
	lost     int
	switches int
	reads    float64
	// took has how long items took, from when they were fetched first.
	took []time.Duration
}

// A simulated says what there is.
type simulated struct {
	workers, models, items, join int
	pass                         time.Duration
	// weights are the bytes of a model, disk is how many a worker reads in a second, one in slow of them a tenth.
	weights, disk  float64
	slow           int
	stay, ackWait  time.Duration
	dies, startsIn time.Duration
}

type simQueue struct {
	items []time.Time // when each was fetched first; zero if never
	last  time.Time
}

type simWorker struct {
	s        *simulation
	life     int
	disk     float64
	turn     *turn
	resident int
	busy     bool
	ready    [][]time.Time // items that wait for a pass, of each model
	running  []time.Time
	of       int // the model of running
	looking  []bool
}

type simEvent struct {
	at     time.Time
	number int
	do     func()
}

type simEvents []simEvent

func (e simEvents) Len() int { return len(e) }
func (e simEvents) Less(i, j int) bool {
	return e[i].at.Before(e[j].at) || e[i].at.Equal(e[j].at) && e[i].number < e[j].number
}
func (e simEvents) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *simEvents) Push(x any)   { *e = append(*e, x.(simEvent)) }
func (e *simEvents) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

func (s *simulation) after(d time.Duration, do func()) {
	s.count++
	heap.Push(&s.events, simEvent{s.now.Add(d), s.count, do})
}

func (s *simulation) run() time.Duration {
	begin := time.Unix(0, 0)
	s.now = begin
	s.queues = make([]simQueue, s.shape.models)
	for i := range s.shape.items { // a quarter is of the first model
		m := 0
		if i%4 != 0 {
			m = i % s.shape.models
		}
		s.queues[m].items = append(s.queues[m].items, time.Time{})
	}
	for i := range s.shape.workers {
		w := &simWorker{s: s, disk: s.shape.disk}
		if i%s.shape.slow == 0 {
			w.disk /= 10
		}
		s.workers = append(s.workers, w)
		s.after(time.Duration(s.random.Int64N(int64(5*time.Second))), w.start)
	}
	for s.done < s.shape.items {
		e := heap.Pop(&s.events).(simEvent)
		s.now = e.at
		e.do()
	}
	return s.now.Sub(begin)
}

// start has a worker read its models, for their hashes, and take items.
func (w *simWorker) start() {
	s := w.s
	w.life++
	w.turn = newTurn(s.shape.stay, func() time.Time { return s.now })
	w.ready, w.looking = make([][]time.Time, s.shape.models), make([]bool, s.shape.models)
	w.running, w.busy, w.resident = nil, true, -1
	life := w.life
	reading := time.Duration(float64(s.shape.models) * s.shape.weights / w.disk * float64(time.Second))
	s.reads += float64(s.shape.models) * s.shape.weights
	s.after(reading, func() {
		if w.life == life {
			w.busy = false
			w.poll()
		}
	})
	s.after(time.Duration(s.random.ExpFloat64()*float64(s.shape.dies)), w.die)
}

// die ends a worker without a word: what it had is delivered again when nobody said that it goes on.
func (w *simWorker) die() {
	s := w.s
	w.life++
	w.busy = true
	for m := range w.ready {
		items := w.ready[m]
		if m == w.of {
			items = append(items, w.running...)
		}
		s.lost += len(items)
		s.after(s.shape.ackWait, func() {
			s.queues[m].items = slices.Concat(items, s.queues[m].items) // as JetStream delivers
			for _, other := range s.workers {
				other.poll()
			}
		})
	}
	w.running, w.ready = nil, nil
	s.after(s.shape.startsIn, w.start)
}

// poll has the models of a worker ask for items where they may, and begins a pass.
func (w *simWorker) poll() {
	if w.ready == nil {
		return
	}
	// Models ask in any order, as goroutines do.
	for _, m := range w.s.random.Perm(w.s.shape.models) {
		for w.ask(m) { // a pass, and the next
		}
	}
	w.pass()
}

// ask has a model ask for items, and reports whether it got some.
func (w *simWorker) ask(m int) bool {
	s, q := w.s, &w.s.queues[m]
	under := len(w.ready[m])
	if w.of == m {
		under += len(w.running)
	}
	n := min(s.shape.join, 2*s.shape.join-under, len(q.items))
	w.turn.mu.Lock()
	ok, after := w.turn.may(m)
	w.turn.mu.Unlock()
	if !ok {
		if !w.looking[m] {
			w.looking[m] = true
			life := w.life
			s.after(max(after, 10*time.Millisecond), func() {
				if w.life == life {
					w.looking[m] = false
					w.turn.looked(m, len(q.items) > 0 && s.now.Sub(q.last) >= s.shape.stay)
					w.poll()
				}
			})
		}
		return false
	}
	if n <= 0 {
		return false
	}
	q.last = s.now
	w.turn.took(m, n)
	for _, first := range q.items[:n] {
		if first.IsZero() {
			first = s.now
		}
		w.ready[m] = append(w.ready[m], first)
	}
	q.items = q.items[n:]
	return true
}

// pass begins a pass over items of the model whose weights are there, or of another that has some.
func (w *simWorker) pass() {
	if w.busy {
		return
	}
	s, m := w.s, w.resident
	if m < 0 || len(w.ready[m]) == 0 {
		if m = slices.IndexFunc(w.ready, func(items []time.Time) bool { return len(items) > 0 }); m < 0 {
			return
		}
	}
	n := min(s.shape.join, len(w.ready[m]))
	w.busy, w.of = true, m
	w.running, w.ready[m] = w.ready[m][:n:n], w.ready[m][n:]
	took := s.shape.pass
	if w.resident != m {
		took += time.Duration(s.shape.weights / w.disk * float64(time.Second))
		s.reads += s.shape.weights
		s.switches++
		w.resident = m
	}
	life := w.life
	s.after(took, func() {
		if w.life != life {
			return
		}
		for _, first := range w.running {
			s.took = append(s.took, s.now.Sub(first))
			s.done++
		}
		items := len(w.running)
		w.running, w.busy = nil, false
		for range items {
			w.turn.ended(m)
		}
		w.poll()
	})
}

// A hundred workers that die and are started again, one in ten with a slow disk, and eight models of which each has one
// in memory: with the turns of workers they do 95 % at least of what they could if they never read a byte, died or
// waited.
func TestSimulation(t *testing.T) {
	shape := simulated{
		workers: 100, models: 8, items: 1_000_000, join: 8, pass: 2 * time.Second, weights: 4e9, disk: 2e9, slow: 10,
		stay: time.Minute, ackWait: 30 * time.Second, dies: 2 * time.Hour, startsIn: 20 * time.Second,
	}
	if testing.Short() {
		shape.items /= 4
	}
	s := &simulation{shape: shape, random: rand.New(rand.NewPCG(1, 2))}
	took := s.run()
	ideal := shape.pass * time.Duration(shape.items/shape.join/shape.workers)
	slices.SortFunc(s.took, cmp.Compare[time.Duration])
	share := float64(ideal) / float64(took)
	t.Logf("%d items in %v, %.1f %% of ideal; %.2f MB read an item; %d times for a pass; %d items died under way; an item took %v, one in a thousand %v, the longest %v",
		s.done, took.Round(time.Second), 100*share, s.reads/float64(s.done)/1e6, s.switches, s.lost,
		s.took[len(s.took)/2], s.took[len(s.took)*999/1000].Round(time.Second), s.took[len(s.took)-1].Round(time.Second))
	if s.done != shape.items || len(s.took) != shape.items {
		t.Errorf("%d items of %d", s.done, shape.items)
	}
	if least := 0.95; share < least && !testing.Short() {
		t.Errorf("%.1f %% of ideal", 100*share)
	}
	if most := 2 * float64(shape.workers*shape.models) * shape.weights; s.reads > most && !testing.Short() {
		t.Errorf("%.0f bytes read, more than twice each model by each worker", s.reads)
	}
}
