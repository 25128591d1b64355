package transformers_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models/transformers"
)

// TestPublished: a model of a well-known size is recognised by its state dict, as Python saves it and as safetensors does,
// which leaves out what is tied; and no other is.
func TestPublished(t *testing.T) {
	// Parameters of Python's models, without those that are tied.
	params := map[string]int64{
		"bert-base": 109482240, "bert-large": 335141888, "gpt2": 124439808, "gpt2-medium": 354823168,
		"gpt2-large": 774030080, "gpt2-xl": 1557611200, "tinyllama-1.1b": 1100048384, "llama-2-7b": 6738415616,
		"llama-3.1-8b": 8030261248, "llama-3.2-1b": 1235814400,
	}
	for i, name := range transformers.Names() {
		if testing.Short() && i%4 != 0 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			a, err := transformers.New(name)
			if err != nil {
				t.Fatal(err)
			}
			var whole, untied layers.StateDict
			var n int64
			for _, e := range a.Root.StateDict() {
				whole = append(whole, e)
				if _, tied := a.Weights[e.Name]; tied {
					continue
				}
				untied = append(untied, e)
				size, err := e.Shape.NumElements()
				if err != nil {
					t.Fatal(err)
				}
				n += size
			}
			if n != params[name] {
				t.Errorf("%d parameters, want %d", n, params[name])
			}
			for _, dict := range []layers.StateDict{whole, untied} {
				found, _ := transformers.Recognise(dict)
				if len(found) != 1 || found[0].Name != name {
					t.Errorf("%d found, want %s alone", len(found), name)
				}
			}
			other := append(layers.StateDict{}, untied...)
			other[len(other)/2].Shape = append([]int{2}, other[len(other)/2].Shape...)
			for what, c := range map[string]struct {
				dict layers.StateDict
				name string
			}{
				"a weight of another shape":  {other, other[len(other)/2].Name},
				"without one of its weights": {append(untied[:3:3], untied[4:]...), untied[3].Name},
			} {
				found, err := transformers.Recognise(c.dict)
				var near *layers.MismatchError
				if len(found) != 0 || !errors.As(err, &near) || near.Arch != name || near.Count() != 1 || !strings.Contains(near.Error(), c.name) {
					t.Errorf("%s: %d found, nearest %v", what, len(found), err)
				}
			}
			if found, err := transformers.Recognise(untied[:len(untied)/4]); len(found) != 0 || err != nil {
				t.Errorf("of a quarter of the weights: %d found, nearest %v", len(found), err)
			}
		})
	}
}
