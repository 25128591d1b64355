package transformers

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/models/transformers/family"
)

// TestCausalTypes holds the list in docs/families.md of the types that predict tokens in Python and do not run from
// folders here to what the families are: no type is missing there, and none is there that runs.
func TestCausalTypes(t *testing.T) {
	text, err := os.ReadFile("../testdata/families/hf/causal.json")
	if err != nil {
		t.Fatal(err)
	}
	var recorded struct {
		Transformers string
		Types        map[string]string
	}
	if err := json.Unmarshal(text, &recorded); err != nil {
		t.Fatal(err)
	}
	var lacking []string
	for _, kind := range slices.Sorted(maps.Keys(recorded.Types)) {
		_, part := textParts[kind]
		if f := familyNamed(kind); !part && (f == nil || !slices.ContainsFunc(f.Heads, func(h family.Head) bool { return h.Context != nil })) {
			lacking = append(lacking, "`"+kind+"`")
		}
	}
	docs, err := os.ReadFile("../../docs/families.md")
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("transformers %s has classes that predict tokens for %d model types. Of these, %d run from their folders. These do not:\n%s.",
		recorded.Transformers, len(recorded.Types), len(recorded.Types)-len(lacking), strings.Join(lacking, ", "))
	if flat := strings.Join(strings.Fields(string(docs)), " "); !strings.Contains(flat, strings.Join(strings.Fields(want), " ")) {
		t.Errorf("docs/families.md is to say:\n%s", want)
	}
}
