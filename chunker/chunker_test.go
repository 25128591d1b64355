package chunker

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/optimem/optimem/device/emulated"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/internal/hostmem"
	"github.com/optimem/optimem/pager"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/search"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// numbers is a source of small numbers.
type numbers struct{ data []byte }

func (s *numbers) Size() int64 { return int64(len(s.data)) }

func (s *numbers) ReadAt(ctx context.Context, p []byte, off int64) error {
	copy(p, s.data[off:])
	return ctx.Err()
}

// network returns layers one after the other, with a skip from the input of the second to the end.
func network(t *testing.T, dev *cpu.Device, width, depth int) *graph.Lowered {
	t.Helper()
	src := &numbers{make([]byte, 4*width*width*depth)}
	for i := range len(src.data) / 4 {
		x := float32(int32(i*2654435761%2001)-1000) / 30000
		binary.LittleEndian.PutUint32(src.data[i*4:], math.Float32bits(x))
	}
	g := &graph.Graph{}
	emit := func(path string, kind graph.Kind, in ...graph.Operand) graph.ValueID {
		out, err := g.Emit(graph.Standard(), graph.Op{Kind: kind, Path: path, In: in})
		if err != nil {
			t.Fatal(err)
		}
		return out[0]
	}
	x := g.AddInput("x", tensor.Float32, tensor.Shape{2, width})
	skip := x
	for i := range depth {
		n := int64(4 * width * width)
		w := g.AddWeight(tensor.Weight{
			Name: fmt.Sprint(i), DType: tensor.Float32, Layout: tensor.Contiguous(width, width),
			Extent: storage.Extent{Source: src, Offset: int64(i) * n, Bytes: n},
		}, graph.Weight)
		x = emit(fmt.Sprint(i), "linear", g.Whole(x), graph.Operand{Value: w, Layout: tensor.Contiguous(width, width)})
		x = emit(fmt.Sprint(i), "relu", g.Whole(x))
		if i == 0 {
			skip = x
			g.Outputs = append(g.Outputs, graph.Output{Name: "early", Operand: g.Whole(x)})
		}
	}
	x = emit("", "add", g.Whole(x), g.Whole(skip))
	g.Outputs = append(g.Outputs, graph.Output{Name: "y", Operand: g.Whole(x)})
	l, err := dev.Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A transfer is an IO over memory.
type transfer struct {
	in  [][]byte
	out [][2][]byte
}

func (x *transfer) Input(instance int, _ graph.ValueID) []byte { return x.in[instance] }
func (x *transfer) Output(instance, output int, _ bool) []byte { return x.out[instance][output] }

func newTransfer(g *graph.Graph, instances int) *transfer {
	x := &transfer{}
	for i := range instances {
		n := g.Values[g.Inputs[0]].Bytes()
		in := make([]byte, n)
		for k := range n / 4 {
			binary.LittleEndian.PutUint32(in[k*4:], math.Float32bits(float32((k*7+int64(i)*13)%11)-5))
		}
		x.in = append(x.in, in)
		x.out = append(x.out, [2][]byte{make([]byte, n), make([]byte, n)})
	}
	return x
}

// TestChunks pins prefixes of every length on an emulated device and runs the rest on the host: the bits are those of the
// host alone, the prefix is the largest that fits, activations cross once, and the memory is what was planned.
func TestChunks(t *testing.T) {
	const width, depth, instances = 200, 6, 3
	host := cpu.New(2, graph.Standard())
	defer host.Close()
	l := network(t, host, width, depth)
	resident, err := search.Plan(l, search.Options{Mode: plan.Resident, Instances: instances})
	if err != nil {
		t.Fatal(err)
	}
	want := newTransfer(l.Graph, instances)
	alone, err := pager.New(host, pager.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := alone.Pass(t.Context(), resident, want); err != nil {
		t.Fatal(err)
	}
	if err := alone.Close(); err != nil {
		t.Fatal(err)
	}
	for pinned := range depth + 1 {
		for _, hostBytes := range []int64{0, 3 * width * width * 4} {
			t.Run(fmt.Sprintf("pinned=%d/host=%d", pinned, hostBytes), func(t *testing.T) {
				made, err := search.Plan(l, search.Options{
					Mode: plan.Chunk, Target: plan.Target{Name: "emu", AlignBytes: 256}, Instances: instances,
					Capacity:  plan.Limit{N: int64(pinned*width*width) + 1, Unit: plan.Params},
					HostBytes: hostBytes, Lower: host.Lower, HostLower: host.Lower,
				})
				if err != nil {
					t.Fatal(err)
				}
				onHost := 0
				for _, g := range made.Groups {
					if g.OnHost {
						onHost++
					}
				}
				if onHost != depth-pinned {
					t.Fatalf("%d groups on the host, want %d\n%v", onHost, depth-pinned, made)
				}
				dev := emulated.New(emulated.Options{MemoryBytes: made.PeakBytes(), CheckOrder: true})
				c, err := New(dev, host, Options{})
				if err != nil {
					t.Fatal(err)
				}
				staging := hostmem.InUse(hostmem.Staging)
				for range 3 {
					got := newTransfer(l.Graph, instances)
					if err := c.Pass(t.Context(), made, got); err != nil {
						t.Fatal(err)
					}
					for i := range instances {
						for k := range 2 {
							if !bytes.Equal(got.out[i][k], want.out[i][k]) {
								t.Fatalf("instance %d, output %d: other bits", i, k)
							}
						}
					}
				}
				onDevice, onTheHost := c.Held()
				if onDevice.Total() != made.PassBytes() || dev.PeakBytes() != made.PeakBytes() {
					t.Errorf("%d bytes on the device, %d planned", onDevice.Total(), made.PeakBytes())
				}
				if made.Sides != nil && onTheHost.Total()+made.Sides.CrossingBytes+hostmem.InUse(hostmem.Staging)-staging > made.HostBytes() {
					t.Errorf("%d bytes on the host, %d planned", onTheHost.Total(), made.HostBytes())
				}
				if err := errors.Join(c.Close(), dev.Close()); err != nil {
					t.Error(err)
				}
			})
		}
	}
}
