package call

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A Schema is an op's signature as PyTorch writes it: "aten::softmax.int(Tensor self, int dim, ScalarType?
// dtype=None) -> Tensor". Nodes of exported programs leave default arguments out, so the text is the source of the
// defaults too.
type Schema struct {
	// Target is the op's name in an exported program: "torch.ops.aten.softmax.int".
	Target string
	// Params are its parameters, in order.
	Params []Param
}

// A Param is a parameter of a schema.
type Param struct {
	// Name and Type are as PyTorch writes them: "dim", "int[1]?".
	Name, Type string
	// Value is the default; Required says that there is none.
	Value    any
	Required bool
	// KeywordOnly is set behind the schema's "*".
	KeywordOnly bool
}

// ParseSchema reads the text of a schema. It is for the tables of overloads, so bad text is a bug.
func ParseSchema(text string) Schema {
	bad := func(why string) Schema { panic("BUG: schema " + text + ": " + why) }
	open := strings.IndexByte(text, '(')
	end := strings.LastIndex(text, ") ->")
	if open < 0 || end < open {
		return bad("no parentheses")
	}
	space, name, ok := strings.Cut(text[:open], "::")
	if !ok {
		return bad("no namespace")
	}
	name, overload, ok := strings.Cut(name, ".")
	if !ok {
		overload = "default"
	}
	s := Schema{Target: "torch.ops." + space + "." + name + "." + overload}
	keywordOnly := false
	for _, field := range splitParams(text[open+1 : end]) {
		if field == "*" {
			keywordOnly = true
			continue
		}
		p := Param{Required: true, KeywordOnly: keywordOnly}
		if before, value, found := strings.Cut(field, "="); found {
			field, p.Required = before, false
			v, err := parseDefault(value)
			if err != nil {
				return bad(err.Error())
			}
			p.Value = v
		}
		space := strings.LastIndexByte(field, ' ')
		if space < 0 {
			return bad("parameter " + field)
		}
		p.Type, p.Name = field[:space], field[space+1:]
		s.Params = append(s.Params, p)
	}
	return s
}

// Positional counts the parameters that take arguments by position: those in front of the "*".
func (s Schema) Positional() int {
	if i := slices.IndexFunc(s.Params, func(p Param) bool { return p.KeywordOnly }); i >= 0 {
		return i
	}
	return len(s.Params)
}

// splitParams splits at the commas that are not inside brackets.
func splitParams(list string) []string {
	var fields []string
	depth, start := 0, 0
	for i := range len(list) {
		switch list[i] {
		case '(', '[':
			depth++
		case ')', ']':
			depth--
		case ',':
			if depth == 0 {
				fields = append(fields, strings.TrimSpace(list[start:i]))
				start = i + 1
			}
		}
	}
	if last := strings.TrimSpace(list[start:]); last != "" {
		fields = append(fields, last)
	}
	return fields
}

// parseDefault reads a default value as the arguments of a call hold it.
func parseDefault(text string) (any, error) {
	switch text {
	case "None":
		return nil, nil
	case "True":
		return true, nil
	case "False":
		return false, nil
	case "contiguous_format", "long", "strided", "Mean":
		return text, nil
	}
	if strings.HasPrefix(text, "\"") || strings.HasPrefix(text, "'") {
		return text[1 : len(text)-1], nil
	}
	if inner, ok := strings.CutPrefix(text, "["); ok {
		inner = strings.TrimSuffix(inner, "]")
		list := []int{}
		for _, f := range splitParams(inner) {
			n, err := strconv.Atoi(f)
			if err != nil {
				return nil, fmt.Errorf("default %s", text)
			}
			list = append(list, n)
		}
		return list, nil
	}
	if n, err := strconv.Atoi(text); err == nil {
		return n, nil
	}
	if x, err := strconv.ParseFloat(text, 64); err == nil {
		return x, nil
	}
	return nil, fmt.Errorf("default %s", text)
}

// Has reports whether the schema has a parameter.
func (s Schema) Has(name string) bool {
	return slices.ContainsFunc(s.Params, func(p Param) bool { return p.Name == name })
}

// BaseName returns the name of an overload without its namespace and the overload's own: "mul".
func BaseName(target string) string {
	name := target[:strings.LastIndexByte(target, '.')]
	return name[strings.LastIndexByte(name, '.')+1:]
}
