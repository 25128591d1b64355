package transformers_test

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// forEachWindow runs a test for recorded models with windows of 12 to 24 tokens, or chunks of 5: in some layers, and in
// all of mistral's and starcoder2's.
func forEachWindow(t *testing.T, test func(t *testing.T, model *models.Model)) {
	t.Helper()
	run := func(name string, ckpt *loader.Checkpoint) {
		model, err := models.Build(ckpt, models.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) { test(t, model) })
	}
	for _, r := range recordedTexts(t) {
		if r.Name == "mistral" || r.Name == "gemma2" && !testing.Short() {
			run(r.Name, r.folder(t))
		}
	}
	for _, r := range decodersIn(t, "decoders.json.gz") {
		if r.Name == "gemma3" || slices.Contains([]string{"ministral", "cohere2", "starcoder2", "gemma3n", "gemma4"}, r.Name) && !testing.Short() {
			run(r.Name, r.folder(t))
		}
	}
	for _, kind := range []string{"gpt_oss", "llama4_text"} {
		if !testing.Short() {
			run(kind, recordedOf(t, kind)[0].folder(t))
		}
	}
}

// wholeText is what a model writes that keeps all that it has seen, one likeliest token after the other: what an engine
// says of each.
func wholeText(t *testing.T, model *models.Model, prompt []int, n int) []generate.Token {
	t.Helper()
	s := newStepper(t, model, len(prompt)+n, optimem.Options{})
	text := make([]int64, len(prompt))
	for i, id := range prompt {
		text[i] = int64(id)
	}
	logits := s.feed(t, text)
	vocabulary := len(logits) / len(prompt)
	list := make([]generate.Token, n)
	for i := range list {
		last := logits[len(logits)-vocabulary:]
		top := float64(slices.Max(last))
		var sum float64
		for _, x := range last {
			sum += math.Exp(float64(x) - top)
		}
		id := slices.Index(last, slices.Max(last))
		c := generate.Candidate{ID: id, Logprob: float64(last[id]) - (top + math.Log(sum))}
		list[i] = generate.Token{ID: id, Logprob: c.Logprob, Top: []generate.Candidate{c}}
		if i < n-1 {
			logits = s.feed(t, []int64{int64(id)})
		}
	}
	return list
}

// windowRequest is one of many: a prompt that begins like others and is longer than what a window sees, or repeats
// itself, so that guesses are right.
func windowRequest(i, context int) generate.Request {
	rng := rand.New(rand.NewPCG(uint64(i), 9))
	r := generate.Request{Logprobs: 1, Prompt: spread(60, i%2)[:16*(i%4)]}
	for k := range 1 + rng.IntN(90) {
		id := 3 + rng.IntN(90)
		if i%3 == 0 {
			id = 3 + 5*k%40
		}
		r.Prompt = append(r.Prompt, id)
	}
	r.MaxTokens = 20 + rng.IntN(100)
	if i == 0 {
		r.MaxTokens = context - len(r.Prompt)
	}
	return r
}

// TestWindowsSameText: what a request gives of a model whose layers see a window and keep no more is, to the bit, what
// it gives where they keep all, in every mode, for any rows of a pass, requests beside it and guesses.
func TestWindowsSameText(t *testing.T) {
	requests, context := 8, 400
	if testing.Short() {
		requests = 4
	}
	forEachWindow(t, func(t *testing.T, model *models.Model) {
		want := make([]string, requests)
		for i := range want {
			r := windowRequest(i, context)
			want[i] = fmt.Sprint(wholeText(t, model, r.Prompt, r.MaxTokens))
		}
		for name, o := range map[string]generate.Options{
			"alone":       {Session: optimem.Options{Mode: plan.Resident, Threads: 1}},
			"page":        {Session: optimem.Options{Mode: plan.Page, Threads: 2}, Sequences: 4},
			"few rows":    {Session: optimem.Options{Mode: plan.Resident}, Sequences: 5, Rows: 3},
			"one row":     {Rows: 1},
			"many":        {Sequences: 8, Rows: 40},
			"guesses":     {Sequences: 3, Rows: 32, Speculate: 6},
			"guess":       {Speculate: 1, Rows: 2},
			"guess alone": {Speculate: 6, Rows: 16},
			"chunk":       {Session: optimem.Options{Mode: plan.Chunk, Capacity: plan.Limit{N: 20000}}, Sequences: 3, Rows: 7},
			"emulated":    {Session: optimem.Options{Device: "emu:memory=64MiB,bandwidth=12GB/s"}, Sequences: 3, Rows: 20, Speculate: 2},
		} {
			if testing.Short() && !slices.Contains([]string{"page", "few rows", "guess alone", "emulated"}, name) {
				continue
			}
			o.Context = context
			e := recurrentEngine(t, model, o)
			var wait sync.WaitGroup
			for i := range want {
				each := func() {
					got, err := e.Generate(t.Context(), windowRequest(i, context), nil)
					if err != nil {
						t.Errorf("%s: request %d: %v", name, i, err)
					} else if text := fmt.Sprint(got.Likely); text != want[i] {
						t.Errorf("%s: request %d: %.300s, want %.300s", name, i, text, want[i])
					}
				}
				if name == "guess alone" { // whose guesses are the same every time
					each()
				} else {
					wait.Go(each)
				}
			}
			wait.Wait()
			if s := e.Stats(); name == "guess alone" && (s.Accepted == 0 || s.Accepted == s.Guessed) {
				t.Errorf("%s: %d of %d guesses were right: some are, and some are not", name, s.Accepted, s.Guessed)
			}
		}
	})
}

// TestWindowBytes: what layers with a window keep is as long as the window and the rows of a pass, whatever the context
// is, as the plan says and the session counts, to the byte.
func TestWindowBytes(t *testing.T) {
	forEachWindow(t, func(t *testing.T, model *models.Model) {
		taken := func(context, sequences, rows int) (all, windows int64) {
			e := recurrentEngine(t, model, generate.Options{Context: context, Sequences: sequences, Rows: rows, KV: tensor.BFloat16})
			p, err := e.Forecast(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := e.Generate(t.Context(), generate.Request{Prompt: spread(40, 1), MaxTokens: 2}, nil); err != nil {
				t.Fatal(err)
			}
			if m := e.Session().Metrics(); m.CacheBytes != p.CacheBytes {
				t.Errorf("the session has %d bytes, and the plan %d", m.CacheBytes, p.CacheBytes)
			}
			counted := make(map[graph.ValueID]bool) // of layers that share their caches the first one writes them
			for i := range p.Lowered.Graph.Ops {
				op := &p.Lowered.Graph.Ops[i]
				if op.Kind != "attend" {
					continue
				}
				sees := graph.Sees(op.Attrs.Int("window"), op.Attrs.Int("chunk"))
				blocks := graph.Blocks(context)
				if sees > 0 {
					blocks = min(graph.Blocks(sees+rows-2)+1, blocks)
				}
				for _, in := range op.In[3:5] {
					if counted[in.Value] {
						continue
					}
					counted[in.Value] = true
					v := p.Lowered.Graph.Values[in.Value]
					if v.Shape[0] != blocks*graph.BlockRows*sequences {
						t.Errorf("%s: room for %d positions, want %d blocks of %d sequences", v.Name, v.Shape[0], blocks, sequences)
					}
					if all += v.Bytes(); sees > 0 {
						windows += v.Bytes()
					}
				}
			}
			if all != p.CacheBytes {
				t.Errorf("%d bytes of caches, and the plan has %d", all, p.CacheBytes)
			}
			return all, windows
		}
		short, few := taken(200, 2, 20)
		long, same := taken(400, 2, 20)
		if few != same || (long > short) != (short > few) || few == 0 {
			t.Errorf("windows take %d and %d bytes of %d and %d", few, same, short, long)
		}
		if _, more := taken(400, 3, 20); more*2 != same*3 {
			t.Errorf("windows of two sequences take %d bytes, of three %d", same, more)
		}
	})
}

// TestWindowsShare: a prompt goes on behind the beginning of another as far as what its window sees there is kept; the
// text is what it is without.
func TestWindowsShare(t *testing.T) {
	forEachWindow(t, func(t *testing.T, model *models.Model) {
		e := recurrentEngine(t, model, generate.Options{Context: 200, Sequences: 1, Rows: 16})
		ask := func(name string, prompt []int, shared int) []int {
			t.Helper()
			const tokens = 20
			got, err := e.Generate(t.Context(), generate.Request{Prompt: prompt, MaxTokens: tokens, Logprobs: 1}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if want := wholeText(t, model, prompt, tokens); fmt.Sprint(got.Likely) != fmt.Sprint(want) {
				t.Errorf("%s: %v, want %v", name, got.Likely, want)
			}
			if shared >= 0 && got.SharedTokens != shared {
				t.Errorf("%s: %d tokens were there, want %d", name, got.SharedTokens, shared)
			}
			return append(slices.Clone(prompt), got.Tokens...)
		}
		first := spread(100, 1)
		all := ask("first", first, 0)
		further := ask("further", append(slices.Clone(all), spread(9, 2)...), 112)
		// What a window saw far up is gone; where there is room for more sequences it is there for longer.
		part := append(slices.Clone(first[:40]), spread(20, 3)...)
		ask("far up", part, 0)
		ask("whatever", further[:100], -1)
		ask("short", first[:8], 0)
		e = recurrentEngine(t, model, generate.Options{Context: 200, Sequences: 4, Rows: 16})
		ask("first of four", first, 0)
		ask("far up of four", part, 32)
	})
}

// TestWindowsSaved: a text goes on from a file with the same bits, in an engine whose context is as short as what a
// window sees, too; a file that is not whole leaves nothing, nor spoils what is there.
func TestWindowsSaved(t *testing.T) {
	forEachWindow(t, func(t *testing.T, model *models.Model) {
		first := recurrentEngine(t, model, generate.Options{Context: 300, Rows: 16})
		prompt := spread(100, 5)
		got, err := first.Generate(t.Context(), generate.Request{Prompt: prompt, MaxTokens: 30}, nil)
		if err != nil {
			t.Fatal(err)
		}
		all := append(slices.Clone(prompt), got.Tokens...)
		var file bytes.Buffer
		if n, err := first.Save(t.Context(), &file, generate.Request{Prompt: all}); err != nil || n != 128 {
			t.Fatalf("saved %d tokens: %v", n, err)
		}
		r := generate.Request{Prompt: append(slices.Clone(all), 7, 8, 9), MaxTokens: 60, Logprobs: 1}
		want := fmt.Sprint(wholeText(t, model, r.Prompt, r.MaxTokens))
		for name, o := range map[string]generate.Options{
			"same":     {},
			"page":     {Session: optimem.Options{Mode: plan.Page, Threads: 1}, Sequences: 3, Rows: 5},
			"emulated": {Session: optimem.Options{Device: "emu:memory=64MiB"}, Speculate: 2},
		} {
			o.Context = 250
			e := recurrentEngine(t, model, o)
			for _, at := range []int{40, file.Len() / 2, file.Len() - 40} {
				broken := slices.Clone(file.Bytes())
				broken[at] ^= 1
				if list, err := e.Restore(t.Context(), bytes.NewReader(broken)); err == nil || len(list) > 0 {
					t.Errorf("%s: byte %d is another: %d tokens: %v", name, at, len(list), err)
				}
			}
			list, err := e.Restore(t.Context(), bytes.NewReader(file.Bytes()))
			if err != nil || !slices.Equal(list, all[:128]) {
				t.Fatalf("%s: restored %v: %v", name, list, err)
			}
			broken := slices.Clone(file.Bytes())
			broken[file.Len()-40] ^= 1
			if list, err := e.Restore(t.Context(), bytes.NewReader(broken)); err == nil || len(list) > 0 {
				t.Errorf("%s: another byte in what is there: %d tokens: %v", name, len(list), err)
			}
			if o.Session.Device != "" {
				if err := e.Session().GiveBack(t.Context(), optimem.Everything); err != nil {
					t.Fatal(err)
				}
			}
			var again bytes.Buffer
			if n, err := e.Save(t.Context(), &again, generate.Request{Prompt: all}); err != nil || n != 128 || !bytes.Equal(again.Bytes(), file.Bytes()) {
				t.Errorf("%s: what was restored is saved otherwise, %d tokens: %v", name, n, err)
			}
			after, err := e.Generate(t.Context(), r, nil)
			if err != nil {
				t.Fatal(err)
			}
			if after.SharedTokens != 128 || fmt.Sprint(after.Likely) != want {
				t.Errorf("%s: %d tokens were there; %.300v, want %.300s", name, after.SharedTokens, after.Likely, want)
			}
		}
	})
}

// TestWindowsSavedWhole: so it does between an engine whose context a window sees and one with a longer one.
func TestWindowsSavedWhole(t *testing.T) {
	for _, r := range recordedTexts(t) {
		if r.Name != "mistral" && r.Name != "gemma2" {
			continue
		}
		model, err := models.Build(r.folder(t), models.Options{})
		if err != nil {
			t.Fatal(err)
		}
		short := recurrentEngine(t, model, generate.Options{Context: model.Window()})
		long := recurrentEngine(t, model, generate.Options{Context: 200})
		prompt := spread(17, 3)
		for i, from := range []*generate.Engine{short, long, short} {
			to := []*generate.Engine{long, short, short}[i]
			if _, err := from.Generate(t.Context(), generate.Request{Prompt: prompt, MaxTokens: 2}, nil); err != nil {
				t.Fatal(err)
			}
			var file bytes.Buffer
			if n, err := from.Save(t.Context(), &file, generate.Request{Prompt: prompt}); err != nil || n != 16 {
				t.Fatalf("saved %d tokens: %v", n, err)
			}
			if list, err := to.Restore(t.Context(), bytes.NewReader(file.Bytes())); err != nil || !slices.Equal(list, prompt[:16]) {
				t.Fatalf("restored %v: %v", list, err)
			}
			got, err := to.Generate(t.Context(), generate.Request{Prompt: prompt, MaxTokens: 2, Logprobs: 1}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if want := wholeText(t, model, prompt, 2); got.SharedTokens != 16 || fmt.Sprint(got.Likely) != fmt.Sprint(want) {
				t.Errorf("%s: %d tokens were there; %v, want %v", r.Name, got.SharedTokens, got.Likely, want)
			}
			prompt = spread(17, 4+i)
		}
	}
}

// TestWindowsBeams: each text that beams find has the score that the whole forward gives it, however few blocks there
// are.
func TestWindowsBeams(t *testing.T) {
	forEachWindow(t, func(t *testing.T, model *models.Model) {
		var want []generate.Found
		for _, sequences := range []int{4, 1} {
			e := recurrentEngine(t, model, generate.Options{Context: 250, Sequences: sequences, Rows: 16})
			prompt := spread(60, 7)
			found, err := e.Beam(t.Context(), generate.Request{Prompt: prompt, MaxTokens: 50}, generate.Beams{Width: 3, LengthPenalty: generate.NoLengthPenalty})
			if err != nil {
				t.Fatal(err)
			}
			if want == nil {
				want = found
			}
			if fmt.Sprint(found) != fmt.Sprint(want) {
				t.Errorf("with %d sequences: %v, want %v", sequences, found, want)
			}
		}
		for _, x := range want {
			text := make([]int64, 0, 110)
			for _, id := range slices.Concat(spread(60, 7), x.Tokens) {
				text = append(text, int64(id))
			}
			logits := newStepper(t, model, len(text), optimem.Options{}).feed(t, text)
			vocabulary, score := len(logits)/len(text), 0.0
			for i := 60; i < len(text); i++ {
				row, sum := logits[(i-1)*vocabulary:][:vocabulary], 0.0
				for _, l := range row {
					sum += math.Exp(float64(l))
				}
				score += float64(row[text[i]]) - math.Log(sum)
			}
			if math.Abs(score-x.Score) > 1e-3 {
				t.Errorf("a text has the score %v, want %v", x.Score, score)
			}
		}
	})
}
