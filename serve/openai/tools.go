package openai

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/text/template"
)

// A tool is a function that a model may ask to be called.
type tool struct {
	name       string
	parameters json.RawMessage
	strict     bool
	// object is what templates see.
	object any
}

// A choice of tools.
type toolChoice int

const (
	// toolsAuto lets the model say whether it calls, toolsNone hides the tools from it, toolsRequired makes it call one,
	// toolsNamed one of a name.
	toolsAuto toolChoice = iota
	toolsNone
	toolsRequired
	toolsNamed
)

// A toolset is the tools of a request.
type toolset struct {
	tools  []tool
	choice toolChoice
	// parallel tells that an answer may have several calls.
	parallel bool
}

// maxTools is how many OpenAI takes.
const maxTools = 128

var toolName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// tools takes the tools of a request and how they are chosen; it returns none where the model is not to see any.
func tools(p *params) *toolset {
	p.refuse("functions", ": use tools")
	p.refuse("function_call", ": use tool_choice")
	set := &toolset{parallel: true}
	var raw []json.RawMessage
	p.decode("tools", "a list of tools", &raw)
	if len(raw) > maxTools {
		p.fail(invalid("tools", "tools has %d tools: %d are possible", len(raw), maxTools))
		return nil
	}
	for i, one := range raw {
		t, err := parseTool(one, fmt.Sprintf("tools[%d]", i))
		if err != nil {
			p.fail(err)
			return nil
		}
		if slices.ContainsFunc(set.tools, func(u tool) bool { return u.name == t.name }) {
			p.fail(invalid("tools", "two tools have the name %q", t.name))
		}
		set.tools = append(set.tools, t)
	}
	if _, given := p.members["parallel_tool_calls"]; given {
		set.parallel = p.boolean("parallel_tool_calls")
	}
	if err := set.choose(p); err != nil {
		p.fail(err)
	}
	if set.choice == toolsNone || len(set.tools) == 0 {
		return nil
	}
	return set
}

// parseTool makes a tool of its JSON; at is its place.
func parseTool(raw json.RawMessage, at string) (t tool, err error) {
	all, err := members(raw)
	if err != nil {
		return t, invalid(at, "%s: %v", at, err)
	}
	p := &params{members: all}
	if kind := p.text("type"); kind != "function" {
		return t, unsupported(at+".type", "%s has the type %q: only function is supported here", at, kind)
	}
	var function json.RawMessage
	p.decode("function", "an object", &function)
	if err := p.done(); err != nil {
		return t, invalid(at, "%s: %v", at, err)
	}
	if all, err = members(function); err != nil {
		return t, invalid(at, "%s.function: %v", at, err)
	}
	f := &params{members: all}
	t.name = f.text("name")
	f.text("description")
	t.strict = f.boolean("strict")
	t.parameters, _ = f.take("parameters")
	if err := f.done(); err != nil {
		return t, invalid(at, "%s.function: %v", at, err)
	}
	if !toolName.MatchString(t.name) {
		return t, invalid(at+".function.name", "%s has the name %q: it must be letters, digits, _ and -, 64 at most", at, t.name)
	}
	if t.parameters == nil {
		t.parameters = json.RawMessage(`{"type":"object","properties":{}}`)
	} else if _, err := members(t.parameters); err != nil {
		return t, invalid(at+".function.parameters", "%s: the parameters must be a JSON schema of an object", at)
	}
	object, err := template.ParseJSON(function)
	if err != nil {
		return t, invalid(at, "%s: %v", at, err)
	}
	// strict says how the answer is bounded, and is no word for the model.
	seen := template.NewObject()
	if o, ok := object.(*template.Object); ok {
		for _, key := range o.Keys() {
			if v, _ := o.Get(key); key != "strict" {
				seen.Set(key, v)
			}
		}
	}
	t.object = template.NewObject().Set("type", "function").Set("function", seen)
	return t, nil
}

// choose takes tool_choice.
func (s *toolset) choose(p *params) error {
	raw, ok := p.take("tool_choice")
	if !ok {
		return nil
	}
	var word string
	if json.Unmarshal(raw, &word) == nil {
		switch word {
		case "auto":
		case "none":
			s.choice = toolsNone
			return nil
		case "required":
			s.choice = toolsRequired
		default:
			return invalid("tool_choice", "tool_choice is %q: it must be none, auto, required or a function", word)
		}
		if len(s.tools) == 0 {
			return invalid("tool_choice", "tool_choice is only for requests with tools")
		}
		return nil
	}
	var named struct {
		Type     string
		Function struct{ Name string }
	}
	if json.Unmarshal(raw, &named) != nil || named.Type != "function" {
		return unsupported("tool_choice", "tool_choice must be none, auto, required or a function")
	}
	i := slices.IndexFunc(s.tools, func(t tool) bool { return t.name == named.Function.Name })
	if i < 0 {
		return invalid("tool_choice", "tool_choice names %q, which is none of the tools", named.Function.Name)
	}
	s.choice = toolsNamed
	s.tools = append([]tool{s.tools[i]}, append(slices.Clone(s.tools[:i]), s.tools[i+1:]...)...)
	return nil
}

// objects are the tools as templates see them.
func (s *toolset) objects() any {
	if s == nil {
		return nil
	}
	list := make([]any, len(s.tools))
	for i, t := range s.tools {
		list[i] = t.object
	}
	return list
}

// allowed are the tools that may be called.
func (s *toolset) allowed() []tool {
	if s.choice == toolsNamed {
		return s.tools[:1]
	}
	return s.tools
}

// A family is how models write calls of tools.
type family int

const (
	// hermes is <tool_call>{"name": …, "arguments": …}</tool_call>, of Hermes and Qwen.
	hermes family = iota
	// llama is {"name": …, "parameters": …} and nothing else, perhaps after <|python_tag|>, of Llama 3.
	llama
	// mistral is [TOOL_CALLS][{"name": …, "arguments": …}, …], mistralNamed, since 2025, [TOOL_CALLS]name[ARGS]{…}.
	mistral
	mistralNamed
)

// markers are the special tokens that are parts of calls.
var markers = []string{openTag, closeTag, "<|python_tag|>", callsMarker, "[ARGS]", "[CALL_ID]"}

// Names that no conversation has.
const (
	probeName  = "zq_probe_call"
	probeValue = "zq_probe_value"
)

var (
	hermesCall  = regexp.MustCompile(`<tool_call>\s*\{"name": ?"` + probeName + `", ?"arguments": ?\{`)
	llamaCall   = regexp.MustCompile(`\{"name": ?"` + probeName + `", ?"parameters": ?\{`)
	mistralCall = regexp.MustCompile(`\[TOOL_CALLS\]\s*\[?\s*\{"name": ?"` + probeName + `", ?"arguments": ?\{`)
	mistralArgs = regexp.MustCompile(`\[TOOL_CALLS\]\s*` + probeName + `(\[CALL_ID\]\w+)?\[ARGS\]\s*\{`)
)

// familyOf tells how a model writes calls, by what its template makes of one that was made.
func familyOf(w Writer, set *toolset) (family, error) {
	function := template.NewObject().Set("name", probeName).Set("arguments", template.NewObject().Set("zq_probe_argument", probeValue))
	call := template.NewObject().Set("id", "zqprobe01").Set("type", "function").Set("function", function)
	said := []any{
		template.NewObject().Set("role", "user").Set("content", "x"),
		template.NewObject().Set("role", "assistant").Set("content", "").Set("tool_calls", []any{call}),
		template.NewObject().Set("role", "tool").Set("content", "x").Set("tool_call_id", "zqprobe01").Set("name", probeName),
	}
	text, err := w.Render(generate.TextRequest{Chat: template.Request{Messages: said, Tools: set.objects()}})
	switch {
	case err != nil:
		return 0, unsupported("tools", "the model's chat template takes no calls of tools: %v", err)
	case !strings.Contains(text, set.tools[0].name):
		return 0, unsupported("tools", "the model's chat template does not tell the model of tools")
	case mistralCall.MatchString(text):
		return mistral, nil
	case mistralArgs.MatchString(text):
		return mistralNamed, nil
	case hermesCall.MatchString(text):
		return hermes, nil
	case llamaCall.MatchString(text):
		return llama, nil
	}
	return 0, unsupported("tools", "the model's chat template has a form of calls that is not known here: "+
		"those of Hermes, Qwen, Llama 3 and Mistral are")
}
