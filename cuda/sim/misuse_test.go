//go:build linux && (amd64 || arm64) && !nocuda

package sim

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/optimem/optimem/cuda/internal/driver"
)

// another takes more page-locked memory.
func (k *track) another() []byte { k.t.Helper(); return must(k.lib.AllocHost(trackBytes))(k.t) }

// from and to copy from and to memory of the host.
func (k *track) from(mem []byte, s int) {
	k.t.Helper()
	k.check(k.lib.CopyIn(k.memory, mem, k.streams[s]))
}
func (k *track) to(mem []byte, s int) {
	k.t.Helper()
	k.check(k.lib.CopyOut(mem, k.memory, k.streams[s]))
}

// TestMisuses: what a driver takes without a word and a GPU punishes is told, each beside the same done well. The first
// string is a part of what is said, "" where all is well.
func TestMisuses(t *testing.T) {
	fill := func(mem []byte, with byte) {
		for i := range mem {
			mem[i] = with
		}
	}
	for name, c := range map[string]struct {
		says string
		do   func(k *track)
	}{
		"memory is filled again for another copy": {"filled again", func(k *track) {
			fill(k.host, 1)
			k.from(k.host, 0)
			fill(k.host, 2)
			k.from(k.host, 0)
		}},
		"a part of it is": {"filled again", func(k *track) {
			k.from(k.host, 0)
			k.host[7] = 3
			k.in(0, 4, 8)
		}},
		"for a copy of another stream": {"filled again", func(k *track) {
			k.in(0, 0, 8)
			fill(k.host, 2)
			k.in(1, 8, 16)
			k.in(1, 0, 8)
		}},
		"it is filled and not used again": {"changed before the copy", func(k *track) {
			k.in(0, 0, 8)
			k.host[3] = 9
			k.sync(1)
			k.sync(0)
		}},
		"another stream is waited for": {"filled again", func(k *track) {
			k.in(0, 0, 8)
			k.sync(1)
			fill(k.host, 2)
			k.in(1, 0, 8)
		}},
		"an event from before the copy is waited for": {"filled again", func(k *track) {
			k.record(0)
			k.in(0, 0, 8)
			k.check(k.lib.SyncEvent(k.event))
			fill(k.host, 2)
			k.in(0, 0, 8)
		}},
		"memory beside what is copied": {"", func(k *track) {
			k.in(0, 0, 8)
			fill(k.host[8:16], 2)
			k.in(0, 8, 16)
		}},
		"it holds the same again": {"", func(k *track) { k.from(k.host, 0); k.from(k.host, 0) }},
		"the stream was waited for": {"", func(k *track) {
			k.from(k.host, 0)
			k.sync(0)
			fill(k.host, 2)
			k.from(k.host, 0)
		}},
		"an event was waited for": {"", func(k *track) {
			k.from(k.host, 0)
			k.record(0)
			k.check(k.lib.SyncEvent(k.event))
			fill(k.host, 2)
			k.from(k.host, 0)
		}},
		"an event was asked until it was reached": {"", func(k *track) {
			k.from(k.host, 0)
			k.record(0)
			for !must(k.lib.EventDone(k.event))(k.t) {
			}
			fill(k.host, 2)
			k.from(k.host, 0)
		}},
		"a stream that waited for the copy was waited for": {"", func(k *track) {
			k.from(k.host, 0)
			k.record(0)
			k.wait(1)
			k.sync(1)
			fill(k.host, 2)
			k.from(k.host, 0)
		}},
		"memory is written to that is copied to": {"written to before", func(k *track) {
			k.to(k.host, 0)
			k.host[5] = 1
			k.sync(1)
			k.sync(0)
		}},
		"memory is copied from that is copied to": {"no event orders", func(k *track) {
			k.to(k.host, 0)
			k.in(1, 0, 8)
		}},
		"memory is copied to that is copied from": {"no event orders", func(k *track) {
			mem := k.another()
			k.from(mem, 0)
			k.check(k.lib.CopyOut(mem, must(k.lib.Alloc(trackBytes))(k.t), k.streams[1]))
			k.sync(0)
		}},
		"there and back in one stream": {"", func(k *track) { k.to(k.host, 0); k.from(k.host, 0); k.to(k.host, 0); k.sync(0) }},
		"memory is given back that is copied from": {"cuMemFreeHost: nobody has waited for a copy from", func(k *track) {
			mem := k.another()
			k.from(mem, 0)
			k.check(k.lib.FreeHost(mem))
		}},
		"memory is given back that is copied to": {"cuMemFreeHost: nobody has waited for a copy to", func(k *track) {
			mem := k.another()
			k.to(mem, 0)
			k.check(k.lib.FreeHost(mem))
		}},
		"memory is given back once the copy is done": {"", func(k *track) {
			mem := k.another()
			k.from(mem, 0)
			k.sync(0)
			k.check(k.lib.FreeHost(mem))
		}},
		"other memory is given back": {"", func(k *track) { k.from(k.host, 0); k.check(k.lib.FreeHost(k.another())) }},
		"memory is left alone that is copied from": {"cuMemHostUnregister: nobody has waited", func(k *track) {
			mem := make([]byte, trackBytes)
			k.check(k.lib.RegisterHost(mem))
			k.from(mem, 0)
			k.check(k.lib.UnregisterHost(mem))
		}},
		"memory is left alone once the copy is done": {"", func(k *track) {
			mem := make([]byte, trackBytes)
			k.check(k.lib.RegisterHost(mem))
			k.from(mem, 0)
			k.sync(0)
			k.check(k.lib.UnregisterHost(mem))
		}},
		"a stream ends that has work": {"cuStreamDestroy", func(k *track) {
			s := must(k.lib.NewStream())(k.t)
			k.check(k.lib.Fill(k.memory, 1, 8, s))
			k.check(k.lib.DestroyStream(s))
		}},
		"a stream ends that waits": {"cuStreamDestroy", func(k *track) {
			s := must(k.lib.NewStream())(k.t)
			k.record(0)
			k.check(k.lib.WaitEvent(s, k.event))
			k.check(k.lib.DestroyStream(s))
		}},
		"a stream ends that has none any more": {"", func(k *track) {
			s := must(k.lib.NewStream())(k.t)
			k.check(k.lib.Fill(k.memory, 1, 8, s))
			k.check(k.lib.SyncStream(s))
			k.check(k.lib.DestroyStream(s))
		}},
		"a stream ends that never had any": {"", func(k *track) { k.check(k.lib.DestroyStream(must(k.lib.NewStream())(k.t))) }},
		"an event is recorded again before it was reached": {"cuEventRecord", func(k *track) {
			k.record(0)
			k.check(k.lib.RecordEvent(k.event, k.streams[0]))
		}},
		"an event is recorded again of which nobody asked": {"cuEventRecord", func(k *track) {
			k.record(0)
			k.sync(1)
			k.check(k.lib.RecordEvent(k.event, k.streams[1]))
		}},
		"an event is recorded again once it was reached": {"", func(k *track) {
			k.record(0)
			k.sync(0)
			k.check(k.lib.RecordEvent(k.event, k.streams[0]))
		}},
		"a module goes whose kernel runs": {"cuModuleUnload", func(k *track) {
			k.sum(0, 0, 60)
			k.check(k.lib.UnloadModule(k.m))
		}},
		"a module goes whose kernel ran": {"", func(k *track) {
			k.sum(0, 0, 60)
			k.sync(0)
			k.check(k.lib.UnloadModule(k.m))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, order := range []string{"order=lazy:0", "order=threads"} {
				k := newTrack(t, order)
				clear(k.host)
				c.do(k)
				for s := range k.streams {
					k.sync(s)
				}
				r := k.l.Report()
				// A copy that was made before the host touched its memory has nothing to tell.
				early := order == "order=threads" && r.Misuses == 0 && (c.says == "changed before the copy" || c.says == "written to before")
				says := strings.Contains(r.FirstMisuse, c.says)
				if order == "order=threads" && c.says == "filled again" { // who tells first
					says = says || strings.Contains(r.FirstMisuse, "changed before the copy")
				}
				if (r.Misuses > 0) != (c.says != "") && !early || !early && !says {
					t.Errorf("%s: %d misuses: %s", order, r.Misuses, r.FirstMisuse)
				}
				var told testSays
				k.l.Check(&told)
				if len(told.lines) == 0 {
					t.Errorf("%s: the check says nothing of what is left", order)
				}
			}
		})
	}
}

// TestDestroyedStream: what a stream was given is done although the stream is gone, and whoever frees memory waits for
// it.
func TestDestroyedStream(t *testing.T) {
	for _, order := range []string{"order=lazy:0", "order=threads"} {
		k := newTrack(t, order)
		s := must(k.lib.NewStream())(t)
		k.check(k.lib.Fill(k.memory, 5, trackBytes, s))
		k.check(k.lib.DestroyStream(s))
		if err := k.lib.SyncStream(s); err == nil {
			t.Errorf("%s: a stream that is gone is waited for", order)
		}
		k.check(k.lib.Free(must(k.lib.Alloc(1))(t))) // which waits for everything
		k.out(0, 0, 8)
		k.sync(0)
		if k.outs[0][0] != 5 {
			t.Errorf("%s: the work of the stream was not done: %d", order, k.outs[0][0])
		}
	}
}

// TestUnfilled: memory that is copied to holds nothing of use until the copy was waited for.
func TestUnfilled(t *testing.T) {
	k := newTrack(t, "order=lazy:0")
	clear(k.host)
	k.check(k.lib.Fill(k.memory, 0, trackBytes, k.streams[0]))
	k.to(k.host, 0)
	if k.host[0] == 0 {
		t.Error("whoever does not wait for a copy finds what was there before")
	}
	k.sync(0)
	if k.host[0] != 0 || k.l.Report().Misuses != 0 {
		t.Errorf("%d, %+v", k.host[0], k.l.Report())
	}
}

// TestFlags: what a call asks for is looked at: flags that nobody knows are refused, and those that are there do
// something.
func TestFlags(t *testing.T) {
	k := newTrack(t, "devices=2 order=lazy:0")
	for name, err := range map[string]error{
		"more shared memory than there is": k.lib.SharedLimit(must(k.lib.Function(k.m, "om_test_sum"))(t), 1<<20),
		"a copy of a part that is page-locked": func() error {
			mem := make([]byte, trackBytes)
			k.check(k.lib.RegisterHost(mem[8:]))
			return k.lib.CopyIn(k.memory, mem, k.streams[0])
		}(),
	} {
		if err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	// What is page-locked for one context is for all, since we ask for that.
	d := must(k.lib.Device(1))(t)
	k.check(k.lib.SetCurrent(must(k.lib.RetainPrimary(d))(t)))
	second := must(k.lib.NewStream())(t)
	p := must(k.lib.Alloc(trackBytes))(t)
	k.check(k.lib.CopyIn(p, k.host, second))
	if n := k.l.Report().Unpinned; n != 0 {
		t.Errorf("%d copies of memory that another context has page-locked are of the ordinary kind", n)
	}
	// So is what is registered, which may be copied to as well.
	mine := make([]byte, 1<<16)[:trackBytes] // pages of its own
	k.check(k.lib.SetCurrent(must(k.lib.RetainPrimary(must(k.lib.Device(0))(t)))(t)))
	k.check(k.lib.RegisterHost(mine))
	k.check(k.lib.SetCurrent(must(k.lib.RetainPrimary(d))(t)))
	k.check(k.lib.CopyOut(mine, p, second))
	if n := k.l.Report().Unpinned; n != 0 {
		t.Errorf("%d copies to memory that another context has registered are of the ordinary kind", n)
	}
	k.check(k.lib.SyncStream(second))
	if err := k.lib.CopyIn(p, k.host, k.streams[0]); err == nil {
		t.Error("a stream of another GPU copies")
	}
	if err := k.lib.RecordEvent(must(k.lib.NewEvent())(t), k.streams[0]); err == nil {
		t.Error("an event of another GPU is recorded")
	}
	e := must(k.lib.NewEvent())(t)
	k.check(k.lib.Fill(p, 1, 8, second))
	k.check(k.lib.RecordEvent(e, second))
	spins := k.l.Report().Spins
	k.check(k.lib.SyncEvent(e))
	if r := k.l.Report(); r.Spins != spins || r.Timed != 0 {
		t.Errorf("waiting for an event that lets the host sleep: %+v", r)
	}
	k.check(k.lib.Fill(p, 1, 8, second))
	k.check(k.lib.SyncStream(second))
	if r := k.l.Report(); r.Spins != spins+1 {
		t.Errorf("waiting for a stream spins %d times", r.Spins-spins)
	}
	// A kernel of this GPU does not reach memory of the other.
	m := must(k.lib.LoadModule(image(map[string]int{"om_test_sum": 2})))(t)
	launch := &driver.Parameters{Offsets: []int32{0, 8}}
	for _, at := range []driver.Pointer{p, k.memory} {
		launch.Packed = binary.LittleEndian.AppendUint64(launch.Packed, uint64(at))
	}
	grid := threads(1, 8)
	grid.SharedBytes = 8 * 4
	if err := k.lib.Launch(must(k.lib.Function(m, "om_test_sum"))(t), grid, launch, second); err == nil {
		t.Error("a kernel reads memory of another GPU")
	}
	_ = k.lib.ReleasePrimary(d) // what the test leaves is nobody's
}
