package openai

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/optimem/optimem/text/template"
)

// messages takes those of a conversation, as a chat template sees them.
func messages(p *params) []any {
	var raw []json.RawMessage
	if !p.decode("messages", "a list of messages", &raw) {
		p.fail(invalid("messages", "you must provide a messages parameter"))
		return nil
	}
	if len(raw) == 0 {
		p.fail(invalid("messages", "messages is empty"))
	}
	list := make([]any, len(raw))
	for i, one := range raw {
		m, err := message(one, fmt.Sprintf("messages[%d]", i))
		if err != nil {
			p.fail(err)
			return nil
		}
		list[i] = m
	}
	return list
}

// message makes one of a conversation of its JSON; at is its place.
func message(raw json.RawMessage, at string) (*template.Object, error) {
	all, err := members(raw)
	if err != nil {
		return nil, invalid(at, "%s: %v", at, err)
	}
	m := &params{members: all}
	o := template.NewObject()
	role := m.text("role")
	switch role {
	case "system", "user", "assistant", "tool":
	case "developer": // OpenAI's later word for it, which templates do not know
		role = "system"
	case "function":
		return nil, unsupported(at+".role", "the role function is not supported here: use tool")
	default:
		return nil, invalid(at+".role", "%s has the role %q, which is none of system, developer, user, assistant and tool", at, role)
	}
	o.Set("role", role)
	calls, err := pastCalls(m, role, at)
	if err != nil {
		return nil, err
	}
	if err := content(m, o, role, at, calls != nil); err != nil {
		return nil, err
	}
	if calls != nil {
		o.Set("tool_calls", calls)
	}
	if role == "tool" {
		id := m.text("tool_call_id")
		if id == "" {
			m.fail(invalid(at+".tool_call_id", "%s answers no call: tool_call_id is missing", at))
		}
		o.Set("tool_call_id", id)
	}
	if name := m.text("name"); name != "" {
		o.Set("name", name)
	}
	if role == "assistant" {
		if s := m.text("reasoning_content"); s != "" {
			o.Set("reasoning_content", s)
		}
		m.drop("annotations")
	}
	if err := m.done(); err != nil {
		return nil, invalid(at, "%s: %v", at, err)
	}
	return o, nil
}

// content takes the text of a message.
func content(m *params, o *template.Object, role, at string, calls bool) error {
	raw, ok := m.take("content")
	refusal := ""
	if role == "assistant" {
		refusal = m.text("refusal")
	}
	if !ok {
		if role != "assistant" || !calls && refusal == "" {
			return invalid(at+".content", "%s has no content", at)
		}
		o.Set("content", refusal)
		return nil
	}
	text, err := contentText(raw, role, at+".content")
	if err != nil {
		return err
	}
	o.Set("content", text)
	return nil
}

// contentText is the text of a message's content, which is a string or a list of parts.
func contentText(raw json.RawMessage, role, at string) (string, error) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text, nil
	}
	var parts []json.RawMessage
	if json.Unmarshal(raw, &parts) != nil || len(parts) == 0 {
		return "", invalid(at, "%s must be a string or a list of parts", at)
	}
	texts := make([]string, len(parts))
	for i, raw := range parts {
		at := fmt.Sprintf("%s[%d]", at, i)
		all, err := members(raw)
		if err != nil {
			return "", invalid(at, "%s: %v", at, err)
		}
		p := &params{members: all}
		switch kind := p.text("type"); {
		case kind == "text":
			if _, ok := p.members["text"]; !ok {
				return "", invalid(at, "%s has no text", at)
			}
			texts[i] = p.text("text")
		case kind == "refusal" && role == "assistant":
			texts[i] = p.text("refusal")
		default:
			return "", unsupported(at+".type", "%s is a part of the type %q: only text is supported here", at, kind)
		}
		p.drop("prompt_cache_breakpoint", "cache_control")
		if err := p.done(); err != nil {
			return "", invalid(at, "%s: %v", at, err)
		}
	}
	return strings.Join(texts, "\n"), nil
}

// pastCalls takes the calls of tools that an assistant's message made, nil where there are none.
func pastCalls(m *params, role, at string) (any, error) {
	if role != "assistant" {
		return nil, nil
	}
	if _, ok := m.take("function_call"); ok {
		return nil, unsupported(at+".function_call", "function_call is not supported here: use tool_calls")
	}
	var raw []json.RawMessage
	if !m.decode("tool_calls", "a list of calls", &raw) || len(raw) == 0 {
		return nil, m.err
	}
	list := make([]any, len(raw))
	for i, raw := range raw {
		var c struct {
			ID, Type string
			Function struct{ Name, Arguments string }
		}
		at := fmt.Sprintf("%s.tool_calls[%d]", at, i)
		if err := json.Unmarshal(raw, &c); err != nil || c.Function.Name == "" || c.Type != "" && c.Type != "function" {
			return nil, invalid(at, "%s must be a call of a function with a name and arguments", at)
		}
		// Templates write the arguments as an object, not as the text of one.
		arguments, err := template.ParseJSON([]byte(c.Function.Arguments))
		if c.Function.Arguments == "" {
			arguments, err = template.NewObject(), nil
		}
		if err != nil {
			return nil, invalid(at, "%s: the arguments are not JSON", at)
		}
		function := template.NewObject().Set("name", c.Function.Name).Set("arguments", arguments)
		list[i] = template.NewObject().Set("id", c.ID).Set("type", "function").Set("function", function)
	}
	return list, nil
}
