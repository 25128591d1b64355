package models_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// A sizedTensor is a tensor of sized.json.
type sizedTensor struct {
	DType  string
	Shape  []int
	Values []any
}

func (s sizedTensor) tensor(t *testing.T) *tensor.Tensor {
	t.Helper()
	d, ok := tensor.ParseDType(s.DType)
	if !ok {
		t.Fatalf("dtype %q", s.DType)
	}
	x := &tensor.Tensor{DType: d, Layout: tensor.Contiguous(s.Shape...), Data: make([]byte, len(s.Values)*d.Size())}
	for i, v := range s.Values {
		switch v := v.(type) {
		case bool:
			if v {
				x.Data[i] = 1
			}
		case float64:
			bits := uint64(int64(v))
			if d == tensor.Float32 {
				bits = uint64(math.Float32bits(float32(v)))
			}
			for k := range d.Size() {
				x.Data[i*d.Size()+k] = byte(bits >> (8 * k))
			}
		}
	}
	return x
}

// sizedRuns are what PyTorch computed with the programs of make_sized.py.
func sizedRuns(t *testing.T) map[string][]struct{ Inputs, Outputs map[string]sizedTensor } {
	t.Helper()
	text, err := os.ReadFile("testdata/sized.json")
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.ReplaceAll(text, []byte("NaN"), []byte("null"))
	var recorded map[string][]struct{ Inputs, Outputs map[string]sizedTensor }
	if err := json.Unmarshal(text, &recorded); err != nil {
		t.Fatal(err)
	}
	return recorded
}

// openSized returns a program of make_sized.py.
func openSized(t *testing.T, name string) *models.Model {
	t.Helper()
	path := "testdata/" + name + ".pt2"
	if name == "sized_script" || name == "sized_trace" || name == "sized_masked" {
		path = "testdata/" + name + ".pt"
	}
	ckpt, err := loader.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ckpt.Close() })
	model, err := models.Build(ckpt, models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return model
}

// TestSizesOfData: results whose sizes depend on data have PyTorch's sizes and numbers, whether nothing counts, everything, or
// some, and the same bits in every mode.
func TestSizesOfData(t *testing.T) {
	for name, runs := range sizedRuns(t) {
		model := openSized(t, name)
		first := make([]runtime.Values, len(runs))
		for mode, start := range map[string]func() (*runtime.Session, error){
			"resident": func() (*runtime.Session, error) { return runtime.Resident(t.Context(), model, runtime.Options{}) },
			"paged":    func() (*runtime.Session, error) { return runtime.Page(t.Context(), model, runtime.Options{}) },
			"emulated": func() (*runtime.Session, error) {
				return runtime.Page(t.Context(), model, runtime.Options{Device: "emu:memory=64MiB"})
			},
		} {
			s, err := start()
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			for k, run := range runs {
				in := make(runtime.Values)
				for i, port := range model.Inputs() {
					in[port.Name] = run.Inputs[inputNames[name][i]].tensor(t)
				}
				out, err := s.Run(t.Context(), in)
				if err != nil {
					t.Fatalf("%s, %s, case %d: %v", name, mode, k, err)
				}
				if len(out) != len(run.Outputs) {
					t.Errorf("%s, %s, case %d: %d outputs, PyTorch has %d", name, mode, k, len(out), len(run.Outputs))
				}
				for output, want := range run.Outputs {
					compareSized(t, name+" "+output, k, out[output], want)
				}
				if first[k] == nil {
					first[k] = out
				}
				for output, x := range first[k] {
					if !bytes.Equal(x.Data, out[output].Data) {
						t.Errorf("%s, %s, case %d: %s has other bits than in another mode", name, mode, k, output)
					}
				}
			}
		}
	}
}

// inputNames are those of the inputs in the order of the ports.
var inputNames = map[string][]string{
	"sized_selected": {"x", "m"}, "sized_places": {"x", "i"}, "sized_detector": {"boxes", "scores", "labels"},
	"sized_script": {"boxes", "scores", "labels"}, "sized_trace": {"boxes", "scores", "labels"},
	"sized_pooled": {"x", "regions", "m"}, "sized_masked": {"x", "m"},
}

func compareSized(t *testing.T, name string, k int, got *tensor.Tensor, want sizedTensor) {
	t.Helper()
	if got == nil || !slices.Equal(got.Layout.Shape, want.Shape) || got.DType.String() != want.DType {
		t.Errorf("%s, case %d: %v, PyTorch has %v", name, k, got, want)
		return
	}
	expected := want.tensor(t)
	if got.DType != tensor.Float32 {
		if !bytes.Equal(got.Data, expected.Data) {
			t.Errorf("%s, case %d: %v, PyTorch has %v", name, k, got.Data, want)
		}
		return
	}
	x, err := tensor.Slice[float32](got)
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range want.Values {
		y, ok := v.(float64)
		if nan := x[i] != x[i]; nan != !ok || ok && math.Abs(float64(x[i])-y) > 1e-5*math.Max(1, math.Abs(y)) {
			t.Errorf("%s, case %d: %v, PyTorch has %v", name, k, x, want.Values)
			return
		}
	}
}

// TestSizesOfDataIntoTensors: RunInto takes tensors of the largest sizes and says how much of them counts, and does not go
// without being asked for that.
func TestSizesOfDataIntoTensors(t *testing.T) {
	model := openSized(t, "sized_selected")
	run := sizedRuns(t)["sized_selected"][1]
	s, err := runtime.Resident(t.Context(), model, runtime.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	in := make(runtime.Values)
	for i, port := range model.Inputs() {
		in[port.Name] = run.Inputs[inputNames["sized_selected"][i]].tensor(t)
	}
	rows, count := tensor.Of(make([]float32, 20), 5, 4), tensor.Of([]int64{-1})
	var refused *runtime.OutputError
	if err := s.RunInto(t.Context(), in, runtime.Values{"rows": rows}); !errors.As(err, &refused) {
		t.Errorf("rows without their count: %v", err)
	}
	if err := s.RunInto(t.Context(), in, runtime.Values{"rows": rows, "count:rows": count}); err != nil {
		t.Fatal(err)
	}
	n, err := tensor.Slice[int64](count)
	if err != nil || n[0] != 3 {
		t.Errorf("%v rows count, %v; PyTorch has 3", n, err)
	}
	got, _ := tensor.Slice[float32](rows)
	for i, v := range run.Outputs["rows"].Values {
		if float64(got[i]) != v {
			t.Errorf("%v, PyTorch has %v", got, run.Outputs["rows"].Values)
			break
		}
	}
	if slices.Contains(model.Outputs(), "count:rows") {
		t.Errorf("the model lists the count: %v", model.Outputs())
	}
}

// TestSizesBeyondTheirBound: a number that bincount has no place for fails with the number.
func TestSizesBeyondTheirBound(t *testing.T) {
	model := openSized(t, "sized_places")
	s, err := runtime.Resident(t.Context(), model, runtime.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	in := runtime.Values{
		model.Inputs()[0].Name: tensor.Of(make([]float32, 6), 3, 2),
		model.Inputs()[1].Name: tensor.Of([]int64{1, 2, 3, 9, 2, 1}, 6),
	}
	var beyond *graph.IndexError
	if _, err := s.Run(t.Context(), in); !errors.As(err, &beyond) || beyond.Index != 9 || beyond.Size != 9 {
		t.Errorf("bincount of a 9 into 9 places: %v", err)
	}
}
