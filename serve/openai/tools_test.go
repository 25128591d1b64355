package openai_test

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/serve/openai"
	"github.com/optimem/optimem/text/template"
)

// A scripted writer writes what it is told, a few bytes at a time, and keeps what it was asked.
type scripted struct {
	*generate.Writer
	script string
	piece  int
	asked  *generate.TextRequest
	// cut tells that there was no room for more.
	cut bool
}

func (s *scripted) Pieces(_ context.Context, r generate.TextRequest, got func(generate.Piece) error) (*generate.TextResult, error) {
	*s.asked = r
	for text := s.script; text != ""; {
		n := min(s.piece, len(text))
		if err := got(generate.Piece{Text: text[:n]}); err != nil {
			return nil, err
		}
		text = text[n:]
	}
	result := &generate.TextResult{Text: s.script}
	result.Finish, result.PromptTokens, result.Tokens = generate.FinishStop, len(r.Request.Prompt), make([]int, 3)
	if s.cut {
		result.Finish = generate.FinishLength
	}
	return result, nil
}

// The templates of small models of each family; they name the tools only, so that prompts are short.
const (
	turns       = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}CALLS<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
	toolNames   = "{% for t in tools or [] %}{{ t.function.name }} {% endfor %}"
	hermesCalls = `{% for c in m.tool_calls or [] %}<tool_call>{{ '\n' }}{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}{{ '\n' }}</tool_call>{% endfor %}`
	llamaCalls  = `{% for c in m.tool_calls or [] %}{"name": "{{ c.function.name }}", "parameters": {{ c.function.arguments | tojson }}}{% endfor %}`
	mistralList = `{% for c in m.tool_calls or [] %}[TOOL_CALLS] [{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}, "id": "{{ c.id }}"}]{% endfor %}`
	mistralArgs = `{% for c in m.tool_calls or [] %}[TOOL_CALLS]{{ c.function.name }}[ARGS]{{ c.function.arguments | tojson }}{% endfor %}`
	xmlCalls    = `{% for c in m.tool_calls or [] %}<tool_call><function={{ c.function.name }}></function></tool_call>{% endfor %}`
)

func calling(form string) string { return toolNames + strings.Replace(turns, "CALLS", form, 1) }

// tools are two, and what else a request says of them.
func withTools(text, more string) string {
	if more != "" {
		more = ", " + more
	}
	return ask(text, `"tools": [
		{"type": "function", "function": {"name": "weather", "description": "d", "parameters": {"type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"], "additionalProperties": false}}},
		{"type": "function", "function": {"name": "time"}}]`+more)
}

type calls []struct{ Name, Arguments string }

// TestCalls: what models of each family write becomes content and calls, however it is cut into pieces, whole and in streams.
func TestCalls(t *testing.T) {
	rome := calls{{"weather", `{"city": "Rome"}`}}
	both := append(rome, calls{{"time", `{}`}}...)
	for _, c := range []struct {
		form, script, content string
		calls                 calls
	}{
		{hermesCalls, "It is sunny.", "It is sunny.", nil},
		{hermesCalls, " <b> is no tag, and <tool is none ", " <b> is no tag, and <tool is none ", nil},
		{hermesCalls, "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call>", "", rome},
		{hermesCalls, "<tool_call>{\"arguments\": {\"city\": \"Rome\"}, \"name\": \"weather\"}", "", rome},
		{hermesCalls, "Let me see.\n\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"time\", \"arguments\": {}}\n</tool_call>\n", "Let me see.", both},
		{hermesCalls, `<tool_call>{"name": "weather", "arguments": {"city": "</tool_call>"}}</tool_call>`, "", calls{{"weather", `{"city": "</tool_call>"}`}}},
		{hermesCalls, "a <tool_call>{\"name\": oops}</tool_call> b", "a<tool_call>{\"name\": oops}</tool_call> b", nil},
		{hermesCalls, "<tool_call>{\"name\": \"weather\", \"arguments\": {", "<tool_call>{\"name\": \"weather\", \"arguments\": {", nil},
		{hermesCalls, `<tool_call>{"name": "weather", "arguments": "{\"city\": \"Rome\"}"}</tool_call>`, "", rome},
		{llamaCalls, `{"name": "weather", "parameters": {"city": "Rome"}}`, "", rome},
		{llamaCalls, `<|python_tag|>{"name": "weather", "parameters": {"city": "Rome"}}; {"name": "time", "parameters": {}}`, "", both},
		{llamaCalls, `{"name": "nobody", "parameters": {}}`, `{"name": "nobody", "parameters": {}}`, nil},
		{llamaCalls, `{"name": "weather"`, `{"name": "weather"`, nil},
		{llamaCalls, "A {brace} in a text, <|py", "A {brace} in a text, <|py", nil},
		{mistralList, `[TOOL_CALLS] [{"name": "weather", "arguments": {"city": "Rome"}}, {"name": "time", "arguments": {}}]`, "", both},
		{mistralList, "Wait. [TOOL_CALLS] [{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}]", "Wait.", rome},
		{mistralArgs, `[TOOL_CALLS]weather[ARGS]{"city": "Rome"}[TOOL_CALLS]time[CALL_ID]abcdefghi[ARGS]{}`, "", both},
		{mistralArgs, `[TOOL_CALLS]weather{"city": "Rome"}`, "", rome},
		{mistralArgs, `[TOOL_CALLS]weather[ARGS]{"city"`, `[TOOL_CALLS]weather[ARGS]{"city"`, nil},
	} {
		for _, piece := range []int{1, 3, 1000} {
			w := &scripted{Writer: writer(t, calling(c.form)), script: c.script, piece: piece, asked: new(generate.TextRequest)}
			s := serve(t, &registry{writers: map[string]openai.Writer{"tiny": w}}, openai.Options{})
			var got chat
			s.ok(t, chats, withTools("x", ""), &got)
			m := got.Choices[0].Message
			content := ""
			if m.Content != nil {
				content = *m.Content
			}
			checkCalls(t, fmt.Sprintf("%q by %d", c.script, piece), content, m.ToolCalls, *got.Choices[0].Finish, c.content, c.calls)

			content = ""
			var made []toolCall
			why := ""
			for _, p := range s.chunks(t, chats, withTools("x", `"stream": true`)) {
				if d := p.Choices[0].Delta; d.Content != nil {
					content += *d.Content
				}
				for _, part := range p.Choices[0].Delta.ToolCalls {
					if part.Index == len(made) {
						made = append(made, part)
					} else {
						made[part.Index].Function.Arguments += part.Function.Arguments
					}
				}
				if p.Choices[0].Finish != nil {
					why = *p.Choices[0].Finish
				}
			}
			checkCalls(t, fmt.Sprintf("%q by %d, streamed", c.script, piece), content, made, why, c.content, c.calls)
		}
	}
}

func checkCalls(t *testing.T, name, content string, made []toolCall, why, wantContent string, want calls) {
	t.Helper()
	if content != wantContent || len(made) != len(want) {
		t.Fatalf("%s: %q and %+v, want %q and %+v", name, content, made, wantContent, want)
	}
	ids := map[string]bool{}
	for i, c := range made {
		if c.Function.Name != want[i].Name || c.Function.Arguments != want[i].Arguments || c.Type != "function" || c.ID == "" || ids[c.ID] {
			t.Errorf("%s: call %d is %+v, want %+v", name, i, c, want[i])
		}
		ids[c.ID] = true
	}
	if (why == "tool_calls") != (len(want) > 0) {
		t.Errorf("%s: ends with %s", name, why)
	}
}

// TestOneCall: parallel_tool_calls: false leaves the first.
func TestOneCall(t *testing.T) {
	script := `<tool_call>{"name": "weather", "arguments": {}}</tool_call><tool_call>{"name": "time", "arguments": {}}</tool_call>`
	w := &scripted{Writer: writer(t, calling(hermesCalls)), script: script, piece: 5, asked: new(generate.TextRequest)}
	s := serve(t, &registry{writers: map[string]openai.Writer{"tiny": w}}, openai.Options{})
	var got chat
	s.ok(t, chats, withTools("x", `"parallel_tool_calls": false`), &got)
	if c := got.Choices[0].Message.ToolCalls; len(c) != 1 || c[0].Function.Name != "weather" {
		t.Errorf("%+v", c)
	}
}

// TestForcedCalls: a model that knows nothing of tools calls one where it has to, with arguments by its schema.
func TestForcedCalls(t *testing.T) {
	for name, form := range map[string]string{"hermes": hermesCalls, "llama": llamaCalls, "mistral": mistralList, "mistral named": mistralArgs} {
		s := serve(t, &registry{writers: map[string]openai.Writer{"tiny": writer(t, calling(form))}}, openai.Options{})
		for _, choice := range []string{`"required"`, `{"type": "function", "function": {"name": "weather"}}`} {
			var got chat
			s.ok(t, chats, withTools("Oslo?", `"parallel_tool_calls": false, "max_tokens": 150, "logit_bias": {}, "tool_choice": `+choice), &got)
			m := got.Choices[0].Message
			if len(m.ToolCalls) != 1 || m.Content != nil {
				t.Fatalf("%s, %s: %+v, %q", name, choice, m, got.content(0))
			}
			call := m.ToolCalls[0].Function
			var arguments map[string]any
			if err := json.Unmarshal([]byte(call.Arguments), &arguments); err != nil {
				t.Fatalf("%s: %s: %v", name, call.Arguments, err)
			}
			if call.Name == "weather" && arguments["city"] != "Rome" && arguments["city"] != "Oslo" || choice != `"required"` && call.Name != "weather" {
				t.Errorf("%s, %s: %+v", name, choice, call)
			}
			if why, want := *got.Choices[0].Finish, map[bool]string{true: "tool_calls", false: "stop"}[choice == `"required"`]; why != want {
				t.Errorf("%s, %s: ends with %s, want %s", name, choice, why, want)
			}
		}
	}
}

// TestForcedArgumentsAreStreamed while they are written, and what is cut off says so.
func TestForcedArgumentsAreStreamed(t *testing.T) {
	odd := `{"city": "a } \\\" ] {", "list": [{"x": []}]}`
	for _, c := range []struct {
		form, script, content string
		calls                 calls
		cut                   bool
	}{
		{hermesCalls, `{"name": "weather", "arguments": ` + odd + `}`, "", calls{{"weather", odd}}, false},
		{llamaCalls, "{ \"name\": \"weather\",\n \"parameters\": " + odd + "\n}", "", calls{{"weather", odd}}, false},
		{mistralList, `[{"name": "weather", "arguments": ` + odd + `}, {"name": "time", "arguments": {}}]`, "", calls{{"weather", odd}, {"time", "{}"}}, false},
		{hermesCalls, `{"name": "weather", "arguments": {"city": "Ro`, "", calls{{"weather", `{"city": "Ro`}}, true},
		{hermesCalls, `{"name": "wea`, `{"name": "wea`, nil, true},
	} {
		for _, piece := range []int{1, 7, 1000} {
			w := &scripted{Writer: writer(t, calling(c.form)), script: c.script, piece: piece, asked: new(generate.TextRequest), cut: c.cut}
			s := serve(t, &registry{writers: map[string]openai.Writer{"tiny": w}}, openai.Options{})
			var got chat
			s.ok(t, chats, withTools("x", `"tool_choice": "required"`), &got)
			m, why := got.Choices[0].Message, *got.Choices[0].Finish
			content := ""
			if m.Content != nil {
				content = *m.Content
			}
			made, parts := []toolCall{}, 0
			for _, p := range s.chunks(t, chats, withTools("x", `"tool_choice": "required", "stream": true`)) {
				for _, part := range p.Choices[0].Delta.ToolCalls {
					if parts++; part.Index == len(made) {
						made = append(made, part)
					} else {
						made[part.Index].Function.Arguments += part.Function.Arguments
					}
				}
				if p.Choices[0].Finish != nil && *p.Choices[0].Finish != why {
					t.Errorf("%q: a stream ends with %s, an answer with %s", c.script, *p.Choices[0].Finish, why)
				}
			}
			if piece == 1 && len(c.calls) > 0 && parts < 8 {
				t.Errorf("%q comes in %d parts", c.script, parts)
			}
			if (why == "length") != c.cut || content != c.content || len(m.ToolCalls) != len(c.calls) || len(made) != len(c.calls) {
				t.Fatalf("%q by %d: %+v, %q, %s, streamed %+v", c.script, piece, m.ToolCalls, content, why, made)
			}
			for i, want := range c.calls {
				if m.ToolCalls[i].Function != want || made[i].Function != want || made[i].ID == "" || made[i].Type != "function" {
					t.Errorf("%q by %d: %+v, streamed %+v", c.script, piece, m.ToolCalls[i], made[i])
				}
			}
		}
	}
}

// TestStrictCalls: a model that may call writes what the schema allows once it has begun a call.
func TestStrictCalls(t *testing.T) {
	folder := t.TempDir()
	for _, name := range []string{"config.json", "tokenizer.json", "tokenizer_config.json"} {
		data, err := os.ReadFile(filepath.Join(chatFolder, name))
		if err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(folder, name), []byte(strings.ReplaceAll(string(data), "<|endoftext|>", "<tool_call>")))
	}
	put(t, filepath.Join(folder, "generation_config.json"), []byte(`{"eos_token_id": 2}`))
	put(t, filepath.Join(folder, "chat_template.jinja"), []byte(calling(hermesCalls)))
	text, err := generate.OpenText(folder)
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, &registry{writers: map[string]openai.Writer{"tiny": generate.NewWriter(text, engine(t))}}, openai.Options{})
	strict := strings.ReplaceAll(withTools("x", `"logit_bias": {"0": 100}, "max_tokens": 140, "n": 2`), `"parameters"`, `"strict": true, "parameters"`)
	var got chat
	s.ok(t, chats, strict, &got)
	for i, c := range got.Choices {
		if len(c.Message.ToolCalls) < 2 {
			t.Errorf("answer %d has %+v and %q", i, c.Message.ToolCalls, got.content(i))
		}
		for _, call := range c.Message.ToolCalls {
			var arguments map[string]any
			err := json.Unmarshal([]byte(call.Function.Arguments), &arguments)
			if city := arguments["city"]; err != nil || call.Function.Name == "weather" && city != "Rome" && city != "Oslo" {
				t.Errorf("%+v", call)
			}
		}
	}
	for form, says := range map[string]string{hermesCalls: "no token", llamaCalls: "early enough", mistralArgs: "early enough", mistralList: "no token"} {
		s := serve(t, &registry{writers: map[string]openai.Writer{"tiny": writer(t, calling(form))}}, openai.Options{})
		s.fails(t, chats, strict, 400, "tools", "unsupported_parameter", says)
	}
}

// TestNestedSchemas: references of a tool's schema lead to where they led, in the larger schema that has it.
func TestNestedSchemas(t *testing.T) {
	s := serve(t, &registry{writers: map[string]openai.Writer{"tiny": writer(t, calling(hermesCalls))}}, openai.Options{})
	var got chat
	s.ok(t, chats, ask("x", `"max_tokens": 150, "tool_choice": "required", "tools": [{"type": "function", "function": {"name": "f", "strict": true, "parameters":
		{"$defs": {"c": {"enum": ["Rome", "Oslo"]}}, "type": "object", "properties": {"a": {"$ref": "#/$defs/c"}}, "required": ["a"]}}}]`), &got)
	if c := got.Choices[0].Message.ToolCalls; len(c) != 1 || !strings.Contains(c[0].Function.Arguments, "Rome") && !strings.Contains(c[0].Function.Arguments, "Oslo") {
		t.Errorf("%+v", c)
	}
}

// TestToolsThatAreNotRendered: tool_choice none hides them, and past calls are rendered as objects.
func TestToolsThatAreNotRendered(t *testing.T) {
	w := &scripted{Writer: writer(t, calling(hermesCalls)), script: "ok", piece: 5, asked: new(generate.TextRequest)}
	s := serve(t, &registry{writers: map[string]openai.Writer{"tiny": w}}, openai.Options{})
	prompt := func(body string) string {
		var got chat
		s.ok(t, chats, body, &got)
		ids := make([]uint32, len(w.asked.Request.Prompt))
		for i, id := range w.asked.Request.Prompt {
			ids[i] = uint32(id)
		}
		return w.Tokenizer().Decode(ids, false)
	}
	if got := prompt(withTools("x", `"tool_choice": "none"`)); strings.Contains(got, "weather") {
		t.Errorf("%q", got)
	}
	if got := prompt(withTools("x", `"tool_choice": "auto"`)); !strings.HasPrefix(got, "weather time ") {
		t.Errorf("%q", got)
	}
	got := prompt(`{"model": "tiny", "messages": [{"role": "user", "content": "x"},
		{"role": "assistant", "content": null, "tool_calls": [{"id": "a", "type": "function", "function": {"name": "weather", "arguments": "{\"b\": 1, \"a\": 2}"}}]},
		{"role": "tool", "tool_call_id": "a", "content": "sun"}]}`)
	if want := `<tool_call>` + "\n" + `{"name": "weather", "arguments": {"b": 1, "a": 2}}` + "\n</tool_call>"; !strings.Contains(got, want) || !strings.Contains(got, "tool\nsun") {
		t.Errorf("%q has no %q", got, want)
	}
}

// TestFamiliesOfTemplates: the templates of known models are known by what they render, and others are refused.
func TestFamiliesOfTemplates(t *testing.T) {
	s := func(form string) *server {
		return serve(t, &registry{writers: map[string]openai.Writer{"tiny": writer(t, form)}}, openai.Options{})
	}
	s(calling(xmlCalls)).fails(t, chats, withTools("x", ""), 400, "tools", "unsupported_parameter", "not known here")
	s(strings.Replace(turns, "CALLS", hermesCalls, 1)).fails(t, chats, withTools("x", ""), 400, "tools", "unsupported_parameter", "does not tell the model of tools")
	s(toolNames+"{{ raise_exception('no calls') }}").fails(t, chats, withTools("x", ""), 400, "messages", "", "no calls")
	s(toolNames+"{% if messages | length > 2 %}{{ raise_exception('no calls') }}{% endif %}").fails(t, chats, withTools("x", ""), 400, "tools", "unsupported_parameter", "no calls")

	for name, want := range map[string]string{
		"Qwen-Qwen2.5-7B-Instruct": hermesCalls, "Qwen-Qwen3-0.6B": hermesCalls, "Qwen-QwQ-32B": hermesCalls, "granite-4.0": hermesCalls,
		"MiMo-VL": hermesCalls, "Mistral-Small-3.2": mistralArgs, "microsoft-Phi-3.5": xmlCalls, "GLM-4.6": xmlCalls,
		"mistralai-Mistral-Nemo-Instruct-2407": mistralList, "Qwen3-Coder": xmlCalls, "deepseek-ai-DeepSeek-V3.1": xmlCalls,
	} {
		source := recordedTemplate(t, name)
		if source == "" {
			t.Errorf("no template %s", name)
			continue
		}
		if _, err := template.Parse(source); err != nil {
			t.Fatal(err)
		}
		script := map[string]string{
			hermesCalls: `<tool_call>{"name": "time", "arguments": {}}</tool_call>`, mistralList: `[TOOL_CALLS][{"name": "time", "arguments": {}}]`,
			mistralArgs: `[TOOL_CALLS]time[ARGS]{}`,
		}[want]
		w := &scripted{Writer: writer(t, source), script: script, piece: 7, asked: new(generate.TextRequest)}
		server := serve(t, &registry{writers: map[string]openai.Writer{"tiny": longer{w}}}, openai.Options{})
		if script == "" {
			server.fails(t, chats, withTools("x", ""), 400, "tools", "unsupported_parameter", "")
			continue
		}
		var got chat
		server.ok(t, chats, withTools("x", ""), &got)
		if c := got.Choices[0].Message.ToolCalls; len(c) != 1 || c[0].Function.Name != "time" {
			t.Errorf("%s: %+v", name, got.content(0))
		}
	}
}

// A longer writer says that it has a longer context.
type longer struct{ *scripted }

func (longer) Context() int { return 1 << 20 }

// recordedTemplate returns a template of a model.
func recordedTemplate(t *testing.T, name string) string {
	t.Helper()
	f, err := os.Open("../../text/template/testdata/chats.jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(z)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var r struct{ Name, Source string }
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(r.Name, name) {
			return r.Source
		}
	}
	return ""
}

// TestBadTools are refused by what is wrong with them.
func TestBadTools(t *testing.T) {
	s := serve(t, &registry{writers: map[string]openai.Writer{"tiny": writer(t, calling(hermesCalls))}}, openai.Options{})
	f := func(function string) string { return `"tools": [{"type": "function", "function": ` + function + `}]` }
	for _, c := range []struct{ more, param, code, says string }{
		{`"tools": {}`, "tools", "", "list"},
		{`"tools": [{"type": "custom", "custom": {"name": "x"}}]`, "tools[0].type", "unsupported_parameter", "custom"},
		{`"tools": [7]`, "tools[0]", "", "object"},
		{f(`{"name": "two words"}`), "tools[0].function.name", "", "two words"},
		{f(`{}`), "tools[0].function.name", "", ""},
		{f(`{"name": "x", "parameters": []}`), "tools[0].function.parameters", "", "schema"},
		{f(`{"name": "x", "surprise": 1}`), "tools[0]", "", "surprise"},
		{f(`{"name": "x", "strict": true, "parameters": {"type": "object", "properties": {"a": {"type": "string", "format": "strange", "not": {}}}}}`) + `, "tool_choice": "required"`, "tools", "", ""},
		{`"tools": [{"type": "function", "function": {"name": "x"}}, {"type": "function", "function": {"name": "x"}}]`, "tools", "", "two tools"},
		{`"tool_choice": "required"`, "tool_choice", "", "with tools"},
		{`"tool_choice": "sometimes"`, "tool_choice", "", "sometimes"},
		{f(`{"name": "x"}`) + `, "tool_choice": {"type": "function", "function": {"name": "y"}}`, "tool_choice", "", `"y"`},
		{f(`{"name": "x"}`) + `, "tool_choice": {"type": "allowed_tools"}`, "tool_choice", "unsupported_parameter", ""},
		{f(`{"name": "x"}`) + `, "response_format": {"type": "json_object"}`, "response_format", "unsupported_parameter", "tools"},
		{`"functions": []`, "functions", "unsupported_parameter", "tools"},
		{`"tools": [` + strings.Repeat(`7,`, 128) + `7]`, "tools", "", "129"},
	} {
		s.fails(t, chats, ask("x", c.more), 400, c.param, c.code, c.says)
	}
}
