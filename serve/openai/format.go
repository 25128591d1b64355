package openai

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/text/grammar"
)

// A format is what an answer has to be: a value of a schema, or, without one, text.
type format struct{ schema json.RawMessage }

// anyObject is the schema of all objects.
var anyObject = json.RawMessage(`{"type":"object"}`)

// takeFormat takes response_format.
func takeFormat(p *params) (f format) {
	raw, ok := p.take("response_format")
	if !ok {
		return f
	}
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

// force has an answer be a call, where one is required: it returns the words that begin it, which the prompt ends with, and
// bounds what follows.
func (s *toolset) force(f family, r *generate.TextRequest) (begin string, err error) {
	if s.choice != toolsRequired && s.choice != toolsNamed {
		return "", nil
	}
	arguments := "arguments"
	if f == llama {
		arguments = "parameters"
	}
	at := ""
	if f == mistral {
		at = "/items"
	}
	allowed := s.allowed()
	calls := make([]string, len(allowed))
	for i, t := range allowed {
		at := fmt.Sprintf("%s/anyOf/%d/properties/%s", at, i, arguments)
		calls[i] = fmt.Sprintf(`{"type":"object","properties":{"name":{"const":%q},%q:%s},"required":["name",%q],"additionalProperties":false}`,
			t.name, arguments, t.schema(at), arguments)
	}
	schema := `{"anyOf":[` + strings.Join(calls, ",") + `]}`
	switch f {
	case hermes:
		begin = openTag + "\n"
	case mistral:
		begin = "[TOOL_CALLS]"
		most := ""
		if !s.parallel || s.choice == toolsNamed {
			most = `,"maxItems":1`
		}
		schema = `{"type":"array","items":` + schema + `,"minItems":1` + most + `}`
	}
	r.Schema = json.RawMessage(schema)
	return begin, nil
}

var localReference = regexp.MustCompile(`("\$ref"\s*:\s*"#)(/[^"]*)?"`)

// schema is that of the tool's arguments, for a place in a larger schema, which references begin with then. Where a tool is not
// strict, one that cannot be held to is a hint, and any object will do.
func (t *tool) schema(at string) json.RawMessage {
	all, _ := members(t.parameters)
	if all["type"] == nil && all["properties"] == nil && all["$ref"] == nil {
		return anyObject
	}
	if _, err := grammar.ParseSchema(t.parameters, grammar.SchemaOptions{}); err != nil && !t.strict {
		return anyObject
	}
	return localReference.ReplaceAll(t.parameters, []byte("${1}"+at+"${2}\""))
}
