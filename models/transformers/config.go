package transformers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/optimem/optimem/layers"
)

const (
	// maxConfigBytes bounds a config.json. One that lists the 21,000 classes of ImageNet-21k has 2 MB.
	maxConfigBytes = 8 << 20
	// maxConfigDepth bounds the nesting of its objects and lists.
	maxConfigDepth = 32
	// maxSize bounds every size in it, so that the product of two does not overflow.
	maxSize = 1 << 30
	// maxTable bounds the sizes of tables that are computed: positions, rotary frequencies.
	maxTable = 1 << 20
)

// A ConfigError says what is wrong in a config.json.
type ConfigError struct {
	// Key is the entry, "" for the text as a whole.
	Key string
	Msg string
}

// Error names the entry.
func (e *ConfigError) Error() string {
	if e.Key == "" {
		return "config.json: " + e.Msg
	}
	return "config.json: " + e.Key + " " + e.Msg
}

// A config is a config.json that is read with the defaults of its class in Python. The first thing that is wrong in it
// is kept; sizes read after that are 1, so that constructors need not check.
type config struct {
	fields map[string]any
	// dict is the state dict that the model is for; whole says that it is for none and has what Python's constructor gives.
	dict  layers.StateDict
	whole bool
	err   error
	// part is the model whose text part this is, "" for a model of texts; as the family that the caller takes the model for, ""
	// where that is its own. read are the entries that were looked at then.
	part, as string
	read     map[string]bool
	// named finds the family of a part.
	named func(model string) *family
}

// parseConfig reads the text of a config.json, of a model that sees the part of its text.
func parseConfig(text []byte, dict layers.StateDict) (*config, error) {
	c, err := parseWhole(text, dict)
	if err == nil {
		c.takeTextPart()
	}
	return c, err
}

// parseWhole is parseConfig for all of a model.
func parseWhole(text []byte, dict layers.StateDict) (*config, error) {
	if len(text) > maxConfigBytes {
		return nil, &ConfigError{Msg: fmt.Sprintf("%d bytes, more than %d", len(text), maxConfigBytes)}
	}
	if nesting(text) > maxConfigDepth {
		return nil, &ConfigError{Msg: fmt.Sprintf("nested more than %d deep", maxConfigDepth)}
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	c := &config{dict: dict, named: familyNamed}
	if err := d.Decode(&c.fields); err != nil {
		return nil, &ConfigError{Msg: err.Error()}
	}
	if c.fields == nil {
		return nil, &ConfigError{Msg: "is no object"}
	}
	if d.More() {
		return nil, &ConfigError{Msg: "has text after the object"}
	}
	return c, nil
}

// nesting returns how deep brackets are nested in a JSON text.
func nesting(text []byte) int {
	depth, deepest := 0, 0
	inString := false
	for i := 0; i < len(text); i++ {
		switch b := text[i]; {
		case inString && b == '\\':
			i++
		case b == '"':
			inString = !inString
		case inString:
		case b == '{' || b == '[':
			depth++
			deepest = max(deepest, depth)
		case b == '}' || b == ']':
			depth--
		}
	}
	return deepest
}

// fail records what is wrong with an entry, if it is the first such thing, and returns it.
func (c *config) fail(key, format string, args ...any) error {
	err := &ConfigError{key, fmt.Sprintf(format, args...)}
	if c.err == nil {
		c.err = err
	}
	return err
}

// unsupported records that an entry asks for what is not known here.
func (c *config) unsupported(feature string) {
	if c.err == nil {
		model, _ := c.fields["model_type"].(string)
		c.err = &UnsupportedError{Type: model, Class: c.architecture(), Feature: feature}
	}
}

// value returns an entry by its name or one of its other names, which are separated by |; nil for null.
func (c *config) value(names string) (key string, v any) {
	for name := range strings.SplitSeq(names, "|") {
		c.looked(name)
		if v := c.fields[name]; v != nil {
			return name, v
		}
	}
	return names, nil
}

// looked notes that an entry was looked at.
func (c *config) looked(name string) {
	if c.read != nil {
		c.read[name] = true
	}
}

// integer returns an entry that is an integer; ok is false where it is not there.
func (c *config) integer(names string) (n int, ok bool) {
	key, v := c.value(names)
	if v == nil {
		return 0, false
	}
	text, isNumber := v.(json.Number)
	x, err := text.Float64()
	if !isNumber || err != nil || x != math.Trunc(x) || math.Abs(x) > maxSize {
		c.fail(key, "is %s, not an integer of at most %d", short(v), maxSize)
		return 0, false
	}
	return int(x), true
}

// optional returns an integer, nil where there is none.
func (c *config) optional(names string) any {
	if n, ok := c.integer(names); ok {
		return n
	}
	return nil
}

// number is integer with a default.
//
//go:noinline
func (c *config) number(names string, missing int) int {
	if n, ok := c.integer(names); ok {
		return n
	}
	return missing
}

// size returns an entry that is a positive integer.
func (c *config) size(names string, missing int) int {
	n, ok := c.integer(names)
	switch {
	case !ok:
		n = missing
	case n < 1:
		key, _ := c.value(names)
		c.fail(key, "is %d, not positive", n)
	}
	if c.err != nil {
		return 1
	}
	return n
}

// table is size for the length of a table that is computed.
func (c *config) table(names string, missing int) int {
	n := c.size(names, missing)
	if n > maxTable {
		key, _ := c.value(names)
		c.fail(key, "is %d, more than %d", n, maxTable)
		return 1
	}
	return n
}

// float returns an entry that is a finite number.
func (c *config) float(names string, missing float64) float64 {
	key, v := c.value(names)
	if v == nil {
		return missing
	}
	text, isNumber := v.(json.Number)
	x, err := text.Float64()
	if !isNumber || err != nil {
		c.fail(key, "is %s, not a number", short(v))
		return missing
	}
	return x
}

// flag returns an entry that is true or false.
func (c *config) flag(names string, missing bool) bool {
	key, v := c.value(names)
	if v == nil {
		return missing
	}
	b, ok := v.(bool)
	if !ok {
		c.fail(key, "is %s, not true or false", short(v))
		return missing
	}
	return b
}

// text returns an entry that is a text.
func (c *config) text(names, missing string) string {
	key, v := c.value(names)
	if v == nil {
		return missing
	}
	s, ok := v.(string)
	if !ok {
		c.fail(key, "is %s, not a text", short(v))
		return missing
	}
	return s
}

// sub returns an entry that is a configuration of its own; an empty one where it is not there. Errors in it are to be
// taken over with c.adopt.
func (c *config) sub(name string) *config {
	c.looked(name)
	s := &config{fields: map[string]any{}, dict: c.dict, err: c.err}
	switch v := c.fields[name].(type) {
	case nil:
	case map[string]any:
		s.fields = v
	default:
		c.fail(name, "is %s, not an object", short(v))
		s.err = c.err
	}
	return s
}

// adopt takes over the error of a configuration that is part of this one.
func (c *config) adopt(sub *config) {
	if c.err == nil {
		c.err = sub.err
	}
}

// labels returns num_labels: how many id2label has, else what the entry says.
func (c *config) labels() int {
	switch v := c.fields["id2label"].(type) {
	case nil:
	case map[string]any:
		if len(v) > 0 {
			return len(v)
		}
	default:
		c.fail("id2label", "is %s, not an object", short(v))
	}
	return c.size("num_labels|_num_labels", 2)
}

// holds reports whether the checkpoint has a weight of that name, whatever is before it.
func (c *config) holds(name string) bool {
	return c.whole || slices.ContainsFunc(c.dict, func(e layers.Entry) bool {
		return e.Name == name || strings.HasSuffix(e.Name, "."+name)
	})
}

// heads checks that the number of heads divides the hidden size.
func (c *config) heads(hidden, heads int) {
	if hidden%heads != 0 {
		c.fail("", "the hidden size %d is not a multiple of the %d attention heads", hidden, heads)
	}
}

// architecture returns the first of the architectures, "" where there is none.
func (c *config) architecture() string {
	list, _ := c.fields["architectures"].([]any)
	if len(list) == 0 {
		return ""
	}
	class, _ := list[0].(string)
	return class
}

// repeat returns n modules made by one constructor, as a list. It refuses to make many more than the state dict has
// weights for: the number comes from a file.
func (c *config) repeat(n int, layer func(i int) *layers.Module) *layers.Module {
	if c.err != nil || n == 0 {
		return layers.ModuleList()
	}
	first := layer(0)
	if each := len(first.StateDict()); n*max(each, 1) > 2*len(c.dict)+1000 {
		c.fail("", "%d layers of %d weights each, and the checkpoint has %d in all", n, each, len(c.dict))
		return layers.ModuleList()
	}
	all := make([]*layers.Module, n)
	all[0] = first
	for i := 1; i < n && c.err == nil; i++ {
		all[i] = layer(i)
	}
	return layers.ModuleList(all...)
}

// short writes a value of an entry for an error.
func short(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprintf("a %T", v)
	}
	if len(text) > 60 {
		text = append(text[:60:60], "…"...)
	}
	return string(text)
}
