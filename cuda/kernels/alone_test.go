package kernels_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/cuda/kernels"
)

// TestAlone: an image with one kernel has no other, and beside it what the others have; all kernels and that are the whole image. Beside
// kernels are declarations and functions.
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
		names := slices.DeleteFunc(kernels.Names(), func(n string) bool {
			f, err := kernels.Family(n)
			return err != nil || f != family
		})
		for _, capability := range []int{75, 90} {
			whole, err := kernels.Image(family, capability)
			if err != nil {
				t.Fatal(err)
			}
			checkAlone(t, family, whole, names)
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

func checkAlone(t *testing.T, family string, whole []byte, names []string) {
	t.Helper()
	const head = ".visible .entry "
	if n := bytes.Count(whole, []byte(head)); n != len(names) {
		t.Errorf("%s: %d kernels, and names of %d", family, n, len(names))
	}
	sum := 0
	for _, n := range names {
		alone, err := kernels.Alone(whole, n)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Count(alone, []byte(head)) != 1 || !bytes.Contains(alone, []byte(head+n+"(")) {
			t.Errorf("%s: the kernel is not there, or not alone", n)
		}
		sum += len(alone)
		depth := 0
		for line := range strings.Lines(string(alone)) {
			before := depth
			depth += strings.Count(line, "{") - strings.Count(line, "}")
			switch {
			case depth < 0:
				t.Fatalf("%s: more ends than begins", n)
			case before > 0 || strings.ContainsAny(line[:1], ".(){/;\n"):
			case strings.HasPrefix(line, "\t.param") || strings.HasPrefix(line, "\t//"):
			default:
				t.Fatalf("%s: %q is in no body", n, line)
			}
		}
		if depth != 0 {
			t.Errorf("%s: %d bodies have no end", n, depth)
		}
	}
	// What stands beside kernels counts as often as there are kernels, and they once.
	if n := len(names) - 1; n > 0 {
		if beside := (sum - len(whole)) / n; (sum-len(whole))%n != 0 || beside <= 0 || beside >= len(whole) {
			t.Errorf("%s: %d bytes alone, %d together", family, sum, len(whole))
		}
	}
}
