//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/cuda"
	"github.com/optimem/optimem/cuda/kernels"
	"github.com/optimem/optimem/cuda/sim"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/graph/rewrite"
	"github.com/optimem/optimem/tensor"
)

// TestHopper computes linears of half floats on a GPU of 9.0 from the sources.
func TestHopper(t *testing.T) {
	dev, _ := open(t, "order=lazy:3 memory=64M cc=90")
	compareHopper(t, dev, []sizes{{67, 261, 328}, {131, 130, 72}, {9, 258, 1096}, {64, 256, 64}})
	compareHopperAlone(t, dev, []int{1, 9, 70, 1, 70, 130, 3})
	defer cuda.HopperFrom(1, 1)()
	compareAlone(t, dev)
}

// TestHopperPTX computes them from the PTX that ships, by which every kernel of it runs.
func TestHopperPTX(t *testing.T) {
	if testing.Short() {
		t.Skip("long under the race detector")
	}
	dev, lib := open(t, "order=lazy:3 memory=64M cc=90")
	in := lib.Interpret(t)
	compareHopper(t, dev, []sizes{{67, 261, 328}, {9, 258, 1096}, {1, 8, 72}})
	compareHopperAlone(t, dev, []int{1, 9, 70, 1, 70})
	t.Run("recorded", func(t *testing.T) {
		defer cuda.HopperFrom(1, 1)()
		comply(t, dev, func(g *graph.Graph) bool {
			l, err := dev.Lower(g)
			return err == nil && slices.ContainsFunc(l.Steps, func(s graph.Step) bool { return s.Kernel == cuda.HopperKernel })
		})
	})
	ranAll(t, in, "om_hopper_f16", "om_hopper_bf16")
}

// ranAll: kernels whose names begin so were all launched.
func ranAll(t *testing.T, in *sim.Interpreter, prefixes ...string) {
	t.Helper()
	for _, name := range kernels.Names() {
		if !slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
			continue
		}
		ran, all := in.Ran(name)
		t.Logf("%s: %d of %d instructions", name, ran, all)
		if ran == 0 {
			t.Errorf("%s did not run", name)
		}
	}
}

// sizes are those of a linear: rows, columns, terms.
type sizes struct{ m, n, k int }

// hopperBound is what part of a result it may be off: what rounding it takes away, and a little of its sum.
var hopperBound = map[tensor.DType]float64{tensor.Float16: 1.0 / 2048, tensor.BFloat16: 1.0 / 256}

// valueOf is an element of a tensor of half floats.
func valueOf(x *tensor.Tensor, i int) float64 {
	bits := uint16(x.Data[2*i]) | uint16(x.Data[2*i+1])<<8
	if x.DType == tensor.BFloat16 {
		return float64(math.Float32frombits(uint32(bits) << 16))
	}
	return float64(tensor.Float16ToFloat32(bits))
}

// compareLinear compares a linear with all that it ends with to what it is in float64: relu(x · wᵀ + bias) + added.
func compareLinear(t *testing.T, got, x, w, bias, added *tensor.Tensor) {
	t.Helper()
	m, n, k := x.Layout.Shape[0], w.Layout.Shape[0], w.Layout.Shape[1]
	for r := range m {
		for c := range n {
			var sum float64
			for i := range k {
				sum += valueOf(x, r*k+i) * valueOf(w, c*k+i)
			}
			want, have := max(sum+valueOf(bias, c), 0)+valueOf(added, r*n+c), valueOf(got, r*n+c)
			if off := math.Abs(have - want); !(off <= math.Abs(want)*hopperBound[x.DType]+1e-4) {
				t.Fatalf("result %d of row %d is %v, not %v", c, r, have, want)
			}
		}
	}
}

// compareHopper computes linears whose sizes have tails in every dimension, by every size of blocks, in parts and whole, and compares
// with float64.
func compareHopper(t *testing.T, dev *cuda.Device, list []sizes) {
	defer cuda.HopperFrom(1, 1)()
	for block := range 2 {
		defer cuda.OnlyHopperBlocks(block)()
		for _, d := range []tensor.DType{tensor.BFloat16, tensor.Float16} {
			for _, c := range list {
				t.Run(fmt.Sprint(block, d, c), func(t *testing.T) {
					x, w, bias, added := numbers(d, c.m, c.k), numbers(d, c.n, c.k), numbers(d, c.n), numbers(d, c.m, c.n)
					g := loweredOp(t, graph.Op{Kind: "linear", Attrs: graph.Attrs{"act": "relu"}}, []*tensor.Tensor{x, w, bias, added}).Graph
					compareLinear(t, byWGMMA(t, dev, g), x, w, bias, added)
				})
			}
		}
	}
}

// byWGMMA computes a graph of a linear, which is one of wgmma.
func byWGMMA(t *testing.T, dev *cuda.Device, g *graph.Graph) *tensor.Tensor {
	t.Helper()
	l, err := dev.Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	if l.Steps[0].Kernel != cuda.HopperKernel {
		t.Fatalf("it is computed by %s", l.Steps[0].Kernel)
	}
	got, err := interpret(t.Context(), dev, l, nil)
	if err != nil {
		t.Fatal(err)
	}
	return got["y"]
}

// compareHopperAlone: a row that is alone has the same bits whatever rows are beside it, by either size of blocks and in parts.
func compareHopperAlone(t *testing.T, dev *cuda.Device, rows []int) {
	defer cuda.HopperFrom(1, 1)()
	const n, k = 260, 1096
	for _, d := range []tensor.DType{tensor.BFloat16, tensor.Float16} {
		var first []byte
		for i, m := range rows {
			undo := func() {}
			if i < 5 {
				undo = cuda.OnlyHopperBlocks(i / 3)
			}
			x, w := numbers(d, m, k), numbers(d, n, k)
			op := graph.Op{Kind: "linear", Attrs: graph.Attrs{graph.RowsAlone: true}}
			got := byWGMMA(t, dev, loweredOp(t, op, []*tensor.Tensor{x, w}).Graph)
			undo()
			if first == nil {
				first = got.Data[:2*n]
			}
			if !bytes.Equal(got.Data[:2*n], first) {
				t.Errorf("%v: the first of %d rows, run %d, has other bits", d, m, i)
			}
		}
	}
}

// TestHopperPTXMistakes plants mistakes in the PTX, which the interpreter must find, or results.
func TestHopperPTXMistakes(t *testing.T) {
	if testing.Short() {
		t.Skip("long under the race detector")
	}
	defer cuda.HopperFrom(1, 1)()
	defer cuda.OnlyHopperBlocks(1)()
	const d = tensor.BFloat16
	x, w, bias, added := numbers(d, 65, 456), numbers(d, 257, 456), numbers(d, 257), numbers(d, 65, 257)
	g := loweredOp(t, graph.Op{Kind: "linear", Attrs: graph.Attrs{graph.RowsAlone: true, "act": "relu"}}, []*tensor.Tensor{x, w, bias, added}).Graph
	plant(t, g, "om_hopper_bf16_64", map[string]change{
		"a lot is not waited for":            {"mbarrier.try_wait.parity.shared::cta.b64 over", "setp.eq.u32 over,0,0;// "},
		"nobody says that a lot was read":    {"mbarrier.arrive.shared::cta.b64", "// "},
		"a lot has fewer bytes than come":    {`(mov.u32 %r\d+),40960;`, "$1,40944;"},
		"sums are read while they are added": {"wgmma.wait_group.sync.aligned 0;", ""},
		"lots are given back too early":      {"wgmma.wait_group.sync.aligned 1;", "wgmma.wait_group.sync.aligned 2;"},
		"products begin without a fence":     {"wgmma.fence.sync.aligned;", ""},
		"barriers are not told to the unit":  {"fence.proxy.async.shared::cta;", ""},
		"products are in no group":           {"wgmma.commit_group.sync.aligned;", ""},
		"the first sums are added to":        {"setp.ne.b32 more,", "setp.eq.b32 more,"},
		"halves are of another kind":         {"m64n256k16.f32.bf16.bf16", "m64n256k16.f32.f16.f16"},
	})
}

// A change replaces all that an expression matches of a PTX.
type change struct{ old, with string }

// plant computes a graph with each of some mistakes in the PTX of a kernel, by one of which results, or the interpreter, must show it.
func plant(t *testing.T, g *graph.Graph, kernel string, mistakes map[string]change) {
	t.Helper()
	run := func(t *testing.T, c change) (data []byte, err error) {
		lib := sim.New(t, "order=lazy:1 memory=64M cc=90")
		in := lib.Interpret(t)
		in.Mutate = func(text []byte) []byte {
			old := regexp.MustCompile(c.old)
			if !bytes.Contains(text, []byte(".entry "+kernel)) || c.old == "" {
				return text
			}
			if !old.Match(text) {
				t.Errorf("%q is not in the PTX", c.old)
			}
			return old.ReplaceAll(text, []byte(c.with))
		}
		dev, err := cuda.New(cuda.Options{Library: lib.Path})
		if err != nil {
			t.Fatal(err)
		}
		l, err := dev.Lower(g)
		if err != nil {
			t.Fatal(err)
		}
		out, err := interpret(t.Context(), dev, l, nil)
		if err != nil {
			return nil, errors.Join(err, errors.New(lib.Report().Message), dev.Close())
		}
		if ran, _ := in.Ran(kernel); ran == 0 {
			t.Errorf("%s did not run", kernel)
		}
		return out["y"].Data, dev.Close()
	}
	want, err := run(t, change{})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range mistakes {
		t.Run(name, func(t *testing.T) {
			data, err := run(t, c)
			if err == nil && bytes.Equal(data, want) {
				t.Error("nobody misses it")
			}
			t.Log(err)
		})
	}
}

// TestHopperChosen: which linears are those of wgmma follows from the GPU, sizes and layouts, and where rows are alone not from how
// many there are.
func TestHopperChosen(t *testing.T) {
	defer cuda.HopperFrom(64, 4096)()
	const bf16 = tensor.BFloat16
	for name, c := range map[string]struct {
		of         multiplied
		capability int
		chosen     bool
	}{
		"many rows":                {multiplied{bf16, "", 64, 256, 64, false, ""}, 90, true},
		"float16":                  {multiplied{tensor.Float16, "", 64, 256, 64, false, ""}, 90, true},
		"few rows":                 {multiplied{bf16, "", 63, 256, 64, false, ""}, 90, false},
		"few terms":                {multiplied{bf16, "", 64, 256, 56, false, ""}, 90, false},
		"odd terms":                {multiplied{bf16, "", 64, 256, 68, false, ""}, 90, false},
		"float32":                  {multiplied{tensor.Float32, "", 64, 256, 64, false, ""}, 90, false},
		"rounded":                  {multiplied{tensor.Float32, "bf16", 64, 256, 64, false, ""}, 90, false},
		"on 8.9":                   {multiplied{bf16, "", 64, 256, 64, false, ""}, 89, false},
		"on 10.0":                  {multiplied{bf16, "", 64, 256, 64, false, ""}, 100, false},
		"on 12.0":                  {multiplied{bf16, "", 64, 256, 64, false, ""}, 120, false},
		"a row alone":              {multiplied{bf16, "", 1, 4096, 64, true, ""}, 90, true},
		"rows alone":               {multiplied{bf16, "", 999, 4096, 64, true, ""}, 90, true},
		"a row alone, few columns": {multiplied{bf16, "", 1, 4088, 64, true, ""}, 90, false},
		"rows alone, few columns":  {multiplied{bf16, "", 999, 4088, 64, true, ""}, 90, false},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := cuda.LowerFor(c.of.graph(t, false), c.capability)
			if err != nil {
				t.Fatal(err)
			}
			if is := l.Steps[0].Kernel == cuda.HopperKernel; is != c.chosen {
				t.Errorf("it is computed by %s", l.Steps[0].Kernel)
			}
		})
	}
}

// TestHopperColumns: some columns of a linear have the bits that the whole one gives them, in parts of the terms or not.
func TestHopperColumns(t *testing.T) {
	defer cuda.HopperFrom(1, 1)()
	dev, _ := open(t, "order=lazy:2 memory=128M cc=90")
	for _, c := range []multiplied{
		{tensor.BFloat16, "", 70, 600, 72, false, "relu"}, {tensor.BFloat16, "", 70, 600, 2056, false, "relu"},
		{tensor.BFloat16, "", 70, 600, 72, true, "relu"}, {tensor.Float16, "", 1, 9000, 1096, true, ""},
	} {
		whole := c.graph(t, true)
		divided, _ := rewrite.SplitRowsAt(whole, func(int) []int { return []int{0, 104, 112, c.n * 2 / 3 / 8 * 8, c.n} })
		if len(divided.Ops) != 5 {
			t.Fatal("nothing is divided")
		}
		if !bytes.Equal(byWGMMA(t, dev, whole).Data, byWGMMA(t, dev, divided).Data) {
			t.Errorf("%+v: other bits", c)
		}
	}
}

// TestHopperRefused: where the driver does not take kernels of wgmma, which are of a later release than the others, these compute.
func TestHopperRefused(t *testing.T) {
	defer cuda.HopperFrom(1, 1)()
	dev, _ := open(t, "order=lazy:2 memory=64M cc=90 driver=11080")
	for range 2 {
		x, w, bias, added := numbers(tensor.Float16, 67, 72), numbers(tensor.Float16, 33, 72), numbers(tensor.Float16, 33), numbers(tensor.Float16, 67, 33)
		op := graph.Op{Kind: "linear", Attrs: graph.Attrs{"act": "relu"}}
		compareLinear(t, byWGMMA(t, dev, loweredOp(t, op, []*tensor.Tensor{x, w, bias, added}).Graph), x, w, bias, added)
	}
}

// TestHopperUnwanted: OPTIMEM_WGMMA=none has other kernels compute.
func TestHopperUnwanted(t *testing.T) {
	defer cuda.HopperFrom(1, 1)()
	_, lib := openSimulated(t, "order=lazy:2 memory=64M cc=90")
	for value, wanted := range map[string]bool{"": true, "auto": true, "none": false} {
		dev, err := cuda.New(cuda.Options{Library: lib.Path, Environment: func(name string) string {
			return map[string]string{"OPTIMEM_WGMMA": value}[name]
		}})
		if err != nil {
			t.Fatal(err)
		}
		x, w := numbers(tensor.Float16, 67, 72), numbers(tensor.Float16, 33, 72)
		l, err := dev.Lower(loweredOp(t, graph.Op{Kind: "linear"}, []*tensor.Tensor{x, w}).Graph)
		if err != nil {
			t.Fatal(err)
		}
		if is := l.Steps[0].Kernel == cuda.HopperKernel; is != wanted {
			t.Errorf("%q: it is computed by %s", value, l.Steps[0].Kernel)
		}
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestHopperUneven: rows that do not lie evenly have the bits of those that do.
func TestHopperUneven(t *testing.T) {
	defer cuda.HopperFrom(1, 1)()
	dev, _ := open(t, "order=lazy:2 memory=64M cc=90")
	const k, n = 72, 40
	x, w, added := numbers(tensor.BFloat16, 2, 5, k), numbers(tensor.BFloat16, n, k), numbers(tensor.BFloat16, 2, 3, n)
	var results [][]byte
	for _, uneven := range []bool{true, false} {
		g := &graph.Graph{Modules: make(map[string]graph.Operand)}
		rows := g.Whole(g.AddConst(x))
		if !uneven { // the same rows, one behind the other
			even := &tensor.Tensor{DType: x.DType, Layout: tensor.Contiguous(2, 3, k)}
			for b := range 2 {
				even.Data = append(even.Data, x.Data[2*k*(5*b+1):2*k*(5*b+4)]...)
			}
			rows = g.Whole(g.AddConst(even))
		} else {
			rows.Layout.Shape, rows.Layout.Offset = tensor.Shape{2, 3, k}, k
		}
		op := graph.Op{Kind: "linear", Attrs: graph.Attrs{graph.RowsAlone: true}}
		op.In = []graph.Operand{rows, g.Whole(g.AddConst(w)), graph.Absent, g.Whole(g.AddConst(added))}
		out, err := g.Emit(graph.Standard(), op)
		if err != nil {
			t.Fatal(err)
		}
		g.Outputs = []graph.Output{{Name: "y", Operand: g.Whole(out[0])}}
		results = append(results, byWGMMA(t, dev, g).Data)
	}
	if !bytes.Equal(results[0], results[1]) {
		t.Error("other bits")
	}
}

// TestHopperShared: GPUs that compute a graph together compute it the same way.
func TestHopperShared(t *testing.T) {
	for _, c := range []struct {
		of   []int
		want int
	}{{[]int{90}, 90}, {[]int{90, 90}, 90}, {[]int{100, 90}, 89}, {[]int{90, 80}, 80}, {[]int{100}, 100}} {
		if got := cuda.Shared(c.of...); got != c.want {
			t.Errorf("%v: %d", c.of, got)
		}
	}
}
