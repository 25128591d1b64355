package openai

import "encoding/json"

// A format is what an answer has to be: a value of a schema, or, without one, text.
type format struct {
	schema json.RawMessage
	// given says that the request has one.
	given bool
}

// anyObject is the schema of all objects.
var anyObject = json.RawMessage(`{"type":"object"}`)

// takeFormat takes response_format.
func takeFormat(p *params) (f format) {
	raw, ok := p.take("response_format")
	if !ok {
		return f
	}
	f.given = true
	all, err := members(raw)
	if err != nil {
		p.fail(invalid("response_format", "response_format %v", err))
		return f
	}
	r := &params{members: all}
	switch kind := r.text("type"); kind {
	case "text":
	case "json_object":
		f.schema = anyObject
	case "json_schema":
		f.schema = takeSchema(r)
	default:
		r.fail(unsupported("response_format", "response_format has the type %q: it must be text, json_object or json_schema", kind))
	}
	if err := r.done(); err != nil {
		p.fail(invalid("response_format", "response_format: %v", err))
	}
	return f
}

// takeSchema takes the schema of a response_format. All are held to, strict or not.
func takeSchema(r *params) json.RawMessage {
	raw, ok := r.take("json_schema")
	all, err := members(raw)
	if !ok || err != nil {
		r.fail(invalid("response_format", "json_schema is missing"))
		return nil
	}
	s := &params{members: all}
	if name := s.text("name"); !toolName.MatchString(name) {
		r.fail(invalid("response_format", "json_schema.name is %q: it must be letters, digits, _ and -, 64 at most", name))
	}
	s.text("description")
	s.boolean("strict")
	schema, ok := s.take("schema")
	if !ok {
		schema = anyObject
	}
	if err := s.done(); err != nil {
		r.fail(err)
	}
	return schema
}
