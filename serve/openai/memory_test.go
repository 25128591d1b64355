package openai_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/serve/openai"
)

// A purse is the memory that answers may take, and what they did.
type purse struct {
	mu               sync.Mutex
	held, peak, most int64
	times            int
}

func (p *purse) reserve(_ context.Context, bytes int64) (func(), error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held+bytes > p.most {
		return nil, &openai.BusyError{Msg: "too many bytes"}
	}
	p.held += bytes
	p.peak = max(p.peak, p.held)
	p.times++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.held -= bytes
	}, nil
}

// state is what is held, and the most that was, and how often something was reserved.
func (p *purse) state() (held, peak int64, times int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held, p.peak, p.times
}

// talkative writes as many pieces as there may be tokens, each of so many bytes.
type talkative struct {
	openai.Writer
	bytes int
	ran   atomic.Int64
}

func (w *talkative) Pieces(
	_ context.Context, r generate.TextRequest, got func(generate.Piece) error,
) (*generate.TextResult, error) {
	w.ran.Add(1)
	result := &generate.TextResult{}
	result.Finish = generate.FinishLength
	for range r.Request.MaxTokens {
		piece := generate.Piece{Text: strings.Repeat("x", w.bytes)}
		if r.Request.Logprobs > 0 {
			piece.Tokens = []generate.Token{{ID: 5, Logprob: -1, Top: make([]generate.Candidate, r.Request.Logprobs)}}
		}
		if err := got(piece); err != nil {
			return nil, err
		}
		result.Tokens = append(result.Tokens, 5)
	}
	return result, nil
}

// TestAnswersAreReserved: what an answer takes is reserved before it is written, at least thrice what is sent; one for
// which there is no room is not begun, and one that turns out longer than was thought ends; nothing stays reserved.
func TestAnswersAreReserved(t *testing.T) {
	const chat, completion, embeddings = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"
	hello := `"model":"tiny","messages":[{"role":"user","content":"Hello!"}],"temperature":0`
	tools := `,"tool_choice":"required","tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"x":{"type":"string"}},"required":["x"]}}}]`
	for _, c := range []struct{ path, body string }{
		{chat, `{` + hello + `,"max_tokens":24}`},
		{chat, `{` + hello + `,"max_tokens":24,"n":3,"logprobs":true,"top_logprobs":20}`},
		{chat, `{` + hello + `,"max_tokens":24,"logprobs":true,"stream":true}`},
		{chat, `{` + hello + `,"max_tokens":60` + tools + `}`},
		{completion, `{"model":"tiny","prompt":["a","b"],"max_tokens":16,"logprobs":5}`},
		{completion, `{"model":"tiny","prompt":"a"}`},
		{embeddings, `{"model":"vectors","input":["a","b"]}`},
		{embeddings, `{"model":"vectors","input":["a","b"],"encoding_format":"base64"}`},
	} {
		p := &purse{most: 1 << 40}
		s := serve(t, &registry{
			writers: map[string]openai.Writer{"tiny": writer(t, "")}, embedders: map[string]openai.Embedder{"vectors": constant{}},
		}, openai.Options{Reserve: p.reserve})
		answer, text := s.post(t, c.path, c.body)
		if answer.StatusCode == 400 && strings.Contains(c.body, "tools") {
			continue // the template has none
		}
		if answer.StatusCode != 200 {
			t.Errorf("%s: %d %s", c.body, answer.StatusCode, text)
		}
		held, peak, times := p.state()
		const fixed = 600 // of an answer that is nearly empty
		if !strings.Contains(c.body, "stream") && peak+fixed < 3*int64(len(text)) {
			t.Errorf("%s: %d bytes were reserved for an answer of %d", c.body, peak, len(text))
		}
		if held != 0 || times == 0 {
			t.Errorf("%s: %d bytes stay reserved of %d times", c.body, held, times)
		}
		full := &purse{most: peak - 1}
		w := &talkative{Writer: writer(t, ""), bytes: 1}
		s = serve(t, &registry{
			writers: map[string]openai.Writer{"tiny": w}, embedders: map[string]openai.Embedder{"vectors": constant{}},
		}, openai.Options{Reserve: full.reserve})
		answer, text = s.post(t, c.path, c.body)
		if held, _, _ := full.state(); answer.StatusCode != http.StatusTooManyRequests || w.ran.Load() != 0 || held != 0 {
			t.Errorf("%s: %d %s although there is no room; %d were begun, %d bytes are held", c.body, answer.StatusCode, text, w.ran.Load(), held)
		}
	}
	for _, bytes := range []int{4, 4000} {
		p := &purse{most: 1 << 20}
		s := serve(t, &registry{writers: map[string]openai.Writer{"tiny": &talkative{Writer: writer(t, ""), bytes: bytes}}}, openai.Options{Reserve: p.reserve})
		answer, text := s.post(t, chat, fmt.Sprintf(`{%s,"max_tokens":100}`, hello))
		if want := map[int]int{4: 200, 4000: 429}[bytes]; answer.StatusCode != want {
			t.Errorf("pieces of %d bytes: %d %.200s", bytes, answer.StatusCode, text)
		}
		if held, peak, _ := p.state(); held != 0 || peak > p.most {
			t.Errorf("pieces of %d bytes: %d bytes are held, %d were", bytes, held, peak)
		}
	}
}
