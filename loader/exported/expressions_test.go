package exported

import (
	"encoding/json"
	"os"
	"testing"
)

// TestExpressionsAreWhatPyTorchComputes compares both notations, and what is printed of them, with PyTorch's values.
func TestExpressionsAreWhatPyTorchComputes(t *testing.T) {
	text, err := os.ReadFile("testdata/expressions.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Values []map[string]int64
		Rows   []json.RawMessage
	}
	if err := json.Unmarshal(text, &golden); err != nil {
		t.Fatal(err)
	}
	if len(golden.Rows) < 100 || len(golden.Values) < 3 {
		t.Fatalf("%d expressions for %d values", len(golden.Rows), len(golden.Values))
	}
	o := Options{}.withDefaults()
	for _, raw := range golden.Rows {
		var called, infix string
		var want []*int64
		if err := json.Unmarshal(raw, &[]any{&called, &infix, &want}); err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{called, infix} {
			e, err := parseExpr(text, o)
			if err != nil {
				t.Errorf("%s: %v", text, err)
				continue
			}
			again, err := parseExpr(e.String(), o)
			if err != nil {
				t.Errorf("%s, printed from %s: %v", e, text, err)
				continue
			}
			for i, values := range golden.Values {
				if want[i] == nil {
					continue
				}
				if got, err := e.Eval(values); err != nil || got != *want[i] {
					t.Errorf("%s is %d, %v for %v, PyTorch's is %d", text, got, err, values, *want[i])
				}
				if got, err := again.Eval(values); err != nil || got != *want[i] {
					t.Errorf("%s, printed from %s, is %d, %v for %v, PyTorch's is %d", e, text, got, err, values, *want[i])
				}
			}
		}
	}
}

// A call of what is the name of a leaf is no leaf.
func TestLeavesAreNotCalled(t *testing.T) {
	for _, text := range []string{"Bool(s0)", "Bool(1)", "Infinity(1)", "Infinity()", "NaN(s0)", "Bool()"} {
		e, err := parseExpr(text, Options{}.withDefaults())
		if err != nil {
			continue
		}
		if v, err := e.Eval(map[string]int64{"s0": 1}); err == nil {
			t.Errorf("%s, read as %s, is %d", text, e, v)
		}
	}
}
