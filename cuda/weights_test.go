//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/optimem/optimem/cuda"
	"github.com/optimem/optimem/device/devicetest"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/tensor"
)

// TestExactWeights runs linears of many rows of float32, not rounded, whose weights are narrower.
func TestExactWeights(t *testing.T) {
	dev, _ := open(t, "order=lazy:6 memory=64M")
	compareExactWeights(t, dev)
}

// TestExactWeightsPTX runs them from the PTX for GPUs that do not copy asynchronously; TestCommittedPTX does from the other.
func TestExactWeightsPTX(t *testing.T) {
	if testing.Short() {
		t.Skip("long under the race detector")
	}
	dev, lib := open(t, "order=lazy:6 memory=64M cc=70")
	in := lib.Interpret(t)
	compareExactWeights(t, dev)
	for _, kernel := range []string{"om_weights_f32_128", "om_weights_f32_64", "om_weights_f32_16", "om_weights_sum"} {
		if ran, _ := in.Ran(kernel); ran == 0 {
			t.Errorf("%s did not run", kernel)
		}
	}
	if ran, _ := in.Ran("om_widen"); ran != 0 {
		t.Error("a weight was widened in memory")
	}
}

// An exactWeight is a linear of rows × k floats by a narrow weight of n × k.
type exactWeight struct {
	rows, n, k   int
	lay          string
	scales, bias tensor.DType
	added        bool
	act          string
	// parts says that its terms are split, endless that all factors are above zero and a scale is infinite, alone that rows do not
	// depend on others.
	parts, endless, alone bool
}

// compareExactWeights compares them with the CPU's and, to the bit, with those of a weight that was widened and scaled before,
// which want as much scratch memory.
func compareExactWeights(t *testing.T, dev *cuda.Device) {
	const f32, f16, bf16, none = tensor.Float32, tensor.Float16, tensor.BFloat16, tensor.Invalid
	for name, c := range map[string]exactWeight{
		"lines":             {rows: 133, n: 130, k: 24, lay: "aligned", scales: f32, bias: f32, added: true, act: "silu"},
		"lines, odd":        {rows: 37, n: 9, k: 45, lay: "aligned", scales: f16, bias: none},
		"elsewhere":         {rows: 37, n: 33, k: 40, lay: "one element on", scales: bf16, bias: f16, act: "relu"},
		"across":            {rows: 37, n: 141, k: 43, lay: "across", scales: f32, bias: bf16, added: true},
		"across, lines odd": {rows: 33, n: 22, k: 40, lay: "across, lines odd", scales: f32, bias: none},
		"every second":      {rows: 37, n: 10, k: 33, lay: "every second of it", scales: f32, bias: f32},
		"parts":             {rows: 34, n: 20, k: 525, lay: "aligned", scales: f32, bias: f16, added: true, act: "relu", parts: true},
		"parts, across":     {rows: 34, n: 24, k: 528, lay: "across", scales: f16, bias: none, parts: true},
		"one term":          {rows: 40, n: 6, k: 1, lay: "aligned", scales: f32, bias: none},
		"one line":          {rows: 40, n: 1, k: 12, lay: "aligned", scales: f32, bias: none},
		"endless":           {rows: 40, n: 6, k: 45, lay: "aligned", scales: f32, bias: none, endless: true},
		"endless, across":   {rows: 40, n: 6, k: 45, lay: "across", scales: f32, bias: none, endless: true},
		"few":               {rows: 11, n: 70, k: 112, lay: "aligned", scales: f32, bias: f16, added: true, act: "silu", alone: true},
		"few, parts":        {rows: 3, n: 33, k: 1104, lay: "aligned", scales: f16, bias: f32, act: "relu", parts: true, alone: true},
		"few, endless":      {rows: 2, n: 6, k: 48, lay: "aligned", scales: f32, bias: none, endless: true, alone: true},
		"one":               {rows: 1, n: 40, k: 336, lay: "aligned", scales: bf16, bias: none, added: true, alone: true},
		"no columns":        {rows: 40, n: 0, k: 16, lay: "aligned", scales: f32, bias: none},
		"no terms":          {rows: 40, n: 5, k: 0, lay: "aligned", scales: f32, bias: f16},
	} {
		for _, kind := range []tensor.DType{tensor.Int8, f16, bf16} {
			if c.endless && kind != tensor.Int8 || c.parts && kind == bf16 {
				continue
			}
			for block, side := range []int{128, 64, 16} {
				if side == 128 && name != "lines" && (name != "across" || kind == bf16) || side == 16 && c.parts {
					continue // how a weight is read depends on its dtype and how it lies
				}
				t.Run(fmt.Sprint(side, " ", kind, ", ", name), func(t *testing.T) {
					defer cuda.OnlyFloatBlocks(block)()
					c.compare(t, dev, kind)
				})
			}
		}
	}
}

func (c exactWeight) compare(t *testing.T, dev *cuda.Device, kind tensor.DType) {
	w, scales := numbers(kind, c.n, c.k), numbers(c.scales, c.n)
	if kind == tensor.Int8 {
		for i := range c.n * c.k {
			w.Data = append(w.Data, byte(31*i+7))
		}
	}
	x := numbers(tensor.Float32, c.rows, c.k)
	if c.endless {
		for i := range w.Data {
			w.Data[i] = w.Data[i]&0x7f | 1
		}
		for i := range c.rows * c.k {
			x.Data[4*i+3] &= 0x7f
			x.Data[4*i] |= 1
		}
		binary.LittleEndian.PutUint32(scales.Data[8:], math.Float32bits(float32(math.Inf(1))))
	}
	g := func(wide bool) *graph.Graph {
		g := &graph.Graph{Modules: make(map[string]graph.Operand)}
		constant := func(x *tensor.Tensor) graph.Operand { return g.Whole(g.AddConst(x)) }
		float := func(x *tensor.Tensor) *tensor.Tensor {
			if !wide {
				return x
			}
			y := &tensor.Tensor{DType: tensor.Float32, Layout: x.Layout}
			for _, f := range devicetest.Floats(x) {
				y.Data = binary.LittleEndian.AppendUint32(y.Data, math.Float32bits(float32(f)))
			}
			return y
		}
		op := graph.Op{Kind: "linear", Attrs: graph.Attrs{"act": c.act, graph.RowsAlone: c.alone}, In: []graph.Operand{
			constant(x), graph.Absent, graph.Absent, graph.Absent,
		}}
		if c.bias != tensor.Invalid {
			op.In[2] = constant(float(numbers(c.bias, c.n)))
		}
		if c.added {
			op.In[3] = constant(numbers(tensor.Float32, c.rows, c.n))
		}
		switch {
		case wide && kind == tensor.Int8:
			y := &tensor.Tensor{DType: tensor.Float32, Layout: w.Layout}
			by := devicetest.Floats(scales)
			for i, b := range w.Data {
				y.Data = binary.LittleEndian.AppendUint32(y.Data, math.Float32bits(float32(int8(b))*float32(by[i/c.k])))
			}
			op.In[1] = lays[c.lay](g, y)
		case wide:
			op.In[1] = lays[c.lay](g, float(w))
		default:
			op.In[1] = lays[c.lay](g, w)
			if kind == tensor.Int8 {
				op.In = append(op.In, constant(scales))
			}
		}
		out, err := g.Emit(graph.Standard(), op)
		if err != nil {
			t.Fatal(err)
		}
		g.Outputs = []graph.Output{{Name: "y", Operand: g.Whole(out[0])}}
		return g
	}
	var results [2]*tensor.Tensor
	var work [2]int64
	for i, wide := range []bool{false, true} {
		l, err := cuda.Lower(g(wide))
		if err != nil {
			t.Fatal(err)
		}
		own, err := dev.Lower(l.Graph)
		if err != nil {
			t.Fatal(err)
		}
		work[i] = l.Steps[0].WorkBytes
		if own.Steps[0].WorkBytes != work[i] {
			t.Errorf("%d bytes of scratch memory on the device, %d without one", own.Steps[0].WorkBytes, work[i])
		}
		got, err := interpret(t.Context(), dev, l, nil)
		if err != nil {
			t.Fatal(err)
		}
		results[i] = got["y"]
	}
	if work[0] != work[1] || work[0] > 0 != c.parts {
		t.Errorf("%d bytes of scratch memory, %d for a wide weight", work[0], work[1])
	}
	if !bytes.Equal(results[0].Data, results[1].Data) {
		t.Errorf("other bits than those of a wide weight: %v", devicetest.Compare(results[0], results[1], 0))
	}
	if c.endless {
		for i, y := range devicetest.Floats(results[0]) {
			if math.IsInf(y, 1) != (i%c.n == 2) || math.IsNaN(y) {
				t.Fatalf("element %d is %v", i, y)
			}
		}
		return
	}
	pool := cpu.NewPool(1)
	defer pool.Close()
	want, err := cpu.Interpret(t.Context(), pool, graph.Standard(), g(false), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := devicetest.Compare(results[0], want["y"], 2e-6); err != nil {
		t.Error(err)
	}
}
