//go:build linux && (amd64 || arm64) && !nocuda

package sim

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/optimem/optimem/cuda/internal/driver"
)

// A track is a GPU with three streams and one allocation, for work in an order or in none.
type track struct {
	*gpu
	streams [3]driver.Stream
	event   driver.Event
	memory  driver.Pointer
	// host is what is copied from, outs what each stream copies to.
	host []byte
	outs [3][]byte
}

const trackBytes = 64

func newTrack(t *testing.T, settings string) *track {
	t.Helper()
	k := &track{gpu: newGPU(t, settings)}
	for i := range k.streams {
		k.streams[i] = must(k.lib.NewStream())(t)
	}
	k.memory = must(k.lib.Alloc(trackBytes))(t)
	k.host = must(k.lib.AllocHost(trackBytes))(t)
	for i := range k.outs {
		k.outs[i] = must(k.lib.AllocHost(trackBytes))(t)
	}
	return k
}

func (k *track) in(s, low, high int) {
	k.t.Helper()
	k.check(k.lib.CopyIn(k.memory+driver.Pointer(low), k.host[low:high], k.streams[s]))
}

func (k *track) out(s, low, high int) {
	k.t.Helper()
	k.check(k.lib.CopyOut(k.outs[s][low:high], k.memory+driver.Pointer(low), k.streams[s]))
}

// sum launches a kernel that reads 32 bytes and writes four; it is told, as a device tells, which bytes its pointers stand for.
func (k *track) sum(s, from, to int) {
	k.t.Helper()
	p := &driver.Parameters{}
	for _, o := range []struct{ at, bytes int }{{to, 4}, {from, 32}} {
		p.Offsets = append(p.Offsets, int32(len(p.Packed)))
		p.Packed = binary.LittleEndian.AppendUint64(p.Packed, uint64(k.memory)+uint64(o.at))
		p.Spans = append(p.Spans, uint64(k.memory)+uint64(o.at), uint64(o.bytes))
	}
	grid := threads(1, 8)
	grid.SharedBytes = 8 * 4
	k.check(k.lib.Launch(must(k.lib.Function(k.m, "om_test_sum"))(k.t), grid, p, k.streams[s]))
}

// record makes another event, since one that was not reached must not be recorded again.
func (k *track) record(s int) {
	k.t.Helper()
	k.event = must(k.lib.NewEvent())(k.t)
	k.check(k.lib.RecordEvent(k.event, k.streams[s]))
}
func (k *track) wait(s int) { k.t.Helper(); k.check(k.lib.WaitEvent(k.streams[s], k.event)) }
func (k *track) sync(s int) { k.t.Helper(); k.check(k.lib.SyncStream(k.streams[s])) }

// TestRaces: accesses of two streams to the same bytes, one of them a write, are a race where no event orders them, however the
// streams happened to run. Each violation stands beside the same accesses in order.
func TestRaces(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(k *track)
		race bool
	}{
		"a write after a write":        {func(k *track) { k.in(0, 0, 8); k.in(1, 0, 8) }, true},
		"a read after a write":         {func(k *track) { k.in(0, 0, 8); k.out(1, 0, 8) }, true},
		"a write after a read":         {func(k *track) { k.out(0, 0, 8); k.in(1, 0, 8) }, true},
		"two reads":                    {func(k *track) { k.out(0, 0, 8); k.out(1, 0, 8) }, false},
		"a byte in common":             {func(k *track) { k.in(0, 0, 8); k.out(1, 7, 12) }, true},
		"bytes beside each other":      {func(k *track) { k.in(0, 0, 8); k.in(1, 8, 16) }, false},
		"one stream":                   {func(k *track) { k.in(0, 0, 8); k.in(0, 0, 8); k.out(0, 0, 8) }, false},
		"synchronised before the copy": {func(k *track) { k.sync(0); k.sync(1); k.in(0, 0, 8); k.out(1, 0, 8) }, true},
		"the host waits for both":      {func(k *track) { k.in(0, 0, 8); k.sync(0); k.sync(1); k.out(1, 0, 8) }, false},
		"the host waits for the other": {func(k *track) { k.in(0, 0, 8); k.sync(1); k.out(1, 0, 8) }, true},
		"an event":                     {func(k *track) { k.in(0, 0, 8); k.record(0); k.wait(1); k.out(1, 0, 8) }, false},
		"an event from before":         {func(k *track) { k.in(0, 32, 40); k.record(0); k.in(0, 0, 8); k.wait(1); k.out(1, 0, 8) }, true},
		"an event of both":             {func(k *track) { k.in(0, 0, 8); k.in(0, 0, 8); k.record(0); k.wait(1); k.in(1, 0, 8) }, false},
		"by way of a third stream": {func(k *track) {
			k.in(0, 0, 8)
			k.record(0)
			k.wait(2)
			k.in(2, 32, 40)
			k.record(2)
			k.wait(1)
			k.out(1, 0, 8)
		}, false},
		"by way of a stream that knows less": {func(k *track) {
			k.in(0, 32, 40)
			k.record(0)
			k.wait(1)
			k.in(0, 32, 40)
			k.in(0, 32, 40)
			k.in(0, 32, 40)
			k.record(0)
			k.wait(2)
			k.in(1, 40, 44)
			k.record(1)
			k.wait(0)
			k.in(0, 0, 8)
			k.out(2, 0, 8)
		}, true},
		"the event of another": {func(k *track) { k.in(0, 0, 8); k.record(0); k.wait(2); k.out(1, 0, 8) }, true},
		"a write that another covers in no order": {func(k *track) {
			k.in(0, 0, 8)
			k.in(1, 0, 8) // a race already
			k.record(1)
			k.wait(2)
			k.out(2, 0, 8) // and one with the first
		}, true},
		"one of two reads": {func(k *track) {
			k.out(0, 0, 8)
			k.out(2, 0, 8)
			k.record(2)
			k.wait(1)
			k.in(1, 0, 8)
		}, true},
		"a kernel reads a copy":                {func(k *track) { k.in(0, 0, 32); k.sum(1, 0, 60) }, true},
		"a kernel reads a copy in order":       {func(k *track) { k.in(0, 0, 32); k.record(0); k.wait(1); k.sum(1, 0, 60) }, false},
		"what a kernel writes is read":         {func(k *track) { k.sum(0, 0, 60); k.out(1, 60, 64) }, true},
		"what a kernel reads is written":       {func(k *track) { k.sum(0, 0, 60); k.in(1, 16, 20) }, true},
		"what a kernel reads is read":          {func(k *track) { k.sum(0, 0, 60); k.out(1, 16, 20) }, false},
		"what lies beside a kernel's operands": {func(k *track) { k.sum(0, 0, 60); k.in(1, 32, 60) }, false},
		"kernels that read the same":           {func(k *track) { k.sum(0, 0, 60); k.sum(1, 0, 56) }, false},
		"kernels that write the same":          {func(k *track) { k.sum(0, 0, 60); k.sum(1, 0, 60) }, true},
		"bytes that are filled":                {func(k *track) { k.out(0, 0, 8); k.check(k.lib.Fill(k.memory, 0, 4, k.streams[1])) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, order := range []string{"order=lazy:0", "order=threads"} {
				k := newTrack(t, order)
				c.do(k)
				r := k.l.Report()
				if (r.Races > 0) != c.race || (r.FirstRace != "") != c.race {
					t.Errorf("%s: %d races: %s", order, r.Races, r.FirstRace)
				}
				var says testSays
				k.l.Check(&says)
				// What the test did not give back is told, too, so one line is of that.
				if len(says.lines) != 1+len(k.raced(c.race)) {
					t.Errorf("%s: the check says %q", order, says.lines)
				}
				for s := range k.streams {
					k.sync(s)
				}
			}
		})
	}
}

// raced is a line where there is a race.
func (k *track) raced(race bool) []string {
	if race {
		return []string{"race"}
	}
	return nil
}

// testSays is a test that keeps what is said against it.
type testSays struct {
	testing.TB
	lines []string
}

func (*testSays) Helper() {}

func (s *testSays) Errorf(format string, args ...any) {
	s.lines = append(s.lines, fmt.Sprintf(format, args...))
}

// TestRacesAreCounted: each access that conflicts is one.
func TestRacesAreCounted(t *testing.T) {
	k := newTrack(t, "")
	k.in(0, 0, 8)
	k.in(1, 0, 8)
	k.record(1)
	k.wait(2)
	k.out(2, 0, 8) // after the second, and in no order with the first
	if r := k.l.Report(); r.Races != 2 {
		t.Errorf("%d races, want two: %s", r.Races, r.FirstRace)
	}
	for s := range k.streams {
		k.sync(s)
	}
}

// TestCheckSaysWhatIsLeft: one thing that was not given back is enough.
func TestCheckSaysWhatIsLeft(t *testing.T) {
	g := newGPU(t, "")
	check := func(what string, want int) {
		t.Helper()
		var says testSays
		g.l.Check(&says)
		left := g.l.Report().Left
		if (len(says.lines) > 0) != (len(left) > 0) || left[what] != want {
			t.Errorf("%s: %v are left, and the check says %q", what, left, says.lines)
		}
	}
	check("streams", 1) // of newGPU
	g.check(g.lib.DestroyStream(g.s))
	check("streams", 0)
	check("modules", 1)
	e := must(g.lib.NewEvent())(t)
	check("events", 1)
	g.check(g.lib.DestroyEvent(e))
	check("events", 0)
	p := must(g.lib.Alloc(16))(t)
	check("allocations", 1)
	g.check(g.lib.Free(p))
	check("allocations", 0)
	h := must(g.lib.AllocHost(16))(t)
	check("pinned", 1)
	g.check(g.lib.FreeHost(h))
	check("pinned", 0)
}

// TestWaits: a stream runs nothing before what it waits for, in whatever order the others run; without the wait some order
// shows it.
func TestWaits(t *testing.T) {
	seen := make(map[bool][]byte)
	for _, waits := range []bool{true, false} {
		for seed := range 20 {
			k := newTrack(t, fmt.Sprintf("order=lazy:%d", seed))
			k.check(k.lib.Fill(k.memory, 1, 8, k.streams[0]))
			k.sync(0)
			k.check(k.lib.Fill(k.memory, 2, 8, k.streams[0]))
			k.record(0)
			if waits {
				k.wait(1)
			}
			k.out(1, 0, 8)
			k.sync(1)
			seen[waits] = append(seen[waits], k.outs[1][0])
			k.sync(0)
		}
	}
	if slices.Contains(seen[true], 1) {
		t.Errorf("a stream that waits read what was there before: %v", seen[true])
	}
	if !slices.Contains(seen[false], 1) || !slices.Contains(seen[false], 2) {
		t.Errorf("every order gives a stream that does not wait the same: %v", seen[false])
	}
}
