//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/optimem/optimem/cuda"
	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/device/devicetest"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/tensor"
)

// TestStates compares ops with states with the CPU's, and sequences that are cut with whole ones.
func TestStates(t *testing.T) {
	dev, _ := open(t, "order=lazy:3 memory=64M")
	compareStates(t, dev)
}

// TestStatesPTX does so from the PTX.
func TestStatesPTX(t *testing.T) {
	interpreted(t, "order=lazy:3 memory=64M", compareStates, "om_state_conv", "om_state_scan", "om_state_delta")
}

// TestRecordedStates compares ops with states with PyTorch's.
func TestRecordedStates(t *testing.T) {
	dev, _ := open(t, "order=lazy:3 memory=64M")
	compareRecordedStates(t, dev)
}

// TestRecordedStatesPTX does so from the PTX.
func TestRecordedStatesPTX(t *testing.T) {
	interpreted(t, "order=lazy:3 memory=64M", compareRecordedStates, "om_state_conv", "om_state_scan", "om_state_delta")
}

func compareRecordedStates(t *testing.T, dev device.Device) {
	devicetest.RunStates(t, func(g *graph.Graph, inputs map[string]*tensor.Tensor) (map[string]*tensor.Tensor, error) {
		l, err := cuda.Lower(g)
		if err != nil {
			return nil, err
		}
		return interpret(t.Context(), dev, l, inputs)
	})
}

// A stateCase is an op with a state: channels and taps of a convolution, sizes of the others. own is set where each number of a
// state has a rate of its own.
type stateCase struct {
	kind                         graph.Kind
	channels, taps               int
	heads, groups, rows, columns int
	own, bare                    bool
}

var stateCases = []stateCase{
	{kind: "causal_conv", channels: 5, taps: 2},
	{kind: "causal_conv", channels: 140, taps: 4, bare: true},
	{kind: "causal_conv", channels: 3, taps: 8},
	{kind: "selective_scan", heads: 37, groups: 1, rows: 16, columns: 1, own: true},
	{kind: "selective_scan", heads: 6, groups: 2, rows: 7, columns: 1},
	{kind: "selective_scan", heads: 4, groups: 2, rows: 24, columns: 33},
	{kind: "selective_scan", heads: 2, groups: 1, rows: 300, columns: 3},
	{kind: "delta_rule", heads: 4, groups: 2, rows: 9, columns: 7},
	{kind: "delta_rule", heads: 2, groups: 2, rows: 64, columns: 20},
	{kind: "delta_rule", heads: 2, groups: 1, rows: 32, columns: 10, own: true},
}

func (c stateCase) String() string {
	return fmt.Sprint(c.kind, c.channels, "-", c.heads, "-", c.rows, "-", c.columns)
}

// statePlaces is how many states a cache has.
const statePlaces = 5

// shapes returns those of the operands, of a token of those that tokens have.
func (c stateCase) shapes() (shapes []tensor.Shape, rows []bool) {
	rates := 1
	if c.own {
		rates = c.rows
	}
	switch c.kind {
	case "causal_conv":
		return []tensor.Shape{{c.channels}, {c.channels, c.taps}, {c.channels}}, []bool{true, false, false}
	case "selective_scan":
		return []tensor.Shape{{c.heads, c.columns}, {c.heads}, {c.heads, rates}, {c.groups, c.rows}, {c.groups, c.rows}},
			[]bool{true, true, false, true, true}
	}
	decays := tensor.Shape{c.heads}
	if c.own {
		decays = append(decays, c.rows)
	}
	return []tensor.Shape{{c.groups, c.rows}, {c.groups, c.rows}, {c.heads, c.columns}, decays, {c.heads}}, []bool{true, true, true, true, true}
}

// A stateRow is a row of a pass: a token, where its state is and where it goes.
type stateRow struct {
	token    int
	from, to int64
}

// operand is a number for each place of an operand and a token: what decays is negative, and shares are between 0 and 1.
func (c stateCase) operand(i, token, n int) []byte {
	r := rand.New(rand.NewPCG(uint64(i), uint64(token)))
	var data []byte
	for range n {
		x := r.Float32()*2 - 1
		switch {
		case c.kind == "selective_scan" && i == 1, c.kind == "delta_rule" && i == 4:
			x = (x + 1) / 2
		case c.kind == "selective_scan" && i == 2, c.kind == "delta_rule" && i == 3:
			x = (x - 1) / 2
		case c.kind == "delta_rule" && i < 2:
			x /= 4
		}
		data = append(data, tensor.Of([]float32{x}, 1).Data...)
	}
	return data
}

// in returns the operands of a pass over rows, or, without a cache, of two sequences of as many tokens.
func (c stateCase) in(rows []stateRow, cache []byte) []*tensor.Tensor {
	var in []*tensor.Tensor
	sequences := 2
	if cache != nil {
		sequences = 1
	}
	shapes, tokens := c.shapes()
	for i, shape := range shapes {
		n, _ := shape.NumElements()
		x := &tensor.Tensor{DType: tensor.Float32, Layout: tensor.Contiguous(shape...)}
		switch {
		case c.kind == "causal_conv" && i == 2 && c.bare:
			x = nil
		case !tokens[i]:
			x.Data = c.operand(i, 0, int(n))
		default:
			x.Layout = tensor.Contiguous(append(tensor.Shape{sequences, len(rows)}, shape...)...)
			x.Layout.Strides[0], x.Layout.Strides[1] = len(rows)*int(n+3), int(n+3)
			for s := range sequences {
				for _, r := range rows {
					x.Data = append(x.Data, c.operand(i, 1+max(r.token, 0)+100*s, int(n+3))...)
				}
			}
		}
		in = append(in, x)
	}
	if cache != nil {
		states := &tensor.Tensor{DType: tensor.Int64, Layout: tensor.Contiguous(len(rows), 2)}
		for _, r := range rows {
			states.Data = binary.LittleEndian.AppendUint64(states.Data, uint64(r.from))
			states.Data = binary.LittleEndian.AppendUint64(states.Data, uint64(r.to))
		}
		in = append(in, &tensor.Tensor{DType: tensor.Float32, Layout: tensor.Contiguous(c.cacheShape()...), Data: slices.Clone(cache)}, states)
	}
	return in
}

func (c stateCase) cacheShape() tensor.Shape {
	if c.kind == "causal_conv" {
		return tensor.Shape{statePlaces, c.taps - 1, c.channels}
	}
	return tensor.Shape{statePlaces, c.heads, c.rows, c.columns}
}

// compare computes a pass on a device and on the CPU, and returns the device's result and cache.
func (c stateCase) compare(t *testing.T, dev device.Device, pool *cpu.Pool, rows []stateRow, cache []byte) (y *tensor.Tensor, after []byte) {
	t.Helper()
	in := c.in(rows, cache)
	l := c.lower(t, c.in(rows, cache))
	got, err := interpret(t.Context(), dev, l, nil)
	if err != nil {
		t.Fatal(err)
	}
	want, err := cpu.Compute(t.Context(), pool, graph.Standard(), c.kind, nil, in...)
	if err != nil {
		t.Fatal(err)
	}
	if err := devicetest.Compare(got["y"], want[0], 1e-5); err != nil {
		t.Error(err)
	}
	if cache == nil {
		return got["y"], nil
	}
	if err := devicetest.Compare(got["cache"], in[len(in)-2], 1e-5); err != nil {
		t.Error("the states:", err)
	}
	return got["y"], got["cache"].Data
}

func compareStates(t *testing.T, dev device.Device) {
	pool := cpu.NewPool(1)
	defer pool.Close()
	const length = 9
	for _, c := range stateCases {
		t.Run(c.String(), func(t *testing.T) {
			var whole, cut []stateRow
			for i := range length {
				whole = append(whole, stateRow{i, graph.StateBefore, graph.StateNone})
			}
			whole[0].from, whole[length-1].to = graph.StateNone, 3
			c.compare(t, dev, pool, whole, nil)
			n, _ := c.cacheShape().NumElements()
			cache := bytes.Repeat([]byte{0x3f}, int(n)*4) // rubbish
			all, ends := c.compare(t, dev, pool, whole, cache)
			each, size := len(all.Data)/length, len(ends)/statePlaces
			cut = append(cut, whole[:4]...)
			cut[3].to = 1 // a pass ends here, and a row is no token
			cut = append(cut, stateRow{-1, graph.StateAbsent, graph.StateNone})
			first, between := c.compare(t, dev, pool, cut, cache)
			if !bytes.Equal(first.Data[:4*each], all.Data[:4*each]) || !bytes.Equal(first.Data[4*each:], make([]byte, each)) {
				t.Error("the first rows have other bits than among all")
			}
			cut = append([]stateRow{{-1, graph.StateAbsent, graph.StateNone}, {4, 1, 1}}, whole[5:]...)
			cut[len(cut)-1].to = 0
			second, after := c.compare(t, dev, pool, cut, between)
			if !bytes.Equal(second.Data[each:], all.Data[4*each:]) {
				t.Error("the last rows have other bits than among all")
			}
			if !bytes.Equal(after[:size], ends[3*size:][:size]) {
				t.Error("a cut sequence leaves another state")
			}
		})
	}
}

// TestStatesFail: a place that there is not, and a row that goes on with what no row left, are errors, and nothing is written.
func TestStatesFail(t *testing.T) {
	dev, _ := open(t, "order=lazy:3 memory=64M")
	for _, c := range stateCases[2:8] {
		n, _ := c.cacheShape().NumElements()
		cache := make([]byte, n*4)
		for name, rows := range map[string][]stateRow{
			"from a place above": {{0, statePlaces, 0}},
			"to a place above":   {{0, graph.StateNone, 1}, {1, graph.StateBefore, statePlaces}},
			"what no place is":   {{0, -4, 0}},
			"from nothing":       {{0, graph.StateBefore, 0}},
			"from no token":      {{-1, graph.StateAbsent, -1}, {0, graph.StateBefore, 0}},
		} {
			_, err := interpret(t.Context(), dev, c.lower(t, c.in(rows, cache)), nil)
			var index *graph.IndexError
			if !errors.As(err, &index) {
				t.Errorf("%v: %s: %v", c, name, err)
			}
		}
	}
}

// TestStatesAreLeftToTheCPU where a kernel has too few registers for them.
func TestStatesAreLeftToTheCPU(t *testing.T) {
	for _, c := range []struct {
		stateCase
		takes bool
	}{
		{stateCase{kind: "causal_conv", channels: 2, taps: 9}, false},
		{stateCase{kind: "selective_scan", heads: 1, groups: 1, rows: 512, columns: 2}, true},
		{stateCase{kind: "selective_scan", heads: 1, groups: 1, rows: 513, columns: 2}, false},
		{stateCase{kind: "delta_rule", heads: 1, groups: 1, rows: 513, columns: 2}, false},
	} {
		var in []graph.Spec
		for _, x := range c.in([]stateRow{{0, graph.StateNone, 0}}, nil) {
			in = append(in, graph.Spec{DType: x.DType, Shape: x.Layout.Shape})
		}
		if err := cuda.Supports(graph.Op{Kind: c.kind}, in, nil); (err == nil) != c.takes {
			t.Errorf("%v: %v", c.stateCase, err)
		}
	}
}

// lower is loweredOp for operands that lie within wider memory, with the cache among the results.
func (c stateCase) lower(t *testing.T, in []*tensor.Tensor) *graph.Lowered {
	t.Helper()
	flat := slices.Clone(in)
	for i, x := range in {
		if x != nil && x.DType == tensor.Float32 {
			flat[i] = &tensor.Tensor{DType: x.DType, Layout: tensor.Contiguous(len(x.Data) / 4), Data: x.Data}
		}
	}
	g := &graph.Graph{Modules: make(map[string]graph.Operand)}
	op := graph.Op{Kind: c.kind, Path: "here"}
	for i, x := range flat {
		if x == nil {
			op.In = append(op.In, graph.Absent)
			continue
		}
		o := g.Whole(g.AddConst(x))
		o.Layout = in[i].Layout
		op.In = append(op.In, o)
	}
	out, err := g.Emit(graph.Standard(), op)
	if err != nil {
		t.Fatal(err)
	}
	g.Outputs = []graph.Output{{Name: "y", Operand: g.Whole(out[0])}}
	if cache, _ := c.kind.StateOperand(); cache < len(in) {
		g.Outputs = append(g.Outputs, graph.Output{Name: "cache", Operand: g.Ops[0].In[cache]})
	}
	l, err := cuda.Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	return l
}
