package openai

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/optimem/optimem/text/template"
)

// A picture is a part of a message: its place, and the URL that has it.
type picture struct{ at, url string }

// messages takes those of a conversation, as a chat template sees them, and the pictures that come with them.
func messages(p *params) ([]any, []picture) {
	var raw []json.RawMessage
	if !p.decode("messages", "a list of messages", &raw) {
		p.fail(invalid("messages", "you must provide a messages parameter"))
		return nil, nil
	}
	if len(raw) == 0 {
		p.fail(invalid("messages", "messages is empty"))
	}
	list := make([]any, len(raw))
	var seen []picture
	for i, one := range raw {
		m, pictures, err := message(one, fmt.Sprintf("messages[%d]", i))
		if err != nil {
			p.fail(err)
			return nil, nil
		}
		list[i], seen = m, append(seen, pictures...)
	}
	return list, seen
}

// message makes one of a conversation of its JSON; at is its place.
func message(raw json.RawMessage, at string) (*template.Object, []picture, error) {
	all, err := members(raw)
	if err != nil {
		return nil, nil, invalid(at, "%s: %v", at, err)
	}
	m := &params{members: all}
	o := template.NewObject()
	role := m.text("role")
	switch role {
	case "system", "user", "assistant", "tool":
	case "developer": // OpenAI's later word for it, which templates do not know
		role = "system"
	case "function":
		return nil, nil, unsupported(at+".role", "the role function is not supported here: use tool")
	default:
		return nil, nil, invalid(at+".role", "%s has the role %q, which is none of system, developer, user, assistant and tool", at, role)
	}
	o.Set("role", role)
	calls, err := pastCalls(m, role, at)
	if err != nil {
		return nil, nil, err
	}
	pictures, err := content(m, o, role, at, calls != nil)
	if err != nil {
		return nil, nil, err
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
		return nil, nil, invalid(at, "%s: %v", at, err)
	}
	return o, pictures, nil
}

// content takes the text of a message, and the pictures that come with it.
func content(m *params, o *template.Object, role, at string, calls bool) ([]picture, error) {
	raw, ok := m.take("content")
	refusal := ""
	if role == "assistant" {
		refusal = m.text("refusal")
	}
	if !ok {
		if role != "assistant" || !calls && refusal == "" {
			return nil, invalid(at+".content", "%s has no content", at)
		}
		o.Set("content", refusal)
		return nil, nil
	}
	parts, pictures, err := contentParts(raw, role, at+".content")
	if err != nil {
		return nil, err
	}
	if len(pictures) > 0 {
		list := make([]any, len(parts))
		for i, part := range parts {
			list[i] = template.NewObject().Set("type", "image")
			if part != nil {
				list[i] = template.NewObject().Set("type", "text").Set("text", *part)
			}
		}
		o.Set("content", list)
		return pictures, nil
	}
	texts := make([]string, len(parts))
	for i, part := range parts {
		texts[i] = *part
	}
	o.Set("content", strings.Join(texts, "\n"))
	return nil, nil
}

// contentParts are the parts of a message's content, which is a string or a list of them: texts, and nil for pictures,
// which follow.
func contentParts(raw json.RawMessage, role, at string) ([]*string, []picture, error) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return []*string{&text}, nil, nil
	}
	var parts []json.RawMessage
	if json.Unmarshal(raw, &parts) != nil || len(parts) == 0 {
		return nil, nil, invalid(at, "%s must be a string or a list of parts", at)
	}
	texts := make([]*string, len(parts))
	var pictures []picture
	for i, raw := range parts {
		at := fmt.Sprintf("%s[%d]", at, i)
		all, err := members(raw)
		if err != nil {
			return nil, nil, invalid(at, "%s: %v", at, err)
		}
		p := &params{members: all}
		switch kind := p.text("type"); {
		case kind == "text":
			if _, ok := p.members["text"]; !ok {
				return nil, nil, invalid(at, "%s has no text", at)
			}
			text := p.text("text")
			texts[i] = &text
		case kind == "refusal" && role == "assistant":
			text := p.text("refusal")
			texts[i] = &text
		case kind == "image_url" && role == "user":
			seen, err := imageURL(p, at)
			if err != nil {
				return nil, nil, err
			}
			pictures = append(pictures, seen)
		default:
			return nil, nil, unsupported(at+".type", "%s is a part of the type %q: only text, and image_url of a user, is supported here", at, kind)
		}
		p.drop("prompt_cache_breakpoint", "cache_control")
		if err := p.done(); err != nil {
			return nil, nil, invalid(at, "%s: %v", at, err)
		}
	}
	return texts, pictures, nil
}

// imageURL takes what a part says of a picture. How detailed it is seen is the model's to say.
func imageURL(p *params, at string) (picture, error) {
	at += ".image_url"
	raw, _ := p.take("image_url")
	all, err := members(raw)
	if err != nil {
		return picture{}, invalid(at, "%s: %v", at, err)
	}
	m := &params{members: all}
	url, detail := m.text("url"), m.text("detail")
	switch detail {
	case "", "auto", "low", "high":
	default:
		return picture{}, unsupported(at+".detail", "%s.detail is %q, and not auto, low or high", at, detail)
	}
	if err := m.done(); err != nil {
		return picture{}, invalid(at, "%s: %v", at, err)
	}
	return picture{at, url}, nil
}

// file returns the base64 of a picture. Nothing is fetched.
func (p picture) file() ([]byte, error) {
	head, file, ok := strings.Cut(p.url, ",")
	if !strings.HasPrefix(head, "data:") {
		return nil, unsupported(p.at+".url", "%s.url is no data: URL: pictures come with the request, and are not fetched", p.at)
	}
	if !ok || !strings.HasSuffix(head, ";base64") || file == "" {
		return nil, invalid(p.at+".url", "%s.url has no base64 of a picture: data:image/png;base64,… is wanted", p.at)
	}
	return []byte(file), nil
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
