package models_test

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/optimem/optimem/device/devicetest"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// A recordedTensor is an input or an output of testdata/make_regions.py.
type recordedTensor struct {
	DType  string
	Shape  []int
	Values []float64
}

// TestAutocast: products within a region under autocast are of the narrow dtype, those of doubles are not; where autocast is
// off within a region, and behind the region, they are what they are outside of any. The numbers are PyTorch's.
func TestAutocast(t *testing.T) {
	text, err := os.ReadFile("testdata/autocast.json")
	if err != nil {
		t.Fatal(err)
	}
	var recorded struct{ Inputs, Outputs map[string]recordedTensor }
	if err := json.Unmarshal(text, &recorded); err != nil {
		t.Fatal(err)
	}
	ckpt, err := loader.Open("testdata/autocast.pt2")
	if err != nil {
		t.Fatal(err)
	}
	defer ckpt.Close()
	model, err := models.Build(ckpt, models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := runtime.Resident(t.Context(), model, runtime.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	x := make([]float32, len(recorded.Inputs["x"].Values))
	for i, v := range recorded.Inputs["x"].Values {
		x[i] = float32(v)
	}
	got, err := s.Run(t.Context(), runtime.Values{
		"x": tensor.Of(x, recorded.Inputs["x"].Shape...),
		"d": tensor.Of(recorded.Inputs["d"].Values, recorded.Inputs["d"].Shape...),
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(recorded.Outputs) {
		t.Errorf("%d outputs, want %d", len(got), len(recorded.Outputs))
	}
	for name, want := range recorded.Outputs {
		y := got[name]
		if y == nil || y.DType.String() != want.DType || !y.Layout.Shape.Equal(want.Shape) {
			t.Errorf("%s is %v, want %s %v", name, y, want.DType, want.Shape)
			continue
		}
		// PyTorch adds in another order: the last bit may differ.
		bound := map[tensor.DType]float64{tensor.BFloat16: 1.0 / 128, tensor.Float32: 1e-6, tensor.Float64: 1e-14}[y.DType]
		for i, v := range devicetest.Floats(y) {
			if w := want.Values[i]; math.Abs(v-w) > bound*math.Max(1, math.Abs(w)) {
				t.Errorf("%s[%d] is %v, PyTorch gives %v", name, i, v, w)
			}
		}
	}
}
