package models_test

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// TestOlderProgram: a program that torch 2.6 exported, with a size that a scripted function asks for, runs in every
// mode, and all others that list_older.py made ran when it was recorded.
func TestOlderProgram(t *testing.T) {
	text, err := os.ReadFile("testdata/older.json")
	if err != nil {
		t.Fatal(err)
	}
	var recorded struct {
		Small  struct{ Input, Output []float32 }
		Models map[string]triedExport
	}
	if err := json.Unmarshal(text, &recorded); err != nil {
		t.Fatal(err)
	}
	if len(recorded.Models) < 50 {
		t.Errorf("%d models", len(recorded.Models))
	}
	for name, e := range recorded.Models {
		if e.Export != "" || e.Run != "" || !(e.Err < 1e-4) {
			t.Errorf("%s: %+v", name, e)
		}
	}
	ckpt, err := loader.Open("testdata/older.pt2")
	if err != nil {
		t.Fatal(err)
	}
	defer ckpt.Close()
	model, err := models.Build(ckpt, models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []optimem.Options{{Mode: plan.Resident}, {Mode: plan.Page}, {Mode: plan.Chunk}, {Device: "emu:memory=64MiB"}} {
		s, err := optimem.Start(t.Context(), model, o)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		out, err := s.Run(t.Context(), optimem.Values{"x": tensor.Of(recorded.Small.Input, 4, 5, 6)})
		if err != nil {
			t.Fatal(err)
		}
		var got []float32
		for _, x := range out {
			if got, err = tensor.Slice[float32](x.Contiguous()); err != nil {
				t.Fatal(err)
			}
		}
		if len(got) != len(recorded.Small.Output) {
			t.Fatalf("%v: %d numbers", o.Mode, len(got))
		}
		for i, want := range recorded.Small.Output {
			if math.Abs(float64(got[i]-want)) > 1e-6 {
				t.Errorf("%v: %d is %v, PyTorch has %v", o.Mode, i, got[i], want)
			}
		}
	}
}
