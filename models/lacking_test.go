package models_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/tensor"
)

// TestLackingSaysWhere: an op that is refused for its arguments, which shows when a graph is built, is listed with its
// module and source as an op is that is not there at all.
func TestLackingSaysWhere(t *testing.T) {
	ckpt, err := loader.Open("../runtime/testdata/lacking.pt2")
	if err != nil {
		t.Fatal(err)
	}
	defer ckpt.Close()
	model, err := models.Build(ckpt, models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = model.Graph(map[string]tensor.Shape{"x": {2, 2}})
	var u *models.UnsupportedError
	if !errors.As(err, &u) {
		t.Fatalf("got %v, want an UnsupportedError", err)
	}
	want := []models.Missing{{
		Name: "torch.ops.aten.matrix_power.default", Path: "inner", Source: "power.py:7", Uses: 1,
		Reason: "power -2 of matrices, which needs their inverse",
	}}
	if diff := cmp.Diff(want, u.Missing); diff != "" {
		t.Error(diff)
	}
	const says = "torch.ops.aten.matrix_power.default in inner (power.py:7): power -2 of matrices"
	if !strings.Contains(err.Error(), says) {
		t.Errorf("%q does not say %q", err, says)
	}
}
