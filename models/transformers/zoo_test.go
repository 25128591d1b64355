package transformers_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/graph/rewrite"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/models/internal/zoo"
	"github.com/optimem/optimem/tensor"
)

const (
	zooFolder = "../testdata/zoo"
	// configFolder holds config.json of the zoo's models, by their names.
	configFolder = "../testdata/families/hf"
)

// exported are the models of the zoo that a folder with their weights gives too.
var exported = []string{
	"bert_mask", "roberta", "distilbert", "gpt2", "opt", "llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "phi3",
}

// TestGraphs builds models from a configuration and the names, shapes and dtypes of weights, and compares their graphs
// with those of the exported programs: they must be the same op by op, so that both forms give the same bits.
func TestGraphs(t *testing.T) {
	for _, name := range exported {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sameGraphs(t, name, readConfig(t, name))
		})
	}
}

func sameGraphs(t *testing.T, name string, config []byte) {
	t.Helper()
	ckpt, ref, err := zoo.Load(zooFolder, "hf/"+name, "aten")
	if err != nil {
		t.Fatal(err)
	}
	program, err := models.Build(ckpt, models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	weights, err := bare(name, ckpt, ref)
	if err != nil {
		t.Fatal(err)
	}
	weights.Config = config
	folder, err := models.Build(weights, models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range ref.Cases {
		shapes := make(map[string]tensor.Shape)
		for input, f := range c.Inputs {
			shapes[input] = f.Shape
		}
		want, got := lines(t, program, shapes, ref), lines(t, folder, shapes, ref)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("the graphs differ (-exported +folder):\n%.6000s", diff)
		}
	}
}

func lines(t *testing.T, m *models.Model, shapes map[string]tensor.Shape, ref *zoo.Reference) []string {
	t.Helper()
	g, err := m.Graph(shapes)
	if err != nil {
		t.Fatal(err)
	}
	text, err := describe(g, ref)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func readConfig(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(configFolder, name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestRotary: queries and keys are turned by one op each, in exported programs too.
func TestRotary(t *testing.T) {
	for _, name := range []string{"llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "phi3"} {
		ckpt, ref, err := zoo.Load(zooFolder, "hf/"+name, "aten")
		if err != nil {
			t.Fatal(err)
		}
		program, err := models.Build(ckpt, models.Options{})
		if err != nil {
			t.Fatal(err)
		}
		shapes := make(map[string]tensor.Shape)
		for input, f := range ref.Cases[0].Inputs {
			shapes[input] = f.Shape
		}
		g, err := program.Graph(shapes)
		if err != nil {
			t.Fatal(err)
		}
		kinds := make(map[graph.Kind]int)
		for _, op := range rewrite.Optimise(rewrite.Prune(g), graph.Standard(), 0, nil).Ops {
			kinds[op.Kind]++
		}
		if kinds["rotary"] == 0 || kinds["rotary"] != 2*(kinds["scaled_dot_product_attention"]+kinds["softmax"]) || kinds["neg"] > 0 {
			t.Errorf("%s: %v", name, kinds)
		}
	}
}
