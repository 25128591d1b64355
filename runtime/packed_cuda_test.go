//go:build linux && (amd64 || arm64) && !nocuda

package runtime_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/optimem/optimem/cuda/sim"
	"github.com/optimem/optimem/plan"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/storage/packed"
	"github.com/optimem/optimem/tensor"
)

// TestPackedOnGPU: a packed model gives the bits of the original on the simulated driver, and a damaged block of a group that
// the GPU decodes is an error that names what lies there.
func TestPackedOnGPU(t *testing.T) {
	path := filepath.Join(t.TempDir(), "digits.pt2")
	packSmall(t, digitsModel, path)
	x := pictures(5)
	run := func(path string) (out []byte, land int64, err error) {
		lib := sim.New(t, "memory=64M order=lazy:2")
		s := onGPU(t, build(t, path, nil), plan.Page, lib, optimem.Options{})
		defer func() {
			err = errors.Join(err, s.Close())
			lib.Check(t)
		}()
		shapes := make(map[string]tensor.Shape)
		for name, in := range digitsInput(x) {
			shapes[name] = in.Layout.Shape
		}
		p, err := s.Plan(t.Context(), shapes)
		if err != nil {
			return nil, 0, err
		}
		results, err := s.Run(t.Context(), digitsInput(x))
		for _, y := range results {
			out = y.Data
		}
		return out, p.LandBytes, err
	}
	want, _, err := run(digitsModel)
	if err != nil {
		t.Fatal(err)
	}
	got, land, err := run(path)
	if err != nil || !bytes.Equal(got, want) || land == 0 {
		t.Fatalf("%v, the GPU decodes through %d bytes, or other bits", err, land)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := run(path); err == nil || !strings.Contains(err.Error(), "hidden.weight: packed: its checksum") {
		t.Errorf("of a damaged block: %v", err)
	}
}

// packSmall writes a packed copy of a file in blocks so small that a little model gains by them.
func packSmall(t *testing.T, from, path string) {
	t.Helper()
	source, err := storage.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	to, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	var o packed.Options
	for at := int64(0); at < source.Size(); at += 8 << 10 {
		o.Runs = append(o.Runs, packed.Run{Offset: at, Bytes: min(8<<10, source.Size()-at)})
	}
	_, err = packed.Write(t.Context(), source, to, o)
	if err := errors.Join(err, to.Close()); err != nil {
		t.Fatal(err)
	}
}
