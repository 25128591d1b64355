package cpu

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	goruntime "runtime"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/device/devicetest"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// newDevice returns a device of two threads and a stream of it, which are closed behind the test.
func newDevice(t *testing.T, ops *graph.Registry) (*Device, device.Stream) {
	t.Helper()
	d := New(2, ops)
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d, s
}

// regionOf returns a region of its own memory, which holds bytes.
func regionOf(t *testing.T, d *Device, s device.Stream, data []byte) device.Region {
	t.Helper()
	m, err := d.Alloc(int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Free() })
	r := device.Region{Memory: m, Bytes: int64(len(data))}
	if err := s.CopyIn(r, data); err != nil {
		t.Fatal(err)
	}
	return r
}

// Memory that was freed is not in use, however often it was freed.
func TestDeviceMemoryIsCountedOnce(t *testing.T) {
	d, _ := newDevice(t, graph.Standard())
	kept, err := d.Alloc(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	gone, err := d.Alloc(3 << 20)
	if err != nil {
		t.Fatal(err)
	}
	if used, _ := d.Memory(); used != 4<<20 {
		t.Errorf("%d bytes are in use", used)
	}
	for range 3 {
		if err := gone.Free(); err != nil {
			t.Fatal(err)
		}
		if used, _ := d.Memory(); used != kept.Bytes() {
			t.Errorf("%d bytes are in use of %d", used, kept.Bytes())
		}
	}
	if err := kept.Free(); err != nil {
		t.Fatal(err)
	}
	if used, _ := d.Memory(); used != 0 {
		t.Errorf("%d bytes are in use after all were freed", used)
	}
}

// Copies to a device and back are whole, whatever their size is and wherever in the memory they lie.
func TestDeviceCopies(t *testing.T) {
	d, s := newDevice(t, graph.Standard())
	const room = 700_000
	r := regionOf(t, d, s, make([]byte, room))
	rng := rand.New(rand.NewPCG(41, 42))
	for _, n := range []int{1, 4095, 128 << 10, 128<<10 + 1, 256 << 10, 300_001, 650_003} {
		data := make([]byte, n)
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		part := device.Region{Memory: r.Memory, Offset: int64(rng.IntN(room - n)), Bytes: int64(n)}
		if err := s.CopyIn(part, data); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, n)
		if err := s.CopyOut(got, part); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, data) {
			t.Errorf("%d bytes did not come back as they were", n)
		}
	}
}

// A stream takes weights that it packed, and gives the bits that it gives for raw ones.
func TestDeviceTakesPackedWeights(t *testing.T) {
	d, s := newDevice(t, graph.Standard())
	const rows, n, k = 3, 70, 90
	rng := rand.New(rand.NewPCG(43, 44))
	x, w := noise(rng, rows, k), noise(rng, n, k)
	g := &graph.Graph{}
	in := []graph.Operand{
		g.Whole(g.AddInput("x", x.DType, x.Layout.Shape)), g.Whole(g.AddInput("w", w.DType, w.Layout.Shape)),
	}
	out, err := g.Emit(graph.Standard(), graph.Op{Kind: "linear", In: in})
	if err != nil {
		t.Fatal(err)
	}
	lowered, err := d.Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	op, step := g.Ops[0], lowered.Steps[0]
	if len(step.Packs) == 0 {
		t.Skip("no kernels take weights packed here")
	}
	argument := func(o graph.Operand, data []byte) device.Argument {
		return device.Argument{Region: regionOf(t, d, s, data), Operand: o, Spec: g.Spec(o)}
	}
	launch := device.Launch{
		Step: step, Op: op, In: []device.Argument{argument(in[0], x.Data), argument(in[1], w.Data)},
		Out:  []device.Argument{argument(g.Whole(out[0]), make([]byte, 4*rows*n))},
		Work: regionOf(t, d, s, make([]byte, step.WorkBytes)),
	}
	result := func() []byte {
		t.Helper()
		if err := s.Run(t.Context(), launch); err != nil {
			t.Fatal(err)
		}
		y := make([]byte, 4*rows*n)
		if err := s.CopyOut(y, launch.Out[0].Region); err != nil {
			t.Fatal(err)
		}
		return y
	}
	want := result()
	pack := step.Packs[0]
	packed := launch.In[pack.In]
	packed.Region, packed.Packed = regionOf(t, d, s, make([]byte, pack.Bytes)), true
	if err := s.(device.Packer).Pack(t.Context(), &op, pack, launch.In[pack.In], packed.Region); err != nil {
		t.Fatal(err)
	}
	launch.In[pack.In] = packed
	if !bytes.Equal(result(), want) {
		t.Error("packed weights give other bits")
	}
}

// A stream calls what it was told to while its ops run, and no other stream of the device does.
func TestStreamYields(t *testing.T) {
	d, s := newDevice(t, graph.Standard())
	other, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	const n = 1 << 20
	g := &graph.Graph{}
	x := g.Whole(g.AddInput("x", tensor.Float32, tensor.Shape{n}))
	out, err := g.Emit(graph.Standard(), graph.Op{Kind: "gelu", In: []graph.Operand{x}})
	if err != nil {
		t.Fatal(err)
	}
	y := g.Whole(out[0])
	argument := func(o graph.Operand) device.Argument {
		return device.Argument{Region: regionOf(t, d, s, make([]byte, 4*n)), Operand: o, Spec: g.Spec(o)}
	}
	launch := device.Launch{Op: g.Ops[0], In: []device.Argument{argument(x)}, Out: []device.Argument{argument(y)}}
	calls := 0 // not atomic: the race detector would tell of another goroutine
	s.(device.Yielder).Meanwhile(func() { calls++ })
	run := func(s device.Stream) {
		t.Helper()
		if err := s.Run(t.Context(), launch); err != nil {
			t.Fatal(err)
		}
	}
	if run(other); calls > 0 {
		t.Errorf("another stream called it %d times", calls)
	}
	for range 50 { // the other thread may do all parts of an op
		if run(s); calls > 0 {
			return
		}
	}
	t.Error("50 ops never called it")
}

// An embedder's kernel is given operands that lie in order, whatever the views are.
func TestReferenceKernelsGetContiguousOperands(t *testing.T) {
	var got []float32
	ops, err := graph.Standard().With(graph.OpDef{
		Kind:  "test::look",
		Shape: func(in []graph.Spec, _ graph.Attrs) ([]graph.Spec, error) { return in[:1], nil },
		Reference: func(in, out []*tensor.Tensor, _ graph.Attrs) error {
			if !in[0].Layout.IsContiguous() || in[0].Layout.Offset != 0 || in[1] != nil {
				t.Errorf("operands %v and %v", in[0].Layout, in[1])
			}
			got = slices.Clone(numbersOf(in[0]))
			copy(out[0].Data, in[0].Data)
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	x := tensor.Of([]float32{9, 1, 2, 3, 4, 5, 6}, 7)
	x.Layout = tensor.Layout{Shape: tensor.Shape{3, 2}, Strides: []int{1, 3}, Offset: 1}
	want := []float32{1, 4, 2, 5, 3, 6}
	out, err := Compute(t.Context(), oneThread, ops, "test::look", nil, x, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) || !slices.Equal(numbersOf(out[0]), want) {
		t.Errorf("it got %v and gave %v, want %v", got, numbersOf(out[0]), want)
	}
}

// What a kernel panics with is no end that a context asked for, even where that is done.
func TestPanicsOfStoppedOps(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	ops, err := graph.Standard().With(graph.OpDef{
		Kind:  "test::panic",
		Shape: func(in []graph.Spec, _ graph.Attrs) ([]graph.Spec, error) { return in, nil },
		Reference: func([]*tensor.Tensor, []*tensor.Tensor, graph.Attrs) error {
			cancel()
			panic("its own")
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	d, _ := newDevice(t, ops)
	defer func() {
		if v := recover(); v != "its own" {
			t.Errorf("it ended with %v", v)
		}
	}()
	x := Operand{Bytes: make([]byte, 4), DType: tensor.Float32, Layout: tensor.Contiguous(1)}
	err = d.Compute(ctx, &graph.Op{Kind: "test::panic"}, []Operand{x}, []Operand{x}, nil)
	t.Errorf("it gave %v", err)
}

// TestStreamCopies: what does not fit into a region, or is not in it, is an error.
func TestStreamCopies(t *testing.T) {
	d, _ := newDevice(t, graph.Standard())
	devicetest.Copies(t, d)
}

// TestGuess: a device that nobody measured is guessed to do in a second what its threads do.
func TestGuess(t *testing.T) {
	defer goruntime.GOMAXPROCS(goruntime.GOMAXPROCS(2))
	guess := func(threads int) (flops, bytes float64) {
		d := New(threads, graph.Standard())
		defer d.Close()
		return d.Guess()
	}
	flops, bytes := guess(1)
	if flops2, bytes2 := guess(2); flops < goFLOPs || bytes <= 0 || flops2 != 2*flops || bytes2 != 2*bytes {
		t.Errorf("one thread does %g operations and reads %g bytes, two %g and %g", flops, bytes, flops2, bytes2)
	}
	if flops3, _ := guess(3); flops3 != 2*flops {
		t.Errorf("three threads on two processors do %g operations, one %g", flops3, flops)
	}
}

// An expiring context is done once it was asked so many times.
type expiring struct {
	context.Context
	left atomic.Int64
}

func (e *expiring) Done() <-chan struct{} { return make(chan struct{}) }

func (e *expiring) Err() error {
	if e.left.Add(-1) >= 0 {
		return nil
	}
	return context.Canceled
}

// TestStoppedOp: an op ends with its context's error in the middle of its work.
func TestStoppedOp(t *testing.T) {
	for _, threads := range []int{1, 2} {
		d := New(threads, graph.Standard())
		ctx := &expiring{Context: context.Background()}
		ctx.left.Store(2)
		const rows, n = 256, 1024
		operand := func(rows, columns int) Operand {
			return Operand{Bytes: make([]byte, 4*rows*columns), DType: tensor.Float32, Layout: tensor.Contiguous(rows, columns)}
		}
		x, w, y := operand(rows, n), operand(n, n), operand(rows, n)
		op := graph.Op{Kind: "linear"}
		specs := func(list ...Operand) (s []graph.Spec) {
			for _, o := range list {
				s = append(s, graph.Spec{DType: o.DType, Shape: o.Layout.Shape})
			}
			return s
		}
		k, err := lookup(d.registry, op.Kind)
		if err != nil {
			t.Fatal(err)
		}
		work := make([]byte, k.ThreadsWorkBytes(threads, specs(x, w), specs(y), nil))
		err = d.Compute(ctx, &op, []Operand{x, w}, []Operand{y}, work)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%d threads: %v", threads, err)
		}
		if err := d.Compute(t.Context(), &op, []Operand{x, w}, []Operand{y}, work); err != nil {
			t.Errorf("%d threads, afterwards: %v", threads, err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}
