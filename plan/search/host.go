package search

import (
	"cmp"
	"math"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
)

// worthwhile is what part of a pass's time help by the host's processor must leave at most.
const worthwhile = 0.98

// helped returns a plan in which the host's processor computes some of the paged groups, if that is expected to be
// faster than p, in which it computes none: where a group has few rows, reading its weights in host memory takes less
// time than moving them.
func (d *draft) helped(p *plan.Plan) *plan.Plan {
	if p.SwapBytes > 0 || p.MovedBytes == 0 {
		return p
	}
	if p.SplitBytes > 0 {
		if d = d.splitAs(p); d == nil {
			return p
		}
	}
	if len(d.groups) != len(p.Groups) { // some are merged
		return p
	}
	h := newHelp(d, p)
	if len(h.able) == 0 {
		return p
	}
	best := p
	for _, set := range h.sets() {
		q, err := d.divided(plan.Auto, h.make(set), func(group int) bool { return set[group] })
		if err != nil || q == nil || d.o.overHost(q) || q.Sides.Host.MovedBytes > 0 {
			continue
		}
		if q.Forecast.Seconds < best.Forecast.Seconds && q.Forecast.Seconds < p.Forecast.Seconds*worthwhile {
			q.MinBytes = p.MinBytes
			best = q
		}
	}
	return best
}

// A help is what is known of the groups that the host's processor could compute.
type help struct {
	d *draft
	// host and device are what each group takes there, load what moving it does, for all instances.
	host, device, load []float64
	// able are the paged groups that the host computes in less time than moving them takes, those first of which help
	// costs least.
	able []int
	// edges are the activations that groups give to others.
	edges []edge
	// moved is what all moves of the plan without help take, computed what its ops do.
	moved, computed float64
}

// An edge is an activation that one group computes and others read.
type edge struct {
	from    int
	to      []int
	seconds float64
}

func newHelp(d *draft, p *plan.Plan) *help {
	n := len(d.groups)
	h := &help{d: d, host: make([]float64, n), device: make([]float64, n), load: make([]float64, n)}
	h.findEdges()
	instances := float64(d.o.Instances)
	seconds := d.o.HostRates.GraphSeconds(d.l, d.o.Ops)
	alone := make([]bool, n)
	cost := make([]float64, n)
	for i := range d.groups {
		for _, s := range seconds[d.groups[i].First:d.groups[i].End] {
			h.host[i] += s * instances
		}
		h.device[i] = d.groups[i].Seconds * instances
		h.load[i] = p.Groups[i].LoadSeconds
		h.computed += h.device[i]
		if !p.Groups[i].Paged() {
			h.load[i] = d.groups[i].LoadSeconds // it would not stay for nothing
			continue
		}
		h.moved += h.load[i]
		alone[i] = true
		cost[i] = h.host[i] + h.crossings(alone) - h.device[i]
		alone[i] = false
		if h.host[i] < h.load[i] {
			h.able = append(h.able, i)
		}
	}
	slices.SortStableFunc(h.able, func(a, b int) int { return cmp.Compare(cost[a]*h.load[b], cost[b]*h.load[a]) })
	return h
}

// findEdges lists the activations between groups.
func (h *help) findEdges() {
	g := h.d.l.Graph
	from := make([]int, len(g.Values))
	at := make([]int, len(g.Values))
	for i := range at {
		from[i], at[i] = -1, -1
	}
	for k := range h.d.groups {
		for i := h.d.groups[k].First; i < h.d.groups[k].End; i++ {
			op := &g.Ops[i]
			for _, o := range op.In {
				if o.Value == graph.NoValue || from[o.Value] < 0 || from[o.Value] == k {
					continue
				}
				e := at[o.Value]
				if e < 0 {
					e = len(h.edges)
					at[o.Value] = e
					seconds := h.d.copy(g.Values[o.Value].Bytes()) * float64(h.d.o.Instances)
					h.edges = append(h.edges, edge{from: from[o.Value], seconds: seconds})
				}
				if to := h.edges[e].to; len(to) == 0 || to[len(to)-1] != k {
					h.edges[e].to = append(to, k)
				}
			}
			for _, id := range op.Out {
				from[id] = k
			}
		}
	}
}

// crossings returns what the copies between the sides take where the host computes a set of groups.
func (h *help) crossings(set []bool) float64 {
	var sum float64
	for i := range h.edges {
		e := &h.edges[i]
		if slices.ContainsFunc(e.to, func(k int) bool { return set[k] != set[e.from] }) {
			sum += e.seconds
		}
	}
	return sum
}

// sets returns a few sets of groups that are worth planning for.
func (h *help) sets() [][]bool {
	type set struct {
		groups  []bool
		seconds float64
	}
	var all []set
	inOrder := slices.Sorted(slices.Values(h.able))
	backwards := slices.Clone(inOrder)
	slices.Reverse(backwards)
	for _, order := range [][]int{h.able, inOrder, backwards} {
		best := set{seconds: math.Inf(1)}
		for size := 1; ; size = min(2*size, len(order)) {
			groups := make([]bool, len(h.host))
			computed, moved := h.computed, h.moved
			for _, i := range order[:size] {
				groups[i] = true
				computed += h.host[i] - h.device[i]
				moved -= h.load[i]
			}
			if seconds := max(computed+h.crossings(groups), moved); seconds < best.seconds {
				best = set{groups, seconds}
			}
			if size == len(order) {
				break
			}
		}
		all = append(all, best)
	}
	slices.SortStableFunc(all, func(a, b set) int { return cmp.Compare(a.seconds, b.seconds) })
	var out [][]bool
	for _, s := range all {
		if len(out) < 2 && !slices.ContainsFunc(out, func(o []bool) bool { return slices.Equal(o, s.groups) }) {
			out = append(out, s.groups)
		}
	}
	return out
}

// make returns how the device's side is planned beside a set of groups that the host computes: while it does, the
// device's ops wait and loads go on.
func (h *help) make(set []bool) func(*draft, *plan.Sides) *plan.Plan {
	return func(e *draft, _ *plan.Sides) *plan.Plan {
		e.pauses = make([]float64, len(e.groups))
		last := len(e.groups) - 1
		at := last
		k := 0
		for i := range h.host {
			if set[i] {
				e.pauses[at] += h.host[i]
				continue
			}
			at = k
			k++
		}
		return e.mixed()
	}
}
