package search

import (
	"errors"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// checkReads: the ops of a plan read all that those of the program read of weights, and nothing else but the rest of
// tables.
func checkReads(t failer, p *plan.Plan, g *graph.Graph) {
	var want []storage.Extent
	rows := false
	for i := range g.Ops {
		for _, part := range plan.OpParts(g, &g.Ops[i]) {
			e := g.Values[part.Value].Weight.Extent
			want = append(want, storage.Extent{Source: e.Source, Offset: e.Offset + part.Low, Bytes: part.High - part.Low})
		}
	}
	for i := range p.Groups {
		rows = rows || p.Groups[i].Rows
	}
	got := slices.Concat(p.Reads()...)
	n := plan.DistinctBytes(got)
	if both := plan.DistinctBytes(slices.Concat(got, want)); both != n || !rows && n != plan.DistinctBytes(want) {
		t.Fatalf("ops read %d bytes, those of the program %d, together %d\n%v", n, plan.DistinctBytes(want), both, p)
	}
}

// checkConsts: every constant has a place of its own, where the device may read it.
func checkConsts(t failer, p *plan.Plan) {
	g, n := p.Lowered.Graph, 0
	for id := range g.Values {
		if len(g.Values[id].Const) > 0 {
			n++
		}
	}
	var end int64
	for _, c := range p.Consts { // in order
		if c.Offset < end || c.Offset%p.Target.AlignBytes != 0 || c.Low != 0 || c.High != int64(len(g.Values[c.Value].Const)) {
			t.Fatalf("constant %d lies at %d, where %d bytes are taken\n%v", c.Value, c.Offset, end, p)
		}
		end = c.Offset + c.High
	}
	if len(p.Consts) != n || end > p.ConstBytes {
		t.Fatalf("%d constants of %d have places, up to byte %d of %d\n%v", len(p.Consts), n, end, p.ConstBytes, p)
	}
}

// checkGathers: of a table that nothing brings, rows are wanted whose numbers the host knows, for certain; each lies in
// one run and has bytes of its own in host memory on the way to a device.
func checkGathers(t failer, p *plan.Plan) {
	g := p.Lowered.Graph
	var host []storage.Extent
	var sum int64
	for _, x := range p.Gathers {
		op := &g.Ops[x.Op]
		role := g.Values[op.In[1].Value].Role
		if op.Kind != "embedding" || len(op.Guard) > 0 || op.In[0].Value != graph.NoValue ||
			role != graph.Input && !(p.Target.Direct && role == graph.Computed) {
			t.Fatalf("rows are gathered for op %d, %s, by numbers that are %v\n%v", x.Op, op.Kind, role, p)
		}
		if n := x.Layout.Strides[0]; n < x.Layout.Shape[1] || x.Layout.Strides[1] != 1 && x.Layout.Shape[1] > 1 {
			t.Fatalf("rows are gathered from %v\n%v", x.Layout, p)
		}
		if p.Target.Direct {
			continue
		}
		for instance := range p.Instances {
			n := g.Values[op.Out[0]].Bytes()
			host = append(host, storage.Extent{Offset: x.HostOffset + int64(instance)*x.HostStride, Bytes: n})
			if sum += n; x.HostOffset+int64(instance)*x.HostStride+n > p.GatherBytes {
				t.Fatalf("rows of instance %d end beyond the %d bytes for them\n%v", instance, p.GatherBytes, p)
			}
		}
	}
	if plan.DistinctBytes(host) != sum {
		t.Fatalf("rows of %d bytes share host memory: %v", sum, host)
	}
}

// checkHost: on the way to a device, as many groups as may be there at once have room in host memory, and what stays
// there has bytes of its own.
func checkHost(t failer, p *plan.Plan) {
	if p.Target.Direct {
		if n := p.HostBytes(); n != 0 {
			t.Fatalf("%d bytes of host memory besides the device's, which are the host's\n%v", n, p)
		}
		return
	}
	var copies []storage.Extent
	var sum, largest int64
	for i := range p.Groups {
		group := &p.Groups[i]
		n := plan.SpanBytes(group.Spans)
		switch {
		case group.Copied:
			copies = append(copies, storage.Extent{Offset: group.CopyOffset, Bytes: n})
			if sum += n; group.CopyOffset+n > p.HostCopyBytes || !group.Paged() {
				t.Fatalf("the copy of group %d ends at %d of %d\n%v", i, group.CopyOffset+n, p.HostCopyBytes, p)
			}
		case group.Paged():
			largest = max(largest, n)
		}
	}
	if plan.DistinctBytes(copies) != sum {
		t.Fatalf("copies of %d bytes share host memory: %v", sum, copies)
	}
	if p.StagingBytes < plan.StagingSlots*largest || p.StagingBytes == 0 && len(p.Fixed.Spans) > 0 {
		t.Fatalf("%d bytes for %d groups of up to %d bytes at once\n%v", p.StagingBytes, plan.StagingSlots, largest, p)
	}
	if n := p.StagingBytes + p.HostCopyBytes + p.SwapBytes + p.GatherBytes + p.DecodeBytes; p.HostBytes() != n {
		t.Fatalf("takes %d bytes of host memory, which is for %d", p.HostBytes(), n)
	}
}

// checkForecast: a pass is expected to take what it takes if loads follow one another, each once all slots that it
// overlaps are free, and so do groups, each once it is there. Loads from a disk may be late, by cost.MostLateSeconds
// each.
func checkForecast(t failer, p *plan.Plan, o Options) {
	r := o.filled().Rates
	type slot struct {
		low, high int64
		done      float64
	}
	var ring []slot
	var loaded, now, pass, computed, loads, decoded float64
	for range 8 {
		begun, before := now, pass
		computed, loads, decoded = 0, 0, 0
		for i := range p.Groups {
			group := &p.Groups[i]
			if group.Paged() {
				load, decoding := loadOf(group, r)
				if !p.Target.Direct {
					decoding = 0
					bus := 0.0
					for _, run := range plan.Runs(group.Parts, p.Target.AlignBytes) {
						bus += float64(run.Bytes)/r.CopyBytes + r.CopySeconds
					}
					if load = max(load, bus); group.Copied {
						load = bus
					}
				}
				loads, decoded = loads+load, decoded+decoding
				now += decoding // by processors that ops wait for
				load -= decoding
				at := slot{low: group.SlotOffset, high: group.SlotOffset + group.SlotBytes}
				for _, s := range ring {
					if s.low < at.high && at.low < s.high {
						loaded = max(loaded, s.done)
					}
				}
				loaded += load
				now = max(now, loaded)
				at.done = now + group.Seconds*float64(p.Instances)
				ring = append(slices.DeleteFunc(ring, func(s slot) bool { return at.low <= s.low && s.high <= at.high }), at)
			}
			now += group.Seconds * float64(p.Instances)
			computed += group.Seconds * float64(p.Instances)
		}
		if pass = now - begun; math.Abs(pass-before) <= 1e-9*pass {
			break
		}
	}
	f := p.Forecast
	near := func(a, b float64) bool { return math.Abs(a-b) <= 1e-6*b }
	if !near(f.ComputeSeconds, computed) || !near(f.LoadSeconds, loads) && p.RingBytes <= cost.NearBytes {
		t.Fatalf("ops and loads are expected to take %v and %v s, want %v and %v\n%v", f.ComputeSeconds, f.LoadSeconds, computed, loads, p)
	}
	if !p.Target.Direct && !near(f.Seconds, pass) || f.Seconds < pass*(1-1e-6) ||
		f.Seconds < max(computed+decoded, loads-decoded)*(1-1e-6) ||
		f.Seconds > (computed+loads*(1+cost.FarShare))*(1+1e-6)+float64(len(p.Groups))*cost.MostLateSeconds {
		t.Fatalf("a pass is expected to take %v s, want %v, of which ops take %v and loads %v\n%v", f.Seconds, pass, computed, loads, p)
	}
}

// loadOf is what filling a group's slot from files takes, and how much of that is work of the processors that ops wait
// for.
func loadOf(group *plan.Group, r cost.Rates) (load, decoding float64) {
	bytes, stored := plan.SpanBytes(group.Spans), int64(0)
	blocks := storedOf(group)
	for _, s := range blocks {
		stored += s.Bytes
	}
	switch decode := r.Decoding(bytes); {
	case blocks == nil:
		return float64(bytes)/r.DiskBytes + float64(len(group.Spans))*r.ReadSeconds, 0
	case group.Decoded:
		return decode, cost.CopiedShare * decode
	default:
		return max(float64(stored)/r.DiskBytes, decode) + float64(len(group.Spans))*r.ReadSeconds, cost.CopiedShare * decode
	}
}

// checkSides: every op is computed on one side, which has room for what it needs, and what crosses has a place in host
// memory.
func checkSides(t failer, p *plan.Plan, o Options) {
	s := p.Sides
	device, host := o, o
	device.HostBytes, host.HostBytes = 0, 0
	if host.Rates = o.HostRates; s.Peer == "" {
		host.MemoryBytes, host.Target = 0, plan.CPU
	} else {
		host.Rates, host.MemoryBytes, host.Peers = o.Rates, o.Peers[0].MemoryBytes, o.Peers[1:]
	}
	checkPlan(t, s.Device, device, s.Whole[0].Graph)
	checkPlan(t, s.Host, host, s.Whole[1].Graph)
	made := make([]bool, len(p.Lowered.Graph.Ops))
	for _, side := range s.Whole {
		for _, op := range side.Ops {
			if made[op] {
				t.Fatalf("op %d is computed twice\n%v", op, p)
			}
			made[op] = true
		}
	}
	if slices.Contains(made, false) {
		t.Fatalf("ops computed: %v", made)
	}
	var crossing int64
	for _, c := range s.Crossings {
		crossing += s.Whole[1-c.From].Graph.Values[c.Input].Bytes() * int64(p.Instances)
	}
	if s.CrossingBytes < crossing {
		t.Fatalf("%d bytes cross, and %d have a place in host memory\n%v", crossing, s.CrossingBytes, p)
	}
	peak, want := s.Device.PeakBytes(), s.Device.HostBytes()+crossing
	if s.Peer == "" {
		want += s.Host.PeakBytes()
	} else {
		want += s.Host.HostBytes()
		peak = max(peak, slices.Max(p.DeviceBytes()))
	}
	if p.HostBytes() < want || p.PeakBytes() < peak {
		t.Fatalf("takes %d bytes and %d of host memory, want %d and %d\n%v", p.PeakBytes(), p.HostBytes(), peak, want, p)
	}
	holdings := p.Holdings()
	for k := range p.Groups {
		for i := p.Groups[k].First; i < p.Groups[k].End; i++ {
			if h := holdings[i]; h.OnHost != p.Groups[k].OnHost || h.Device != p.Groups[k].Device {
				t.Fatalf("op %d is held on device %d, %v, and its group runs on %d\n%v", i, h.Device, h.OnHost, p.Groups[k].Device, p)
			}
		}
	}
	if !s.Overlaps {
		return
	}
	for _, q := range []*plan.Plan{s.Device, s.Host} { // each micro-batch passes all groups of a side at once
		if q.MovedBytes > 0 || len(q.Gathers) > 0 && !q.Target.Direct {
			t.Fatalf("micro-batches overlap, and each would bring %d bytes\n%v", q.MovedBytes, p)
		}
	}
	if len(s.Segments) != 2 || s.Segments[0].OnHost || p.Instances < 2 {
		t.Fatalf("%d micro-batches overlap on %v\n%v", p.Instances, s.Segments, p)
	}
}

// TestHostBudget: what a plan takes of host memory is within its bound, or an error says what it would be; a bound that
// a plan without one is within is none.
func TestHostBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, _ := lower(drawGraph(t))
		o := drawOptions(t, l.Graph)
		o.Target = plan.Target{Name: "emu", AlignBytes: 256}
		free, err := Plan(l, o)
		if err != nil {
			t.Fatal(err)
		}
		if rapid.Bool().Draw(t, "least") {
			o.MemoryBytes = free.MinBytes
			if free, err = Plan(l, o); err != nil {
				t.Fatal(err)
			}
		}
		o.HostBytes = rapid.Int64Range(1, 8<<20).Draw(t, "host")
		if rapid.Bool().Draw(t, "tight") {
			o.HostBytes = rapid.Int64Range(max(free.HostBytes()/8, 1), free.HostBytes()+1).Draw(t, "of it")
		}
		p, err := Plan(l, o)
		var c *plan.CapacityError
		switch {
		case errors.As(err, &c):
			if c.Host && c.NeedBytes <= o.HostBytes {
				t.Fatalf("of %d bytes: %#v", o.HostBytes, c)
			}
			return
		case err != nil:
			t.Fatal(err)
		}
		checkPlan(t, p, o, l.Graph)
	})
}

// TestDevices: over several devices, each op runs on one of them within its budget, and all of them within the host's.
func TestDevices(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, _ := lower(drawGraph(t))
		o := drawOptions(t, l.Graph)
		o.Mode = rapid.SampledFrom([]plan.Mode{plan.Resident, plan.Page, plan.Auto}).Draw(t, "mode of all")
		o.Target, o.Lower, o.HostLower = plan.Target{Name: "emu", AlignBytes: 256}, lower, nil
		o.Peers = slices.Repeat([]Peer{{}}, rapid.IntRange(1, 3).Draw(t, "peers"))
		free, err := Plan(l, o)
		if err != nil {
			t.Fatal(err)
		}
		checkPlan(t, free, o, l.Graph)
		if rapid.Bool().Draw(t, "limited") {
			o.MemoryBytes = rapid.Int64Range(1, free.PeakBytes()).Draw(t, "memory")
			for i := range o.Peers {
				o.Peers[i].MemoryBytes = rapid.Int64Range(1, 2*free.PeakBytes()).Draw(t, "memory of a peer")
			}
		}
		if rapid.Bool().Draw(t, "host") {
			o.HostBytes = rapid.Int64Range(1, free.HostBytes()+1).Draw(t, "host memory")
		}
		p, err := Plan(l, o)
		var c *plan.CapacityError
		switch {
		case errors.As(err, &c):
			return
		case err != nil:
			t.Fatal(err)
		}
		checkPlan(t, p, o, l.Graph)
	})
}

// TestHostOps: what the device cannot compute the host's processor does.
func TestHostOps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, _ := lower(drawGraph(t))
		o := drawOptions(t, l.Graph)
		o.Mode, o.Target, o.Capacity = plan.Auto, plan.Target{Name: "emu", AlignBytes: 256}, plan.Limit{}
		o.Lower, o.HostLower = lower, lower
		o.HostOps = make([]bool, len(l.Graph.Ops))
		for i := range o.HostOps {
			o.HostOps[i] = rapid.IntRange(0, 4).Draw(t, "cannot") == 0
		}
		p, err := Plan(l, o)
		if err != nil {
			t.Fatal(err)
		}
		checkPlan(t, p, o, l.Graph)
		for i, only := range o.HostOps {
			if only && !slices.Contains(p.Sides.Whole[1].Ops, i) {
				t.Fatalf("op %d is not the host's\n%v", i, p)
			}
		}
	})
}

// TestDistinctBytes counts bytes of files one by one.
func TestDistinctBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		files := []storage.Source{&nowhere{bytes: 1}, &nowhere{bytes: 2}, &nowhere{bytes: 3}}
		type at struct {
			file storage.Source
			n    int64
		}
		seen := make(map[at]bool)
		list := make([]storage.Extent, rapid.IntRange(0, 12).Draw(t, "extents"))
		for i := range list {
			list[i] = storage.Extent{
				Source: rapid.SampledFrom(files).Draw(t, "file"), Offset: rapid.Int64Range(0, 40).Draw(t, "offset"),
				Bytes: rapid.Int64Range(0, 20).Draw(t, "bytes"),
			}
			for n := range list[i].Bytes {
				seen[at{list[i].Source, list[i].Offset + n}] = true
			}
		}
		if n := plan.DistinctBytes(slices.Clone(list)); n != int64(len(seen)) {
			t.Fatalf("%d bytes of %v, want %d", n, list, len(seen))
		}
	})
}

// TestUnion: a union holds the bytes that any of its parts does, once each, and says of any part whether all of it is
// there.
func TestUnion(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func() plan.Part {
			low := rapid.Int64Range(0, 30).Draw(t, "low")
			return plan.Part{
				Value: graph.ValueID(rapid.IntRange(0, 2).Draw(t, "value")), Low: low, High: low + rapid.Int64Range(1, 15).Draw(t, "bytes"),
			}
		}
		var has [3][64]bool
		var parts []plan.Part
		for range rapid.IntRange(0, 8).Draw(t, "parts") {
			part := draw()
			parts = append(parts, part)
			for n := part.Low; n < part.High; n++ {
				has[part.Value][n] = true
			}
		}
		all := union(slices.Clone(parts))
		var got [3][64]bool
		for _, part := range all {
			for n := part.Low; n < part.High; n++ {
				if got[part.Value][n] {
					t.Fatalf("byte %d of value %d is there twice: %v of %v", n, part.Value, all, parts)
				}
				got[part.Value][n] = true
			}
		}
		if got != has {
			t.Fatalf("%v of %v", all, parts)
		}
		if !slices.IsSortedFunc(all, inOrder) {
			t.Fatalf("not in order: %v", all)
		}
		part, want := draw(), true
		for n := part.Low; n < part.High; n++ {
			want = want && has[part.Value][n]
		}
		if covered(all, part) != want {
			t.Fatalf("%v is in %v: %v", part, all, !want)
		}
	})
}

// TestScarceHostMemory: where there is host memory for what has to pass through it, there is a plan within it, however
// little of the weights it has room for besides.
func TestScarceHostMemory(t *testing.T) {
	emu := plan.Target{Name: "emu", AlignBytes: 256}
	wide := func(g *graph.Graph) (*graph.Lowered, error) { // weights take half as much again where they are packed
		l, err := lower(g)
		for i := range l.Steps {
			for k := range l.Steps[i].Packs {
				l.Steps[i].Packs[k].Bytes += l.Steps[i].Packs[k].Bytes / 2
			}
		}
		return l, err
	}
	words := newBuilder(t)
	ids := words.g.AddInput("ids", tensor.Int64, tensor.Shape{200})
	x := words.emit("words", "embedding", nil, words.weight("words", 50_000, 128), words.g.Whole(ids))
	for i := range 20 {
		path := string(rune('a' + i))
		x = words.emit(path, "linear", nil, words.g.Whole(x), words.weight(path, 128, 128))
	}
	words.g.Outputs = []graph.Output{{Name: "y", Operand: words.g.Whole(x)}}
	square := stack(t, 1, slices.Repeat([]int{128}, 21)...).Graph
	const slot = 128 * 128 * 4
	for _, c := range []struct {
		name  string
		graph *graph.Graph
		least int64
		o     Options
	}{
		{"rows", words.g, 200*128*4 + 3*slot, Options{Mode: plan.Page}},
		{"some stay", square, 4 * slot, Options{Mode: plan.Auto, MemoryBytes: 10 * slot}},
		{"micro-batches", square, 4 * slot, Options{Mode: plan.Page, Instances: 3}},
		{"three devices", square, 10 * slot, Options{Mode: plan.Page, Peers: make([]Peer, 2)}},
		{"the host has the rest", square, 11 * slot, Options{
			Mode: plan.Chunk, HostLower: wide, Capacity: plan.Limit{N: 10 * slot, Unit: plan.Bytes},
		}},
		{"the host helps", square, 4 * slot, Options{
			Mode: plan.Auto, MemoryBytes: 10 * slot, HostLower: lower, Rates: cost.Rates{CopyBytes: 1e9},
			HostRates: cost.Rates{MemoryBytes: 20e9, FLOPs: 20e9},
		}},
		{"uneven cuts", uneven(t, 16), 16 << 20, Options{
			Mode: plan.Auto, MemoryBytes: 30 << 20,
			Rates: cost.Rates{FLOPs: 1e12, MemoryBytes: 100e9, OpSeconds: 3e-6, CopyBytes: 60e9, CopySeconds: 1e-9},
		}},
	} {
		l, _ := lower(c.graph)
		o := c.o
		o.Target, o.Lower = emu, lower
		free := mustPlan(t, l, o)
		steps := int64(40)
		if c.name == "uneven cuts" {
			steps = 8
		}
		if testing.Short() {
			steps /= 4
		}
		for k := range steps {
			o.HostBytes = c.least + max(free.HostBytes()*5/4-c.least, 0)*k/steps + k*13
			p, err := Plan(l, o)
			if err != nil {
				t.Errorf("%s, %d bytes: %v", c.name, o.HostBytes, err)
				break
			}
			checkPlan(t, p, o, l.Graph)
		}
	}
}
