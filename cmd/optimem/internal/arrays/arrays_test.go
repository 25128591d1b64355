package arrays

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/optimem/optimem/tensor"
)

// TestThereAndBack: what is written as .npy is read again, into memory of the caller's, unless its check refuses it.
func TestThereAndBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.npy")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	x := tensor.Of([]float32{1, 2, 3, 4, 5, 6}, 2, 3)
	ctx := t.Context()
	if err := errors.Join(Formats[FormatOf(path)](ctx, Writer(ctx, file), []Named{{"x", x}}), file.Close()); err != nil {
		t.Fatal(err)
	}
	var memory []byte
	alloc := func(bytes int64) ([]byte, error) {
		memory = make([]byte, bytes)
		return memory, nil
	}
	open := func() *File {
		f, err := OpenNPY(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		})
		return f
	}
	refused := errors.New("not this one")
	if _, err := open().Read(ctx, "", alloc, func(tensor.DType, tensor.Shape) error { return refused }); !errors.Is(err, refused) {
		t.Errorf("refused: %v", err)
	}
	y, err := open().Read(ctx, "", alloc, func(d tensor.DType, s tensor.Shape) error {
		if d != x.DType || !s.Equal(x.Layout.Shape) {
			t.Errorf("%v %v", d, s)
		}
		return nil
	})
	if err != nil || string(y.Data) != string(x.Data) || &y.Data[0] != &memory[0] {
		t.Errorf("%v, %v", y, err)
	}
}

// TestStopped: neither reads nor writes go on when a context is done.
func TestStopped(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	file, err := os.Create(filepath.Join(t.TempDir(), "x"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	}()
	if _, err := Writer(ctx, file).Write([]byte{1}); !errors.Is(err, context.Canceled) {
		t.Errorf("write: %v", err)
	}
	if _, err := Reader(ctx, file).Read(make([]byte, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("read: %v", err)
	}
}

// TestOnlyFiles: a folder is no file of tensors, and is not waited for.
func TestOnlyFiles(t *testing.T) {
	if _, _, err := OpenFile(t.TempDir()); err == nil {
		t.Error("a folder is opened")
	}
}
