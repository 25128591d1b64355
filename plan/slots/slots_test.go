package slots_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/plan/slots"
)

// drawn is a trace of passes in which some experts are needed more often than others (Zipf), and often those of the
// pass before (Markov).
func drawn(seed uint64, layers, experts, named, passes int, skew, stays float64) *slots.Trace {
	rng := rand.New(rand.NewPCG(seed, 1))
	zipf := rand.NewZipf(rng, 1+skew, 4, uint64(experts-1))
	t := &slots.Trace{}
	rank, last := make([][]int, layers), make([][]int32, layers)
	for l := range layers {
		t.Layers = append(t.Layers, string(rune('a'+l)))
		rank[l] = rng.Perm(experts)
	}
	for range passes {
		for l := range layers {
			var needs []int32
			for _, e := range last[l] {
				if rng.Float64() < stays {
					needs = append(needs, e)
				}
			}
			for len(needs) < named {
				if e := int32(rank[l][zipf.Uint64()]); !slices.Contains(needs, e) {
					needs = append(needs, e)
				}
			}
			slices.Sort(needs)
			last[l] = needs
			t.Visits = append(t.Visits, slots.Visit{Layer: l, Rows: 1, Experts: needs})
		}
	}
	return t
}

// apart gives each layer of a trace slots of its own.
func apart(t *slots.Trace, experts, n int) (slots.Room, []slots.Place) {
	var r slots.Room
	var places []slots.Place
	for l := range t.Layers {
		r.Slots, r.Experts = append(r.Slots, n), append(r.Experts, experts)
		places = append(places, slots.Place{Set: l})
	}
	return r, places
}

// TestSteps: of every pass each expert is computed once, those that are there first; who is read finds a slot whose
// last expert is computed before, and a pass leaves in the slots what the next one finds.
func TestSteps(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5, 16, 40} {
		rng := rand.New(rand.NewPCG(uint64(n), 2))
		set := slots.NewSet(16, n)
		there := make(map[int32]int32) // by slot
		for pass := range 400 {
			var wanted []int32
			for e := range int32(16) {
				if rng.IntN(16) < pass%17 {
					wanted = append(wanted, e)
				}
			}
			before := make(map[int32]bool)
			for _, e := range there {
				before[e] = true
			}
			steps := set.Pass(0, wanted)
			var got []int32
			read := false
			computes := make(map[int32]int32) // the last step of each slot
			for i, s := range steps {
				got = append(got, s.Expert)
				if s.Slot < 0 || int(s.Slot) >= set.Slots() {
					t.Fatalf("slot %d of %d", s.Slot, set.Slots())
				}
				if s.Read == before[s.Expert] {
					t.Fatalf("%d slots, pass %d: expert %d: read %v, there %v", n, pass, s.Expert, s.Read, before[s.Expert])
				}
				if read && !s.Read {
					t.Fatal("one that is there comes after one that is read")
				}
				read = s.Read
				user, used := computes[s.Slot]
				switch {
				case !s.Read && there[s.Slot] != s.Expert:
					t.Fatal("another expert is in the slot")
				case s.Read && used && s.After < user, s.Read && !used && s.After != -1 && steps[s.After].Slot != s.Slot:
					t.Fatalf("slot %d is filled after step %d, and step %d computes with it", s.Slot, s.After, user)
				case s.After >= int32(i):
					t.Fatal("a step waits for one behind it")
				}
				// A hit that was not computed yet is lost if its slot is filled before.
				for _, later := range steps[i+1:] {
					if later.Slot == s.Slot && later.Read && later.After < int32(i) {
						t.Fatal("a slot is filled while its expert waits")
					}
				}
				there[s.Slot], computes[s.Slot] = s.Expert, int32(i)
			}
			slices.Sort(got)
			if !slices.Equal(got, wanted) {
				t.Fatalf("%v are computed of %v", got, wanted)
			}
		}
	}
}

// TestPolicy: with slots for all nobody is read twice; with fewer the policy reads little more than who knows what
// comes, and less than who forgets how often experts were needed.
func TestPolicy(t *testing.T) {
	const layers, experts, named, passes = 4, 128, 8, 1500
	for name, c := range map[string]struct{ skew, stays float64 }{"flat": {0.05, 0.3}, "usual": {0.3, 0.4}, "steep": {0.8, 0.1}} {
		trace := drawn(7, layers, experts, named, passes, c.skew, c.stays)
		room, places := apart(trace, experts, experts)
		for l, n := range slots.Replay(trace, room, places) {
			seen := make(map[int32]bool)
			for _, v := range trace.Visits {
				for _, e := range v.Experts {
					if v.Layer == l {
						seen[e] = true
					}
				}
			}
			if n.Reads != int64(len(seen)) || n.Needs != passes*named {
				t.Errorf("%s: with slots for all: %+v, and %d experts are needed", name, n, len(seen))
			}
		}
		before := int64(1) << 60
		for _, n := range []int{8, 16, 32, 64, 96} {
			room, places := apart(trace, experts, n)
			got, least := slots.Sum(slots.Replay(trace, room, places)), slots.Sum(slots.Least(trace, room, places))
			t.Logf("%s, %d slots: %.1f%% hits, at most %.1f%%: %.2f times the least reads", name, n, 100*got.Hits(), 100*least.Hits(),
				float64(got.Reads)/float64(least.Reads))
			if got.Reads < least.Reads || got.Needs != least.Needs {
				t.Errorf("%s, %d slots: %+v, and at least %+v", name, n, got, least)
			}
			if got.Reads > before {
				t.Errorf("%s: %d slots read more than fewer do", name, n)
			}
			before = got.Reads
			if float64(got.Reads) > 2.3*float64(least.Reads) {
				t.Errorf("%s, %d slots: %d reads, and %d would do", name, n, got.Reads, least.Reads)
			}
			if lru := leastRecent(trace, n); float64(got.Reads) > 1.05*float64(lru) {
				t.Errorf("%s, %d slots: %d reads, and %d without scores", name, n, got.Reads, lru)
			}
		}
	}
}

// leastRecent counts reads where who was needed longest ago leaves.
func leastRecent(t *slots.Trace, n int) (reads int64) {
	order := make([][]int32, len(t.Layers))
	for _, v := range t.Visits {
		list := order[v.Layer]
		for _, e := range v.Experts {
			if at := slices.Index(list, e); at >= 0 {
				list = slices.Delete(list, at, at+1)
			} else {
				reads++
			}
			list = append(list, e)
		}
		order[v.Layer] = list[max(0, len(list)-n):]
	}
	return reads
}

// TestLeast: on a trace that can be followed by hand.
func TestLeast(t *testing.T) {
	trace := &slots.Trace{Layers: []string{"x"}}
	for _, e := range []int32{0, 1, 2, 0, 1, 3, 0, 3, 1, 2} { // MIN with two slots and without room for who is not worth it
		trace.Visits = append(trace.Visits, slots.Visit{Experts: []int32{e}})
	}
	room, places := apart(trace, 4, 2)
	if got := slots.Least(trace, room, places)[0]; got != (slots.Count{Needs: 10, Reads: 6}) {
		t.Errorf("%+v", got)
	}
	if got := slots.Replay(trace, room, []slots.Place{{Set: -1}})[0]; got != (slots.Count{}) {
		t.Errorf("a layer without slots counts %+v", got)
	}
}

// TestShared: layers may share slots, under ids of their own.
func TestShared(t *testing.T) {
	trace := drawn(3, 3, 16, 2, 200, 0.5, 0.5)
	room := slots.Room{Slots: []int{48}, Experts: []int{48}}
	places := []slots.Place{{First: 0}, {First: 16}, {First: 32}}
	alone, own := apart(trace, 16, 16)
	if got, want := slots.Sum(slots.Replay(trace, room, places)), slots.Sum(slots.Replay(trace, alone, own)); got != want {
		t.Errorf("with room for all %+v, apart %+v", got, want)
	}
	room.Slots[0] = 6
	got, least := slots.Sum(slots.Replay(trace, room, places)), slots.Sum(slots.Least(trace, room, places))
	if got.Reads < least.Reads || least.Reads <= 0 || got.Needs != least.Needs {
		t.Errorf("%+v, and at least %+v", got, least)
	}
}

// TestLayers: layers that share few slots are known each by its own passes: if the passes of all counted as those of one, who
// was needed in the last pass of a layer would seem not to have been needed for long.
func TestLayers(t *testing.T) {
	const layers, experts, named, passes, n = 6, 16, 4, 400, 20
	trace := drawn(4, layers, experts, named, passes, 0.3, 0.6)
	room := slots.Room{Slots: []int{n}, Experts: []int{layers * experts}}
	var places []slots.Place
	for l := range layers {
		places = append(places, slots.Place{First: l * experts})
	}
	got, least := slots.Sum(slots.Replay(trace, room, places)), slots.Sum(slots.Least(trace, room, places))
	all := slots.NewSet(layers*experts, n)
	var alike int64
	for _, v := range trace.Visits {
		ids := slices.Clone(v.Experts)
		for i := range ids {
			ids[i] += int32(v.Layer * experts)
		}
		for _, step := range all.Pass(0, ids) {
			if step.Read {
				alike++
			}
		}
	}
	t.Logf("%d reads of %d, %d if all were one layer, at least %d", got.Reads, got.Needs, alike, least.Reads)
	if float64(got.Reads) > 0.92*float64(alike) || got.Reads < least.Reads {
		t.Errorf("%d reads, %d if all were one layer", got.Reads, alike)
	}
}

// TestTurns: where every pass needs all experts of layers that share slots, most that are there stay until they are needed
// again, as they would not if who was needed longest ago left.
func TestTurns(t *testing.T) {
	const layers, experts, n, passes = 4, 8, 16, 50
	set := slots.NewSet(layers*experts, n)
	reads := 0
	for pass := range passes {
		for l := range layers {
			var ids []int32
			for e := range experts {
				ids = append(ids, int32(l*experts+e))
			}
			for _, step := range set.Pass(l*experts, ids) {
				if step.Read && pass > 0 {
					reads++
				}
			}
		}
	}
	each := float64(reads) / (passes - 1)
	t.Logf("%.1f of %d are read in a pass, %d slots", each, layers*experts, n)
	if each > layers*experts-n/2 || each < layers*experts-n {
		t.Errorf("%.1f of %d are read in a pass, %d slots", each, layers*experts, n)
	}
}

// TestEmpty: what lay in slots is read again, and in the same order as if nothing had happened before.
func TestEmpty(t *testing.T) {
	set := slots.NewSet(4, 2)
	set.Pass(0, []int32{1, 3})
	set.Empty()
	for _, s := range set.Pass(0, []int32{1, 3}) {
		if !s.Read || s.After != -1 {
			t.Errorf("%+v", s)
		}
	}
}

// TestTrace: what is written is read again, and what is no trace is a typed error that names the line.
func TestTrace(t *testing.T) {
	want := drawn(1, 2, 8, 3, 20, 0.2, 0.2)
	var file bytes.Buffer
	for _, v := range want.Visits {
		if err := slots.WriteVisit(&file, want.Layers[v.Layer], v.Rows, v.Experts); err != nil {
			t.Fatal(err)
		}
	}
	got, err := slots.ReadTrace(&file)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got.Layers, want.Layers) || len(got.Visits) != len(want.Visits) ||
		!slices.Equal(got.Visits[7].Experts, want.Visits[7].Experts) || got.Visits[7].Layer != want.Visits[7].Layer {
		t.Error("another trace")
	}
	if n := got.Experts(); len(n) != 2 || n[0] != 8 {
		t.Errorf("%v experts", n)
	}
	good := `{"layer":"a","experts":[1]}` + "\n"
	for name, text := range map[string]string{
		"no JSON": "hello", "an array": "[1]", "no layer": `{"experts":[1]}`, "negative": `{"layer":"a","experts":[-1]}`,
		"too high": `{"layer":"a","experts":[16384]}`, "twice": `{"layer":"a","experts":[2,1,2]}`,
		"twice at once": `{"layer":"a","experts":[1,1]}`, "rows": `{"layer":"a","rows":-1,"experts":[]}`, "a fraction": `{"layer":"a","experts":[1.5]}`,
		"long": `{"layer":"` + strings.Repeat("x", slots.MostLine) + `"}`, "name": `{"layer":"` + strings.Repeat("x", 2000) + `"}`,
	} {
		var failed *slots.TraceError
		if _, err := slots.ReadTrace(strings.NewReader(good + text)); !errors.As(err, &failed) || failed.Line != 2 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzReadTrace: no file makes a trace whose replay fails.
func FuzzReadTrace(f *testing.F) {
	f.Add([]byte(`{"layer":"a","experts":[1,5]}` + "\n" + `{"layer":"b","rows":3,"experts":[]}`))
	f.Fuzz(func(t *testing.T, file []byte) {
		trace, err := slots.ReadTrace(bytes.NewReader(file))
		if err != nil {
			return
		}
		var r slots.Room
		var places []slots.Place
		for l, n := range trace.Experts() {
			r.Slots, r.Experts = append(r.Slots, 2), append(r.Experts, max(n, 1))
			places = append(places, slots.Place{Set: l})
		}
		if got, least := slots.Sum(slots.Replay(trace, r, places)), slots.Sum(slots.Least(trace, r, places)); got.Reads < least.Reads {
			t.Errorf("%+v, and at least %+v", got, least)
		}
	})
}
