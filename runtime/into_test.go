package runtime

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
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/hostmem"
	"github.com/optimem/optimem/internal/machine"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/pager"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// A quiet device adds the first element of every weight to every element, and allocates nothing on Go's heap: what tests
// count is the session's and the pager's.
type quiet struct{ allocs int }

type quietMemory struct{ buf *hostmem.Buf }

func (d *quiet) Name() string           { return "quiet" }
func (d *quiet) Memory() (int64, int64) { return 0, 0 }
func (d *quiet) Close() error           { return nil }

func (d *quiet) Supports(graph.Op, []graph.Spec, []graph.Spec) error { return nil }
func (d *quiet) NewStream() (device.Stream, error)                   { return quietStream{}, nil }

func (d *quiet) Alloc(bytes int64) (device.Memory, error) {
	d.allocs++
	buf, err := hostmem.Alloc(bytes, hostmem.Activations)
	return &quietMemory{buf}, err
}

func (d *quiet) HostBytes(r device.Region) []byte {
	return r.Memory.(*quietMemory).buf.Bytes()[r.Offset : r.Offset+r.Bytes]
}

func (m *quietMemory) Bytes() int64 { return int64(len(m.buf.Bytes())) }
func (m *quietMemory) Free() error  { m.buf.Free(); return nil }

type quietStream struct{}

func quietBytes(r device.Region) []byte {
	return r.Memory.(*quietMemory).buf.Bytes()[r.Offset : r.Offset+r.Bytes]
}

func (quietStream) CopyIn(dst device.Region, src []byte) error {
	copy(quietBytes(dst), src)
	return nil
}

func (quietStream) CopyOut(dst []byte, src device.Region) error {
	copy(dst, quietBytes(src))
	return nil
}

func (quietStream) Run(_ context.Context, l device.Launch) error {
	in, out := quietBytes(l.In[0].Region), quietBytes(l.Out[0].Region)
	var add float32
	for _, w := range l.In[1:] {
		add += first(quietBytes(w.Region))
	}
	for i := 0; i < len(out); i += 4 {
		x := math.Float32frombits(binary.LittleEndian.Uint32(in[i%len(in):]))
		binary.LittleEndian.PutUint32(out[i:], math.Float32bits(x+add))
	}
	return nil
}

func first(p []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(p)) }

func (quietStream) Record() device.Event           { return nil }
func (quietStream) Wait(device.Event)              {}
func (quietStream) Sync(ctx context.Context) error { return ctx.Err() }
func (quietStream) Close() error                   { return nil }

// An inMemory is a source in memory.
type inMemory struct{ data []byte }

func (m *inMemory) Size() int64 { return int64(len(m.data)) }
func (m *inMemory) ReadAt(ctx context.Context, p []byte, off int64) error {
	copy(p, m.data[off:])
	return ctx.Err()
}

// quietGraph returns layers one after the other with a weight each, and an output that lies across memory.
func quietGraph(t testing.TB, layersN int) *graph.Graph {
	t.Helper()
	const width = 64
	g := &graph.Graph{}
	src := &inMemory{make([]byte, layersN*width*width*4)}
	for i := range layersN {
		binary.LittleEndian.PutUint32(src.data[i*width*width*4:], math.Float32bits(float32(i+1)))
	}
	x := g.AddInput("x", tensor.Float32, tensor.Shape{8, width})
	for i := range layersN {
		w := g.AddWeight(tensor.Weight{
			Name: fmt.Sprintf("%d.weight", i), DType: tensor.Float32, Layout: tensor.Contiguous(width, width),
			Extent: storage.Extent{Source: src, Offset: int64(i) * width * width * 4, Bytes: width * width * 4},
		}, graph.Weight)
		out, err := g.Emit(graph.Standard(), graph.Op{
			Kind: "linear", Path: fmt.Sprint(i),
			In: []graph.Operand{g.Whole(x), {Value: w, Layout: tensor.Contiguous(width, width)}},
		})
		if err != nil {
			t.Fatal(err)
		}
		x = out[0]
	}
	across := graph.Operand{Value: x, Layout: tensor.Layout{Shape: tensor.Shape{width, 8}, Strides: []int{1, width}}}
	g.Outputs = []graph.Output{{Name: "y", Operand: g.Whole(x)}, {Name: "across", Operand: across}}
	return g
}

// A quietMachine pages onto a quiet device, which computes every graph as it is.
type quietMachine struct {
	*pager.Pager
	device machine.Device
}

func (m *quietMachine) Device() *machine.Device      { return &m.device }
func (m *quietMachine) Held() (dev, host pager.Held) { return m.Pager.Held(), pager.Held{} }
func (m *quietMachine) Inventory() []machine.Inventory {
	return []machine.Inventory{{Inventory: m.Pager.Inventory()}}
}
func (m *quietMachine) MostHeld() int64                { return m.Pager.Held().Total() }
func (m *quietMachine) Stats() (dev, host pager.Stats) { return m.Pager.Stats(), pager.Stats{} }
func (m *quietMachine) Free() (int64, bool)            { return 0, false }
func (m *quietMachine) Clock() (time.Duration, bool)   { return 0, false }

func (m *quietMachine) Compile(_ context.Context, g *graph.Graph, _ machine.Compilation) (*machine.Compiled, error) {
	return &machine.Compiled{Graph: g, Lowered: &graph.Lowered{Graph: g, Steps: make([]graph.Step, len(g.Ops))}}, nil
}

// quietSession returns a session on a quiet device, which has planned for the graph.
func quietSession(t testing.TB, dev *quiet, mode plan.Mode, g *graph.Graph, o Options) *Session {
	t.Helper()
	s, err := start(t.Context(), new(models.Model), mode, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.machine.Close(); err != nil {
		t.Fatal(err)
	}
	p, err := pager.New(dev, pager.Options{Readers: 1})
	if err != nil {
		t.Fatal(err)
	}
	s.machine = &quietMachine{p, machine.Device{Target: plan.CPU}}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := s.program(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestRunIntoAllocatesNothing: after the first call neither the session nor the pager takes memory from Go's heap or the
// device, in no mode, for inputs that lie across memory, too.
func TestRunIntoAllocatesNothing(t *testing.T) {
	strided := &tensor.Tensor{
		DType: tensor.Float32, Layout: tensor.Layout{Shape: tensor.Shape{8, 64}, Strides: []int{1, 8}}, Data: make([]byte, 8*64*4),
	}
	for mode, o := range map[plan.Mode]Options{
		plan.Resident: {}, plan.Page: {},
		plan.Chunk: {Capacity: plan.Limit{N: 3 * 64 * 64, Unit: plan.Params}}, plan.Auto: {Memory: 6 * 64 * 64 * 4},
	} {
		for name, x := range map[string]*tensor.Tensor{"whole": tensor.Of(make([]float32, 8*64), 8, 64), "strided": strided} {
			t.Run(string(mode)+"/"+name, func(t *testing.T) {
				dev := &quiet{}
				s := quietSession(t, dev, mode, quietGraph(t, 6), o)
				y, across := tensor.Of(make([]float32, 8*64), 8, 64), tensor.Of(make([]float32, 8*64), 64, 8)
				in, out := Values{"x": x}, Values{"y": y, "across": across}
				pass := func() {
					if err := s.RunInto(t.Context(), in, out); err != nil {
						t.Fatal(err)
					}
				}
				pass()
				allocs := dev.allocs
				if n := testing.AllocsPerRun(200, pass); n != 0 {
					t.Errorf("%v allocations a call", n)
				}
				if dev.allocs != allocs {
					t.Errorf("%d allocations on the device after the first call", dev.allocs-allocs)
				}
				if got := first(y.Data[4*9:]); got != 21 {
					t.Errorf("the result is %v, want the sum of the weights, 21", got)
				}
				if got := first(across.Data[4*9:]); got != 21 {
					t.Errorf("across, the result is %v", got)
				}
				least := map[plan.Mode]int64{plan.Page: 6, plan.Chunk: 3, plan.Auto: 1}[mode] // weights
				if s.Metrics().MovedBytes < 200*least*64*64*4 {
					t.Errorf("%d bytes moved: nothing was paged", s.Metrics().MovedBytes)
				}
			})
		}
	}
}

// TestRunIntoChecks: tensors that cannot take an output are refused by name, and others are filled as Run would.
func TestRunIntoChecks(t *testing.T) {
	s := quietSession(t, &quiet{}, plan.Resident, quietGraph(t, 2), Options{})
	x := make([]float32, 8*64)
	for i := range x {
		x[i] = float32(i)
	}
	in := Values{"x": tensor.Of(x, 8, 64)}
	want, err := s.Run(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	room := func() *tensor.Tensor { return tensor.Of(make([]float32, 8*64), 8, 64) }
	short, strided, few, before := room(), room(), room(), room()
	short.Data = short.Data[4:]
	strided.Layout.Strides = []int{1, 8}
	few.Layout.Strides = []int{1}
	before.Layout.Offset = -1
	for name, out := range map[string]Values{
		"dtype": {"y": tensor.Of(make([]int32, 8*64), 8, 64)}, "shape": {"y": tensor.Of(make([]float32, 8*64), 64, 8)},
		"short": {"y": short}, "strided": {"y": strided}, "strides": {"y": few}, "offset": {"y": before}, "nil": {"y": nil},
		"name": {"z": room()},
	} {
		var refused *OutputError
		if err := s.RunInto(t.Context(), in, out); !errors.As(err, &refused) || out[refused.Output] == nil && name != "nil" {
			t.Errorf("%s: got %v", name, err)
		}
	}
	one := Values{"across": tensor.Of(make([]float32, 8*64), 64, 8)}
	if err := s.RunInto(t.Context(), in, one); err != nil || !bytes.Equal(one["across"].Data, want["across"].Data) {
		t.Errorf("one output of two: %v", err)
	}
	offset := &tensor.Tensor{DType: tensor.Float32, Layout: tensor.Contiguous(8, 64), Data: make([]byte, 8*64*4+40)}
	offset.Layout.Offset = 10
	if err := s.RunInto(t.Context(), in, Values{"y": offset}); err != nil || !bytes.Equal(offset.Data[40:], want["y"].Data) {
		t.Errorf("an output inside other memory: %v", err)
	}
	if err := s.RunInto(t.Context(), in, nil); err != nil {
		t.Error(err)
	}
}
