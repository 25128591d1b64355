package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
)

// maxDepth is how deep lists and objects of a request may lie in each other.
const maxDepth = 64

// body reads the JSON object of a request.
func (h *Handler) body(w http.ResponseWriter, r *http.Request) (*params, error) {
	// Pages of strangers can send other types without being asked whether they may.
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, &Error{Status: http.StatusUnsupportedMediaType, Type: invalidRequest, Message: "the Content-Type must be application/json"}
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return nil, &Error{Status: http.StatusUnsupportedMediaType, Type: invalidRequest, Message: "a Content-Encoding is not supported"}
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, h.opts.MaxBody))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		e := invalid("", "the request has more than %d bytes", h.opts.MaxBody)
		e.Status = http.StatusRequestEntityTooLarge
		return nil, e
	case err != nil:
		return nil, invalid("", "the request ended early")
	}
	return parse(data)
}

// parse takes the members of an object apart.
func parse(data []byte) (*params, error) {
	if depth(data) > maxDepth {
		return nil, invalid("", "the request's JSON is more than %d deep", maxDepth)
	}
	if !json.Valid(data) {
		return nil, invalid("", "the request's body is not valid JSON")
	}
	members, err := members(data)
	if err != nil {
		return nil, invalid("", "the request's body: %v", err)
	}
	return &params{members: members}, nil
}

// depth is how deep the lists and objects of JSON lie in each other.
func depth(data []byte) int {
	deepest, at, text := 0, 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case text && c == '\\':
			i++
		case c == '"':
			text = !text
		case text:
		case c == '{' || c == '[':
			at++
			deepest = max(deepest, at)
		case c == '}' || c == ']':
			at--
		}
	}
	return deepest
}

var (
	errNoObject = errors.New("is not an object")
	errTwice    = errors.New("has a member twice")
)

// members returns the members of an object, without those that are null.
func members(data []byte) (map[string]json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errNoObject
	}
	all, seen := make(map[string]json.RawMessage), make(map[string]bool)
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, errNoObject
		}
		key, _ := t.(string)
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, errNoObject
		}
		if seen[key] {
			return nil, errTwice
		}
		seen[key] = true
		if string(value) != "null" {
			all[key] = value
		}
	}
	return all, nil
}
