package grammar

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// SchemaOptions say how the JSON is written. The zero value has the defaults.
type SchemaOptions struct {
	// Compact allows no white space between the parts. Otherwise a space, or a line's end with at most twenty spaces or tabs,
	// may stand after brackets, commas and colons, and before closing brackets.
	Compact bool
}

// ParseSchema compiles a JSON schema to a grammar of texts that are valid by it.
//
// Every text that fits is valid; not every valid text fits. Properties come in the schema's order and further ones after them,
// whose names have no escapes. An object with properties has no others unless additionalProperties says so. A keyword that is
// for another type than the value's is taken to say the type. The branches of oneOf must be visibly disjoint. Whatever else a
// schema asks for is an error that names the keyword's place.
func ParseSchema(doc []byte, o SchemaOptions) (*Grammar, error) {
	if len(doc) > maxSourceBytes {
		return nil, errorf(ErrLimit, "", "a schema of %d bytes", len(doc))
	}
	v, err := parseJSON(doc)
	if err != nil {
		return nil, err
	}
	p := &schemaParser{doc: v, refs: make(map[string]int), named: make(map[string]int)}
	p.ws = repeat{choice{literal(" "), sequence{literal("\n"), repeat{class{{'\t', '\t'}, {' ', ' '}}, 0, 20}}}, 0, 1}
	if o.Compact {
		p.ws = literal("")
	}
	t, err := p.schema(v, "", 0)
	if err != nil {
		return nil, err
	}
	p.set.names, p.set.rules = append(p.set.names, "root"), append(p.set.rules, t)
	p.set.root = len(p.set.rules) - 1
	return compile(&p.set)
}

type schemaParser struct {
	doc   any
	set   ruleSet
	refs  map[string]int // rules of $ref
	named map[string]int // rules of this package: any value and the like
	ws    term
	terms int
}

// annotations say nothing about values.
var annotations = []string{
	"title", "description", "default", "examples", "$schema", "$comment", "deprecated", "readOnly", "writeOnly",
	"$defs", "definitions",
	"contentMediaType", "contentEncoding",
}

// keywords by the type that they are about.
var keywords = map[string][]string{
	"object":  {"properties", "required", "additionalProperties"},
	"array":   {"items", "prefixItems", "minItems", "maxItems"},
	"string":  {"minLength", "maxLength", "pattern", "format"},
	"number":  {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"},
	"integer": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"},
	"boolean": {}, "null": {},
}

var allTypes = []string{"object", "array", "string", "number", "boolean", "null"}

// combining keywords stand alone, beside type at most.
var combining = []string{"$ref", "anyOf", "oneOf", "allOf", "enum", "const"}

func pointer(where, key string) string {
	return where + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
}

func (p *schemaParser) schema(v any, where string, depth int) (term, error) {
	if depth > maxNesting {
		return nil, errorf(ErrLimit, where, "schemas more than %d deep", maxNesting)
	}
	if p.terms++; p.terms > maxNodes {
		return nil, errorf(ErrLimit, where, "more than %d schemas", maxNodes)
	}
	switch v := v.(type) {
	case bool:
		if v {
			return p.any(), nil
		}
		return choice{}, nil
	case *members:
		return p.object(v, where, depth)
	}
	return nil, errorf(ErrSyntax, where, "a schema must be an object, true or false, not %s", typeOf(v))
}

// object reads a schema that is an object.
func (p *schemaParser) object(s *members, where string, depth int) (term, error) {
	var combined string
	var types []string
	used := make(map[string][]string) // type → keywords
	var about []string                // all of them
	for _, k := range s.keys {
		switch {
		case slices.Contains(annotations, k) || k == "$id" && where == "":
		case k == "type":
			var err error
			if types, err = typesOf(s.values[k], pointer(where, k)); err != nil {
				return nil, err
			}
		case slices.Contains(combining, k):
			if combined != "" {
				return nil, errorf(ErrUnsupported, pointer(where, k), "beside %s", combined)
			}
			combined = k
		default:
			about = append(about, k)
			known := false
			for t, theirs := range keywords {
				if slices.Contains(theirs, k) {
					used[t] = append(used[t], k)
					known = true
				}
			}
			if !known {
				return nil, errorf(ErrUnsupported, pointer(where, k), "the keyword is not known")
			}
		}
	}
	if combined != "" {
		if len(about) > 0 {
			return nil, errorf(ErrUnsupported, pointer(where, about[0]), "beside %s", combined)
		}
		if types != nil && combined != "enum" && combined != "const" {
			return nil, errorf(ErrUnsupported, pointer(where, "type"), "beside %s", combined)
		}
		return p.combined(combined, s.values[combined], types, pointer(where, combined), depth)
	}
	if types == nil {
		// A keyword is for its own type.
		for _, t := range allTypes {
			if len(used[t]) > 0 {
				types = append(types, t)
			}
		}
		if types == nil {
			return p.any(), nil
		}
	}
	var all choice
	for _, t := range types {
		one, err := p.typed(t, s, where, depth)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	for _, k := range about {
		if !slices.ContainsFunc(types, func(t string) bool { return slices.Contains(used[t], k) }) {
			return nil, errorf(ErrUnsupported, pointer(where, k), "the keyword is for another type")
		}
	}
	if len(all) == 1 {
		return all[0], nil
	}
	return all, nil
}

func typesOf(v any, where string) ([]string, error) {
	var types []string
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	for _, e := range list {
		t, ok := e.(string)
		if _, known := keywords[t]; !ok || !known {
			return nil, errorf(ErrSyntax, where, "%v is no type", e)
		}
		types = append(types, t)
	}
	if len(types) == 0 {
		return nil, errorf(ErrSyntax, where, "no type")
	}
	// A number may be an integer, so that one of both is enough.
	if slices.Contains(types, "number") {
		types = slices.DeleteFunc(types, func(t string) bool { return t == "integer" })
	}
	return types, nil
}

func (p *schemaParser) combined(k string, v any, types []string, where string, depth int) (term, error) {
	list, isList := v.([]any)
	switch k {
	case "$ref":
		return p.ref(v, where, depth)
	case "const":
		list, isList = []any{v}, true
		fallthrough
	case "enum":
		var all choice
		for _, e := range list {
			t := typeOf(e)
			if types != nil && !slices.Contains(types, t) && !(t == "integer" && slices.Contains(types, "number")) {
				continue
			}
			one, err := p.exactly(e, where)
			if err != nil {
				return nil, err
			}
			all = append(all, one)
		}
		if !isList {
			return nil, errorf(ErrSyntax, where, "must be a list")
		}
		return all, nil
	}
	if !isList || len(list) == 0 {
		return nil, errorf(ErrSyntax, where, "must be a list of schemas")
	}
	if k == "allOf" && len(list) > 1 {
		return nil, errorf(ErrUnsupported, where, "more than one schema")
	}
	if k == "oneOf" && len(list) > maxBranches {
		return nil, errorf(ErrLimit, where, "more than %d branches", maxBranches)
	}
	var all choice
	for i, e := range list {
		one, err := p.schema(e, fmt.Sprintf("%s/%d", where, i), depth+1)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
		if k == "oneOf" {
			for j := range i {
				if !p.disjoint(list[j], e, 0) {
					return nil, errorf(ErrUnsupported, where, "the branches %d and %d may both hold", j, i)
				}
			}
		}
	}
	return all, nil
}

// resolve returns the schema that a local reference points to.
func (p *schemaParser) resolve(v any, where string) (any, string, error) {
	ref, ok := v.(string)
	if !ok {
		return nil, "", errorf(ErrSyntax, where, "a reference must be a string")
	}
	if ref != "#" && !strings.HasPrefix(ref, "#/") {
		return nil, "", errorf(ErrUnsupported, where, "a reference to another document, %q", ref)
	}
	at := p.doc
	for part := range strings.SplitSeq(strings.TrimPrefix(ref, "#"), "/") {
		if part == "" && at == p.doc {
			continue
		}
		part = strings.NewReplacer("~1", "/", "~0", "~", "%25", "%").Replace(part)
		o, ok := at.(*members)
		if ok {
			at, ok = o.get(part)
		} else if list, isList := at.([]any); isList {
			if i, err := strconv.Atoi(part); err == nil && i >= 0 && i < len(list) {
				at, ok = list[i], true
			}
		}
		if !ok {
			return nil, "", errorf(ErrSyntax, where, "%q points to nothing", ref)
		}
	}
	return at, strings.TrimPrefix(ref, "#"), nil
}

func (p *schemaParser) ref(v any, where string, depth int) (term, error) {
	to, at, err := p.resolve(v, where)
	if err != nil {
		return nil, err
	}
	if n, ok := p.refs[at]; ok {
		return reference(n), nil
	}
	n, err := p.rule("ref "+at, nil)
	if err != nil {
		return nil, err
	}
	p.refs[at] = n
	t, err := p.schema(to, at, depth+1)
	if err != nil {
		return nil, err
	}
	p.set.rules[n] = t
	return reference(n), nil
}

func (p *schemaParser) rule(name string, t term) (int, error) {
	if len(p.set.rules) >= maxRules {
		return 0, errorf(ErrLimit, "", "more than %d rules", maxRules)
	}
	p.set.names, p.set.rules = append(p.set.names, name), append(p.set.rules, t)
	return len(p.set.rules) - 1, nil
}

// disjoint reports whether no value fits two schemas, as far as that can be seen.
func (p *schemaParser) disjoint(a, b any, depth int) bool {
	if a == false || b == false {
		return true
	}
	x, ok := p.visible(a)
	y, ok2 := p.visible(b)
	if !ok || !ok2 || depth > 10 {
		return false
	}
	overlap := false
	for _, t := range x.types {
		for _, u := range y.types {
			overlap = overlap || t == u || t == "integer" && u == "number" || t == "number" && u == "integer"
		}
	}
	if !overlap {
		return true
	}
	if x.values != nil && y.values != nil {
		if len(x.values)*len(y.values) > maxRules {
			return false
		}
		for _, v := range x.values {
			if slices.ContainsFunc(y.values, func(w any) bool { return sameJSON(v, w) }) {
				return false
			}
		}
		return true
	}
	// Objects that both must have a property, which cannot be the same.
	if len(x.types) != 1 || x.types[0] != "object" || len(y.types) != 1 || x.of == nil || y.of == nil {
		return false
	}
	both := make(map[string]bool)
	for _, k := range requiredOf(y.of) {
		both[k] = true
	}
	for _, k := range requiredOf(x.of) {
		if !both[k] {
			continue
		}
		u, ok := propertyOf(x.of, k)
		w, ok2 := propertyOf(y.of, k)
		if ok && ok2 && p.disjoint(u, w, depth+1) {
			return true
		}
	}
	return false
}

// visible is what can be seen of a schema's values at once.
type visible struct {
	types  []string
	values []any // nil: not a list of values
	of     *members
}

func (p *schemaParser) visible(s any) (visible, bool) {
	for range maxNesting {
		o, ok := s.(*members)
		if !ok {
			return visible{}, false
		}
		if ref, ok := o.get("$ref"); ok {
			to, _, err := p.resolve(ref, "")
			if err != nil {
				return visible{}, false
			}
			s = to
			continue
		}
		v := visible{of: o}
		if list, ok := o.get("enum"); ok {
			v.values, _ = list.([]any)
		}
		if c, ok := o.get("const"); ok {
			v.values = []any{c}
		}
		for _, e := range v.values {
			v.types = append(v.types, typeOf(e))
		}
		if t, ok := o.get("type"); ok && v.values == nil {
			types, err := typesOf(t, "")
			if err != nil {
				return visible{}, false
			}
			v.types = types
		}
		return v, v.types != nil
	}
	return visible{}, false
}

func requiredOf(o *members) []string {
	var names []string
	list, _ := o.get("required")
	items, _ := list.([]any)
	for _, e := range items {
		if s, ok := e.(string); ok {
			names = append(names, s)
		}
	}
	return names
}

func propertyOf(o *members, name string) (any, bool) {
	v, _ := o.get("properties")
	properties, ok := v.(*members)
	if !ok {
		return nil, false
	}
	return properties.get(name)
}

// exactly is one value. White space may stand in it where it may stand elsewhere.
func (p *schemaParser) exactly(v any, where string) (term, error) {
	switch v := v.(type) {
	case nil:
		return literal("null"), nil
	case bool:
		return literal(fmt.Sprint(v)), nil
	case string:
		return p.text(v), nil
	case json.Number:
		return literal(v.String()), nil
	case []any:
		items := make([]term, len(v))
		for i, e := range v {
			var err error
			if items[i], err = p.exactly(e, where); err != nil {
				return nil, err
			}
		}
		return p.bracketed("[", items, "]"), nil
	case *members:
		items := make([]term, len(v.keys))
		for i, k := range v.keys {
			e, err := p.exactly(v.values[k], where)
			if err != nil {
				return nil, err
			}
			items[i] = sequence{p.text(k), literal(":"), p.ws, e}
		}
		return p.bracketed("{", items, "}"), nil
	}
	return nil, errorf(ErrSyntax, where, "a value of no kind")
}

func (p *schemaParser) bracketed(open string, items []term, end string) term {
	s := sequence{literal(open), p.ws}
	for i, e := range items {
		if i > 0 {
			s = append(s, literal(","), p.ws)
		}
		s = append(s, e)
	}
	if len(items) > 0 {
		s = append(s, p.ws)
	}
	return append(s, literal(end))
}

// text is a string with the escapes that JSON needs.
func (p *schemaParser) text(s string) term {
	out := sequence{literal(`"`)}
	plain := ""
	for _, r := range s {
		if r >= ' ' && r != '"' && r != '\\' && r != 0x7f {
			plain += string(r)
			continue
		}
		out = append(out, literal(plain), written(class{{r, r}}))
		plain = ""
	}
	return append(out, literal(plain+`"`))
}

// any is every JSON value.
func (p *schemaParser) any() term {
	if n, ok := p.named["value"]; ok {
		return reference(n)
	}
	// Reserved before it is made, since it contains itself.
	p.set.names, p.set.rules = append(p.set.names, "value"), append(p.set.rules, nil)
	n := len(p.set.rules) - 1
	p.named["value"] = n
	p.set.rules[n] = choice{
		p.pairs(p.string(0, -1), reference(n)), p.series(reference(n), 0, -1), p.string(0, -1), anyNumber,
		literal("true"), literal("false"), literal("null"),
	}
	return reference(n)
}

// series is an array of items.
func (p *schemaParser) series(of term, least, most int) term {
	more := repeat{sequence{literal(","), p.ws, of}, max(least-1, 0), -1}
	if most > 0 {
		more.max = most - 1
	}
	inside := term(sequence{of, more, p.ws})
	switch {
	case most == 0:
		inside = literal("")
	case least == 0:
		inside = repeat{inside, 0, 1}
	}
	return sequence{literal("["), p.ws, inside, literal("]")}
}

// pairs is an object of any keys.
func (p *schemaParser) pairs(key, value term) term {
	pair := sequence{key, literal(":"), p.ws, value}
	more := repeat{sequence{literal(","), p.ws, pair}, 0, -1}
	return sequence{literal("{"), p.ws, repeat{sequence{pair, more, p.ws}, 0, 1}, literal("}")}
}
