package aten

import (
	"compress/gzip"
	"encoding/json"
	"math"
	"os"
	"strconv"
	"testing"

	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/tensor"
)

// numberOf reads a number of testdata/make_numbers.py.
func numberOf(t *testing.T, raw json.RawMessage) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	switch v := v.(type) {
	case float64:
		return int(v)
	case string:
		x, err := strconv.ParseFloat(v, 64)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	return v
}

// TestNumbers: the numbers that programs compute sizes with are Python's: rounded as it rounds, integers where they are there.
func TestNumbers(t *testing.T) {
	f, err := os.Open("testdata/numbers.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var recorded struct {
		Numbers        []json.RawMessage
		Pairs, Singles map[string][]json.RawMessage
		Others         [][3]json.RawMessage
	}
	if err := json.NewDecoder(r).Decode(&recorded); err != nil {
		t.Fatal(err)
	}
	var numbers []any
	for _, raw := range recorded.Numbers {
		numbers = append(numbers, numberOf(t, raw))
	}
	for name, gives := range recorded.Pairs {
		for i, raw := range gives {
			sameNumber(t, name, []any{numbers[i/len(numbers)], numbers[i%len(numbers)]}, numberOf(t, raw))
		}
	}
	for name, gives := range recorded.Singles {
		for i, raw := range gives {
			sameNumber(t, name, []any{numbers[i]}, numberOf(t, raw))
		}
	}
	for _, row := range recorded.Others {
		var name string
		var raw []json.RawMessage
		if err := json.Unmarshal(row[0], &name); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(row[1], &raw); err != nil {
			t.Fatal(err)
		}
		args := make([]any, len(raw))
		for i := range raw {
			args[i] = numberOf(t, raw[i])
		}
		sameNumber(t, name, args, numberOf(t, row[2]))
	}
}

// sameNumber calls an operator. nil wants an error.
func sameNumber(t *testing.T, name string, args []any, want any) {
	t.Helper()
	got, err := scalarTargets[name](args)
	if x, ok := want.(float64); ok {
		if y, ok := got.(float64); !ok || err != nil || math.Float64bits(x) != math.Float64bits(y) {
			t.Errorf("%s%v gives %T %v, %v; Python gives float %v", name, args, got, got, err, x)
		}
		return
	}
	if want == nil && err == nil || want != nil && (got != want || err != nil) {
		t.Errorf("%s%v gives %T %v, %v; Python gives %T %v", name, args, got, got, err, want, want)
	}
}

// TestNumbersOfTensors: sizes and strides are asked for by dimensions that count from the front or the end.
func TestNumbersOfTensors(t *testing.T) {
	r := cells.NewRef(nil, tensor.Layout{Shape: tensor.Shape{2, 3, 5}, Strides: []int{1, 10, 2}}, tensor.Float32)
	for _, c := range []struct{ dim, size, stride int }{{0, 2, 1}, {1, 3, 10}, {2, 5, 2}, {-1, 5, 2}, {-2, 3, 10}, {-3, 2, 1}} {
		for _, name := range []string{"torch.ops.aten.sym_size.int", "torch.ops.aten.size.int"} {
			if size, err := scalarTargets[name]([]any{r, c.dim}); size != c.size || err != nil {
				t.Errorf("%s of dimension %d is %v: %v", name, c.dim, size, err)
			}
		}
		stride, err := scalarTargets["torch.ops.aten.sym_stride.int"]([]any{r, c.dim})
		if stride != c.stride || err != nil {
			t.Errorf("stride of dimension %d is %v: %v", c.dim, stride, err)
		}
	}
	for _, dim := range []int{3, -4} {
		if _, err := scalarTargets["torch.ops.aten.sym_size.int"]([]any{r, dim}); err == nil {
			t.Errorf("there is a dimension %d", dim)
		}
	}
	if n, err := scalarTargets["torch.ops.aten.sym_numel.default"]([]any{r}); n != 30 || err != nil {
		t.Errorf("%v elements: %v", n, err)
	}
}
