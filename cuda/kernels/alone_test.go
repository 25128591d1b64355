package kernels_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/cuda/kernels"
)

// TestAlone: an image with one kernel has that one as it is in the whole image, no other, and everything that is no kernel; all of them
// together have nothing else.
func TestAlone(t *testing.T) {
	done := make(map[string]bool)
	for _, name := range kernels.Names() {
		family, err := kernels.Family(name)
		if err != nil {
			t.Fatal(err)
		}
		if done[family] {
			continue
		}
		done[family] = true
		whole, err := kernels.Image(family, 80)
		if err != nil {
			t.Fatal(err)
		}
		head := []byte(".visible .entry ")
		var own int
		var rest []byte
		names := slices.DeleteFunc(kernels.Names(), func(n string) bool { f, err := kernels.Family(n); return err != nil || f != family })
		if n := bytes.Count(whole, head); n != len(names) {
			t.Errorf("%s: %d kernels, and names of %d", family, n, len(names))
		}
		for _, n := range names {
			alone, err := kernels.Alone(whole, n)
			if err != nil {
				t.Fatal(err)
			}
			begin := bytes.Index(alone, append(head, (n+"(")...))
			if begin < 0 || bytes.Count(alone, head) != 1 {
				t.Fatalf("%s: the kernel is not there, or not alone", n)
			}
			end := begin + bytes.Index(alone[begin:], []byte("\n}\n")) + len("\n}\n")
			if !bytes.Contains(whole, alone[begin:end]) {
				t.Errorf("%s is another kernel", n)
			}
			others := slices.Concat(alone[:begin], alone[end:])
			if rest != nil && !bytes.Equal(others, rest) {
				t.Errorf("%s: what stands beside it is something else", n)
			}
			rest, own = others, own+end-begin
			for line := range strings.Lines(string(alone[begin:end])) {
				if called, ok := strings.CutSuffix(line, ",\n"); ok && strings.HasPrefix(called, "_Z") && !bytes.Contains(rest, []byte(called)) {
					t.Errorf("%s: %s is not there", n, called)
				}
			}
		}
		if own+len(rest) != len(whole) {
			t.Errorf("%s: %d bytes of kernels, %d beside them, %d in all", family, own, len(rest), len(whole))
		}
	}
	if whole, err := kernels.Image("copy", 80); err != nil {
		t.Error(err)
	} else if _, err := kernels.Alone(whole, "om_gather"); err == nil {
		t.Error("the begin of a name is taken for it")
	} else if _, err := kernels.Alone(whole[:len(whole)/2], "om_gather_1"); err == nil {
		t.Error("half an image is taken")
	}
}
