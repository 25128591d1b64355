//go:build files

package main

import (
	"strings"
	"testing"
)

// TestFilesAlone: the program that is built for files alone says so where it is asked to compute, and looks at files.
func TestFilesAlone(t *testing.T) {
	var stdout, stderr strings.Builder
	if code := doMain([]string{"run", "x.pt"}, &stdout, &stderr); code != 2 || !strings.Contains(stderr.String(), "build it without -tags files") {
		t.Errorf("run: exit code %d, %s", code, stderr.String())
	}
	stderr.Reset()
	if code := doMain([]string{"inspect", "../../examples/digits/digits.pth"}, &stdout, &stderr); code != 0 || !strings.Contains(stdout.String(), "torch-zip") {
		t.Errorf("inspect: exit code %d, %s%s", code, stdout.String(), stderr.String())
	}
}
