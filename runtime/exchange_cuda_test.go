//go:build linux && (amd64 || arm64) && !nocuda

package runtime_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/optimem/optimem/cuda/sim"
	"github.com/optimem/optimem/device/devicetest"
	"github.com/optimem/optimem/plan"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// TestStridedInputsOnGPU: a driver that copies late has every input as it was given, also where several are put in order
// first.
func TestStridedInputsOnGPU(t *testing.T) {
	model := build(t, rowsModel, nil)
	alone := start(t, model, optimem.Options{})
	for _, rows := range []int{1, 2, 5} {
		turned := func(first float32, strides []int, shape ...int) *tensor.Tensor {
			data := make([]float32, 40)
			for i := range data {
				data[i] = first + float32(i%13)/8
			}
			x := tensor.Of(data, len(data))
			x.Layout = tensor.Layout{Shape: shape, Strides: strides, Offset: 1}
			return x
		}
		in := optimem.Values{
			"x": turned(-1, []int{1, rows + 1}, rows, 4), "z": turned(0.5, []int{2, 6}, 3, rows), "w": turned(-2, []int{3}, 3),
		}
		want, err := alone.Run(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		for seed := range 3 {
			lib := sim.New(t, fmt.Sprintf("memory=64M order=lazy:%d", seed+1))
			s := onGPU(t, model, plan.Page, lib, optimem.Options{MicroBatch: 2})
			for range 3 {
				into := make(optimem.Values)
				for name, y := range want {
					into[name] = &tensor.Tensor{DType: y.DType, Layout: y.Layout, Data: make([]byte, len(y.Data))}
				}
				if err := s.RunInto(t.Context(), in, into); err != nil {
					t.Fatal(err)
				}
				batch, err := s.RunBatch(t.Context(), in)
				if err != nil {
					t.Fatal(err)
				}
				for name, w := range want {
					for how, y := range map[string]*tensor.Tensor{"RunInto": into[name], "RunBatch": batch[name]} {
						if err := devicetest.Compare(y, w, 1e-6); err != nil {
							t.Errorf("%s of %d rows: output %s: %v", how, rows, name, err)
						}
					}
				}
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			lib.Check(t)
		}
	}
}

// TestResizeTwoGPUs: another budget is that of each GPU, as for a new session.
func TestResizeTwoGPUs(t *testing.T) {
	model := build(t, digitsModel, nil)
	x := pictures(5)
	lib := sim.New(t, "memory=64M")
	s := onGPU(t, model, plan.Resident, lib, optimem.Options{})
	want, peak := runDigits(t, s, x), s.Metrics().PeakBytes
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	much, little := peak*2, peak*3/4
	for _, budgets := range [][]int64{{much, little}, {little, much}} {
		lib := sim.New(t, "devices=2 memory=64M order=lazy:5")
		o := optimem.Options{Device: "cuda:0,cuda:1", Memory: budgets[1]}
		fresh := onGPU(t, model, plan.Auto, lib, o)
		expected := planned(t, fresh, 5)
		o.Memory = budgets[0]
		s := onGPU(t, model, plan.Auto, lib, o)
		runDigits(t, s, x)
		if err := s.Resize(t.Context(), budgets[1]); err != nil {
			t.Fatal(err)
		}
		if err := s.GiveBack(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := planned(t, s, 5); got != expected {
			t.Errorf("from %d bytes to %d: %s", budgets[0], budgets[1], cmp.Diff(expected, got))
		}
		if got := runDigits(t, s, x); !bytes.Equal(got, want) {
			t.Error("other bits")
		}
		for _, s := range []*optimem.Session{s, fresh} {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
		lib.Check(t)
	}
}

// TestSecondGPUTakenByOthers: where another process takes memory of any GPU of several, each has less from then on, and the
// results are the same bits.
func TestSecondGPUTakenByOthers(t *testing.T) {
	model := build(t, tinyLlama, nil)
	const total = 4 << 20
	shapes := map[string]tensor.Shape{"input_ids": {1, 4}}
	for device := range 2 {
		lib := sim.New(t, fmt.Sprintf("devices=2 memory=%d order=lazy:4", total))
		replans := 0
		s := onGPU(t, model, plan.Auto, lib, optimem.Options{
			Device: "cuda:0,cuda:1", Memory: total - 1<<16,
			Observe: func(e optimem.Event) {
				if e.Kind == optimem.Replanned {
					replans++
				}
			},
		})
		want, err := s.Run(t.Context(), tokens(3, 1, 2, 5))
		if err != nil {
			t.Fatal(err)
		}
		before, err := s.Plan(t.Context(), shapes)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.GiveBack(t.Context()); err != nil {
			t.Fatal(err)
		}
		left := before.DeviceBytes()[device] * 3 / 4
		lib.Take(device, total-left)
		got, err := s.Run(t.Context(), tokens(3, 1, 2, 5))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got["logits"].Data, want["logits"].Data) {
			t.Errorf("GPU %d: other bits", device)
		}
		p, err := s.Plan(t.Context(), shapes)
		if err != nil {
			t.Fatal(err)
		}
		if replans == 0 || slices.Max(p.DeviceBytes()) > left {
			t.Errorf("GPU %d: planned anew %d times, for %v of %d bytes", device, replans, p.DeviceBytes(), left)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		lib.Check(t)
	}
}
