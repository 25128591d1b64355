//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/optimem/optimem/cuda"
	"github.com/optimem/optimem/cuda/sim"
	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/device/devicetest"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/models/aten"
	"github.com/optimem/optimem/pager"
	"github.com/optimem/optimem/tensor"
)

// open returns a device on a simulated driver with settings, and checks at the end that nothing raced or was forgotten. With
// -gpu there is no simulated driver: the settings mean nothing, and the library is nil.
func open(t testing.TB, settings string) (*cuda.Device, *sim.Library) {
	t.Helper()
	if *onDriver {
		return openDriver(t), nil
	}
	return openSimulated(t, settings)
}

// interpreted has a device of the oldest GPUs compute from the PTX, and fails where one of the kernels was not launched.
func interpreted(t *testing.T, settings string, compute func(*testing.T, device.Device), kernels ...string) {
	t.Helper()
	if testing.Short() {
		t.Skip("an interpreter under the race detector takes long")
	}
	dev, lib := open(t, settings+" cc=70")
	in := lib.Interpret(t)
	compute(t, dev)
	for _, name := range kernels {
		if ran, _ := in.Ran(name); ran == 0 {
			t.Errorf("%s was not launched", name)
		}
	}
}

// openSimulated returns a simulated GPU, whatever -gpu says.
func openSimulated(t testing.TB, settings string) (*cuda.Device, *sim.Library) {
	t.Helper()
	dev, lib := openAlone(t, settings)
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
		lib.Check(t)
	})
	return dev, lib
}

// openAlone is openSimulated for those who close the device, and look at the library, themselves.
func openAlone(t testing.TB, settings string) (*cuda.Device, *sim.Library) {
	t.Helper()
	lib := sim.New(t, settings)
	dev, err := cuda.New(cuda.Options{Library: lib.Path})
	if err != nil {
		t.Fatal(err)
	}
	return dev, lib
}

// openPager returns a pager, too, on a device as of openAlone.
func openPager(t testing.TB, settings string) (*cuda.Device, *sim.Library, *pager.Pager) {
	t.Helper()
	dev, lib := openAlone(t, settings)
	pg, err := pager.New(dev, pager.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return dev, lib, pg
}

// TestCompliance runs every op that PyTorch was recorded with and that has a kernel. The others are listed.
func TestCompliance(t *testing.T) {
	dev, _ := open(t, "order=lazy:1 memory=1G")
	comply(t, dev, func(*graph.Graph) bool { return true })
}

// TestComplianceOfOldGPUs computes products, convolutions and attention of float16 that PyTorch was recorded with from the PTX of
// GPUs before 8.0.
func TestComplianceOfOldGPUs(t *testing.T) {
	if testing.Short() {
		t.Skip("an interpreter under the race detector takes long")
	}
	for _, capability := range []string{"70", "75"} {
		t.Run(capability, func(t *testing.T) {
			dev, lib := openSimulated(t, "order=lazy:1 memory=1G cc="+capability)
			lib.Interpret(t)
			comply(t, dev, func(g *graph.Graph) bool {
				return slices.ContainsFunc(g.Ops, func(op graph.Op) bool {
					switch op.Kind {
					case "linear", "matmul", "conv", "scaled_dot_product_attention":
						return g.Values[op.In[0].Value].DType == tensor.Float16
					}
					return false
				})
			})
		})
	}
}

// comply runs the calls whose graphs are wanted.
func comply(t *testing.T, dev *cuda.Device, wanted func(*graph.Graph) bool) {
	cases, err := devicetest.Cases()
	if err != nil {
		t.Fatal(err)
	}
	missing, ran := make(map[string]int), 0
	for _, c := range cases {
		g, err := aten.BuildCall(graph.Standard(), c.Target, c.Args)
		if err != nil {
			t.Fatalf("%s%v: %v", c.Target, c.Args, err)
		}
		if !wanted(g) {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			lowered, err := dev.Lower(g)
			if errors.Is(err, graph.ErrUnsupported) {
				missing[unsupported(dev, g)]++
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			ran++
			out, err := interpret(t.Context(), dev, lowered, c.Inputs)
			if err != nil {
				t.Fatalf("%s%v: %v", c.Target, c.Args, err)
			}
			record(t, c.Name, out)
			if len(out) != len(c.Outputs) {
				t.Fatalf("%s: %d results, PyTorch gave %d", c.Target, len(out), len(c.Outputs))
			}
			for i, want := range c.Outputs {
				if err := devicetest.Compare(out[strconv.Itoa(i)], want, c.Bound); err != nil {
					t.Errorf("%s%v: result %d: %v", c.Target, c.Args, i, err)
				}
			}
		})
	}
	t.Logf("%d of %d calls ran", ran, len(cases))
	for _, what := range slices.Sorted(keys(missing)) {
		t.Logf("NOT ON THE GPU: %s (%d calls)", what, missing[what])
	}
}

// keys are those of a map.
func keys(m map[string]int) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// unsupported says which op of a graph has no kernel.
func unsupported(dev *cuda.Device, g *graph.Graph) string {
	for _, op := range g.Ops {
		in, out := g.Specs(&op, nil, nil)
		if err := dev.Supports(op, in, out); err != nil {
			return fmt.Sprintf("%s: %v", op.Kind, err)
		}
	}
	return "nothing"
}

// gapBytes lie between the values of interpret, and must be as they were afterwards.
const gapBytes = 256

// compareOp computes an op on a device and, as the reference does, on the CPU, and compares the first results.
func compareOp(t *testing.T, dev device.Device, pool *cpu.Pool, op graph.Op, in []*tensor.Tensor, bound float64) {
	t.Helper()
	l := loweredOp(t, op, in)
	got, err := interpret(t.Context(), dev, l, nil)
	if err != nil {
		t.Fatal(err)
	}
	want, err := cpu.Interpret(t.Context(), pool, graph.Standard(), l.Graph, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := devicetest.Compare(got["y"], want["y"], bound); err != nil {
		t.Error(err)
	}
}

// interpret runs a graph op by op on a device, each value at a place of its own in one arena.
func interpret(
	ctx context.Context, dev device.Device, l *graph.Lowered, inputs map[string]*tensor.Tensor,
) (_ map[string]*tensor.Tensor, err error) {
	g := l.Graph
	places, end, most := make([]device.Region, len(g.Values)), int64(gapBytes), int64(0)
	place := func(bytes int64) device.Region {
		r := device.Region{Offset: end, Bytes: bytes}
		end = (end+bytes+255)/256*256 + gapBytes
		return r
	}
	for i, v := range g.Values {
		places[i] = place(v.Bytes())
	}
	for _, s := range l.Steps {
		most = max(most, s.WorkBytes)
	}
	work := place(most)
	arena, err := dev.Alloc(end)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, arena.Free()) }()
	work.Memory = arena
	stream, err := dev.NewStream()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stream.Close()) }()
	fill := bytes.Repeat([]byte{0xff}, int(end))
	if err := stream.CopyIn(device.Region{Memory: arena, Bytes: end}, fill); err != nil {
		return nil, err
	}
	for i, v := range g.Values {
		places[i].Memory = arena
		var data []byte
		switch v.Role {
		case graph.Input:
			data = inputs[v.Name].Data
		case graph.Const:
			data = v.Const
		}
		if err := stream.CopyIn(places[i], data); err != nil {
			return nil, err
		}
	}
	argument := func(o graph.Operand) device.Argument {
		if o.Value == graph.NoValue {
			return device.Argument{Operand: o}
		}
		return device.Argument{Region: places[o.Value], Operand: o, Spec: g.Spec(o)}
	}
	for i, op := range g.Ops {
		launch := device.Launch{Step: l.Steps[i], Op: op, Work: work}
		launch.Work.Bytes = l.Steps[i].WorkBytes
		for _, o := range op.In {
			launch.In = append(launch.In, argument(o))
		}
		for _, id := range op.Out {
			launch.Out = append(launch.Out, argument(g.Whole(id)))
		}
		runs := true
		for _, guard := range op.Guard {
			at := places[guard.Predicate.Value]
			at.Offset, at.Bytes = at.Offset+int64(guard.Predicate.Layout.Offset), 1
			var is [1]byte
			if err := errors.Join(stream.CopyOut(is[:], at), stream.Sync(ctx)); err != nil {
				return nil, err
			}
			runs = runs && (is[0] != 0) == guard.Want
		}
		if !runs {
			continue
		}
		if err := stream.Run(ctx, launch); err != nil {
			return nil, fmt.Errorf("%s: %w", op.Kind, err)
		}
	}
	all := make([]byte, end)
	if err := stream.CopyOut(all, device.Region{Memory: arena, Bytes: end}); err != nil {
		return nil, err
	}
	if err := stream.Sync(ctx); err != nil {
		return nil, err
	}
	for _, p := range append(places, work) {
		for k := p.Offset + p.Bytes; k < (p.Offset+p.Bytes+255)/256*256+gapBytes; k++ {
			if all[k] != 0xff {
				return nil, fmt.Errorf("byte %d behind %d bytes was written to", k-p.Offset-p.Bytes, p.Bytes)
			}
		}
	}
	out := make(map[string]*tensor.Tensor, len(g.Outputs))
	for _, o := range g.Outputs {
		v, p := g.Values[o.Operand.Value], places[o.Operand.Value]
		t := &tensor.Tensor{DType: v.DType, Layout: o.Operand.Layout, Data: all[p.Offset : p.Offset+p.Bytes]}
		t = t.Contiguous()
		size := v.DType.Size()
		n, err := t.Layout.NumElements()
		if err != nil {
			return nil, err
		}
		t.Data = t.Data[t.Layout.Offset*size:][:n*int64(size)]
		t.Layout.Offset = 0
		out[o.Name] = t
	}
	graph.Cut(g.Outputs, out)
	return out, nil
}

// TestStreamCopies: what does not fit into a region, or is not in it, is an error.
func TestStreamCopies(t *testing.T) {
	d, _ := open(t, "")
	devicetest.Copies(t, d)
}
