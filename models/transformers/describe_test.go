package transformers_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models/internal/zoo"
	"github.com/optimem/optimem/tensor"
)

// bare returns a checkpoint of a model's weights alone: what its state dict holds, without the program.
func bare(name string, ckpt *loader.Checkpoint, ref *zoo.Reference) (*loader.Checkpoint, error) {
	var weights []tensor.Weight
	for _, w := range ckpt.Weights {
		if !strings.Contains(w.Name, "lifted_tensor") && !computed(ref, w.Name) {
			weights = append(weights, w)
		}
	}
	return loader.NewCheckpoint(name, weights, nil)
}

// computed reports whether a weight of the reference is stored as bytes: a buffer that the model computes.
func computed(ref *zoo.Reference, name string) bool {
	return ref.Weights[name].Data != nil || ref.Weights[name].Gzip != nil
}

// owner returns the weight that a name is another one of.
func owner(ref *zoo.Reference, name string) string {
	for ref.Weights[name].TiedTo != "" {
		name = ref.Weights[name].TiedTo
	}
	return name
}

// describe writes a graph as one line for each op, so that two graphs can be compared: kind, path, attributes, and
// operands by what made them. Buffers that are in no state dict are weights of a program and constants of a model whose
// code is known; both are written as constants.
func describe(g *graph.Graph, ref *zoo.Reference) ([]string, error) {
	names := make([]string, len(g.Values))
	for id, v := range g.Values {
		switch v.Role {
		case graph.Weight, graph.State:
			names[id] = owner(ref, v.Weight.Name)
			if computed(ref, v.Weight.Name) {
				data := make([]byte, v.Bytes())
				if err := v.Weight.Extent.Source.ReadAt(context.Background(), data, v.Weight.Extent.Offset); err != nil {
					return nil, err
				}
				names[id] = constant(v, data)
			}
		case graph.Const:
			names[id] = constant(v, v.Const)
		case graph.Input:
			names[id] = "input " + v.Name
		}
	}
	operand := func(o graph.Operand) string {
		if o.Value == graph.NoValue {
			return "-"
		}
		return fmt.Sprintf("%s%v%v+%d", names[o.Value], o.Layout.Shape, o.Layout.Strides, o.Layout.Offset)
	}
	var lines []string
	for i, op := range g.Ops {
		line := fmt.Sprintf("%s %s %v", op.Path, op.Kind, map[string]any(op.Attrs))
		for _, o := range op.In {
			line += " " + operand(o)
		}
		for k, id := range op.Out {
			names[id] = fmt.Sprintf("#%d.%d", i, k)
		}
		lines = append(lines, line)
	}
	for _, o := range g.Outputs {
		lines = append(lines, "output "+operand(o.Operand))
	}
	return lines, nil
}

// constant leaves the shape out: a program knows the storages of its buffers, not their shapes.
func constant(v graph.Value, data []byte) string {
	return fmt.Sprintf("const %v %x", v.DType, data)
}
