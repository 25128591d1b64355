package models

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models/internal/zoo"
	"github.com/optimem/optimem/tensor"
)

// hostileValues are what an attribute of a file may hold in place of what its class wants.
var hostileValues = []any{
	nil, "x", true, []any{}, map[string]any{"dict": map[string]any{}}, map[string]any{"float": "NaN"},
	[]any{json.Number("-1"), json.Number("0")},
	json.Number("0"), json.Number("-1"), json.Number("7"), json.Number("1099511627776"),
	json.Number("4611686018427387904"), json.Number("-9223372036854775808"), json.Number("1e300"), json.Number("0.5"),
	[]any{json.Number("4611686018427387904"), json.Number("4611686018427387904"), json.Number("4611686018427387904")},
}

// TestNNHostileAttributes gives every attribute of every class each of the hostile values, and leaves it out. A graph or
// an error may come of it, soon; a panic may not.
func TestNNHostileAttributes(t *testing.T) {
	cases, err := zoo.Modules("testdata/nn/nn.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]int)
	for _, c := range cases {
		if seen[c.Module.Class]++; seen[c.Module.Class] > 2 || c.Module.Attrs == nil {
			continue
		}
		shapes := make(map[string]tensor.Shape)
		for name, f := range c.Inputs {
			shapes[name] = f.Shape
		}
		attrs := c.Module.Attrs
		for _, name := range slices.Sorted(maps.Keys(attrs)) {
			for i := range len(hostileValues) + 1 {
				c.Module.Attrs = maps.Clone(attrs)
				what := "left out"
				if delete(c.Module.Attrs, name); i < len(hostileValues) {
					c.Module.Attrs[name] = hostileValues[i]
					what = fmt.Sprint(hostileValues[i])
				}
				tryHostile(t, c, fmt.Sprintf("%s: %s is %s", c.Name, name, what), shapes)
			}
		}
	}
}

func tryHostile(t *testing.T, c zoo.Recorded, what string, shapes map[string]tensor.Shape) {
	t.Helper()
	defer func() {
		if r := recover(); r != nil {
			t.Errorf("%s: panic: %v", what, r)
		}
	}()
	ckpt, err := c.Checkpoint()
	if err != nil {
		t.Fatal(err)
	}
	model, err := Build(ckpt, Options{})
	if err != nil {
		return
	}
	if g, err := model.Graph(shapes); err == nil && len(g.Ops) > 1000 {
		t.Errorf("%s: a graph of %d ops", what, len(g.Ops))
	}
}

// TestNNHostileShapes gives every class inputs of other ranks and sizes.
func TestNNHostileShapes(t *testing.T) {
	cases, err := zoo.Modules("testdata/nn/nn.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	hostile := []tensor.Shape{
		{}, {0}, {1}, {3}, {0, 0}, {1, 0}, {2, 3}, {0, 2, 2}, {2, 0, 3}, {1, 1, 1}, {2, 3, 4}, {1, 1, 0, 1}, {2, 3, 4, 5},
		{1, 1, 1, 1, 1}, {2, 0, 0, 0, 0}, {1, 1, 1, 1, 1, 1}, {1 << 40}, {1 << 31, 1 << 31}, {1 << 20, 1 << 20, 1 << 20},
	}
	seen := make(map[string]int)
	for _, c := range cases {
		if seen[c.Module.Class]++; seen[c.Module.Class] > 3 {
			continue
		}
		for name := range c.Inputs {
			for _, shape := range hostile {
				shapes := make(map[string]tensor.Shape)
				for other, f := range c.Inputs {
					shapes[other] = f.Shape
				}
				shapes[name] = shape
				tryHostile(t, c, fmt.Sprintf("%s: %s is %v", c.Name, name, shape), shapes)
			}
		}
	}
	if len(seen) < len(layers.NN())/2 {
		t.Errorf("%d classes", len(seen))
	}
}
