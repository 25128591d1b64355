//go:build !files

package main

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/optimem/optimem/cmd/optimem/internal/command"
	"github.com/optimem/optimem/cmd/optimem/internal/running"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/tensor"
)

const picturesFolder = "../../internal/preprocess/testdata/"

// TestRunPictures gives a program two pictures and compares what it got with the values that torchvision recorded.
func TestRunPictures(t *testing.T) {
	files, spec := []string{"odd.png", "lossy_odd.webp"}, "imagenet:resize=61,crop=32,filter=bicubic"
	var recorded []struct {
		File, Spec string
		Values     []float32
	}
	recordedIn(t, picturesFolder+"expected.json.gz", &recorded)
	path := filepath.Join(t.TempDir(), "out.safetensors")
	done(t, "run", picturesFolder+"look.pt2", "--input", "x="+picturesFolder+files[0]+","+picturesFolder+files[1],
		"--preprocess", spec, "-o", path)
	ckpt, err := loader.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer ckpt.Close()
	w, ok := ckpt.Weight("same")
	if !ok {
		t.Fatalf("no output called same in %s", path)
	}
	same, err := w.Contents(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	values, err := tensor.Slice[float32](same)
	if err != nil {
		t.Fatal(err)
	}
	const each = 3 * 32 * 32
	if len(values) != 2*each {
		t.Fatalf("%v values, want 2 × 3 × 32 × 32", same.Layout.Shape)
	}
	compared := 0
	for _, r := range recorded {
		for n, file := range files {
			if r.File != file || r.Spec != spec {
				continue
			}
			for i, want := range r.Values {
				at := n*each + int(uint64(i)*2654435761%each)
				if math.Float32bits(values[at]) != math.Float32bits(want) {
					t.Errorf("%s: value %d is %v, want %v", file, at, values[at], want)
				}
				compared++
			}
		}
	}
	if compared != 32 {
		t.Errorf("%d values compared, want 32", compared)
	}
}

// TestFolderSaysHow: a folder's preprocessor_config.json says how a picture becomes numbers where --preprocess does
// not, and what it says that is not done here is an error.
func TestFolderSaysHow(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "vit")
	if err := os.CopyFS(folder, os.DirFS("../../models/testdata/families/hf/tiny_vit")); err != nil {
		t.Fatal(err)
	}
	logits := func(flags ...string) []float32 {
		t.Helper()
		path := filepath.Join(t.TempDir(), "out.safetensors")
		done(t, append([]string{"run", folder, "--input", picturesFolder + "odd.png", "-o", path}, flags...)...)
		ckpt, err := loader.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer ckpt.Close()
		w, _ := ckpt.Weight("logits")
		x, err := w.Contents(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		values, err := tensor.Slice[float32](x)
		if err != nil {
			t.Fatal(err)
		}
		return values
	}
	say := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(folder, running.FolderSpec), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	say(`{"feature_extractor_type": "ViTFeatureExtractor", "size": 8}`)
	got, want := logits(), logits("--preprocess", "vit:resize=8x8")
	for i := range want {
		if math.Abs(float64(got[i]-want[i])) > 1e-5 {
			t.Errorf("logit %d is %v by the folder, and %v by --preprocess", i, got[i], want[i])
		}
	}
	say(`{"image_processor_type": "SamImageProcessor"}`)
	if _, text, code := execute(t, "run", folder, "--input", picturesFolder+"odd.png"); code != command.ExitUnsupported || !strings.Contains(text, "SamImageProcessor") {
		t.Errorf("%d: %s", code, text)
	}
}
