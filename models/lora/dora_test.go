package lora_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/memory"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/models/internal/zoo"
	"github.com/optimem/optimem/plan"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

func shapesOf(in optimem.Values) map[string]tensor.Shape {
	shapes := make(map[string]tensor.Shape, len(in))
	for name, x := range in {
		shapes[name] = x.Layout.Shape
	}
	return shapes
}

func planned(t *testing.T, s *optimem.Session, in optimem.Values) *plan.Plan {
	t.Helper()
	p, err := s.Plan(t.Context(), shapesOf(in))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestStretchedWithoutLengths: a pass with DoRA reads every weight of the model for its product alone: the lengths of
// rows are not computed in it. What keeping them takes is in the plan, with a call without the adapter as well, and in
// the report of its peak.
func TestStretchedWithoutLengths(t *testing.T) {
	tried := 0
	for _, r := range recordedAdapters(t) {
		if !strings.Contains(r.AdapterConfig, `"use_dora": true`) {
			continue
		}
		tried++
		in := r.inputs(t)
		base := planned(t, session(t, r.model(t, models.Options{}), optimem.Options{Mode: plan.Page}), in)
		with := func(name string) *plan.Plan {
			model := r.model(t, models.Options{Adapters: []models.Adapter{r.adapter(t)}, Adapter: name})
			return planned(t, session(t, model, optimem.Options{Mode: plan.Page}), in)
		}
		alone, p := with(""), with(r.Name)
		if p.SourceBytes == 0 || alone.SourceBytes != p.SourceBytes || base.SourceBytes != 0 {
			t.Errorf("%s: lengths take %d, without the adapter %d, without any %d", r.Name, p.SourceBytes, alone.SourceBytes, base.SourceBytes)
		}
		if alone.PeakBytes() != base.PeakBytes()+p.SourceBytes || alone.MinBytes != base.MinBytes+p.SourceBytes {
			t.Errorf("%s: a call without the adapter takes %d, of a model without any %d", r.Name, alone.PeakBytes(), base.PeakBytes())
		}
		readers := make(map[string]int)
		for _, op := range p.Lowered.Graph.Ops {
			for _, o := range op.In {
				if v := p.Lowered.Graph.Values[max(o.Value, 0)]; o.Value >= 0 && v.Weight.Name != "" {
					readers[v.Weight.Name]++
				}
			}
		}
		factors := 0
		for name, n := range readers {
			if strings.HasSuffix(name, "_proj.weight") && n != 1 {
				t.Errorf("%s: %d ops read %s", r.Name, n, name)
			}
			if strings.HasSuffix(name, ".lora_stretch") {
				factors++
			}
		}
		if factors == 0 {
			t.Errorf("%s: no factors are read: %v", r.Name, readers)
		}
		report := memory.Planned(p, "cpu", nil).Devices[0]
		row := slices.IndexFunc(report.Rest, func(r memory.Rest) bool { return r.Name == "row lengths of adapters" })
		if row < 0 || report.Rest[row].Bytes != p.SourceBytes || report.HeldBytes != p.PeakBytes() {
			t.Errorf("%s: the report of the peak, %d of %d: %+v", r.Name, report.HeldBytes, p.PeakBytes(), report.Rest)
		}
	}
	if tried < 2 {
		t.Fatalf("%d adapters with DoRA", tried)
	}
}

// counted is a source that counts what is read.
type counted struct {
	storage.Source
	bytes *atomic.Int64
}

func (c counted) ReadAt(ctx context.Context, p []byte, off int64) error {
	c.bytes.Add(int64(len(p)))
	return c.Source.ReadAt(ctx, p, off)
}

// wide is a model of two linear modules of 512 KiB each, and an adapter that stretches both. read counts what is read
// of the model. strength is the dtype of the lengths that the adapter wants, own says that it has weights of its own.
func wide(t *testing.T, entries, strength string, own bool) (build func() *models.Model, read *atomic.Int64) {
	t.Helper()
	const size, rank = 512, 2
	a := &layers.Architecture{
		Name: "wide", Classes: layers.NN(), Inputs: []layers.Port{{Name: "x", DType: tensor.Float32}},
		Root: layers.New("torch.nn.modules.container.Sequential", nil).
			Add("0", layers.Linear(size, size, layers.NoBias)).Add("1", layers.Linear(size, size, layers.NoBias)),
	}
	scale := json.Number("0.5")
	base, tensors := make(map[string]zoo.Filled), make(map[string]zoo.Filled)
	for _, module := range []string{"0", "1"} {
		base[module+".weight"] = zoo.Filled{DType: "bfloat16", Shape: []int{size, size}, Scale: &scale}
		tensors[module+".lora_A.weight"] = zoo.Filled{DType: "float32", Shape: []int{rank, size}, Scale: &scale}
		tensors[module+".lora_B.weight"] = zoo.Filled{DType: "float32", Shape: []int{size, rank}, Scale: &scale}
		if entries != "" {
			tensors[module+".lora_magnitude_vector"] = zoo.Filled{DType: strength, Shape: []int{size}, Scale: &scale}
		}
		if own {
			tensors[module+".base_layer.weight"] = zoo.Filled{DType: "float32", Shape: []int{size, size}, Scale: &scale}
		}
	}
	weights, err := zoo.Weights(base)
	if err != nil {
		t.Fatal(err)
	}
	read = new(atomic.Int64)
	for i := range weights {
		weights[i].Extent.Source = counted{weights[i].Extent.Source, read}
	}
	return func() *models.Model {
		ckpt, err := loader.NewCheckpoint("wide", weights, nil)
		if err != nil {
			t.Fatal(err)
		}
		opts := models.Options{Architecture: a}
		if entries != "none" {
			config := `{"peft_type": "LORA", "r": 2, "target_modules": ["0", "1"]` + entries + `}`
			opts.Adapter, opts.Adapters = "small", []models.Adapter{{Name: "small", Checkpoint: checkpoint(t, "small", tensors, config)}}
		}
		model, err := models.Build(ckpt, opts)
		if err != nil {
			t.Fatal(err)
		}
		return model
	}, read
}

// TestLengthsOnce: the first pass reads a model twice, for the lengths of its rows and for its products, and every
// further one once, whichever session it is of. Bits are the same in every mode, with the least memory, and with any
// number of threads.
func TestLengthsOnce(t *testing.T) {
	build, read := wide(t, `, "use_dora": true`, "float32", false)
	x := make([]float32, 3*512)
	for i := range x {
		x[i] = float32(i%13) - 6
	}
	in := optimem.Values{"x": tensor.Of(x, 3, 512)}
	model, all := build(), int64(2*2*512*512)
	s := session(t, model, optimem.Options{Mode: plan.Page, Once: true}) // nothing is read ahead for the next pass
	var want *tensor.Tensor
	for i, passes := range []int64{2, 1, 1} {
		read.Store(0)
		got := compute(t, s, in)["output_0"]
		if want == nil {
			want = got
			values, err := tensor.Slice[float32](want.Contiguous())
			if err != nil || !(math.Abs(float64(values[7])) > 1e-3) {
				t.Fatalf("%v, %v", values[7], err)
			}
		}
		if n := read.Load(); n < passes*all || n > passes*all+all/8 {
			t.Errorf("pass %d read %d bytes of a model of %d", i, n, all)
		}
		if !sameBits(got, want) {
			t.Errorf("pass %d: other bits", i)
		}
	}
	least := planned(t, s, in).MinBytes
	for _, o := range []optimem.Options{
		{Mode: plan.Page, Memory: least}, {Mode: plan.Resident}, {Mode: plan.Auto, Threads: 1}, {Mode: plan.Page, Threads: 4},
		{Mode: plan.Auto, Memory: least + 300<<10}, {Device: "emu:memory=64MiB", Mode: plan.Page}, {Device: "emu:memory=64MiB", Mode: plan.Resident},
	} {
		for _, m := range []*models.Model{model, build()} {
			read.Store(0)
			o.Once = true
			if got := compute(t, session(t, m, o), in)["output_0"]; !sameBits(got, want) {
				t.Errorf("%v on %q, %d bytes, %d threads: other bits", o.Mode, o.Device, o.Memory, o.Threads)
			}
			if n := read.Load(); m == model && n > all+all/8 {
				t.Errorf("%v on %q, %d bytes: another session read %d of a model of %d", o.Mode, o.Device, o.Memory, n, all)
			}
		}
	}
	var full *plan.CapacityError
	if _, err := optimem.Start(t.Context(), model, optimem.Options{Mode: plan.Page, Memory: least - 1}); err == nil {
		_, err = session(t, model, optimem.Options{Mode: plan.Page, Memory: least - 1}).Run(t.Context(), in)
		if !errors.As(err, &full) || full.MinBytes != least {
			t.Errorf("a byte less than the least: %v", err)
		}
	}
}

// TestLeastGrowsByTheAdapter: with DoRA weights are cut by rows as they are without, so that the least memory grows by
// no more than the adapter's bytes, the lengths that are kept and one result; it is less than one weight takes.
func TestLeastGrowsByTheAdapter(t *testing.T) {
	in := optimem.Values{"x": tensor.Of(make([]float32, 512), 1, 512)}
	least := func(entries string) (least, sources int64) {
		build, _ := wide(t, entries, "float32", false)
		p := planned(t, session(t, build(), optimem.Options{Mode: plan.Page}), in)
		return p.MinBytes, p.SourceBytes
	}
	alone, _ := least("none")
	plain, none := least("")
	stretched, kept := least(`, "use_dora": true`)
	const adapter, result = 2 * 4 * (2*512 + 512*2), 4 * 512
	if plain > alone+adapter+result || none != 0 {
		t.Errorf("LoRA takes %d, the model alone %d", plain, alone)
	}
	if stretched > alone+adapter+2*4*512+2*result+kept || stretched >= 2*512*512 {
		t.Errorf("DoRA takes %d with %d for lengths, the model alone %d", stretched, kept, alone)
	}
	t.Logf("alone %d, LoRA %d, DoRA %d with %d for lengths", alone, plain, stretched, kept)
}

// TestLengthsAheadAndInThePass: lengths that are computed once and those that are computed in a pass stretch rows by
// the same, also where an adapter has weights of its own in the place of the model's.
func TestLengthsAheadAndInThePass(t *testing.T) {
	x := make([]float32, 2*512)
	for i := range x {
		x[i] = float32(i%11) - 5
	}
	in := optimem.Values{"x": tensor.Of(x, 2, 512)}
	var first *tensor.Tensor
	for _, own := range []bool{false, true} {
		var outs [2][]float32
		for i, strength := range []string{"float32", "float64"} { // the latter is not computed ahead
			build, _ := wide(t, `, "use_dora": true`, strength, own)
			s := session(t, build(), optimem.Options{Mode: plan.Page})
			if ahead := planned(t, s, in).SourceBytes > 0; ahead != (i == 0) {
				t.Fatalf("own weights %t, lengths as %s: computed ahead: %t", own, strength, ahead)
			}
			out := compute(t, s, in)["output_0"]
			values, err := tensor.Slice[float32](out.Contiguous())
			if err != nil {
				t.Fatal(err)
			}
			if outs[i] = values; first == nil {
				first = out
			} else if own && i == 0 && sameBits(out, first) {
				t.Fatal("own weights make no difference")
			}
		}
		largest, far := 0.0, 0.0
		for i, v := range outs[0] {
			largest, far = max(largest, math.Abs(float64(v))), max(far, math.Abs(float64(v-outs[1][i])))
		}
		if !(far <= 1e-5*largest) {
			t.Errorf("own weights %t: results differ by %v of %v", own, far, largest)
		}
	}
}
