//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/optimem/optimem/cuda"
	"github.com/optimem/optimem/cuda/sim"
	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/device/devicetest"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/pager"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/search"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// turnedWeights is how many weights of [convolutions] each kernel is not given as they are.
const turnedWeights = 5

// convolutions returns convolutions of a dtype one after another, the first of few channels, one of groups, one with 1×1
// windows whose weight every kernel takes as it is, and one whose weight is read twice. Without a precision those of
// float32 are computed by Winograd's algorithm.
func convolutions(t testing.TB, dtype tensor.DType, precision string) *graph.Graph {
	t.Helper()
	src := &memorySource{}
	g := &graph.Graph{}
	emit := func(path string, kind graph.Kind, a graph.Attrs, in ...graph.Operand) graph.Operand {
		out, err := g.Emit(graph.Standard(), graph.Op{Kind: kind, Path: path, Attrs: a, In: in})
		if err != nil {
			t.Fatal(err)
		}
		return g.Whole(out[0])
	}
	weight := func(name string, shape ...int) graph.Operand {
		x := &tensor.Tensor{DType: dtype, Layout: tensor.Contiguous(shape...)}
		terms := shape[1] * shape[2] * shape[3]
		x.Data = make([]byte, shape[0]*terms*dtype.Size())
		for i := range shape[0] * terms {
			v := float64(uint32(i+len(src.data)/dtype.Size()+13)*2654435761%4001)/2000 - 1
			put(x.Data[i*dtype.Size():], dtype, float32(v*math.Sqrt(6/float64(terms))))
		}
		w := g.AddWeight(tensor.Weight{
			Name: name + ".weight", DType: dtype, Layout: x.Layout,
			Extent: storage.Extent{Source: src, Offset: int64(len(src.data)), Bytes: int64(len(x.Data))},
		}, graph.Weight)
		src.data = append(src.data, x.Data...)
		return graph.Operand{Value: w, Layout: x.Layout}
	}
	conv := func(path string, x, w graph.Operand, groups int) graph.Operand {
		pad := w.Layout.Shape[2] / 2
		a := graph.Attrs{"stride": []int{1, 1}, "padding": []int{pad, pad}, "dilation": []int{1, 1}, "groups": groups}
		switch {
		case precision != "":
			a["precision"] = precision
		case dtype == tensor.Float32:
			a["winograd"] = true // where it can
		}
		return emit(path, "relu", nil, emit(path, "conv", a, x, w, graph.Absent))
	}
	x := g.Whole(g.AddInput("x", tensor.Float32, tensor.Shape{2, 3, 9, 10}))
	if dtype != tensor.Float32 {
		x = emit("x", "cast", graph.Attrs{"dtype": dtype}, x)
	}
	x = conv("few", x, weight("few", 16, 3, 3, 3), 1)
	x = conv("next", x, weight("next", 40, 16, 3, 3), 1)
	x = conv("groups", x, weight("groups", 32, 20, 3, 3), 2)
	x = conv("one", x, weight("one", 24, 32, 1, 1), 1)
	twice := weight("twice", 24, 24, 3, 3)
	x = conv("twice", conv("twice", x, twice, 1), twice, 1)
	x = conv("last", x, weight("last", 18, 24, 3, 3), 1)
	if dtype != tensor.Float32 {
		x = emit("y", "cast", graph.Attrs{"dtype": tensor.Float32}, x)
	}
	g.Outputs = []graph.Output{{Name: "y", Operand: x}}
	return g
}

// packedCases are convolutions whose weights have forms of their own, and the kernel that makes these.
var packedCases = map[string]struct {
	dtype     tensor.DType
	precision string
	kernel    string
	weights   int
}{
	"f16":      {tensor.Float16, "", "om_conv_last_2", turnedWeights},
	"bf16":     {tensor.BFloat16, "", "om_conv_last_2", turnedWeights},
	"narrow":   {tensor.Float32, "bf16", "om_conv_last_4", turnedWeights},
	"tf32":     {tensor.Float32, "tf32", "om_conv_last_4", turnedWeights},
	"winograd": {tensor.Float32, "", "om_winograd_weights", turnedWeights - 1}, // not of groups
}

// unpacked returns the lowered graph without forms of weights.
func unpacked(l *graph.Lowered) *graph.Lowered {
	raw := &graph.Lowered{Graph: l.Graph, Steps: slices.Clone(l.Steps)}
	for i := range raw.Steps {
		raw.Steps[i].Packs = nil
	}
	return raw
}

// launchesOf runs a plan twice with one pager and returns the result and how many kernels the second pass launched.
func launchesOf(t *testing.T, dev *cuda.Device, lib *sim.Library, p *plan.Plan) ([]byte, int) {
	t.Helper()
	pg, err := pager.New(dev, pager.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var out []byte
	launches := 0
	for range 2 {
		before := lib.Report().Launches
		x := newTransfer(p.Lowered.Graph)
		if err := pg.Pass(t.Context(), p, x); err != nil {
			t.Fatal(err)
		}
		if out != nil && !bytes.Equal(out, x.out) {
			t.Error("two passes give different bits")
		}
		out, launches = x.out, lib.Report().Launches-before
	}
	if err := pg.Close(); err != nil {
		t.Fatal(err)
	}
	return out, launches
}

// TestPackedConvs: weights of convolutions that stay are turned once, not in each pass, and no mode changes a bit.
func TestPackedConvs(t *testing.T) {
	for name, c := range packedCases {
		for _, order := range []string{"threads", "lazy:3"} {
			if testing.Short() && order == "threads" {
				continue
			}
			t.Run(name+" "+order, func(t *testing.T) {
				g := convolutions(t, c.dtype, c.precision)
				l := lower(t, g)
				dev, lib := openSimulated(t, "memory=64M order="+order)
				raw, many := launchesOf(t, dev, lib, planned(t, unpacked(l), search.Options{Mode: plan.Resident}))
				p := planned(t, l, search.Options{Mode: plan.Resident})
				got, few := launchesOf(t, dev, lib, p)
				if !bytes.Equal(got, raw) {
					t.Error("packed weights give other bits")
				}
				// One weight is of two convolutions.
				if want := c.weights + 1; len(p.Fixed.Packed) != c.weights || many-few != want {
					t.Errorf("%d packed weights, %d launches less; want %d and %d\n%v", len(p.Fixed.Packed), many-few, c.weights, want, p)
				}
				for i := range p.Fixed.Packed {
					if p.Fixed.Packed[i].Copy {
						t.Error("a weight stays besides its packed form")
					}
				}
				if err := devicetest.Compare(float32s(got), float32s(onCPU(t, convolutions(t, tensor.Float32, ""))), 0.05); err != nil {
					t.Error(err)
				}
				for name, p := range pagedPlans(t, l) {
					paged, _, err := passes(t.Context(), dev, p, 2)
					if err != nil {
						t.Fatal(err)
					}
					if !bytes.Equal(paged, raw) {
						t.Errorf("%s: other bits than resident", name)
					}
				}
			})
		}
	}
}

// TestPackedConvsFromPTX packs, and computes with packed weights, by what ships.
func TestPackedConvsFromPTX(t *testing.T) {
	if testing.Short() {
		t.Skip("long under the race detector")
	}
	for _, name := range []string{"f16", "winograd"} {
		t.Run(name, func(t *testing.T) {
			c := packedCases[name]
			l := lower(t, convolutions(t, c.dtype, c.precision))
			dev, lib := openSimulated(t, "memory=64M order=lazy:1")
			in := lib.Interpret(t)
			p := planned(t, l, search.Options{Mode: plan.Resident})
			got, _, err := passes(t.Context(), dev, p, 1)
			if err != nil {
				t.Fatal(err)
			}
			if n, _ := in.Ran(c.kernel); n == 0 {
				t.Errorf("%s was not launched", c.kernel)
			}
			raw, _, err := passes(t.Context(), dev, planned(t, unpacked(l), search.Options{Mode: plan.Resident}), 1)
			if err != nil || !bytes.Equal(got, raw) {
				t.Errorf("%v, the same bits: %v", err, bytes.Equal(got, raw))
			}
		})
	}
}

// TestPackedMemoryIsEnough gives the device exactly what a plan with packed weights takes, under budgets of which they pack
// all, some or none; results are the same.
func TestPackedMemoryIsEnough(t *testing.T) {
	if testing.Short() {
		t.Skip("makes many devices one after another")
	}
	random := rand.New(rand.NewPCG(5, 6))
	for name, c := range packedCases {
		t.Run(name, func(t *testing.T) {
			l := lower(t, convolutions(t, c.dtype, c.precision))
			least := planned(t, l, search.Options{Mode: plan.Auto}).MinBytes
			most := planned(t, l, search.Options{Mode: plan.Resident}).PeakBytes()
			var want []byte
			packed := make(map[int]bool)
			budgets := []int64{least, most}
			for range map[bool]int{true: 3, false: 10}[testing.Short()] {
				budgets = append(budgets, least+random.Int64N(most-least))
			}
			for _, budget := range budgets {
				p := planned(t, l, search.Options{Mode: plan.Auto, MemoryBytes: budget})
				packed[len(p.Fixed.Packed)] = true
				if p.PeakBytes() > budget {
					t.Errorf("a plan of %d bytes for a budget of %d", p.PeakBytes(), budget)
				}
				const piece = 512
				take := func(list ...int64) (sum int64) {
					for _, n := range list {
						sum += (n + piece - 1) / piece * piece
					}
					return sum
				}
				peak := max(take(p.Fixed.Bytes, p.RingBytes, p.ActivationBytes, p.WorkBytes, p.ConstBytes),
					take(p.Fixed.Bytes, p.Fixed.PackingBytes))
				dev, lib := openAlone(t, fmt.Sprintf("order=lazy:7 memory=%d", peak))
				got, stats, err := passes(t.Context(), dev, p, 2)
				if err != nil {
					t.Errorf("%d bytes: %v", budget, err)
				}
				if want = append(want, got...)[:len(got)]; !bytes.Equal(got, want) {
					t.Errorf("%d bytes: other bits", budget)
				}
				if taken := lib.Report().PeakBytes; taken != peak || stats.PeakBytes != p.PeakBytes() {
					t.Errorf("%d bytes of %d were taken; %d of %d", taken, peak, stats.PeakBytes, p.PeakBytes())
				}
				if err := dev.Close(); err != nil {
					t.Error(err)
				}
				lib.Check(t)
			}
			if !packed[0] || !packed[c.weights] || name == "winograd" && !testing.Short() && len(packed) < 3 {
				t.Errorf("so many weights were packed: %v", packed)
			}
		})
	}
}

// TestPackedOnOldGPUs: GPUs before 8.0 have the form of tensor cores for float16 alone, and sessions lower for the GPU that they have.
func TestPackedOnOldGPUs(t *testing.T) {
	for _, capability := range []string{"70", "75"} {
		t.Run(capability, func(t *testing.T) {
			dev, lib := openSimulated(t, "memory=64M cc="+capability)
			for name, c := range packedCases {
				if c.precision != "" {
					continue // they have not that either
				}
				l, err := dev.Lower(convolutions(t, c.dtype, ""))
				if err != nil {
					t.Fatal(err)
				}
				p := planned(t, l, search.Options{Mode: plan.Resident})
				want := 0
				if name == "winograd" || name == "f16" {
					want = c.weights
				}
				if len(p.Fixed.Packed) != want {
					t.Errorf("%s: %d packed weights, not %d", name, len(p.Fixed.Packed), want)
				}
				got, _ := launchesOf(t, dev, lib, p)
				raw, _ := launchesOf(t, dev, lib, planned(t, unpacked(l), search.Options{Mode: plan.Resident}))
				if !bytes.Equal(got, raw) {
					t.Errorf("%s: packed weights give other bits", name)
				}
			}
		})
	}
}

// TestPackingFails makes each allocation fail in turn, and each launch: always an error, nothing is forgotten, and where the
// device is not lost the next pass works.
func TestPackingFails(t *testing.T) {
	if testing.Short() {
		t.Skip("makes many devices one after another")
	}
	c := packedCases["f16"]
	p := planned(t, lower(t, convolutions(t, c.dtype, c.precision)), search.Options{Mode: plan.Resident})
	for _, call := range []string{"cuMemAlloc:%d:2", "cuLaunchKernel:%d:1", "cuMemcpyHtoDAsync:%d:1"} {
		for n := 1; ; n++ {
			dev, lib, pg := openPager(t, "memory=64M fault="+fmt.Sprintf(call, n))
			failed := pg.Pass(t.Context(), p, newTransfer(p.Lowered.Graph))
			var full *device.OutOfMemoryError
			if failed != nil && errors.As(failed, &full) != (call[:10] == "cuMemAlloc") {
				t.Errorf(call+": %v", n, failed)
			}
			if failed != nil {
				if err := pg.Pass(t.Context(), p, newTransfer(p.Lowered.Graph)); err != nil {
					t.Errorf(call+": the next pass: %v", n, err)
				}
			}
			if err := errors.Join(pg.Close(), dev.Close()); err != nil {
				t.Errorf(call+": %v", n, err)
			}
			lib.Check(t)
			if failed == nil {
				if n < 3 {
					t.Errorf(call, n)
				}
				break
			}
		}
	}
}
