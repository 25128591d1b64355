package pipeline_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/pipeline"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// apart is a request that begins like no other, so that it waits for none. Prompts have several lengths, so that stages are asked
// about several shapes while they compute.
func apart(i int) generate.Request {
	r := generate.Request{Seed: uint64(i), Prompt: []int{i, 1, 2, 3, 4, 5, 6}[:1+i%4*2], MaxTokens: 6}
	if i%3 != 0 {
		r.Sampling = generate.Sampling{Temperature: 0.8, TopK: 7}
	}
	return r
}

// TestDevicesAreBusyTogether: what is written of many requests over two emulated accelerators of this machine is what one
// CPU writes, and both compute at the same time from the first pass on: the first passes of the second device do not end before
// the first computes the pass behind, nor does that before, whatever shapes they have.
func TestDevicesAreBusyTogether(t *testing.T) {
	const requests, meetings = 12, 4
	model := open(t, llama)
	one, err := generate.New(t.Context(), model, generate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	var want [requests][]int
	for i := range want {
		got, err := one.Generate(t.Context(), apart(i), nil)
		if err != nil {
			t.Fatal(err)
		}
		want[i] = got.Tokens
	}
	meet := make(chan struct{})
	var passes [2]atomic.Int64
	observe := func(device int64) func(runtime.Event) {
		return func(e runtime.Event) {
			if e.Kind != runtime.PassDone {
				return
			}
			// Pass p of the second device meets pass p + 1 of the first.
			p := passes[device].Add(1)
			if device == 0 {
				p--
			}
			if p < 1 || p > meetings {
				return
			}
			select {
			case meet <- struct{}{}:
			case <-meet:
			case <-time.After(2 * time.Minute):
				t.Error("one device computes nothing while the other does")
			}
		}
	}
	var devices []runtime.Options
	for k := range int64(2) {
		devices = append(devices, runtime.Options{Device: "emu:memory=64MiB,bandwidth=10GB/s", Observe: observe(k)})
	}
	e, err := generate.New(t.Context(), model, generate.Options{
		Sequences: 3,
		Remote: func(ctx context.Context, r generate.RemoteModel) (generate.Remote, error) {
			return pipeline.OpenDevices(ctx, r.Model, r.Largest, devices, pipeline.Options{
				Steps: &r.Steps, Typical: r.Least, Slower: true,
			})
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	together(t, e, apart, want[:])
	if a, b := passes[0].Load(), passes[1].Load(); a <= meetings+4 || a != b {
		t.Errorf("%d and %d passes", a, b)
	}
}

// TestShapesAreToldDuringPasses: how inputs of shapes go through that were not there before is told while a device is in a
// pass, which goes on only then; so the beginning of a batch is not one pass after the other.
func TestShapesAreToldDuringPasses(t *testing.T) {
	model := open(t, llama)
	steps := models.StepOptions{Blocks: 8, Context: 32}
	shapes := func(rows int) map[string]tensor.Shape {
		return map[string]tensor.Shape{
			models.StepTokens: {rows}, models.StepPositions: {rows}, models.StepBlocks: {rows, 2}, models.StepWanted: {1},
		}
	}
	inPass, told := make(chan int, 2), make(chan struct{})
	var devices []runtime.Options
	for k := range 2 {
		var once sync.Once
		devices = append(devices, runtime.Options{Device: "emu:memory=64MiB,bandwidth=10GB/s", Observe: func(e runtime.Event) {
			if e.Kind == runtime.PassDone {
				once.Do(func() { inPass <- k; <-told })
			}
		}})
	}
	d, err := pipeline.OpenDevices(t.Context(), model, shapes(8), devices, pipeline.Options{Steps: &steps, Slower: true})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	one := func() {
		in := runtime.Values{
			models.StepTokens: tensor.Of([]int64{1}, 1), models.StepPositions: tensor.Of([]int64{0}, 1),
			models.StepBlocks: tensor.Of([]int64{0, 1}, 1, 2), models.StepWanted: tensor.Of([]int64{0}, 1),
		}
		if _, err := d.Run(t.Context(), in); err != nil {
			t.Error(err)
		}
	}
	var passes sync.WaitGroup
	passes.Go(one)
	if k := <-inPass; k != 0 {
		t.Errorf("device %d is the first in a pass", k)
	}
	limit, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := d.TellShapes(limit, shapes(4)); err != nil {
		t.Errorf("while the first device is in a pass: %v", err)
	}
	close(told)
	passes.Wait()
	if m := d.Metrics(); len(m) != 2 || m[0].Runs != 1 || m[1].Runs != 1 || m[0].PeakBytes == 0 || m[1].PeakBytes == 0 {
		t.Errorf("%+v", m)
	}
}
