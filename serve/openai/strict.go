package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/text/grammar"
	"github.com/optimem/optimem/text/tokenizer"
)

// bound has what is written be calls that their schemas allow: all of it where a call is required, from the marker on where tools
// are strict. It returns the words that begin a required call, which the prompt ends with.
func (s *toolset) bound(f family, w Writer, r *generate.TextRequest) (begin string, err error) {
	forced := s.choice == toolsRequired || s.choice == toolsNamed
	if !forced && !slices.ContainsFunc(s.tools, func(t tool) bool { return t.strict }) {
		return "", nil
	}
	if name, ok := s.single(f); ok && forced {
		r.Schema, err = s.tools[0].schema("")
		return callsMarker + name + "[ARGS]", err
	}
	schema, err := s.schema(f)
	if err != nil {
		return "", err
	}
	marker := map[family]string{hermes: openTag, mistral: callsMarker, mistralNamed: callsMarker}[f]
	switch {
	case !forced && f != hermes && f != mistral:
		return "", unsupported("tools", "strict is not supported here with tool_choice auto: where this model's calls begin is not known early enough")
	case !forced:
		r.Request.Constraint, err = newLateConstraint(w, marker, schema, r.Request.End)
		return "", err
	case f == hermes:
		marker += "\n"
	}
	r.Schema = schema
	return marker, nil
}

// single returns the name of the only tool that may be called, where models write the name before the arguments.
func (s *toolset) single(f family) (string, bool) {
	if allowed := s.allowed(); f == mistralNamed && len(allowed) == 1 {
		return allowed[0].name, true
	}
	return "", false
}

// schema is that of what follows a marker.
func (s *toolset) schema(f family) (json.RawMessage, error) {
	arguments, at := "arguments", ""
	switch f {
	case llama:
		arguments = "parameters"
	case mistral, mistralNamed:
		at = "/items"
	}
	allowed := s.allowed()
	calls := make([]string, len(allowed))
	for i, t := range allowed {
		at := fmt.Sprintf("%s/anyOf/%d/properties/%s", at, i, arguments)
		parameters, err := t.schema(at)
		if err != nil {
			return nil, err
		}
		calls[i] = fmt.Sprintf(`{"type":"object","properties":{"name":{"const":%q},%q:%s},"required":["name",%q],"additionalProperties":false}`,
			t.name, arguments, parameters, arguments)
	}
	schema := `{"anyOf":[` + strings.Join(calls, ",") + `]}`
	if f == mistral || f == mistralNamed {
		most := ""
		if !s.parallel || s.choice == toolsNamed {
			most = `,"maxItems":1`
		}
		schema = `{"type":"array","items":` + schema + `,"minItems":1` + most + `}`
	}
	return json.RawMessage(schema), nil
}

var localReference = regexp.MustCompile(`("\$ref"\s*:\s*"#)(/[^"]*)?"`)

// schema is that of the tool's arguments, for a place in a larger schema, which references begin with then. Where a tool is not
// strict, one that cannot be held to is a hint, and any object will do.
func (t *tool) schema(at string) (json.RawMessage, error) {
	_, err := grammar.ParseSchema(t.parameters, grammar.SchemaOptions{})
	switch all, _ := members(t.parameters); {
	case err != nil && t.strict:
		return nil, invalid("tools", "the parameters of %q cannot be held to: %v", t.name, err)
	case err != nil, all["type"] == nil && all["properties"] == nil && all["$ref"] == nil:
		return anyObject, nil
	}
	return localReference.ReplaceAll(t.parameters, []byte("${1}"+at+"${2}\"")), nil
}

// A lateConstraint holds what follows a marker to a schema, as often as the marker comes.
type lateConstraint struct {
	marker  int
	newline int
	end     []int
	begin   func() (generate.Constraint, error)
	// inner is there from a marker to the end of what the schema describes; fresh tells that nothing of that was written.
	inner generate.Constraint
	fresh bool
}

// newLateConstraint returns one for a request that ends with some tokens.
func newLateConstraint(w Writer, marker string, schema json.RawMessage, end []int) (*lateConstraint, error) {
	single := func(text string) int {
		encoded, err := w.Tokenizer().Encode(text, tokenizer.Options{})
		if err != nil || len(encoded.IDs) != 1 {
			return -1
		}
		return int(encoded.IDs[0])
	}
	c := &lateConstraint{marker: single(marker), newline: single("\n"), end: end}
	if c.marker < 0 {
		return nil, unsupported("tools", "strict is not supported here with tool_choice auto: the model has no token %s", marker)
	}
	first, err := w.Constraint(generate.TextRequest{Schema: schema})
	c.begin = func() (inner generate.Constraint, err error) {
		if inner, first = first, nil; inner == nil {
			inner, err = w.Constraint(generate.TextRequest{Schema: schema})
		}
		return inner, err
	}
	return c, err
}

// Mask bounds nothing before a marker. Behind it models are used to a new line.
func (c *lateConstraint) Mask(allowed []uint64) error {
	if c.inner == nil {
		return nil
	}
	if err := c.inner.Mask(allowed); err != nil {
		return err
	}
	for _, id := range c.end { // there is a tag to close
		allowed[id/64] &^= 1 << (id % 64)
	}
	if c.fresh && c.newline >= 0 {
		allowed[c.newline/64] |= 1 << (c.newline % 64)
	}
	return nil
}

// Accept looks for markers, and for where what they begin ends.
func (c *lateConstraint) Accept(token int) (err error) {
	switch {
	case c.inner == nil && token == c.marker:
		c.inner, err = c.begin()
		c.fresh = true
	case c.inner == nil || c.fresh && token == c.newline:
	default:
		c.fresh = false
		if err = c.inner.Accept(token); errors.Is(err, generate.ErrStop) {
			c.inner, err = nil, nil
		}
	}
	return err
}
