package models_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/models/internal/zoo"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

const wholeFolder = "testdata/nn/whole"

// wholeRecords is whole.json.
type wholeRecords struct {
	Whole   map[string]zoo.Case
	Refused map[string]struct {
		Shapes map[string]tensor.Shape
		Why    string
	}
}

func readWhole(t *testing.T) wholeRecords {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(wholeFolder, "whole.json"))
	if err != nil {
		t.Fatal(err)
	}
	var records wholeRecords
	if err := json.Unmarshal(text, &records); err != nil {
		t.Fatal(err)
	}
	return records
}

// TestWholeModules runs files that torch.save(model) wrote and compares with PyTorch's outputs.
func TestWholeModules(t *testing.T) {
	for name, c := range readWhole(t).Whole {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			model := openModel(t, filepath.Join(wholeFolder, name))
			session, err := optimem.Resident(t.Context(), model, optimem.ResidentOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close()
			if _, err := runCase(t.Context(), session, "", c, func(optimem.Values) {}); err != nil {
				t.Error(err)
			}
		})
	}
}

func openModel(t *testing.T, path string) *models.Model {
	t.Helper()
	ckpt, err := loader.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ckpt.Close() })
	model, err := models.Build(ckpt, models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return model
}

// TestWholeModulesRefused reads files with attributes that lie, hooks, and classes whose code is not known. Each must
// end in an error of the package's types that says what is wrong.
func TestWholeModulesRefused(t *testing.T) {
	for name, c := range readWhole(t).Refused {
		t.Run(name, func(t *testing.T) {
			err := buildWhole(filepath.Join(wholeFolder, "refused", name), c.Shapes)
			if err == nil || !strings.Contains(err.Error(), c.Why) {
				t.Fatalf("got %v, want an error that says %q", err, c.Why)
			}
			var (
				unsupported *models.UnsupportedError
				trace       *layers.TraceError
			)
			if !errors.As(err, &unsupported) && !errors.As(err, &trace) && !errors.Is(err, loader.ErrLimit) {
				t.Errorf("%T: %v", err, err)
			}
		})
	}
}

func buildWhole(path string, shapes map[string]tensor.Shape) error {
	ckpt, err := loader.Open(path)
	if err != nil {
		return err
	}
	defer ckpt.Close()
	model, err := models.Build(ckpt, models.Options{})
	if err != nil {
		return err
	}
	_, err = model.Graph(shapes)
	return err
}

// TestWholeModuleListsAll wants every unknown class in one error, with the line that helps.
func TestWholeModuleListsAll(t *testing.T) {
	err := buildWhole(filepath.Join(wholeFolder, "refused", "mine.pt"), nil)
	var unsupported *models.UnsupportedError
	if !errors.As(err, &unsupported) {
		t.Fatal(err)
	}
	var lines []string
	for _, m := range unsupported.Missing {
		lines = append(lines, m.Name+" "+m.Path)
	}
	want := []string{"__main__.Mine 0", "torch.nn.modules.pooling.FractionalMaxPool2d 3"}
	if strings.Join(lines, ", ") != strings.Join(want, ", ") || unsupported.Missing[0].Uses != 2 {
		t.Errorf("missing: %q", lines)
	}
	if !strings.Contains(unsupported.Hint, "torch.export") {
		t.Errorf("hint: %q", unsupported.Hint)
	}
}

// TestWholeModuleForms wants the digits' whole module to give the bits of the exported program.
func TestWholeModuleForms(t *testing.T) {
	shape := tensor.Shape{8, 1, 8, 8}
	var graphs [2][]string
	for i, file := range []string{"digits.pt2", "digits_module.pt"} {
		model := openModel(t, filepath.Join("../examples/digits", file))
		g, err := model.Graph(map[string]tensor.Shape{model.Inputs()[0].Name: shape})
		if err != nil {
			t.Fatal(err)
		}
		graphs[i] = describe(g)
	}
	if a, b := strings.Join(graphs[0], "\n"), strings.Join(graphs[1], "\n"); a != b {
		t.Errorf("the exported program:\n%s\nthe module:\n%s", a, b)
	}
}

// TestWholeModuleShares wants a module in two places, and a tied weight, in the graph once.
func TestWholeModuleShares(t *testing.T) {
	model := openModel(t, filepath.Join(wholeFolder, "tied.pt"))
	g, err := model.Graph(map[string]tensor.Shape{"input": {2, 3}})
	if err != nil {
		t.Fatal(err)
	}
	var bytes int64
	for _, v := range g.Values {
		if v.Role == graph.Weight {
			n, _ := v.Shape.NumElements()
			bytes += n * int64(v.DType.Size())
		}
	}
	if want := int64(4 * (12*6 + 6*6 + 6)); bytes != want {
		t.Errorf("%d bytes of weights in the graph, want %d", bytes, want)
	}
}

// TestModulesFromBefore runs the recorded modules without the attributes that older releases did not have yet.
func TestModulesFromBefore(t *testing.T) {
	cases, err := zoo.Modules(nnRecording)
	if err != nil {
		t.Fatal(err)
	}
	changed := 0
	for _, c := range cases {
		defaults := layers.NN()[c.Module.Class].Defaults
		if c.Refused != "" || len(defaults) == 0 {
			continue
		}
		for name, v := range defaults {
			had, ok := c.Module.Attrs[name]
			if text, _ := json.Marshal(had); ok && sameDefault(string(text), v) {
				delete(c.Module.Attrs, name)
				changed++
			}
		}
		t.Run(c.Name, func(t *testing.T) {
			if err := runModule(t.Context(), c); err != nil {
				t.Error(err)
			}
		})
	}
	if changed < 100 {
		t.Errorf("%d attributes left out", changed)
	}
}

// sameDefault compares a recorded attribute with a default.
func sameDefault(recorded string, v any) bool {
	text, err := json.Marshal(v)
	return err == nil && recorded == string(text)
}
