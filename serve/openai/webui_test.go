package openai_test

import (
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/optimem/optimem/serve/openai"
)

// TestOpenWebUI: what Open WebUI sends is answered as it reads it, by its routers/openai.py: the list of models, which
// it needs to have at all; chats in a stream with the usage, with the settings of its panel; the titles and tags that
// it asks for beside them, whole; and texts for its search, whose vectors it takes as numbers.
func TestOpenWebUI(t *testing.T) {
	s := serve(t, &registry{writers: map[string]openai.Writer{"tiny": writer(t, "")}, embedders: map[string]openai.Embedder{"vectors": staticEmbedder(t)}}, openai.Options{})
	var list struct {
		Data []struct{ ID string }
	}
	r, err := s.Client().Get(s.URL + "/v1/models")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	data, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != 200 || json.Unmarshal(data, &list) != nil || len(list.Data) == 0 || list.Data[0].ID != "tiny" {
		t.Errorf("%s %s", r.Status, data)
	}
	messages := `"messages": [{"role": "system", "content": "You are terse."}, {"role": "user", "content": [{"type": "text", "text": "What is the capital of France?"}]}]`
	events := s.streamed(t, chats, `{"model": "tiny", "stream": true, "stream_options": {"include_usage": true}, `+messages+
		`, "temperature": 0.8, "top_p": 0.9, "top_k": 40, "min_p": 0, "frequency_penalty": 0, "presence_penalty": 0, "seed": 42, "stop": ["END"], "max_tokens": 16, "logit_bias": {}}`)
	var last struct {
		Choices []any
		Usage   *struct {
			Total int `json:"total_tokens"`
		}
	}
	if n := len(events); n < 3 || events[n-1] != "[DONE]" || json.Unmarshal([]byte(events[n-2]), &last) != nil || last.Usage == nil || last.Usage.Total == 0 || len(last.Choices) != 0 {
		t.Errorf("%q", events)
	}
	for _, more := range []string{`"max_completion_tokens": 1000`, `"max_tokens": 50, "metadata": {"task": "tags_generation", "chat_id": "x"}`} {
		var got chat
		s.ok(t, chats, `{"model": "tiny", "stream": false, `+more+`, "messages": [{"role": "user", "content": "Hello"}]}`, &got)
		if strings.TrimSpace(got.content(0)) == "" {
			t.Errorf("%s: nothing is answered", more)
		}
	}
	var vectors struct {
		Data []struct{ Embedding []float32 }
	}
	s.ok(t, embeddings, `{"input": ["one text", "another"], "model": "vectors"}`, &vectors)
	if len(vectors.Data) != 2 || len(vectors.Data[1].Embedding) == 0 {
		t.Errorf("%+v", vectors)
	}
}
