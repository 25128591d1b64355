//go:build amd64 && !noasm && !race

package models_test

import (
	"context"
	"errors"
	"testing"

	simd "github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/models/internal/zoo"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// The race detector drops some of what a sync.Pool keeps, so that allocations mean nothing with it. Without assembly, the
// tiles of Winograd's convolutions are made by Go functions that allocate.

// TestZooAllocatesNothing: after the first call, RunInto takes nothing from Go's heap, whatever the model.
func TestZooAllocatesNothing(t *testing.T) {
	if simd.Best() == nil {
		t.Skip("no kernels for this processor")
	}
	names, err := zoo.Names(zooFolder)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if !chosen(name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			n, err := zooAllocs(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			if n != 0 {
				t.Errorf("%v allocations a call", n)
			}
		})
	}
}

// zooAllocs returns how often a pass takes memory from Go's heap after the first, 0 for models that do not run.
func zooAllocs(ctx context.Context, name string) (float64, error) {
	ckpt, ref, err := zoo.Load(zooFolder, name, "aten")
	if err != nil || ref.Unsupported != "" {
		return 0, err
	}
	defer ckpt.Close()
	model, err := models.Build(ckpt, models.Options{})
	if err != nil {
		return 0, err
	}
	session, err := optimem.Resident(ctx, model, optimem.ResidentOptions{Threads: 2})
	if err != nil {
		return 0, err
	}
	defer session.Close()
	in := make(optimem.Values)
	for input, f := range ref.Cases[0].Inputs {
		if in[input], err = f.Tensor(input); err != nil {
			return 0, err
		}
	}
	into, err := session.Run(ctx, in)
	if err != nil {
		return 0, err
	}
	for output, x := range into {
		into[output] = &tensor.Tensor{
			DType: x.DType, Layout: tensor.Contiguous(x.Layout.Shape...), Data: make([]byte, len(x.Data)),
		}
	}
	n := 0.0
	for range 4 { // what a sync.Pool keeps is lost where memory is collected in between
		n = testing.AllocsPerRun(2, func() { err = errors.Join(err, session.RunInto(ctx, in, into)) })
		if n == 0 {
			break
		}
	}
	return n, err
}
