// Package profiled says where a run's time and memory went, module by module: from events of the ops that ran and from the
// plan that they follow, as tables for a terminal, as JSON and as a page with a picture.
//
// It does not know how a model is opened, planned or run, nor flags and files.
//
//	var w profiled.Watch // whose Observe is told of all events of the session
//	w.Begin(plan, false)
//	w.BeginRun()
//	// a run
//	var m profiled.Measurement
//	m.Add(&w, profiled.Facts{Seconds: 0.25})
//	err := profiled.New(plan, &m, profiled.About{Mode: "page", Device: "cpu", Threads: 2}).WriteText(os.Stdout, profiled.AutoDepth)
package profiled

import (
	"cmp"
	"slices"
	"strings"

	"github.com/optimem/optimem/cmd/optimem/internal/listing"
	"github.com/optimem/optimem/memory"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/storage"
)

// An About is what a profile tells of the session that ran, and of the command, without looking into either.
type About struct {
	Mode, Device string
	Threads      int
	// Reports are those of memory, which the answer in JSON ends with where there are any.
	Reports []*memory.Report
	// Table is what a terminal is shown in place of the table of modules, if not "".
	Table string
}

// A Profile is where a run's time and memory went.
type Profile struct {
	About
	Runs int
	// Seconds is the median of what runs took, or what the medians of their parts come to where that is more. Simulated
	// says that it is by a device's own clock. OtherSeconds is what is left of it beside the ops and what they waited
	// for.
	Seconds, OtherSeconds float64
	Simulated             bool
	// TakenBytes is the memory that was taken where the peak is, all arenas whole.
	TakenBytes int64

	// modules are those of tree, by number: the first is the program itself.
	tree    *listing.Tree
	modules []moduleEntry
	ops     []opEntry
	// stalls are how long each group is waited for, before the first of its ops.
	stalls []stallOf
	kinds  []kindEntry
	peak   peakEntry
}

// A moduleEntry is what a module and those below it take.
type moduleEntry struct {
	// Calls is how often the module is called in a pass, as far as its ops tell.
	Calls int
	// Seconds are those of its ops and the ops below it, SelfSeconds those of its own, StallSeconds how long they all
	// waited for weights. Times and bytes that are moved or made are those of a whole run.
	Seconds, SelfSeconds, StallSeconds float64
	// WeightBytes are those of the weights that the ops read, each byte once; MovedBytes what was brought for its
	// groups.
	WeightBytes, MovedBytes int64
	// ActivationBytes is what the ops make, PeakBytes the most that was alive or scratch memory while one of them ran.
	ActivationBytes, PeakBytes int64
}

// An opEntry is one op of the plan.
type opEntry struct {
	Index   int     `json:"index"`
	Kind    string  `json:"kind"`
	Path    string  `json:"path"`
	Source  string  `json:"source"`
	Seconds float64 `json:"seconds"`
	// HeldBytes is the memory in use while it runs, on the device that computes it.
	HeldBytes int64 `json:"held_bytes"`
	held      plan.Holding
}

// A stallOf is how long the weights of a group were waited for, before an op.
type stallOf struct {
	op      int
	seconds float64
}

// A kindEntry is what all ops of a kind take.
type kindEntry struct {
	Kind    string  `json:"kind"`
	Calls   int     `json:"calls"`
	Seconds float64 `json:"seconds"`
}

// A peakEntry is the op that finds most memory in use.
type peakEntry struct {
	Bytes           int64         `json:"bytes"`
	Op              int           `json:"op"`
	Path            string        `json:"path"`
	Kind            string        `json:"kind"`
	FixedBytes      int64         `json:"fixed_bytes"`
	RingBytes       int64         `json:"ring_bytes"`
	CacheBytes      int64         `json:"cache_bytes,omitempty"`
	ActivationBytes int64         `json:"activation_bytes"`
	WorkBytes       int64         `json:"work_bytes"`
	Holders         []holderEntry `json:"holders"`
	Weights         []weightEntry `json:"weights"`
	// held and stay are how many activations and weights there are. onHost says that the CPU beside a device computes
	// everything.
	held, stay int
	onHost     bool
}

// A holderEntry is an activation that is alive at the peak, with the module that made it.
type holderEntry struct {
	Name  string `json:"name"`
	Path  string `json:"path"`
	Bytes int64  `json:"bytes"`
	// input says that nothing made it.
	input bool
}

// A weightEntry is a weight that stays on the device of the peak.
type weightEntry struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

// maxHolders is how many activations are listed, maxWeights how many weights.
const (
	maxHolders = 10
	maxWeights = 5
)

// New puts together what was measured and what was planned. There must be a run.
func New(p *plan.Plan, measured *Measurement, about About) *Profile {
	times, seconds := measured.median()
	last := &measured.facts[len(measured.facts)-1]
	d := &Profile{
		About: about, Runs: len(measured.runs), Seconds: seconds,
		Simulated: last.Simulated, TakenBytes: last.PeakDeviceBytes, tree: listing.NewTree(),
	}
	d.addOps(p, &times)
	d.addModules(p, &times)
	d.addPeak(p)
	for k := range p.Groups {
		if times.stall[k] > 0 {
			d.stalls = append(d.stalls, stallOf{p.Groups[k].First, times.stall[k]})
		}
	}
	told := d.modules[0].Seconds + d.modules[0].StallSeconds
	d.Seconds = max(d.Seconds, told)
	d.OtherSeconds = d.Seconds - told
	return d
}

// addOps lists ops, and sums them up by kind, the costliest first.
func (d *Profile) addOps(p *plan.Plan, times *opTimes) {
	ops := p.Lowered.Graph.Ops
	holdings := p.Holdings()
	kinds := make(map[string]int)
	for i := range ops {
		kind := string(ops[i].Kind)
		d.ops = append(d.ops, opEntry{
			i, kind, ops[i].Path, ops[i].Source, times.seconds[i], holdings[i].Total(), holdings[i],
		})
		k, ok := kinds[kind]
		if !ok {
			k = len(d.kinds)
			kinds[kind] = k
			d.kinds = append(d.kinds, kindEntry{Kind: kind})
		}
		d.kinds[k].Seconds += times.seconds[i]
		if times.times[i] > 0 {
			d.kinds[k].Calls++
		}
	}
	slices.SortStableFunc(d.kinds, func(a, b kindEntry) int { return cmp.Compare(b.Seconds, a.Seconds) })
}

// addModules sums ops up by module, in the order in which modules first run.
func (d *Profile) addModules(p *plan.Plan, times *opTimes) {
	graph := p.Lowered.Graph
	reads := p.Reads()
	var below [][]storage.Extent // by module
	calls := make(map[int32]map[string]bool)
	at := func(path string) int32 {
		n := d.tree.At(calledPath(path))
		for len(d.modules) < d.tree.Len() {
			d.modules, below = append(d.modules, moduleEntry{}), append(below, nil)
		}
		return n
	}
	at("")
	for i := range graph.Ops {
		op, h := &graph.Ops[i], &d.ops[i].held
		n := at(op.Path)
		if calls[n] == nil {
			calls[n] = make(map[string]bool)
		}
		calls[n][op.Path] = true
		x := &d.modules[n]
		x.SelfSeconds += times.seconds[i]
		x.PeakBytes = max(x.PeakBytes, h.ActivationBytes+h.WorkBytes)
		for _, id := range op.Out {
			x.ActivationBytes += graph.Values[id].Bytes() * int64(times.times[i])
		}
		below[n] = append(below[n], reads[i]...)
	}
	for k := range p.Groups {
		g := &p.Groups[k]
		stall, moved, bytes := times.stall[k], times.moved[k], g.WeightBytes
		for _, layer := range g.Layers() {
			x := &d.modules[at(layer.Path)]
			x.StallSeconds += stall // the first one waits
			share := moved
			if bytes > layer.WeightBytes {
				share = int64(float64(moved) * float64(layer.WeightBytes) / float64(bytes))
			}
			x.MovedBytes += share
			stall, moved, bytes = 0, moved-share, bytes-layer.WeightBytes
		}
	}
	// Modules come after those that they are in.
	for n := len(d.modules) - 1; n >= 0; n-- {
		x := &d.modules[n]
		x.Seconds += x.SelfSeconds
		x.WeightBytes = plan.DistinctBytes(below[n])
		if own := len(calls[int32(n)]); own > 0 || x.Calls == 0 {
			x.Calls = max(own, 1)
		}
		parent := d.tree.Parent(int32(n))
		if parent == listing.NoModule {
			continue
		}
		y := &d.modules[parent]
		if y.Calls == 0 || x.Calls < y.Calls { // what a module without ops of its own calls, it calls once each time or more
			y.Calls = x.Calls
		}
		y.Seconds += x.Seconds
		y.StallSeconds += x.StallSeconds
		y.MovedBytes += x.MovedBytes
		y.ActivationBytes += x.ActivationBytes
		y.PeakBytes = max(y.PeakBytes, x.PeakBytes)
		below[parent] = append(below[parent], below[n]...)
		below[n] = nil
	}
	d.modules[0].Calls = 1
}

// calledPath returns the path of a module without what says which call of it an op belongs to: "encoder.layer" for
// "encoder.layer@1".
func calledPath(path string) string {
	if !strings.Contains(path, "@") {
		return path
	}
	parts := strings.Split(path, ".")
	for i, part := range parts {
		if name, call, ok := strings.Cut(part, "@"); ok && strings.Trim(call, "0123456789") == "" {
			parts[i] = name
		}
	}
	return strings.Join(parts, ".")
}

// addPeak finds the op that finds most in use on the device. What the CPU beside a device holds is not compared with
// that, unless it computes everything.
func (d *Profile) addPeak(p *plan.Plan) {
	best := -1
	for i := range d.ops {
		h := &d.ops[i].held
		if best < 0 || d.ops[best].held.OnHost && !h.OnHost ||
			d.ops[best].held.OnHost == h.OnHost && h.Total() > d.ops[best].HeldBytes {
			best = i
		}
	}
	d.peak = peakEntry{Op: best, Holders: []holderEntry{}, Weights: []weightEntry{}}
	if best < 0 {
		return
	}
	op := &d.ops[best]
	if op.held.OnHost {
		d.TakenBytes = p.Sides.Host.PeakBytes()
	}
	d.peak.Bytes, d.peak.Path, d.peak.Kind, d.peak.onHost = op.HeldBytes, op.Path, op.Kind, op.held.OnHost
	d.peak.FixedBytes, d.peak.RingBytes, d.peak.CacheBytes = op.held.FixedBytes, op.held.RingBytes, op.held.CacheBytes
	d.peak.ActivationBytes, d.peak.WorkBytes = op.held.ActivationBytes, op.held.WorkBytes
	weights := p.HeldWeights(best)
	d.peak.stay = len(weights)
	for _, w := range weights[:min(len(weights), maxWeights)] {
		d.peak.Weights = append(d.peak.Weights, weightEntry{w.Name, w.Bytes})
	}
	for i, h := range p.Holders(best) {
		if d.peak.held++; i < maxHolders {
			d.peak.Holders = append(d.peak.Holders, holderEntry{
				cmp.Or(h.Name, string(h.Kind)), h.Path, h.Bytes, h.Kind == "",
			})
		}
	}
}
