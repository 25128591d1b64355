//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/optimem/optimem/cuda"
	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/device/devicetest"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/tensor"
)

// TestAttention compares attention of many sizes with the CPU's.
func TestAttention(t *testing.T) {
	dev, _ := open(t, "order=lazy:3 memory=64M")
	compareAttention(t, dev)
}

// TestAttentionPTX does so from the PTX for GPUs whose tensor cores take no bfloat16; TestCommittedPTX does from the other.
func TestAttentionPTX(t *testing.T) {
	if testing.Short() {
		t.Skip("an interpreter under the race detector takes minutes")
	}
	for _, capability := range []string{"70", "75"} {
		t.Run(capability, func(t *testing.T) {
			dev, lib := open(t, "order=lazy:3 memory=64M cc="+capability)
			in := lib.Interpret(t)
			compareAttention(t, dev)
			for _, name := range []string{"f16_64", "f16_128", "f16_256", "bf16_64", "bf16_128"} {
				ran, _ := in.Ran("om_flash_" + name)
				if want := name == "f16_64" || name == "f16_128"; (ran > 0) != want {
					t.Errorf("%s ran: %v", name, ran > 0)
				}
			}
		})
	}
}

// An attentionCase is attention of batch matrices; groups of group matrices share keys and values.
type attentionCase struct {
	dtype                               tensor.DType
	batch, group, queries, keys         int
	width, values                       int
	mask                                tensor.DType
	everyRow                            bool // of the mask is the same
	causal, unseenNaN, turned, notWhole bool
	also                                string
	precision                           string
}

// graph returns the op; turned has heads behind positions, as models do, and notWhole lines that are not aligned.
func (c attentionCase) graph(t *testing.T) *graph.Graph {
	t.Helper()
	g := &graph.Graph{Modules: make(map[string]graph.Operand)}
	add := func(heads, lines, columns int) graph.Operand {
		pitch := columns
		if c.notWhole {
			pitch++
		}
		shape := tensor.Shape{c.batch, c.group, lines, columns}
		l := tensor.Layout{Shape: shape, Strides: []int{heads * lines * pitch, lines * pitch, pitch, 1}}
		if c.turned {
			l.Strides = []int{heads * lines * pitch, pitch, heads * pitch, 1}
		}
		if heads < c.group {
			l.Strides[1] = 0
		}
		x := numbers(c.dtype, c.batch*heads*lines*pitch)
		return graph.Operand{Value: g.AddConst(x), Layout: l}
	}
	op := graph.Op{Kind: "scaled_dot_product_attention", Attrs: graph.Attrs{
		"scale": 1 / math.Sqrt(float64(c.width)), "is_causal": c.causal, "also": c.also, "unseen_nan": c.unseenNaN,
	}}
	if c.precision != "" {
		op.Attrs["precision"] = c.precision
	}
	op.In = []graph.Operand{add(c.group, c.queries, c.width), add(1, c.keys, c.width), add(1, c.keys, c.values)}
	if c.mask != tensor.Invalid {
		l := tensor.Contiguous(c.batch, c.group, c.queries, c.keys)
		l.Strides[0], l.Strides[1] = 0, 0
		n := c.queries * c.keys
		if c.everyRow {
			l.Strides[2], n = 0, c.keys
		}
		op.In = append(op.In, graph.Operand{Value: g.AddConst(numbers(c.mask, n)), Layout: l})
	}
	out, err := g.Emit(graph.Standard(), op)
	if err != nil {
		t.Fatal(err)
	}
	for i, id := range out {
		g.Outputs = append(g.Outputs, graph.Output{Name: fmt.Sprint(i), Operand: g.Whole(id)})
	}
	return g
}

func compareAttention(t *testing.T, dev device.Device) {
	const f32, f16, bf16 = tensor.Float32, tensor.Float16, tensor.BFloat16
	pool := cpu.NewPool(1)
	defer pool.Close()
	for name, c := range map[string]attentionCase{
		"64":               {dtype: f32, batch: 2, group: 1, queries: 70, keys: 45, width: 64, values: 64},
		"causal, 40":       {dtype: f32, batch: 1, group: 1, queries: 90, keys: 75, width: 40, values: 24, causal: true, also: "logsumexp"},
		"80":               {dtype: f32, batch: 1, group: 1, queries: 35, keys: 40, width: 80, values: 80, mask: tensor.Bool, turned: true},
		"100 and 6":        {dtype: f32, batch: 1, group: 1, queries: 3, keys: 35, width: 100, values: 6, mask: f32},
		"256":              {dtype: f32, batch: 1, group: 1, queries: 34, keys: 33, width: 256, values: 200, notWhole: true},
		"300":              {dtype: f32, batch: 1, group: 1, queries: 3, keys: 5, width: 300, values: 300},
		"half, no cores":   {dtype: f16, batch: 1, group: 1, queries: 20, keys: 34, width: 20, values: 36, mask: tensor.Bool},
		"shared keys":      {dtype: f32, batch: 2, group: 3, queries: 23, keys: 34, width: 8, values: 8, mask: f32, everyRow: true},
		"shared, causal":   {dtype: f32, batch: 2, group: 3, queries: 9, keys: 14, width: 8, values: 8, causal: true},
		"decode, 16 heads": {dtype: f32, batch: 4, group: 16, queries: 1, keys: 1300, width: 8, values: 8},
		"decode":           {dtype: f32, batch: 2, group: 1, queries: 1, keys: 400, width: 64, values: 128, also: "logsumexp"},
		"decode, grouped":  {dtype: f16, batch: 1, group: 5, queries: 1, keys: 301, width: 128, values: 72, mask: tensor.Bool, turned: true},
		"decode of 11":     {dtype: bf16, batch: 1, group: 1, queries: 11, keys: 260, width: 256, values: 40, mask: bf16},
		"decode, nothing":  {dtype: f32, batch: 1, group: 1, queries: 2, keys: 128, width: 8, values: 8, mask: tensor.Int8, unseenNaN: true},
		"cores, 64":        {dtype: bf16, batch: 2, group: 1, queries: 70, keys: 130, width: 64, values: 64},
		"cores, causal":    {dtype: f16, batch: 1, group: 1, queries: 130, keys: 100, width: 40, values: 64, causal: true, also: "logsumexp"},
		"cores, unseen":    {dtype: f16, batch: 1, group: 1, queries: 37, keys: 19, width: 16, values: 24, mask: f16, everyRow: true, also: "logsumexp"},
		"cores, 128":       {dtype: f16, batch: 1, group: 2, queries: 20, keys: 70, width: 128, values: 80, mask: tensor.Bool, turned: true},
		"cores, 96, mask":  {dtype: bf16, batch: 1, group: 1, queries: 20, keys: 65, width: 96, values: 96, mask: bf16},
		"cores, 256":       {dtype: bf16, batch: 1, group: 1, queries: 17, keys: 40, width: 256, values: 136, mask: f32},
		"cores, 160":       {dtype: f16, batch: 2, group: 1, queries: 70, keys: 75, width: 160, values: 160, causal: true, also: "logsumexp"},
		"cores, 256 wide":  {dtype: f16, batch: 1, group: 2, queries: 20, keys: 33, width: 192, values: 256, mask: tensor.Bool, turned: true},
		"cores, float 256": {dtype: f32, batch: 1, group: 1, queries: 65, keys: 40, width: 256, values: 256, precision: "bf16"},
		"cores, float":     {dtype: f32, batch: 1, group: 1, queries: 66, keys: 70, width: 64, values: 48, precision: "bf16"},
		"cores, float 128": {dtype: f32, batch: 1, group: 1, queries: 18, keys: 20, width: 104, values: 128, precision: "bf16"},
		"cores, nothing":   {dtype: bf16, batch: 1, group: 1, queries: 17, keys: 16, width: 16, values: 16, mask: tensor.Int8, unseenNaN: true},
	} {
		t.Run(name, func(t *testing.T) {
			hidden := c.mask == tensor.Int8
			if hidden {
				c.mask = tensor.Bool
			}
			g := c.graph(t)
			if hidden {
				clear(g.Values[g.Ops[0].In[3].Value].Const)
			}
			l, err := cuda.Lower(g)
			if err != nil {
				t.Fatal(err)
			}
			got, err := interpret(t.Context(), dev, l, nil)
			if err != nil {
				t.Fatal(err)
			}
			want, err := cpu.Interpret(t.Context(), pool, graph.Standard(), g, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			bound := map[tensor.DType]float64{f32: 4e-6, f16: 2e-3, bf16: 1.6e-2}[c.dtype]
			if c.precision != "" {
				bound = 1.6e-2
			}
			for k := range want {
				if err := devicetest.Compare(got[k], want[k], bound); err != nil {
					t.Errorf("result %s: %v", k, err)
				}
			}
		})
	}
}
