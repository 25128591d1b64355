//go:build !files

package running

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/cmd/optimem/internal/arrays"
	"github.com/optimem/optimem/cmd/optimem/internal/command"
	"github.com/optimem/optimem/cmd/optimem/internal/values"
	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/npy"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/tensor"
)

// TestRunPlaces maps errors of a run to exit codes.
func TestRunPlaces(t *testing.T) {
	for _, tt := range []struct {
		err  error
		code int
	}{
		{fmt.Errorf("x: %w", &models.InputError{Input: "x", Msg: "?"}), command.ExitUsage},
		{fmt.Errorf("x: %w", &models.UnsupportedError{What: "?"}), command.ExitUnsupported},
		{fmt.Errorf("x: %w", &device.OutOfMemoryError{}), ExitDoesNotFit},
		{fmt.Errorf("x: %w", npy.ErrFormat), command.ExitUnsafe},
		{fmt.Errorf("x: %w", npy.ErrUnsupported), command.ExitUnsupported},
		{fmt.Errorf("x: %w", loader.ErrFormat), command.ExitUnsafe},
		{errors.New("x"), command.ExitFailed},
	} {
		var stderr strings.Builder
		r := Run{Line: &command.Line{Stderr: &stderr}}
		if code := r.Report(t.Context(), r.Place(tt.err)); code != tt.code {
			t.Errorf("%v: exit code %d, want %d", tt.err, code, tt.code)
		}
	}
	var stderr strings.Builder
	r := Run{Line: &command.Line{Stderr: &stderr}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if code := r.Report(ctx, r.Place(fmt.Errorf("run: %w", context.Canceled))); code != command.ExitInterrupted {
		t.Errorf("interrupted: exit code %d", code)
	}
}

// TestUnsupportedHints: what helps depends on whether it is a precision that the device has not in a mode.
func TestUnsupportedHints(t *testing.T) {
	for _, tt := range []struct{ device, mode, precision, want string }{
		{"cuda", "auto", "tf32", "--mode resident"},
		{"cuda", "resident", "tf32", ""},
		{"cuda", "page", "fp32", "--mode auto"},
		{"cuda", "auto", "fp32", ""},
		{"cpu", "page", "fp32", ""},
	} {
		var stderr strings.Builder
		r := Run{Line: &command.Line{Stderr: &stderr}}
		r.Device, r.Mode, r.Precision = tt.device, tt.mode, tt.precision
		r.Report(t.Context(), r.Place(fmt.Errorf("x: %w", graph.ErrUnsupported)))
		if got := stderr.String(); strings.Contains(got, "hint") != (tt.want != "") || !strings.Contains(got, tt.want) {
			t.Errorf("%+v: %q", tt, got)
		}
	}
}

// Everything that is missing is listed, a line each.
func TestRunListsAllMissing(t *testing.T) {
	var stderr strings.Builder
	r := Run{Line: &command.Line{Stderr: &stderr}}
	err := &models.UnsupportedError{Hint: "write it", Missing: []models.Missing{
		{Name: "a.b", Path: "layer.0", Source: "net.py:7", Uses: 2}, {Name: "c.d", Uses: 1},
	}}
	code := r.Report(t.Context(), r.Place(fmt.Errorf("m.pt2: %w", err)))
	const want = `optimem: error: m.pt2: unsupported: 2 ops
optimem: missing: a.b in layer.0 (net.py:7), 2 uses
optimem: missing: c.d
optimem: hint: write it
`
	if code != command.ExitUnsupported || stderr.String() != want {
		t.Errorf("exit code %d:\n%swant:\n%s", code, stderr.String(), want)
	}
}

// NumPy has no bfloat16, and the numbers are not quietly made into others.
func TestRunWritable(t *testing.T) {
	y := &tensor.Tensor{DType: tensor.BFloat16, Layout: tensor.Contiguous(1), Data: []byte{0, 0}}
	half := []arrays.Named{{Name: "y", Tensor: y}}
	var r Run
	for path, want := range map[string]string{
		"y.npy": "write it to a file that ends in .safetensors", "y.safetensors": "", "y.json": "",
	} {
		err := r.writable(target{path: path}, half)
		var f *command.Failure
		refused := errors.As(err, &f) && f.Code == command.ExitUsage && f.Hints[0] == want
		if want == "" && err != nil || want != "" && !refused {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// The largest come first, equal ones in order, NaN before all, as in torch.topk.
func TestBest(t *testing.T) {
	nan := float32(math.NaN())
	s := values.Summarize("", tensor.Of([]float32{1, 3, 2, 3, 0, nan, 9, nan, 8, 7}, 2, 5))
	for k, want := range map[int][2][]int{
		1: {{1}, {0}},
		2: {{1, 3}, {0, 2}},
		4: {{1, 3, 2, 0}, {0, 2, 1, 3}},
		9: {{1, 3, 2, 0, 4}, {0, 2, 1, 3, 4}},
	} {
		r := Run{top: k}
		for row := range 2 {
			var got []int
			for _, e := range r.best(s, row) {
				got = append(got, e.Index)
			}
			if !slices.Equal(got, want[row]) {
				t.Errorf("top %d of row %d: %v, want %v", k, row, got, want[row])
			}
		}
	}
}

func TestRowNames(t *testing.T) {
	file := rowNames{file: "x.npy", n: 3}
	for _, tt := range []struct {
		dims tensor.Shape
		i    int
		want string
	}{
		{tensor.Shape{3}, 2, "x.npy[2]"}, {tensor.Shape{3, 4}, 5, "x.npy[1 1]"}, {tensor.Shape{4}, 1, "[1]"},
		{nil, 0, "[]"},
	} {
		if got := file.name(tt.dims, tt.i); got != tt.want {
			t.Errorf("row %d of %v is called %s, want %s", tt.i, tt.dims, got, tt.want)
		}
	}
}
