package openai_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/optimem/optimem/generate"
)

const completions = "/v1/completions"

// prompt is what the template makes of a question, which the model knows how to answer.
const prompt = "<|im_start|>system\\nYou are a small model.<|im_end|>\\n<|im_start|>user\\nHello<|im_end|>\\n<|im_start|>assistant\\n"

const answered = "Hello! How can I help you today?"

// TestCompletions: texts and tokens are gone on with, one or several, whole and in streams.
func TestCompletions(t *testing.T) {
	s := tiny(t)
	w := writer(t, "")
	ids, err := w.Tokens(generate.TextRequest{Prompt: strings.ReplaceAll(prompt, `\n`, "\n")})
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := json.Marshal(ids)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		prompt, more string
		want         []string
		why          string
	}{
		{`"` + prompt + `"`, `"max_tokens": 40`, []string{answered}, "stop"},
		{string(tokens), `"max_tokens": 40`, []string{answered}, "stop"},
		{`["` + prompt + `", "` + prompt + `"]`, `"max_tokens": 40, "n": 2, "best_of": 2`, []string{answered, answered, answered, answered}, "stop"},
		{fmt.Sprintf("[%s, %s]", tokens, tokens), `"max_tokens": 40, "suffix": ""`, []string{answered, answered}, "stop"},
		{`"` + prompt + `"`, `"stop": [" can"]`, []string{"Hello! How"}, "stop"},
		{`"` + prompt + `"`, `"max_tokens": 1`, []string{"H"}, "length"},
		{`"` + prompt + `"`, `"max_tokens": 40, "echo": true`, []string{strings.ReplaceAll(prompt, `\n`, "\n") + answered}, "stop"},
		{string(tokens), `"max_tokens": 0, "echo": true`, []string{strings.ReplaceAll(prompt, `\n`, "\n")}, "length"},
	} {
		body := fmt.Sprintf(`{"model": "tiny", "prompt": %s, %s`, c.prompt, c.more)
		var got chat
		s.ok(t, completions, body+"}", &got)
		if len(got.Choices) != len(c.want) || got.Object != "text_completion" || !strings.HasPrefix(got.ID, "cmpl-") {
			t.Fatalf("%s: %+v", body, got)
		}
		prompts := 1
		if strings.HasPrefix(c.prompt, "[\"") || strings.HasPrefix(c.prompt, "[[") {
			prompts = 2
		}
		if got.Usage.Prompt != prompts*len(ids) || got.Usage.Total != got.Usage.Prompt+got.Usage.Completion {
			t.Errorf("%s: usage %+v, want %d times %d", body, *got.Usage, prompts, len(ids))
		}
		streamed, whys := make([]string, len(c.want)), make([]string, len(c.want))
		parts := s.chunks(t, completions, body+`, "stream": true, "stream_options": {"include_usage": true}}`)
		for _, p := range parts[:len(parts)-1] {
			streamed[p.Choices[0].Index] += p.Choices[0].Text
			if p.Choices[0].Finish != nil {
				whys[p.Choices[0].Index] = *p.Choices[0].Finish
			}
		}
		if u := parts[len(parts)-1].Usage; u == nil || u.Completion != got.Usage.Completion || u.Prompt != got.Usage.Prompt {
			t.Errorf("%s: usage in a stream is %+v, want %+v", body, u, *got.Usage)
		}
		for i, want := range c.want {
			if c.why == "length" && len(got.Choices[i].Text) > 0 && want == "H" {
				want = got.Choices[i].Text // one token, whichever it is
			}
			if got.Choices[i].Text != want || streamed[i] != want || *got.Choices[i].Finish != c.why || whys[i] != c.why {
				t.Errorf("%s: text %d is %q, %s, streamed %q, %s; want %q, %s", body, i, got.Choices[i].Text, *got.Choices[i].Finish, streamed[i], whys[i], want, c.why)
			}
		}
	}
}

// TestDefaultOfCompletions: sixteen tokens, as OpenAI documents, whatever the model's folder says.
func TestDefaultOfCompletions(t *testing.T) {
	s := tiny(t)
	var got chat
	s.ok(t, completions, `{"model": "tiny", "prompt": "`+strings.Replace(prompt, "Hello", "Count to ten.", 1)+`"}`, &got)
	if got.Usage.Completion != 16 || *got.Choices[0].Finish != "length" {
		t.Errorf("%+v, %s", *got.Usage, *got.Choices[0].Finish)
	}
}

// TestCompletionLogprobs: tokens with their places and rivals, in a stream at the same places.
func TestCompletionLogprobs(t *testing.T) {
	s := tiny(t)
	type logprobs struct {
		Tokens   []string
		Logprobs []float64            `json:"token_logprobs"`
		Top      []map[string]float64 `json:"top_logprobs"`
		Offsets  []int                `json:"text_offset"`
	}
	body := `{"model": "tiny", "max_tokens": 40, "logprobs": 2, "prompt": "` + prompt + `"`
	var got chat
	s.ok(t, completions, body+"}", &got)
	var whole, all logprobs
	if err := json.Unmarshal(got.Choices[0].Logprobs, &whole); err != nil {
		t.Fatal(err)
	}
	at := 0
	for i, token := range whole.Tokens {
		if whole.Offsets[i] != at || len(whole.Top[i]) != 2 || whole.Top[i][token] != whole.Logprobs[i] {
			t.Errorf("token %q is at %d, want %d, with %v and %v", token, whole.Offsets[i], at, whole.Logprobs[i], whole.Top[i])
		}
		at += len(token)
	}
	if strings.Join(whole.Tokens, "") != answered {
		t.Errorf("tokens %q", whole.Tokens)
	}
	for _, p := range s.chunks(t, completions, body+`, "stream": true}`) {
		var part logprobs
		if err := json.Unmarshal(p.Choices[0].Logprobs, &part); err != nil {
			t.Fatal(err)
		}
		all.Tokens, all.Offsets = append(all.Tokens, part.Tokens...), append(all.Offsets, part.Offsets...)
	}
	if fmt.Sprint(all.Tokens, all.Offsets) != fmt.Sprint(whole.Tokens, whole.Offsets) {
		t.Errorf("in a stream %q %v, want %q %v", all.Tokens, all.Offsets, whole.Tokens, whole.Offsets)
	}
}

// TestBadCompletions are refused by the parameter that is wrong.
func TestBadCompletions(t *testing.T) {
	s := tiny(t)
	for _, c := range []struct{ body, param, code, says string }{
		{`{"model": "tiny"}`, "prompt", "", "must provide"},
		{`{"prompt": "x"}`, "model", "", "must provide"},
		{`{"model": "tiny", "prompt": []}`, "prompt", "", "not empty"},
		{`{"model": "tiny", "prompt": [[]]}`, "prompt", "", "empty list"},
		{`{"model": "tiny", "prompt": [null]}`, "prompt", "", "list"},
		{`{"model": "tiny", "prompt": [1, "x"]}`, "prompt", "", "list"},
		{`{"model": "tiny", "prompt": {"x": 1}}`, "prompt", "", "list"},
		{`{"model": "tiny", "prompt": [-1]}`, "prompt", "", "token -1"},
		{`{"model": "tiny", "prompt": [420]}`, "prompt", "", "token 420, and the model has 420"},
		{`{"model": "tiny", "prompt": ["a", "b", "c", "d", "e"], "n": 4}`, "prompt", "", "20 texts"},
		{`{"model": "tiny", "prompt": "x", "best_of": 2}`, "best_of", "unsupported_parameter", ""},
		{`{"model": "tiny", "prompt": "x", "suffix": "y"}`, "suffix", "unsupported_parameter", ""},
		{`{"model": "tiny", "prompt": "x", "echo": true, "logprobs": 1}`, "echo", "unsupported_parameter", ""},
		{`{"model": "tiny", "prompt": "x", "logprobs": 6}`, "logprobs", "", "0 to 5"},
		{`{"model": "tiny", "prompt": "x", "max_tokens": 0}`, "max_tokens", "", "echo"},
		{`{"model": "tiny", "prompt": "x", "max_completion_tokens": 5}`, "max_completion_tokens", "unsupported_parameter", "unrecognized"},
		{`{"model": "tiny", "prompt": "` + strings.Repeat("word ", 300) + `"}`, "prompt", "context_length_exceeded", "maximum context length is 256 tokens"},
	} {
		s.fails(t, completions, c.body, 400, c.param, c.code, c.says)
	}
}
