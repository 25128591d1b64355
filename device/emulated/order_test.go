package emulated_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/device/emulated"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// A bench is a device that checks the order of what streams do, with one memory and some streams.
type bench struct {
	dev     *emulated.Device
	memory  device.Memory
	streams []device.Stream
	marks   []device.Event
}

const benchBytes = 64

// newBench returns one; whoever asks closes it. A dry device checks the same.
func newBench(t rapid.TB, streams int, o emulated.Options) *bench {
	o.CheckOrder = true
	b := &bench{dev: emulated.New(o)}
	var err error
	if b.memory, err = b.dev.Alloc(benchBytes); err != nil {
		t.Fatal(err)
	}
	for range streams {
		s, err := b.dev.NewStream()
		if err != nil {
			t.Fatal(err)
		}
		b.streams = append(b.streams, s)
	}
	return b
}

func (b *bench) close(t rapid.TB) {
	if err := b.memory.Free(); err != nil {
		t.Error(err)
	}
	if err := b.dev.Close(); err != nil {
		t.Error(err)
	}
}

func (b *bench) region(low, high int) device.Region {
	return device.Region{Memory: b.memory, Offset: int64(low), Bytes: int64(high - low)}
}

// in and out are a copy to bytes of the device and one from them, relu an op that reads the first and writes the second.
func (b *bench) in(t rapid.TB, s, low, high int) {
	if err := b.streams[s].CopyIn(b.region(low, high), make([]byte, high-low)); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) out(t rapid.TB, s, low, high int) {
	if err := b.streams[s].CopyOut(make([]byte, high-low), b.region(low, high)); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) relu(t rapid.TB, s, from, to, n int) {
	spec := graph.Spec{DType: tensor.Float32, Shape: tensor.Shape{n}}
	argument := func(at int) device.Argument {
		return device.Argument{Region: b.region(at, at+4*n), Operand: graph.Operand{Layout: tensor.Contiguous(n)}, Spec: spec}
	}
	err := b.streams[s].Run(context.Background(), device.Launch{
		Op: graph.Op{Kind: "relu"}, In: []device.Argument{argument(from)}, Out: []device.Argument{argument(to)},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// record keeps a mark of a stream, of which wait has another wait for the last.
func (b *bench) record(s int) { b.marks = append(b.marks, b.streams[s].Record()) }
func (b *bench) wait(s int)   { b.streams[s].Wait(b.marks[len(b.marks)-1]) }

// sync synchronises a stream and returns what it says.
func (b *bench) sync(s int) error { return b.streams[s].Sync(context.Background()) }

// TestUnorderedAccesses: two streams' accesses to the same bytes, one of them a write, are an error at the next Sync where no
// event orders them, and none where one does. Each violation stands beside the same accesses in order.
func TestUnorderedAccesses(t *testing.T) {
	for name, c := range map[string]struct {
		do    func(t *testing.T, b *bench)
		found bool
	}{
		"a write after a write":      {func(t *testing.T, b *bench) { b.in(t, 0, 0, 8); b.in(t, 1, 0, 8) }, true},
		"a read after a write":       {func(t *testing.T, b *bench) { b.in(t, 0, 0, 8); b.out(t, 1, 0, 8) }, true},
		"a write after a read":       {func(t *testing.T, b *bench) { b.out(t, 0, 0, 8); b.in(t, 1, 0, 8) }, true},
		"two reads":                  {func(t *testing.T, b *bench) { b.out(t, 0, 0, 8); b.out(t, 1, 0, 8) }, false},
		"one byte in common":         {func(t *testing.T, b *bench) { b.in(t, 0, 0, 8); b.out(t, 1, 7, 12) }, true},
		"the byte before":            {func(t *testing.T, b *bench) { b.in(t, 0, 8, 16); b.out(t, 1, 0, 9) }, true},
		"bytes beside each other":    {func(t *testing.T, b *bench) { b.in(t, 0, 0, 8); b.in(t, 1, 8, 16) }, false},
		"one stream":                 {func(t *testing.T, b *bench) { b.in(t, 0, 0, 8); b.in(t, 0, 0, 8); b.out(t, 0, 0, 8) }, false},
		"an op reads a copy":         {func(t *testing.T, b *bench) { b.in(t, 0, 0, 8); b.relu(t, 1, 0, 16, 2) }, true},
		"an op writes":               {func(t *testing.T, b *bench) { b.relu(t, 0, 0, 16, 2); b.out(t, 1, 16, 20) }, true},
		"an op's operand is written": {func(t *testing.T, b *bench) { b.relu(t, 0, 0, 16, 2); b.in(t, 1, 4, 8) }, true},
		"a mark": {func(t *testing.T, b *bench) {
			b.in(t, 0, 0, 8)
			b.record(0)
			b.wait(1)
			b.out(t, 1, 0, 8)
		}, false},
		"a mark from before": {func(t *testing.T, b *bench) {
			b.record(0)
			b.in(t, 0, 0, 8)
			b.wait(1)
			b.out(t, 1, 0, 8)
		}, true},
		"a mark between two": {func(t *testing.T, b *bench) {
			b.in(t, 0, 0, 8)
			b.record(0)
			b.in(t, 0, 8, 16)
			b.wait(1)
			b.out(t, 1, 0, 8)
			b.out(t, 1, 8, 16)
		}, true},
		"a mark nobody waits for": {func(t *testing.T, b *bench) { b.in(t, 0, 0, 8); b.record(0); b.out(t, 1, 0, 8) }, true},
		"the wait of another stream": {func(t *testing.T, b *bench) {
			b.in(t, 0, 0, 8)
			b.record(0)
			b.wait(2)
			b.out(t, 1, 0, 8)
		}, true},
		"by way of a third stream": {func(t *testing.T, b *bench) {
			b.in(t, 0, 0, 8)
			b.record(0)
			b.wait(2)
			b.record(2)
			b.wait(1)
			b.out(t, 1, 0, 8)
		}, false},
		"an older mark after a newer one": {func(t *testing.T, b *bench) {
			b.in(t, 0, 0, 8)
			b.record(0)
			b.in(t, 0, 8, 16)
			b.record(0)
			b.wait(1)
			b.streams[1].Wait(b.marks[0])
			b.out(t, 1, 0, 16)
		}, false},
		"a mark of a stream that knows what this one did long ago": {func(t *testing.T, b *bench) {
			b.in(t, 0, 32, 40)
			b.record(0)
			b.wait(1)
			b.in(t, 0, 32, 40)
			b.in(t, 0, 32, 40)
			b.record(0)
			b.wait(2)
			b.record(1)
			b.wait(0)
			b.in(t, 0, 0, 8)
			b.out(t, 2, 0, 8)
		}, true},
		"the host waits for both": {func(t *testing.T, b *bench) {
			b.in(t, 0, 0, 8)
			_, _ = b.sync(0), b.sync(1)
			b.out(t, 1, 0, 8)
		}, false},
		"the host waits for the other": {func(t *testing.T, b *bench) {
			b.in(t, 0, 0, 8)
			_ = b.sync(1)
			b.out(t, 1, 0, 8)
		}, true},
		"the host waited before": {func(t *testing.T, b *bench) {
			_, _ = b.sync(0), b.sync(1)
			b.in(t, 0, 0, 8)
			b.out(t, 1, 0, 8)
		}, true},
		"a read that a later write of the same stream covers": {func(t *testing.T, b *bench) {
			b.in(t, 0, 0, 8)
			b.record(0)
			b.out(t, 0, 0, 8)
			b.in(t, 0, 0, 4) // covers half
			b.wait(1)
			b.in(t, 1, 4, 8)
		}, true},
		"the first of two reads that no write may pass": {func(t *testing.T, b *bench) {
			b.out(t, 0, 0, 8)
			b.out(t, 2, 0, 8)
			b.record(2)
			b.wait(1)
			b.in(t, 1, 0, 8)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, dry := range []bool{false, true} {
				b := newBench(t, 3, emulated.Options{Dry: dry})
				c.do(t, b)
				err := b.sync(1)
				if (err != nil) != c.found {
					t.Errorf("dry %v: found %v, want %v", dry, err, c.found)
				}
				if err != nil && !strings.Contains(err.Error(), "no event orders them") {
					t.Error(err)
				}
				b.close(t)
			}
		})
	}
}

// TestUnorderedScratch: the scratch memory of ops of two streams is written by both.
func TestUnorderedScratch(t *testing.T) {
	b := newBench(t, 2, emulated.Options{Dry: true})
	for s, at := range []int{0, 8} {
		err := b.streams[s].Run(t.Context(), device.Launch{
			Op:   graph.Op{Kind: "relu"},
			Out:  []device.Argument{{Region: b.region(at, at+8), Operand: graph.Operand{Layout: tensor.Contiguous(2)}}},
			Work: b.region(32, 48),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := b.sync(1); err == nil {
		t.Error("two streams write one scratch memory, and nobody says so")
	}
	b.close(t)
}

// TestUnorderedPacking: what a stream packs must be there, and nobody may read the packed form before.
func TestUnorderedPacking(t *testing.T) {
	pack := func(b *bench, s int) {
		src := device.Argument{Region: b.region(0, 16), Operand: graph.Operand{Layout: tensor.Contiguous(4)}}
		if err := b.streams[s].(device.Packer).Pack(t.Context(), nil, graph.Pack{}, src, b.region(32, 48)); err != nil {
			t.Fatal(err)
		}
	}
	for name, do := range map[string]func(b *bench){
		"raw":    func(b *bench) { b.in(t, 0, 0, 16); pack(b, 1) },
		"packed": func(b *bench) { pack(b, 0); b.out(t, 1, 32, 48) },
	} {
		b := newBench(t, 2, emulated.Options{Dry: true})
		if do(b); b.sync(1) == nil {
			t.Errorf("the %s form is used in no order, and nobody says so", name)
		}
		b.close(t)
	}
}

// TestOrderIsCheckedWhereAsked: who does not ask for the check gets no error of it, and memory that is given out again
// has no past.
func TestOrderIsCheckedWhereAsked(t *testing.T) {
	b := newBench(t, 2, emulated.Options{Dry: true})
	b.in(t, 0, 0, 8)
	if err := b.memory.Free(); err != nil {
		t.Fatal(err)
	}
	var err error
	if b.memory, err = b.dev.Alloc(benchBytes); err != nil {
		t.Fatal(err)
	}
	b.in(t, 1, 0, 8)
	if err := b.sync(1); err != nil {
		t.Errorf("memory that was freed: %v", err)
	}
	b.close(t)

	dev := emulated.New(emulated.Options{})
	unchecked := &bench{dev: dev}
	if unchecked.memory, err = dev.Alloc(benchBytes); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s, err := dev.NewStream()
		if err != nil {
			t.Fatal(err)
		}
		unchecked.streams = append(unchecked.streams, s)
	}
	unchecked.in(t, 0, 0, 8)
	unchecked.in(t, 1, 0, 8)
	if err := unchecked.sync(1); err != nil {
		t.Errorf("nobody asked: %v", err)
	}
	unchecked.close(t)
}

// A past is a set of accesses by their numbers.
type past map[int]bool

// A done access is one of the reference, which forgets nothing.
type doneAccess struct {
	stream, low, high int
	write             bool
}

// TestOrderOfRandomStreams compares the check with a reference that remembers every access and, for each stream, every access
// that it comes after: the device finds a violation exactly where two accesses conflict and neither is in the past of
// the other.
func TestOrderOfRandomStreams(t *testing.T) {
	const streams = 3
	rapid.Check(t, func(t *rapid.T) {
		b := newBench(t, streams, emulated.Options{Dry: rapid.Bool().Draw(t, "dry"), Threads: 1})
		defer b.close(t)
		var all []doneAccess
		knows, host := make([]past, streams), past{}
		for s := range knows {
			knows[s] = past{}
		}
		var marks []past
		conflict := ""
		conflicting := func(s int, list []doneAccess) string {
			for _, now := range list {
				for i, a := range all {
					overlap := a.low < now.high && now.low < a.high
					if overlap && (a.write || now.write) && a.stream != s && !knows[s][i] {
						return fmt.Sprintf("%+v and %+v", a, now)
					}
				}
			}
			return ""
		}
		// touch has a stream do something; some of what conflicts it leaves out, so that much comes before the
		// first violation.
		violations := rapid.IntRange(0, 4).Draw(t, "violations left out")
		touch := func(s int, do func(), list ...doneAccess) {
			if found := conflicting(s, list); found != "" && conflict == "" {
				if violations > 0 {
					violations--
					return
				}
				conflict = found
			}
			do()
			for _, now := range list {
				knows[s][len(all)] = true
				all = append(all, now)
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			s := rapid.IntRange(0, streams-1).Draw(t, "stream")
			what := rapid.SampledFrom([]string{"in", "out", "op", "record", "wait", "sync"}).Draw(t, "what")
			place := func() (low, high int) {
				low = 4 * rapid.IntRange(0, benchBytes/4-1).Draw(t, "low")
				return low, low + 4*rapid.IntRange(1, (benchBytes-low)/4).Draw(t, "length")
			}
			switch what {
			case "in":
				low, high := place()
				touch(s, func() { b.in(t, s, low, high) }, doneAccess{s, low, high, true})
			case "out":
				low, high := place()
				touch(s, func() { b.out(t, s, low, high) }, doneAccess{s, low, high, false})
			case "op":
				n := rapid.IntRange(1, 3).Draw(t, "elements")
				places := rapid.SliceOfNDistinct(rapid.IntRange(0, benchBytes/12-1), 2, 2, rapid.ID).Draw(t, "places")
				from, to := 12*places[0], 12*places[1]
				touch(s, func() { b.relu(t, s, from, to, n) }, doneAccess{s, from, from + 4*n, false}, doneAccess{s, to, to + 4*n, true})
			case "record":
				b.record(s)
				marks = append(marks, maps.Clone(knows[s]))
			case "wait":
				if len(marks) > 0 {
					i := rapid.IntRange(0, len(marks)-1).Draw(t, "mark")
					b.streams[s].Wait(b.marks[i])
					maps.Copy(knows[s], marks[i])
				}
			case "sync":
				err := b.sync(s)
				maps.Copy(host, knows[s])
				maps.Copy(knows[s], host)
				if (err != nil) != (conflict != "") {
					t.Fatalf("the device says %v, the reference %q", err, conflict)
				}
			}
		}
		if err := b.sync(0); (err != nil) != (conflict != "") {
			t.Fatalf("at the end the device says %v, the reference %q of %v", err, conflict, slices.Clone(all))
		}
	})
}
