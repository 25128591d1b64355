package openai

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"
)

// A call is one of a tool, as a model wrote it, or a part of one: without a name it goes on with the arguments of the last.
type call struct {
	name string
	// arguments are the text of a JSON object.
	arguments string
}

// A callReader finds the calls in what a model writes.
type callReader interface {
	// write takes text and returns what is certain to be content, and what is certain to be calls.
	write(text string) (content string, calls []call)
	// end returns what was held back. What was written by then of a call may be cut off.
	end() (content string, calls []call)
}

// reader returns the reader of a request's answers.
func (s *toolset) reader(f family) callReader {
	if s.choice == toolsRequired || s.choice == toolsNamed {
		r := &forcedReader{}
		r.name, _ = s.single(f)
		return r
	}
	switch f {
	case hermes:
		return &hermesReader{}
	case llama:
		return &wholeReader{marker: "<|python_tag|>", begin: "{", parse: func(s0 string) ([]call, bool) { return s.known(parseCalls(s0)) }}
	}
	return &wholeReader{marker: callsMarker, parse: parseMistral}
}

// known refuses calls of what is none of the tools: an answer that is JSON may have a name, too.
func (s *toolset) known(calls []call, ok bool) ([]call, bool) {
	for _, c := range calls {
		ok = ok && slices.ContainsFunc(s.tools, func(t tool) bool { return t.name == c.name })
	}
	return calls, ok
}

// id returns a new one of a call. Mistral's templates want nine letters and digits.
func (f family) id() string {
	text := rand.Text()
	if f == mistral || f == mistralNamed {
		return text[:9]
	}
	return "call_" + text[:24]
}

// A written is a call in JSON. Models were trained with one word or the other.
type written struct {
	Name       string          `json:"name"`
	Arguments  json.RawMessage `json:"arguments"`
	Parameters json.RawMessage `json:"parameters"`
}

// call is what was written, where it is a call.
func (w *written) call() (call, bool) {
	arguments := w.Arguments
	if arguments == nil {
		arguments = w.Parameters
	}
	var text string
	if json.Unmarshal(arguments, &text) == nil { // the text of an object
		arguments = json.RawMessage(text)
	}
	if arguments == nil || string(arguments) == "null" {
		arguments = json.RawMessage("{}")
	}
	_, err := members(arguments)
	return call{w.Name, string(arguments)}, w.Name != "" && (err == nil || errors.Is(err, errTwice)) && json.Valid(arguments)
}

// parseCalls reads calls in JSON: objects, with nothing but semicolons or white space between them, or a list.
func parseCalls(text string) ([]call, bool) {
	var calls []call
	for {
		text = strings.TrimLeft(text, "; \t\r\n")
		if text == "" {
			return calls, len(calls) > 0
		}
		var list []written
		d := json.NewDecoder(strings.NewReader(text))
		if strings.HasPrefix(text, "[") {
			if d.Decode(&list) != nil {
				return nil, false
			}
		} else {
			list = make([]written, 1)
			if d.Decode(&list[0]) != nil {
				return nil, false
			}
		}
		for _, w := range list {
			c, ok := w.call()
			if !ok {
				return nil, false
			}
			calls = append(calls, c)
		}
		text = text[d.InputOffset():]
	}
}

var namedCall = regexp.MustCompile(`^\s*([a-zA-Z0-9_.-]{1,64})(?:\[CALL_ID\]\w*)?(?:\[ARGS\])?\s*`)

// parseMistral reads what follows a [TOOL_CALLS], further ones included.
func parseMistral(text string) ([]call, bool) {
	var calls []call
	for _, part := range strings.Split(text, callsMarker) {
		m := namedCall.FindStringSubmatch(part)
		if m == nil {
			more, ok := parseCalls(part)
			if !ok {
				return nil, false
			}
			calls = append(calls, more...)
			continue
		}
		w := written{Name: m[1], Arguments: json.RawMessage(strings.TrimSpace(part[len(m[0]):]))}
		c, ok := w.call()
		if !ok {
			return nil, false
		}
		calls = append(calls, c)
	}
	return calls, len(calls) > 0
}

// A wholeReader reads calls that are the rest of an answer: after a marker, or all of it where it begins in some way. What turns
// out to be none is content.
type wholeReader struct {
	marker, begin string
	parse         func(string) ([]call, bool)
	held          string
	// calling tells that the marker, or the beginning, was there, talking that it was not and that all is content.
	calling, talking, marked bool
}

func (r *wholeReader) write(text string) (string, []call) {
	r.held += text
	if r.calling || r.marker == "" && r.begin == "" {
		return "", nil
	}
	if i := strings.Index(r.held, r.marker); r.marker != "" && i >= 0 {
		content := strings.TrimRight(r.held[:i], " \t\r\n")
		r.calling, r.marked, r.held = true, true, r.held[i+len(r.marker):]
		return content, nil
	}
	if r.begin != "" && !r.talking {
		switch begun := strings.TrimLeft(r.held, " \t\r\n"); {
		case strings.HasPrefix(begun, r.begin):
			r.calling = true
			return "", nil
		case strings.HasPrefix(r.begin, begun):
			return "", nil
		}
		r.talking = !strings.HasPrefix(r.marker, strings.TrimLeft(r.held, " \t\r\n"))
	}
	content, rest := cut(r.held, r.marker)
	r.held = rest
	return content, nil
}

func (r *wholeReader) end() (string, []call) {
	text := r.held
	r.held = ""
	if !r.calling && (r.marker != "" || r.begin != "") {
		return text, nil
	}
	if calls, ok := r.parse(text); ok {
		return "", calls
	}
	if r.marked && r.begin == "" { // with its marker, so that nothing is lost
		text = r.marker + text
	}
	return text, nil
}

// cut returns the text before what may be the beginning of a marker, and the white space before that.
func cut(text, marker string) (certain, rest string) {
	keep := 0
	for n := min(len(marker)-1, len(text)); n > 0; n-- {
		if strings.HasSuffix(text, marker[:n]) {
			keep = n
			break
		}
	}
	certain = strings.TrimRight(text[:len(text)-keep], " \t\r\n")
	return certain, text[len(certain):]
}

// A hermesReader reads calls between tags.
type hermesReader struct {
	held string
	// calling tells that a tag is open, called that there were calls.
	calling, called bool
}

const (
	openTag     = "<tool_call>"
	closeTag    = "</tool_call>"
	callsMarker = "[TOOL_CALLS]"
)

func (r *hermesReader) write(text string) (content string, calls []call) {
	r.held += text
	for {
		if !r.calling {
			i := strings.Index(r.held, openTag)
			if i < 0 {
				more, rest := cut(r.held, openTag)
				r.held = rest
				return content + more, calls
			}
			content += strings.TrimRight(r.held[:i], " \t\r\n")
			r.calling, r.held = true, r.held[i+len(openTag):]
		}
		// The text of an argument may have the tag that closes, so the JSON says where it ends.
		var w written
		d := json.NewDecoder(strings.NewReader(r.held))
		err := d.Decode(&w)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return content, calls
		}
		c, ok := w.call()
		if err == nil && ok {
			rest := strings.TrimLeft(r.held[d.InputOffset():], " \t\r\n")
			switch {
			case strings.HasPrefix(rest, closeTag):
				calls, r.called, r.calling, r.held = append(calls, c), true, false, rest[len(closeTag):]
				continue
			case strings.HasPrefix(rest, openTag): // the next one, without the tag between them
				calls, r.called, r.calling, r.held = append(calls, c), true, false, rest
				continue
			case strings.HasPrefix(closeTag, rest), strings.HasPrefix(openTag, rest):
				return content, calls
			}
		}
		i := strings.Index(r.held, closeTag)
		if i < 0 {
			return content, calls
		}
		content += openTag + r.held[:i+len(closeTag)] // no call after all
		r.calling, r.held = false, r.held[i+len(closeTag):]
	}
}

func (r *hermesReader) end() (string, []call) {
	text := r.held
	r.held = ""
	if r.calling {
		if calls, ok := parseCalls(text); ok { // the tag that closes may be a token of the end
			return "", calls
		}
		return openTag + text, nil
	}
	if r.called && strings.TrimSpace(text) == "" {
		return "", nil
	}
	return text, nil
}
