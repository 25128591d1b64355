package generate_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/internal/hostmem"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// A counted source reads random numbers, as its disk allows.
type counted struct {
	loader.Random
	bytes int64
	of    *folder
}

func (c *counted) Size() int64 { return c.bytes }

func (c *counted) ReadAt(ctx context.Context, p []byte, off int64) error {
	if err := c.of.begin(len(p)); err != nil {
		return err
	}
	return c.Random.ReadAt(ctx, p, off)
}

func (c *counted) Unchanged() error {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if c.of.changed {
		return storage.ErrChanged
	}
	return nil
}

// A folder is a model of random weights, as a folder of Python's transformers would have it, on a disk that counts what
// is read and has faults.
type folder struct {
	model *models.Model
	bytes int64

	mu          sync.Mutex
	read, reads int64
	// failAt is the read that fails, counted from the first, and stallAt that which tells stalled and then waits until
	// it may go on, whoever still wants it; 0 is none. At the read changeAt the file changes.
	failAt, stallAt, changeAt int64
	changed                   bool
	stalled, goOn             chan struct{}
}

var errDisk = errors.New("the disk is gone")

// begin begins a read of so many bytes.
func (f *folder) begin(n int) error {
	f.mu.Lock()
	f.reads++
	f.read += int64(n)
	fails, stalls := f.reads == f.failAt, f.reads == f.stallAt
	f.changed = f.changed || f.reads == f.changeAt
	f.mu.Unlock()
	if stalls {
		f.stalled <- struct{}{}
		<-f.goOn
	}
	if fails {
		return errDisk
	}
	return nil
}

// next sets what happens at a read to come, counted from now on.
func (f *folder) next(fail, stall, change int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := func(n int64) int64 {
		if n == 0 {
			return 0
		}
		return f.reads + n
	}
	f.failAt, f.stallAt, f.changeAt, f.changed = at(fail), at(stall), at(change), false
}

// readBytes returns what was read of all weights.
func (f *folder) readBytes() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.read
}

// large returns a Llama, or a Qwen3-MoE where there are experts, of so many layers.
func large(t testing.TB, layers, experts int) *folder {
	t.Helper()
	const hidden, inner, heads, vocabulary = 64, 160, 4, 96
	f := &folder{stalled: make(chan struct{}), goOn: make(chan struct{})}
	var list []tensor.Weight
	add := func(name string, middle, scale float64, shape ...int) {
		layout := tensor.Contiguous(shape...)
		n, err := layout.NumElements()
		if err != nil {
			t.Fatal(err)
		}
		src := &counted{Random: loader.Random{Seed: 3, Tensor: uint64(len(list)), DType: tensor.Float32, Offset: middle, Scale: scale}, bytes: 4 * n, of: f}
		w := tensor.Weight{Name: name, DType: tensor.Float32, Layout: layout}
		w.Extent.Source, w.Extent.Bytes = src, src.bytes
		list, f.bytes = append(list, w), f.bytes+src.bytes
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

// TestConversationReads: what stays is read once in a conversation, however its passes change between prompts and
// writing.
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

// TestResizedConversation: a budget that changes between turns changes no text, and what stays within both budgets is
// not read again.
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

// TestResizedChoice: for another budget the weights that stay are chosen as a new engine chooses them.
func TestResizedChoice(t *testing.T) {
	for _, experts := range []int{0, 8} {
		f := large(t, 6, experts)
		start := func(memory int64) *generate.Engine {
			e, err := generate.New(t.Context(), f.model, generate.Options{
				Context: 256, Rows: 32, Sequences: 2, Session: runtime.Options{Memory: memory, PlanOnly: true},
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { e.Close() })
			return e
		}
		stays := func(e *generate.Engine) (list []*plan.Plan) {
			for _, rows := range []int{1, 2, 32} {
				p, err := e.ForecastPass(t.Context(), rows, min(rows, 2))
				if err != nil {
					t.Fatal(err)
				}
				list = append(list, p)
			}
			return list
		}
		e := start(f.bytes + 1500<<10)
		for _, part := range []int64{11, 13, 15, 10} {
			memory := (f.bytes + 1500<<10) * part / 15
			if err := e.Session().Resize(t.Context(), memory); err != nil {
				t.Fatal(err)
			}
			got, want := stays(e), stays(start(memory))
			for i := range got {
				if !plan.SameFixed(got[i], want[i]) {
					t.Errorf("%d experts, %d bytes: %d bytes of weights stay, of a new engine's %d", experts, memory, got[i].Fixed.WeightBytes, want[i].Fixed.WeightBytes)
				}
			}
			if !plan.SameFixed(got[0], got[1]) {
				t.Errorf("%d experts, %d bytes: passes that write keep %d and %d bytes", experts, memory, got[0].Fixed.WeightBytes, got[1].Fixed.WeightBytes)
			}
		}
	}
}

// TestFaultsOfExperts: whichever read fails while experts are read as they are needed, or whenever the file changes,
// the request ends with an error that says so, and the next one gives the text that it would have given.
func TestFaultsOfExperts(t *testing.T) {
	f, e, want := lentEngine(t)
	ask := func() ([]int, error) {
		got, err := e.Generate(t.Context(), faultRequest(), nil)
		if err != nil {
			return nil, err
		}
		return got.Tokens, nil
	}
	right := func(what string, at int64) {
		t.Helper()
		f.next(0, 0, 0)
		if got, err := ask(); err != nil || !slices.Equal(got, want) {
			t.Fatalf("%s at read %d: then %v, %v, want %v", what, at, got, err, want)
		}
	}
	right("nothing", 0)
	f.mu.Lock()
	before := f.reads
	f.mu.Unlock()
	right("nothing", 0)
	f.mu.Lock()
	each, step := f.reads-before, int64(1)
	f.mu.Unlock()
	if testing.Short() {
		step = 7
	}
	failed, named := 0, 0
	for at := int64(1); at <= each; at += step {
		f.next(at, 0, 0)
		_, err := ask()
		if err != nil {
			failed++
			var group *runtime.GroupError
			if !errors.Is(err, errDisk) || !errors.As(err, &group) || group.Path == "" {
				t.Fatalf("read %d: %v", at, err)
			}
			if strings.Contains(group.Path, ".experts.") {
				named++
			}
		}
		right("a fault", at)
	}
	t.Logf("%d reads, %d failed a request, %d of an expert", each, failed, named)
	if failed == 0 || named == 0 {
		t.Errorf("%d of %d reads failed a request, %d of an expert", failed, each, named)
	}
	for at := int64(1); at <= each; at += 5 * step {
		f.next(0, 0, at)
		if _, err := ask(); err != nil && !errors.Is(err, storage.ErrChanged) {
			t.Fatalf("a change at read %d: %v", at, err)
		}
		right("a change", at)
	}
}

// lentEngine returns an engine whose experts are read as they are needed, and what it writes for [faultRequest].
func lentEngine(t *testing.T) (*folder, *generate.Engine, []int) {
	t.Helper()
	whole := large(t, 3, 8)
	resident, err := generate.New(t.Context(), whole.model, generate.Options{Context: 64, Session: runtime.Options{Mode: plan.Resident}})
	if err != nil {
		t.Fatal(err)
	}
	defer resident.Close()
	want, err := resident.Generate(t.Context(), faultRequest(), nil)
	if err != nil {
		t.Fatal(err)
	}
	f := large(t, 3, 8)
	e, err := generate.New(t.Context(), f.model, generate.Options{
		Context: 64, Session: runtime.Options{Memory: resident.Session().Metrics().PeakBytes * 2 / 5},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	if p, err := e.Forecast(t.Context()); err != nil || len(p.Experts) == 0 {
		t.Fatalf("no experts are lent: %v", err)
	}
	return f, e, want.Tokens
}

func faultRequest() generate.Request {
	return generate.Request{Prompt: []int{5, 80, 33, 7, 61}, MaxTokens: 5, End: []int{}}
}

// TestStalledDisk: a request waits for a disk that stalls, however long that takes; one that is cancelled meanwhile
// returns though the disk still stalls, and the next one gives its text once the disk goes on.
func TestStalledDisk(t *testing.T) {
	f, e, want := lentEngine(t)
	for at := int64(1); at < 60; at += 6 {
		type answer struct {
			tokens []int
			err    error
		}
		ask := func(ctx context.Context) <-chan answer {
			c := make(chan answer, 1)
			go func() {
				got, err := e.Generate(ctx, faultRequest(), nil)
				if err != nil {
					c <- answer{err: err}
					return
				}
				c <- answer{tokens: got.Tokens}
			}()
			return c
		}
		ends := func(waits <-chan answer) answer { // however often it stalls, or never
			for {
				select {
				case <-f.stalled:
					f.goOn <- struct{}{}
				case got := <-waits:
					return got
				}
			}
		}
		f.next(0, at, 0)
		waits := ask(t.Context())
		got := ends(waits)
		if got.err != nil || !slices.Equal(got.tokens, want) {
			t.Fatalf("a stall at read %d: %v, %v, want %v", at, got.tokens, got.err, want)
		}
		ctx, cancel := context.WithCancel(t.Context())
		f.next(0, at, 0)
		waits = ask(ctx)
		stalled := false
		select {
		case <-f.stalled:
			stalled = true
			cancel()
			if got = <-waits; !errors.Is(got.err, context.Canceled) { // while the disk still stalls
				t.Fatalf("cancelled at read %d: %v, %v", at, got.tokens, got.err)
			}
		case <-waits:
		}
		cancel()
		waits = ask(t.Context())
		if stalled {
			f.goOn <- struct{}{}
		}
		got = ends(waits)
		if got.err != nil || !slices.Equal(got.tokens, want) {
			t.Fatalf("behind a stall at read %d: %v, %v, want %v", at, got.tokens, got.err, want)
		}
	}
	f.next(0, 0, 0)
}
