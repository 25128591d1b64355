package pipeline_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/pipeline"
	"github.com/optimem/optimem/runtime"
)

// apart is a request that begins like no other, so that it waits for none, and whose passes are all of one row: to ask stages
// about other shapes is to wait for the pass that they compute.
func apart(i int) generate.Request {
	r := generate.Request{Seed: uint64(i), Prompt: []int{i}, MaxTokens: 6}
	if i%3 != 0 {
		r.Sampling = generate.Sampling{Temperature: 0.8, TopK: 7}
	}
	return r
}

// TestDevicesAreBusyTogether: what is written of many requests over two emulated accelerators of this machine is what one
// CPU writes, and both compute at the same time: the first passes of the second device do not end before the first computes
// the pass behind, nor does that before.
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
			// Pass p of the second device meets pass p + 1 of the first, but for the first passes, behind which stages are
			// asked about shapes.
			p := passes[device].Add(1) - 3
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
