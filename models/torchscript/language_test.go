package torchscript

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strconv"
	"testing"

	"github.com/optimem/optimem/layers"
)

// A recordedFunction is a function as an archive has its code, and what PyTorch gave: testdata/make_language.py.
type recordedFunction struct {
	Name, Code string
	Gives      json.RawMessage
}

func recordedFunctions(t *testing.T) []recordedFunction {
	t.Helper()
	f, err := os.Open("testdata/language.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var all []recordedFunction
	if err := json.NewDecoder(r).Decode(&all); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestRecordedLanguage: numbers, texts, lists, dictionaries, loops and branches give what they give in PyTorch.
func TestRecordedLanguage(t *testing.T) {
	for _, c := range recordedFunctions(t) {
		t.Run(c.Name, func(t *testing.T) {
			p := program(t, c.Code, "")
			result, err := Evaluate(p, &fake{}, input(), Options{})
			if err != nil {
				t.Fatalf("%v\n%s", err, c.Code)
			}
			if err := sameAs(result.Value, c.Gives); err != nil {
				t.Errorf("%v\n%s", err, c.Code)
			}
		})
	}
}

// sameAs compares a result with a recorded one. A float may differ by what libraries of functions differ by.
func sameAs(got any, want json.RawMessage) error {
	var parts []json.RawMessage
	var kind, text string
	if err := json.Unmarshal(want, &parts); err != nil {
		return err
	}
	if err := json.Unmarshal(parts[0], &kind); err != nil {
		return err
	}
	if len(parts) > 1 {
		_ = json.Unmarshal(parts[1], &text) // a text, or what each kind reads below
	}
	differ := fmt.Errorf("%T %v, PyTorch gave %s", got, got, want)
	switch kind {
	case "none":
		if got != nil {
			return differ
		}
	case "bool":
		if got != (string(parts[1]) == "true") {
			return differ
		}
	case "int":
		if n, ok := got.(int); !ok || strconv.Itoa(n) != text {
			return differ
		}
	case "str":
		if got != text {
			return differ
		}
	case "float":
		x, ok := got.(float64)
		y, err := strconv.ParseFloat(text, 64)
		if !ok || err != nil || !near(x, y) {
			return differ
		}
	case "list":
		list, ok := got.([]any)
		var elems []json.RawMessage
		if err := json.Unmarshal(parts[1], &elems); err != nil || !ok || len(list) != len(elems) {
			return differ
		}
		for i, e := range elems {
			if err := sameAs(list[i], e); err != nil {
				return fmt.Errorf("element %d: %w", i, err)
			}
		}
	case "dict":
		fields, ok := got.(layers.Fields)
		var items [][2]json.RawMessage
		if err := json.Unmarshal(parts[1], &items); err != nil || !ok || len(fields) != len(items) {
			return differ
		}
		for i, item := range items {
			if key := strconv.Quote(fields[i].Name); key != string(item[0]) {
				return fmt.Errorf("key %d is %s, PyTorch gave %s", i, key, item[0])
			}
			if err := sameAs(fields[i].Value, item[1]); err != nil {
				return fmt.Errorf("key %s: %w", item[0], err)
			}
		}
	default:
		return fmt.Errorf("a recorded %s", kind)
	}
	return nil
}

func near(x, y float64) bool {
	if math.IsNaN(x) || math.IsNaN(y) || x == y {
		return math.IsNaN(x) == math.IsNaN(y) && math.Signbit(x) == math.Signbit(y) || math.IsNaN(x) && math.IsNaN(y)
	}
	return math.Abs(x-y) <= 4e-16*math.Abs(y)
}
