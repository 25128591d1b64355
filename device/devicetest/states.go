package devicetest

import (
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// stateBound is the error that results of ops with states may have, as a part of the largest magnitude.
const stateBound = 4e-6

// RunStates runs the ops that walk sequences with a state (causal convolutions, selective scans, the gated delta rule) over whole
// sequences, and compares what they give with PyTorch's results, which testdata/states.py recorded.
func RunStates(t *testing.T, run Runner) {
	list, err := readStates()
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range list {
		t.Run(fmt.Sprintf("%s/%d", c.Kind, i), func(t *testing.T) {
			g, op, inputs := &graph.Graph{}, graph.Op{Kind: c.Kind}, make(map[string]*tensor.Tensor)
			for k, x := range c.operands() {
				name := fmt.Sprint(k)
				inputs[name] = x
				op.In = append(op.In, g.Whole(g.AddInput(name, tensor.Float32, x.Layout.Shape)))
			}
			out, err := g.Emit(graph.Standard(), op)
			if err != nil {
				t.Fatal(err)
			}
			g.Outputs = []graph.Output{{Name: "y", Operand: g.Whole(out[0])}}
			got, err := run(g, inputs)
			if err != nil {
				t.Fatal(err)
			}
			shape := g.Spec(g.Whole(out[0])).Shape
			want := &tensor.Tensor{DType: tensor.Float32, Layout: tensor.Contiguous(shape...)}
			if want.Data, err = base64.StdEncoding.DecodeString(c.Result); err != nil {
				t.Fatal(err)
			}
			if err := Compare(got["y"], want, stateBound); err != nil {
				t.Error(err)
			}
		})
	}
}

// A stateCall is one recorded call.
type stateCall struct {
	Kind   graph.Kind
	Shapes []tensor.Shape
	Result string
}

// readStates reads the recorded calls.
func readStates() (list []stateCall, err error) {
	fsys, err := files()
	if err != nil {
		return nil, err
	}
	f, err := fsys.Open("states.json.gz")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	return list, json.Unmarshal(text, &list)
}

// operands makes the operands of a call as states.py does: steps and shares are from 0 to 1, what decays is from −1 to 0.
func (c *stateCall) operands() (list []*tensor.Tensor) {
	state := uint32(1)
	for i, shape := range c.Shapes {
		n, err := shape.NumElements()
		if err != nil {
			panic("BUG: " + err.Error())
		}
		numbers := make([]float32, n)
		for k := range numbers {
			state = state*1664525 + 1013904223
			x := float32(int32(state)) / (1 << 31)
			switch {
			case c.Kind == "selective_scan" && i == 1, c.Kind == "delta_rule" && i == 4:
				x = (x + 1) / 2
			case c.Kind == "selective_scan" && i == 2, c.Kind == "delta_rule" && i == 3:
				x = (x - 1) / 2
			case c.Kind == "delta_rule" && i < 2:
				x /= 4
			}
			numbers[k] = x
		}
		list = append(list, tensor.Of(numbers, shape...))
	}
	return list
}
