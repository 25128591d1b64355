package runtime_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/optimem/optimem/internal/fixtures"
	"github.com/optimem/optimem/models"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// fixturesFolder is the folder of files that PyTorch wrote.
func fixturesFolder() string { return fixtures.Folder("../loader/testdata/valid.tar.bz2") + "/" }

// unrecorded lists the fixtures that make_programs.py could not run, and why.
var unrecorded = map[string]string{
	"pt2_two_models.pt2":  "two programs in a file",
	"pt2_subclass.pt2":    "gives a subclass of Tensor",
	"t26_pt2_control.pt2": "newer releases of PyTorch do not load it",
}

// A recordedTensor is a tensor in fixtures.json. Complex elements are two numbers.
type recordedTensor struct {
	DType string
	Shape []int
	Data  []float64
}

func (r recordedTensor) tensor(t *testing.T) *tensor.Tensor {
	t.Helper()
	switch r.DType {
	case "float32":
		return tensor.Of(narrowed[float32](r.Data), r.Shape...)
	case "int64":
		return tensor.Of(narrowed[int64](r.Data), r.Shape...)
	}
	t.Fatalf("an input of %s", r.DType)
	return nil
}

func narrowed[T float32 | int64](data []float64) []T {
	out := make([]T, len(data))
	for i, v := range data {
		out[i] = T(v)
	}
	return out
}

// A recordedPass is what went into a program and what came out.
type recordedPass struct{ Inputs, Outputs []recordedTensor }

// recordedFixtures returns the passes of the programs in fixtures.json.
func recordedFixtures(t *testing.T) map[string][]recordedPass {
	t.Helper()
	text, err := os.ReadFile("testdata/fixtures.json")
	if err != nil {
		t.Fatal(err)
	}
	var recorded map[string][]recordedPass
	if err := json.Unmarshal(text, &recorded); err != nil {
		t.Fatal(err)
	}
	return recorded
}

func (p recordedPass) inputs(t *testing.T, model *models.Model) optimem.Values {
	t.Helper()
	in := make(optimem.Values)
	for i, port := range model.Inputs() {
		if i < len(p.Inputs) {
			in[port.Name] = p.Inputs[i].tensor(t)
		}
	}
	return in
}

func (p recordedPass) compare(t *testing.T, model *models.Model, got optimem.Values) {
	t.Helper()
	names := slices.DeleteFunc(model.Outputs(), func(name string) bool { return got[name] == nil })
	if len(names) != len(p.Outputs) {
		t.Fatalf("outputs %v, want %d", names, len(p.Outputs))
	}
	for i, want := range p.Outputs {
		compareRecorded(t, names[i], got[names[i]], want)
	}
}

// TestFixturesAsPyTorch runs every exported program among the loader's fixtures twice and compares.
func TestFixturesAsPyTorch(t *testing.T) {
	recorded := recordedFixtures(t)
	paths, err := filepath.Glob(fixturesFolder() + "*pt2_*.pt2")
	if err != nil || len(paths) != len(recorded)+len(unrecorded) {
		t.Errorf("%d files, %d recorded: %v", len(paths), len(recorded), err)
	}
	for _, path := range paths {
		passes, ok := recorded[filepath.Base(path)]
		if _, known := unrecorded[filepath.Base(path)]; known == ok {
			t.Errorf("%s: recorded %v, known not to be %v", path, ok, known)
			continue
		}
		if !ok {
			continue
		}
		t.Run(filepath.Base(path), func(t *testing.T) {
			model := build(t, path, nil)
			s := start(t, model, optimem.ResidentOptions{})
			for _, p := range passes {
				got, err := s.Run(t.Context(), p.inputs(t, model))
				if err != nil {
					t.Fatal(err)
				}
				p.compare(t, model, got)
			}
		})
	}
}

func compareRecorded(t *testing.T, name string, got *tensor.Tensor, want recordedTensor) {
	t.Helper()
	if got.DType.String() != want.DType || !got.Layout.Shape.Equal(want.Shape) {
		t.Errorf("output %s is %v %v, want %s %v", name, got.DType, got.Layout.Shape, want.DType, want.Shape)
		return
	}
	values := numbers(t, got)
	if len(values) != len(want.Data) {
		t.Errorf("output %s has %d numbers, want %d", name, len(values), len(want.Data))
		return
	}
	largest := 1e-30
	for _, v := range want.Data {
		largest = max(largest, math.Abs(v))
	}
	tolerance := 0.0 // integers and what is only copied are exact
	if got.DType == tensor.Float32 {
		tolerance = 1e-6 * largest
	}
	for i, v := range values {
		if d := math.Abs(v - want.Data[i]); !(d <= tolerance) {
			t.Errorf("output %s: element %d is %v, want %v", name, i, v, want.Data[i])
		}
	}
}
