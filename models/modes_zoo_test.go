package models_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/models/internal/zoo"
	"github.com/optimem/optimem/plan"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// modeModels are run in every mode; -short runs the first three. They have convolutions, attention, recurrences, half
// precision, tied weights, modules called twice, branches, states, and inputs of several kinds.
var modeModels = []string{
	"extra/twice", "hf/gpt2", "extra/cond",
	"extra/int8", "extra/int8_bfloat16", "extra/tied", "extra/buffer_mutation", "extra/bfloat16", "extra/float16", "extra/symbolic_out", "extra/dict_out",
	"nn/lstm", "nn/gru", "hf/bert_mask", "hf/llama", "hf/t5", "tv/mobilenet_v2", "tv/resnet18", "diff/dit",
}

// A ram is a source in memory: the zoo's own compute their bytes, which takes longer than what is tested.
type ram struct{ data []byte }

func (r *ram) Size() int64 { return int64(len(r.data)) }

func (r *ram) ReadAt(ctx context.Context, p []byte, off int64) error {
	if off < 0 || off > int64(len(r.data)) || copy(p, r.data[off:]) < len(p) {
		return io.ErrUnexpectedEOF
	}
	return ctx.Err()
}

// zooInMemory returns a model of the zoo with all its weights in one source in memory, and the inputs of its first case.
func zooInMemory(t *testing.T, name string) (*models.Model, optimem.Values) {
	t.Helper()
	from, ref, err := zoo.Load(zooFolder, name, "aten")
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	all := &ram{}
	at := make(map[storage.Extent]storage.Extent)
	weights := slices.Clone(from.Weights)
	for i := range weights {
		e := weights[i].Extent
		if _, known := at[e]; !known {
			part := make([]byte, e.Bytes)
			if err := e.ReadAt(t.Context(), part, 0); err != nil && e.Bytes > 0 {
				t.Fatal(err)
			}
			at[e] = storage.Extent{Source: all, Offset: int64(len(all.data)), Bytes: e.Bytes}
			all.data = append(all.data, part...)
			all.data = append(all.data, make([]byte, -len(all.data)&63)...)
		}
		weights[i].Extent = at[e]
	}
	ckpt, err := loader.NewCheckpoint(name, weights, from.Program)
	if err != nil {
		t.Fatal(err)
	}
	model, err := models.Build(ckpt, models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	in := make(optimem.Values)
	for input, f := range ref.Cases[0].Inputs {
		if in[input], err = f.Tensor(input); err != nil {
			t.Fatal(err)
		}
	}
	return model, in
}

// starters start a session in each mode.
var starters = map[plan.Mode]func(context.Context, *models.Model, optimem.Options) (*optimem.Session, error){
	plan.Resident: optimem.Resident, plan.Page: optimem.Page, plan.Chunk: optimem.Chunk, plan.Auto: optimem.Auto,
}

// A modeRun is a session's way to run.
type modeRun struct {
	mode plan.Mode
	opts optimem.Options
}

func (m modeRun) String() string {
	return fmt.Sprintf("%s on %q, %d threads, memory %d, groups of %v, capacity %v",
		m.mode, m.opts.Device, m.opts.Threads, m.opts.Memory, m.opts.MaxGroup, m.opts.Capacity)
}

// passes runs inputs twice in a new session and returns the outputs, with the plan.
func (m modeRun) passes(t *testing.T, model *models.Model, in optimem.Values) ([]optimem.Values, *plan.Plan, error) {
	t.Helper()
	s, err := starters[m.mode](t.Context(), model, m.opts)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	p, err := s.Plan(t.Context(), inputShapes(in))
	if err != nil {
		return nil, nil, err
	}
	var outs []optimem.Values
	for range 2 { // a second pass finds what the first brought ahead, and the states that it left
		out, err := s.Run(t.Context(), in)
		if err != nil {
			return nil, nil, err
		}
		outs = append(outs, out)
	}
	peak, planned := s.Metrics().PeakBytes, p.PeakBytes()
	if peak > planned || float64(peak) < 0.97*float64(planned) {
		t.Errorf("%v: %d bytes were held, %d planned", m, peak, planned)
	}
	if host := s.Metrics().HostPeakBytes; m.opts.Device != "" && host > p.HostBytes() {
		t.Errorf("%v: %d bytes of the host's memory were held, %d planned", m, host, p.HostBytes())
	}
	return outs, p, nil
}

func inputShapes(in optimem.Values) map[string]tensor.Shape {
	shapes := make(map[string]tensor.Shape)
	for name, x := range in {
		shapes[name] = x.Layout.Shape
	}
	return shapes
}

// sameBits compares outputs by name, dtype, shape and bits.
func sameBits(t *testing.T, what string, got, want optimem.Values) {
	t.Helper()
	if !slices.Equal(slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want))) {
		t.Errorf("%s gives %v, want %v", what, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
		return
	}
	for name, w := range want {
		g := got[name]
		if g.DType != w.DType || !g.Layout.Shape.Equal(w.Layout.Shape) || !bytes.Equal(g.Data, w.Data) {
			t.Errorf("%s gives other bits of %s", what, name)
		}
	}
}

const emulatedDevice = "emu:memory=4GiB,bandwidth=12GB/s,latency=10us"

// TestModesZoo runs models of the zoo in every mode, on the CPU and an emulated device, with one thread and two, and with
// plans drawn at random: the same bits as with everything resident, in the memory that was planned.
func TestModesZoo(t *testing.T) {
	for i, name := range modeModels {
		if testing.Short() && i >= 3 {
			break
		}
		t.Run(name, func(t *testing.T) {
			model, in := zooInMemory(t, name)
			want, resident, err := modeRun{mode: plan.Resident}.passes(t, model, in)
			if err != nil {
				t.Fatal(err)
			}
			params := func(n int64) plan.Limit { return plan.Limit{N: n, Unit: plan.Params} }
			all, total := resident.Fixed.Params, resident.PeakBytes()
			paged := 0
			check := func(m modeRun) {
				got, p, err := m.passes(t, model, in)
				if capacity := (*plan.CapacityError)(nil); errors.As(err, &capacity) && m.opts.Memory > 0 {
					m.opts.Memory = capacity.MinBytes // which then has to do
					got, p, err = m.passes(t, model, in)
				}
				if err != nil {
					t.Fatalf("%v: %v", m, err)
				}
				if p.MovedBytes > 0 {
					paged++
				}
				for pass := range got {
					sameBits(t, fmt.Sprintf("pass %d: %v", pass, m), got[pass], want[pass])
				}
			}
			for _, device := range []string{"", emulatedDevice} {
				for _, threads := range []int{1, 2} {
					o := optimem.Options{Device: device, Threads: threads}
					check(modeRun{plan.Page, o})
					group, half, auto := o, o, o
					group.MaxGroup, half.Capacity, auto.Memory = params(all/4), params(all/2), max(total*6/10, 1)
					check(modeRun{plan.Page, group})
					check(modeRun{plan.Chunk, half})
					check(modeRun{plan.Auto, auto})
				}
			}
			h := fnv.New64a()
			io.WriteString(h, name)
			rng := rand.New(rand.NewPCG(h.Sum64(), 6))
			for range 8 {
				m := modeRun{mode: []plan.Mode{plan.Page, plan.Auto, plan.Auto, plan.Chunk}[rng.IntN(4)]}
				m.opts.Device = []string{"", emulatedDevice}[rng.IntN(2)]
				m.opts.Threads = 1 + rng.IntN(2)
				m.opts.MaxGroup = params(rng.Int64N(all + 1))
				if capacity := rng.Int64N(all + 1); m.mode == plan.Chunk {
					m.opts.Capacity = params(capacity)
				} else {
					m.opts.Memory = max(total/3+rng.Int64N(total), 1)
				}
				if m.opts.Device != "" && rng.IntN(2) > 0 {
					m.opts.HostMemory = 1<<20 + rng.Int64N(2*total)
				}
				check(m)
			}
			if resident.Fixed.WeightBytes > 1000 && paged < 8 {
				t.Errorf("%d runs paged", paged)
			}
		})
	}
}

// TestBatchRowsZoo gives models three times the rows that they were recorded with: RunBatch gives the bits of three runs.
func TestBatchRowsZoo(t *testing.T) {
	names := []string{"nn/lstm", "nn/gru", "extra/symbolic_out", "extra/kwargs", "hf/bert_mask", "hf/gpt2"}
	for i, name := range names {
		if testing.Short() && i >= 3 {
			break
		}
		t.Run(name, func(t *testing.T) {
			model, in := zooInMemory(t, name)
			axes, outAxes, err := model.BatchAxes(inputShapes(in), batchNames[name])
			if err != nil {
				t.Fatal(err)
			}
			rows := 0
			three := []optimem.Values{in, varied(in, axes, 1), varied(in, axes, 2)}
			all := make(optimem.Values)
			for input, x := range in {
				if axes[input] < 0 {
					all[input] = x
					continue
				}
				rows = x.Layout.Shape[axes[input]]
				all[input] = joined(axes[input], three[0][input], three[1][input], three[2][input])
			}
			for _, m := range []modeRun{{mode: plan.Resident}, {mode: plan.Page}, {mode: plan.Page, opts: optimem.Options{Device: emulatedDevice}}} {
				m.opts.MicroBatch, m.opts.BatchAxes = rows, batchNames[name]
				s, err := starters[m.mode](t.Context(), model, m.opts)
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				want := make(optimem.Values)
				var parts []optimem.Values
				for _, in := range three {
					out, err := s.Run(t.Context(), in)
					if err != nil {
						t.Fatal(err)
					}
					parts = append(parts, out)
				}
				for output, d := range outAxes {
					if d < 0 {
						want[output] = parts[0][output]
						continue
					}
					want[output] = joined(d, parts[0][output], parts[1][output], parts[2][output])
				}
				before := s.Metrics().Runs
				got, err := s.RunBatch(t.Context(), all)
				if err != nil {
					t.Fatalf("%v: %v", m, err)
				}
				if n := s.Metrics().Runs - before; n != 1 {
					t.Errorf("%v: %d passes", m, n)
				}
				sameBits(t, m.String(), got, want)
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	var refused *graph.NotBatchableError
	model, in := zooInMemory(t, "extra/buffer_mutation")
	s, err := optimem.Page(t.Context(), model, optimem.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.RunBatch(t.Context(), in); !errors.As(err, &refused) {
		t.Errorf("a program that changes a buffer: %v", err)
	}
}

// varied returns inputs with the bytes of floats that have rows turned by some elements.
func varied(in optimem.Values, axes map[string]int, by int) optimem.Values {
	out := maps.Clone(in)
	for name, x := range in {
		if size := x.DType.Size(); axes[name] >= 0 && len(x.Data) > by*size {
			out[name] = &tensor.Tensor{
				DType: x.DType, Layout: x.Layout, Data: slices.Concat(x.Data[by*size:], x.Data[:by*size]),
			}
		}
	}
	return out
}

// joined puts tensors one after the other along a dimension.
func joined(axis int, parts ...*tensor.Tensor) *tensor.Tensor {
	shape := slices.Clone(parts[0].Layout.Shape)
	shape[axis] = 0
	outer := 1
	for _, n := range shape[:axis] {
		outer *= n
	}
	var data []byte
	for i := range outer {
		for _, p := range parts {
			run := len(p.Data) / outer
			data = append(data, p.Data[i*run:(i+1)*run]...)
		}
	}
	for _, p := range parts {
		shape[axis] += p.Layout.Shape[axis]
	}
	return &tensor.Tensor{DType: parts[0].DType, Layout: tensor.Contiguous(shape...), Data: data}
}
