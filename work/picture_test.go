package work

import (
	"bytes"
	"fmt"
	"image"
	"image/png"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/optimem/optimem/internal/preprocess"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

const pictureFiles = "../internal/preprocess/testdata/"

// lookFolder has the model whose outputs are its input, a picture of any size, and the mean of each colour.
func lookFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	data, err := os.ReadFile(pictureFiles + "look.pt2")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "look.pt2"), data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// numbers are what a picture becomes by itself.
func numbers(t *testing.T, file []byte, how string) []byte {
	t.Helper()
	spec, err := preprocess.Parse(how)
	if err != nil {
		t.Fatal(err)
	}
	p, err := preprocess.Decode(bytes.NewReader(file), preprocess.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	height, width, err := spec.Size(p.Height, p.Width)
	if err != nil {
		t.Fatal(err)
	}
	values := make([]float32, 3*height*width)
	if err := spec.Apply(t.Context(), p, values); err != nil {
		t.Fatal(err)
	}
	return tensor.Of(values, len(values)).Data
}

// plainPNG is a picture of one colour.
func plainPNG(t *testing.T, height, width int) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewNRGBA(image.Rect(0, 0, width, height))); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func filesOf(files []File) iter.Seq[Item] {
	return func(yield func(Item) bool) {
		for i, f := range files {
			if !yield(Item{Name: fmt.Sprint("file ", i), Files: map[string]File{"x": f}}) {
				return
			}
		}
	}
}

// TestPictures: workers have files of pictures become the numbers that they become elsewhere, each in its own way; a
// picture that needs more memory than others is given it; those in a shared folder have the same keys.
func TestPictures(t *testing.T) {
	server := embedded(t)
	root, err := os.OpenRoot(pictureFiles)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	h := hireFor(t, Options{URL: server.URL(), Stream: "pictures"}, lookFolder(t), "look", WorkerOptions{Shared: root}, nil)
	q := h.q
	const small = "imagenet:resize=40,crop=32"
	var files []File
	for _, name := range []string{"420.jpg", "progressive.jpg", "rgba.png", "gray16.png", "lossy.webp"} {
		data, err := os.ReadFile(pictureFiles + name)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, File{Data: data, Preprocess: small}, File{Data: data, Preprocess: "none"})
	}
	files = append(files, File{Data: plainPNG(t, 1300, 1200), Preprocess: small}) // which takes more than is set aside
	keys := make(map[string]int)
	results := make([]Result, len(files))
	if err := q.Submit(t.Context(), "look", filesOf(files), SubmitOptions{}, func(r Result) error {
		results[r.Index] = r
		keys[r.Key]++
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if len(keys) != len(files) {
		t.Errorf("%d keys of %d items", len(keys), len(files))
	}
	for i, r := range results {
		if r.Reason != "" {
			t.Errorf("%s: %s", r.Name, r.Reason)
		} else if !bytes.Contains(output(t, q, r.Key), numbers(t, files[i].Data, files[i].Preprocess)) {
			t.Errorf("%s has other bits than it has by itself", r.Name)
		}
	}
	shared := []File{{Path: "420.jpg", Preprocess: small}}
	if err := q.Submit(t.Context(), "look", filesOf(shared), SubmitOptions{Shared: root}, func(r Result) error {
		if r.Key != results[0].Key {
			t.Errorf("in a folder it has key %s, and else %s", r.Key, results[0].Key)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestPicturesRefused: what is no picture, or takes more memory than a worker has for inputs, is put aside.
func TestPicturesRefused(t *testing.T) {
	server := embedded(t)
	h := hireFor(t, Options{URL: server.URL(), Stream: "pictures"}, lookFolder(t), "look", WorkerOptions{MaxBytes: 4 << 20}, nil)
	whole, err := os.ReadFile(pictureFiles + "420.jpg")
	if err != nil {
		t.Fatal(err)
	}
	reasons := []string{
		"it begins as none", "ends too early", "unknown preprocessing", "exceeds the limit", "exceeds the limit", "smaller than the crop", "",
	}
	files := []File{
		{Data: []byte("no picture, and none will be"), Preprocess: "none"},
		{Data: whole[:len(whole)/2], Preprocess: "none"},
		{Data: whole, Preprocess: "backwards"},
		{Data: plainPNG(t, 1000, 1000), Preprocess: "none"},
		{Data: whole, Preprocess: "none:resize=4000x4000"},
		{Data: whole, Preprocess: "none:crop=9999"},
		{Data: whole, Preprocess: "none"},
	}
	if err := h.q.Submit(t.Context(), "look", filesOf(files), SubmitOptions{}, func(r Result) error {
		if want := reasons[r.Index]; (want == "") != (r.Reason == "") || !strings.Contains(r.Reason, want) {
			t.Errorf("%s: %q, want %q", r.Name, r.Reason, want)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	both := func(yield func(Item) bool) {
		yield(Item{Inputs: runtime.Values{"x": picture(1)}, Files: map[string]File{"x": {Data: whole}}})
	}
	if err := h.q.Submit(t.Context(), "look", both, SubmitOptions{}, func(r Result) error {
		if !strings.Contains(r.Reason, "given twice") {
			t.Error(r.Reason)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	long := `{"inputs": [{"name": "x", "sha256": "` + strings.Repeat("0", 64) + `", "bytes": 1, "preprocess": "` + strings.Repeat("x", 257) + `"}]}`
	if _, err := parseNote([]byte(long)); err == nil {
		t.Error("any number of words is taken")
	}
}
