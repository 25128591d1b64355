//go:build linux && (amd64 || arm64) && !nocuda

package runtime

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/optimem/optimem/cuda/sim"
	"github.com/optimem/optimem/device/devicetest"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/graph/rewrite"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// A halfNet is a network of half floats whose weights are read.
type halfNet struct {
	*graph.Graph
	t    *testing.T
	data inMemory
	next int
}

// weight is one of small numbers.
func (n *halfNet) weight(shape ...int) graph.Operand {
	elements, _ := tensor.Shape(shape).NumElements()
	begin := len(n.data.data)
	for range elements {
		n.next++
		x := float32(int64(uint32(n.next)*2654435761)%2001)/8000 - 0.125
		n.data.data = binary.LittleEndian.AppendUint16(n.data.data, tensor.Float16FromFloat32(x))
	}
	id := n.AddWeight(tensor.Weight{
		Name: fmt.Sprint(begin), DType: tensor.Float16, Layout: tensor.Contiguous(shape...),
		Extent: storage.Extent{Source: &n.data, Offset: int64(begin), Bytes: elements * 2},
	}, graph.Weight)
	return graph.Operand{Value: id, Layout: tensor.Contiguous(shape...)}
}

func (n *halfNet) op(kind graph.Kind, a graph.Attrs, in ...graph.Operand) graph.Operand {
	n.t.Helper()
	out, err := n.Emit(graph.Standard(), graph.Op{Kind: kind, Attrs: a, In: in, Path: fmt.Sprint(len(n.Ops))})
	if err != nil {
		n.t.Fatal(err)
	}
	return n.Whole(out[0])
}

func (n *halfNet) conv(x graph.Operand, outputs, size, stride, groups int) graph.Operand {
	a := graph.Attrs{"stride": []int{stride, stride}, "padding": []int{size / 2, size / 2}, "dilation": []int{1, 1}, "groups": groups}
	return n.op("conv", a, x, n.weight(outputs, x.Layout.Shape[1]/groups, size, size), n.weight(outputs))
}

// TestRegionsOnGPU: channels-last regions give the same bits in every mode, and the numbers that there are without them.
func TestRegionsOnGPU(t *testing.T) {
	n := &halfNet{Graph: &graph.Graph{Modules: make(map[string]graph.Operand)}, t: t}
	x := n.Whole(n.AddInput("x", tensor.Float16, tensor.Shape{2, 3, 12, 12}))
	y := n.op("relu", nil, n.conv(x, 16, 3, 2, 1))
	z := n.op("relu", nil, n.conv(y, 32, 1, 1, 1))
	z = n.op("relu", nil, n.conv(z, 32, 3, 1, 32))
	y = n.op("add", graph.Attrs{"alpha": 1.0}, y, n.conv(z, 16, 1, 1, 1))
	y = n.op("mean", graph.Attrs{"dims": []int{2, 3}, "keepdim": false, "dtype": tensor.Float16}, n.conv(y, 24, 3, 1, 1))
	n.Outputs = []graph.Output{{Name: "y", Operand: n.op("linear", nil, y, n.weight(10, 24), n.weight(10))}}
	in := &tensor.Tensor{DType: tensor.Float16, Layout: tensor.Contiguous(2, 3, 12, 12)}
	for i := range 2 * 3 * 12 * 12 {
		in.Data = binary.LittleEndian.AppendUint16(in.Data, tensor.Float16FromFloat32(float32(i%17)/8-1))
	}
	results := make(map[rewrite.Passes]*tensor.Tensor)
	for _, without := range []rewrite.Passes{0, rewrite.ArrangeLayouts} {
		for _, mode := range []plan.Mode{plan.Resident, plan.Page, plan.Chunk, plan.Auto} {
			t.Run(fmt.Sprint(mode, " without ", without), func(t *testing.T) {
				lib := sim.New(t, "memory=64M order=lazy:4")
				s, err := start(t.Context(), new(models.Model), mode, Options{Device: "cuda", CUDALibrary: lib.Path, Without: without})
				if err != nil {
					t.Fatal(err)
				}
				p, err := s.program(t.Context(), n.Graph)
				if err != nil {
					t.Fatal(err)
				}
				last := 0
				for _, op := range p.graph.Ops {
					if op.Attrs.Bool("channels_last") {
						last++
					}
				}
				if (last > 0) != (without == 0) {
					t.Errorf("%d convolutions make channels-last values", last)
				}
				out := &tensor.Tensor{DType: tensor.Float16, Layout: tensor.Contiguous(2, 10), Data: make([]byte, 40)}
				for range 2 {
					if err := s.RunInto(t.Context(), Values{"x": in}, Values{"y": out}); err != nil {
						t.Fatal(err)
					}
					if results[without] == nil {
						results[without] = out
					}
					if !bytes.Equal(out.Data, results[without].Data) {
						t.Error("other bits than resident")
					}
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				lib.Check(t)
			})
		}
	}
	if err := devicetest.Compare(results[0], results[rewrite.ArrangeLayouts], 2e-3); err != nil {
		t.Error(err)
	}
}
