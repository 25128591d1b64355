package openai

import "regexp"

// A forcedReader reads an answer that can be nothing but calls, since tokens that would leave their schema are never chosen. So
// arguments are given on while they are written.
type forcedReader struct {
	// name is that of the only call, where it is not written.
	name string
	held string
	// inside tells that the arguments of a call are being read, called that there was one.
	inside, called bool
	at             jsonPlace
}

// forcedHead is a call up to its arguments, with what may stand between it and the one before.
var forcedHead = regexp.MustCompile(`^[\s\[\]},]*\{\s*"name"\s*:\s*"([a-zA-Z0-9_-]{1,64})"\s*,\s*"(?:arguments|parameters)"\s*:\s*([\[{])`)

func (r *forcedReader) write(text string) (_ string, calls []call) {
	r.held += text
	if r.name != "" && !r.called {
		calls = append(calls, call{name: r.name})
		r.inside, r.called = true, true
	}
	for {
		if !r.inside {
			m := forcedHead.FindStringSubmatchIndex(r.held)
			if m == nil {
				return "", calls
			}
			calls = append(calls, call{name: r.held[m[2]:m[3]]})
			r.inside, r.called, r.at, r.held = true, true, jsonPlace{}, r.held[m[4]:]
		}
		n, ended := r.at.read(r.held)
		if n > 0 {
			calls = append(calls, call{arguments: r.held[:n]})
		}
		r.held = r.held[n:]
		if r.inside = !ended; r.inside {
			return "", calls
		}
		if r.name != "" { // which was all
			r.held = ""
			return "", calls
		}
	}
}

func (r *forcedReader) end() (string, []call) {
	text := r.held
	if r.held = ""; r.called { // what closes the list
		return "", nil
	}
	return text, nil
}

// cut reports whether the last call is cut off.
func (r *forcedReader) cut() bool { return r.inside }

// A jsonPlace is a place in a list or an object.
type jsonPlace struct {
	depth         int
	text, escaped bool
}

// read reads to the end of the list or object, and returns how many bytes that were and whether it is there.
func (p *jsonPlace) read(s string) (n int, ended bool) {
	for i := range len(s) {
		switch c := s[i]; {
		case p.escaped:
			p.escaped = false
		case p.text && c == '\\':
			p.escaped = true
		case c == '"':
			p.text = !p.text
		case p.text:
		case c == '{' || c == '[':
			p.depth++
		case c == '}' || c == ']':
			if p.depth--; p.depth <= 0 {
				return i + 1, true
			}
		}
	}
	return len(s), false
}
