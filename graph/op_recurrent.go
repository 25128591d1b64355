package graph

import (
	"fmt"

	"github.com/optimem/optimem/tensor"
)

// recurrentOps walk a sequence with a state, one layer in one direction or both.
//
// In[0] is the sequence: [T B I], or [rows I] for a packed one, whose In[1] [T] says how many sequences still run at
// each step; In[1] is absent otherwise. In[2] is the first state [D B P] and In[3], for lstm, the first cell [D B H]; D
// is 2 for "bidirectional", else 1. Then for each direction w_ih [G·H I], w_hh [G·H P], b_ih and b_hh [G·H], which may
// be absent, and for lstm w_hr [P H], absent where P = H. With "reverse" a single direction walks from the end. Results
// are the states of each step [T B D·P] or [rows D·P], the last state and, for lstm, the last cell.
var recurrentOps = []OpDef{
	{Kind: "lstm", Shape: recurrentShape(4), FLOPs: recurrentFLOPs, Axes: recurrentAxes},
	{Kind: "gru", Shape: recurrentShape(3), FLOPs: recurrentFLOPs, Axes: recurrentAxes},
	// rnn: attribute "nonlinearity" is "tanh" or "relu".
	{Kind: "rnn", Shape: recurrentShape(1), FLOPs: recurrentFLOPs, Axes: recurrentAxes},
}

// RecurrentParams is how many operands each direction of a recurrent op has, after the first four.
const RecurrentParams = 5

// recurrentShape is the rule of recurrent ops with the given number of gates.
// Tables call it, and without its copies they compile faster.
//
//go:noinline
func recurrentShape(gates int) func(in []Spec, a Attrs) ([]Spec, error) {
	return func(in []Spec, a Attrs) ([]Spec, error) {
		directions := 1
		if a.Bool("bidirectional") {
			directions = 2
		}
		if err := wantOperands(in, 1, 4+directions*RecurrentParams); err != nil {
			return nil, err
		}
		if len(in) != 4+directions*RecurrentParams || !given(in, 2) || given(in, 3) != (gates == 4) {
			return nil, fmt.Errorf("%d operands", len(in))
		}
		x, h := in[0].Shape, in[2].Shape
		packed := given(in, 1)
		if packed && (in[1].DType != tensor.Int64 || len(in[1].Shape) != 1 || len(x) != 2) || !packed && len(x) != 3 {
			return nil, fmt.Errorf("sequence %v with batch sizes %v", x, in[1].Shape)
		}
		if len(h) != 3 || h[0] != directions || !packed && h[1] != x[1] {
			return nil, fmt.Errorf("state %v does not fit the sequence %v", h, x)
		}
		state := h[2]
		hidden := -1
		for d := range directions {
			p := in[4+d*RecurrentParams:]
			if !given(p, 0) || !given(p, 1) || len(p[0].Shape) != 2 {
				return nil, fmt.Errorf("a direction lacks its weights")
			}
			rows := p[0].Shape[0]
			if d > 0 && rows != in[4].Shape[0] {
				return nil, fmt.Errorf("weights %v and %v of two directions", in[4].Shape, p[0].Shape)
			}
			if hidden = rows / gates; given(p, 4) {
				if gates != 4 || !p[4].Shape.Equal(tensor.Shape{state, hidden}) {
					return nil, fmt.Errorf("projection %v does not fit state %v", p[4].Shape, h)
				}
			} else if hidden != state {
				return nil, fmt.Errorf("weight %v does not fit state %v", p[0].Shape, h)
			}
			if rows%gates != 0 || p[0].Shape[1] != x[len(x)-1] || !p[1].Shape.Equal(tensor.Shape{rows, state}) {
				return nil, fmt.Errorf("weights %v and %v do not fit the sequence %v and the state %v",
					p[0].Shape, p[1].Shape, x, h)
			}
			for _, b := range p[2:4] {
				if b.DType != tensor.Invalid && !b.Shape.Equal(tensor.Shape{rows}) {
					return nil, fmt.Errorf("bias %v does not fit weight %v", b.Shape, p[0].Shape)
				}
			}
		}
		for i, s := range in {
			if i != 1 && s.DType != tensor.Invalid && s.DType != in[0].DType {
				return nil, fmt.Errorf("%v operand with a %v sequence", s.DType, in[0].DType)
			}
		}
		if given(in, 3) && !in[3].Shape.Equal(tensor.Shape{directions, h[1], hidden}) {
			return nil, fmt.Errorf("cell %v does not fit state %v", in[3].Shape, h)
		}
		out := append(tensor.Shape{}, x...)
		width, ok := tensor.MulBytes(int64(directions), int64(state))
		if !ok {
			return nil, fmt.Errorf("state %v", h)
		}
		out[len(out)-1] = int(width)
		results := []Spec{{DType: in[0].DType, Shape: out}, in[2]}
		if gates == 4 {
			results = append(results, in[3])
		}
		return results, nil
	}
}

func recurrentFLOPs(in, _ []Spec, _ Attrs) int64 {
	x := in[0].Shape
	steps := Elements(x[:len(x)-1])
	var weights int64
	for i := 4; i < len(in); i += RecurrentParams {
		weights += Elements(in[i].Shape) + Elements(in[i+1].Shape)
		if given(in, i+4) {
			weights += Elements(in[i+4].Shape)
		}
	}
	return product(2, steps, weights)
}
