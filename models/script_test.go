package models_test

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/models/internal/zoo"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

const scriptFolder = "testdata/script"

// TestScript runs TorchScript archives and compares what they give with PyTorch.
func TestScript(t *testing.T) {
	archives, err := filepath.Glob(filepath.Join(scriptFolder, "*.pt.gz"))
	if err != nil || len(archives) == 0 {
		t.Fatalf("no archives: %v", err)
	}
	for _, archive := range archives {
		name := strings.TrimSuffix(filepath.Base(archive), ".pt.gz")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base, form, _ := strings.Cut(name, ".")
			ref := readReference(t, filepath.Join(scriptFolder, base+".ref.json.gz"))
			model, err := models.Build(openScript(t, archive, ref), models.Options{})
			if err != nil {
				t.Fatal(err)
			}
			cases := ref.Cases
			if form == "trace" && base != "shapes" {
				cases = cases[:1] // a trace holds the sizes that it was traced with
			}
			runScript(t, model, cases)
		})
	}
}

func runScript(t *testing.T, model *models.Model, cases []zoo.Case) {
	t.Helper()
	var session *optimem.Session
	for i, c := range cases {
		var err error
		if !c.Continues {
			if session, err = optimem.Resident(t.Context(), model, optimem.ResidentOptions{Threads: 1}); err != nil {
				t.Fatal(err)
			}
			defer session.Close()
		}
		in := make(optimem.Values, len(c.Inputs))
		for name, f := range c.Inputs {
			if in[name], err = f.Tensor(name); err != nil {
				t.Fatal(err)
			}
		}
		out, err := session.Run(t.Context(), in)
		if err != nil {
			t.Fatalf("case %d: %v", i, err)
		}
		if len(out) != len(c.Outputs) {
			t.Errorf("case %d: %d outputs, PyTorch gave %d", i, len(out), len(c.Outputs))
		}
		for _, want := range c.Outputs {
			if _, err := compareSample(out[want.Name], want); err != nil {
				t.Errorf("case %d: output %s: %v", i, want.Name, err)
			}
		}
	}
}

// readReference reads what PyTorch computed.
func readReference(t *testing.T, path string) *zoo.Reference {
	t.Helper()
	ref := &zoo.Reference{}
	if err := zoo.Unzip(path, func(r io.Reader) error { return json.NewDecoder(r).Decode(ref) }); err != nil {
		t.Fatal(err)
	}
	return ref
}

// openScript opens an archive of the fixtures. Its weights are those of the reference.
func openScript(t *testing.T, archive string, ref *zoo.Reference) *loader.Checkpoint {
	t.Helper()
	packed, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	r, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "model.pt")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(f, r)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	ckpt, err := loader.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ckpt.Close() })
	filled, err := zoo.Weights(ref.Weights)
	if err != nil {
		t.Fatal(err)
	}
	weights := slices.Clone(ckpt.Weights)
	hash := make(map[tensor.Extent]tensor.Weight) // an archive has names for one storage that a state dict has not
	for _, w := range weights {
		if at := slices.IndexFunc(filled, func(f tensor.Weight) bool { return f.Name == w.Name }); at >= 0 {
			if !filled[at].Layout.Shape.Equal(w.Layout.Shape) {
				t.Fatalf("%s is %v, and %v in the reference", w.Name, w.Layout.Shape, filled[at].Layout.Shape)
			}
			hash[w.Extent] = filled[at]
		}
	}
	for i, w := range weights {
		filled, ok := hash[w.Extent]
		switch {
		case ok:
			weights[i].Extent, weights[i].Layout = filled.Extent, filled.Layout
		case !strings.HasPrefix(w.Name, "CONSTANTS."):
			t.Fatalf("%s is not in the reference", w.Name)
		}
	}
	hashed, err := loader.NewCheckpoint(path, weights, ckpt.Program)
	if err != nil {
		t.Fatal(err)
	}
	return hashed
}
