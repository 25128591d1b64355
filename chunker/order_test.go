package chunker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/device/emulated"
	"github.com/optimem/optimem/device/late"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/pager"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/search"
)

// A party is a plan with what makes a chunker for it, over devices that do things late and the host.
type party struct {
	name string
	plan *plan.Plan
	// devices is how many there are beside the host, or 1 and the host.
	devices int
}

var emu = plan.Target{Name: "emu", AlignBytes: 256}

func mustPlan(t testing.TB, l *graph.Lowered, o search.Options) *plan.Plan {
	t.Helper()
	p, err := search.Plan(l, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// parties returns plans with two sides or more of layers of a width: a prefix on a device, the host in between, and several
// devices, some with nothing to do.
func parties(t testing.TB, l *graph.Lowered, host *cpu.Device, width, instances int) (all []party) {
	t.Helper()
	o := search.Options{Target: emu, Instances: instances, Lower: host.Lower}
	pinned := o
	pinned.Mode, pinned.HostLower = plan.Chunk, host.Lower
	pinned.Capacity = plan.Limit{N: int64(2*width*width) + 1, Unit: plan.Params}
	all = append(all, party{"a prefix", mustPlan(t, l, pinned), 1})
	if instances == 1 { // for several it pays to move weights
		helped := o
		helped.Mode = plan.Auto
		helped.Rates = cost.Rates{FLOPs: 1e12, MemoryBytes: 100e9, OpSeconds: 1e-9, CopyBytes: 1e8, CopySeconds: 1e-7}
		helped.HostRates = cost.Rates{FLOPs: 10e9, MemoryBytes: 10e9, OpSeconds: 1e-9}
		free := mustPlan(t, l, helped)
		rest := free.ActivationBytes + free.WorkBytes + free.ConstBytes
		helped.MemoryBytes, helped.HostLower = max(rest+free.Fixed.WeightBytes/2, free.MinBytes), host.Lower
		all = append(all, party{"the host helps", mustPlan(t, l, helped), 1})
	}
	for n := 2; n <= 4; n++ {
		spread := o
		spread.Mode = plan.Resident
		for i := range n - 1 {
			spread.Peers = append(spread.Peers, search.Peer{Name: fmt.Sprint("emu:", i+1)})
		}
		all = append(all, party{fmt.Sprint(n, " devices"), mustPlan(t, l, spread), n})
	}
	for _, p := range all {
		if p.plan.Sides == nil {
			t.Fatalf("%s: one side\n%v", p.name, p.plan)
		}
	}
	return all
}

// gather makes the chunker of a party, with its devices. before is asked at each call of any of them, by number.
func (p *party) gather(t testing.TB, o late.Options, opts Options, before func(ctx context.Context, dev int, c late.Call) error) (
	c *Chunker, devices []*late.Device, closeAll func(),
) {
	t.Helper()
	var given []device.Device
	add := func(inner device.Device, o late.Options) {
		n := len(devices)
		if before != nil {
			o.Before = func(ctx context.Context, c late.Call) error { return before(ctx, n, c) }
		}
		o.Seed += uint64(n)
		devices = append(devices, late.New(inner, o))
		given = append(given, devices[n])
	}
	for range p.devices {
		add(emulated.New(emulated.Options{MemoryBytes: 1 << 30, CheckOrder: true, Threads: 1}), o)
	}
	var err error
	if p.devices == 1 {
		o.Prompt = true
		add(cpu.New(1, graph.Standard()), o)
		c, err = New(given[0], given[1], opts)
	} else {
		c, err = Spread(given, opts)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c, devices, func() {
		t.Helper()
		err := c.Close()
		for _, d := range devices {
			err = errors.Join(err, d.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// alone returns what instances give on the host's processor, one after the other.
func alone(t testing.TB, host *cpu.Device, l *graph.Lowered, instances int) *transfer {
	t.Helper()
	want := newTransfer(l.Graph, instances)
	p := mustPlan(t, l, search.Options{Mode: plan.Resident, Instances: instances})
	one, err := pager.New(host, pager.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(one.Pass(t.Context(), p, want), one.Close()); err != nil {
		t.Fatal(err)
	}
	return want
}

// sameAs compares what a pass gave with what its instances give alone.
func (x *transfer) sameAs(want *transfer) error {
	for i := range x.out {
		for k := range x.out[i] {
			if !bytes.Equal(x.out[i][k], want.out[i][k]) {
				return fmt.Errorf("instance %d, output %d: other bits", i, k)
			}
		}
	}
	return nil
}

// part returns the instances of one pass out of all, with outputs of their own.
func (x *transfer) part(pass, instances int) (io, want *transfer) {
	from := pass * instances
	want = &transfer{x.in[from:][:instances], x.out[from:][:instances]}
	io = &transfer{in: want.in}
	for _, out := range want.out {
		io.out = append(io.out, [2][]byte{make([]byte, len(out[0])), make([]byte, len(out[1]))})
	}
	return io, want
}

// TestSidesWaitForEachOther: over devices that do everything late, each side computes with what the others have made, and
// all outputs are there when a pass ends.
func TestSidesWaitForEachOther(t *testing.T) {
	const width, passes = 24, 3
	host := cpu.New(1, graph.Standard())
	defer host.Close()
	for _, depth := range []int{1, 5} {
		l := network(t, host, width, depth)
		for _, instances := range []int{1, 4} {
			want := alone(t, host, l, instances*passes)
			for _, p := range partiesOf(t, l, host, width, depth, instances) {
				for seed := range uint64(5) {
					c, _, closeAll := p.gather(t, late.Options{Seed: 10 * seed}, Options{}, nil)
					for n := range passes {
						io, want := want.part(n, instances)
						if err := c.Pass(t.Context(), p.plan, io); err != nil {
							t.Fatalf("%s, seed %d, pass %d: %v", p.name, seed, n, err)
						}
						if err := io.sameAs(want); err != nil {
							t.Fatalf("%s, seed %d, pass %d: %v\n%v", p.name, seed, n, err, p.plan)
						}
					}
					closeAll()
				}
			}
		}
	}
}

// partiesOf returns those of parties that a network so deep has.
func partiesOf(t testing.TB, l *graph.Lowered, host *cpu.Device, width, depth, instances int) []party {
	if depth > 2 {
		return parties(t, l, host, width, instances)
	}
	o := search.Options{
		Mode: plan.Resident, Target: emu, Lower: host.Lower, Instances: instances,
		Peers: []search.Peer{{Name: "emu:1"}, {Name: "emu:2"}},
	}
	return []party{{"more devices than layers", mustPlan(t, l, o), 3}}
}

var errLost = errors.New("the device is lost")

// A trouble is what becomes of one call of a device.
type trouble struct {
	name string
	// later has what was given to a stream fail when it is done; waits has a call that may be cancelled wait for that.
	later, waits bool
}

var troubles = []trouble{{name: "fails"}, {name: "fails later", later: true}, {name: "is cancelled", waits: true}}

// troubled returns what gives the n-th call of all devices trouble, and a context that is then done. hit says that there
// was such a call.
func troubled(ctx context.Context, what trouble, n int) (
	before func(context.Context, int, late.Call) error, _ context.Context, hit *atomic.Bool,
) {
	ctx, cancel := context.WithCancel(ctx)
	hit = new(atomic.Bool)
	var calls atomic.Int64
	return func(ctx context.Context, _ int, _ late.Call) error {
		if calls.Add(1) != int64(n) {
			return nil
		}
		hit.Store(true)
		if !what.waits {
			return errLost
		}
		cancel()
		return untilDone(ctx)
	}, ctx, hit
}

// untilDone waits until a context is done, if it may be.
func untilDone(ctx context.Context) error {
	if ctx.Done() == nil {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(10 * time.Second):
		return errors.New("a call that waits is not told that the pass is over")
	}
}

// TestEveryCallOfAllSides makes every call of every side's device fail, fail later, or wait until it is cancelled. The error
// comes back, the caller's memory is left alone from then on, and the next pass gives what it should.
func TestEveryCallOfAllSides(t *testing.T) {
	const width, instances = 16, 3
	step := 1
	if testing.Short() {
		step = 4
	}
	host := cpu.New(1, graph.Standard())
	defer host.Close()
	for _, depth := range []int{1, 4} {
		l := network(t, host, width, depth)
		for _, instances := range []int{1, instances} {
			want := alone(t, host, l, instances)
			for _, p := range partiesOf(t, l, host, width, depth, instances) {
				for k, what := range troubles {
					for n := 1 + k; ; n += step {
						where := fmt.Sprintf("%s, %d instances: call %d %s", p.name, instances, n, what.name)
						before, ctx, hit := troubled(t.Context(), what, n)
						c, devices, closeAll := p.gather(t, late.Options{Seed: uint64(n), Later: what.later}, Options{}, before)
						io, want := want.part(0, instances)
						err := c.Pass(ctx, p.plan, io)
						if err == nil {
							if err := io.sameAs(want); err != nil {
								t.Fatalf("%s, and the pass succeeds: %v", where, err)
							}
						} else if what.waits != errors.Is(err, context.Canceled) || !what.waits && !errors.Is(err, errLost) {
							t.Fatalf("%s: %v\n%v", where, err, p.plan)
						}
						for i := range io.out {
							for _, out := range io.out[i] {
								fill(out)
							}
						}
						for _, d := range devices {
							d.Drain()
						}
						for i := range io.out {
							if !filled(io.out[i][0]) || !filled(io.out[i][1]) {
								t.Fatalf("%s: what instance %d gives is written after the pass\n%v", where, i, p.plan)
							}
						}
						if !hit.Load() {
							closeAll()
							break
						}
						if err := c.Pass(t.Context(), p.plan, io); err != nil {
							t.Fatalf("%s, afterwards: %v\n%v", where, err, p.plan)
						}
						if err := io.sameAs(want); err != nil {
							t.Fatalf("%s, afterwards: %v\n%v", where, err, p.plan)
						}
						closeAll()
					}
				}
			}
		}
	}
}

func fill(out []byte) {
	for i := range out {
		out[i] = 0xa5
	}
}

func filled(out []byte) bool {
	return !slices.ContainsFunc(out, func(b byte) bool { return b != 0xa5 })
}

// TestNoStateChangesBeforeAllHaveFinished: whatever call of whichever side fails or is cancelled, a pass that fails has
// changed no state of any side, so that the next results are those of a program that never failed.
func TestNoStateChangesBeforeAllHaveFinished(t *testing.T) {
	const width, passes = 16, 3
	step := 1
	if testing.Short() {
		step = 3
	}
	host := cpu.New(1, graph.Standard())
	defer host.Close()
	l := changing(t, host, width, 4)
	one, err := pager.New(host, pager.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var want []*pair
	resident := mustPlan(t, l, search.Options{Mode: plan.Resident})
	for n := range passes {
		want = append(want, newPair(l.Graph, n))
		if err := one.Pass(t.Context(), resident, want[n]); err != nil {
			t.Fatal(err)
		}
	}
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	for _, p := range parties(t, l, host, width, 1) {
		for k, what := range troubles {
			for n := 1 + k; ; n += step {
				where := fmt.Sprintf("%s: call %d %s", p.name, n, what.name)
				before, ctx, hit := troubled(t.Context(), what, n)
				c, _, closeAll := p.gather(t, late.Options{Seed: uint64(n), Later: what.later}, Options{}, before)
				for pass := range passes {
					io := newPair(l.Graph, pass)
					err := c.Pass(ctx, p.plan, io)
					if errors.Is(err, errLost) || errors.Is(err, context.Canceled) {
						ctx = t.Context()
						err = c.Pass(ctx, p.plan, io)
					}
					if err != nil {
						t.Fatalf("%s, pass %d: %v\n%v", where, pass, err, p.plan)
					}
					if !bytes.Equal(io.y, want[pass].y) {
						t.Fatalf("%s, pass %d: other bits\n%v", where, pass, p.plan)
					}
				}
				closeAll()
				if !hit.Load() {
					break
				}
			}
		}
	}
}

// TestAnErrorStopsTheOtherSide: where one of two sides that compute at the same time fails, what the other waits in is
// cancelled, and the pass ends with the error of the first.
func TestAnErrorStopsTheOtherSide(t *testing.T) {
	const width, instances = 16, 4
	host := cpu.New(1, graph.Standard())
	defer host.Close()
	l := network(t, host, width, 4)
	want := alone(t, host, l, instances)
	for _, p := range parties(t, l, host, width, instances) {
		if !p.plan.Sides.Overlaps {
			continue
		}
		for failing := range 2 {
			where := fmt.Sprintf("%s: side %d fails", p.name, failing)
			var trouble, waited atomic.Bool
			var first, others atomic.Int64 // ops of the first side, and of the others
			own := int64(len(p.plan.Sides.Whole[0].Ops))
			before := func(ctx context.Context, dev int, c late.Call) error {
				if !trouble.Load() || c.Kind != late.Run {
					return nil
				}
				ops := &first
				if dev > 0 {
					ops = &others
				}
				n := ops.Add(1)
				switch {
				case failing == 0 && dev == 0 && n == 2*own: // the second instance's last op
					return errLost
				case failing == 1 && dev > 0 && n == 1:
					return errLost
				case failing == 0 && dev > 0, failing == 1 && dev == 0 && n > own:
					err := untilDone(ctx)
					if ctx.Err() == nil {
						waited.Store(true)
					}
					return err
				}
				return nil
			}
			c, _, closeAll := p.gather(t, late.Options{}, Options{}, before)
			io, want := want.part(0, instances)
			if err := c.Pass(t.Context(), p.plan, io); err != nil {
				t.Fatal(err)
			}
			trouble.Store(true)
			if err := c.Pass(t.Context(), p.plan, io); !errors.Is(err, errLost) || errors.Is(err, context.Canceled) {
				t.Fatalf("%s: %v\n%v", where, err, p.plan)
			}
			if waited.Load() {
				t.Errorf("%s, and the other goes on", where)
			}
			trouble.Store(false)
			if err := errors.Join(c.Pass(t.Context(), p.plan, io), io.sameAs(want)); err != nil {
				t.Fatalf("%s, afterwards: %v\n%v", where, err, p.plan)
			}
			closeAll()
		}
	}
}
