package pipeline_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/pipeline"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

const (
	digits = "../examples/digits/digits.pt2"
	llama  = "../models/testdata/families/hf/tiny_llama"
	vit    = "../models/testdata/families/hf/tiny_vit"
)

func open(t testing.TB, path string) *models.Model {
	t.Helper()
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

// floats are random numbers, the same for the same seed.
func floats(n int, seed uint64) []float32 {
	rng := rand.New(rand.NewPCG(seed, 7))
	x := make([]float32, n)
	for i := range x {
		x[i] = rng.Float32()
	}
	return x
}

// inputs are some for a model, others for another seed.
func inputs(path string, seed uint64) runtime.Values {
	switch path {
	case digits:
		return runtime.Values{"input": tensor.Of(floats(2*64, seed), 2, 1, 8, 8)}
	case llama:
		rng := rand.New(rand.NewPCG(seed, 1))
		ids := make([]int64, 9)
		for i := range ids {
			ids[i] = rng.Int64N(32)
		}
		return runtime.Values{"input_ids": tensor.Of(ids, 1, len(ids))}
	}
	return runtime.Values{"pixel_values": tensor.Of(floats(3*8*8, seed), 1, 3, 8, 8)}
}

func shapesOf(in runtime.Values) map[string]tensor.Shape {
	shapes := make(map[string]tensor.Shape)
	for name, v := range in {
		shapes[name] = v.Layout.Shape
	}
	return shapes
}

// A served is a stage that serves, until stop is called or the test ends.
type served struct {
	address string
	stop    func()
}

func serve(t testing.TB, model *models.Model, opts pipeline.StageOptions) served {
	t.Helper()
	if opts.Session.Memory == 0 {
		opts.Session.Memory = 64 << 20
	}
	stage, err := pipeline.NewStage(t.Context(), model, opts)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := stage.Serve(ctx, listener); !errors.Is(err, context.Canceled) {
			t.Errorf("serving ended with %v", err)
		}
	}()
	stop := func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return served{listener.Addr().String(), stop}
}

// pipe opens a pipeline.
func pipe(t testing.TB, model *models.Model, shapes map[string]tensor.Shape, opts pipeline.Options) *pipeline.Pipeline {
	t.Helper()
	opts.Slower = true
	if opts.Wait == 0 {
		opts.Wait = time.Minute
	}
	p, err := pipeline.Open(t.Context(), model, shapes, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func alone(t testing.TB, model *models.Model, in runtime.Values) runtime.Values {
	t.Helper()
	s, err := runtime.Resident(t.Context(), model, runtime.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	out, err := s.Run(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func sameBits(got, want runtime.Values) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d outputs, want %d", len(got), len(want))
	}
	for name := range want {
		if got[name] == nil || !bytes.Equal(got[name].Data, want[name].Data) || !got[name].Layout.Shape.Equal(want[name].Layout.Shape) {
			return fmt.Errorf("output %s differs", name)
		}
	}
	return nil
}

// TestSameBits: models over two and three stages, several passes at once, give the bits of one machine, with stages
// that keep their weights and stages that bring them for each pass.
func TestSameBits(t *testing.T) {
	for _, path := range []string{digits, llama, vit} {
		for _, stages := range []int{2, 3} {
			t.Run(fmt.Sprintf("%s over %d", path[len("../"):], stages), func(t *testing.T) {
				model := open(t, path)
				opts := pipeline.Options{}
				for i := range stages {
					mode := runtime.Options{}
					if i%2 == 1 {
						mode.Mode = "page"
					}
					opts.Stages = append(opts.Stages, serve(t, model, pipeline.StageOptions{Session: mode}).address)
				}
				p := pipe(t, model, shapesOf(inputs(path, 0)), opts)
				var want [8]runtime.Values
				for i := range want {
					want[i] = alone(t, model, inputs(path, uint64(i)))
				}
				var all sync.WaitGroup
				for i := range want {
					all.Go(func() {
						got, err := p.Run(t.Context(), inputs(path, uint64(i)))
						if err == nil {
							err = sameBits(got, want[i])
						}
						if err != nil {
							t.Error(err)
						}
					})
				}
				all.Wait()
				hops := int64(0)
				for _, s := range p.Plan().Stages {
					hops += s.HopBytes
				}
				if hops == 0 {
					t.Error("no bytes go from stage to stage")
				}
			})
		}
	}
}

// TestPassesBy: what a stage makes and one behind the next reads passes by the one between, which does not read it: the
// middle one has a part of a feed-forward network, and what is added to it comes from before.
func TestPassesBy(t *testing.T) {
	model := open(t, llama)
	for _, at := range [][]string{
		{"model.layers.0.mlp.gate_proj", "model.layers.0.mlp.down_proj"},
		{"model.layers.0.mlp.gate_proj", "model.layers.0.mlp.up_proj", "model.layers.0.mlp.down_proj"},
	} {
		opts := pipeline.Options{At: at}
		for range len(at) + 1 {
			opts.Stages = append(opts.Stages, serve(t, model, pipeline.StageOptions{}).address)
		}
		p := pipe(t, model, shapesOf(inputs(llama, 0)), opts)
		for i := range uint64(4) {
			got, err := p.Run(t.Context(), inputs(llama, i))
			if err == nil {
				err = sameBits(got, alone(t, model, inputs(llama, i)))
			}
			if err != nil {
				t.Errorf("divided at %q: %v", at, err)
			}
		}
	}
}
