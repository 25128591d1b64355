package plan

// A visit is a paged group as the schedule sees it.
type visit struct {
	bytes         int64
	offset        int64
	after         int
	load, compute float64
	group         int
}

// ring gives the slots of the visits offsets in a ring of the given size such that each overlaps none of the depth
// visits before it, counted around, where there is room for that; where there is not, of as many as there is room for.
// It fails where a slot is larger than the ring.
func ring(visits []visit, bytes int64, depth int) bool {
	n := len(visits)
	depth = min(depth, n-1)
	for k := range visits {
		if visits[k].bytes > bytes {
			return false
		}
		for d := depth; ; d-- {
			if at, ok := gap(visits, k, d, bytes); ok {
				visits[k].offset = at
				break
			}
		}
	}
	for k := range visits {
		visits[k].after = 0
		for back := 1; back <= n; back++ {
			j := ((k-back)%n + n) % n
			if overlap(&visits[k], &visits[j]) {
				visits[k].after = back
				break
			}
		}
	}
	return true
}

// gap finds the lowest offset at which visit k overlaps none of the d visits before it, and none of the first ones that
// will be prefetched while it is in use.
func gap(visits []visit, k, d int, bytes int64) (int64, bool) {
	n := len(visits)
	var at int64
	for again := true; again; {
		again = false
		for back := 1; back <= d; back++ {
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
	return at, at+visits[k].bytes <= bytes
}

func overlap(a, b *visit) bool {
	return a.bytes > 0 && b.bytes > 0 && a.offset < b.offset+b.bytes && b.offset < a.offset+a.bytes
}

// simulate returns what a pass takes in the steady state: an exact recurrence over two resources. Loads follow one
// another, each once the last group whose slot it overlaps is done; groups follow one another, each once it is there.
// stalls is the time that compute waited.
func simulate(all []stage) (pass, stalls float64) {
	const passes = 3
	n := 0
	for i := range all {
		if all[i].paged {
			n++
		}
	}
	done := make([]float64, 0, passes*n) // when each visit so far was computed
	// Loads run ahead of groups, so both are followed in the order of visits: the load of a visit is known from what was
	// computed before.
	var loaded, computed float64
	var begin float64
	for pass := range passes {
		begin, stalls = computed, 0
		for i := range all {
			s := &all[i]
			if !s.paged {
				computed += s.compute
				continue
			}
			start := loaded
			if k := len(done); s.after > 0 && k-s.after >= 0 {
				start = max(start, done[k-s.after])
			}
			loaded = start + s.load
			if loaded > computed {
				stalls += loaded - computed
				computed = loaded
			}
			computed += s.compute
			done = append(done, computed)
		}
		_ = pass
	}
	return computed - begin, stalls
}

// A stage is a group in a simulated pass.
type stage struct {
	paged         bool
	after         int
	load, compute float64
}
