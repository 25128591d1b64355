package loader

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestVerify flips a bit of every weight of a file in turn: opening does not see it, opening with checksums names the
// record and where it is.
func TestVerify(t *testing.T) {
	for _, name := range []string{"digits.pth", "digits.pt2", "digits_script.pt"} {
		path := filepath.Join("../examples/digits", name)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		good, err := OpenWith(t.Context(), path, Options{Verify: true})
		if err != nil {
			t.Fatal(err)
		}
		if len(good.Weights) < 19 {
			t.Errorf("%s has %d weights", name, len(good.Weights))
		}
		bad := filepath.Join(t.TempDir(), name)
		for _, w := range good.Weights {
			at := w.Extent.Offset + w.Extent.Bytes/2
			data[at] ^= 1
			if err := os.WriteFile(bad, data, 0o666); err != nil {
				t.Fatal(err)
			}
			data[at] ^= 1
			ckpt, err := Open(bad)
			if err != nil {
				t.Fatalf("%s: %s: %v", name, w.Name, err)
			}
			_ = ckpt.Close()
			_, err = OpenWith(t.Context(), bad, Options{Verify: true})
			var where *Error
			if !errors.As(err, &where) || !errors.Is(err, ErrFormat) || where.Path != bad || where.Record == "" ||
				!strings.Contains(err.Error(), "CRC-32") {
				t.Errorf("%s: %s: got %v", name, w.Name, err)
			}
		}
		_ = good.Close()
	}
}
