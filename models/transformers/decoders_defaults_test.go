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
)

// TestDecoderDefaults makes every class of the decoders from a configuration without sizes: its state dict has the names and shapes
// that Python's has, and a class that Python does not have is not there.
func TestDecoderDefaults(t *testing.T) {
	recorded := make(map[string]map[string][2]any) // how many entries, and the hash of their lines
	for _, file := range []string{"defaults_decoders.json", "defaults_recurrents.json"} {
		text, err := os.ReadFile("../testdata/families/hf/" + file)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &recorded); err != nil {
			t.Fatal(err)
		}
	}
	for kind, classes := range recorded {
		for _, h := range familyNamed(kind).Heads {
			if _, ok := classes[h.Class]; !ok {
				t.Errorf("%s has the class %s, and Python does not", kind, h.Class)
			}
		}
		for class, want := range classes {
			c, err := parseConfig(fmt.Appendf(nil, `{"model_type": %q, "architectures": [%q]}`, kind, class), nil)
			if err != nil {
				t.Fatal(err)
			}
			c.Whole = true
			_, h, err := choose(c, "")
			if err != nil {
				t.Errorf("%s: %v", class, err)
				continue
			}
			var lines []string
			for _, e := range h.Make(c).StateDict() {
				shape := strings.ReplaceAll(strings.Trim(e.Shape.String(), "[]"), " ", ",")
				lines = append(lines, e.Name+" "+shape+"\n")
			}
			slices.Sort(lines)
			sum := sha256.Sum256([]byte(strings.Join(lines, "")))
			if got := [2]any{float64(len(lines)), hex.EncodeToString(sum[:4])}; got != want || c.Err != nil {
				t.Errorf("%s: %v, want %v (%v); it has %.300q", class, got, want, c.Err, lines)
			}
		}
	}
}
