package pager

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

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

const stateWidth = 6

// counting returns two programs with buffers in one file. The first gives y = a + b + x and makes b of a, and y of b. The second
// gives y = c + a + x and makes y of a, and the input z, which no op reads, of c.
func counting(t testing.TB, dev *cpu.Device) (programs [2]*graph.Lowered, src *file) {
	src = newFile(3 * stateWidth * 4)
	for k := range programs {
		g := &graph.Graph{}
		x := g.Whole(g.AddInput("x", tensor.Float32, tensor.Shape{stateWidth}))
		z := g.AddInput("z", tensor.Float32, tensor.Shape{stateWidth})
		buffer := func(name string, number int64) graph.Operand {
			l := tensor.Contiguous(stateWidth)
			return graph.Operand{Layout: l, Value: g.AddWeight(tensor.Weight{
				Name: name, DType: tensor.Float32, Layout: l,
				Extent: storage.Extent{Source: src, Offset: number * stateWidth * 4, Bytes: stateWidth * 4},
			}, graph.State)}
		}
		add := func(a, b graph.Operand) graph.Operand {
			out, err := g.Emit(graph.Standard(), graph.Op{Kind: "add", Path: "sum", In: []graph.Operand{a, b}})
			if err != nil {
				t.Fatal(err)
			}
			return g.Whole(out[0])
		}
		a := buffer("a", 0)
		if k == 0 {
			b := buffer("b", 1)
			y := add(add(a, b), x)
			g.Outputs = []graph.Output{{Name: "y", Operand: y}}
			g.Updates = []graph.StateUpdate{{State: a.Value, Operand: b}, {State: b.Value, Operand: y}}
		} else {
			c := buffer("c", 2)
			y := add(add(c, a), x)
			g.Outputs = []graph.Output{{Name: "y", Operand: y}}
			g.Updates = []graph.StateUpdate{{State: a.Value, Operand: y}, {State: c.Value, Operand: g.Whole(z)}}
		}
		l, err := dev.Lower(g)
		if err != nil {
			t.Fatal(err)
		}
		programs[k] = l
	}
	return programs, src
}

// counts are the buffers of counting, computed alone.
type counts struct{ a, b, c []float32 }

// pass returns y and what the buffers become.
func (s counts) pass(program int, x, z []float32) (y []float32, next counts) {
	y = make([]float32, stateWidth)
	for i := range y {
		if program == 0 {
			y[i] = s.a[i] + s.b[i] + x[i]
		} else {
			y[i] = s.c[i] + s.a[i] + x[i]
		}
	}
	if program == 0 {
		return y, counts{s.b, y, s.c}
	}
	return y, counts{y, s.b, slices.Clone(z)}
}

func floatsOf(b []byte) []float32 {
	x := make([]float32, len(b)/4)
	for i := range x {
		x[i] = math.Float32frombits(uint32(b[4*i]) | uint32(b[4*i+1])<<8 | uint32(b[4*i+2])<<16 | uint32(b[4*i+3])<<24)
	}
	return x
}

func bytesOfFloats(x []float32) []byte {
	b := make([]byte, 4*len(x))
	for i, v := range x {
		putNumber(b[4*i:], tensor.Float32, v)
	}
	return b
}

// A sum is an IO of counting.
type sum struct {
	g       *graph.Graph
	x, z, y []byte
}

func (s *sum) Input(_ int, id graph.ValueID) []byte {
	if id == s.g.Inputs[0] {
		return s.x
	}
	return s.z
}
func (s *sum) Output(int, int, bool) []byte { return s.y }

// TestFinishChangesNothing: what a pass makes of buffers is not there before it is committed, and not at all where the pass is
// abandoned after all of its work.
func TestFinishChangesNothing(t *testing.T) {
	host := newCPU(t)
	programs, src := counting(t, host)
	first := floatsOf(src.data)
	alone := counts{first[:stateWidth], first[stateWidth:][:stateWidth], first[2*stateWidth:]}
	made := mustPlan(t, programs[0], search.Options{Mode: plan.Resident})
	p := newPager(t, host, Options{})
	x := make([]float32, stateWidth)
	for n := range 6 {
		io := &sum{programs[0].Graph, bytesOfFloats(x), bytesOfFloats(x), make([]byte, 4*stateWidth)}
		err := p.Begin(t.Context(), made)
		if err == nil {
			err = p.Run(t.Context(), 0, len(made.Groups), io)
		}
		if err == nil {
			err = p.Finish(t.Context(), io)
		}
		if err != nil {
			t.Fatal(err)
		}
		want, next := alone.pass(0, x, x)
		if got := floatsOf(io.y); !slices.Equal(got, want) {
			t.Fatalf("pass %d: got %v, want %v", n, got, want)
		}
		if n%2 == 0 {
			if err := p.Abandon(errLost); !errors.Is(err, errLost) {
				t.Fatal(err)
			}
			continue
		}
		p.Commit()
		alone = next
	}
}

// TestStatesOverPasses runs two programs that share buffers in a random order on two devices, one of which computes late, with
// passes that fail or are cancelled at a random call and memory that is given back in between: a pass that succeeds gives
// what a reference gives that knows of no failed pass.
func TestStatesOverPasses(t *testing.T) {
	host := newCPU(t)
	programs, src := counting(t, host)
	var plans [2][2]*plan.Plan
	for k, l := range programs {
		plans[0][k] = mustPlan(t, l, search.Options{Mode: plan.Resident})
		plans[1][k] = mustPlan(t, l, search.Options{Mode: plan.Resident, Target: emu})
	}
	first := floatsOf(src.data)
	rapid.Check(t, func(t *rapid.T) {
		left, failing := 0, false
		var cancel context.CancelFunc
		o := late.Options{Seed: rapid.Uint64Range(0, 1000).Draw(t, "seed"), Later: rapid.Bool().Draw(t, "later")}
		o.Before = func(ctx context.Context, c late.Call) error {
			if left--; left != 0 {
				return nil
			}
			if failing {
				return errLost
			}
			cancel()
			return ctx.Err()
		}
		prompt := o
		prompt.Prompt = true
		devices := [2]device.Device{
			late.New(cpu.New(1, graph.Standard()), prompt),
			late.New(emulated.New(emulated.Options{CheckOrder: true, Threads: 1}), o),
		}
		shared := NewStates()
		var pagers [2]*Pager
		for i := range pagers {
			p, err := New(devices[i], Options{States: shared})
			if err != nil {
				t.Fatal(err)
			}
			pagers[i] = p
		}
		alone := counts{first[:stateWidth], first[stateWidth:][:stateWidth], first[2*stateWidth:]}
		for n := range rapid.IntRange(1, 25).Draw(t, "passes") {
			at, k := rapid.IntRange(0, 1).Draw(t, "device"), rapid.IntRange(0, 1).Draw(t, "program")
			if rapid.IntRange(0, 4).Draw(t, "give back") == 0 {
				left = 0
				if err := pagers[at].GiveBack(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			x, z := make([]float32, stateWidth), make([]float32, stateWidth)
			for i := range x {
				x[i], z[i] = float32((n*7+i)%5)-2, float32((n*3+i)%7)/4-1
			}
			io := &sum{programs[k].Graph, bytesOfFloats(x), bytesOfFloats(z), make([]byte, 4*stateWidth)}
			left, failing = 0, rapid.Bool().Draw(t, "failing")
			if rapid.Bool().Draw(t, "trouble") {
				left = rapid.IntRange(1, 20).Draw(t, "call")
			}
			var ctx context.Context
			ctx, cancel = context.WithCancel(t.Context())
			err := pagers[at].Pass(ctx, plans[at][k], io)
			cancel()
			if errors.Is(err, errLost) || errors.Is(err, context.Canceled) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			want, next := alone.pass(k, x, z)
			if got := floatsOf(io.y); !slices.Equal(got, want) {
				t.Fatalf("pass %d, program %d on device %d: got %v, want %v", n, k, at, got, want)
			}
			alone = next
		}
		left = 0
		for i := range pagers {
			if err := errors.Join(pagers[i].Close(), devices[i].Close()); err != nil {
				t.Fatal(err)
			}
		}
	})
}
