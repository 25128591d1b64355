package graph

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/optimem/optimem/tensor"
)

// recorded is what testdata/record.py has PyTorch say.
type recorded struct {
	FLOPs map[string]int64 `json:"flops"`
	Pools [][7]any         `json:"pools"`
}

func readRecorded(t *testing.T) recorded {
	t.Helper()
	text, err := os.ReadFile("testdata/costs.json")
	if err != nil {
		t.Fatal(err)
	}
	var r recorded
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestFLOPs: products cost what PyTorch's counter says.
func TestFLOPs(t *testing.T) {
	f := func(shape ...int) Spec { return Spec{DType: tensor.Float32, Shape: shape} }
	conv := func(transposed bool) Attrs {
		return Attrs{"stride": []int{2, 2}, "padding": []int{1, 1}, "dilation": []int{1, 1}, "groups": 2,
			"transposed": transposed, "output_padding": []int{1, 1}}
	}
	var none Spec
	calls := map[string]struct {
		kind  Kind
		attrs Attrs
		in    []Spec
	}{
		"matmul [2 3 4] [2 4 5]": {"matmul", nil, []Spec{f(2, 3, 4), f(2, 4, 5)}},
		"linear [6 8] [5 8]":     {"linear", nil, []Spec{f(6, 8), f(5, 8), f(5)}},
		"attention":              {"scaled_dot_product_attention", nil, []Spec{f(2, 3, 5, 8), f(2, 3, 7, 8), f(2, 3, 7, 6)}},
		"conv":                   {"conv", conv(false), []Spec{f(2, 4, 7, 6), f(6, 2, 3, 3), none}},
		"conv transposed":        {"conv", conv(true), []Spec{f(2, 4, 7, 6), f(4, 3, 3, 3), none}},
		"lstm": {"lstm", nil, []Spec{f(5, 3, 4), none, f(1, 3, 6), f(1, 3, 6),
			f(24, 4), f(24, 6), f(24), f(24), none}},
		"gru, two directions": {"gru", Attrs{"bidirectional": true}, []Spec{f(5, 3, 4), none, f(2, 3, 6), none,
			f(18, 4), f(18, 6), f(18), f(18), none, f(18, 4), f(18, 6), f(18), f(18), none}},
		"lstm with a projection": {"lstm", nil, []Spec{f(5, 3, 4), none, f(1, 3, 2), f(1, 3, 6),
			f(24, 4), f(24, 2), f(24), f(24), f(2, 6)}},
	}
	want := readRecorded(t).FLOPs
	for name, c := range calls {
		def, _ := Standard().Lookup(c.kind)
		out, err := def.Shape(c.in, c.attrs)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := def.Cost(c.in, out, c.attrs).FLOPs; got != want[name] || got == 0 {
			t.Errorf("%s: %d FLOPs, and PyTorch counts %d", name, got, want[name])
		}
	}
	if len(calls) != len(want) {
		t.Errorf("%d calls of %d recorded", len(calls), len(want))
	}
}

// TestPoolSizes: windows are as many as PyTorch's pools have, the last one too where sizes are rounded up.
func TestPoolSizes(t *testing.T) {
	for _, c := range readRecorded(t).Pools {
		number := func(i int) int { return int(c[i].(float64)) }
		one := func(i int) []int { return []int{number(i)} }
		a := Attrs{"kernel": one(1), "stride": one(2), "padding": one(3), "dilation": one(4), "ceil_mode": c[5]}
		out, err := maxPoolShape([]Spec{{tensor.Float32, tensor.Shape{1, 1, number(0)}}}, a)
		if want := number(6); (err == nil) != (want > 0) || err == nil && out[0].Shape[2] != want {
			t.Errorf("%d elements by %v: %v and %v, want %d", number(0), a, out, err, want)
		}
	}
}

// TestBytesOfTables: of a table the rows that are picked are moved, once to read and once to write them, and not the rest.
func TestBytesOfTables(t *testing.T) {
	for _, rows := range []int{10, 100000} {
		table, index := Spec{tensor.Float32, tensor.Shape{rows, 4}}, Spec{tensor.Int64, tensor.Shape{3}}
		for kind, a := range map[Kind]Attrs{"embedding": nil, "index": {"dim": 0}} {
			def, _ := Standard().Lookup(kind)
			in := []Spec{table, index}
			out, err := def.Shape(in, a)
			if err != nil {
				t.Fatal(err)
			}
			if got := def.Cost(in, out, a).Bytes; got != 3*8+2*3*4*4 {
				t.Errorf("%s of %d rows moves %d bytes", kind, rows, got)
			}
		}
	}
}
