package models

import (
	"errors"
	"testing"

	"github.com/optimem/optimem/models/torchscript"
	"github.com/optimem/optimem/tensor"
)

// TestFormsAreBounded: a program whose attributes take ever more forms is refused before they take all memory.
func TestFormsAreBounded(t *testing.T) {
	s := newScriptStates()
	var refused *UnsupportedError
	for n := range maxForms + 1 {
		text, err := s.add(torchscript.Attributes{"n": n})
		if n == maxForms-1 || n == maxForms {
			if !errors.As(err, &refused) {
				t.Errorf("form %d: %v", n, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("form %d: %v", n, err)
		}
		if form, err := s.form(text); err != nil || form["n"] != n {
			t.Fatalf("form %d is %v, %v", n, form, err)
		}
	}
	if _, err := s.add(torchscript.Attributes{"n": 3}); err != nil {
		t.Errorf("a form that is there: %v", err)
	}
}

// TestKeptTensorsHaveTheirOwnPlace: each name, dtype and shape has bytes that no other has, the same every time.
func TestKeptTensorsHaveTheirOwnPlace(t *testing.T) {
	s := newScriptStates()
	var end int64
	for _, k := range []torchscript.Kept{
		{Name: "a", DType: tensor.Float32, Shape: tensor.Shape{2, 3}}, {Name: "b", DType: tensor.Float32, Shape: tensor.Shape{2, 3}},
		{Name: "a", DType: tensor.Int32, Shape: tensor.Shape{2, 3}}, {Name: "a", DType: tensor.Float32, Shape: tensor.Shape{6}},
	} {
		first, again := s.extent(k, 24), s.extent(k, 24)
		if first != again || first.Offset < end || first.Bytes != 24 {
			t.Errorf("%v: %v and %v, behind %d", k, first, again, end)
		}
		end = first.Offset + first.Bytes
		data := []byte{1, 2, 3}
		if err := first.ReadAt(t.Context(), data, 21); err != nil || data[0] != 0 || data[2] != 0 {
			t.Errorf("%v: %v, %v", k, data, err)
		}
	}
}
