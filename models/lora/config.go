package lora

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/optimem/optimem/layers"
)

// A config is an adapter_config.json.
type config struct {
	name string
	// rank and alpha are those of modules that no pattern names.
	rank           int
	alpha          float64
	ranks, alphas  patterns
	rooted         bool // the scale is alpha/√rank
	dora, upBias   bool
	bias           string
	target, except *matcher
	// only are the layers that are changed, nil for all; within are the lists that they are counted in.
	only   []int
	within []*regexp.Regexp
	saved  []string
	task   string
}

// The entries of adapter_config.json. Those that are ignored say where an adapter comes from, how it was trained, or how it
// began; those that are refused change what is computed unless they are empty. So does what is not known.
var (
	ignoredFields = []string{
		"auto_mapping", "base_model_name_or_path", "revision", "inference_mode", "peft_version", "lora_dropout", "fan_in_fan_out",
		"megatron_core", "loftq_config", "eva_config", "corda_config", "lora_ga_config", "qalora_group_size", "runtime_config",
	}
	knownFields = []string{
		"peft_type", "task_type", "r", "lora_alpha", "use_rslora", "use_dora", "lora_bias", "bias", "rank_pattern", "alpha_pattern",
		"target_modules", "exclude_modules", "layers_to_transform", "layers_pattern", "modules_to_save", "init_lora_weights",
	}
)

// unchanged are the ways to begin an adapter that leave the base model's weights what they are.
var unchanged = []any{nil, true, false, "gaussian", "eva", "orthogonal"}

// maxPattern bounds the regular expressions of a configuration, maxNames the names in a list.
const (
	maxPattern = 1 << 14
	maxNames   = 1 << 12
)

func parseConfig(name string, text []byte) (*config, error) {
	c := &config{name: name}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, c.fail("adapter_config.json", "%v", err)
	}
	var kind string
	if err := c.read(fields, "peft_type", &kind); err != nil {
		return nil, err
	}
	if kind != "LORA" {
		return nil, c.unsupported("peft_type", "is %q: LORA is known", kind)
	}
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains(ignoredFields, field) && !slices.Contains(knownFields, field) && !empty(fields[field]) {
			return nil, c.unsupported(field, "is %s", short(fields[field]))
		}
	}
	c.rank, c.alpha, c.bias = 8, 8, "none"
	for field, to := range map[string]any{
		"r": &c.rank, "lora_alpha": &c.alpha, "use_rslora": &c.rooted, "use_dora": &c.dora, "lora_bias": &c.upBias,
		"bias": &c.bias, "modules_to_save": &c.saved, "task_type": &c.task, "rank_pattern": &c.ranks, "alpha_pattern": &c.alphas,
	} {
		if err := c.read(fields, field, to); err != nil {
			return nil, err
		}
	}
	return c, c.check(fields)
}

// check looks at the entries that are there, and reads those that name modules.
func (c *config) check(fields map[string]json.RawMessage) error {
	var begun any
	if err := c.read(fields, "init_lora_weights", &begun); err != nil {
		return err
	}
	if !slices.Contains(unchanged, begun) {
		return c.unsupported("init_lora_weights", "is %s, which changes the base model's weights",
			short(fields["init_lora_weights"]))
	}
	switch {
	case c.rank < 1 || c.rank > maxRank:
		return c.fail("r", "is %d", c.rank)
	case math.IsNaN(c.alpha) || math.IsInf(c.alpha, 0):
		return c.fail("lora_alpha", "is %v", c.alpha)
	case len(c.saved) > maxNames:
		return c.fail("modules_to_save", "has %d names", len(c.saved))
	case !slices.Contains([]string{"none", "all", "lora_only"}, c.bias):
		return c.fail("bias", "is %q: none, all and lora_only are possible", c.bias)
	}
	for _, p := range []struct {
		field string
		list  *patterns
	}{{"rank_pattern", &c.ranks}, {"alpha_pattern", &c.alphas}} {
		if err := p.list.compile(); err != nil {
			return c.unsupported(p.field, "%v", err)
		}
	}
	var err error
	if c.target, err = c.matcher(fields, "target_modules"); err != nil {
		return err
	}
	if c.except, err = c.matcher(fields, "exclude_modules"); err != nil {
		return err
	}
	if c.target == nil && len(c.saved) == 0 {
		return c.fail("target_modules", "is missing")
	}
	return c.layers(fields)
}

// layers reads which layers are changed.
func (c *config) layers(fields map[string]json.RawMessage) error {
	if empty(fields["layers_to_transform"]) {
		return nil
	}
	if err := c.oneOrMore(fields, "layers_to_transform", &c.only, new(int)); err != nil {
		return err
	}
	var lists []string
	if !empty(fields["layers_pattern"]) {
		if err := c.oneOrMore(fields, "layers_pattern", &lists, new(string)); err != nil {
			return err
		}
	}
	if len(lists) == 0 {
		c.within = []*regexp.Regexp{regexp.MustCompile(`^.*?\.[^.]*\.(\d+)\.`)}
	}
	for _, list := range lists {
		re, err := compile(`^(?:.*?\.)?(?:`, list, `)\.(\d+)\.`)
		if err != nil {
			return c.unsupported("layers_pattern", "%v", err)
		}
		c.within = append(c.within, re)
	}
	return nil
}

// oneOrMore reads an entry that is a list, or one of what would be in it.
func (c *config) oneOrMore(fields map[string]json.RawMessage, field string, list, one any) error {
	if json.Unmarshal(fields[field], one) != nil {
		return c.read(fields, field, list)
	}
	return json.Unmarshal(slices.Concat([]byte("["), fields[field], []byte("]")), list)
}

// read reads an entry, if it is there.
func (c *config) read(fields map[string]json.RawMessage, field string, to any) error {
	text := fields[field]
	if text == nil || string(text) == "null" {
		return nil
	}
	if err := json.Unmarshal(text, to); err != nil {
		return c.fail(field, "is %s: %v", short(text), err)
	}
	return nil
}

func (c *config) fail(field, format string, args ...any) error {
	return &Error{Adapter: c.name, Field: field, Msg: fmt.Sprintf(format, args...)}
}

func (c *config) unsupported(field, format string, args ...any) error {
	return &UnsupportedError{Adapter: c.name, Field: field, Msg: fmt.Sprintf(format, args...)}
}

// empty reports whether an entry says nothing: null, false, or nothing within.
func empty(text json.RawMessage) bool {
	return slices.Contains([]string{"", "null", "false", "{}", "[]", `""`}, string(bytes.Join(bytes.Fields(text), nil)))
}

// short is an entry for an error.
func short(text json.RawMessage) string {
	const most = 60
	if s := strings.Join(strings.Fields(string(text)), " "); len(s) <= most {
		return s
	}
	return string([]rune(strings.Join(strings.Fields(string(text)), " "))[:most/2]) + "…"
}

// scaling is what a module's product is multiplied with.
func (c *config) scaling(rank, alpha float64) float64 {
	if c.rooted {
		return alpha / math.Sqrt(rank)
	}
	return alpha / rank
}

// A matcher says which modules an entry names: by a regular expression of the whole path, or by ends of paths.
type matcher struct {
	all   bool // every linear module but those that give the model's result
	whole *regexp.Regexp
	ends  map[string]bool
}

// matcher reads an entry that names modules, nil where there is none.
func (c *config) matcher(fields map[string]json.RawMessage, field string) (*matcher, error) {
	if empty(fields[field]) {
		return nil, nil
	}
	var text string
	if json.Unmarshal(fields[field], &text) == nil {
		if field == "target_modules" && strings.EqualFold(text, "all-linear") {
			return &matcher{all: true}, nil
		}
		re, err := compile(`^(?:`, text, `)$`)
		if err != nil {
			return nil, c.unsupported(field, "%v", err)
		}
		return &matcher{whole: re}, nil
	}
	var names []string
	if err := c.read(fields, field, &names); err != nil {
		return nil, err
	}
	if len(names) > maxNames {
		return nil, c.fail(field, "has %d names", len(names))
	}
	m := &matcher{ends: make(map[string]bool, len(names))}
	for _, name := range names {
		m.ends[name] = true
	}
	return m, nil
}

// compile compiles a regular expression of Python's between others. What Go's lack is an error: lookaheads and backreferences.
func compile(before, text, after string) (*regexp.Regexp, error) {
	if len(text) > maxPattern {
		return nil, fmt.Errorf("a regular expression of %d bytes", len(text))
	}
	if _, err := regexp.Compile(text); err != nil { // it may not close the group that it goes into
		return nil, fmt.Errorf("the regular expression %q: %w", short(json.RawMessage(text)), err)
	}
	return regexp.Compile(before + text + after)
}

// heads are modules that give a model's result, which "all-linear" leaves out.
var heads = []string{"lm_head", "classifier", "score"}

// matches reports whether the module at a path is one that is named.
func (m *matcher) matches(path string, module *layers.Module) bool {
	switch {
	case m == nil:
		return false
	case m.all:
		k, ok := kindOf(module)
		return ok && k != embedding && !slices.Contains(heads, path)
	case m.whole != nil:
		return m.whole.MatchString(path)
	}
	for end := path; ; {
		if m.ends[end] {
			return true
		}
		_, rest, ok := strings.Cut(end, ".")
		if !ok {
			return false
		}
		end = rest
	}
}

// targets reports whether the module at a path gets a product added.
func (c *config) targets(path string, m *layers.Module) bool {
	if c.except.matches(path, m) || c.savesAround(path) || !c.target.matches(path, m) {
		return false
	}
	if c.only == nil || c.target.whole != nil || c.target.all || c.target.ends[path] { // as in peft, what names all says it all
		return true
	}
	for _, within := range c.within {
		if found := within.FindStringSubmatch(path); found != nil {
			return slices.ContainsFunc(c.only, func(n int) bool {
				return fmt.Sprint(n) == strings.TrimLeft(found[1],
					"0") || found[1] == "0" && n == 0
			})
		}
	}
	return false
}

// saves reports whether modules_to_save names the module at a path.
func (c *config) saves(path string) bool {
	return path != "" && slices.ContainsFunc(c.saved,
		func(name string) bool { return name != "" && strings.HasSuffix(path, name) })
}

// savesAround reports whether the module at a path, or one that it lies in, is named by modules_to_save.
func (c *config) savesAround(path string) bool {
	for {
		if c.saves(path) {
			return true
		}
		i := strings.LastIndexByte(path, '.')
		if i < 0 {
			return false
		}
		path = path[:i]
	}
}

// patterns are numbers for modules whose paths end in a regular expression, the first that fits.
type patterns []pattern

type pattern struct {
	text  string
	re    *regexp.Regexp
	value float64
}

// UnmarshalJSON reads an object in its order.
func (p *patterns) UnmarshalJSON(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return fmt.Errorf("not an object")
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return err
		}
		one := pattern{text: fmt.Sprint(key)}
		if err := d.Decode(&one.value); err != nil {
			return err
		}
		if *p = append(*p, one); len(*p) > maxNames {
			return fmt.Errorf("more than %d patterns", maxNames)
		}
	}
	return nil
}

func (p patterns) compile() (err error) {
	for i := range p {
		if p[i].re, err = compile(`^(?:.*\.)?(?:`, p[i].text, `)$`); err != nil {
			return err
		}
	}
	return nil
}

// of returns the number for the module at a path.
func (p patterns) of(path string, missing float64) float64 {
	for i := range p {
		if p[i].re.MatchString(path) {
			return p[i].value
		}
	}
	return missing
}
