package pager

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/device/emulated"
	"github.com/optimem/optimem/device/late"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/hostmem"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/search"
)

// computed is attention whose positions and tables are what ops make of inputs, so that no caller has them.
func computed(t *testing.T, layers int) *graph.Graph {
	t.Helper()
	g := attention(t, layers)
	made := &graph.Graph{Values: g.Values, Inputs: g.Inputs, Outputs: g.Outputs}
	of := make(map[graph.ValueID]graph.ValueID)
	for _, id := range g.Inputs[1:] {
		out, err := made.Emit(graph.Standard(), graph.Op{Kind: "copy", In: []graph.Operand{made.Whole(id)}})
		if err != nil {
			t.Fatal(err)
		}
		of[id] = out[0]
	}
	for _, op := range g.Ops {
		for k := range op.In {
			if id, ok := of[op.In[k].Value]; ok {
				op.In[k].Value = id
			}
		}
		made.Ops = append(made.Ops, op)
	}
	return made
}

// TestCachesWaitInHostMemory: caches of a device with memory of its own that wait in the host's hold what those on the device do,
// whole and in parts, however late the device copies and computes; both memories are what the plan says.
func TestCachesWaitInHostMemory(t *testing.T) {
	host := newCPU(t)
	const each = 2 * 4 * graph.BlockRows * awayHeads * awaySize // of a block of keys and of values
	before := hostmem.InUse(hostmem.Caches)
	for _, layers := range []int{2, 3, 5} {
		for _, room := range []int{awayWidth, awayWidth + 1, awayBlocks - 1, awayBlocks} {
			for seed := range uint64(4) {
				g := attention(t, layers)
				if seed == 3 {
					g = computed(t, layers)
				}
				l, err := host.Lower(g)
				if err != nil {
					t.Fatal(err)
				}
				in := mustPlan(t, l, search.Options{Mode: plan.Page, Target: plan.CPU})
				out := mustPlan(t, l, search.Options{Mode: plan.Page, Target: emu, CachesAway: true, SlotBlocks: room})
				blocks, tables := room, int64(plan.AlignUp(8*awayRows*awayWidth, emu.AlignBytes))
				if room == awayBlocks {
					blocks, tables = 0, 0
				}
				if out.CacheSlotBlocks != blocks || out.CacheBytes != 2*(int64(room)*each+tables) || out.CacheAwayBytes != in.CacheBytes ||
					out.WaitingBytes() != in.CacheBytes+2*tables || out.HostBytes() != out.WaitingBytes()+out.TransferBytes {
					t.Fatalf("room for %d blocks: slots of %d blocks, %d bytes of caches, and of the host's %d of %d", room, out.CacheSlotBlocks, out.CacheBytes,
						out.WaitingBytes(), out.HostBytes())
				}
				dev := late.New(emulated.New(emulated.Options{CheckOrder: true, Threads: 1}), late.Options{Seed: seed, Keeps: seed%2 == 1})
				stay, away := newPager(t, host, Options{}), newPager(t, dev, Options{})
				r := rand.New(rand.NewPCG(uint64(layers), seed))
				used, from := [2][]int{{3, 0, 7, 8}, {10, 11, 1, 5}}, [2]int{}
				for k := range 50 {
					x := textPass(g, r, used, &from)
					y := &textIO{in: x.in, out: make([]byte, len(x.out))}
					if err := errors.Join(stay.Pass(t.Context(), in, x), away.Pass(t.Context(), out, y)); err != nil {
						t.Fatal(err)
					}
					if !bytes.Equal(x.out, y.out) {
						t.Fatalf("%d layers, room for %d blocks, seed %d, pass %d: other bits", layers, room, seed, k)
					}
					if held := away.Held(); held.CacheBytes != out.CacheBytes || held.Total() > out.PeakBytes() || away.HostBytes() != out.HostBytes() {
						t.Fatalf("%d bytes of caches are held and %d of the host's: %d and %d are planned", held.CacheBytes, away.HostBytes(), out.CacheBytes, out.HostBytes())
					}
					if k == 25 { // all that the device has of it goes, and comes back
						if err := away.Rest(t.Context()); err != nil || away.Held().Total() != 0 || away.HostBytes() != 0 {
							t.Fatalf("%d and %d bytes are held by who rests: %v", away.Held().Total(), away.HostBytes(), err)
						}
					}
				}
				same := func(name string) {
					want, got := make([]byte, awayBlocks*each/2), make([]byte, awayBlocks*each/2)
					if err := errors.Join(stay.ReadCache(t.Context(), name, want, 0), away.ReadCache(t.Context(), name, got, 0)); err != nil || !bytes.Equal(want, got) {
						t.Errorf("%s: other bytes, %v", name, err)
					}
				}
				for k := range layers - 1 {
					same(fmt.Sprint(k, ".keys"))
					same(fmt.Sprint(k, ".values"))
				}
				block := bytes.Repeat([]byte{7}, each/2)
				if err := errors.Join(stay.WriteCache(t.Context(), "0.keys", block, 3*each/2), away.WriteCache(t.Context(), "0.keys", block, 3*each/2)); err != nil {
					t.Fatal(err)
				}
				same("0.keys")
				if s := away.Stats(); s.CacheInBytes == 0 || s.CacheOutBytes == 0 || s.CacheOutBytes >= s.CacheInBytes {
					t.Errorf("%d bytes came, %d went", s.CacheInBytes, s.CacheOutBytes)
				}
				if x := away.Inventory(); x.CacheHostBytes != out.WaitingBytes() || len(x.Caches) != 0 || x.CacheSlotBytes != out.CacheBytes {
					t.Errorf("the inventory has %+v", x)
				}
				if err := away.DropCaches(); err != nil || away.Held().CacheBytes != 0 || away.HostBytes() != out.HostBytes()-out.CacheAwayBytes {
					t.Errorf("what is dropped is there: %d bytes, %v", away.Held().CacheBytes, err)
				}
				if err := errors.Join(away.Close(), stay.Close(), dev.Close()); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if n := hostmem.InUse(hostmem.Caches); n != before {
		t.Errorf("%d bytes of caches are left of %d", n, before)
	}
}

// TestCachesWaitInHostMemoryFail: whatever call of the device fails, or comes to nothing since the pass is cancelled, ends the pass,
// and the same pass made again gives the same bits.
func TestCachesWaitInHostMemoryFail(t *testing.T) {
	host := newCPU(t)
	g := attention(t, 4)
	l, err := host.Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	in := mustPlan(t, l, search.Options{Mode: plan.Page, Target: plan.CPU})
	out := mustPlan(t, l, search.Options{Mode: plan.Page, Target: emu, CachesAway: true, SlotBlocks: awayWidth})
	broken := errors.New("broken")
	failed := 0
	for _, is := range troubles {
		for at := 1; ; at++ {
			calls, armed := 0, false
			ctx, cancel := context.WithCancel(t.Context())
			dev := late.New(emulated.New(emulated.Options{CheckOrder: true, Threads: 1}), late.Options{
				Seed: uint64(at), Later: is.later,
				Before: func(given context.Context, _ late.Call) error {
					if calls++; !armed || calls != at {
						return nil
					}
					if is.waits {
						cancel()
						return given.Err()
					}
					return broken
				},
			})
			stay, away := newPager(t, host, Options{}), newPager(t, dev, Options{})
			r := rand.New(rand.NewPCG(3, 3))
			tables, from := [2][]int{{3, 0, 7, 8}, {10, 11, 1, 5}}, [2]int{}
			reached := false
			for k := range 6 {
				x := textPass(g, r, tables, &from)
				y := &textIO{in: x.in, out: make([]byte, len(x.out))}
				if err := stay.Pass(t.Context(), in, x); err != nil {
					t.Fatal(err)
				}
				if k == 3 {
					calls, armed = 0, true
					err := away.Pass(ctx, out, y)
					armed = false
					if reached = calls >= at; reached && !is.waits && !errors.Is(err, broken) || err != nil && is.waits && !errors.Is(err, context.Canceled) {
						t.Fatalf("%s, call %d of %d: %v", is.name, at, calls, err)
					} else if err != nil {
						failed++
					}
				}
				if err := away.Pass(t.Context(), out, y); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(x.out, y.out) {
					t.Fatalf("%s, call %d, pass %d: other bits", is.name, at, k)
				}
			}
			cancel()
			if err := errors.Join(away.Close(), dev.Close()); err != nil {
				t.Fatal(err)
			}
			if !reached {
				break
			}
		}
	}
	if failed < 60 {
		t.Errorf("only %d calls failed", failed)
	}
}

// TestCachesWaitWithoutRoom: host memory that is too little for the caches is an error of the plan.
func TestCachesWaitWithoutRoom(t *testing.T) {
	host := newCPU(t)
	l, err := host.Lower(attention(t, 4))
	if err != nil {
		t.Fatal(err)
	}
	o := search.Options{Mode: plan.Page, Target: plan.Target{Name: "emu", AlignBytes: 256}, CachesAway: true}
	need := mustPlan(t, l, o).HostBytes()
	o.HostBytes = need
	mustPlan(t, l, o)
	var full *plan.CapacityError
	o.HostBytes--
	if _, err := search.Plan(l, o); !errors.As(err, &full) || !full.Host || full.NeedBytes != need || full.HaveBytes != need-1 {
		t.Errorf("%d of %d bytes: %v", o.HostBytes, need, err)
	}
}

// pinless is a device that has no page-locked memory to give.
type pinless struct{ device.Device }

func (pinless) AllocHost(int64) (device.HostMemory, error) { return nil, errors.New("none is left") }

// TestCachesWaitInPageableMemory: where the device has no page-locked memory left caches wait in other memory, and that is counted.
func TestCachesWaitInPageableMemory(t *testing.T) {
	host := newCPU(t)
	g := attention(t, 3)
	l, err := host.Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	out := mustPlan(t, l, search.Options{Mode: plan.Page, Target: plan.Target{Name: "emu", AlignBytes: 256}, CachesAway: true})
	dev := emulated.New(emulated.Options{CheckOrder: true, Threads: 1})
	p := newPager(t, pinless{dev}, Options{})
	tables, from := [2][]int{{3, 0, 7, 8}, {10, 11, 1, 5}}, [2]int{}
	if err := p.Pass(t.Context(), out, textPass(g, rand.New(rand.NewPCG(1, 1)), tables, &from)); err != nil {
		t.Fatal(err)
	}
	if n := p.Stats().PageableBytes; n != out.HostBytes() || n == 0 {
		t.Errorf("%d bytes are not page-locked of %d", n, out.HostBytes())
	}
	if err := errors.Join(p.Close(), dev.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestCachesWaitAsLongAsForecast: on the clock of an emulated device passes take what the plan expects, whether the bus or ops are what
// is waited for, in parts, too.
func TestCachesWaitAsLongAsForecast(t *testing.T) {
	host := newCPU(t)
	g := attention(t, 6)
	for i := range g.Ops {
		g.Ops[i].Attrs["window"] = 0
	}
	l, err := host.Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	x := textPass(g, rand.New(rand.NewPCG(1, 1)), [2][]int{{0, 1, 2, 3}, {4, 5, 6, 7}}, new([2]int))
	for i := range awayRows { // as long as texts may be, each in blocks of its own as far as there are any
		binary.NativeEndian.PutUint64(x.in[g.Inputs[1]][8*i:], awayWidth*graph.BlockRows-1)
		for b := range awayWidth {
			binary.NativeEndian.PutUint64(x.in[g.Inputs[2]][8*(i*awayWidth+b):], uint64(min(i, 2)*awayWidth+b))
		}
	}
	for _, room := range []int{awayWidth, awayBlocks} {
		for _, op := range []float64{1e-5, 3e-4, 1e-3, 3e-3} {
			rates := cost.Rates{FLOPs: 1e15, MemoryBytes: 1e15, OpSeconds: op, CopyBytes: 1e8, CopySeconds: 1e-6}
			o := search.Options{Mode: plan.Resident, Target: plan.Target{Name: "emu", AlignBytes: 256}, CachesAway: true, SlotBlocks: room, Rates: rates}
			made := mustPlan(t, l, o)
			dev := emulated.New(emulated.Options{
				CopyBytes: rates.CopyBytes, CopyLatency: time.Microsecond, Threads: 1,
				Cost: func(s *graph.Step, op *graph.Op, in, out []graph.Spec) time.Duration {
					seconds := rates.StepSeconds(graph.Standard(), s, op, in, out)
					return time.Duration(seconds * float64(in[0].Shape[0]) / awayRows * float64(time.Second))
				},
			})
			p := newPager(t, dev, Options{})
			var took time.Duration
			for range 3 {
				begin := dev.Elapsed()
				if err := p.Pass(t.Context(), made, x); err != nil {
					t.Fatal(err)
				}
				took = dev.Elapsed() - begin
			}
			f := made.Forecast
			if off := took.Seconds()/f.Seconds - 1; math.Abs(off) > 0.1 || f.CacheSeconds <= 0 || f.Seconds < f.CacheSeconds {
				t.Errorf("room for %d blocks, ops of %v s: %v, and %v s are expected, %v of them for caches", room, op, took, f.Seconds, f.CacheSeconds)
			}
			if bus := f.Bound == "transfer"; bus != (op < 1e-4) {
				t.Errorf("room for %d blocks, ops of %v s: bound by %s", room, op, f.Bound)
			}
		}
	}
}
