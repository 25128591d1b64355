package heard

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/internal/npy"
	"github.com/optimem/optimem/tensor"
)

func arrayFile(t *testing.T, x *tensor.Tensor) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "features.npy"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if x == nil {
		_, err = f.WriteString("RIFF")
	} else {
		err = npy.Write(f, x)
	}
	if _, back := f.Seek(0, io.SeekStart); err != nil || back != nil {
		t.Fatal(err, back)
	}
	return f
}

// TestFeatures: an array of float32 is features, in the order of its elements; others, and other files, are errors.
func TestFeatures(t *testing.T) {
	f := arrayFile(t, tensor.Of([]float32{1, 2, 3, 4}, 2, 2))
	got, err := Features(f)
	if err != nil || !slices.Equal(got, []float32{1, 2, 3, 4}) || !IsFeatures(f) {
		t.Errorf("%v, %v", got, err)
	}
	f = arrayFile(t, tensor.Of([]int64{1}, 1))
	var kind *KindError
	if _, err := Features(f); !errors.As(err, &kind) || !strings.Contains(err.Error(), "int64 [1]") {
		t.Errorf("integers: %v", err)
	}
	f = arrayFile(t, nil)
	if _, err := Features(f); err == nil || errors.As(err, &kind) || IsFeatures(f) {
		t.Errorf("another file: %v", err)
	}
}

// TestFacts: the line and the JSON say what came of a sound.
func TestFacts(t *testing.T) {
	f := Facts{Text: "A\"B", Sound: 3.5, Read: 2.5, Seconds: 0.25, Peak: 1 << 20, Moved: 2 << 20}
	if got := f.String(); !strings.Contains(got, "a sound of 2.5 s in 250 ms") || !strings.Contains(got, "moved 2.00 MiB") {
		t.Error(got)
	}
	f.Moved = 0
	if got := f.String(); strings.Contains(got, "moved") {
		t.Error(got)
	}
	var b strings.Builder
	if err := f.Print(&b); err != nil || !strings.Contains(b.String(), `"text": "A\"B"`) || !strings.Contains(b.String(), `"sound_seconds": 3.5`) {
		t.Errorf("%s: %v", b.String(), err)
	}
}
