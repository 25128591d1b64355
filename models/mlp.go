package models

import (
	"errors"
	"strconv"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/tensor"
)

// mlpName is the architecture of torch.nn.Sequential(Linear, activation, Linear, …, Linear). A state dict of it has the
// names 0.weight, 0.bias, 2.weight, …; which activation it was does not show, so ReLU is assumed and said.
const mlpName = "mlp"

// newMLP returns the architecture for widths: of the input, between the layers, of the output.
func newMLP(widths []int) *layers.Architecture {
	root := layers.Sequential()
	for i, out := range widths[1:] {
		if i > 0 {
			root.Add(strconv.Itoa(2*i-1), layers.ReLU())
		}
		root.Add(strconv.Itoa(2*i), layers.Linear(widths[i], out))
	}
	return &layers.Architecture{
		Name: mlpName, Root: root, Classes: layers.NN(),
		Inputs: []Port{{
			Name: "x", DType: tensor.Float32, Shape: tensor.Shape{-1, widths[0]}, Dims: []string{"batch", ""},
		}},
	}
}

// recogniseMLP finds linear layers at even places of a Sequential, each as wide as the one before. Where most of it is that, nearest
// says what is not.
func recogniseMLP(dict layers.StateDict) (found []*layers.Architecture, nearest error) {
	have := dict.Shapes()
	var widths []int
	for i := 0; ; i += 2 {
		w, ok := have[strconv.Itoa(i)+".weight"]
		if !ok {
			break
		}
		if len(w) != 2 {
			return nil, nil
		}
		if len(widths) == 0 {
			widths = append(widths, w[1])
		}
		widths = append(widths, w[0])
	}
	if len(widths) < 2 {
		return nil, nil
	}
	a := newMLP(widths)
	for i := range a.Root.Children { // layers may have no bias
		c := a.Root.Children[i].Module
		if _, ok := have[a.Root.Children[i].Name+".bias"]; !ok && len(c.Params) == 2 {
			c.Params[1].None = true
		}
	}
	var mismatch *layers.MismatchError
	if errors.As(a.Root.Check(mlpName, dict), &mismatch) {
		if mismatch.Count() > len(dict)/2 {
			return nil, nil // a Sequential with other layers in it
		}
		return nil, mismatch
	}
	return []*layers.Architecture{a}, nil
}

func namedMLP(_ string, dict layers.StateDict) (*layers.Architecture, error) {
	if found, _ := recogniseMLP(dict); len(found) > 0 {
		return found[0], nil
	}
	return nil, &UnsupportedError{
		What: "the state dict is not one of linear layers at even places of a Sequential", Hint: codeHint,
	}
}
