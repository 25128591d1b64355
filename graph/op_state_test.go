package graph

import (
	"testing"

	"github.com/optimem/optimem/tensor"
)

// stateSpecs are operands that each of the ops takes, with a cache and states.
func stateSpecs() map[Kind][]Spec {
	f := func(shape ...int) Spec { return Spec{DType: tensor.Float32, Shape: shape} }
	states := Spec{DType: tensor.Int64, Shape: tensor.Shape{7, 2}}
	return map[Kind][]Spec{
		"causal_conv":    {f(1, 7, 6), f(6, 4), f(6), f(5, 3, 6), states},
		"selective_scan": {f(1, 7, 6, 8), f(1, 7, 6), f(6, 1), f(1, 7, 2, 3), f(1, 7, 2, 3), f(5, 6, 3, 8), states},
		"delta_rule":     {f(1, 7, 3, 4), f(1, 7, 3, 4), f(1, 7, 6, 5), f(1, 7, 6), f(1, 7, 6), f(5, 6, 4, 5), states},
	}
}

// TestStateOps: what the ops take, and that an operand with any dimension more, of another dtype or of another size is
// refused.
func TestStateOps(t *testing.T) {
	ops := Standard()
	for kind, in := range stateSpecs() {
		def, ok := ops.Lookup(kind)
		if !ok {
			t.Fatalf("no op %s", kind)
		}
		cache, ok := kind.StateOperand()
		if !ok || !kind.Writes(cache) || kind.Writes(cache-1) || kind.Writes(cache+1) {
			t.Errorf("%s: writes to others than operand %d", kind, cache)
		}
		width := in[0].Shape
		if kind == "delta_rule" {
			width = in[2].Shape
		}
		out, err := def.Shape(in, nil)
		if err != nil || len(out) != 1 || !out[0].Shape.Equal(width) {
			t.Fatalf("%s: %v: %v", kind, out, err)
		}
		if _, err := def.Shape(in[:cache], nil); err != nil {
			t.Errorf("%s without a cache: %v", kind, err)
		}
		if _, err := def.Shape(in[:cache+1], nil); err == nil {
			t.Errorf("%s with a cache and no states", kind)
		}
		shapes := make([]tensor.Shape, cache)
		for i := range shapes {
			shapes[i] = in[i].Shape
		}
		if got := StateShape(kind, shapes); !got.Equal(in[cache].Shape[1:]) {
			t.Errorf("%s: a state of %v, want %v", kind, got, in[cache].Shape[1:])
		}
		bytes := func(in []Spec) int64 { return def.Bytes(in, out) }
		more := withSpec(in, cache, Spec{DType: tensor.Float32, Shape: append(tensor.Shape{500}, in[cache].Shape[1:]...)})
		if many := withSpec(more, cache, Spec{DType: tensor.Float32, Shape: append(tensor.Shape{5000}, in[cache].Shape[1:]...)}); bytes(more) != bytes(many) {
			t.Errorf("%s moves more bytes where there are more places for states", kind)
		}
		for i := range in {
			half := in[i]
			if half.DType = tensor.Float16; i > cache {
				half.DType = tensor.Int32
			}
			longer := in[i]
			longer.Shape = append(append(tensor.Shape{}, in[i].Shape...), 1)
			for _, s := range []Spec{half, longer} {
				if _, err := def.Shape(withSpec(in, i, s), nil); err == nil {
					t.Errorf("%s takes %v %v as operand %d", kind, s.DType, s.Shape, i)
				}
			}
			for d := range in[i].Shape {
				if i == cache && d == 0 {
					continue // any number of places
				}
				other := Spec{DType: in[i].DType, Shape: append(tensor.Shape{}, in[i].Shape...)}
				other.Shape[d] += 5
				if _, err := def.Shape(withSpec(in, i, other), nil); err == nil {
					t.Errorf("%s takes %v as operand %d", kind, other.Shape, i)
				}
			}
		}
		two := withSpec(in, 0, in[0])
		for i := range cache {
			if s := two[i].Shape; len(s) > 2 {
				two[i] = Spec{DType: two[i].DType, Shape: append(tensor.Shape{2}, s[1:]...)}
			}
		}
		if _, err := def.Shape(two, nil); err == nil {
			t.Errorf("%s takes states of two sequences", kind)
		}
		if _, err := def.Shape(two[:cache], nil); err != nil {
			t.Errorf("%s of two sequences: %v", kind, err)
		}
	}
}

// TestStateOpsRefuse: operands that fit each other in part are refused, also without a cache and without what may be
// absent.
func TestStateOpsRefuse(t *testing.T) {
	f := func(shape ...int) Spec { return Spec{DType: tensor.Float32, Shape: shape} }
	type change map[int]Spec
	for kind, all := range map[Kind]map[string]change{
		"causal_conv": {
			"one tap":                         {1: f(6, 1)},
			"channels of another number":      {1: f(5, 4)},
			"a bias of another length":        {2: f(1)},
			"channels without a bias to name": {1: f(5, 4), 2: Spec{}},
		},
		"selective_scan": {
			"no groups":                      {3: f(1, 7, 0, 3), 4: f(1, 7, 0, 3)},
			"groups that do not divide":      {3: f(1, 7, 4, 3), 4: f(1, 7, 4, 3)},
			"groups of other tokens":         {3: f(1, 8, 2, 3), 4: f(1, 8, 2, 3)},
			"rates of each number":           {2: f(6, 3)},
			"rates of numbers that are none": {0: f(1, 7, 6, 1), 2: f(6, 4)},
		},
		"delta_rule": {
			"no keys":                 {0: f(1, 7, 0, 4), 1: f(1, 7, 0, 4)},
			"keys that do not divide": {0: f(1, 7, 4, 4), 1: f(1, 7, 4, 4)},
			"keys of other tokens":    {0: f(1, 8, 3, 4), 1: f(1, 8, 3, 4)},
			"keys without queries":    {0: f(1, 7, 3, 5)},
			"decays of other keys":    {3: f(1, 7, 6, 5)},
			"decays of a table":       {3: f(1, 7, 6, 4, 1)},
		},
	} {
		def, _ := Standard().Lookup(kind)
		cache, _ := kind.StateOperand()
		good := stateSpecs()[kind][:cache]
		for name, c := range all {
			in := good
			for i, s := range c {
				in = withSpec(in, i, s)
			}
			if out, err := def.Shape(in, nil); err == nil {
				t.Errorf("%s takes %s: %v", kind, name, out)
			}
		}
		for i := range good {
			_, err := def.Shape(withSpec(good, i, Spec{}), nil)
			if may := kind == "causal_conv" && i == 2; (err == nil) != may {
				t.Errorf("%s without operand %d: %v", kind, i, err)
			}
		}
	}
	def, _ := Standard().Lookup("causal_conv")
	if _, err := def.Shape([]Spec{f(1, 7, 6), f(5, 4)}, nil); err == nil {
		t.Error("causal_conv takes a weight of 5 channels for 6")
	}
}

// TestStateOpsCost: work is counted for each number of a state that a token meets.
func TestStateOpsCost(t *testing.T) {
	for kind, want := range map[Kind]int64{
		"causal_conv": 2 * 7 * 6 * 4, "selective_scan": 6 * 7 * 6 * 8 * 3, "delta_rule": 8 * 7 * 6 * 5 * 4,
	} {
		def, _ := Standard().Lookup(kind)
		in := stateSpecs()[kind]
		out, err := def.Shape(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := def.FLOPs(in, out, nil); got != want {
			t.Errorf("%s: %d operations, want %d", kind, got, want)
		}
	}
}

// withSpec returns operands of which one is another.
func withSpec(in []Spec, i int, s Spec) []Spec {
	all := append([]Spec{}, in...)
	all[i] = s
	return all
}
