package search

import (
	"math"

	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/storage"
)

// A visit is a paged group's slot in the ring.
type visit struct {
	bytes, offset int64
	after         int
}

// A layout says how a ring is used. Where depth is not negative, each slot overlaps none of the depth slots before it,
// counted around, where there is room for that; where there is not, none of as many as there is room for. endToEnd puts
// each slot behind the one before, and at the start where there is no room: as many are in flight as there are bytes
// for. soonest puts each where it may be filled first.
type layout struct {
	bytes int64
	depth int
}

const (
	endToEnd = -1
	soonest  = -2
)

// place gives visits their slots. It fails where one is larger than the ring.
func (l layout) place(visits []visit) bool {
	n := len(visits)
	var at, sum int64
	var taken, before []run
	if l.depth == soonest { // slots end at its end, and begin at what offsets are multiples of
		l.bytes -= l.bytes % storage.AlignBytes
		taken = []run{{high: l.bytes, last: -1}}
	}
	for k := range visits {
		v := &visits[k]
		if v.bytes > l.bytes {
			return false
		}
		sum += v.bytes
		switch l.depth {
		case soonest:
			taken, before = v.settle(taken, before[:0], k), taken
			continue
		case endToEnd:
		default:
			for depth := min(l.depth, n-1); ; depth-- {
				if off, ok := l.gap(visits, k, depth); ok {
					v.offset = off
					break
				}
			}
			continue
		}
		if at+v.bytes > l.bytes {
			at = 0
		}
		v.offset = at
		at += v.bytes
	}
	if l.depth == endToEnd && sum <= l.bytes {
		for k := range visits {
			visits[k].after = n
		}
		return true
	}
	for k := range visits {
		v := &visits[k]
		for back, j := 1, k; back <= n; back++ {
			if j--; j < 0 {
				j += n
			}
			if o := &visits[j]; v.offset < o.offset+o.bytes && o.offset < v.offset+v.bytes {
				v.after = back
				break
			}
		}
	}
	return true
}

// A run is one of a ring's bytes, and the last visit that has it.
type run struct {
	low, high int64
	last      int
}

// settle gives visit k the place that may be filled first, and of several such that of which the least has to be waited
// for. It appends to next what the ring then holds.
func (v *visit) settle(taken, next []run, k int) []run {
	last, waited := math.MaxInt, int64(0)
	ringBytes := taken[len(taken)-1].high
	// look considers a place that begins or ends with run i, from where it reaches over others step by step.
	look := func(at int64, i, step int) {
		if at < 0 || at+v.bytes > ringBytes {
			return
		}
		latest, bytes := math.MinInt, int64(0)
		for ; i >= 0 && i < len(taken); i += step {
			r := &taken[i]
			n := min(r.high, at+v.bytes) - max(r.low, at)
			if n <= 0 || latest > last {
				break
			}
			if r.last > latest {
				latest, bytes = r.last, n
			} else if r.last == latest {
				bytes += n
			}
		}
		if latest < last || latest == last && bytes < waited {
			v.offset, last, waited = at, latest, bytes
		}
	}
	for i := range taken {
		look(taken[i].low, i, 1)
		look(taken[i].high-v.bytes, i, -1)
	}
	low, high := v.offset, v.offset+v.bytes
	for _, r := range taken {
		if r.low < low {
			next = append(next, run{r.low, min(r.high, low), r.last})
		}
		if r.low <= low && low < r.high {
			next = append(next, run{low, high, k})
		}
		if r.high > high {
			next = append(next, run{max(r.low, high), r.high, r.last})
		}
	}
	return next
}

// gap finds the lowest offset at which visit k overlaps none of the depth visits before it, and none of the first ones
// that will be prefetched while it is in use.
func (l layout) gap(visits []visit, k, depth int) (int64, bool) {
	n := len(visits)
	var at int64
	for again := true; again; {
		again = false
		for back := 1; back <= depth; back++ {
			for _, j := range [2]int{k - back, k + back - n} {
				if j < 0 || j >= k {
					continue
				}
				if v := &visits[j]; at < v.offset+v.bytes && v.offset < at+visits[k].bytes {
					at, again = v.offset+v.bytes, true
				}
			}
		}
	}
	return at, at+visits[k].bytes <= l.bytes
}

// A stage is a group in a simulated pass.
type stage struct {
	paged         bool
	after         int
	load, compute float64
	// disks are the parts of the load by disk, where there are several: each follows the one before on its disk.
	disks []float64
	// stall is how long the group waited for its load in the last pass, idle how long the load before that waited for its
	// slot.
	stall, idle float64
}

// farShare returns by how much longer reads into a ring of a target take than its rates say.
func farShare(t plan.Target, ringBytes int64) float64 {
	if t.Direct && ringBytes > cost.NearBytes {
		return cost.FarShare
	}
	return 0
}

// A simulation keeps its memory from one time to the next.
type simulation struct {
	// fitful says that loads are a disk's, not copies to a device.
	fitful bool
	// slower is by how much longer loads take than stages say, 0 as long.
	slower float64
	// done is when each visit was, asked how long its load and those before it take.
	done, asked []float64
	// loaded is when each disk was done, where there are several.
	loaded []float64
}

// run returns what a pass takes in the steady state: an exact recurrence over two resources. Loads follow one another,
// each once the last group whose slot it overlaps is done; groups follow one another, each once it is there. Stalls is
// the time that compute waited.
func (m *simulation) run(all []stage) (pass, stalls float64) {
	const most = 8
	m.done, m.asked, m.loaded = m.done[:0], m.asked[:0], m.loaded[:0]
	var loaded, computed, asked float64
	for range most {
		begin, before := computed, pass
		stalls = 0
		for i := range all {
			s := &all[i]
			if !s.paged {
				computed += s.compute
				continue
			}
			free := 0.0
			if k := len(m.done) - s.after; s.after > 0 && k >= 0 {
				free = m.done[k]
			}
			s.stall = 0
			load := s.load * (1 + m.slower)
			var there float64
			if s.disks != nil {
				there, s.idle = m.fromDisks(s.disks, free)
			} else {
				start := max(loaded, free)
				s.idle = start - loaded
				loaded = start + load
				there = loaded
			}
			if m.fitful {
				asked += load
				m.asked = append(m.asked, asked)
				there += m.late(s.after)
			}
			if there > computed {
				s.stall = there - computed
				stalls += s.stall
				computed = there
			}
			computed += s.compute
			m.done = append(m.done, computed)
		}
		if pass = computed - begin; math.Abs(pass-before) <= 1e-9*pass {
			break
		}
	}
	return pass, stalls
}

// fromDisks returns when a load is there of which each disk brings a part as soon as its slot is free, and how long the
// last disk waited for that.
func (m *simulation) fromDisks(parts []float64, free float64) (there, idle float64) {
	for len(m.loaded) < len(parts) {
		m.loaded = append(m.loaded, 0)
	}
	for k, load := range parts {
		if load == 0 {
			continue
		}
		start := max(m.loaded[k], free)
		if end := start + load*(1+m.slower); end > there {
			there, idle = end, start-m.loaded[k]
		}
		m.loaded[k] = start + load*(1+m.slower)
	}
	return there, idle
}

// late returns by how much a load may be late: all are on their way that were asked for and are not in use.
func (m *simulation) late(after int) float64 {
	last := len(m.asked) - 1
	first := last - (after - 1)
	if after == 0 || first < 0 {
		return min(cost.LateShare*m.asked[last], cost.MostLateSeconds)
	}
	return min(cost.LateShare*(m.asked[last]-m.asked[first]), cost.MostLateSeconds)
}
