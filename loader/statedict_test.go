package loader

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// What an optimizer keeps for each weight looks like a state dict and is no model.
func TestStateDictsHaveNoTrainingState(t *testing.T) {
	kept := 0
	for name := range goldens(t) {
		if !strings.HasPrefix(name, "train_") {
			continue
		}
		ckpt, err := Open(filepath.Join(validFolder(), name))
		if err != nil {
			t.Fatal(err)
		}
		defer ckpt.Close()
		for _, w := range ckpt.Weights {
			if strings.Contains(w.Name, "exp_avg") || strings.Contains(w.Name, "momentum_buffer") {
				kept++
			}
		}
		for _, d := range ckpt.StateDicts() {
			for _, w := range d.Weights {
				if strings.Contains(w.Name, "exp_avg") || strings.Contains(w.Name, "momentum_buffer") {
					t.Errorf("%s: the state dict at %q has the optimizer's %s", name, d.Path, w.Name)
				}
			}
		}
	}
	if kept == 0 {
		t.Error("no file has what an optimizer keeps")
	}
}

// A wrapper's prefix is one only where every name has it.
func TestStateDictPrefixes(t *testing.T) {
	for _, test := range []struct {
		names  []string
		prefix string
	}{
		{[]string{"module.a", "module.b.c"}, "module."},
		{[]string{"module.a", "b"}, ""},
		{[]string{"a", "module.b"}, ""},
		{[]string{"module._orig_mod.a", "module._orig_mod.b"}, "module._orig_mod."},
		{[]string{"_orig_mod.module.a", "_orig_mod.b"}, "_orig_mod."},
		{[]string{"module.", "module.a"}, ""},
		{[]string{"modules.a", "modules.b"}, ""},
	} {
		var weights []tensor.Weight
		for i, name := range test.names {
			weights = append(weights, tensor.Weight{
				Name: name, DType: tensor.UInt8, Layout: tensor.Contiguous(1),
				Extent: storage.Extent{Source: bytesSource("0123456789"), Offset: int64(i), Bytes: 1},
			})
		}
		ckpt, err := NewCheckpoint("test", weights, nil)
		if err != nil {
			t.Fatal(err)
		}
		dicts := ckpt.StateDicts()
		if len(dicts) != 1 || dicts[0].Prefix != test.prefix {
			t.Errorf("%v: %+v, want the prefix %q", test.names, dicts, test.prefix)
			continue
		}
		for i, w := range dicts[0].Weights {
			if want := strings.TrimPrefix(test.names[i], test.prefix); w.Name != want {
				t.Errorf("%v: %s, want %s", test.names, w.Name, want)
			}
		}
	}
}
