package chunker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/device/late"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/internal/panicked"
	"github.com/optimem/optimem/pager"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/search"
)

// A fragile IO panics at one of its calls.
type fragile struct {
	*transfer
	mu    sync.Mutex
	calls int
	at    int
}

var errFragile = errors.New("the IO is broken")

func (x *fragile) call() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.calls++; x.calls == x.at {
		panic(errFragile)
	}
}

func (x *fragile) Instances() int       { return len(x.in) }
func (x *fragile) Wanted(int) bool      { x.call(); return true }
func (x *fragile) Left(int, error) bool { return true }

func (x *fragile) Input(instance int, id graph.ValueID) []byte {
	x.call()
	return x.transfer.Input(instance, id)
}

func (x *fragile) Output(instance, output int, made bool) []byte {
	x.call()
	return x.transfer.Output(instance, output, made)
}

// TestPanicsOfTheCaller: an IO, or who is told what the host has done, that panics at whichever call ends the pass with an
// error, or with that instance, and the next pass gives what it should.
func TestPanicsOfTheCaller(t *testing.T) {
	const width = 16
	host := cpu.New(1, graph.Standard())
	defer host.Close()
	l := network(t, host, width, 4)
	for _, instances := range []int{1, 3} {
		want := alone(t, host, l, instances)
		for _, p := range parties(t, l, host, width, instances) {
			hostCalls, hostAt := 0, 0
			opts := Options{HostRan: func(HostWork) {
				if hostCalls++; hostCalls == hostAt {
					panic(errFragile)
				}
			}}
			for at, byHost := 1, false; ; at++ {
				c, devices, closeAll := p.gather(t, late.Options{Seed: uint64(at)}, opts, nil)
				io, want := want.part(0, instances)
				broken := &fragile{transfer: io, at: at}
				if hostCalls, hostAt = 0, 0; byHost {
					broken.at, hostAt = 0, at
				}
				err := c.Pass(t.Context(), p.plan, broken)
				hit := broken.at > 0 && broken.calls >= at || hostAt > 0 && hostCalls >= at
				hostAt = 0
				for i := range io.out {
					fill(io.out[i][0])
					fill(io.out[i][1])
				}
				for _, d := range devices {
					d.Drain()
				}
				for i := range io.out {
					if !filled(io.out[i][0]) || !filled(io.out[i][1]) {
						t.Fatalf("%s, call %d: what instance %d gives is written after the pass", p.name, at, i)
					}
				}
				var caught *panicked.Error
				if err != nil && (!errors.As(err, &caught) || !errors.Is(err, errFragile) || !hit) {
					t.Fatalf("%s, call %d: %v", p.name, at, err)
				} else if err == nil && hit && byHost {
					t.Fatalf("%s, call %d: no error", p.name, at)
				}
				if err := errors.Join(c.Pass(t.Context(), p.plan, io), io.sameAs(want)); err != nil {
					t.Fatalf("%s, after call %d (by the host %v): %v\n%v", p.name, at, byHost, err, p.plan)
				}
				closeAll()
				if !hit && byHost {
					break
				} else if !hit {
					at, byHost = 0, true
				}
			}
		}
	}
}

// TestAPanicEndsBothSides: where who is told of the host's work panics while both sides compute, the pass does not end
// before the device's side has.
func TestAPanicEndsBothSides(t *testing.T) {
	const width, instances = 16, 3
	host := cpu.New(1, graph.Standard())
	defer host.Close()
	l := network(t, host, width, 4)
	p := parties(t, l, host, width, instances)[0]
	own := len(p.plan.Sides.Whole[0].Ops)
	begun, returned, seen := make(chan struct{}), make(chan struct{}), make(chan bool, 1)
	ops := 0
	c, _, closeAll := p.gather(t, late.Options{}, Options{HostRan: func(HostWork) { <-begun; panic(errFragile) }},
		func(ctx context.Context, dev int, c late.Call) error {
			if dev > 0 || c.Kind != late.Run {
				return nil
			}
			if ops++; ops != own+1 { // the second instance's first
				return nil
			}
			close(begun)
			<-ctx.Done()
			select {
			case <-returned:
				seen <- true
			case <-time.After(100 * time.Millisecond): // which the pass waits for
				seen <- false
			}
			return ctx.Err()
		})
	err := c.Pass(t.Context(), p.plan, newTransfer(l.Graph, instances))
	close(returned)
	if <-seen || !errors.Is(err, errFragile) {
		t.Errorf("the device's side goes on, or %v", err)
	}
	closeAll()
}

// TestStatesMoveBetweenSides: passes of plans that have the same states on this side or the other, in turns, give what one
// device gives.
func TestStatesMoveBetweenSides(t *testing.T) {
	const width, passes = 16, 12
	host := cpu.New(1, graph.Standard())
	defer host.Close()
	l := changing(t, host, width, 4)
	one, err := pager.New(host, pager.Options{})
	if err != nil {
		t.Fatal(err)
	}
	resident := mustPlan(t, l, search.Options{Mode: plan.Resident})
	all := parties(t, l, host, width, 1)[:1]
	for _, pinned := range []int{0, 1, 3, 4} {
		all = append(all, party{devices: 1, plan: mustPlan(t, l, search.Options{
			Mode: plan.Chunk, Target: emu, Lower: host.Lower, HostLower: host.Lower,
			Capacity: plan.Limit{N: int64(pinned*width*width) + 1, Unit: plan.Params},
		})})
	}
	c, _, closeAll := all[0].gather(t, late.Options{}, Options{}, nil)
	for n := range passes {
		want, got := newPair(l.Graph, n), newPair(l.Graph, n)
		if err := errors.Join(one.Pass(t.Context(), resident, want), c.Pass(t.Context(), all[n*2%5].plan, got)); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.y, want.y) {
			t.Errorf("pass %d: other bits", n)
		}
	}
	closeAll()
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestFewerInstancesThanPlanned: of a pass that fewer share than the plan has room for, those that are there run, each for
// itself, and an instance that leaves on one side runs on none after it.
func TestFewerInstancesThanPlanned(t *testing.T) {
	const width, instances = 16, 4
	host := cpu.New(1, graph.Standard())
	defer host.Close()
	l := network(t, host, width, 4)
	want := alone(t, host, l, instances)
	for _, p := range parties(t, l, host, width, instances) {
		for there := 1; there <= instances; there++ {
			c, _, closeAll := p.gather(t, late.Options{}, Options{}, nil)
			for leaver := -1; leaver < there; leaver++ {
				io, want := want.part(0, there)
				x := &stopping{transfer: io, leaver: leaver}
				err := c.Pass(t.Context(), p.plan, x)
				for _, left := range x.left {
					if left != leaver {
						t.Errorf("%s, %d instances: instance %d leaves", p.name, there, left)
					}
				}
				for i := range there {
					if i == leaver {
						io.out[i] = want.out[i]
					}
				}
				if err = errors.Join(err, io.sameAs(want)); err != nil {
					t.Fatalf("%s, %d instances, %d leaves: %v", p.name, there, leaver, err)
				}
			}
			closeAll()
		}
	}
}

// TestToldOfOps: an observer is told of every op of every instance once, with its number in the program.
func TestToldOfOps(t *testing.T) {
	const width = 16
	host := cpu.New(1, graph.Standard())
	defer host.Close()
	l := network(t, host, width, 5)
	for _, instances := range []int{1, 3} {
		for _, p := range parties(t, l, host, width, instances) {
			told := make(map[[2]int]int)
			o := pager.Options{ObserveOps: true, Observe: func(e pager.Event) {
				switch e.Kind {
				case pager.OpDone:
					told[[2]int{e.Op, e.Instance}]++
					if op := &l.Graph.Ops[e.Op]; op.Kind != e.OpKind || op.Path != e.Path {
						t.Errorf("%s: op %d is a %s at %q, and a %s at %q is told", p.name, e.Op, op.Kind, op.Path, e.OpKind, e.Path)
					}
					fallthrough
				case pager.GroupDone:
					if g := &p.plan.Groups[e.Group]; e.Kind == pager.OpDone && (e.Op < g.First || e.Op >= g.End) {
						t.Errorf("%s: op %d is told of with group %d, which has ops %d to %d", p.name, e.Op, e.Group, g.First, g.End)
					}
				}
			}}
			c, _, closeAll := p.gather(t, late.Options{}, Options{Device: o, Host: o}, nil)
			if err := c.Pass(t.Context(), p.plan, newTransfer(l.Graph, instances)); err != nil {
				t.Fatal(err)
			}
			for op := range l.Graph.Ops {
				for i := range instances {
					if n := told[[2]int{op, i}]; n != 1 {
						t.Errorf("%s: op %d of instance %d is told of %d times", p.name, op, i, n)
					}
				}
			}
			closeAll()
		}
	}
}

// TestToldOfTheHostsWork: who keeps a clock is told of the host's groups in their order, each for all instances, and which
// is the last before the pass ends.
func TestToldOfTheHostsWork(t *testing.T) {
	const width = 16
	host := cpu.New(1, graph.Standard())
	defer host.Close()
	l := network(t, host, width, 6)
	for _, instances := range []int{1, 3} {
		for _, p := range parties(t, l, host, width, instances) {
			var told []HostWork
			c, _, closeAll := p.gather(t, late.Options{}, Options{HostRan: func(w HostWork) { told = append(told, w) }}, nil)
			if err := c.Pass(t.Context(), p.plan, newTransfer(l.Graph, instances)); err != nil {
				t.Fatal(err)
			}
			ran := make(map[int]int)
			segments := p.plan.Sides.Segments
			for i, w := range told {
				for k := w.Segment.First; k < w.Segment.End; k++ {
					ran[k] += w.Instances
				}
				endsPass := i == len(told)-1 && segments[len(segments)-1].OnHost
				if w.Last != endsPass || w.Plan != p.plan.Sides.Host {
					t.Errorf("%s: work %d of %d: last is %v", p.name, i, len(told), w.Last)
				}
			}
			for k, n := range ran {
				if n != instances {
					t.Errorf("%s: the host's group %d ran for %d instances", p.name, k, n)
				}
			}
			if groups := len(p.plan.Sides.Host.Groups); p.devices == 1 && len(ran) != groups || p.devices > 1 && len(told) > 0 {
				t.Errorf("%s: told of %d groups of %d", p.name, len(ran), groups)
			}
			closeAll()
		}
	}
}

// TestWhatSidesHold: the memory that is said to be held is what devices gave, with what values cross through, none of it is
// left after it is given back, and the next pass takes it again.
func TestWhatSidesHold(t *testing.T) {
	const width, instances = 64, 3
	host := cpu.New(1, graph.Standard())
	defer host.Close()
	l := network(t, host, width, 5)
	want := alone(t, host, l, instances)
	for _, p := range parties(t, l, host, width, instances) {
		c, devices, closeAll := p.gather(t, late.Options{}, Options{}, nil)
		for range 2 {
			io, want := want.part(0, instances)
			if err := errors.Join(c.Pass(t.Context(), p.plan, io), io.sameAs(want)); err != nil {
				t.Fatalf("%s: %v", p.name, err)
			}
			if n := c.HostBytes(); p.plan.Sides.CrossingBytes == 0 || n < p.plan.Sides.CrossingBytes {
				t.Errorf("%s: %d bytes of host memory, %d cross", p.name, n, p.plan.Sides.CrossingBytes)
			}
			var most, all int64
			for i := range p.devices {
				used := usedBytes(devices[i])
				most, all = max(most, used), all+used
			}
			if held, _ := c.Held(); held.Total() != all || p.devices > 1 && c.MostHeld() != most {
				t.Errorf("%s: %d bytes are said to be held, %d at most, and %d are, %d at most", p.name, held.Total(), c.MostHeld(), all, most)
			}
			if err := c.GiveBack(t.Context()); err != nil {
				t.Fatal(err)
			}
			if held, onHost := c.Held(); held.Total() != 0 || onHost.Total() != 0 || c.HostBytes() != 0 {
				t.Errorf("%s: %d, %d and %d bytes are held after they were given back", p.name, held.Total(), onHost.Total(), c.HostBytes())
			}
		}
		closeAll()
	}
}

// usedBytes is what is taken of a device's memory.
func usedBytes(d device.Device) int64 {
	total, free := d.Memory()
	return total - free
}

// TestANewBoundIsForEveryDevice: what a plan for many instances took is given back by each device where a new bound leaves
// no room for it beside the next plan.
func TestANewBoundIsForEveryDevice(t *testing.T) {
	const width = 64
	host := cpu.New(1, graph.Standard())
	defer host.Close()
	l := network(t, host, width, 5)
	many, one := parties(t, l, host, width, 8), parties(t, l, host, width, 1)
	for _, large := range many {
		for _, small := range one {
			if small.name != large.name || large.devices == 1 {
				continue
			}
			t.Run(fmt.Sprint(large.name), func(t *testing.T) {
				c, _, closeAll := large.gather(t, late.Options{}, Options{}, nil)
				if err := c.Pass(t.Context(), small.plan, newTransfer(l.Graph, 1)); err != nil {
					t.Fatal(err)
				}
				bound := c.MostHeld()
				if err := c.Pass(t.Context(), large.plan, newTransfer(l.Graph, 8)); err != nil {
					t.Fatal(err)
				}
				c.Bound(bound)
				if err := c.Pass(t.Context(), small.plan, newTransfer(l.Graph, 1)); err != nil {
					t.Fatal(err)
				}
				for i, p := range c.pagers {
					if held := p.Held().Total(); held > bound {
						t.Errorf("device %d holds %d bytes, more than %d", i, held, bound)
					}
				}
				closeAll()
			})
		}
	}
}
