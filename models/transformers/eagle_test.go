package transformers_test

import (
	"errors"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/internal/fixtures"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// eagles are the heads of testdata/families/hf/record_eagle.py, and the model that they are for.
func eagles(t *testing.T) ([]fixtures.Eagle, *models.Model) {
	t.Helper()
	list, err := fixtures.Eagles(filepath.Join(configFolder, "eagle.json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	ckpt := opened(t, filepath.Join(configFolder, "tiny_llama"))
	target, err := models.Build(ckpt, models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return list, target
}

func opened(t *testing.T, folder string) *loader.Checkpoint {
	t.Helper()
	ckpt, err := loader.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ckpt.Close() })
	return ckpt
}

// alike reports whether numbers are those recorded.
func alike(got, want []float32) bool {
	return slices.EqualFunc(got, want, func(a, b float32) bool { return math.Abs(float64(a-b)) < 2e-5 })
}

// TestEagle: heads of EAGLE and EAGLE-3 see what the layers of their model saw, guess what the published code guesses, and go on
// from what they gave.
func TestEagle(t *testing.T) {
	list, target := eagles(t)
	if len(list) != 4 {
		t.Fatalf("%d heads", len(list))
	}
	for _, e := range list {
		t.Run(e.Name, func(t *testing.T) {
			folder := t.TempDir()
			if err := e.Write(folder, 32); err != nil {
				t.Fatal(err)
			}
			ckpt := opened(t, folder)
			if !models.IsHead(ckpt) {
				t.Fatal("is no head")
			}
			model, err := models.BuildHead(ckpt, target)
			if err != nil {
				t.Fatal(err)
			}
			h := model.Head()
			if !slices.Equal(h.Layers, e.Layers) || !h.For(target) || h.For(model) {
				t.Errorf("sees layers %v, want %v", h.Layers, e.Layers)
			}
			if all := e.Name == "eagle" || e.Name == "trained"; all && h.Tokens != nil || !all && !slices.Equal(h.Tokens, e.Known) {
				t.Errorf("chooses from %v, want %v", h.Tokens, e.Known)
			}
			steps, err := target.Steps(models.StepOptions{Blocks: 3, Hidden: h.Layers})
			if err != nil {
				t.Fatal(err)
			}
			seen := run(t, steps, rowsOf(e.Tokens, 0, len(e.Tokens)), models.StepHidden)
			if last := seen[len(seen)-2*h.Seen : len(seen)-h.Seen]; !alike(last, e.Seen) {
				t.Errorf("the model saw %v, want %v", last, e.Seen)
			}
			if steps, err = model.Steps(models.StepOptions{Blocks: 3}); err != nil {
				t.Fatal(err)
			}
			session, err := optimem.Start(t.Context(), steps, optimem.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close()
			n := len(e.Tokens) - 1
			in := rowsOf(e.Tokens[1:], 0, n)
			in[models.StepSeen] = tensor.Of(seen[:n*h.Seen], n, h.Seen)
			if h.Own {
				in[models.StepOwn] = tensor.Of(make([]float32, n*h.Size), n, h.Size)
				in[models.StepGuessed] = tensor.Of(make([]int64, n), n)
			}
			hidden := slices.Concat(e.Hidden...)
			for k, id := range e.Guesses {
				out, err := session.Run(t.Context(), in)
				if err != nil {
					t.Fatal(err)
				}
				logits, own := floats(t, out[models.StepLogits]), floats(t, out[models.StepHidden])
				if k == 0 && !alike(own, hidden) {
					t.Errorf("gives %v, want %v", own, hidden)
				}
				logits, own = logits[len(logits)-len(e.Known):], own[len(own)-h.Size:]
				if !alike(logits, e.Logits[k]) {
					t.Errorf("guess %d: logits %v, want %v", k, logits, e.Logits[k])
				}
				if got := e.Known[slices.Index(logits, slices.Max(logits))]; got != id {
					t.Errorf("guess %d is %d, want %d", k, got, id)
				}
				in = rowsOf([]int{id}, n+k, 1)
				if in[models.StepSeen] = tensor.Of(make([]float32, h.Seen), 1, h.Seen); h.Own {
					in[models.StepOwn] = tensor.Of(slices.Clone(own), 1, h.Size)
					in[models.StepGuessed] = tensor.Of([]int64{1}, 1)
				} else {
					in[models.StepSeen] = tensor.Of(slices.Clone(own), 1, h.Seen)
				}
			}
		})
	}
}

// rowsOf are the inputs of a pass of tokens of the only sequence from a place on, all of which are wanted.
func rowsOf(tokens []int, at, n int) optimem.Values {
	ids, positions, wanted, blocks := make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, 2*n)
	for i := range n {
		ids[i], positions[i], wanted[i] = int64(tokens[i]), int64(at+i), int64(i)
		blocks[2*i], blocks[2*i+1] = 2, 1
	}
	return optimem.Values{
		models.StepTokens: tensor.Of(ids, n), models.StepPositions: tensor.Of(positions, n),
		models.StepWanted: tensor.Of(wanted, n), models.StepBlocks: tensor.Of(blocks, n, 2),
	}
}

// run is an output of a pass.
func run(t *testing.T, model *models.Model, in optimem.Values, output string) []float32 {
	t.Helper()
	session, err := optimem.Start(t.Context(), model, optimem.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	out, err := session.Run(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	return floats(t, out[output])
}

func floats(t *testing.T, x *tensor.Tensor) []float32 {
	t.Helper()
	list, err := tensor.Slice[float32](x)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestEagleRefused: a head that does not fit its model, or is not one, is refused in words that say why.
func TestEagleRefused(t *testing.T) {
	list, target := eagles(t)
	third := func(hidden int, layers ...int) *fixtures.Eagle {
		return fixtures.SmallEagle(hidden, 32, layers, fixtures.Every(32, 2))
	}
	replaced := func(old, new string) *fixtures.Eagle {
		e := third(16, 0, 1, 1)
		e.Config = []byte(strings.Replace(string(e.Config), old, new, 1))
		return e
	}
	few, beyond := third(16, 0, 1, 1), third(16, 0, 1, 1)
	delete(few.Shapes, "midlayer.mlp.up_proj.weight")
	beyond.Known[3] = 33
	for _, c := range []struct {
		name string
		head *fixtures.Eagle
		want string
	}{
		{"of another size", fixtures.SmallEagle(32, 32, nil, fixtures.Every(32, 1)), "its hidden_size is 32, and that of the model is"},
		{"of other words", fixtures.SmallEagle(16, 40, nil, fixtures.Every(40, 1)), "it reads 40 tokens, and the model has 32"},
		{"of a wider model", third(24, 0, 1, 1), "it reads 72 numbers of each token, and the model has 48"},
		{"of a deeper model", third(16, 0, 1, 9), "what layer 9 sees, and the model has 1"},
		{"the usual layers", replaced(`"eagle_aux_hidden_state_layer_ids":[0,1,1],`, ""), "and the model has 1"},
		{"layers that are none", replaced("[0,1,1]", `"all"`), "not a list of 1 to 16 layers"},
		{"half a layer", replaced("[0,1,1]", "[0,1,0.5]"), "not the number of a layer"},
		{"several layers", replaced(`"num_hidden_layers":1`, `"num_hidden_layers":2`), "several layers"},
		{"a token that is none", beyond, "its token 3 is 33 of the model's"},
		{"a weight too few", few, "mlp.up_proj.weight"},
		{
			"that changes with the length",
			replaced(`"vocab_size"`, `"rope_scaling":{"type":"dynamic","factor":2.0},"vocab_size"`), "change with the length",
		},
	} {
		folder := filepath.Join(t.TempDir(), "head")
		if err := c.head.Write(folder, 64); err != nil {
			t.Fatal(err)
		}
		_, err := models.BuildHead(opened(t, folder), target)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	folder := t.TempDir()
	if err := list[1].Write(folder, 32); err != nil {
		t.Fatal(err)
	}
	ckpt := opened(t, folder)
	var alone *models.UnsupportedError
	if _, err := models.Build(ckpt, models.Options{}); !errors.As(err, &alone) || !strings.Contains(alone.Hint, "--draft") {
		t.Errorf("a head alone: %v", err)
	}
	encoder, err := models.Build(opened(t, filepath.Join(configFolder, "tiny_vit")), models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var wrong *models.HeadError
	if _, err := models.BuildHead(ckpt, encoder); !errors.As(err, &wrong) {
		t.Errorf("a head for a model that does not write: %v", err)
	}
	if models.IsHead(opened(t, filepath.Join(configFolder, "tiny_llama"))) {
		t.Error("a whole model is a head")
	}
}
