package work

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

const chat = "../generate/testdata/chat"

// hireWriter starts a worker with the model of chat.
func hireWriter(t *testing.T, s *Server, opts WorkerOptions, before func(runtime.Event)) *hand {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "chat"), os.DirFS(chat)); err != nil {
		t.Fatal(err)
	}
	return hireFor(t, Options{URL: s.URL(), Stream: "pictures"}, dir, "chat", opts, before)
}

// questions are prompts of all kinds, as lines, and what a writer is asked for them.
func questions(n int) (lines []string, requests []generate.TextRequest) {
	for i := range n {
		content := []string{"What is the capital of France?", "Count to ten.", "Hello", "What is the capital of Italy?"}[i%4]
		r := generate.TextRequest{Messages: []generate.Message{{Role: "user", Content: content}}}
		r.Request.MaxTokens = 64 // what the folder says
		keys := ""
		switch i % 3 {
		case 1:
			r.Request.MaxTokens, r.Request.Seed, r.Request.Sampling.Temperature = 12, uint64(i), 1.5
			keys = fmt.Sprintf(`, "max_tokens": 12, "seed": %d, "temperature": 1.5`, i)
		case 2:
			r.Request.MaxTokens, r.Request.Sampling.Temperature, r.Request.Sampling.TopK = 12+i, 2, 40 // the seed is 0
			keys = fmt.Sprintf(`, "max_tokens": %d, "temperature": 2, "top_k": 40`, 12+i)
		}
		what := fmt.Sprintf(`"prompt": %q`, content)
		if i%2 == 1 {
			what = fmt.Sprintf(`"messages": [{"role": "user", "content": %q}]`, content)
		}
		lines = append(lines, fmt.Sprintf(`{"id": %d, %s%s}`, i, what, keys))
		requests = append(requests, r)
	}
	return lines, requests
}

func prompts(lines []string) iter.Seq[Item] {
	return func(yield func(Item) bool) {
		for i, l := range lines {
			if !yield(Item{Name: fmt.Sprint("line ", i+1), Prompt: []byte(l)}) {
				return
			}
		}
	}
}

// alone is what a writer by itself answers.
func alone(t *testing.T, requests []generate.TextRequest) (all []Answer) {
	t.Helper()
	text, err := generate.OpenText(chat)
	if err != nil {
		t.Fatal(err)
	}
	ckpt, err := loader.Open(chat)
	if err != nil {
		t.Fatal(err)
	}
	defer ckpt.Close()
	model, err := models.Build(ckpt, models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e, err := generate.New(t.Context(), model, generate.Options{KV: tensor.BFloat16})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	w := generate.NewWriter(text, e)
	for _, r := range requests {
		got, err := w.Write(t.Context(), r, nil)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, Answer{Text: got.Text, TokenIDs: got.Tokens, PromptTokens: got.PromptTokens, FinishReason: got.Finish})
	}
	return all
}

// checkAnswer compares the output of a key with what a writer gave.
func checkAnswer(t *testing.T, q *Queue, r Result, want Answer) {
	t.Helper()
	if r.Reason != "" {
		t.Errorf("%s: %s", r.Name, r.Reason)
		return
	}
	b := output(t, q, r.Key)
	var got Answer
	if err := json.Unmarshal(b, &got); err != nil || !bytes.HasSuffix(b, []byte("}\n")) || bytes.Count(b, []byte("\n")) != 1 {
		t.Fatalf("%s is no line of JSON: %v", b, err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %+v, by itself %+v", r.Name, got, want)
	}
}

// Two workers share prompts. One dies without a word in the middle of answers: nothing is lost, nothing comes twice,
// and every answer is that of a writer by itself, though several are written at once. Submitted again, all is found.
func TestWriterDies(t *testing.T) {
	const n = 36
	server := embedded(t)
	dying, hold := make(chan struct{}), make(chan struct{})
	defer close(hold)
	opts := WorkerOptions{AckWait: time.Second}
	var passes atomic.Int64
	first := hireWriter(t, server, opts, func(e runtime.Event) {
		if e.Kind == runtime.PassDone && passes.Add(1) == 20 {
			close(dying)
			<-hold
		}
	})
	second := hireWriter(t, server, opts, nil)
	q := connect(t, server)
	lines, requests := questions(n)
	submit := func() map[int]Result {
		results := make(map[int]Result)
		err := q.Submit(t.Context(), "chat", prompts(lines), SubmitOptions{}, func(r Result) error {
			if _, twice := results[r.Index]; twice {
				t.Errorf("%s has two results", r.Name)
			}
			results[r.Index] = r
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		return results
	}
	done := make(chan map[int]Result, 1)
	go func() { done <- submit() }()
	<-dying
	first.q.conn.Close()
	results := <-done
	want := alone(t, requests)
	if len(results) != n {
		t.Fatalf("%d results, want %d", len(results), n)
	}
	keys := make(map[string]bool)
	for i, r := range results {
		checkAnswer(t, q, r, want[i])
		keys[r.Key] = true
	}
	if stored, err := q.out.List(t.Context()); err != nil || len(stored) != len(keys) {
		t.Errorf("%d answers are stored, want %d: %v", len(stored), len(keys), err)
	}
	waitEmpty(t, q)
	before := second.passes.Load()
	if before == 0 {
		t.Error("the second worker did nothing")
	}
	if again := submit(); !reflect.DeepEqual(again, results) {
		t.Errorf("submitted again: %v, want %v", again, results)
	}
	if after := second.passes.Load(); after != before {
		t.Errorf("%d passes for what had answers", after-before)
	}
}

// Prompts share passes: eight of eleven tokens each, that are all there, take few more than four at a time would.
func TestPromptsSharePasses(t *testing.T) {
	const n = 8
	server := embedded(t)
	there := make(chan struct{})
	h := hireWriter(t, server, WorkerOptions{}, func(runtime.Event) { <-there })
	q := connect(t, server)
	var lines []string
	for i := range n {
		lines = append(lines, fmt.Sprintf(`{"prompt": "What is the capital of France?", "seed": %d}`, i))
	}
	done := make(chan error, 1)
	go func() {
		done <- q.Submit(t.Context(), "chat", prompts(lines), SubmitOptions{}, func(r Result) error {
			if r.Reason != "" {
				t.Errorf("%s: %s", r.Name, r.Reason)
			}
			return nil
		})
	}()
	var told told
	wait(t, "all prompts are under way", func() (all bool) {
		told, _ = q.told(t.Context(), "chat")
		c, err := q.stream.Consumer(t.Context(), told.Class)
		return err == nil && c.CachedInfo().NumAckPending == n
	})
	close(there)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if told.Join < 2 || h.passes.Load() > n*11/2 {
		t.Errorf("%d passes for %d tokens, %d texts at once", h.passes.Load(), n*11, told.Join)
	}
}

// What is no prompt, or does not fit, goes to the dead letters with the reason, and the others go on.
func TestPoisonedPrompts(t *testing.T) {
	server := embedded(t)
	h := hireWriter(t, server, WorkerOptions{}, nil)
	q := connect(t, server)
	cases := []struct{ line, reason string }{
		{`{"prompt": "Hello", "max_tokens": 3}`, ""},
		{`{"prompt": "Hello`, "no prompt"},
		{`{"prompt": "Hello"} {}`, "something follows"},
		{`{"prompt": "Hello", "max_token": 3}`, "max_token"},
		{`{"prompt": "Hello", "seed": -1}`, "seed"},
		{`{"id": 4}`, "neither a prompt nor messages"},
		{`{"prompt": "a", "messages": [{"role": "user", "content": "b"}]}`, "a prompt and messages"},
		{`{"prompt": "a", "max_tokens": -1}`, "max_tokens is -1"},
		{`{"prompt": "a", "temperature": -1}`, "Temperature"},
		{`{"prompt": "a", "schema": {"type": "nothing"}}`, "Schema"},
		{`{"prompt": "` + strings.Repeat("long ", 300) + `"}`, "leaves no room for more"},
		{`{"max_tokens": 3, "id": "again", "prompt": "Hello", "seed": 0}`, ""},
	}
	var lines []string
	for _, c := range cases {
		lines = append(lines, c.line)
	}
	for range 2 { // the second time, reasons are found
		got := make(map[int]Result)
		err := q.Submit(t.Context(), "chat", prompts(lines), SubmitOptions{}, func(r Result) error {
			got[r.Index] = r
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range cases {
			if r, ok := got[i]; !ok || (r.Reason == "") != (c.reason == "") || !strings.Contains(r.Reason, c.reason) {
				t.Errorf("%.60s: %q, want …%s…", c.line, r.Reason, c.reason)
			}
		}
		if got[0].Key != got[len(cases)-1].Key {
			t.Error("an id, the order of keys or a seed of 0 make another item")
		}
		if info, err := q.dead.Info(t.Context()); err != nil || info.State.Msgs != uint64(len(cases)-2) {
			t.Errorf("%d dead letters, want %d: %v", info.State.Msgs, len(cases)-2, err)
		}
		if info, err := q.stream.Info(t.Context()); err != nil || info.State.LastSeq != uint64(len(cases)-1) {
			t.Errorf("%d items were sent, want %d: %v", info.State.LastSeq, len(cases)-1, err)
		}
	}
	if _, err := q.Inputs(t.Context(), "chat"); err == nil || errors.Is(err, ErrNoWorker) {
		t.Errorf("inputs of a model that writes: %v", err)
	}
	for model, items := range map[string]iter.Seq[Item]{"chat": pictures(0, 1), "digits": prompts(lines[:1])} {
		if model == "digits" {
			hire(t, server, WorkerOptions{}, nil)
		}
		err := q.Submit(t.Context(), model, items, SubmitOptions{}, func(r Result) error {
			if !strings.Contains(r.Reason, "it takes prompts") && !strings.Contains(r.Reason, "takes tensors") {
				t.Errorf("an item for the other kind of model: %q", r.Reason)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	if h.passes.Load() == 0 {
		t.Error("nothing was written")
	}
}

// An answer's key says what was asked, and of whom.
func TestPromptKey(t *testing.T) {
	canonical := func(line string) string {
		p, err := parsePrompt([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		return string(p.canonical())
	}
	base := canonical(`{"prompt": "a"}`)
	for _, same := range []string{`{"id": 7, "seed": 0, "prompt":"\u0061"}`, `{"prompt": "a", "schema": null, "max_tokens": 0, "stop": []}`} {
		if got := canonical(same); got != base {
			t.Errorf("%s is %s, want %s", same, got, base)
		}
	}
	for _, other := range []string{
		`{"prompt": "b"}`, `{"prompt": "a", "seed": 1}`, `{"prompt": "a", "temperature": 0}`, `{"prompt": "a", "max_tokens": 1}`, `{"prompt": "a", "top_k": 1}`,
		`{"prompt": "a", "top_p": 1}`, `{"prompt": "a", "min_p": 0.1}`, `{"prompt": "a", "stop": ["x"]}`, `{"prompt": "a", "schema": {}}`, `{"prompt": "a", "grammar": "x"}`,
	} {
		if canonical(other) == base {
			t.Errorf("%s is as %s", other, base)
		}
	}
	classes := make(map[string]bool)
	for _, c := range []string{
		classOf("f", "cpu"), textClassOf("f", "cpu", 64, "float32"), textClassOf("g", "cpu", 64, "float32"), textClassOf("f", "cuda", 64, "float32"),
		textClassOf("f", "cpu", 65, "float32"), textClassOf("f", "cpu", 64, "bfloat16"),
	} {
		classes[c] = true
	}
	if len(classes) != 6 {
		t.Error("other files, devices, contexts or keys and values are of one class")
	}
}
