package grammar

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// typed is a schema's values of one type.
func (p *schemaParser) typed(t string, s *members, where string, depth int) (term, error) {
	switch t {
	case "null":
		return literal("null"), nil
	case "boolean":
		return choice{literal("true"), literal("false")}, nil
	case "string":
		return p.stringType(s, where)
	case "integer", "number":
		return numberType(t == "integer", s, where)
	case "array":
		return p.arrayType(s, where, depth)
	}
	return p.objectType(s, where, depth)
}

// count reads a keyword that is a small number; -1 if it is not there.
func count(s *members, key, where string) (int, error) {
	v, ok := s.get(key)
	if !ok {
		return -1, nil
	}
	n, isNumber := v.(json.Number)
	r, ok := rational(n)
	if !isNumber || !ok || !r.IsInt() || r.Sign() < 0 {
		return 0, errorf(ErrSyntax, pointer(where, key), "must be a number from 0 on")
	}
	if !r.Num().IsInt64() || r.Num().Int64() > maxRepeats {
		return 0, errorf(ErrLimit, pointer(where, key), "more than %d", maxRepeats)
	}
	return int(r.Num().Int64()), nil
}

// limits reads a least and a most.
func limits(s *members, least, most, where string) (int, int, error) {
	lo, err := count(s, least, where)
	if err != nil {
		return 0, 0, err
	}
	hi, err := count(s, most, where)
	return max(lo, 0), hi, err
}

var (
	// plain are the characters that stand for themselves in a JSON string.
	plain    = class{{' ', '!'}, {'#', '['}, {']', 0x7e}, {0x80, utf8.MaxRune}}
	hexDigit = class{{'0', '9'}, {'A', 'F'}, {'a', 'f'}}
	digit    = class{{'0', '9'}}
	one9     = class{{'1', '9'}}
	anyShort = class{{'"', '"'}, {'/', '/'}, {'\\', '\\'}, {'b', 'b'}, {'f', 'f'}, {'n', 'n'}, {'r', 'r'}, {'t', 't'}}
)

func times(t term, n int) term { return repeat{t, n, n} }

// anyEscaped is any character of a JSON string. An escape of two surrogates is one character, and half of it none.
var anyEscaped = choice{
	plain, literal("\x7f"), sequence{literal(`\`), anyShort},
	sequence{literal(`\u`), choice{
		sequence{class{{'0', '9'}, {'A', 'C'}, {'E', 'F'}, {'a', 'c'}, {'e', 'f'}}, times(hexDigit, 3)},
		sequence{class{{'D', 'D'}, {'d', 'd'}}, class{{'0', '7'}}, times(hexDigit, 2)},
		sequence{class{{'D', 'D'}, {'d', 'd'}}, class{{'8', '9'}, {'A', 'B'}, {'a', 'b'}}, times(hexDigit, 2), literal(
			`\u`,
		),
			class{{'D', 'D'}, {'d', 'd'}}, class{{'C', 'F'}, {'c', 'f'}}, times(hexDigit, 2)},
	}},
}

// string is a string of some length in characters.
func (p *schemaParser) string(least, most int) term {
	return sequence{literal(`"`), repeat{anyEscaped, least, most}, literal(`"`)}
}

// written is the characters of a class as a JSON string has them: as they are, or in the shortest escape.
func written(c class) term {
	var all choice
	if direct := c.without(plain.not()); len(direct) > 0 {
		all = append(all, direct)
	}
	short := map[rune]string{
		'"': `\"`, '\\': `\\`, '\n': `\n`, '\r': `\r`, '\t': `\t`, '\b': `\b`, '\f': `\f`, 0x7f: "\x7f",
	}
	for _, r := range c.without(plain) {
		for ch := r.lo; ch <= r.hi && ch < 0x80; ch++ {
			e, ok := short[ch]
			if !ok {
				e = fmt.Sprintf(`\u%04x`, ch)
			}
			all = append(all, literal(e))
		}
	}
	return all
}

func (p *schemaParser) stringType(s *members, where string) (term, error) {
	least, most, err := limits(s, "minLength", "maxLength", where)
	if err != nil {
		return nil, err
	}
	_, hasLeast := s.get("minLength")
	sized := hasLeast || most >= 0
	pattern, hasPattern := s.get("pattern")
	format, hasFormat := s.get("format")
	switch {
	case hasPattern && (sized || hasFormat):
		return nil, errorf(ErrUnsupported, pointer(where, "pattern"), "beside minLength, maxLength or format")
	case hasFormat && sized:
		return nil, errorf(ErrUnsupported, pointer(where, "format"), "beside minLength or maxLength")
	case hasPattern:
		text, ok := pattern.(string)
		if !ok {
			return nil, errorf(ErrSyntax, pointer(where, "pattern"), "must be a string")
		}
		t, err := parsePattern(text, pointer(where, "pattern"))
		return sequence{literal(`"`), t, literal(`"`)}, err
	case hasFormat:
		t := formats[fmt.Sprint(format)]
		if t == nil {
			return nil, errorf(ErrUnsupported, pointer(where, "format"), "the format %v", format)
		}
		return sequence{literal(`"`), t, literal(`"`)}, nil
	case most >= 0 && most < least:
		return choice{}, nil
	}
	return p.string(least, most), nil
}

func (p *schemaParser) arrayType(s *members, where string, depth int) (term, error) {
	least, most, err := limits(s, "minItems", "maxItems", where)
	if err != nil {
		return nil, err
	}
	if most >= 0 && most < least {
		return choice{}, nil
	}
	var first []any
	if v, ok := s.get("prefixItems"); ok {
		if first, ok = v.([]any); !ok {
			return nil, errorf(ErrSyntax, pointer(where, "prefixItems"), "must be a list of schemas")
		}
	}
	prefix := make([]term, len(first))
	for i, e := range first {
		if prefix[i], err = p.schema(e, fmt.Sprintf("%s/%d", pointer(where, "prefixItems"), i), depth+1); err != nil {
			return nil, err
		}
	}
	items, ok := s.get("items")
	if _, isList := items.([]any); isList {
		return nil, errorf(ErrUnsupported, pointer(where, "items"), "a list, which is prefixItems by now")
	}
	rest := p.any()
	if ok {
		if rest, err = p.schema(items, pointer(where, "items"), depth+1); err != nil {
			return nil, err
		}
	}
	if len(prefix) == 0 {
		return p.series(rest, least, most), nil
	}
	// From the last item backwards: what may follow after so many.
	var after term
	if most < 0 || most > len(prefix) {
		r := repeat{sequence{literal(","), p.ws, rest}, max(least-len(prefix), 0), -1}
		if most >= 0 {
			r.max = most - len(prefix)
		}
		after = r
	} else {
		after = literal("")
	}
	for i := len(prefix) - 1; i >= 0; i-- {
		if most >= 0 && i >= most {
			continue
		}
		item := sequence{prefix[i], after}
		if i > 0 {
			item = append(sequence{literal(","), p.ws}, item...)
		}
		after = item
		if i >= least {
			after = repeat{item, 0, 1}
		}
	}
	if most == 0 {
		after = literal("")
	}
	return sequence{literal("["), p.ws, after, p.ws, literal("]")}, nil
}

func (p *schemaParser) objectType(s *members, where string, depth int) (term, error) {
	v, hasProperties := s.get("properties")
	properties, ok := v.(*members)
	if hasProperties && !ok {
		return nil, errorf(ErrSyntax, pointer(where, "properties"), "must be an object of schemas")
	}
	if properties == nil {
		properties = &members{}
	}
	required := requiredOf(s)
	if v, ok := s.get("required"); ok {
		if list, ok := v.([]any); !ok || len(list) != len(required) {
			return nil, errorf(ErrSyntax, pointer(where, "required"), "must be a list of strings")
		}
	}
	needed := make(map[string]bool)
	for _, k := range required {
		needed[k] = true
	}
	var pairs []term
	var must []bool
	for _, k := range properties.keys {
		value, err := p.schema(properties.values[k], pointer(pointer(where, "properties"), k), depth+1)
		if err != nil {
			return nil, err
		}
		pairs = append(pairs, sequence{p.text(k), literal(":"), p.ws, value})
		must = append(must, needed[k])
	}
	// Further properties: those that must be there, and then any.
	additional, given := s.get("additionalProperties")
	if !given {
		additional = !hasProperties
	}
	var further term
	names := slices.Clone(properties.keys)
	if additional != false {
		value, err := p.schema(additional, pointer(where, "additionalProperties"), depth+1)
		if err != nil {
			return nil, err
		}
		for _, k := range required {
			if _, ok := properties.values[k]; !ok && needed[k] {
				needed[k] = false // once, if it is listed twice
				names = append(names, k)
				pairs = append(pairs, sequence{p.text(k), literal(":"), p.ws, value})
				must = append(must, true)
			}
		}
		if len(names) == 0 {
			return p.pairs(p.string(0, -1), value), nil
		}
		for _, k := range names {
			if len(k) > maxKeyBytes {
				return nil, errorf(ErrLimit, where, "a property's name of %d bytes", len(k))
			}
		}
		further = sequence{otherKey(names), literal(":"), p.ws, value}
	}
	for _, k := range required {
		if _, ok := properties.values[k]; !ok && further == nil {
			return choice{}, nil // it must be there and may not
		}
	}
	return p.members(pairs, must, further)
}

// members is an object of pairs in their order, of which some must be there, and of further ones after them.
func (p *schemaParser) members(pairs []term, must []bool, further term) (term, error) {
	comma := sequence{literal(","), p.ws}
	// tail is what may come from pair i on, once something came before. Rules keep it linear.
	tail := term(literal(""))
	if further != nil {
		tail = repeat{sequence{comma, further}, 0, -1}
	}
	tails := make([]term, len(pairs)+1)
	tails[len(pairs)] = tail
	for i := len(pairs) - 1; i >= 0; i-- {
		item := term(sequence{comma, pairs[i]})
		if !must[i] {
			item = repeat{item, 0, 1}
		}
		n, err := p.rule("members", sequence{item, tails[i+1]})
		if err != nil {
			return nil, err
		}
		tails[i] = reference(n)
	}
	// The first that is there has no comma before it.
	var start choice
	empty := true
	for i := range pairs {
		start = append(start, sequence{pairs[i], tails[i+1]})
		if must[i] {
			empty = false
			break
		}
	}
	if empty && further != nil {
		start = append(start, sequence{further, tails[len(pairs)]})
	}
	inside := term(sequence{start, p.ws})
	if empty {
		inside = repeat{inside, 0, 1}
	}
	return sequence{literal("{"), p.ws, inside, literal("}")}, nil
}

// otherKey is a key that is none of the names, without escapes.
func otherKey(names []string) term {
	sorted := slices.Clone(names)
	slices.Sort(sorted)
	return sequence{literal(`"`), otherThan(sorted), literal(`"`)}
}

// otherThan is every run of plain characters but some, which are sorted.
func otherThan(names []string) term {
	names = slices.Compact(names)
	taken := len(names) > 0 && names[0] == ""
	if taken {
		names = names[1:]
	}
	var all choice
	if !taken {
		all = append(all, literal(""))
	}
	var firsts class
	for len(names) > 0 {
		r, n := utf8.DecodeRuneInString(names[0])
		head := names[0][:n]
		var rests []string
		for len(names) > 0 && strings.HasPrefix(names[0], head) {
			rests = append(rests, names[0][n:])
			names = names[1:]
		}
		firsts = append(firsts, runeRange{r, r})
		if plain.has(r) {
			all = append(all, sequence{literal(head), otherThan(rests)})
		}
	}
	return append(all, sequence{plain.without(firsts.tidy()), repeat{plain, 0, -1}})
}
