package transformers_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	optimem "github.com/optimem/optimem/runtime"
)

// changedModel is a recorded model, which change changes before it is built, where that is not nil.
func changedModel(t *testing.T, name string, change func(r *decoderRecord)) *models.Model {
	t.Helper()
	r := decoderNamed(t, name)
	if change != nil {
		change(r)
	}
	model, err := models.Build(r.folder(t), models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return model
}

// TestSharedKeysAreKeptOnce: layers that see the keys and values of another have no caches of their own.
func TestSharedKeysAreKeptOnce(t *testing.T) {
	for _, name := range []string{"gemma3n", "gemma4"} {
		model := changedModel(t, name, nil)
		e, err := generate.New(t.Context(), model, generate.Options{Context: 64})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		p, err := e.Forecast(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var caches []string
		for i := range p.Lowered.Graph.Values {
			if v := &p.Lowered.Graph.Values[i]; v.Role == graph.Cache {
				caches = append(caches, strings.TrimPrefix(v.Name, "model.layers."))
			}
		}
		want := []string{"0.self_attn.keys", "0.self_attn.values", "1.self_attn.keys", "1.self_attn.values"}
		if slices.Sort(caches); !slices.Equal(caches, want) {
			t.Errorf("%s: caches %v, want %v", name, caches, want)
		}
	}
}

// TestSharedKeysInBranches: several guesses in a pass, whose keys and values others see, change no bit of a text.
func TestSharedKeysInBranches(t *testing.T) {
	model := changedModel(t, "gemma3n", func(r *decoderRecord) { // branches are for models without windows
		r.Config = strings.Replace(r.Config, `["sliding_attention", "full_attention", "sliding_attention", "full_attention"]`,
			`["full_attention", "full_attention", "full_attention", "full_attention"]`, 1)
	})
	request := generate.Request{MaxTokens: 60, Logprobs: 1}
	for i := range 40 {
		request.Prompt = append(request.Prompt, 3+5*(i%7))
	}
	var want string
	for i, o := range []generate.Options{
		{}, {Speculate: 4, Branches: 3}, {Speculate: 3, Branches: 4, Session: optimem.Options{Mode: plan.Page, Threads: 1}},
		{Speculate: 3, Branches: 4, Session: optimem.Options{Mode: plan.Page, Threads: 1, CachesAway: true, SwapFolder: t.TempDir()}},
		{Speculate: 3, Branches: 2, Session: optimem.Options{Device: "emu:memory=64MiB"}},
	} {
		o.Context = 160
		e, err := generate.New(t.Context(), model, o)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		for range 2 { // the second goes on where the first left its blocks
			got, err := e.Generate(t.Context(), request, nil)
			if err != nil {
				t.Fatal(err)
			}
			if text := fmt.Sprint(got.Likely); want == "" {
				want = text
			} else if text != want {
				t.Errorf("options %d: %s, want %s", i, text, want)
			}
		}
	}
}

// TestPerLayerEmbeddingsStayInTheFile: of the embeddings that layers have of their own, which are most of such a model,
// only the rows that a pass needs are brought, in a budget smaller than they are.
func TestPerLayerEmbeddingsStayInTheFile(t *testing.T) {
	const rows, budget = 40000, 2 << 20
	model := changedModel(t, "gemma3n", func(r *decoderRecord) {
		name := "model.embed_tokens_per_layer.weight"
		if bytes := rows * r.State[name][1] * 4; bytes < 2*budget {
			t.Fatalf("%d bytes are not much more than %d", bytes, budget)
		}
		r.State[name] = []int{rows, r.State[name][1]}
		r.Config = strings.Replace(r.Config, `"vocab_size_per_layer_input": 80`, fmt.Sprintf(`"vocab_size_per_layer_input": %d`, rows), 1)
	})
	tokens := []int64{3, 90, 17, 44, 95, 8, 8, 23}
	want := newStepper(t, model, 32, optimem.Options{Mode: plan.Resident}).feed(t, tokens)
	for _, o := range []optimem.Options{
		{Mode: plan.Auto, Memory: budget}, {Mode: plan.Page, Memory: budget}, {Mode: plan.Chunk, Memory: budget},
		{Mode: plan.Auto, Memory: budget, Device: "emu:memory=64MiB"},
	} {
		s := newStepper(t, model, 32, o)
		if got := s.feed(t, tokens); !slices.Equal(got, want) {
			t.Errorf("%v on %q: other bits than resident", o.Mode, o.Device)
		}
		if m := s.session.Metrics(); m.PeakBytes > budget {
			t.Errorf("%v on %q: %d bytes, more than %d", o.Mode, o.Device, m.PeakBytes, budget)
		}
	}
}
