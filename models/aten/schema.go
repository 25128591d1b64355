package aten

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/optimem/optimem/tensor"
)

// A schema is an op's signature as PyTorch writes it: "aten::softmax.int(Tensor self, int dim, ScalarType?
// dtype=None) -> Tensor". Nodes of exported programs leave default arguments out, so the text is the source of the
// defaults too.
type schema struct {
	// target is the op's name in an exported program: "torch.ops.aten.softmax.int".
	target string
	params []param
}

type param struct {
	name, typ string
	// value is the default; required says that there is none.
	value    any
	required bool
	// keywordOnly is set behind the schema's "*".
	keywordOnly bool
}

// parseSchema reads the text of a schema. It is for the tables of this package, so bad text is a bug.
func parseSchema(text string) schema {
	bad := func(why string) schema { panic("BUG: schema " + text + ": " + why) }
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
	s := schema{target: "torch.ops." + space + "." + name + "." + overload}
	keywordOnly := false
	for _, field := range splitParams(text[open+1 : end]) {
		if field == "*" {
			keywordOnly = true
			continue
		}
		p := param{required: true, keywordOnly: keywordOnly}
		if before, value, found := strings.Cut(field, "="); found {
			field, p.required = before, false
			v, err := parseDefault(value)
			if err != nil {
				return bad(err.Error())
			}
			p.value = v
		}
		space := strings.LastIndexByte(field, ' ')
		if space < 0 {
			return bad("parameter " + field)
		}
		p.typ, p.name = field[:space], field[space+1:]
		s.params = append(s.params, p)
	}
	return s
}

// positional counts the parameters that take arguments by position: those in front of the "*".
func (s schema) positional() int {
	if i := slices.IndexFunc(s.params, func(p param) bool { return p.keywordOnly }); i >= 0 {
		return i
	}
	return len(s.params)
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

// An atenOp is one overload: its schema and what it means in ops.
type atenOp struct {
	schema string
	build  func(c *call) error
}

// A Target is an atenOp whose schema is parsed.
type Target struct {
	schema schema
	build  func(c *call) error
}

// targets holds every overload that a program may call, by its name in an exported program.
var targets = func() map[string]Target {
	all := make(map[string]Target)
	for _, family := range [][]atenOp{
		reductionTargets, normTargets, indexTargets,
		linearTargets, factorTargets, attentionTargets, recurrentTargets, einsumTargets, encoderTargets,
		elementwiseTargets, createTargets, castTargets, viewTargets,
		convTargets, poolTargets, resampleTargets, complexTargets, fourierTargets, quantizeTargets, windowTargets,
		regionTargets, sizedTargets, detectorTargets,
	} {
		for _, op := range family {
			s := parseSchema(op.schema)
			if _, dup := all[s.target]; dup {
				panic("BUG: " + s.target + " is defined twice")
			}
			all[s.target] = Target{schema: s, build: op.build}
		}
	}
	return all
}()

// A number is a Python number in a call: an int, float64, bool or complex128, which decides type promotion.
type number = any

// NumberDType returns the dtype that PyTorch gives a bare Python number.
func NumberDType(n number) tensor.DType {
	switch n.(type) {
	case bool:
		return tensor.Bool
	case int:
		return tensor.Int64
	case complex128:
		return tensor.Complex64
	}
	return tensor.Float32
}

// Lookup returns the overload that an exported program calls by a name.
func Lookup(name string) (Target, bool) {
	t, ok := targets[name]
	return t, ok
}

// OnNumbers returns what an operator on numbers computes.
func OnNumbers(name string) (func(args []any) (any, error), bool) {
	f, ok := scalarTargets[name]
	return f, ok
}

// Position returns the place of a parameter, −1 where there is none of that name.
func (t Target) Position(name string) int {
	return slices.IndexFunc(t.schema.params, func(p param) bool { return p.name == name })
}

// Bind returns what each parameter is given, by name or by position, else its default.
func (t Target) Bind(args []any, named map[string]any) (map[string]any, error) {
	bound := make(map[string]any, len(t.schema.params))
	for i, p := range t.schema.params {
		v, given := named[p.name]
		if !given && i < len(args) {
			v, given = args[i], true
		}
		switch {
		case given:
			bound[p.name] = v
		case p.required:
			return nil, fmt.Errorf("argument %s is missing", p.name)
		default:
			bound[p.name] = p.value
		}
	}
	return bound, nil
}

// Call builds a call at a place of a program and returns its results. [Target.Bind] gives the arguments.
func (t Target) Call(b *Builder, at Site, args map[string]any) ([]any, error) {
	c := &call{Builder: b, Site: at, schema: t.schema, args: args}
	if err := t.run(c); err != nil {
		return nil, err
	}
	return c.results, nil
}

// Table returns what there is to say of each overload and each op known by name: "yes", "yes, on numbers", or that it is
// refused and why. It is what OPS.md is made of.
func Table() map[string]string {
	rows := make(map[string]string)
	for name, why := range refusals {
		rows["torch.ops."+name] = "refused: " + why
	}
	for name := range scalarTargets {
		rows[name] = "yes, on numbers"
	}
	for name := range targets {
		if !strings.HasPrefix(name, "torch.ops.optimem.") { // which no program calls
			rows[name] = "yes"
		}
	}
	return rows
}
