package serve

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// TestDefaults: what holds where a request to write does not say: texts that end it, what it must be, what is told of
// tokens, and its adapter. A request that says otherwise has its own way.
func TestDefaults(t *testing.T) {
	dir := t.TempDir()
	writeAdapter(t, dir+"/loud")
	models := directory(t, map[string]string{"chat": chat})
	adapters := map[string]string{"loud": dir + "/loud"}
	type answer struct {
		Choices []struct {
			Message  struct{ Content string }
			Logprobs *struct {
				Content []struct {
					Top []any `json:"top_logprobs"`
				}
			}
		}
	}
	chats := func(opts Options, model, more string) (a answer, text string) {
		t.Helper()
		status, _, text := ask(open(t, models, opts).Handler(), "POST", "/v1/chat/completions", fmt.Sprintf(
			`{"model":%q,"messages":[{"role":"user","content":"What is the capital of France?"}],"max_tokens":12,"temperature":0%s}`, model, more),
			"Content-Type", "application/json")
		if err := json.Unmarshal([]byte(text), &a); status != 200 || err != nil || len(a.Choices) != 1 {
			t.Fatalf("%d %s", status, text)
		}
		return a, a.Choices[0].Message.Content
	}
	_, whole := chats(Options{}, "chat", "")
	word := strings.Fields(whole)[2]
	before, _, _ := strings.Cut(whole, word)
	stop := Options{Stop: []string{word}}
	if _, got := chats(stop, "chat", ""); got != before {
		t.Errorf("it stops with %q, not %q", got, before)
	}
	if _, got := chats(stop, "chat", `,"stop":[]`); got != whole {
		t.Errorf("a request that wants no stop has %q, not %q", got, whole)
	}
	schema := Options{Schema: json.RawMessage(`{"enum":["yes","no"]}`)}
	if _, got := chats(schema, "chat", ""); got != `"yes"` && got != `"no"` {
		t.Errorf("the schema admits yes and no: %q", got)
	}
	if _, got := chats(schema, "chat", `,"response_format":{"type":"text"}`); got != whole {
		t.Errorf("a request that wants text has %q, not %q", got, whole)
	}
	if _, got := chats(Options{Grammar: `root ::= "oui" | "non"`}, "chat", ""); got != "oui" && got != "non" {
		t.Errorf("the grammar admits oui and non: %q", got)
	}
	told, _ := chats(Options{Logprobs: 2}, "chat", "")
	if l := told.Choices[0].Logprobs; l == nil || len(l.Content) == 0 || len(l.Content[0].Top) != 2 {
		t.Errorf("two rivals are to be told: %+v", l)
	}
	if untold, _ := chats(Options{Logprobs: 2}, "chat", `,"logprobs":false`); untold.Choices[0].Logprobs != nil {
		t.Error("a request that wants to be told nothing is told")
	}
	_, loud := chats(Options{Adapters: adapters}, "chat:loud", "")
	if _, base := chats(Options{Adapters: adapters}, "chat", ""); base != whole || loud == whole {
		t.Errorf("without an adapter %q, with one %q", base, loud)
	}
	if _, got := chats(Options{Adapters: adapters, Adapter: "loud"}, "chat", ""); got != loud {
		t.Errorf("the adapter of who names none is %q, not %q", got, loud)
	}
	for _, wrong := range []Options{{Schema: json.RawMessage(`{"type": "number", "multipleOf": 3}`)}, {Grammar: "root ::= x"}} {
		if got := states(open(t, models, wrong)); !strings.HasPrefix(got, "chat/1 UNAVAILABLE") || !strings.Contains(got, "what answers must be") {
			t.Errorf("what cannot be held to: %s", got)
		}
	}
}
