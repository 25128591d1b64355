package slots_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/optimem/optimem/plan/slots"
)

// A routing is a way in which passes need experts: drawn by their rank (Zipf with the exponent skew), after each is kept
// from the pass before with the chance stays (Markov).
type routing struct {
	name        string
	skew, stays float64
	// sequences go through the layers together. Drift is after how many passes a quarter of the ranks is drawn again;
	// topics has sequences draw mostly from some experts for about 40 passes; words draws which experts a pass needs from 1,000
	// of such choices, as tokens would.
	sequences, drift int
	topics, words    bool
}

// routings are those that policies are compared on.
var routings = []routing{
	{name: "Zipf 0.6, 0.1 stay", skew: 0.6, stays: 0.1},
	{name: "Zipf 0.6, 0.5 stay", skew: 0.6, stays: 0.5},
	{name: "Zipf 0.9, 0.1 stay", skew: 0.9, stays: 0.1},
	{name: "Zipf 0.9, 0.5 stay", skew: 0.9, stays: 0.5},
	{name: "Zipf 1.2, 0.1 stay", skew: 1.2, stays: 0.1},
	{name: "Zipf 1.2, 0.5 stay", skew: 1.2, stays: 0.5},
	{name: "0.8 stay", skew: 0.6, stays: 0.8},
	{name: "all alike", stays: 0.3},
	{name: "by words", skew: 0.8, stays: 0.1, words: true},
	{name: "a quarter new every 60 passes", skew: 0.9, stays: 0.3, drift: 60},
	{name: "a quarter new every 10 passes", skew: 0.9, stays: 0.3, drift: 10},
	{name: "topics", skew: 0.6, stays: 0.2, topics: true},
	{name: "four sequences", skew: 0.9, stays: 0.4, sequences: 4},
	{name: "two sequences with topics", skew: 0.6, stays: 0.4, sequences: 2, topics: true},
}

// trace draws one.
func (r routing) trace(experts, named, layers, passes int) *slots.Trace {
	rng := rand.New(rand.NewPCG(5, 77))
	sums, total := make([]float64, experts), 0.0
	for i := range sums {
		total += math.Pow(float64(i+1), -r.skew)
		sums[i] = total
	}
	const topics, words = 6, 1000
	t := &slots.Trace{}
	for l := range layers {
		t.Layers = append(t.Layers, strconv.Itoa(l))
	}
	ranks, last := make([][]int, layers), make([][][]int32, layers)
	liked := make([][topics][]int, layers)
	for l := range layers {
		ranks[l], last[l] = rng.Perm(experts), make([][]int32, max(r.sequences, 1))
		for k := range topics {
			liked[l][k] = rng.Perm(experts)[:max(named, experts/6)]
		}
	}
	topic := make([]int, max(r.sequences, 1))
	said := make(map[[2]int][]int32)
	drawn := func(l int) int32 {
		i, _ := slices.BinarySearch(sums, rng.Float64()*total)
		return int32(ranks[l][min(i, experts-1)])
	}
	for pass := range passes {
		for l := range layers {
			if r.drift > 0 && pass%r.drift == r.drift-1 {
				for range experts / 8 {
					i, k := rng.IntN(experts), rng.IntN(experts)
					ranks[l][i], ranks[l][k] = ranks[l][k], ranks[l][i]
				}
			}
		}
		word := int(math.Pow(words, rng.Float64())) - 1
		for s := range topic {
			if rng.IntN(40) == 0 {
				topic[s] = rng.IntN(topics)
			}
		}
		for l := range layers {
			var all []int32
			for s := range topic {
				var needs []int32
				add := func(e int32) {
					if len(needs) < named && !slices.Contains(needs, e) {
						needs = append(needs, e)
					}
				}
				for _, e := range last[l][s] {
					if rng.Float64() < r.stays {
						add(e)
					}
				}
				if r.words {
					list := said[[2]int{word, l}]
					for len(list) < named {
						list = append(list, drawn(l))
					}
					said[[2]int{word, l}] = list
					for _, e := range list {
						add(e)
					}
				}
				for len(needs) < named {
					if few := liked[l][topic[s]]; r.topics && rng.Float64() < 0.6 {
						add(int32(few[min(int(rng.ExpFloat64()*float64(len(few))/3), len(few)-1)]))
						continue
					}
					add(drawn(l))
				}
				last[l][s] = needs
				for _, e := range needs {
					if !slices.Contains(all, e) {
						all = append(all, e)
					}
				}
			}
			slices.Sort(all)
			t.Visits = append(t.Visits, slots.Visit{Layer: l, Rows: len(topic), Experts: all})
		}
	}
	return t
}

// A scored policy gives experts scores; the one with the least leaves, and of those that the pass needs only where no other
// is left.
type scored struct {
	score, last []float64
	fade, pass  float64
}

// reads counts what a trace reads where each layer has n slots. Scores fade from pass to pass; at 0 the one leaves that was
// needed longest ago.
func (s scored) reads(t *slots.Trace, experts, n int) (reads int64) {
	for l := range t.Layers {
		s.score, s.last, s.pass = make([]float64, experts), make([]float64, experts), 0
		there := make(map[int32]bool)
		var in []int32
		for _, v := range t.Visits {
			if v.Layer != l {
				continue
			}
			s.pass++
			for e := range s.score {
				s.score[e] *= s.fade
			}
			var missing []int32
			for _, e := range v.Experts {
				s.score[e]++
				s.last[e] = s.pass
				if !there[e] {
					missing = append(missing, e)
				}
			}
			reads += int64(len(missing))
			for i, e := range missing {
				there[e] = true
				held := missing[max(0, i-min(3, n-1)):i] // their reads may be under way
				if len(in) < n {
					in = append(in, e)
					continue
				}
				at := -1
				for k, x := range in {
					if !slices.Contains(held, x) && (at < 0 || s.less(x, in[at])) {
						at = k
					}
				}
				delete(there, in[at])
				in[at] = e
			}
		}
	}
	return reads
}

func (s *scored) less(a, b int32) bool {
	if now, then := s.last[a] == s.pass, s.last[b] == s.pass; now != then {
		return then
	}
	if s.score[a] != s.score[b] {
		return s.score[a] < s.score[b]
	}
	return s.last[a] < s.last[b]
}

// arc counts what a trace reads by ARC (Megiddo and Modha, FAST 2003).
func arc(t *slots.Trace, n int) (reads int64) {
	for l := range t.Layers {
		var once, often, onceGone, oftenGone []int32 // the last one was used last
		want := 0                                    // how many of once
		take := func(list *[]int32, e int32) bool {
			i := slices.Index(*list, e)
			if i >= 0 {
				*list = slices.Delete(*list, i, i+1)
			}
			return i >= 0
		}
		leave := func(again bool) {
			if len(once) > 0 && (len(once) > want || again && len(once) == want) {
				onceGone, once = append(onceGone, once[0]), once[1:]
			} else if len(often) > 0 {
				oftenGone, often = append(oftenGone, often[0]), often[1:]
			}
		}
		for _, v := range t.Visits {
			if v.Layer != l {
				continue
			}
			for _, e := range v.Experts {
				switch {
				case take(&once, e), take(&often, e):
					often = append(often, e)
					continue
				case slices.Contains(onceGone, e):
					want = min(n, want+max(1, len(oftenGone)/len(onceGone)))
					leave(false)
					take(&onceGone, e)
					often = append(often, e)
				case slices.Contains(oftenGone, e):
					want = max(0, want-max(1, len(onceGone)/len(oftenGone)))
					leave(true)
					take(&oftenGone, e)
					often = append(often, e)
				default:
					switch all := len(once) + len(often) + len(onceGone) + len(oftenGone); {
					case len(once)+len(onceGone) == n && len(once) < n:
						onceGone = onceGone[1:]
						leave(false)
					case len(once)+len(onceGone) == n:
						once = once[1:]
					case all >= n:
						if all == 2*n {
							oftenGone = oftenGone[1:]
						}
						leave(false)
					}
					once = append(once, e)
				}
				reads++
			}
		}
	}
	return reads
}

// TestPolicies compares the policy with others on all routings and numbers of slots; docs/larger-than-memory.md has the table
// (go test -v). It reads less than each of them on average, and nowhere much more than a score that fades as fast for all
// texts.
func TestPolicies(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	const layers, passes = 3, 400
	others := []string{"LRU", "ARC", "LFU", "fading"}
	var all [5]float64
	cases, most := 0.0, 0.0
	t.Logf("%-30s %5v  learned", "times Belady's reads", others)
	for _, kind := range routings {
		var sums [5]float64
		count := 0.0
		for _, of := range [][2]int{{64, 8}, {128, 8}, {8, 2}, {32, 4}} {
			trace := kind.trace(of[0], of[1], layers, passes)
			before := 0
			for _, percent := range []int{15, 30, 50, 70} {
				n := max(of[0]*percent/100, of[1])
				if n == before {
					continue
				}
				before = n
				room, places := apart(trace, of[0], n)
				least := float64(slots.Sum(slots.Least(trace, room, places)).Reads)
				counts := [5]int64{
					scored{fade: 0}.reads(trace, of[0], n), arc(trace, n), scored{fade: 1}.reads(trace, of[0], n),
					scored{fade: 1 / 1.02}.reads(trace, of[0], n), slots.Sum(slots.Replay(trace, room, places)).Reads,
				}
				for i, reads := range counts {
					if float64(reads) < least {
						t.Fatalf("%d reads, and at least %v", reads, least)
					}
					sums[i] += math.Log(float64(reads) / least)
				}
				fading, now := float64(counts[3]), float64(counts[4])
				if ratio := now / fading; ratio > 1.04 && now > fading+10 {
					t.Errorf("%s, %d of %d, %d slots: %v reads, %v where scores fade", kind.name, of[1], of[0], n, now, fading)
				} else {
					most = max(most, ratio)
				}
				count++
			}
		}
		line := make([]float64, len(sums))
		for i, s := range sums {
			line[i] = math.Round(100*math.Exp(s/count)) / 100
			all[i] += s
		}
		cases += count
		t.Logf("%-30s %v", kind.name, line)
	}
	for i := range all {
		all[i] = math.Exp(all[i] / cases)
	}
	t.Logf("%-30s %.3f; at most %.3f of where scores fade", "on average", all, most)
	for i, name := range others {
		if all[4] > 0.995*all[i] {
			t.Errorf("%.3f times Belady's reads on average, %s %.3f", all[4], name, all[i])
		}
	}
}
