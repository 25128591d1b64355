package pager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/optimem/optimem/device/emulated"
	"github.com/optimem/optimem/device/late"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/tensor"
)

// shares are calls of several callers, of whom some leave.
type shares struct {
	*calls
	there int
	// leaves says before which of an instance's groups it leaves, 0 for never.
	leaves []int
	asked  []int
	left   []error
	gone   []bool
	// bad is what was done with an instance after it had left.
	bad error
}

func (x *shares) Instances() int { return x.there }

func (x *shares) Wanted(i int) bool {
	x.asked[i]++
	if x.gone[i] {
		x.bad = fmt.Errorf("instance %d is asked for after it left", i)
	}
	return x.leaves[i] == 0 || x.asked[i] < x.leaves[i]
}

func (x *shares) Left(i int, err error) bool {
	if x.gone[i] {
		x.bad = fmt.Errorf("instance %d leaves again", i)
	}
	x.gone[i], x.left[i] = true, err
	x.mark(i)
	return slices.Contains(x.gone[:x.there], false)
}

func (x *shares) Input(i int, id graph.ValueID) []byte {
	if x.gone[i] {
		x.bad = fmt.Errorf("an input of instance %d is read after it left", i)
	}
	return x.calls.Input(i, id)
}

// TestInstancesThatLeave: whoever leaves before whichever group is let alone from then on, the others get what they would
// alone, and in the next pass everyone is there again.
func TestInstancesThatLeave(t *testing.T) {
	host := newCPU(t)
	l, src := forked(t, host, tensor.Float32, 16, 3)
	someLeave(t, host, l, src)
	l, src = tapped(t, host, tensor.Float32, 16, 16, 16, 16, 16)
	someLeave(t, host, l, src)
}

func someLeave(t *testing.T, host *cpu.Device, l *graph.Lowered, src *file) {
	t.Helper()
	const instances = 3
	want := newCalls(t, l, src, instances, 1)
	for name, made := range lateOptions(t, l, host, 12<<10) {
		if made.Instances != instances {
			continue
		}
		single := !slices.ContainsFunc(made.Groups, func(g plan.Group) bool { return g.Paged() })
		for n := range 4 * len(made.Groups) {
			for _, alone := range []bool{false, true} {
				if alone && !single {
					continue
				}
				dev := late.New(emulated.New(emulated.Options{CheckOrder: true, Threads: 1}), late.Options{Seed: uint64(n)})
				p := newPager(t, dev, Options{})
				where := fmt.Sprintf("%s, case %d, each by itself %v", name, n, alone)
				for pass := range 3 {
					x := &shares{
						calls: want, there: instances, leaves: make([]int, instances), asked: make([]int, instances),
						left: make([]error, instances), gone: make([]bool, instances),
					}
					for i := range instances {
						want.mark(i)
					}
					if pass < 2 { // one leaves, and another with it in some cases
						x.leaves[(n+pass)%instances] = 1 + n%len(made.Groups)
						if n%3 == 0 {
							x.leaves[(n+pass+1)%instances] = 1 + n/2%len(made.Groups)
						}
					}
					var err error
					if alone {
						err = eachByItself(t.Context(), p, made, x)
					} else {
						err = p.Pass(t.Context(), made, x)
					}
					if err != nil || x.bad != nil {
						t.Fatalf("%s, pass %d: %v, %v\n%v", where, pass, err, x.bad, made)
					}
					dev.Drain()
					for i := range instances {
						if x.gone[i] != (x.leaves[i] > 0) || x.left[i] != nil {
							t.Fatalf("%s, pass %d: instance %d has left: %v, %v", where, pass, i, x.gone[i], x.left[i])
						}
						if x.gone[i] && x.touched(i) {
							t.Fatalf("%s, pass %d: what instance %d gives is written after it left\n%v", where, pass, i, made)
						}
						if err := x.differ(i); !x.gone[i] && err != nil {
							t.Fatalf("%s, pass %d: %v\n%v", where, pass, err, made)
						}
					}
				}
				if err := errors.Join(p.Close(), dev.Close()); err != nil {
					t.Fatalf("%s: %v", where, err)
				}
			}
		}
	}
}

// eachByItself runs a pass one instance after the other.
func eachByItself(ctx context.Context, p *Pager, made *plan.Plan, io Shared) error {
	err := p.Begin(ctx, made)
	for i := 0; err == nil && i < io.Instances(); i++ {
		_, err = p.RunInstance(ctx, i, io)
	}
	if err == nil {
		err = p.Settle(ctx)
	}
	if err == nil {
		err = p.Finish(ctx, io)
	}
	if err == nil {
		p.Commit()
	}
	return err
}
