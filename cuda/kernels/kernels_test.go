package kernels_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/optimem/optimem/cuda/kernels"
)

// TestImagesAreFresh fails where a source has changed and "go generate ./cuda/kernels" was not run.
func TestImagesAreFresh(t *testing.T) {
	names, err := fs.Glob(kernels.Sources, "*.cu")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	known := make(map[string]bool)
	var stored, text int
	for _, name := range names {
		stamp, err := kernels.Stamp(kernels.Sources, name)
		if err != nil {
			t.Fatal(err)
		}
		family := strings.TrimSuffix(name, ".cu")
		for i, target := range append(slices.Clone(kernels.Targets), kernels.HopperTarget) {
			path := kernels.Path(family, target)
			known[path] = true
			packed, err := os.ReadFile(path)
			if os.IsNotExist(err) && i > 0 {
				continue // the newer target has nothing that the older has not
			}
			if err != nil {
				t.Error(err)
				continue
			}
			image, err := kernels.Unpack(packed)
			if err != nil {
				t.Errorf("%s: %v", path, err)
				continue
			}
			stored, text = stored+len(packed), text+len(image)
			if first, _, _ := strings.Cut(string(image), "\n"); first != stamp {
				t.Errorf("%s is not of %s as it is now: go generate ./cuda/kernels", path, name)
			}
			if !strings.Contains(string(image), "\n.target "+strings.Replace(target, "compute", "sm", 1)+"\n") {
				t.Errorf("%s is not for %s", path, target)
			}
		}
	}
	// Every program with CUDA carries what is stored, and drivers take the longer, the longer the text is.
	if stored > 6<<20 || text > 12<<20 {
		t.Errorf("the images have %d bytes, %d unpacked", stored, text)
	}
	images, err := filepath.Glob("ptx/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range images {
		if !known[filepath.ToSlash(path)] {
			t.Errorf("%s has no source", path)
		}
	}
}

// TestImage finds kernels by name, for GPUs old and new.
func TestImage(t *testing.T) {
	family, err := kernels.Family("om_gather_4")
	if err != nil || family != "copy" {
		t.Fatal(family, err)
	}
	for _, capability := range []int{70, 75, 80, 86, 90, 120} {
		image, err := kernels.Image(family, capability)
		if err != nil || !strings.Contains(string(image), ".visible .entry om_gather_4(") {
			t.Errorf("%d: %v", capability, err)
		}
	}
	if _, err := kernels.Family("om_nothing"); err == nil {
		t.Error("there is a kernel om_nothing")
	}
}

// TestStamp is another one where a header is, which the source includes.
func TestStamp(t *testing.T) {
	stamp := func(header string) string {
		s, err := kernels.Stamp(fstest.MapFS{
			"a.cu": {Data: []byte("#include \"om.h\"\n#include \"tile.h\"\n")}, "om.h": {}, "tile.h": {Data: []byte(header)},
		}, "a.cu")
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if stamp("1") == stamp("2") {
		t.Error("the header does not count")
	}
	if _, err := kernels.Stamp(fstest.MapFS{"a.cu": {Data: []byte("#include \"om.h\"\n")}}, "a.cu"); err == nil {
		t.Error("the header is missing and nobody says so")
	}
}

// TestPack gives the same bytes each time, of which the names are found; what is too large or cut short is refused.
func TestPack(t *testing.T) {
	ptx := []byte(".version 7.8\n.visible .entry om_a(\n)\n{\n}\n.visible .entry om_b()\n")
	packed, err := kernels.Pack("// 1", ptx)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := kernels.Pack("// 1", ptx); err != nil || !bytes.Equal(packed, again) {
		t.Errorf("packed twice: %v", err)
	}
	if image, err := kernels.Unpack(packed); err != nil || string(image) != "// 1\n// om_a om_b\n"+string(ptx) {
		t.Errorf("%q, %v", image, err)
	}
	stamp, names, err := kernels.Head(packed)
	if err != nil || stamp != "// 1" || !slices.Equal(names, []string{"om_a", "om_b"}) {
		t.Errorf("%q %q %v", stamp, names, err)
	}
	if _, err := kernels.Unpack(packed[:len(packed)-9]); err == nil {
		t.Error("it is cut short and nobody says so")
	}
	if _, _, err := kernels.Head(packed[:12]); err == nil {
		t.Error("its head is cut short and nobody says so")
	}
	large, err := kernels.Pack("// 1", bytes.Repeat([]byte("ret;\n"), 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kernels.Unpack(large); err == nil {
		t.Error("an image may have any size")
	}
}
