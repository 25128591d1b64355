//go:build !files

package running

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/cmd/optimem/internal/command"
	"github.com/optimem/optimem/cmd/optimem/internal/values"
	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/tensor"
)

// What a run took is told beside what was expected of it, without the loading of what stays, of which there may be none.
func TestRunFactsText(t *testing.T) {
	f := runFacts{
		Threads: 2, Seconds: 5, LoadSeconds: 2, ExpectedSeconds: 2.5, Measured: true, WeightBytes: 1 << 20,
		PeakDeviceBytes: 2 << 20, MovedBytes: 10 << 20, StallSeconds: 1,
	}
	const facts = "5 s, peak 2.00 MiB, weights 1.00 MiB, moved 10.00 MiB, 2.00 MiB/s over the run, stall 20 %, 2 threads"
	if got := f.String(); got != facts {
		t.Errorf("said %q, want %q", got, facts)
	}
	if got, want := f.expectation(), "expected 2.5 s, took 3 s after 2 s of loading"; got != want {
		t.Errorf("said %q, want %q", got, want)
	}
	f.LoadSeconds, f.WeightBytes, f.Measured = 0, 0, false
	if got, want := f.expectation(), "expected 2.5 s"+Guessed+", took 5 s"; got != want {
		t.Errorf("said %q, want %q", got, want)
	}
	f.Simulated = true
	if got, want := f.expectation(), "expected 2.5 s, took 5 s"; got != want {
		t.Errorf("said %q, want %q", got, want)
	}
}

// A module in training is found at any depth.
func TestTraining(t *testing.T) {
	deep := &loader.Module{Children: []*loader.Module{{}, {Children: []*loader.Module{{Training: true}}}}}
	if training(nil) || training(&loader.Module{Children: []*loader.Module{{}}}) || !training(deep) {
		t.Errorf("training is %v of none, %v of a module with a child in training", training(nil), training(deep))
	}
}

// Labels are lines, whichever editor wrote them.
func TestReadLabels(t *testing.T) {
	path := filepath.Join(t.TempDir(), "labels.txt")
	for text, want := range map[string][]string{
		"cat\ndog\n": {"cat", "dog"}, "cat\ndog": {"cat", "dog"}, "\ufeffcat\r\ndog\r\n": {"cat", "dog"},
		"cat\n\ndog\n": {"cat", "", "dog"},
	} {
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if got, err := readLabels(t.Context(), path); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q holds %q, %v", text, got, err)
		}
	}
	if err := os.WriteFile(path, make([]byte, maxLabelBytes+1), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := readLabels(t.Context(), path); err == nil {
		t.Error("a large file is a list of labels")
	}
}

// Every way in which weights do not fit is listed.
func TestMismatchListsAll(t *testing.T) {
	var stderr strings.Builder
	r := Run{Line: &command.Line{Stderr: &stderr}}
	code := r.Report(t.Context(), r.Place(&layers.MismatchError{
		Arch: "net", Missing: []string{"a"}, Unexpected: []string{"b"},
		Misshaped: []layers.Misshaped{{Name: "c", Got: []int{2, 3}, Want: []int{3, 2}}},
	}))
	const want = `optimem: error: the state dict does not fit net: 3 differences
optimem: missing: a
optimem: unexpected: b
optimem: size mismatch: c: [2 3] in the checkpoint, [3 2] in the model
`
	if text, _, _ := strings.Cut(stderr.String(), "optimem: hint: "); code != command.ExitUnsupported || text != want {
		t.Errorf("exit code %d:\n%s", code, stderr.String())
	}
}

// In JSON a scalar has the shape [], and never null.
func TestScalarJSON(t *testing.T) {
	var r Run
	text, err := json.Marshal(r.jsonOutput(values.Summarize("y", tensor.Of([]float32{1.5}))))
	if err != nil || !strings.Contains(string(text), `"shape":[],"min":1.5,`) {
		t.Errorf("%s, %v", text, err)
	}
}
