package serve

import (
	"errors"
	"math"
	"testing"

	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// What a program asks for directly is what a client gets.
func TestInferDirectly(t *testing.T) {
	r := open(t, directory(t, map[string]string{"digits.pt2": digits}), Options{})
	inputs, join, err := r.Inputs(t.Context(), "digits")
	if err != nil || len(inputs) != 1 || join != defaultJoin {
		t.Fatalf("%v, %d: %v", inputs, join, err)
	}
	pixels := pictures(t, 2)
	out, err := r.Infer(t.Context(), "digits", runtime.Values{inputs[0].Name: tensor.Of(pixels, 2, 1, 8, 8)})
	if err != nil || len(out) != 1 {
		t.Fatalf("%d outputs: %v", len(out), err)
	}
	want := scores(t, pixels)
	for _, x := range out {
		got, err := tensor.Slice[float32](x)
		if err != nil || len(got) != len(want) {
			t.Fatalf("%d numbers, want %d: %v", len(got), len(want), err)
		}
		for i := range got {
			if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
				t.Fatalf("number %d: %v, want %v", i, got[i], want[i])
			}
		}
	}
	var refused *Error
	_, err = r.Infer(t.Context(), "digits", runtime.Values{inputs[0].Name: tensor.Of(pixels, 1, 2, 8, 8)})
	if !errors.As(err, &refused) || refused.Status != 400 {
		t.Errorf("another shape: %v", err)
	}
	if _, _, err := r.Inputs(t.Context(), "none"); err == nil {
		t.Error("inputs of a model that is not there")
	}
}

// A digest is that of a model's bytes and settings: not of its name, nor of where it lies.
func TestDigest(t *testing.T) {
	dir := directory(t, map[string]string{
		"a.pt2": digits, "b.pt2": digits, "c.pt2": digits, "b.model.json": `{"max_join": 3}`, "c.model.json": `{"arch": "x"}`, "d.pt2": digits + " is no model",
		"e/model.pt2": digits, "e/notes.txt": "one", "f/model.pt2": digits, "f/notes.txt": "two",
		"g/model.pt2": digits, "g/notes.txt": "two", "g/model.json": `{"max_join": 3}`,
	})
	r := open(t, dir, Options{})
	digests := make(map[string]string)
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		d, err := r.Digest(t.Context(), name)
		if err != nil || len(d) != 64 {
			t.Fatalf("%s: %q, %v", name, d, err)
		}
		digests[d] += name
	}
	for d, names := range digests {
		if len(names) > 1 && names != "ab" && names != "fg" {
			t.Errorf("%s have one digest: %s", names, d)
		}
	}
	if len(digests) != 5 {
		t.Errorf("%d digests, want 5: %v", len(digests), digests)
	}
}
