package pager

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/device/emulated"
	"github.com/optimem/optimem/device/late"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/search"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// forked returns layers of which each is computed with one of two weights, as a flag of its own says. Its outputs are a
// row of the result, what the first layer gives, and what the first layer gives where its flag is set.
func forked(t testing.TB, dev *cpu.Device, dtype tensor.DType, width, depth int) (*graph.Lowered, *file) {
	t.Helper()
	size := int64(dtype.Size())
	n := int64(width*width) * size
	src := newFile(2 * n * int64(depth))
	for i := range int64(len(src.data)) / size {
		putNumber(src.data[i*size:], dtype, float32(int32(i*2654435761%2001)-1000)/3000)
	}
	g := &graph.Graph{}
	emit := func(op graph.Op) graph.Operand {
		out, err := g.Emit(graph.Standard(), op)
		if err != nil {
			t.Fatal(err)
		}
		return g.Whole(out[0])
	}
	x := g.Whole(g.AddInput("x", dtype, tensor.Shape{2, width}))
	flags := g.AddInput("flags", tensor.Bool, tensor.Shape{depth})
	var tap, early graph.Operand
	for i := range depth {
		flag := graph.Operand{Value: flags, Layout: tensor.Layout{Shape: tensor.Shape{}, Strides: []int{}, Offset: i}}
		var made [2]graph.Operand
		for k, want := range []bool{true, false} {
			guard := []graph.Guard{{Predicate: flag, Want: want}}
			path := fmt.Sprintf("%d.%v", i, want)
			w := g.AddWeight(tensor.Weight{
				Name: path + ".weight", DType: dtype, Layout: tensor.Contiguous(width, width),
				Extent: storage.Extent{Source: src, Offset: int64(2*i+k) * n, Bytes: n},
			}, graph.Weight)
			y := emit(graph.Op{
				Kind: "linear", Path: path, Guard: guard,
				In: []graph.Operand{x, {Value: w, Layout: tensor.Contiguous(width, width)}},
			})
			made[k] = emit(graph.Op{Kind: "tanh", Path: path, Guard: guard, In: []graph.Operand{y}})
		}
		x = emit(graph.Op{Kind: "choose", Path: fmt.Sprint(i), In: []graph.Operand{flag, made[0], made[1]}})
		if i == 0 {
			tap, early = made[0], x
		}
		if i < 2 {
			constant := make([]byte, 2*int64(width)*size)
			for k := range int64(2 * width) {
				putNumber(constant[k*size:], dtype, float32(int(k)%5-i)/4)
			}
			c := g.AddConst(&tensor.Tensor{DType: dtype, Layout: tensor.Contiguous(2, width), Data: constant})
			x = emit(graph.Op{Kind: "add", Path: fmt.Sprint(i), In: []graph.Operand{x, g.Whole(c)}})
		}
	}
	row := graph.Operand{Value: x.Value, Layout: tensor.Layout{Shape: tensor.Shape{width}, Strides: []int{1}, Offset: width}}
	g.Outputs = []graph.Output{{Name: "row", Operand: row}, {Name: "early", Operand: early}, {Name: "tap", Operand: tap}}
	l, err := dev.Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	return l, src
}

func putNumber(to []byte, dtype tensor.DType, x float32) {
	switch dtype {
	case tensor.Float16:
		binary.NativeEndian.PutUint16(to, tensor.Float16FromFloat32(x))
	case tensor.Float32:
		binary.NativeEndian.PutUint32(to, math.Float32bits(x))
	default:
		panic("BUG: " + dtype.String())
	}
}

// calls are an IO over memory of several instances with all inputs and outputs.
type calls struct {
	g    *graph.Graph
	in   []map[graph.ValueID][]byte
	out  [][][]byte
	made [][]bool
	// want has what each instance gives by itself, nil where it is not made.
	want [][][]byte
}

// newCalls returns the inputs of the n-th pass with what a program gives that is interpreted op by op.
func newCalls(t testing.TB, l *graph.Lowered, src *file, instances, n int) *calls {
	t.Helper()
	pool := cpu.NewPool(1)
	defer pool.Close()
	x := &calls{g: l.Graph}
	for i := range instances {
		in, given := make(map[graph.ValueID][]byte), make(map[string]*tensor.Tensor)
		for _, id := range l.Graph.Inputs {
			v := &l.Graph.Values[id]
			data := make([]byte, v.Bytes())
			if size := v.DType.Size(); v.DType == tensor.Bool {
				for k := range data {
					data[k] = byte((k*(i+2)+n+i+1)/2%2) & 1
				}
			} else {
				for k := range len(data) / size {
					putNumber(data[k*size:], v.DType, float32((k*7+i*13+n*5)%11)-5)
				}
			}
			in[id] = data
			given[v.Name] = &tensor.Tensor{DType: v.DType, Layout: tensor.Contiguous(v.Shape...), Data: data}
		}
		storage := func(v graph.Value) ([]byte, error) {
			return src.data[v.Weight.Extent.Offset:][:v.Weight.Extent.Bytes], nil
		}
		alone, err := cpu.Interpret(t.Context(), pool, graph.Standard(), l.Graph, storage, given)
		if err != nil {
			t.Fatal(err)
		}
		var out, want [][]byte
		for k, o := range l.Graph.Outputs {
			made := len(in) < 2 || k != 2 || in[l.Graph.Inputs[1]][0] != 0
			out, want = append(out, make([]byte, len(alone[o.Name].Data))), append(want, nil)
			if made {
				want[k] = alone[o.Name].Data
			}
		}
		x.in, x.out, x.want, x.made = append(x.in, in), append(x.out, out), append(x.want, want), append(x.made, make([]bool, len(out)))
	}
	return x
}

func (x *calls) Input(instance int, id graph.ValueID) []byte { return x.in[instance][id] }

func (x *calls) Output(instance, output int, made bool) []byte {
	x.made[instance][output] = made
	if !made {
		return nil
	}
	return x.out[instance][output]
}

// differ says which output of an instance is not what it gives by itself.
func (x *calls) differ(instance int) error {
	for k, want := range x.want[instance] {
		if made := want != nil; made != x.made[instance][k] {
			return fmt.Errorf("instance %d, output %d: made is %v", instance, k, !made)
		} else if made && !bytes.Equal(x.out[instance][k], want) {
			return fmt.Errorf("instance %d, output %d: other numbers", instance, k)
		}
	}
	return nil
}

func (x *calls) differs() error {
	var errs []error
	for i := range x.out {
		errs = append(errs, x.differ(i))
	}
	return errors.Join(errs...)
}

// mark fills what an instance gives, so that whoever writes there is seen.
func (x *calls) mark(instance int) {
	for _, out := range x.out[instance] {
		for i := range out {
			out[i] = 0xa5
		}
	}
}

// touched reports whether anything was written since mark.
func (x *calls) touched(instance int) bool {
	for _, out := range x.out[instance] {
		for _, b := range out {
			if b != 0xa5 {
				return true
			}
		}
	}
	return false
}

var emu = plan.Target{Name: "emu", AlignBytes: 256, Pins: true}

// lateOptions are plans that take every way to a device with memory of its own, where it may take so much of the host's.
func lateOptions(t testing.TB, l *graph.Lowered, host *cpu.Device, hostBytes int64) map[string]*plan.Plan {
	all := make(map[string]*plan.Plan)
	for name, o := range map[string]search.Options{
		"resident": {Mode: plan.Resident}, "copies": {Mode: plan.Page}, "one slot": {Mode: plan.Page, Slots: 1},
		"staged": {Mode: plan.Page, HostBytes: hostBytes}, "two staged": {Mode: plan.Page, Slots: 2, HostBytes: hostBytes},
		"some stay": {Mode: plan.Auto, HostBytes: hostBytes},
	} {
		for _, o.Instances = range []int{1, 3} {
			o.Target, o.Lower = emu, host.Lower
			if o.Mode == plan.Auto {
				whole := mustPlan(t, l, search.Options{Mode: plan.Resident, Target: emu, Instances: o.Instances})
				paged := mustPlan(t, l, search.Options{Mode: plan.Page, Target: emu, Instances: o.Instances, Lower: host.Lower})
				o.MemoryBytes = max(whole.PeakBytes()*2/3, paged.MinBytes)
			}
			all[fmt.Sprintf("%s/%d", name, o.Instances)] = mustPlan(t, l, o)
		}
	}
	return all
}

// TestLateDevice: a device that copies and computes as late as it may, in an order that only events bind, gives what the
// interpreter gives, pass after pass with other inputs, where ops are given out together, too.
func TestLateDevice(t *testing.T) {
	host := newCPU(t)
	for _, dtype := range []tensor.DType{tensor.Float32, tensor.Float16} {
		l, src := forked(t, host, dtype, 24, 4)
		plans := lateOptions(t, l, host, 24<<10)
		least := search.Options{Mode: plan.Page, Target: emu, Lower: host.Lower}
		least.MemoryBytes = mustPlan(t, l, least).MinBytes
		plans["least"] = mustPlan(t, l, least)
		for name, made := range plans {
			for seed := range uint64(4) {
				dev := late.New(emulated.New(emulated.Options{CheckOrder: true, Threads: 1}), late.Options{Seed: seed, Keeps: seed%2 == 1})
				p := newPager(t, dev, Options{})
				for n := range 4 {
					x := newCalls(t, l, src, made.Instances, n)
					if err := p.Pass(t.Context(), made, x); err != nil {
						t.Fatalf("%s, %v, seed %d, pass %d: %v", name, dtype, seed, n, err)
					}
					if err := x.differs(); err != nil {
						t.Fatalf("%s, %v, seed %d, pass %d: %v\n%v", name, dtype, seed, n, err, made)
					}
				}
				if err := errors.Join(p.Close(), dev.Close()); err != nil {
					t.Fatalf("%s, seed %d: %v", name, seed, err)
				}
			}
		}
	}
}

// A trouble is what becomes of one call of a device.
type trouble struct {
	name string
	// later has what was given to a stream fail when it is done; waits has a call that may be cancelled wait for that.
	later, waits bool
}

var troubles = []trouble{{name: "fails"}, {name: "fails later", later: true}, {name: "is cancelled", waits: true}}

// troubled returns a device of which the n-th call is in trouble, and a context that is done once it waits. hit has the kind
// of that call once there was one.
func troubled(ctx context.Context, dev device.Device, what trouble, n int, o late.Options) (
	_ *late.Device, _ context.Context, hit chan late.Kind,
) {
	ctx, cancel := context.WithCancel(ctx)
	hit = make(chan late.Kind, 1)
	o.Later = what.later
	o.Before = func(ctx context.Context, c late.Call) error {
		if c.N != n {
			return nil
		}
		hit <- c.Kind
		if !what.waits {
			return errLost
		}
		cancel()
		if ctx.Done() == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Minute):
			return errors.New("nobody told a call that waits that the pass is cancelled")
		}
	}
	return late.New(dev, o), ctx, hit
}

// TestEveryCall makes every call of a device fail, fail later, or wait until it is cancelled. The error comes back, the
// caller's memory is left alone from then on, and the next passes give what they should with no memory more than planned.
func TestEveryCall(t *testing.T) {
	host := newCPU(t)
	l, src := forked(t, host, tensor.Float32, 16, 3)
	var x [3][]*calls // by instances and pass
	for _, instances := range []int{1, 3} {
		for n := range 4 {
			x[instances-1] = append(x[instances-1], newCalls(t, l, src, instances, n))
		}
	}
	step := 1
	if testing.Short() {
		step = 13
	}
	for name, made := range lateOptions(t, l, host, 12<<10) {
		for k, what := range troubles {
			for n := 1 + k; ; n += step {
				inner := emulated.New(emulated.Options{CheckOrder: true, Threads: 1})
				dev, ctx, hit := troubled(t.Context(), inner, what, n, late.Options{Seed: uint64(n), Keeps: n%2 == 0})
				p := newPager(t, dev, Options{})
				where := fmt.Sprintf("%s: call %d %s", name, n, what.name)
				failed := -1
				for pass := range 4 {
					io := x[made.Instances-1][pass]
					use := ctx
					if failed >= 0 {
						use = t.Context()
					}
					err := p.Pass(use, made, io)
					switch {
					case err == nil:
						if err := io.differs(); err != nil {
							t.Fatalf("%s, pass %d, failed was %d: %v\n%v", where, pass, failed, err, made)
						}
						continue
					case failed >= 0 || what.waits != errors.Is(err, context.Canceled) || !what.waits && !errors.Is(err, errLost):
						t.Fatalf("%s, pass %d, failed was %d: %v\n%v", where, pass, failed, err, made)
					}
					failed = pass
					for i := range made.Instances {
						io.mark(i)
					}
					dev.Drain()
					for i := range made.Instances {
						if io.touched(i) {
							t.Fatalf("%s: what instance %d gives is written after the pass", where, i)
						}
					}
				}
				if held := p.Held().Total(); held != made.PassBytes() {
					t.Errorf("%s: %d bytes are held, %d planned", where, held, made.PassBytes())
				}
				if err := errors.Join(p.Close(), dev.Close()); err != nil {
					t.Fatalf("%s: %v", where, err)
				}
				if len(hit) == 0 {
					break // there is no such call
				}
				// What was brought for a fifth pass may fail unseen.
				if kind := <-hit; failed < 0 && n < dev.Calls()/2 && !what.waits && kind != late.Sync && kind != late.EventSync {
					t.Errorf("%s: nobody was told\n%v", where, made)
				}
			}
		}
	}
}
