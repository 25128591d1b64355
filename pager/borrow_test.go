package pager

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/search"
	"github.com/optimem/optimem/tensor"
)

// Tests have callers lend what is small, too.
func init() { leastBorrowed = 1 }

// lying returns memory that lies as a CPU wants what it borrows to.
func lying(n int64) []byte {
	const align = 64
	var probe cpu.Device
	mem := make([]byte, n+2*align)
	for at := range align {
		if part := mem[at : int64(at)+n : int64(at)+n]; n == 0 || probe.Borrow(nil, part) != nil {
			return part
		}
	}
	panic("BUG: nothing lies so")
}

// A copyCounter is a CPU that counts what is copied to and from its memory.
type copyCounter struct {
	*cpu.Device
	in, out int64
}

func (d *copyCounter) NewStream() (device.Stream, error) {
	s, err := d.Device.NewStream()
	return &countingStream{s, d}, err
}

type countingStream struct {
	device.Stream
	d *copyCounter
}

// Pack implements device.Packer.
func (s *countingStream) Pack(ctx context.Context, op *graph.Op, p graph.Pack, src device.Argument, dst device.Region) error {
	return s.Stream.(device.Packer).Pack(ctx, op, p, src, dst)
}

func (s *countingStream) CopyIn(dst device.Region, src []byte) error {
	s.d.in += int64(len(src))
	return s.Stream.CopyIn(dst, src)
}

func (s *countingStream) CopyOut(dst []byte, src device.Region) error {
	s.d.out += int64(len(dst))
	return s.Stream.CopyOut(dst, src)
}

// TestBorrowed: on the CPU an input is read, and an output written, where the caller has it, if it lies as operands must,
// in every mode and by each instance: not a byte is copied, with the same bits. What lies otherwise is copied once, and a
// caller need not lend both.
func TestBorrowed(t *testing.T) {
	host := newCPU(t)
	l, _ := network(t, host, 3, 100, 300, 50, 300, 300)
	const instances = 3
	in, out := l.Graph.Values[l.Graph.Inputs[0]].Bytes(), l.Graph.Values[l.Graph.Outputs[0].Operand.Value].Bytes()
	want := newTransfer(l.Graph, instances)
	p := newPager(t, host, Options{})
	resident := mustPlan(t, l, search.Options{Mode: plan.Resident})
	for i := range instances {
		if err := p.Pass(t.Context(), resident, &transfer{want.in[i:], want.out[i:]}); err != nil {
			t.Fatal(err)
		}
	}
	for _, o := range []search.Options{
		{Mode: plan.Resident, Instances: instances}, {Mode: plan.Page, Instances: instances}, {Mode: plan.Page, Instances: instances, Slots: 1},
		{Mode: plan.Auto, MemoryBytes: resident.PeakBytes() * 3 / 4},
	} {
		dev := &copyCounter{Device: host}
		p, made := newPager(t, dev, Options{}), mustPlan(t, l, o)
		for pass, lent := range [][2]bool{{true, true}, {true, false}, {false, true}, {false, false}, {true, true}} {
			where := fmt.Sprintf("%s, %d instances, pass %d", o.Mode, made.Instances, pass)
			got := newTransfer(l.Graph, made.Instances)
			wantIn, wantOut := int64(0), int64(0)
			for i := range made.Instances {
				if !lent[0] {
					got.in[i], wantIn = append(lying(in + 8)[:4], got.in[i]...)[4:], wantIn+in
				}
				if !lent[1] {
					got.out[i], wantOut = lying(out + 8)[4:4+out], wantOut+out
				}
			}
			dev.in, dev.out = 0, 0
			if err := p.Pass(t.Context(), made, got); err != nil {
				t.Fatal(err)
			}
			if dev.in != wantIn || dev.out != wantOut {
				t.Errorf("%s: %d bytes are copied in, %d out, not %d and %d", where, dev.in, dev.out, wantIn, wantOut)
			}
			for i := range made.Instances {
				if !bytes.Equal(got.out[i], want.out[i]) || !bytes.Equal(got.in[i], want.in[i]) {
					t.Fatalf("%s: instance %d gives other bits, or its input was changed\n%v", where, i, made)
				}
			}
			if slices.ContainsFunc(p.current.loans, func(l loan) bool { return l.on || l.dst != nil || l.mem != nil && l.mem.Bytes() > 0 }) {
				t.Errorf("%s: what was lent is kept", where)
			}
		}
	}
}

// TestBorrowedOnce: what ops compute in place leaves an input that is lent as it is; an output that is made twice, or in
// parts, or is an input, is where it belongs as well.
func TestBorrowedOnce(t *testing.T) {
	host := newCPU(t)
	g := &graph.Graph{}
	emit := func(kind graph.Kind, in ...graph.Operand) graph.Operand {
		made, err := g.Emit(graph.Standard(), graph.Op{Kind: kind, Path: string(kind), In: in})
		if err != nil {
			t.Fatal(err)
		}
		return g.Whole(made[0])
	}
	x := g.Whole(g.AddInput("x", tensor.Float32, tensor.Shape{4, 32}))
	y := emit("relu", x)  // in the place of x
	z := emit("relu", y)  // in the place of y, were that not an output
	z = emit("add", z, x) // which still wants x
	half := z
	half.Layout = tensor.Layout{Shape: tensor.Shape{2, 32}, Strides: []int{32, 1}, Offset: 64}
	g.Outputs = []graph.Output{
		{Name: "y", Operand: y}, {Name: "again", Operand: y}, {Name: "half", Operand: half}, {Name: "z", Operand: z}, {Name: "x", Operand: x},
	}
	l, err := host.Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	dev := &copyCounter{Device: host}
	p, made := newPager(t, dev, Options{}), mustPlan(t, l, search.Options{Mode: plan.Resident, Instances: 2})
	io := &calls{g: g}
	for i := range 2 {
		numbers := make([]float32, 128)
		for k := range numbers {
			numbers[k] = float32((k*7+i*13)%11) - 5
		}
		in := lying(512)
		copy(in, tensor.Of(numbers, 128).Data)
		relu, sum := slices.Clone(numbers), slices.Clone(numbers)
		for k, v := range numbers {
			relu[k] = max(v, 0)
			sum[k] = relu[k] + v
		}
		a, b := tensor.Of(relu, 128).Data, tensor.Of(sum, 128).Data
		io.in, io.made = append(io.in, map[graph.ValueID][]byte{g.Inputs[0]: in}), append(io.made, make([]bool, len(g.Outputs)))
		io.want = append(io.want, [][]byte{a, a, b[256:], b, slices.Clone(in)})
		io.out = append(io.out, [][]byte{lying(512), lying(512), lying(256), lying(512), lying(512)})
	}
	if err := p.Pass(t.Context(), made, io); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if err := io.differ(i); err != nil {
			t.Error(err)
		}
		if !bytes.Equal(io.in[i][g.Inputs[0]], io.want[i][4]) {
			t.Error("an input that was lent is changed")
		}
	}
	if dev.in != 0 || dev.out != 2*(512+256+512) { // again, half and x
		t.Errorf("%d bytes are copied in, %d out", dev.in, dev.out)
	}
}
