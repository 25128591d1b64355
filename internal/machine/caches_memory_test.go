package machine_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/device/emulated"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/hostmem"
	"github.com/optimem/optimem/internal/machine"
	"github.com/optimem/optimem/pager"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/search"
	"github.com/optimem/optimem/tensor"
)

func smallDecoder() *decoder {
	d := decoders[0]
	return d.filled()
}

// cacheBytes is what the caches of a decoder take by themselves: keys and values of each layer.
func (d *decoder) cacheBytes(align int64) int64 {
	places := int64(3*d.blocks+d.spare) * graph.BlockRows
	return int64(d.layers) * 2 * plan.AlignUp(places*int64(d.groups*d.each*d.cache.Size()), align)
}

// TestCachesAreInThePlan: they are counted in what a plan takes and in the least budget, and a device holds what the plan says,
// to the byte, for one plan and for plans of several numbers of rows in turns.
func TestCachesAreInThePlan(t *testing.T) {
	odd := decoders[1]
	d := odd.filled() // caches of which are no multiple of what the device aligns to
	for _, mode := range []plan.Mode{plan.Resident, plan.Page, plan.Auto} {
		t.Run(string(mode), func(t *testing.T) {
			free := d.open(t, "emu:memory=1GiB", 1, mode, 0)
			var least int64
			for _, rows := range []int{1, 33} {
				p, err := free.plan(rows)
				if err != nil {
					t.Fatal(err)
				}
				if want := d.cacheBytes(256); p.CacheBytes != want || p.MinBytes < want {
					t.Fatalf("caches of %d bytes, want %d; least budget %d", p.CacheBytes, want, p.MinBytes)
				}
				for i, h := range p.Holdings() {
					if h.CacheBytes != p.CacheBytes {
						t.Errorf("op %d finds caches of %d bytes", i, h.CacheBytes)
					}
				}
				alone := d.open(t, "emu:memory=1GiB", 1, mode, p.MinBytes)
				if p, err = alone.plan(rows); err != nil {
					t.Fatal(err)
				}
				if p.PeakBytes() > p.MinBytes {
					t.Errorf("%d rows: a peak of %d with a budget of %d", rows, p.PeakBytes(), p.MinBytes)
				}
				alone.mustRun(tokensOf(0, 0, rows))
				acc := alone.m.(*machine.Emulated).Accelerator()
				total, rest := acc.Memory()
				held, _ := alone.m.Held()
				if total-rest != p.PassBytes() || held.Total() != p.PassBytes() || held.CacheBytes != p.CacheBytes ||
					acc.PeakBytes() != p.PeakBytes() {
					t.Errorf("%d rows: %d bytes in use, %+v held, a peak of %d; the plan says %d and %d", rows, total-rest, held,
						acc.PeakBytes(), p.PassBytes(), p.PeakBytes())
				}
				least = max(least, p.MinBytes)
				var capacity *plan.CapacityError
				if _, err := d.open(t, "emu:memory=1GiB", 1, mode, p.MinBytes-1).plan(rows); !errors.As(err, &capacity) ||
					capacity.MinBytes != p.MinBytes {
					t.Errorf("%d rows with a byte less than the least: %v", rows, err)
				}
			}
			turns := d.open(t, "emu:memory=1GiB", 1, mode, least)
			for i := range 6 {
				turns.mustRun(tokensOf(i%3, 0, []int{33, 1, 7}[i%3]))
				if peak := turns.m.(*machine.Emulated).Accelerator().PeakBytes(); peak > least {
					t.Fatalf("a peak of %d with a budget of %d", peak, least)
				}
			}
		})
	}
}

// TestCachesOfTheCPUAreCounted by purpose, once, whatever plans there are; what is left of them after Close is nothing.
func TestCachesOfTheCPUAreCounted(t *testing.T) {
	d := smallDecoder()
	before := hostmem.InUse(hostmem.Caches)
	t.Run("session", func(t *testing.T) {
		s := d.open(t, "cpu", 1, plan.Page, 0)
		for _, rows := range []int{1, 20, 3} {
			s.mustRun(tokensOf(0, 0, rows))
			if got := hostmem.InUse(hostmem.Caches) - before; got != d.cacheBytes(64) {
				t.Errorf("%d bytes, want %d", got, d.cacheBytes(64))
			}
		}
	})
	if n := hostmem.InUse(hostmem.Caches); n != before {
		t.Errorf("%d bytes are left", n-before)
	}
}

// TestCachesOfTheCPUTakeWhatIsUsed: what no text lies in yet takes none of the host's memory.
func TestCachesOfTheCPUTakeWhatIsUsed(t *testing.T) {
	d := smallDecoder()
	d.spare = 2000
	before := hostmem.Unwritten()
	s := d.open(t, "cpu", 1, plan.Resident, 0)
	for _, rows := range []int{20, 1} {
		s.mustRun(tokensOf(0, 0, rows))
		all := d.cacheBytes(64)
		if got := hostmem.Unwritten() - before; got < all*9/10 || all < 8<<20 {
			t.Errorf("%d rows took %d of %d bytes", rows, all-got, all)
		}
	}
}

// TestCachesOutliveWhatIsGivenBack: a session that gave its memory back goes on with what its caches hold, and one that dropped
// them begins anew.
func TestCachesOutliveWhatIsGivenBack(t *testing.T) {
	d := smallDecoder()
	for _, dev := range []string{"cpu", "emu:memory=1GiB"} {
		t.Run(dev, func(t *testing.T) {
			want := d.open(t, "cpu", 1, plan.Resident, 0).alone(20)[1]
			s := d.open(t, dev, 1, plan.Page, 0)
			last := func() []byte { return s.mustRun(tokensOf(1, 19, 20))[0] }
			s.mustRun(tokensOf(1, 0, 19))
			if err := s.m.GiveBack(t.Context()); err != nil {
				t.Fatal(err)
			}
			if held, _ := s.m.Held(); held.Total() != held.CacheBytes || held.CacheBytes == 0 {
				t.Errorf("%+v is held after all was given back", held)
			}
			if !bytes.Equal(last(), want[19]) {
				t.Error("other bits after memory was given back")
			}
			if err := s.m.DropCaches(); err != nil {
				t.Fatal(err)
			}
			if held, _ := s.m.Held(); held.CacheBytes != 0 {
				t.Errorf("%+v is held after caches were dropped", held)
			}
			if bytes.Equal(last(), want[19]) {
				t.Error("the caches hold what they did")
			}
			fresh := d.open(t, dev, 1, plan.Page, 0)
			if !bytes.Equal(last(), fresh.mustRun(tokensOf(1, 19, 20))[0]) {
				t.Error("caches that were dropped do not begin as zeros")
			}
		})
	}
}

// TestCachesFollowTheirOps: where a plan for other shapes has another device compute an op, the cache goes there, with what it
// holds.
func TestCachesFollowTheirOps(t *testing.T) {
	d := smallDecoder()
	const length = 60
	want := d.open(t, "cpu", 1, plan.Resident, 0).alone(length)[0]
	free, err := d.open(t, "emu:memory=1GiB", 1, plan.Chunk, 0).plan(1)
	if err != nil {
		t.Fatal(err)
	}
	before := hostmem.InUse(hostmem.Caches)
	t.Cleanup(func() { // after those of sessions
		if n := hostmem.InUse(hostmem.Caches); n != before {
			t.Errorf("%d bytes are left", n-before)
		}
	})
	sides := make(map[int]bool)
	for _, share := range []int64{95, 80, 65, 50, 35, 20} {
		s := d.open(t, "emu:memory=1GiB", 2, plan.Chunk, free.PeakBytes()*share/100)
		for at := 0; at < length; {
			n := min(length-at, []int{1, 25, 1, 2}[at%4])
			p, err := s.plan(n)
			if err != nil {
				var capacity *plan.CapacityError
				if !errors.As(err, &capacity) {
					t.Fatal(err)
				}
				break // some budgets are too small
			}
			sides[len(p.Caches)] = true
			if p.Sides != nil {
				if n := len(p.Sides.Device.Caches) + len(p.Sides.Host.Caches); n != 2*d.layers {
					t.Fatalf("%d caches on both sides", n)
				}
			}
			for k, got := range s.mustRun(tokensOf(0, at, at+n)) {
				if !bytes.Equal(got, want[at+k]) {
					t.Fatalf("within %d %%: token %d has other bits", share, at+k)
				}
			}
			if peak := s.m.(*machine.Emulated).Accelerator().PeakBytes(); peak > s.o.MemoryBytes {
				t.Fatalf("a peak of %d with a budget of %d", peak, s.o.MemoryBytes)
			}
			at += n
		}
	}
	if len(sides) < 2 {
		t.Errorf("the device has always so many caches: %v", sides)
	}
}

// TestAPassThatFailsLeavesCachesUsable: after a read that failed, and after a pass that was cancelled, the same tokens give the
// same bits.
func TestAPassThatFailsLeavesCachesUsable(t *testing.T) {
	d := smallDecoder()
	want := d.open(t, "cpu", 1, plan.Resident, 0).alone(30)[2]
	s := d.open(t, "cpu", 1, plan.Page, 0)
	s.mustRun(tokensOf(2, 0, 15))
	if err := s.m.GiveBack(t.Context()); err != nil { // else some groups are there already
		t.Fatal(err)
	}
	d.file.fails = true
	if _, err := s.run(t.Context(), tokensOf(2, 15, 30)); !errors.Is(err, errDisk) {
		t.Fatalf("%v, want that the disk is gone", err)
	}
	d.file.fails = false
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.run(ctx, tokensOf(2, 15, 30)); !errors.Is(err, context.Canceled) {
		t.Fatalf("%v, want that it was cancelled", err)
	}
	bad := tokensOf(2, 15, 30)
	bad[3].position = d.blocks*graph.BlockRows + 1
	var index *graph.IndexError
	if _, err := s.run(t.Context(), bad); !errors.As(err, &index) {
		t.Fatalf("%v, want an index out of range", err)
	}
	for k, got := range s.mustRun(tokensOf(2, 15, 30)) {
		if !bytes.Equal(got, want[15+k]) {
			t.Fatalf("token %d has other bits", 15+k)
		}
	}
}

// TestCachesThatHaveNoRoom are the device's out of memory, and nothing stays held of what was begun.
func TestCachesThatHaveNoRoom(t *testing.T) {
	d := smallDecoder()
	s := d.open(t, "emu:memory=1GiB", 1, plan.Page, 0)
	acc := s.m.(*machine.Emulated).Accelerator()
	acc.Take(1<<30 - d.cacheBytes(256)/2)
	var full *device.OutOfMemoryError
	if _, err := s.run(t.Context(), tokensOf(0, 0, 5)); !errors.As(err, &full) {
		t.Fatalf("%v, want that there is no memory", err)
	}
	acc.Take(0)
	want := d.open(t, "cpu", 1, plan.Resident, 0).alone(5)[0]
	for k, got := range s.mustRun(tokensOf(0, 0, 5)) {
		if !bytes.Equal(got, want[k]) {
			t.Fatalf("token %d has other bits", k)
		}
	}
}

// TestCachesThatCannotBeFilled: a copy that fails while caches come leaves nothing behind.
func TestCachesThatCannotBeFilled(t *testing.T) {
	d := smallDecoder()
	m, err := machine.OpenEmulated(machine.Options{Threads: 1, Ops: graph.Standard()}, emulated.Options{FailCopy: 2})
	if err != nil {
		t.Fatal(err)
	}
	dev := m.Device()
	s := &session{t: t, d: d, m: m, plans: make(map[int]*plan.Plan), o: search.Options{
		Mode: plan.Page, Target: dev.Target, Rates: dev.Rates, Lower: dev.Lower, HostLower: dev.HostLower,
	}}
	var failed *pager.GroupError
	if _, err := s.run(t.Context(), tokensOf(0, 0, 5)); !errors.Is(err, emulated.ErrCopy) || !errors.As(err, &failed) ||
		failed.Step != "cache" {
		t.Fatalf("%v, want that a cache could not be copied", err)
	}
	if used := m.Accelerator().PeakBytes(); used == 0 {
		t.Error("nothing was taken")
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}

// TestCachesLeaveForOtherPrograms on a device with memory of its own: a program without caches finds the memory that its plan
// says, and the next with them what they held.
func TestCachesLeaveForOtherPrograms(t *testing.T) {
	d := smallDecoder()
	want := d.open(t, "cpu", 1, plan.Resident, 0).alone(20)[0]
	s := d.open(t, "emu:memory=1GiB", 1, plan.Page, 0)
	s.mustRun(tokensOf(0, 0, 19))
	g := &graph.Graph{}
	x := g.AddInput("x", tensor.Float32, tensor.Shape{4})
	out, err := g.Emit(graph.Standard(), graph.Op{Kind: "relu", In: []graph.Operand{g.Whole(x)}})
	if err != nil {
		t.Fatal(err)
	}
	g.Outputs = []graph.Output{{Name: "y", Operand: g.Whole(out[0])}}
	c, err := s.m.Compile(t.Context(), g, machine.Compilation{Ops: graph.Standard(), Mode: plan.Page})
	if err != nil {
		t.Fatal(err)
	}
	p, err := search.Plan(c.Lowered, s.o)
	if err != nil {
		t.Fatal(err)
	}
	io := &bytesIO{in: [][]byte{make([]byte, 16)}, ids: c.Graph.Inputs, out: make([]byte, 16)}
	if err := s.m.Pass(t.Context(), p, io); err != nil {
		t.Fatal(err)
	}
	if held, _ := s.m.Held(); held.CacheBytes != 0 || p.CacheBytes != 0 {
		t.Errorf("%+v is held by a program without caches", held)
	}
	if !bytes.Equal(s.mustRun(tokensOf(0, 19, 20))[0], want[19]) {
		t.Error("other bits after another program")
	}
}

// TestProgramsDisagreeAboutACache: two programs that name one cache and mean different sizes are an error.
func TestProgramsDisagreeAboutACache(t *testing.T) {
	d := smallDecoder()
	s := d.open(t, "cpu", 1, plan.Resident, 0)
	s.mustRun(tokensOf(0, 0, 2))
	d.spare++
	if _, err := s.run(t.Context(), tokensOf(0, 0, 3)); err == nil || !strings.Contains(err.Error(), "in another") {
		t.Errorf("%v, want that programs disagree", err)
	}
	d.spare--
	s.mustRun(tokensOf(0, 0, 2))
}

// TestCachesHaveOneSide: ops of two devices cannot have a cache in common, and micro-batches cannot share one.
func TestCachesHaveOneSide(t *testing.T) {
	d := smallDecoder()
	s := d.open(t, "emu:memory=1GiB", 1, plan.Chunk, 0)
	p, err := s.plan(1)
	if err != nil {
		t.Fatal(err)
	}
	o := s.o
	o.Instances = 2
	if _, err := search.Plan(p.Lowered, o); err == nil {
		t.Error("two micro-batches share caches")
	}
	g := *p.Lowered.Graph
	g.Ops = slices.Clone(g.Ops)
	first := -1
	for i, op := range g.Ops {
		if op.Kind != "attend" {
			continue
		}
		if first < 0 {
			first = i
			continue
		}
		op.In = slices.Clone(op.In)
		op.In[3], op.In[4] = g.Ops[first].In[3], g.Ops[first].In[4]
		g.Ops[i] = op
	}
	twice := *p.Lowered.Graph
	twice.Values = slices.Clone(twice.Values)
	for id := range twice.Values {
		if v := &twice.Values[id]; v.Role == graph.Cache {
			v.Name = v.Name[len(v.Name)-4:] // the same in all layers
		}
	}
	l, err := s.m.Device().Lower(&twice)
	if err != nil {
		t.Fatal(err)
	}
	if q, err := search.Plan(l, s.o); err != nil || q.CacheBytes*int64(d.layers) != p.CacheBytes {
		t.Errorf("%v: one cache for all layers is counted as %d bytes, of %d for all", err, q.CacheBytes, p.CacheBytes)
	}
	l, err = s.m.Device().Lower(&g)
	if err != nil {
		t.Fatal(err)
	}
	o = s.o
	o.Capacity = plan.Limit{N: p.Fixed.WeightBytes / 2, Unit: plan.Bytes}
	if _, err := search.Plan(l, o); !errors.Is(err, graph.ErrUnsupported) {
		t.Errorf("%v, want that a cache cannot be on two devices", err)
	}
}

// TestGPUsAttendToBytes: caches of int8 are a GPU's own, too: nothing is left to the CPU beside it.
func TestGPUsAttendToBytes(t *testing.T) {
	m, err := machine.Open(machine.Options{Device: "cuda", Absent: true, MemoryBytes: 1 << 30, Ops: graph.Standard(), CUDALibrary: "/nowhere"})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for _, cache := range []tensor.DType{tensor.Int8, tensor.BFloat16} {
		d := decoders[0]
		d.cache = cache
		g := d.filled().graph(2)
		c, err := m.Compile(t.Context(), g, machine.Compilation{Ops: graph.Standard(), Mode: plan.Auto})
		if err != nil {
			t.Fatal(err)
		}
		for i, op := range c.Graph.Ops {
			onHost := i < len(c.HostOps) && c.HostOps[i]
			if onHost {
				t.Errorf("%v: %s is on the host", cache, op.Kind)
			}
		}
	}
}

// TestHalvesTakeHalf: caches of half precision take half the memory.
func TestHalvesTakeHalf(t *testing.T) {
	single, half := smallDecoder(), decoders[0]
	half.cache = tensor.BFloat16
	h := half.filled()
	p, err := h.open(t, "cpu", 1, plan.Page, 0).plan(1)
	if err != nil {
		t.Fatal(err)
	}
	if p.CacheBytes*2 != single.cacheBytes(64) {
		t.Errorf("%d bytes, of %d in float32", p.CacheBytes, single.cacheBytes(64))
	}
}

// TestCachesAreCopied: what passes left in caches is read from one machine and put into another, whatever device each has and
// wherever its caches are, and passes go on with the same bits. What has no memory, or is not within a cache, is an error.
func TestCachesAreCopied(t *testing.T) {
	d := smallDecoder()
	const length = 40
	want := d.open(t, "cpu", 1, plan.Resident, 0).alone(length)[0]
	from := d.open(t, "emu:memory=1GiB", 1, plan.Page, 0)
	from.mustRun(tokensOf(0, 0, length-1))
	names := make(map[string]int64)
	for _, v := range from.ran.Lowered.Graph.Values {
		if v.Role == graph.Cache {
			names[v.Name] = v.Bytes()
		}
	}
	for _, device := range []string{"cpu", "emu:memory=1GiB"} {
		to := d.open(t, device, 2, plan.Page, 0)
		for name := range names {
			if err := to.m.WriteCache(t.Context(), name, []byte{1}, 0); !errors.Is(err, pager.ErrNoCache) {
				t.Errorf("before any pass: %v", err)
			}
		}
		to.mustRun([]token{{0, -1, 0}})
		if err := to.m.Rest(t.Context()); err != nil { // puts them aside, where the device has memory of its own
			t.Fatal(err)
		}
		for name, size := range names {
			all := make([]byte, size)
			for at := int64(0); at < size; at += 1000 {
				part := all[at:min(at+1000, size)]
				if err := from.m.ReadCache(t.Context(), name, part, at); err != nil {
					t.Fatal(err)
				}
				if err := to.m.WriteCache(t.Context(), name, part, at); err != nil {
					t.Fatal(err)
				}
			}
			again := make([]byte, size)
			if err := to.m.ReadCache(t.Context(), name, again, 0); err != nil || !bytes.Equal(again, all) {
				t.Errorf("%s: other bytes are read than were written: %v", name, err)
			}
			for _, at := range []int64{-1, size - 2, size + 1, 1 << 62} {
				if to.m.ReadCache(t.Context(), name, again[:3], at) == nil || to.m.WriteCache(t.Context(), name, again[:3], at) == nil {
					t.Errorf("%s: 3 bytes from %d on of %d", name, at, size)
				}
			}
		}
		if got := to.mustRun(tokensOf(0, length-1, length))[0]; !bytes.Equal(got, want[length-1]) {
			t.Errorf("%s: other bits", device)
		}
	}
}
