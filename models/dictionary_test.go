package models

import (
	"errors"
	"slices"
	"testing"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// differing is the mismatch of an architecture with n differences.
func differing(arch string, n int) *layers.MismatchError {
	return &layers.MismatchError{Arch: arch, Missing: slices.Repeat([]string{"w"}, n)}
}

// TestErrorThatSaysMost: where no state dict of a file is a model, the error is the one that says most: of several
// architectures that fit rather than of one that nearly does, and of that rather than of none. Of one state dict under
// several names the nearest counts; of two that are equally wrong the first, which is the likelier model.
func TestErrorThatSaysMost(t *testing.T) {
	two, err := loader.Open("testdata/wrapped.pt") // model, and ema beside it
	if err != nil {
		t.Fatal(err)
	}
	defer two.Close()
	within, err := loader.NewCheckpoint("within.pt", []tensor.Weight{{
		Name: "net.weight", DType: tensor.Float32, Layout: tensor.Contiguous(2),
		Extent: storage.Extent{Source: absent{}, Bytes: 8},
	}}, nil) // whole, and what net holds
	if err != nil {
		t.Fatal(err)
	}
	unknown := &UnsupportedError{What: "nothing like it is known"}
	far, near := differing("far", 9), differing("near", 2)
	ambiguous := &AmbiguousError{Candidates: []string{"a", "b"}}
	for _, c := range []struct {
		name          string
		ckpt          *loader.Checkpoint
		first, second error
		want          error
	}{
		{"a mismatch of the first", two, far, unknown, far},
		{"a mismatch of the second", two, unknown, far, far},
		{"a nearer one of the second", two, far, near, far},
		{"several of the second", two, near, ambiguous, ambiguous},
		{"a mismatch of the whole", within, far, unknown, far},
		{"a mismatch within a module", within, unknown, far, far},
		{"a nearer one within a module", within, far, near, near},
		{"a farther one within a module", within, near, far, near},
		{"several within a module", within, near, ambiguous, ambiguous},
		{"nothing", two, unknown, unknown, unknown},
	} {
		tried := 0
		got := (&Model{}).useDictionary(c.ckpt, func(dictionary) error {
			tried++
			return []error{c.first, c.second}[min(tried, 2)-1]
		})
		if got != c.want || tried != 2 {
			t.Errorf("%s: got %v after %d, want %v", c.name, got, tried, c.want)
		}
	}
}

// TestNearestArchitecture: a state dict that no architecture has is told the differences from the nearest, whichever
// catalogue has it.
func TestNearestArchitecture(t *testing.T) {
	saying := func(err error) catalogue {
		return catalogue{recognise: func(layers.StateDict) ([]*layers.Architecture, error) { return nil, err }}
	}
	near, far := differing("near", 2), differing("far", 3)
	for _, among := range [][]catalogue{
		{saying(near), saying(far), saying(nil)}, {saying(nil), saying(far), saying(near)}, {saying(near)},
	} {
		if _, err := recognise(among, nil, ""); err != near {
			t.Errorf("got %v, want the nearest", err)
		}
	}
	var unsupported *UnsupportedError
	if _, err := recognise([]catalogue{saying(nil)}, nil, ""); !errors.As(err, &unsupported) {
		t.Errorf("where none is near: %v", err)
	}
}
