package pager

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/optimem/optimem/device/emulated"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/search"
	"github.com/optimem/optimem/tensor"
)

// TestObservedRows: an embedding whose rows are brought is told of as the op that it is, on a device that files are read
// into and on one with memory of its own; one whose indices are out of bounds is not.
func TestObservedRows(t *testing.T) {
	const instances = 3
	l, _ := sentence(t, tensor.Int64)
	host := newCPU(t)
	for _, target := range []plan.Target{plan.CPU, {Name: "emu", AlignBytes: 256}} {
		made := mustPlan(t, l, search.Options{
			Mode: plan.Page, Target: target, Instances: instances, Lower: host.Lower, MemoryBytes: 1 << 20,
		})
		if len(made.Gathers) != 1 {
			t.Fatalf("the table is there\n%v", made)
		}
		told := make(map[Event]int)
		o := Options{ObserveOps: true, Observe: func(e Event) {
			if e.Kind == OpDone {
				e.Took, e.Begin, e.End = 0, time.Time{}, time.Time{}
				told[e]++
			}
		}}
		p := newPager(t, host, Options{})
		watched := newPager(t, host, o)
		if !target.Direct {
			p = newPager(t, emulated.New(emulated.Options{}), Options{})
			watched = newPager(t, emulated.New(emulated.Options{CheckOrder: true}), o)
		}
		want, got := spoken(l, instances), spoken(l, instances)
		if err := errors.Join(p.Pass(t.Context(), made, want), watched.Pass(t.Context(), made, got)); err != nil {
			t.Fatal(err)
		}
		ops := made.Lowered.Graph.Ops
		for i := range instances {
			if !bytes.Equal(got.out[i], want.out[i]) {
				t.Errorf("%s, instance %d: other bits", target.Name, i)
			}
			for op := range ops {
				for k := range made.Groups {
					e := Event{Kind: OpDone, Group: k, Op: op, Path: ops[op].Path, OpKind: ops[op].Kind, Instance: i}
					if g := &made.Groups[k]; g.First <= op && op < g.End && told[e] != 1 {
						t.Errorf("%s: %+v is told %d times", target.Name, e, told[e])
					}
				}
			}
		}
		if len(told) != len(ops)*instances {
			t.Errorf("%s: told %v", target.Name, told)
		}
		clear(told)
		clear(got.in[1]) // the word 0
		got.in[1][7] = 0x7f
		if err := watched.Pass(t.Context(), made, got); err == nil {
			t.Fatal("no error")
		}
		for e := range told {
			if e.Instance != 0 || e.Op != made.Gathers[0].Op {
				t.Errorf("%s: after the error %+v is told", target.Name, e)
			}
		}
	}
}
