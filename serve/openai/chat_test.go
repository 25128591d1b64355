package openai_test

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/serve/openai"
	"github.com/optimem/optimem/text/tokenizer"
)

const chats = "/v1/chat/completions"

// A chatCase is what transformers makes of a conversation.
type chatCase struct {
	Messages       []generate.Message
	Text           string
	Prompt, Tokens []int
}

func chatCases(t testing.TB) []chatCase {
	t.Helper()
	f, err := os.Open("../../generate/testdata/chat.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var cases []chatCase
	if err := json.NewDecoder(z).Decode(&cases); err != nil {
		t.Fatal(err)
	}
	return cases
}

// ask is a request with a user's message and more.
func ask(text, more string) string {
	if more != "" {
		more = ", " + more
	}
	return fmt.Sprintf(`{"model": "tiny", "messages": [{"role": "user", "content": %q}]%s}`, text, more)
}

// TestChats: answers and counts are those of transformers, whole and in streams.
func TestChats(t *testing.T) {
	s := tiny(t)
	for _, c := range chatCases(t) {
		said, err := json.Marshal(c.Messages)
		if err != nil {
			t.Fatal(err)
		}
		var got chat
		s.ok(t, chats, fmt.Sprintf(`{"model": "tiny", "messages": %s}`, said), &got)
		u := got.Usage
		if got.content(0) != c.Text || u.Prompt != len(c.Prompt) || u.Completion != len(c.Tokens) || u.Total != u.Prompt+u.Completion {
			t.Errorf("%s: %q and %+v, want %q, %d and %d tokens", said, got.content(0), u, c.Text, len(c.Prompt), len(c.Tokens))
		}
		want := "stop"
		if len(c.Tokens) == 64 { // as many as the folder says
			want = "length"
		}
		if why := got.Choices[0].Finish; why == nil || *why != want || got.Object != "chat.completion" || got.Model != "tiny" ||
			got.Choices[0].Message.Role != "assistant" || !strings.HasPrefix(got.ID, "chatcmpl-") || got.Created == 0 {
			t.Errorf("%s: %+v", said, got)
		}

		parts := s.chunks(t, chats, fmt.Sprintf(`{"model": "tiny", "messages": %s, "stream": true, "stream_options": {"include_usage": true}}`, said))
		var text strings.Builder
		for i, p := range parts {
			last := i == len(parts)-1
			switch {
			case p.Object != "chat.completion.chunk" || p.ID != parts[0].ID || (p.Usage != nil) != last || (len(p.Choices) == 0) != last:
				t.Fatalf("%s: chunk %d is %+v", said, i, p)
			case last:
				if p.Usage.Prompt != u.Prompt || p.Usage.Completion != u.Completion || p.Usage.Total != u.Total || p.Usage.Details.Cached == 0 {
					t.Errorf("%s: usage %+v, want %+v, and a prompt that was there", said, *p.Usage, *u)
				}
				continue
			case (p.Choices[0].Delta.Role == "assistant") != (i == 0):
				t.Errorf("%s: the role is in chunk %d", said, i)
			case (p.Choices[0].Finish != nil) != (i == len(parts)-2):
				t.Errorf("%s: the end is in chunk %d", said, i)
			}
			if c := p.Choices[0].Delta.Content; c != nil {
				text.WriteString(*c)
			}
		}
		if text.String() != c.Text {
			t.Errorf("%s: streamed %q, want %q", said, text.String(), c.Text)
		}
	}
}

// TestStreamWithoutUsage has no usage, and no member for it.
func TestStreamWithoutUsage(t *testing.T) {
	s := tiny(t)
	for _, e := range s.streamed(t, chats, ask("Hello", `"stream": true`)) {
		if strings.Contains(e, "usage") || strings.Contains(e, `"choices":[]`) {
			t.Errorf("%s", e)
		}
	}
}

// TestRoles: developer is system, parts are their texts, and what later versions of clients send along does no harm.
func TestRoles(t *testing.T) {
	s := tiny(t)
	var want, got chat
	s.ok(t, chats, `{"model": "tiny", "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]}`, &want)
	for _, body := range []string{
		`{"model": "tiny", "messages": [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "Hello"}]}]}`,
		`{"model": "tiny", "user": "u", "metadata": {"a": "b"}, "store": false, "n": 1, "service_tier": "auto", "tools": [], "stop": null, "logprobs": false,
		"response_format": {"type": "text"}, "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello", "name": "ann"}],
		"modalities": ["text"], "verbosity": "medium", "prompt_cache_key": "x", "safety_identifier": "y", "parallel_tool_calls": true, "tool_choice": "none",
		"prediction": {"type": "content", "content": "Hello"}, "chat_template_kwargs": {"enable_thinking": false}}`,
	} {
		s.ok(t, chats, body, &got)
		if got.content(0) != want.content(0) || got.Usage.Prompt != want.Usage.Prompt {
			t.Errorf("%s: %q of %d, want %q of %d", body, got.content(0), got.Usage.Prompt, want.content(0), want.Usage.Prompt)
		}
	}
	var long chat
	s.ok(t, chats, `{"model": "tiny", "messages": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hello!", "refusal": null, "annotations": [],
		"audio": null, "function_call": null, "tool_calls": null}, {"role": "user", "content": [{"type": "text", "text": "Thank"}, {"type": "text", "text": "you"}]}]}`, &long)
	if long.Usage.Prompt <= want.Usage.Prompt {
		t.Errorf("a conversation has %d tokens", long.Usage.Prompt)
	}
}

// TestSampling: a seed gives its answer again, alone or as the first of several, which differ.
func TestSampling(t *testing.T) {
	s := tiny(t)
	hot := `"temperature": 2, "max_tokens": 24, "seed": -7`
	var one, again, many chat
	s.ok(t, chats, ask("Hello", hot), &one)
	s.ok(t, chats, ask("Hello", hot), &again)
	s.ok(t, chats, ask("Hello", hot+`, "n": 4`), &many)
	if one.content(0) != again.content(0) || one.content(0) != many.content(0) {
		t.Errorf("%q, then %q and %q", one.content(0), again.content(0), many.content(0))
	}
	texts := map[string]bool{}
	for i := range many.Choices {
		texts[many.content(i)] = true
		if many.Choices[i].Index != i {
			t.Errorf("answer %d has the index %d", i, many.Choices[i].Index)
		}
	}
	if len(texts) < 3 {
		t.Errorf("four answers are %v", texts)
	}
	if many.Usage.Prompt != one.Usage.Prompt || many.Usage.Completion < 3*one.Usage.Completion/2 {
		t.Errorf("usage of four answers is %+v, of one %+v", *many.Usage, *one.Usage)
	}
	if need := s.registry.lent[2]; need.Model != "tiny" || need.Sequences != 4 {
		t.Errorf("what was lent: %+v", need)
	}
	var free, other chat // without a seed
	s.ok(t, chats, ask("Hello", `"temperature": 2, "max_completion_tokens": 24`), &free)
	s.ok(t, chats, ask("Hello", `"temperature": 2, "max_completion_tokens": 24`), &other)
	if free.content(0) == other.content(0) {
		t.Errorf("twice %q", free.content(0))
	}
	var cold chat
	s.ok(t, chats, ask("Hello", `"temperature": 2, "top_p": 0`), &cold)
	if cold.content(0) != "Hello! How can I help you today?" {
		t.Errorf("with top_p 0: %q", cold.content(0))
	}
	parts := s.chunks(t, chats, ask("Hello", hot+`, "n": 4, "stream": true`))
	streamed := make([]string, 4)
	for _, p := range parts {
		if c := p.Choices[0].Delta.Content; c != nil {
			streamed[p.Choices[0].Index] += *c
		}
	}
	for i := range streamed {
		if streamed[i] != many.content(i) {
			t.Errorf("streamed answer %d is %q, want %q", i, streamed[i], many.content(i))
		}
	}
}

// An ordered writer notes how many had begun to write when the first of them had not written anything yet.
type ordered struct {
	*generate.Writer
	began atomic.Int64
	early int64
}

func (o *ordered) Pieces(_ context.Context, _ generate.TextRequest, got func(generate.Piece) error) (*generate.TextResult, error) {
	if o.began.Add(1) == 1 {
		time.Sleep(20 * time.Millisecond) // in which the others would begin
		o.early = o.began.Load()
	}
	result := &generate.TextResult{}
	return result, got(generate.Piece{Text: "x"})
}

// TestPromptsAreComputedOnce: of several answers, the first goes ahead with the prompt, and the others have its keys and values.
func TestPromptsAreComputedOnce(t *testing.T) {
	w := &ordered{Writer: writer(t, "")}
	s := serve(t, &registry{writers: map[string]openai.Writer{"tiny": w}}, openai.Options{})
	var got chat
	s.ok(t, chats, ask("x", `"n": 4`), &got)
	if began := w.began.Load(); w.early != 1 || began != 4 {
		t.Errorf("%d of %d answers began before the first had its prompt", w.early, began)
	}
	w = &ordered{Writer: writer(t, "")}
	s = serve(t, &registry{writers: map[string]openai.Writer{"tiny": w}}, openai.Options{})
	s.ok(t, completions, `{"model": "tiny", "prompt": ["a", "b"], "n": 2}`, &got)
	if began := w.began.Load(); w.early > 3 || began != 4 { // those of the other prompt need not wait
		t.Errorf("%d of %d texts began before the first had its prompt", w.early, began)
	}

	s = tiny(t)
	long := "an unusual question: " + strings.Repeat("Rome Oslo ", 20)
	before := engine(t).Stats()
	s.ok(t, chats, ask(long, `"n": 4, "temperature": 1, "max_tokens": 3`), &got)
	if rows, most := engine(t).Stats().Rows-before.Rows, int64(3*got.Usage.Prompt/2+12); rows > most || got.Usage.Prompt < 60 {
		t.Errorf("four answers to %d tokens took %d rows, more than %d", got.Usage.Prompt, rows, most)
	}
	s.ok(t, chats, ask(long, `"max_tokens": 3`), &got)
	if cached := got.Usage.Details.Cached; cached == 0 || cached >= got.Usage.Prompt {
		t.Errorf("%d tokens of %d were there", cached, got.Usage.Prompt)
	}
}

// TestBounds: stops, counts, biases and penalties do what they say.
func TestBounds(t *testing.T) {
	s := tiny(t)
	const whole = "The capital of France is Paris."
	question := "What is the capital of France?"
	tok := writer(t, "").Tokenizer()
	paris, err := tok.Encode(" Paris", tokenizer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ more, want, why string }{
		{``, whole, "stop"},
		{`"stop": " is"`, "The capital of France", "stop"},
		{`"stop": ["xyz", "France", "of", "capital of"]`, "The ", "stop"},
		{`"stop": ["P"]`, "The capital of France is ", "stop"},
		{`"max_tokens": 3`, "*", "length"},
		{`"max_tokens": 1, "max_completion_tokens": 3`, "*", "length"},
		{fmt.Sprintf(`"logit_bias": {"%d": -100}`, paris.IDs[0]), "!", "*"},
		{`"presence_penalty": 2, "frequency_penalty": 2, "temperature": 0`, "*", "*"},
		{`"top_k": 1, "min_p": 0.1, "repetition_penalty": 1, "temperature": 1`, whole, "stop"},
	} {
		var got chat
		s.ok(t, chats, ask(question, c.more), &got)
		text, why := got.content(0), *got.Choices[0].Finish
		if c.want != "*" && c.want != "!" && text != c.want || c.want == "!" && strings.Contains(text, " Paris") || c.why != "*" && why != c.why {
			t.Errorf("%s: %q, %s; want %q, %s", c.more, text, why, c.want, c.why)
		}
		if strings.Contains(c.more, `_tokens": 3`) && got.Usage.Completion != 3 {
			t.Errorf("%s: %d tokens", c.more, got.Usage.Completion)
		}
	}
}

// TestLogprobs: tokens come with how likely they were, and put together they are the text.
func TestLogprobs(t *testing.T) {
	s := tiny(t)
	type logprobs struct {
		Content []struct {
			Token   string
			Logprob float64
			Bytes   []byte
			Top     []struct {
				Token   string
				Logprob float64
				Bytes   []byte
			} `json:"top_logprobs"`
		}
	}
	for _, top := range []int{0, 3} {
		more := fmt.Sprintf(`"logprobs": true, "top_logprobs": %d`, top)
		var got chat
		s.ok(t, chats, ask("Who are you?", more), &got)
		read := func(raw json.RawMessage, text string) int {
			var l logprobs
			// Bytes are numbers, which encoding/json takes for base64.
			raw = json.RawMessage(bytesAsText(t, raw))
			if err := json.Unmarshal(raw, &l); err != nil {
				t.Fatalf("%s: %v", raw, err)
			}
			var all []byte
			for _, token := range l.Content {
				all = append(all, token.Bytes...)
				if len(token.Top) != top || token.Top == nil || token.Logprob > 0 {
					t.Errorf("token %+v", token)
				}
				if top > 0 && (token.Top[0].Token != token.Token || token.Top[0].Logprob != token.Logprob || token.Top[1].Logprob > token.Logprob) {
					t.Errorf("token %+v is not the most likely", token)
				}
			}
			if string(all) != text {
				t.Errorf("tokens are %q of %q", all, text)
			}
			return len(l.Content)
		}
		n := read(got.Choices[0].Logprobs, got.content(0))
		if n != got.Usage.Completion-1 { // without the end
			t.Errorf("%d tokens have logprobs, of %d", n, got.Usage.Completion)
		}
		streamed := 0
		for _, p := range s.chunks(t, chats, ask("Who are you?", more+`, "stream": true`)) {
			if string(p.Choices[0].Logprobs) != "null" {
				var l struct{ Content []json.RawMessage }
				if err := json.Unmarshal(p.Choices[0].Logprobs, &l); err != nil {
					t.Fatal(err)
				}
				streamed += len(l.Content)
			}
		}
		if streamed != n {
			t.Errorf("%d tokens in a stream, want %d", streamed, n)
		}
	}
	var none chat
	s.ok(t, chats, ask("Hello", ""), &none)
	if string(none.Choices[0].Logprobs) != "null" {
		t.Errorf("logprobs %s that nobody asked for", none.Choices[0].Logprobs)
	}
}

// bytesAsText makes base64 of the lists of numbers in members called bytes.
func bytesAsText(t testing.TB, raw []byte) []byte {
	t.Helper()
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	var change func(any) any
	change = func(v any) any {
		switch v := v.(type) {
		case map[string]any:
			for k, x := range v {
				if list, ok := x.([]any); ok && k == "bytes" {
					b := make([]byte, len(list))
					for i, n := range list {
						b[i] = byte(n.(float64))
					}
					v[k] = b
					continue
				}
				v[k] = change(x)
			}
		case []any:
			for i := range v {
				v[i] = change(v[i])
			}
		}
		return v
	}
	out, err := json.Marshal(change(v))
	if err != nil {
		t.Fatal(err)
	}
	return out
}
