package family_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models/transformers/family"
	"github.com/optimem/optimem/tensor"
)

// parse reads a configuration that is one.
func parse(t *testing.T, text string) *family.Config {
	t.Helper()
	c, err := family.Parse([]byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestConfig: entries are read under any of their names, null and what is missing is the default.
func TestConfig(t *testing.T) {
	c := parse(t, `{"n_layer": 3, "eps": 1e-5, "tied": true, "act": "gelu", "none": null, "whole": 4.0, "id2label": {"0": "a", "1": "b", "2": "c"}}`)
	for _, x := range []struct{ got, want any }{
		{c.Size("num_hidden_layers|n_layer", 12), 3}, {c.Size("none", 7), 7}, {c.Number("absent", -1), -1}, {c.Size("whole", 1), 4},
		{c.Float("eps", 1), 1e-5}, {c.Flag("tied", false), true}, {c.Flag("absent", true), true}, {c.Text("act", "relu"), "gelu"},
		{c.Optional("absent"), nil}, {c.Optional("n_layer"), 3}, {c.Labels(), 3}, {c.Sub("absent").Size("x", 5), 5},
	} {
		if x.got != x.want {
			t.Errorf("got %v, want %v", x.got, x.want)
		}
	}
	if c.Err != nil {
		t.Error(c.Err)
	}
}

// TestConfigErrors: what is wrong names its entry, the first such thing is kept, and sizes are 1 after it.
func TestConfigErrors(t *testing.T) {
	for want, read := range map[string]func(c *family.Config){
		"zero is 0, not positive":        func(c *family.Config) { c.Size("zero", 1) },
		"big is 2000000000, not an inte": func(c *family.Config) { c.Number("big", 1) },
		"half is 0.5, not an integer":    func(c *family.Config) { c.Optional("half") },
		"wide is 2097152, more than 104": func(c *family.Config) { c.Table("wide", 1) },
		`word is "x", not a number`:      func(c *family.Config) { c.Float("word", 1) },
		"half is 0.5, not true or false": func(c *family.Config) { c.Flag("none|half", true) },
		"half is 0.5, not a text":        func(c *family.Config) { c.Text("half", "") },
		"half is 0.5, not an object":     func(c *family.Config) { c.Adopt(c.Sub("half")) },
		"half is 0.5, not a list of":     func(c *family.Config) { c.Sizes("half", 1) },
		"is not a multiple of the 3":     func(c *family.Config) { c.Heads(8, 3) },
	} {
		c := parse(t, `{"zero": 0, "big": 2000000000, "half": 0.5, "wide": 2097152, "word": "x", "fine": 6}`)
		read(c)
		var wrong *family.ConfigError
		if !errors.As(c.Err, &wrong) || !strings.Contains(wrong.Error(), want) {
			t.Errorf("%v, want %q", c.Err, want)
		}
		first := c.Err
		c.Fail("fine", "is wrong, too")
		if c.Err != first || c.Size("fine", 2) != 1 {
			t.Errorf("%q: then %v, and a size of %d", want, c.Err, c.Size("fine", 2))
		}
	}
	for _, text := range []string{"[]", "null", "{} {}", "{", strings.Repeat(`{"a":`, 33) + "1" + strings.Repeat("}", 33)} {
		var wrong *family.ConfigError
		if _, err := family.Parse([]byte(text), nil); !errors.As(err, &wrong) {
			t.Errorf("%.40s: %v, want a ConfigError", text, err)
		}
	}
}

// TestRepeat: layers are made as long as the checkpoint may have weights for them.
func TestRepeat(t *testing.T) {
	linear := func(int) *layers.Module { return layers.Linear(1, 1) }
	c := parse(t, "{}")
	if m := c.Repeat(500, linear); len(m.Children) != 500 || c.Err != nil {
		t.Errorf("%d layers, %v", len(m.Children), c.Err)
	}
	if m := c.Repeat(501, linear); len(m.Children) != 0 || c.Err == nil {
		t.Errorf("%d layers of an empty checkpoint, %v", len(m.Children), c.Err)
	}
}

// TestBind: weights are found with and without the base model's prefix, under older names and by those they are tied to; what is
// left over is named unless nothing reads it.
func TestBind(t *testing.T) {
	f := &family.Family{Prefix: "base", Tied: [][2]string{{"head.weight", "base.words.weight"}}, Ties: true, Ignored: []string{`^decoy$`}}
	root := layers.New("tiny", nil).
		Add("base", layers.New("base", nil).Add("words", layers.Embedding(4, 2)).Add("LayerNorm", layers.LayerNorm(2))).
		Add("head", layers.Linear(2, 4, layers.NoBias))
	entry := func(name string, shape ...int) layers.Entry {
		return layers.Entry{Name: name, DType: tensor.Float32, Shape: shape}
	}
	dict := layers.StateDict{
		entry("words.weight", 4, 2), entry("LayerNorm.gamma", 2), entry("base.LayerNorm.bias", 2), entry("decoy", 9), entry("position_ids", 1, 8),
	}
	h := &family.Head{Class: "Tiny"}
	names, err := f.Bind(h, parse(t, "{}"), root, dict)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"base.words.weight": "words.weight", "head.weight": "words.weight", "base.LayerNorm.weight": "LayerNorm.gamma", "base.LayerNorm.bias": "",
	} {
		if names[name] != want {
			t.Errorf("%s is taken of %q, want %q", name, names[name], want)
		}
	}
	var mismatch *layers.MismatchError
	_, err = f.Bind(h, parse(t, `{"tie_word_embeddings": false}`), root, append(dict, entry("base.more", 1)))
	if !errors.As(err, &mismatch) || len(mismatch.Unexpected) != 1 || mismatch.Unexpected[0] != "base.more" || len(mismatch.Missing) != 1 {
		t.Errorf("untied, with a weight more: %v", err)
	}
	dict[0].DType = tensor.Int8
	var unsupported *family.UnsupportedError
	if _, err = f.Bind(h, parse(t, "{}"), root, dict); !errors.As(err, &unsupported) {
		t.Errorf("a weight of int8: %v", err)
	}
}

// TestInverseSqrt is rounded once, where 1 / √n is rounded twice.
func TestInverseSqrt(t *testing.T) {
	differ := 0
	for n := 1; n <= 512; n++ {
		got, twice := family.InverseSqrt(n), 1/math.Sqrt(float64(n))
		if math.Abs(got-twice) > 3e-16*got {
			t.Errorf("%d: %v, want near %v", n, got, twice)
		}
		if got != twice {
			differ++
		}
	}
	if family.InverseSqrt(64) != 0.125 || differ == 0 {
		t.Errorf("of 64: %v; %d differ", family.InverseSqrt(64), differ)
	}
}
