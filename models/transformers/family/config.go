package family

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
	// MaxSize bounds every size in it, so that the product of two does not overflow.
	MaxSize = 1 << 30
	// MaxTable bounds the sizes of tables that are computed: positions, rotary frequencies.
	MaxTable = 1 << 20
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

// A Config is a config.json that is read with the defaults of its class in Python. The first thing that is wrong in it
// is kept; sizes read after that are 1, so that constructors need not check.
type Config struct {
	// Fields are the entries.
	Fields map[string]any
	// Dict is the state dict that the model is for; Whole says that it is for none and has what Python's constructor gives.
	Dict  layers.StateDict
	Whole bool
	// Err is the first thing that is wrong.
	Err error
	// Part is the model whose text part this is, "" for a model of texts; As the family that the caller takes the model for, ""
	// where that is its own. Read are the entries that were looked at then.
	Part, As string
	Read     map[string]bool
	// Named finds the family of a part.
	Named func(model string) *Family
}

// Parse reads the text of a config.json.
func Parse(text []byte, dict layers.StateDict) (*Config, error) {
	if len(text) > maxConfigBytes {
		return nil, &ConfigError{Msg: fmt.Sprintf("%d bytes, more than %d", len(text), maxConfigBytes)}
	}
	if nesting(text) > maxConfigDepth {
		return nil, &ConfigError{Msg: fmt.Sprintf("nested more than %d deep", maxConfigDepth)}
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	c := &Config{Dict: dict}
	if err := d.Decode(&c.Fields); err != nil {
		return nil, &ConfigError{Msg: err.Error()}
	}
	if c.Fields == nil {
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

// Fail records what is wrong with an entry, if it is the first such thing, and returns it.
func (c *Config) Fail(key, format string, args ...any) error {
	err := &ConfigError{key, fmt.Sprintf(format, args...)}
	if c.Err == nil {
		c.Err = err
	}
	return err
}

// Unsupported records that an entry asks for what is not known here.
func (c *Config) Unsupported(feature string) {
	if c.Err == nil {
		model, _ := c.Fields["model_type"].(string)
		c.Err = &UnsupportedError{Type: model, Class: c.Architecture(), Feature: feature}
	}
}

// Value returns an entry by its name or one of its other names, which are separated by |; nil for null.
func (c *Config) Value(names string) (key string, v any) {
	for name := range strings.SplitSeq(names, "|") {
		c.Looked(name)
		if v := c.Fields[name]; v != nil {
			return name, v
		}
	}
	return names, nil
}

// Looked notes that an entry was looked at.
func (c *Config) Looked(name string) {
	if c.Read != nil {
		c.Read[name] = true
	}
}

// Integer returns an entry that is an integer; ok is false where it is not there.
func (c *Config) Integer(names string) (n int, ok bool) {
	key, v := c.Value(names)
	if v == nil {
		return 0, false
	}
	text, isNumber := v.(json.Number)
	x, err := text.Float64()
	if !isNumber || err != nil || x != math.Trunc(x) || math.Abs(x) > MaxSize {
		c.Fail(key, "is %s, not an integer of at most %d", Short(v), MaxSize)
		return 0, false
	}
	return int(x), true
}

// Optional returns an integer, nil where there is none.
func (c *Config) Optional(names string) any {
	if n, ok := c.Integer(names); ok {
		return n
	}
	return nil
}

// Number is integer with a default.
//
//go:noinline
func (c *Config) Number(names string, missing int) int {
	if n, ok := c.Integer(names); ok {
		return n
	}
	return missing
}

// Size returns an entry that is a positive integer.
func (c *Config) Size(names string, missing int) int {
	n, ok := c.Integer(names)
	switch {
	case !ok:
		n = missing
	case n < 1:
		key, _ := c.Value(names)
		c.Fail(key, "is %d, not positive", n)
	}
	if c.Err != nil {
		return 1
	}
	return n
}

// Table is size for the length of a table that is computed.
func (c *Config) Table(names string, missing int) int {
	n := c.Size(names, missing)
	if n > MaxTable {
		key, _ := c.Value(names)
		c.Fail(key, "is %d, more than %d", n, MaxTable)
		return 1
	}
	return n
}

// Float returns an entry that is a finite number.
func (c *Config) Float(names string, missing float64) float64 {
	key, v := c.Value(names)
	if v == nil {
		return missing
	}
	text, isNumber := v.(json.Number)
	x, err := text.Float64()
	if !isNumber || err != nil {
		c.Fail(key, "is %s, not a number", Short(v))
		return missing
	}
	return x
}

// Flag returns an entry that is true or false.
func (c *Config) Flag(names string, missing bool) bool {
	key, v := c.Value(names)
	if v == nil {
		return missing
	}
	b, ok := v.(bool)
	if !ok {
		c.Fail(key, "is %s, not true or false", Short(v))
		return missing
	}
	return b
}

// Text returns an entry that is a text.
func (c *Config) Text(names, missing string) string {
	key, v := c.Value(names)
	if v == nil {
		return missing
	}
	s, ok := v.(string)
	if !ok {
		c.Fail(key, "is %s, not a text", Short(v))
		return missing
	}
	return s
}

// Sub returns an entry that is a configuration of its own; an empty one where it is not there. Errors in it are to be
// taken over with c.adopt.
func (c *Config) Sub(name string) *Config {
	c.Looked(name)
	s := &Config{Fields: map[string]any{}, Dict: c.Dict, Err: c.Err}
	switch v := c.Fields[name].(type) {
	case nil:
	case map[string]any:
		s.Fields = v
	default:
		c.Fail(name, "is %s, not an object", Short(v))
		s.Err = c.Err
	}
	return s
}

// Adopt takes over the error of a configuration that is part of this one.
func (c *Config) Adopt(sub *Config) {
	if c.Err == nil {
		c.Err = sub.Err
	}
}

// Labels returns num_labels: how many id2label has, else what the entry says.
func (c *Config) Labels() int {
	switch v := c.Fields["id2label"].(type) {
	case nil:
	case map[string]any:
		if len(v) > 0 {
			return len(v)
		}
	default:
		c.Fail("id2label", "is %s, not an object", Short(v))
	}
	return c.Size("num_labels|_num_labels", 2)
}

// Holds reports whether the checkpoint has a weight of that name, whatever is before it.
func (c *Config) Holds(name string) bool {
	return c.Whole || slices.ContainsFunc(c.Dict, func(e layers.Entry) bool {
		return e.Name == name || strings.HasSuffix(e.Name, "."+name)
	})
}

// Heads checks that the number of heads divides the hidden size.
func (c *Config) Heads(hidden, heads int) {
	if hidden%heads != 0 {
		c.Fail("", "the hidden size %d is not a multiple of the %d attention heads", hidden, heads)
	}
}

// Architecture returns the first of the architectures, "" where there is none.
func (c *Config) Architecture() string {
	list, _ := c.Fields["architectures"].([]any)
	if len(list) == 0 {
		return ""
	}
	class, _ := list[0].(string)
	return class
}

// Repeat returns n modules made by one constructor, as a list. It refuses to make many more than the state dict has
// weights for: the number comes from a file.
func (c *Config) Repeat(n int, layer func(i int) *layers.Module) *layers.Module {
	if c.Err != nil || n == 0 {
		return layers.ModuleList()
	}
	first := layer(0)
	if each := len(first.StateDict()); n*max(each, 1) > 2*len(c.Dict)+1000 {
		c.Fail("", "%d layers of %d weights each, and the checkpoint has %d in all", n, each, len(c.Dict))
		return layers.ModuleList()
	}
	all := make([]*layers.Module, n)
	all[0] = first
	for i := 1; i < n && c.Err == nil; i++ {
		all[i] = layer(i)
	}
	return layers.ModuleList(all...)
}

// Short writes a value of an entry for an error.
func Short(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprintf("a %T", v)
	}
	if len(text) > 60 {
		text = append(text[:60:60], "…"...)
	}
	return string(text)
}

// MaxSizes bounds a list of sizes.
const MaxSizes = 64

// Sizes returns an entry that is a list of positive integers.
func (c *Config) Sizes(key string, missing ...int) []int {
	_, v := c.Value(key)
	if v == nil {
		return missing
	}
	list, ok := v.([]any)
	if !ok || len(list) == 0 || len(list) > MaxSizes {
		c.Fail(key, "is %s, not a list of 1 to %d sizes", Short(v), MaxSizes)
		return missing
	}
	all := make([]int, len(list))
	for i, x := range list {
		one := &Config{Fields: map[string]any{key: x}, Err: c.Err}
		all[i] = one.Table(key, 1)
		c.Adopt(one)
	}
	return all
}
