//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/optimem/optimem/cuda"
	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/device/devicetest"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/tensor"
)

// TestExperts compares layers of experts with the CPU's, and their rows with rows alone.
func TestExperts(t *testing.T) {
	dev, _ := open(t, "order=lazy:3 memory=64M")
	compareExperts(t, dev)
}

// TestExpertsPTX does so from the PTX.
func TestExpertsPTX(t *testing.T) {
	interpreted(t, "order=lazy:3 memory=64M", compareExperts, "om_experts_sort", "om_experts_gate", "om_experts_down", "om_experts_sum")
}

// An expertsCase is a layer of experts. encodings are those of gates, ups and downs, "" for numbers of the dtype.
type expertsCase struct {
	all, named, hidden, inner int
	dtype                     tensor.DType
	encodings                 [3]string
	act                       string
	biased, weighed           bool
	// turned says that weights lie across, as some checkpoints have them, some that those of every second expert do.
	turned, some bool
}

var expertsCases = map[string]expertsCase{
	"floats":   {all: 5, named: 2, hidden: 24, inner: 19, act: "silu"},
	"many":     {all: 19, named: 4, hidden: 16, inner: 24, act: "silu", biased: true},
	"odd":      {all: 3, named: 3, hidden: 21, inner: 13, act: "gelu", weighed: true},
	"halves":   {all: 4, named: 2, hidden: 264, inner: 40, dtype: tensor.BFloat16, act: "clamped", biased: true},
	"unlike":   {all: 5, named: 2, hidden: 24, inner: 16, act: "silu", some: true},
	"turned":   {all: 4, named: 1, hidden: 32, inner: 24, dtype: tensor.Float16, act: "silu", turned: true},
	"blocks":   {all: 6, named: 2, hidden: 256, inner: 64, encodings: [3]string{"Q4_K", "Q6_K", "Q8_0"}, act: "silu"},
	"of MXFP4": {all: 3, named: 2, hidden: 64, inner: 32, encodings: [3]string{"MXFP4", "MXFP4", "MXFP4"}, act: "clamped", biased: true},
	"mixed":    {all: 3, named: 1, hidden: 1056, inner: 32, encodings: [3]string{"", "Q4_0", ""}, act: "silu"},
}

func (c expertsCase) attrs() graph.Attrs {
	a := graph.Attrs{"experts": c.all, "act": c.act, "biased": c.biased, "weigh_input": c.weighed}
	if c.act == "clamped" {
		a["alpha"], a["limit"] = 1.7, 1.5
	}
	for i, name := range c.encodings {
		if name != "" {
			a[graph.ExpertEncodings[i]] = name
		}
	}
	return a
}

// in returns the operands of rows [from, from+count). Every row names other experts, and one of them none.
func (c expertsCase) in(from, count int) []*tensor.Tensor {
	ids := &tensor.Tensor{DType: tensor.Int64, Layout: tensor.Contiguous(count, c.named)}
	for row := from; row < from+count; row++ {
		for k := range c.named {
			id := (row*row + row/3 + k) % c.all
			if row%7 == 5 && k == 0 {
				id = -1
			}
			ids.Data = binary.LittleEndian.AppendUint64(ids.Data, uint64(id))
		}
	}
	cut := func(width int) *tensor.Tensor {
		x := numbers(tensor.Float32, from+count, width)
		return &tensor.Tensor{DType: x.DType, Layout: tensor.Contiguous(count, width), Data: x.Data[4*from*width:]}
	}
	in := []*tensor.Tensor{cut(c.hidden), ids, cut(c.named)}
	if c.dtype == tensor.Invalid {
		c.dtype = tensor.Float32
	}
	shapes := [3][2]int{{c.inner, c.hidden}, {c.inner, c.hidden}, {c.hidden, c.inner}}
	for e := range c.all {
		for i, shape := range shapes {
			if c.encodings[i] == "" {
				x := numbers(c.dtype, e+1, shape[0], shape[1])
				n := shape[0] * shape[1] * c.dtype.Size()
				in = append(in, &tensor.Tensor{DType: c.dtype, Layout: tensor.Contiguous(shape[0], shape[1]), Data: x.Data[e*n:]})
				continue
			}
			rowBytes, _ := blocksOf(c.encodings[i]).BlockBytes(shape[1])
			x := &tensor.Tensor{DType: tensor.UInt8, Layout: tensor.Contiguous(shape[0], rowBytes)}
			state := uint32(e*3 + i)
			for range shape[0] * rowBytes {
				state = state*1664525 + 1013904223
				x.Data = append(x.Data, byte(state>>24)&0x3c) // scales are small, and positive
			}
			in = append(in, x)
		}
		if c.biased {
			in = append(in, numbers(c.dtype, c.inner), numbers(c.dtype, c.inner), numbers(tensor.Float32, c.hidden))
		}
	}
	return in
}

// graph returns the layer of some rows.
func (c expertsCase) graph(t *testing.T, from, count int) *graph.Graph {
	t.Helper()
	g := &graph.Graph{Modules: make(map[string]graph.Operand)}
	op := graph.Op{Kind: "experts", Path: "here", Attrs: c.attrs()}
	for i, x := range c.in(from, count) {
		o := g.Whole(g.AddConst(x))
		if each := graph.ExpertOperands(op.Attrs); i >= graph.ExpertsFirst && (c.turned || c.some && (i-graph.ExpertsFirst)/each%2 > 0) {
			shape := o.Layout.Shape
			o.Layout = tensor.Layout{Shape: shape, Strides: []int{1, shape[0]}}
		}
		op.In = append(op.In, o)
	}
	out, err := g.Emit(graph.Standard(), op)
	if err != nil {
		t.Fatal(err)
	}
	g.Outputs = []graph.Output{{Name: "y", Operand: g.Whole(out[0])}}
	return g
}

func compareExperts(t *testing.T, dev device.Device) {
	pool := cpu.NewPool(1)
	defer pool.Close()
	run := func(g *graph.Graph) *tensor.Tensor {
		l, err := cuda.Lower(g)
		if err != nil {
			t.Fatal(err)
		}
		got, err := interpret(t.Context(), dev, l, nil)
		if err != nil {
			t.Fatal(err)
		}
		return got["y"]
	}
	const rows = 17
	for name, c := range expertsCases {
		t.Run(name, func(t *testing.T) {
			g := c.graph(t, 0, rows)
			all := run(g)
			want, err := cpu.Interpret(t.Context(), pool, graph.Standard(), g, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := devicetest.Compare(all, want["y"], 2e-5); err != nil {
				t.Error(err)
			}
			line := 4 * c.hidden
			for _, part := range [][2]int{{0, 1}, {5, 1}, {9, 6}} {
				if some := run(c.graph(t, part[0], part[1])); !bytes.Equal(some.Data, all.Data[part[0]*line:][:part[1]*line]) {
					t.Errorf("%d rows from %d on have other bits than among all", part[1], part[0])
				}
			}
		})
	}
	t.Run("in parts", func(t *testing.T) {
		c := expertsCases["floats"]
		g := c.graph(t, 0, rows)
		whole := run(g)
		defer cuda.ExpertsFloats(5 * c.named * (c.hidden + c.inner))()
		if got := run(g); !bytes.Equal(got.Data, whole.Data) {
			t.Error("rows that are computed five at a time have other bits")
		}
	})
}

// TestExpertsFail: an expert that there is not is an error.
func TestExpertsFail(t *testing.T) {
	dev, _ := open(t, "order=lazy:3 memory=64M")
	c := expertsCases["floats"]
	for _, id := range []int64{int64(c.all), -2} {
		in := c.in(0, 3)
		binary.LittleEndian.PutUint64(in[1].Data[8:], uint64(id))
		_, err := interpret(t.Context(), dev, loweredOp(t, graph.Op{Kind: "experts", Attrs: c.attrs(), Path: "here"}, in), nil)
		var index *graph.IndexError
		if !errors.As(err, &index) {
			t.Errorf("expert %d: %v", id, err)
		}
	}
}
