package generate_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/internal/hostmem"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// A counted source reads random numbers, and counts what is read of each place.
type counted struct {
	loader.Random
	bytes int64

	mu   sync.Mutex
	read int64
}

func (c *counted) Size() int64    { return c.bytes }
func (c *counted) String() string { return "counted" }

func (c *counted) ReadAt(ctx context.Context, p []byte, off int64) error {
	c.mu.Lock()
	c.read += int64(len(p))
	c.mu.Unlock()
	return c.Random.ReadAt(ctx, p, off)
}

// A folder is a model of random weights, as a folder of Python's transformers would have it.
type folder struct {
	weights []*counted
	model   *models.Model
	bytes   int64
}

// readBytes returns what was read of all weights.
func (f *folder) readBytes() int64 {
	var n int64
	for _, w := range f.weights {
		w.mu.Lock()
		n += w.read
		w.mu.Unlock()
	}
	return n
}

// large returns a Llama, or a Qwen3-MoE where there are experts, of so many layers.
func large(t testing.TB, layers, experts int) *folder {
	t.Helper()
	const hidden, inner, heads, vocabulary = 64, 160, 4, 96
	f := &folder{}
	var list []tensor.Weight
	add := func(name string, middle, scale float64, shape ...int) {
		layout := tensor.Contiguous(shape...)
		n, err := layout.NumElements()
		if err != nil {
			t.Fatal(err)
		}
		src := &counted{Random: loader.Random{Seed: 3, Tensor: uint64(len(list)), DType: tensor.Float32, Offset: middle, Scale: scale}, bytes: 4 * n}
		w := tensor.Weight{Name: name, DType: tensor.Float32, Layout: layout}
		w.Extent.Source, w.Extent.Bytes = src, src.bytes
		list, f.weights, f.bytes = append(list, w), append(f.weights, src), f.bytes+src.bytes
	}
	scaled := func(in int) float64 { return math.Sqrt(3 / float64(in)) }
	add("model.embed_tokens.weight", 0, 1, vocabulary, hidden)
	for l := range layers {
		at := fmt.Sprintf("model.layers.%d.", l)
		add(at+"input_layernorm.weight", 1, 0.1, hidden)
		add(at+"post_attention_layernorm.weight", 1, 0.1, hidden)
		for _, name := range []string{"q", "k", "v", "o"} {
			add(at+"self_attn."+name+"_proj.weight", 0, scaled(hidden), hidden, hidden)
		}
		mlp := func(at string) {
			add(at+"gate_proj.weight", 0, scaled(hidden), inner, hidden)
			add(at+"up_proj.weight", 0, scaled(hidden), inner, hidden)
			add(at+"down_proj.weight", 0, scaled(inner), hidden, inner)
		}
		if experts == 0 {
			mlp(at + "mlp.")
			continue
		}
		add(at+"self_attn.q_norm.weight", 1, 0.1, hidden/heads)
		add(at+"self_attn.k_norm.weight", 1, 0.1, hidden/heads)
		add(at+"mlp.gate.weight", 0, 4*scaled(hidden), experts, hidden)
		for e := range experts {
			mlp(fmt.Sprintf("%smlp.experts.%d.", at, e))
		}
	}
	add("model.norm.weight", 1, 0.1, hidden)
	add("lm_head.weight", 0, scaled(hidden), vocabulary, hidden)
	ckpt, err := loader.NewCheckpoint("large", list, nil)
	if err != nil {
		t.Fatal(err)
	}
	kind, class := "llama", "LlamaForCausalLM"
	if experts > 0 {
		kind, class = "qwen3_moe", "Qwen3MoeForCausalLM"
	}
	ckpt.Config = fmt.Appendf(nil, `{"architectures": [%q], "model_type": %q, "hidden_size": %d, "num_hidden_layers": %d,
		"num_attention_heads": %d, "num_key_value_heads": %d, "head_dim": %d, "intermediate_size": %d, "moe_intermediate_size": %d,
		"num_experts": %d, "num_experts_per_tok": 2, "norm_topk_prob": true, "vocab_size": %d, "max_position_embeddings": 256,
		"rms_norm_eps": 1e-6, "tie_word_embeddings": false, "dtype": "float32"}`,
		class, kind, hidden, layers, heads, heads, hidden/heads, inner, inner, experts, vocabulary)
	if f.model, err = models.Build(ckpt, models.Options{}); err != nil {
		t.Fatal(err)
	}
	return f
}

// converse writes the turns of a conversation: in each a prompt of everything before and some tokens more.
func converse(t testing.TB, e *generate.Engine, turns int) (text []int) {
	t.Helper()
	for turn := range turns {
		for k := range 20 {
			text = append(text, (turn*31+k*7)%96)
		}
		got, err := e.Generate(t.Context(), generate.Request{Prompt: text, MaxTokens: 8, End: []int{}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, got.Tokens...)
	}
	return text
}

// TestConversationReads: what stays is read once in a conversation, however its passes change between prompts and writing.
func TestConversationReads(t *testing.T) {
	for name, experts := range map[string]int{"dense": 0, "experts": 8} {
		t.Run(name, func(t *testing.T) {
			whole := large(t, 6, experts)
			resident, err := generate.New(t.Context(), whole.model, generate.Options{Context: 256, Session: runtime.Options{Mode: plan.Resident}})
			if err != nil {
				t.Fatal(err)
			}
			defer resident.Close()
			want := converse(t, resident, 5)
			all, changes := resident.Session().Metrics().PeakBytes, 0
			for _, part := range []int64{2, 3, 4, 5} {
				f := large(t, 6, experts)
				var w readWatch
				e, err := generate.New(t.Context(), f.model, generate.Options{
					Context: 256, Rows: 32, Speculate: generate.NoSpeculation, Session: runtime.Options{Memory: all * part / 6, Observe: w.observe},
				})
				var full *runtime.CapacityError
				if errors.As(err, &full) {
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				defer e.Close()
				before := f.readBytes()
				if got := converse(t, e, 5); !slices.Equal(got, want) {
					t.Errorf("%d of 6: another text", part)
				}
				m, read := e.Session().Metrics(), f.readBytes()-before
				if m.PeakBytes > all*part/6 {
					t.Errorf("%d of 6: %d bytes held of %d", part, m.PeakBytes, all*part/6)
				}
				if experts == 0 && read > w.most {
					t.Errorf("%d of 6: %d bytes read, at most %d are to be", part, read, w.most)
				}
				if w.changes > 0 && m.KeptBytes == 0 && hostmem.CanResize {
					t.Errorf("%d of 6: nothing stayed in %d changes", part, w.changes)
				}
				changes += w.changes
				t.Logf("%d of 6: %d bytes read of at most %d, in %d passes, %d changes", part, read, w.most, m.Runs, w.changes)
			}
			if experts == 0 && changes == 0 {
				t.Error("no conversation went from one choice of weights to another")
			}
		})
	}
}

// A readWatch counts what passes may read: what they bring, and what a pass finds missing that wants other weights to
// stay than the one before.
type readWatch struct {
	last    *plan.Plan
	most    int64
	changes int
}

func (w *readWatch) observe(e runtime.Event) {
	if e.Kind != runtime.PassDone {
		return
	}
	w.most += e.Plan.MovedBytes
	w.change(e.Plan)
}

// change notes that another plan follows.
func (w *readWatch) change(p *plan.Plan) {
	switch {
	case w.last == nil:
		w.most += p.Fixed.Bytes
	case w.last != p:
		w.most += w.last.RingBytes // read ahead for a pass that did not come
		if !plan.SameFixed(w.last, p) {
			w.changes++
			if w.most += p.Keeps(w.last).MissingBytes; !hostmem.CanResize {
				w.most += p.Fixed.Bytes
			}
		}
	}
	w.last = p
}

// TestResizedConversation: a budget that changes between turns changes no text, and what stays within both budgets is not
// read again.
func TestResizedConversation(t *testing.T) {
	whole := large(t, 6, 0)
	resident, err := generate.New(t.Context(), whole.model, generate.Options{Context: 256, Session: runtime.Options{Mode: plan.Resident}})
	if err != nil {
		t.Fatal(err)
	}
	defer resident.Close()
	want := converse(t, resident, 3)
	all := resident.Session().Metrics().PeakBytes
	f := large(t, 6, 0)
	var w readWatch
	e, err := generate.New(t.Context(), f.model, generate.Options{
		Context: 256, Rows: 32, Speculate: generate.NoSpeculation, Session: runtime.Options{Memory: all * 5 / 6, Observe: w.observe},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	before := f.readBytes()
	for i, part := range []int64{5, 4, 3, 5, 6} {
		if i > 0 {
			if err := e.Session().Resize(t.Context(), all*part/6); err != nil {
				t.Fatal(err)
			}
			if held := e.Session().Metrics().HeldBytes; held > all*part/6 {
				t.Errorf("%d of 6: %d bytes held of %d", part, held, all*part/6)
			}
			p, err := e.Forecast(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			w.change(p) // which is settled where the budget became smaller
		}
		if got := converse(t, e, 3); !slices.Equal(got, want) {
			t.Errorf("%d of 6: another text", part)
		}
		if n := e.Session().Metrics().HeldBytes; n > all*part/6 {
			t.Errorf("%d of 6: %d bytes held of %d", part, n, all*part/6)
		}
		if read := f.readBytes() - before; read > w.most {
			t.Errorf("%d of 6: %d bytes read, at most %d are to be", part, read, w.most)
		}
	}
	t.Logf("%d bytes read of at most %d, %d changes", f.readBytes()-before, w.most, w.changes)
}
