package template

import (
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/optimem/optimem/text/template/internal/python"
)

// A filterFunc has the filtered value as its first argument.
type filterFunc func(in *interp, args []any, kwargs *Object) (any, error)

var filters map[string]filterFunc

func init() {
	filters = map[string]filterFunc{
		"abs": absFilter, "attr": attrFilter, "batch": batchFilter,
		"capitalize": textFilter(python.Capitalize), "center": centerFilter, "count": lengthFilter,
		"d": defaultFilter, "default": defaultFilter, "dictsort": dictsortFilter, "e": escapeFilter,
		"escape": escapeFilter, "first": firstFilter, "float": floatFilter, "forceescape": forceescapeFilter,
		"format": formatFilter, "groupby": groupbyFilter, "indent": indentFilter, "int": intFilter,
		"items": itemsFilter, "join": joinFilter, "last": lastFilter, "length": lengthFilter,
		"list": listFilter, "lower": textFilter(python.Lower), "map": mapFilter, "max": extreme(">"),
		"min": extreme("<"), "reject": selectFilter(false, false), "rejectattr": selectFilter(false, true),
		"replace": replaceFilter, "reverse": reverseFilter, "round": roundFilter, "safe": safeFilter,
		"select": selectFilter(true, false), "selectattr": selectFilter(true, true), "slice": sliceFilter,
		"sort": sortFilter, "string": textFilter(func(s string) string { return s }), "sum": sumFilter,
		"title": textFilter(python.TitleWords), "tojson": toJSON, "trim": trimFilter, "truncate": truncateFilter,
		"unique": uniqueFilter, "upper": textFilter(python.Upper), "wordcount": wordcountFilter,
	}
}

// filtered applies a chain of filters that a block has, whose innermost value is the block's text.
func (in *interp) filtered(e expr, text any, sc *scope) (any, error) {
	f, ok := e.(*filterExpr)
	if !ok {
		return text, nil
	}
	v, err := in.filtered(f.of, text, sc)
	if err != nil {
		return nil, err
	}
	return in.applyFilter(f, v, sc)
}

func (in *interp) applyFilter(e *filterExpr, v any, sc *scope) (any, error) {
	args, kwargs, err := in.arguments(&e.args, sc)
	if err != nil {
		return nil, err
	}
	v, err = in.filter(e.name, v, args, kwargs)
	return v, at(e.line, err)
}

func (in *interp) filter(name string, v any, args []any, kwargs *Object) (any, error) {
	f, ok := filters[name]
	if !ok {
		return nil, noFilter(name)
	}
	result, err := f(in, join([]any{v}, args), kwargs)
	if _, marked := v.(markup); marked && slices.Contains(keepMarkup, name) {
		result = remark(result)
	}
	return result, err
}

func noFilter(name string) error {
	if slices.Contains(omitted, name) {
		return errorf(ErrUnsupported, "the filter '%s'", name)
	}
	return errorf(ErrSyntax, "no filter named '%s'", name)
}

// omitted are filters of jinja2 that no chat template was seen to use.
var omitted = []string{"filesizeformat", "pprint", "random", "striptags", "urlencode", "urlize", "wordwrap", "xmlattr"}

// keepMarkup are the filters that make markup of markup.
var keepMarkup = []string{"capitalize", "center", "lower", "string", "trim", "upper", "reverse", "truncate", "indent", "format"}

// textFilter makes a filter of a function on the value's text.
func textFilter(f func(string) string) filterFunc {
	return func(in *interp, args []any, kwargs *Object) (any, error) {
		p, err := bind("the filter", args, kwargs, "s")
		if err != nil {
			return nil, err
		}
		s, err := in.str(p[0])
		if err != nil {
			return nil, err
		}
		return f(s), in.take(2 * len(s))
	}
}

func absFilter(_ *interp, args []any, kwargs *Object) (any, error) {
	p, err := bind("abs", args, kwargs, "x")
	if err != nil {
		return nil, err
	}
	switch v := p[0].(type) {
	case float64:
		return math.Abs(v), nil
	case *undefined:
		return nil, v.fail()
	}
	b, ok := bigInteger(p[0])
	if !ok {
		return nil, errorf(ErrRender, "bad operand type for abs(): '%s'", typeName(p[0]))
	}
	return small(new(big.Int).Abs(b)), nil
}

func attrFilter(in *interp, args []any, kwargs *Object) (any, error) {
	p, err := bind("attr", args, kwargs, "obj name")
	if err != nil {
		return nil, err
	}
	name, err := wantString("attr", p[1])
	if err != nil {
		return nil, err
	}
	if u, ok := p[0].(*undefined); ok {
		return nil, u.fail()
	}
	if v, ok, err := in.pythonAttr(p[0], name); ok || err != nil {
		return v, err
	}
	return missing(p[0], name), nil
}

func centerFilter(in *interp, args []any, kwargs *Object) (any, error) {
	p, err := bind("center", args, kwargs, "value / width")
	if err != nil {
		return nil, err
	}
	s, err := in.str(p[0])
	if err != nil {
		return nil, err
	}
	width, err := wantInt("center", or(p[1], int64(80)))
	if err != nil {
		return nil, err
	}
	return in.pad(s, width, " ", true, true)
}

func lengthFilter(_ *interp, args []any, kwargs *Object) (any, error) {
	p, err := bind("length", args, kwargs, "obj")
	if err != nil {
		return nil, err
	}
	n, ok, err := length(p[0])
	if err == nil && !ok {
		err = errorf(ErrRender, "object of type '%s' has no len()", typeName(p[0]))
	}
	return n, err
}

func defaultFilter(_ *interp, args []any, kwargs *Object) (any, error) {
	p, err := bindRaw("default", args, kwargs, "value / default_value boolean")
	if err != nil {
		return nil, err
	}
	if isUndefined(p[0]) {
		return or(p[1], ""), nil
	}
	boolean, err := truth(or(p[2], false))
	if err != nil || !boolean {
		return p[0], err
	}
	if ok, err := truth(p[0]); ok || err != nil {
		return p[0], err
	}
	return or(p[1], ""), nil
}

// sortBy sorts items by keys, stably, as Python's sorted does.
func (in *interp) sortBy(items, keys []any, reverse bool) ([]any, error) {
	order := make([]int, len(items))
	for i := range order {
		order[i] = i
	}
	var failed error
	less := func(i, j int) bool {
		if failed != nil {
			return false
		}
		if failed = in.step(); failed != nil {
			return false
		}
		ok, err := in.ordered("<", keys[i], keys[j], 0)
		if err != nil {
			failed = err
		}
		return ok
	}
	slices.SortStableFunc(order, func(i, j int) int {
		if reverse {
			i, j = j, i
		}
		switch {
		case less(i, j):
			return -1
		case less(j, i):
			return 1
		}
		return 0
	})
	sorted := make([]any, len(items))
	for i, o := range order {
		sorted[i] = items[o]
	}
	return sorted, failed
}

func ignoreCase(v any) any {
	if s, ok := v.(string); ok {
		return python.Lower(s)
	}
	return v
}

func dictsortFilter(in *interp, args []any, kwargs *Object) (any, error) {
	p, err := bind("dictsort", args, kwargs, "value / case_sensitive by reverse")
	if err != nil {
		return nil, err
	}
	var pos int
	switch or(p[2], "key") {
	case "key":
	case "value":
		pos = 1
	default:
		return nil, errorf(ErrRender, `you can only sort by either "key" or "value"`)
	}
	o, ok := p[0].(*Object)
	if !ok {
		if u, ok := p[0].(*undefined); ok {
			return nil, u.fail()
		}
		return nil, errorf(ErrRender, "'%s' object has no attribute 'items'", typeName(p[0]))
	}
	sensitive, err := truth(or(p[1], false))
	if err != nil {
		return nil, err
	}
	reverse, err := truth(or(p[3], false))
	if err != nil {
		return nil, err
	}
	items := (&view{o, "items"}).items()
	keys := make([]any, len(items))
	for i, e := range items {
		if keys[i] = e.(*tuple).items[pos]; !sensitive {
			keys[i] = ignoreCase(keys[i])
		}
	}
	sorted, err := in.sortBy(items, keys, reverse)
	if err != nil {
		return nil, err
	}
	return &list{sorted}, in.take(48 * len(items))
}

var escaper = strings.NewReplacer("&", "&amp;", ">", "&gt;", "<", "&lt;", "'", "&#39;", `"`, "&#34;")

func escapeFilter(in *interp, args []any, kwargs *Object) (any, error) {
	p, err := bindRaw("escape", args, kwargs, "s")
	if err != nil {
		return nil, err
	}
	s, err := in.escaped(p[0])
	return markup(s), err
}

func forceescapeFilter(in *interp, args []any, kwargs *Object) (any, error) {
	p, err := bind("forceescape", args, kwargs, "value")
	if err != nil {
		return nil, err
	}
	s, err := in.escaped(p[0])
	return markup(s), err
}

func safeFilter(in *interp, args []any, kwargs *Object) (any, error) {
	p, err := bind("safe", args, kwargs, "value")
	if err != nil {
		return nil, err
	}
	s, err := in.str(p[0])
	return markup(s), err
}

func firstFilter(in *interp, args []any, kwargs *Object) (any, error) {
	p, err := bind("first", args, kwargs, "seq")
	if err != nil {
		return nil, err
	}
	it, err := in.iter(p[0])
	if err != nil {
		return nil, err
	}
	v, ok, err := it.next()
	if err == nil && !ok {
		v = &undefined{text: "no first item, sequence was empty"}
	}
	return v, err
}

// reversed is the items of a value that can be walked backwards.
func (in *interp) reversed(v any) ([]any, bool, error) {
	switch v.(type) {
	case string, *list, *tuple, *Object, *view, *span, *undefined:
		items, err := in.collect(v)
		slices.Reverse(items)
		return items, true, err
	}
	return nil, false, nil
}

func lastFilter(in *interp, args []any, kwargs *Object) (any, error) {
	p, err := bind("last", args, kwargs, "seq")
	if err != nil {
		return nil, err
	}
	items, ok, err := in.reversed(p[0])
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, errorf(ErrRender, "'%s' object is not reversible", typeName(p[0]))
	case len(items) == 0:
		return &undefined{text: "no last item, sequence was empty"}, nil
	}
	return items[0], nil
}

func reverseFilter(in *interp, args []any, kwargs *Object) (any, error) {
	p, err := bind("reverse", args, kwargs, "value")
	if err != nil {
		return nil, err
	}
	items, ok, err := in.reversed(p[0])
	if err != nil {
		return nil, err
	}
	if s, isString := p[0].(string); isString {
		var b strings.Builder
		for _, e := range items {
			b.WriteString(e.(string))
		}
		return b.String(), in.take(len(s))
	}
	if !ok {
		if items, err = in.collect(p[0]); err != nil {
			return nil, err
		}
		slices.Reverse(items)
		return &list{items}, nil
	}
	it, err := in.iter(&list{items})
	if err != nil {
		return nil, err
	}
	it.name = "list_reverseiterator"
	return it, nil
}

// parseFloat is float(v). false is a TypeError or a ValueError.
func parseFloat(v any) (float64, bool) {
	s, ok := v.(string)
	if !ok {
		return number(v)
	}
	s = strings.TrimFunc(s, python.IsSpace)
	clean, ok := plainDigits(s)
	if !ok || strings.ContainsAny(clean, "xXpP") {
		return 0, false
	}
	switch strings.ToLower(strings.TrimLeft(clean, "+-")) {
	case "inf", "infinity", "nan":
		if strings.Count(clean, "+")+strings.Count(clean, "-") > 1 {
			return 0, false
		}
	}
	f, err := strconv.ParseFloat(strings.TrimPrefix(clean, "+"), 64)
	if err != nil && isRange(err) {
		return f, true
	}
	if err != nil {
		if strings.EqualFold(strings.TrimLeft(clean, "+-"), "nan") {
			return math.NaN(), true
		}
		return 0, false
	}
	return f, true
}

// plainDigits takes underscores between digits out. false: one is where Python has none.
func plainDigits(s string) (string, bool) {
	if len(s) > 4300 {
		return "", false
	}
	for i := range len(s) {
		isDigit := func(j int) bool {
			return j >= 0 && j < len(s) && (s[j] >= '0' && s[j] <= '9' || s[j]|0x20 >= 'a' && s[j]|0x20 <= 'z')
		}
		if s[i] == '_' && (!isDigit(i-1) || !isDigit(i+1)) {
			return "", false
		}
	}
	return strings.ReplaceAll(s, "_", ""), true
}

func floatFilter(_ *interp, args []any, kwargs *Object) (any, error) {
	p, err := bind("float", args, kwargs, "value / default")
	if err != nil {
		return nil, err
	}
	if u, ok := p[0].(*undefined); ok {
		return nil, u.fail()
	}
	if f, ok := parseFloat(p[0]); ok {
		return f, nil
	}
	return or(p[1], 0.0), nil
}

func intFilter(_ *interp, args []any, kwargs *Object) (any, error) {
	p, err := bind("int", args, kwargs, "value / default base")
	if err != nil {
		return nil, err
	}
	base, err := wantInt("int", or(p[2], int64(10)))
	if err != nil {
		return nil, err
	}
	if base < 0 || base == 1 || base > 36 {
		base = 10
	}
	switch v := p[0].(type) {
	case *undefined:
		return nil, v.fail()
	case float64:
		n, err := truncate(v)
		if err != nil && math.IsInf(v, 0) {
			return nil, err // an OverflowError, which the filter does not expect here
		}
		if err != nil {
			return or(p[1], int64(0)), nil
		}
		return n, nil
	case string:
		s := strings.TrimFunc(v, python.IsSpace)
		clean, ok := plainDigits(s)
		if ok && clean != "" && !(base == 0 && strings.Contains(clean, "_")) {
			digits := strings.TrimLeft(clean, "+-")
			if len(clean)-len(digits) <= 1 {
				prefix := map[int64]string{2: "0b", 8: "0o", 16: "0x"}[base]
				if prefix != "" && strings.HasPrefix(strings.ToLower(digits), prefix) {
					digits = digits[2:]
				}
				n, ok := new(big.Int).SetString(digits, int(base))
				if ok && digits != "" && digits[0] != '+' && digits[0] != '-' {
					if clean[0] == '-' {
						n.Neg(n)
					}
					return small(n), nil
				}
			}
		}
	default:
		if n, ok := bigInteger(v); ok {
			return small(n), nil
		}
	}
	if f, ok := parseFloat(p[0]); ok {
		if n, err := truncate(f); err == nil {
			return n, nil
		}
	}
	return or(p[1], int64(0)), nil
}

func formatFilter(in *interp, args []any, kwargs *Object) (any, error) {
	if m, ok := args[0].(markup); ok && kwargs.Len() == 0 {
		return in.binary("%", m, &tuple{args[1:]})
	}
	s, err := in.str(args[0])
	if err != nil {
		return nil, err
	}
	if len(args) > 1 && kwargs.Len() > 0 {
		return nil, errorf(ErrRender, "can't handle positional and keyword arguments at the same time")
	}
	if kwargs.Len() > 0 {
		return in.percent(s, kwargs)
	}
	return in.percent(s, &tuple{args[1:]})
}

func indentFilter(in *interp, args []any, kwargs *Object) (any, error) {
	p, err := bind("indent", args, kwargs, "s / width first blank")
	if err != nil {
		return nil, err
	}
	if u, ok := p[0].(*undefined); ok {
		return nil, u.fail()
	}
	s, err := wantString("indent", p[0])
	if err != nil {
		return nil, err
	}
	with, ok := or(p[1], nil).(string)
	if !ok {
		n, err := wantInt("indent", or(p[1], int64(4)))
		if err != nil {
			return nil, err
		}
		if n > maxPrecision {
			return nil, errorf(ErrLimit, "an indent of %d", n)
		}
		with = strings.Repeat(" ", int(max(n, 0)))
	}
	first, err := truth(or(p[2], false))
	if err != nil {
		return nil, err
	}
	blank, err := truth(or(p[3], false))
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	for i, line := range python.SplitLines(s+"\n", false) {
		if i > 0 {
			b.WriteByte('\n')
		}
		if i == 0 && first || i > 0 && (blank || line != "") {
			b.WriteString(with)
		}
		b.WriteString(line)
		if err := in.take(1 + len(with) + len(line)); err != nil {
			return nil, err
		}
	}
	return b.String(), nil
}

func itemsFilter(in *interp, args []any, kwargs *Object) (any, error) {
	p, err := bind("items", args, kwargs, "value")
	if err != nil {
		return nil, err
	}
	var items []any
	switch v := p[0].(type) {
	case *undefined:
	case *Object:
		items = (&view{v, "items"}).items()
	default:
		return &iterator{name: "generator", next: func() (any, bool, error) {
			return nil, false, errorf(ErrRender, "can only get item pairs from a mapping")
		}}, nil
	}
	it, err := in.iter(&list{items})
	if err == nil {
		it.name = "generator"
	}
	return it, err
}

func replaceFilter(in *interp, args []any, kwargs *Object) (any, error) {
	p, err := bind("replace", args, kwargs, "s old new / count")
	if err != nil {
		return nil, err
	}
	var s [3]string
	for i := range s {
		if s[i], err = in.str(p[i]); err != nil {
			return nil, err
		}
	}
	count := or(p[3], nil)
	if count == nil {
		count = int64(-1)
	}
	n, err := wantInt("replace", count)
	if err != nil {
		return nil, err
	}
	return in.replace(s[0], s[1], s[2], n)
}

func roundFilter(in *interp, args []any, kwargs *Object) (any, error) {
	p, err := bind("round", args, kwargs, "value / precision method")
	if err != nil {
		return nil, err
	}
	how := or(p[2], "common")
	if how != "common" && how != "ceil" && how != "floor" {
		return nil, errorf(ErrRender, "method must be common, ceil or floor")
	}
	precision, err := wantInt("round", or(p[1], int64(0)))
	if err != nil {
		return nil, err
	}
	if u, ok := p[0].(*undefined); ok {
		return nil, u.fail()
	}
	if precision > 300 || precision < -300 {
		return nil, errorf(ErrLimit, "a precision of %d", precision)
	}
	b, isInt := bigInteger(p[0])
	f, ok := number(p[0])
	if !ok {
		return nil, errorf(ErrRender, "type %s doesn't define __round__", typeName(p[0]))
	}
	if how != "common" {
		power, err := in.binary("**", int64(10), precision)
		if err != nil {
			return nil, err
		}
		scaled, err := in.binary("*", p[0], power)
		if err != nil {
			return nil, err
		}
		g, _ := number(scaled)
		if how == "ceil" {
			g = math.Ceil(g)
		} else {
			g = math.Floor(g)
		}
		n, err := truncate(g)
		if err != nil {
			return nil, err
		}
		return in.binary("/", n, power)
	}
	if isInt {
		if precision >= 0 {
			return small(b), nil
		}
		return roundInt(b, -precision), nil
	}
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return f, nil
	}
	if precision < 0 {
		exact, _ := new(big.Float).SetFloat64(f).Rat(nil)
		unit := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(-precision), nil))
		q := new(big.Rat).Quo(exact, unit)
		n, _ := number(small(roundRat(q)))
		u, _ := unit.Float64()
		return math.Copysign(math.Abs(n*u), f), nil
	}
	g, err := strconv.ParseFloat(strconv.FormatFloat(f, 'f', int(precision), 64), 64)
	if err != nil {
		return nil, errorf(ErrRender, "rounding: %v", err)
	}
	return g, nil
}

// roundRat rounds to the nearest integer, halves to even.
func roundRat(q *big.Rat) *big.Int {
	two := big.NewInt(2)
	num := new(big.Int).Add(new(big.Int).Mul(q.Num(), two), q.Denom())
	den := new(big.Int).Mul(q.Denom(), two)
	n, m := new(big.Int).DivMod(num, den, new(big.Int))
	if m.Sign() == 0 && n.Bit(0) == 1 {
		n.Sub(n, big.NewInt(1))
	}
	return n
}

func roundInt(b *big.Int, digits int64) any {
	unit := new(big.Int).Exp(big.NewInt(10), big.NewInt(digits), nil)
	return small(new(big.Int).Mul(roundRat(new(big.Rat).SetFrac(b, unit)), unit))
}

func trimFilter(in *interp, args []any, kwargs *Object) (any, error) {
	p, err := bind("trim", args, kwargs, "value / chars")
	if err != nil {
		return nil, err
	}
	s, err := in.str(p[0])
	if err != nil {
		return nil, err
	}
	return stripper(strings.TrimFunc)(in, s, []any{or(p[1], nil)}, NewObject())
}

func truncateFilter(in *interp, args []any, kwargs *Object) (any, error) {
	p, err := bind("truncate", args, kwargs, "s / length killwords end leeway")
	if err != nil {
		return nil, err
	}
	n, err := wantInt("truncate", or(p[1], int64(255)))
	if err != nil {
		return nil, err
	}
	kill, err := truth(or(p[2], false))
	if err != nil {
		return nil, err
	}
	end, err := wantString("truncate", or(p[3], "..."))
	if err != nil {
		return nil, err
	}
	leeway, err := wantInt("truncate", or(p[4], int64(5)))
	if err != nil {
		return nil, err
	}
	room := n - int64(runeCount(end))
	if room < 0 || leeway < 0 {
		return nil, errorf(ErrRender, "expected a length of at least %d", runeCount(end))
	}
	size, ok, err := length(p[0])
	if err != nil {
		return nil, err
	}
	if ok && size <= n+leeway {
		return p[0], nil
	}
	s, err := wantString("truncate", p[0])
	if err != nil {
		return nil, err
	}
	s = python.Truncated(s, int(room))
	if i := strings.LastIndexByte(s, ' '); i >= 0 && !kill {
		s = s[:i]
	}
	return s + end, in.take(len(s) + len(end))
}

func wordcountFilter(in *interp, args []any, kwargs *Object) (any, error) {
	p, err := bind("wordcount", args, kwargs, "s")
	if err != nil {
		return nil, err
	}
	s, err := in.str(p[0])
	if err != nil {
		return nil, err
	}
	words := strings.FieldsFunc(s, func(r rune) bool { return r != '_' && !isWord(r) })
	return int64(len(words)), in.take(16 * len(words))
}
