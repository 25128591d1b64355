package runtime_test

import (
	"bytes"
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// runRanges computes a model by sessions of ranges that end at these modules, one after another, and checks that each
// value which crosses is what the next range expects.
func runRanges(t *testing.T, model *models.Model, in optimem.Values, opts optimem.Options, seams ...string) optimem.Values {
	t.Helper()
	shapes := make(map[string]tensor.Shape)
	for name, v := range in {
		shapes[name] = v.Layout.Shape
	}
	given := make(optimem.Values)
	results := make(optimem.Values)
	var before []graph.Handover
	from := ""
	for i, to := range append(slices.Clone(seams), "") {
		opts.Range = graph.Range{From: from, To: to}
		s, err := optimem.Start(t.Context(), model, opts)
		if err != nil {
			t.Fatal(err)
		}
		part, err := s.Section(t.Context(), shapes)
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 && !sameHandovers(before, part.Before) {
			t.Fatalf("%v takes %v, and what is before gives %v", opts.Range, part.Before, before)
		}
		inputs, outputs := make(optimem.Values), make(optimem.Values)
		for _, id := range part.Graph.Inputs {
			name := part.Graph.Values[id].Name
			if inputs[name] = in[name]; in[name] == nil {
				inputs[name] = given[name]
			}
		}
		for _, o := range part.Graph.Outputs {
			shape := o.Operand.Layout.Shape
			n, _ := shape.NumElements()
			dtype := part.Graph.Values[o.Operand.Value].DType
			outputs[o.Name] = &tensor.Tensor{DType: dtype, Layout: tensor.Contiguous(shape...), Data: make([]byte, n*int64(dtype.Size()))}
			results[o.Name] = outputs[o.Name]
		}
		if err := s.RunSection(t.Context(), shapes, inputs, outputs); err != nil {
			t.Fatal(err)
		}
		for _, c := range part.After {
			if c.Made {
				given[c.Name] = outputs[c.Name]
				delete(results, c.Name)
			}
		}
		before, from = part.After, to
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	return results
}

func sameHandovers(a, b []graph.Handover) bool {
	return slices.EqualFunc(a, b, func(a, b graph.Handover) bool {
		return a.Name == b.Name && a.DType == b.DType && a.Shape.Equal(b.Shape)
	})
}

// compareRanges runs a model whole, divided at each of its seams, and divided in three, and compares bits.
func compareRanges(t *testing.T, model *models.Model, in optimem.Values, opts optimem.Options) (divided bool) {
	t.Helper()
	s, err := optimem.Start(t.Context(), model, opts)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	shapes := make(map[string]tensor.Shape)
	for name, v := range in {
		shapes[name] = v.Layout.Shape
	}
	seams, _, err := s.Seams(t.Context(), shapes)
	if err != nil || len(seams) == 0 {
		return false
	}
	want, err := s.Run(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	check := func(names ...string) {
		got := runRanges(t, model, in, opts, names...)
		if len(got) != len(want) {
			t.Errorf("divided at %q: %d outputs, want %d", names, len(got), len(want))
		}
		for name := range want {
			if got[name] == nil || !bytes.Equal(got[name].Data, want[name].Data) {
				t.Errorf("divided at %q: output %s has other bits", names, name)
			}
		}
	}
	for i, seam := range seams {
		if i%max(len(seams)/8, 1) == 0 {
			check(seam.Module)
		}
	}
	if n := len(seams); n > 2 {
		check(seams[n/3].Module, seams[2*n/3].Module)
	}
	return true
}

// TestRanges: the ranges of a model, computed one after another, give the bits of the whole, wherever it is divided.
func TestRanges(t *testing.T) {
	divided := 0
	fixtures := recordedFixtures(t)
	names, _ := filepath.Glob(fixturesFolder() + "*pt2_*.pt2")
	for _, path := range names {
		passes := fixtures[filepath.Base(path)]
		if len(passes) == 0 || testing.Short() && divided > 5 {
			continue
		}
		model := build(t, path, nil)
		if compareRanges(t, model, passes[0].inputs(t, model), optimem.Options{}) {
			divided++
		}
	}
	if divided < 5 {
		t.Errorf("%d of the exported programs were divided", divided)
	}
	for path, in := range map[string]optimem.Values{
		digitsModel: digitsInput(pictures(3)),
		"../models/testdata/families/hf/tiny_llama": {"input_ids": tensor.Of([]int64{3, 1, 4, 1, 5, 9, 2, 6}, 1, 8)},
	} {
		for _, opts := range []optimem.Options{{Mode: plan.Resident}, {Mode: plan.Page}, {Threads: 1}} {
			if !compareRanges(t, build(t, path, nil), in, opts) {
				t.Errorf("%s: not divided", path)
			}
		}
	}
}

// TestRangeErrors: what is not of a range, or of the whole, is refused.
func TestRangeErrors(t *testing.T) {
	model := build(t, digitsModel, nil)
	in := digitsInput(pictures(2))
	shapes := map[string]tensor.Shape{"input": {2, 1, 8, 8}}
	whole := start(t, model, optimem.Options{})
	if _, err := whole.Section(t.Context(), shapes); !errors.Is(err, optimem.ErrWhole) {
		t.Errorf("a section of the whole: %v", err)
	}
	seams, _, err := whole.Seams(t.Context(), shapes)
	if err != nil || len(seams) == 0 {
		t.Fatal(seams, err)
	}
	part := start(t, model, optimem.Options{Range: graph.Range{From: seams[0].Module}})
	if _, err := part.Run(t.Context(), in); !errors.Is(err, optimem.ErrRange) {
		t.Errorf("a run of a range: %v", err)
	}
	if _, err := part.RunBatch(t.Context(), in); !errors.Is(err, optimem.ErrRange) {
		t.Errorf("a batch of a range: %v", err)
	}
	var input *optimem.InputError
	if err := part.RunSection(t.Context(), shapes, nil, nil); !errors.As(err, &input) {
		t.Errorf("no inputs: %v", err)
	}
	if _, err := start(t, model, optimem.Options{Range: graph.Range{From: "nowhere"}}).Section(t.Context(), shapes); err == nil {
		t.Error("a range that begins nowhere is taken")
	}
	backwards := graph.Range{From: seams[len(seams)-1].Module, To: seams[0].Module}
	if _, err := start(t, model, optimem.Options{Range: backwards}).Section(t.Context(), shapes); err == nil {
		t.Error("a range that ends before it begins is taken")
	}
}
