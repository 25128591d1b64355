package transformers_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/models/internal/zoo"
	"github.com/optimem/optimem/plan"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// A seq2seqRecord is a model of testdata/make_seq2seq.py, with what transformers computes.
type seq2seqRecord struct {
	decoderRecord
	Runs []seq2seqRun
	// Text is what its folder writes, where that was recorded.
	Text struct {
		Generation, Prompt, Greedy, De string
		Beams                          []string
	}
}

type seq2seqRun struct {
	Source   []int
	Features [][]float32
	Tokens   []int
	End      int
	Beams    []struct {
		Tokens []int
		Score  float64
	}
}

// source is what the run reads.
func (r *seq2seqRun) source() *generate.Source {
	if r.Source != nil {
		return &generate.Source{Tokens: r.Source}
	}
	return &generate.Source{Features: slices.Concat(r.Features...)}
}

// request asks for what transformers wrote.
func (r *seq2seqRun) request() generate.Request {
	return generate.Request{Prompt: r.Tokens[:1], Source: r.source(), MaxTokens: len(r.Tokens) - 1}
}

func recordedSeq2Seq(t testing.TB) []seq2seqRecord {
	t.Helper()
	var list []seq2seqRecord
	decode := func(r io.Reader) error { return json.NewDecoder(r).Decode(&list) }
	if err := zoo.Unzip(filepath.Join(configFolder, "seq2seq.json.gz"), decode); err != nil {
		t.Fatal(err)
	}
	return list
}

func forEachSeq2Seq(t *testing.T, test func(t *testing.T, r *seq2seqRecord, model *models.Model)) {
	t.Helper()
	for _, r := range recordedSeq2Seq(t) {
		t.Run(r.Name, func(t *testing.T) {
			model, err := models.Build(r.folder(t), models.Options{})
			if err != nil {
				t.Fatal(err)
			}
			test(t, &r, model)
		})
	}
}

// TestSeq2Seq: the logits of what was written are transformers'.
func TestSeq2Seq(t *testing.T) {
	forEachSeq2Seq(t, func(t *testing.T, r *seq2seqRecord, model *models.Model) {
		run := &r.Runs[0]
		in := optimem.Values{"decoder_input_ids": tensor.Of(int64s(run.Tokens), 1, len(run.Tokens))}
		if run.Source != nil {
			in["input_ids"] = tensor.Of(int64s(run.Source), 1, len(run.Source))
		} else {
			in["input_features"] = tensor.Of(run.source().Features, 1, len(run.Features), len(run.Features[0]))
		}
		got := wholeLogits(t, model, in)
		for i, at := range []int{0, 20, 40} {
			near(t, fmt.Sprintf("token %d", at), got[at*(len(got)/len(run.Tokens)):], r.Logits[i])
		}
	})
}

// seq2seqEngine returns an engine of a model for its runs.
func seq2seqEngine(t *testing.T, model *models.Model, opts generate.Options) *generate.Engine {
	t.Helper()
	opts.Context, opts.Sequences = 64, max(opts.Sequences, 2)
	e, err := generate.New(t.Context(), model, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// TestSeq2SeqWrites: the most likely tokens, one after the other, are those that transformers writes, of texts that are
// written together, in any mode, with guesses or without, whatever the rows of a pass.
func TestSeq2SeqWrites(t *testing.T) {
	forEachSeq2Seq(t, func(t *testing.T, r *seq2seqRecord, model *models.Model) {
		for name, opts := range map[string]generate.Options{
			"resident": {Session: optimem.Options{Mode: plan.Resident, Threads: 1}, Speculate: 4},
			"file": {
				Session:   optimem.Options{Mode: plan.Page, Threads: 2, CachesAway: true, SwapFolder: t.TempDir()},
				Sequences: 4, Speculate: 2,
			},
			"page":  {Session: optimem.Options{Mode: plan.Page, Threads: 2}, Rows: 3, Speculate: generate.NoSpeculation},
			"chunk": {Session: optimem.Options{Mode: plan.Chunk, Device: "emu:memory=16MiB", Capacity: plan.Limit{N: 20000, Unit: plan.Params}}, Sequences: 3},
		} {
			e := seq2seqEngine(t, model, opts)
			var wait sync.WaitGroup
			for k := range 6 {
				run := &r.Runs[k%2]
				wait.Go(func() {
					got, err := e.Generate(t.Context(), run.request(), nil)
					if err != nil {
						t.Errorf("%s: %v", name, err)
					} else if !slices.Equal(got.Tokens, run.Tokens[1:]) {
						t.Errorf("%s: source %d: %s", name, k%2, firstOther(got.Tokens, run.Tokens[1:]))
					}
				})
			}
			wait.Wait()
		}
	})
}

// TestSeq2SeqBeams: a beam search finds what transformers finds, and reads the source once.
func TestSeq2SeqBeams(t *testing.T) {
	forEachSeq2Seq(t, func(t *testing.T, r *seq2seqRecord, model *models.Model) {
		e := seq2seqEngine(t, model, generate.Options{Session: optimem.Options{Mode: plan.Resident}, Sequences: 4})
		for k := range r.Runs {
			run := &r.Runs[k]
			q := run.request()
			q.MaxTokens, q.End = 14, []int{run.End}
			found, err := e.Beam(t.Context(), q, generate.Beams{Width: 4, LengthPenalty: 1.3})
			if err != nil {
				t.Fatal(err)
			}
			for i, want := range run.Beams {
				if !slices.Equal(found[i].Tokens, want.Tokens) || math.Abs(found[i].Score-want.Score) > 1e-4 {
					t.Errorf("source %d: text %d is %v of %v, want %v of %v", k, i, found[i].Tokens, found[i].Score, want.Tokens, want.Score)
				}
			}
		}
	})
}

// TestSources: a source is read once for all texts that are written of it, what was written of one is not that of
// another, and what cannot be read is refused.
func TestSources(t *testing.T) {
	r := recordedSeq2Seq(t)[0]
	model, err := models.Build(r.folder(t), models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e := seq2seqEngine(t, model, generate.Options{Sequences: 2, Speculate: generate.NoSpeculation})
	var alone [2][]int
	for i := range alone { // the same prompt, long enough to be shared, of both
		prompt := append(slices.Clone(r.Runs[0].Tokens[:1]), r.Runs[0].Source[:4]...)
		prompt = append(prompt, r.Runs[1].Source...)
		q := generate.Request{Prompt: prompt, Source: r.Runs[i].source(), MaxTokens: 6, Logprobs: 1}
		passes := e.Stats().Passes
		first, err := e.Generate(t.Context(), q, nil)
		if err != nil {
			t.Fatal(err)
		}
		again, err := e.Generate(t.Context(), q, nil)
		if err != nil {
			t.Fatal(err)
		}
		if first.SharedTokens != 0 || again.SharedTokens != 32 || !slices.Equal(first.Tokens, again.Tokens) {
			t.Errorf("source %d: %d tokens are shared, then %d: %v and %v", i, first.SharedTokens, again.SharedTokens, first.Tokens, again.Tokens)
		}
		for k := range first.Likely {
			if first.Likely[k].Logprob != again.Likely[k].Logprob {
				t.Errorf("source %d: token %d has other logits the second time", i, k)
			}
		}
		if n := e.Stats().Passes - passes; n != 1+6+6 {
			t.Errorf("source %d: %d passes, want one to read and twice 6 to write", i, n)
		}
		alone[i] = first.Tokens
	}
	long := make([]int, e.Source()+1)
	for name, q := range map[string]generate.Request{
		"none":         {Prompt: []int{0}},
		"empty":        {Prompt: []int{0}, Source: &generate.Source{}},
		"too long":     {Prompt: []int{0}, Source: &generate.Source{Tokens: long}},
		"a sound":      {Prompt: []int{0}, Source: &generate.Source{Features: make([]float32, 7)}},
		"token of −1":  {Prompt: []int{0}, Source: &generate.Source{Tokens: []int{-1}}},
		"unknown word": {Prompt: []int{0}, Source: &generate.Source{Tokens: []int{5, 96}}},
	} {
		_, err := e.Generate(t.Context(), q, nil)
		var wrong *generate.RequestError
		if !errors.As(err, &wrong) || wrong.Field != "Source" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got, err := e.Generate(t.Context(), r.Runs[0].request(), nil); err != nil || !slices.Equal(got.Tokens, r.Runs[0].Tokens[1:]) {
		t.Errorf("after what was refused: %v", err)
	}
	var unsupported *models.UnsupportedError
	if _, err := e.Save(t.Context(), io.Discard, r.Runs[0].request()); !errors.As(err, &unsupported) {
		t.Errorf("saving: %v", err)
	}
	p, err := e.ForecastSource(t.Context(), 40)
	if err != nil {
		t.Fatal(err)
	}
	if one, err := e.Forecast(t.Context()); err != nil || one.CacheBytes != p.CacheBytes || p.CacheBytes == 0 {
		t.Errorf("caches of %d bytes where a source is read, of %d where text is written: %v", p.CacheBytes, one.CacheBytes, err)
	}
}

// textFolder makes a folder with what a record says of texts, and a tokenizer that has a word for each token.
func (r *seq2seqRecord) textFolder(t *testing.T) string {
	t.Helper()
	words := make(map[string]int)
	added := []map[string]any{}
	special := func(id int, name string) {
		words[name] = id
		added = append(added, map[string]any{
			"id": id, "content": name, "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
		})
	}
	for id := range 96 {
		switch name := fmt.Sprintf("w%d", id); {
		case id < 3:
			special(id, []string{"<pad>", "<s>", "</s>"}[id])
		case r.Name == "whisper" && id >= 80 && id <= 90:
			special(id, fmt.Sprintf("<|%d|>", id))
		default:
			words[name] = id
		}
	}
	piece := func(kind, id string) map[string]any {
		return map[string]any{kind: map[string]any{"id": id, "type_id": 0}}
	}
	text, err := json.Marshal(map[string]any{
		"version": "1.0", "added_tokens": added, "pre_tokenizer": map[string]any{"type": "WhitespaceSplit"},
		"model": map[string]any{"type": "WordLevel", "vocab": words, "unk_token": "<pad>"},
		"post_processor": map[string]any{
			"type": "TemplateProcessing", "single": []any{piece("Sequence", "A"), piece("SpecialToken", "</s>")}, "pair": []any{},
			"special_tokens": map[string]any{"</s>": map[string]any{"id": "</s>", "ids": []int{2}, "tokens": []string{"</s>"}}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, content := range map[string]string{
		"config.json": r.Config, "generation_config.json": r.Text.Generation, "tokenizer.json": string(text),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestSeq2SeqText: a folder's text is what transformers writes with its generation_config.json: forced first and last
// tokens, tokens and sequences that may not follow, lengths, the language of what is spoken; so do beams.
func TestSeq2SeqText(t *testing.T) {
	forEachSeq2Seq(t, func(t *testing.T, r *seq2seqRecord, model *models.Model) {
		if r.Text.Generation == "" {
			t.Skip("no text was recorded")
		}
		text, err := generate.OpenText(r.textFolder(t))
		if err != nil {
			t.Fatal(err)
		}
		w := generate.NewWriter(text, seq2seqEngine(t, model, generate.Options{Sequences: 3}))
		d := text.Defaults()
		ask := func(language string) generate.TextRequest {
			q := generate.TextRequest{
				Prompt: r.Text.Prompt, Language: language, Request: generate.Request{MaxTokens: d.MaxTokens, Sampling: d.Sampling},
			}
			if r.Text.Prompt == "" {
				q.Request.Source = r.Runs[1].source()
			}
			return q
		}
		same := func(name, got, want string) {
			t.Helper()
			if got != want {
				t.Errorf("%s:\n  %s\nwant\n  %s", name, got, want)
			}
		}
		got, err := w.Write(t.Context(), ask(""), nil)
		if err != nil {
			t.Fatal(err)
		}
		same("greedy", got.Text, r.Text.Greedy)
		if r.Text.De != "" {
			got, err = w.Write(t.Context(), ask("de"), nil)
			if err != nil {
				t.Fatal(err)
			}
			same("de", got.Text, r.Text.De)
			var wrong *generate.RequestError
			if _, err := w.Write(t.Context(), ask("tlh"), nil); !errors.As(err, &wrong) || wrong.Field != "Language" {
				t.Errorf("a language that it does not know: %v", err)
			}
		}
		if len(r.Text.Beams) == 0 {
			return
		}
		found, err := w.Beam(t.Context(), ask(""), generate.Beams{Width: 3, LengthPenalty: 0.7})
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range r.Text.Beams {
			same(fmt.Sprintf("beam %d", i), found[i].Text, want)
		}
	})
}
