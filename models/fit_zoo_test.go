package models_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/models/internal/zoo"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

var fitAll = flag.Bool("fit-all", false, "hold the predictions of every model of the zoo for 1 to 128 rows to what passes take")

// fitNames are models of the zoo that are looked at otherwise, fitRows the numbers of rows.
var (
	fitNames = []string{"extra/views", "nn/gru", "nn/Transformer", "diff/dit"}
	fitRows  = []int{1, 2, 3, 7, 16, 128}
)

// The memory predicted for a number of rows is what a pass takes, to the byte. A pass takes all its memory before its first op
// is done, so it is ended there. make fit looks at every model of the zoo and each of 1 to 128 rows.
func TestBatchesTakeWhatIsPredicted(t *testing.T) {
	names := fitNames
	if *fitAll {
		var err error
		if names, err = zoo.Names(zooFolder); err != nil {
			t.Fatal(err)
		}
	}
	checked, passes := 0, 0
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			ckpt, ref, err := zoo.Load(zooFolder, name, "aten")
			if err != nil || ref.Unsupported != "" {
				t.Skip("not in this form")
			}
			defer ckpt.Close()
			model, err := models.Build(ckpt, models.Options{})
			if err != nil {
				t.Fatal(err)
			}
			given := make(map[string]tensor.Shape)
			for input, f := range ref.Cases[0].Inputs {
				given[input] = f.Shape
			}
			n, err := checkPredictions(t, model, given)
			if errors.As(err, new(*graph.NotBatchableError)) {
				t.Skip("its rows are not apart")
			}
			if err != nil {
				t.Fatal(err)
			}
			checked, passes = checked+1, passes+n
		})
	}
	t.Logf("%d models, %d passes", checked, passes)
	if checked < 3 || passes < 12 {
		t.Errorf("%d models, %d passes", checked, passes)
	}
}

// checkPredictions compares what is predicted with what passes take.
func checkPredictions(t *testing.T, model *models.Model, shapes map[string]tensor.Shape) (passes int, err error) {
	axes, _, err := model.BatchAxes(shapes, nil)
	if err != nil {
		return 0, err
	}
	for _, mode := range []plan.Mode{plan.Page, plan.Resident} {
		s, err := runtime.Start(t.Context(), model, runtime.Options{Device: "cpu", Mode: mode, Memory: 1 << 42})
		if err != nil {
			return passes, err
		}
		list, err := s.Batches(t.Context(), shapes, runtime.BatchGoal{})
		if err := errors.Join(err, s.Close()); err != nil {
			return passes, err
		}
		for _, b := range list {
			if !*fitAll && !slices.Contains(fitRows, b.Rows) {
				continue
			}
			took, err := begun(t, model, mode, b.Rows, shapes, axes)
			if err != nil {
				return passes, fmt.Errorf("%d rows: %w", b.Rows, err)
			}
			if took != b.PeakBytes {
				t.Errorf("%s, %d rows: %d bytes are taken, %d were predicted", mode, b.Rows, took, b.PeakBytes)
			}
			passes++
		}
	}
	return passes, nil
}

// begun begins a pass of so many rows, and returns what it took.
func begun(
	t *testing.T, model *models.Model, mode plan.Mode, rows int, shapes map[string]tensor.Shape, axes map[string]int,
) (took int64, err error) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s, err := runtime.Start(ctx, model, runtime.Options{
		Device: "cpu", Mode: mode, Memory: 1 << 42, MicroBatch: rows, ObserveOps: true,
		Observe: func(e runtime.Event) {
			if e.Kind == runtime.OpDone {
				cancel()
			}
		},
	})
	if err != nil {
		return 0, err
	}
	in := make(runtime.Values)
	for _, port := range model.Inputs() {
		shape := slices.Clone(shapes[port.Name])
		if shape == nil {
			continue
		}
		if axis := axes[port.Name]; axis >= 0 {
			shape[axis] = rows
		}
		n, _ := shape.NumElements()
		in[port.Name] = &tensor.Tensor{
			DType: port.DType, Layout: tensor.Contiguous(shape...), Data: make([]byte, n*int64(port.DType.Size())),
		}
	}
	_, err = s.RunBatch(ctx, in)
	took = s.Metrics().PeakBytes // what was allocated, weights in the making included
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return took, errors.Join(err, s.Close())
}
