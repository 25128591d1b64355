package models_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/models/internal/zoo"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

const nnRecording = "testdata/nn/nn.json.gz"

// TestNN runs every class of torch.nn with various arguments, from attributes as they are pickled, and compares with
// PyTorch's outputs.
func TestNN(t *testing.T) {
	cases, err := zoo.Modules(nnRecording)
	if err != nil || len(cases) == 0 {
		t.Fatalf("no recording: %v", err)
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			if err := runModule(t.Context(), c); err != nil {
				t.Error(err)
			}
		})
	}
}

func runModule(ctx context.Context, c zoo.Recorded) error {
	ckpt, err := c.Checkpoint()
	if err != nil {
		return err
	}
	model, err := models.Build(ckpt, models.Options{})
	if c.Refused != "" {
		if err == nil {
			_, err = model.Graph(shapesOf(c.Inputs))
		}
		if err == nil || !strings.Contains(err.Error(), c.Refused) {
			return errors.New("want an error that says " + c.Refused + ", got " + errorText(err))
		}
		return nil
	}
	if err != nil {
		return err
	}
	session, err := optimem.Resident(ctx, model, optimem.ResidentOptions{})
	if err != nil {
		return err
	}
	defer session.Close()
	worst, err := runCase(ctx, session, "", zoo.Case{Inputs: c.Inputs, Outputs: c.Outputs}, func(optimem.Values) {})
	if bound := nnBounds[c.Outputs[0].DType]; err == nil && worst > bound {
		return fmt.Errorf("off by %.2g of the largest value, more than %.2g", worst, bound)
	}
	return err
}

// nnBounds are the errors of a single module, as a part of the largest magnitude: rounding, in half precision of the
// result.
var nnBounds = map[string]float64{
	"float32": 2e-6, "float64": 2e-14, "float16": 1e-3, "bfloat16": 8e-3, "int64": 0,
}

func errorText(err error) string {
	if err == nil {
		return "none"
	}
	return err.Error()
}

func shapesOf(inputs map[string]zoo.Filled) map[string]tensor.Shape {
	shapes := make(map[string]tensor.Shape)
	for name, f := range inputs {
		shapes[name] = f.Shape
	}
	return shapes
}
