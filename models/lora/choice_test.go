package lora_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// TestChosenForCalls: one session computes with whichever adapter a call names, and without one has the bits of the model
// that was opened without adapters.
func TestChosenForCalls(t *testing.T) {
	list := recordedAdapters(t, "llama", "llama_embedding")
	opts := models.Options{Adapters: []models.Adapter{list[0].adapter(t), list[1].adapter(t)}, Adapter: list[1].Name}
	model := list[0].model(t, opts)
	s := session(t, model, optimem.Options{Mode: plan.Page})
	base := compute(t, session(t, list[0].model(t, models.Options{}), optimem.Options{}), list[0].inputs(t))
	for range 2 {
		for i, want := range []optimem.Values{
			base, compute(t, session(t, model, optimem.Options{}), chosen(t, list[0].inputs(t), 1)),
			compute(t, s, list[0].inputs(t)), // of the options
		} {
			got := compute(t, s, chosen(t, list[0].inputs(t), int64(i)))
			if !sameBits(got["logits"], want["logits"]) {
				t.Errorf("adapter %d: other bits", i)
			}
			for k := range list {
				if err := sampled(got["logits"], list[k].Reference.Cases[0].Outputs[0], 1e-5); (err == nil) != (k == i-1) {
					t.Errorf("adapter %d against what was recorded of %s: %v", i, list[k].Name, err)
				}
			}
		}
	}
	for _, n := range []int64{-1, 3} {
		var input *optimem.InputError
		if _, err := s.Run(t.Context(), chosen(t, list[0].inputs(t), n)); !errors.As(err, &input) || input.Input != models.AdapterInput {
			t.Errorf("adapter %d: %v", n, err)
		}
	}
	var unknown *models.AdapterError
	if n, err := model.AdapterNumber(list[1].Name); n != 2 || err != nil {
		t.Errorf("number %d, %v", n, err)
	}
	if _, err := model.AdapterNumber("nobody"); !errors.As(err, &unknown) || len(unknown.Known) != 2 {
		t.Errorf("got %v", err)
	}
}

func chosen(t testing.TB, in optimem.Values, n int64) optimem.Values {
	t.Helper()
	in[models.AdapterInput] = &tensor.Tensor{DType: tensor.Int64, Layout: tensor.Contiguous(), Data: tensor.Of([]int64{n}, 1).Data}
	return in
}

// TestMemory: what plans take more than those of the model alone is what the adapter's weights take, but for the pages of files
// that they share with nothing, and the few numbers of a product of its rank. A call without the adapter has the plan of the
// model that was opened without it.
func TestMemory(t *testing.T) {
	for _, r := range recordedAdapters(t, "llama", "llama_rslora", "gpt2", "bert") {
		adapter := r.folder(t, "adapter_model.safetensors")
		adapterBytes, slack := int64(0), int64(16<<10) // rows times rank, for products and their copies
		changed := make(map[string]bool)
		for _, w := range adapter.Checkpoint.Weights {
			adapterBytes += w.Extent.Bytes
			module, _, _ := strings.Cut(w.Name, ".lora_")
			changed[module] = true
		}
		const page = 4096 // at both ends of a read
		slack += int64(len(changed)) * 2 * page
		shapes := make(map[string]tensor.Shape)
		for name, f := range r.Reference.Cases[0].Inputs {
			shapes[name] = f.Shape
		}
		planned := func(opts models.Options, mode plan.Mode) *plan.Plan {
			p, err := session(t, r.model(t, opts), optimem.Options{Mode: mode}).Plan(t.Context(), shapes)
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		given := []models.Adapter{adapter}
		for _, mode := range []plan.Mode{plan.Page, plan.Resident} {
			base, with := planned(models.Options{}, mode), planned(models.Options{Adapters: given, Adapter: r.Name}, mode)
			most := adapterBytes + slack
			if more := with.MinBytes - base.MinBytes; more < -most || more > most {
				t.Errorf("%s, %s: the least grows by %d for an adapter of %d bytes", r.Name, mode, more, adapterBytes)
			}
			if more := with.PeakBytes() - base.PeakBytes(); mode == plan.Resident && (more < adapterBytes/2 || more > most) {
				t.Errorf("%s: a resident model grows by %d for an adapter of %d bytes", r.Name, more, adapterBytes)
			}
			if more := with.MovedBytes - base.MovedBytes; mode == plan.Page && (more < adapterBytes/2 || more > most) {
				t.Errorf("%s: %d bytes more are brought for an adapter of %d", r.Name, more, adapterBytes)
			}
			if without := planned(models.Options{Adapters: given}, mode); without.String() != base.String() {
				t.Errorf("%s, %s: a call without the adapter has another plan:\n%s\n%s", r.Name, mode, without, base)
			}
		}
	}
}

// TestOtherHeads: an adapter that was made for a model with a head changes the base model alike, and the other way round.
func TestOtherHeads(t *testing.T) {
	list := recordedAdapters(t, "llama", "llama_layers")
	dumped := optimem.Options{Dump: []string{"model.norm"}}
	with := func(r recorded, arch string) *models.Model {
		return list[0].model(t, models.Options{Arch: arch, Adapters: []models.Adapter{r.adapter(t)}, Adapter: r.Name})
	}
	whole := compute(t, session(t, with(list[0], ""), dumped), list[0].inputs(t))
	base := compute(t, session(t, with(list[0], "LlamaModel"), optimem.Options{}), list[0].inputs(t))
	if !sameBits(whole["dump:model.norm"], base["last_hidden_state"]) {
		t.Error("the base model gives other bits with the adapter of the whole one")
	}
	// The weights are those of the whole model, so that only its own graph can be compared. Its names have more in front.
	list[1].AdapterConfig = strings.NewReplacer(
		`"target_modules": [`, `"target_modules": "layers\\.1\\.(self_attn\\.o_proj|mlp\\.up_proj)", "auto_mapping": [`,
		`"auto_mapping": null,`, "").Replace(list[1].AdapterConfig)
	base = compute(t, session(t, with(list[1], "LlamaModel"), optimem.Options{}), list[0].inputs(t))
	whole = compute(t, session(t, with(list[1], ""), dumped), list[0].inputs(t))
	if !sameBits(whole["dump:model.norm"], base["last_hidden_state"]) {
		t.Error("the whole model gives other bits with the adapter of the base model")
	}
}
