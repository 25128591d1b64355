package transformers

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/layers"
)

// TestDefaults makes every class from a configuration without sizes: its state dict has the names and shapes that
// Python's has.
func TestDefaults(t *testing.T) {
	recorded := make(map[string]map[string][2]any) // how many entries, and the hash of their lines
	for _, name := range []string{"defaults.json", "defaults_moe.json", "defaults_speech.json"} {
		text, err := os.ReadFile("../testdata/families/hf/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &recorded); err != nil {
			t.Fatal(err)
		}
	}
	for kind, classes := range recorded {
		for class, want := range classes {
			c, err := parseConfig(fmt.Appendf(nil, `{"model_type": %q, "architectures": [%q]}`, kind, class), nil)
			if err != nil {
				t.Fatal(err)
			}
			// A weight of that name makes the base model have a pooler.
			c.Dict = append(c.Dict, layers.Entry{Name: "pooler.dense.weight"}, layers.Entry{Name: "pooler.weight"})
			_, h, err := choose(c, "")
			if err != nil {
				t.Errorf("%s: %v", class, err)
				continue
			}
			dict := h.Make(c).StateDict()
			if c.Err != nil {
				t.Errorf("%s: %v", class, c.Err)
				continue
			}
			var lines []string
			for _, e := range dict {
				shape := strings.ReplaceAll(strings.Trim(e.Shape.String(), "[]"), " ", ",")
				lines = append(lines, e.Name+" "+shape+"\n")
			}
			slices.Sort(lines)
			sum := sha256.Sum256([]byte(strings.Join(lines, "")))
			if got := [2]any{float64(len(lines)), hex.EncodeToString(sum[:])}; got != want {
				t.Errorf("%s: %v, want %v; it has %.300q", class, got, want, lines)
			}
		}
	}
}

// TestUnnamedClass takes the base model where config.json names no class.
func TestUnnamedClass(t *testing.T) {
	c, err := parseConfig([]byte(`{"model_type": "gpt2"}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, h, err := choose(c, ""); err != nil || h.Class != "GPT2Model" {
		t.Errorf("got %v, %v", h, err)
	}
}
