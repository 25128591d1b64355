//go:build !files

package main

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/cmd/optimem/internal/command"
	"github.com/optimem/optimem/cmd/optimem/internal/running"
	"github.com/optimem/optimem/cmd/optimem/internal/values"
	"github.com/optimem/optimem/internal/fixtures"
	"github.com/optimem/optimem/internal/hostmem"
	"github.com/optimem/optimem/internal/npy"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/tensor"
)

const (
	digitsFolder   = "../../examples/digits/"
	programsFolder = "../../runtime/testdata/"
)

// fixturesFolder is the folder of files that PyTorch wrote.
func fixturesFolder() string { return fixtures.Folder("../../loader/testdata/valid.tar.bz2") + "/" }

// execute runs a command line and returns what it printed and its exit code. What a run takes outside the heap it gives
// back.
func execute(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, err strings.Builder
	code = doMain(args, &out, &err)
	for p := hostmem.Weights; p <= hostmem.Staging; p++ {
		if n := hostmem.InUse(p); n != 0 {
			t.Errorf("%v: %d bytes of %v are still in use", args, n, p)
		}
	}
	return out.String(), err.String(), code
}

// done runs a command line that must end well.
func done(t *testing.T, args ...string) (stdout, stderr string) {
	t.Helper()
	stdout, stderr, code := execute(t, args...)
	if code != command.ExitDone {
		t.Fatalf("%v: exit code %d: %s", args, code, stderr)
	}
	return stdout, stderr
}

func readNPY(t *testing.T, path string) *tensor.Tensor {
	t.Helper()
	f, size, err := running.OpenSized(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	a, err := npy.Open(f, size)
	if err != nil {
		t.Fatal(err)
	}
	x, err := a.Read()
	if err != nil {
		t.Fatal(err)
	}
	return x.Contiguous()
}

func writeNPY(t *testing.T, path string, x *tensor.Tensor) string {
	t.Helper()
	var b bytes.Buffer
	if err := npy.Write(&b, x); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// digits is what train.py recorded of the model in examples/digits.
type digits struct {
	HeldOut       int   `json:"held_out"`
	Right         int   `json:"right"`
	HeldOutLabels []int `json:"held_out_labels"`
	Labels        []int `json:"labels"`
	Logits        [][]float64
}

func readDigits(t *testing.T) digits {
	t.Helper()
	text, err := os.ReadFile(digitsFolder + "digits.json")
	if err != nil {
		t.Fatal(err)
	}
	var d digits
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	if d.HeldOut != 450 || d.Right != 448 || len(d.Logits) != 8 {
		t.Fatalf("%s is not what it was", "digits.json")
	}
	return d
}

type runAnswer struct {
	Mode, Device    string
	Threads         int
	Seconds         float64
	PeakDeviceBytes int64 `json:"peak_device_bytes"`
	WeightBytes     int64 `json:"weight_bytes"`
	Outputs         []struct {
		Name, DType    string
		Shape          []int
		Min, Mean, Max any
		NaN            int
		First          []any `json:"first_values"`
		Top            [][]struct {
			Index int
			Label string
			Value any
		}
	}
}

func answer(t *testing.T, args ...string) runAnswer {
	t.Helper()
	stdout, _ := done(t, append(args, "--json")...)
	var a runAnswer
	if err := json.Unmarshal([]byte(stdout), &a); err != nil {
		t.Fatalf("%v: %s", err, stdout)
	}
	return a
}

// TestDigitsLogits compares what the trained model says of the pictures with what PyTorch recorded.
func TestDigitsLogits(t *testing.T) {
	want := readDigits(t)
	path := filepath.Join(t.TempDir(), "logits.npy")
	done(t, "run", digitsFolder+"digits.pt2", "--input", digitsFolder+"pictures.npy", "-o", path)
	got, err := tensor.Slice[float32](readNPY(t, path))
	if err != nil {
		t.Fatal(err)
	}
	flat := slices.Concat(want.Logits...)
	if len(got) != len(flat) {
		t.Fatalf("%d logits, want %d", len(got), len(flat))
	}
	largest := 0.0
	for _, v := range flat {
		largest = max(largest, math.Abs(v))
	}
	for i, v := range got {
		if d := math.Abs(float64(v) - flat[i]); !(d <= 1e-4*largest) {
			t.Errorf("logit %d is %v, want %v", i, v, flat[i])
		}
	}
}

// TestDigitsAccuracy shows the model every picture that it was not trained on: as many are right as in PyTorch.
func TestDigitsAccuracy(t *testing.T) {
	want := readDigits(t)
	raw := readNPY(t, digitsFolder+"held_out.npy")
	pixels := make([]float32, len(raw.Data))
	for i, v := range raw.Data {
		pixels[i] = float32(v) / 16
	}
	path := writeNPY(t, filepath.Join(t.TempDir(), "held_out.npy"), tensor.Of(pixels, want.HeldOut, 1, 8, 8))
	a := answer(t, "run", digitsFolder+"digits.pt2", "--input", path, "--top", "1")
	right := 0
	for i, row := range a.Outputs[0].Top {
		if row[0].Index == want.HeldOutLabels[i] {
			right++
		}
	}
	if right != want.Right || len(a.Outputs[0].Top) != want.HeldOut {
		t.Errorf("%d of %d right, PyTorch has %d of %d", right, len(a.Outputs[0].Top), want.Right, want.HeldOut)
	}
}

// TestRunFacts holds the facts to what the session measured: weights, and more than weights at the peak.
func TestRunFacts(t *testing.T) {
	a := answer(t, "run", fixturesFolder()+"pt2_mlp.pt2", "--input", "random", "--threads", "1", "--mode", "resident")
	if a.Mode != "resident" || a.Device != "cpu" || a.Threads != 1 || !(a.Seconds > 0) {
		t.Errorf("%+v", a)
	}
	if a.WeightBytes != 96+24+72 || a.PeakDeviceBytes <= a.WeightBytes { // the weights of the file's listing
		t.Errorf("weights %d, peak %d", a.WeightBytes, a.PeakDeviceBytes)
	}
}

// TestRunRandom: a seed is a promise.
func TestRunRandom(t *testing.T) {
	first := func(seed string) string {
		stdout, _ := done(t, "run", fixturesFolder()+"pt2_mlp.pt2", "--input", "x=random", "--seed", seed, "--quiet")
		return stdout
	}
	one, again, two := first("1"), first("1"), first("2")
	if one != again || one == two {
		t.Error("the seed does not decide")
	}
}

// TestRunInputForms gives one input in every form there is.
func TestRunInputForms(t *testing.T) {
	dir := t.TempDir()
	model := fixturesFolder() + "pt2_mlp.pt2"
	x := tensor.Of([]float32{1, -2, 3, 0.5, 0, 1, 2, 3}, 2, 4)
	y := tensor.Of([]float32{5, 5, 5, 5, 5, 5, 5, 5}, 2, 4)
	paths := []string{writeNPY(t, filepath.Join(dir, "x.npy"), x)}
	inFile := func(name string, write func(w *bytes.Buffer) error) {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, b.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	data := []loader.TensorData{{Name: "x", DType: tensor.Float32, Shape: x.Layout.Shape,
		ReadAt: func(_ context.Context, p []byte, off int64) error {
			copy(p, x.Data[off:])
			return nil
		}}}
	inFile("x.safetensors", func(b *bytes.Buffer) error { return loader.WriteSafetensors(t.Context(), b, data, nil) })
	inFile("x.pt", func(b *bytes.Buffer) error { return loader.WriteTorchZip(t.Context(), b, "x", data) })
	inFile("x.npz", func(b *bytes.Buffer) error { return writeNPZ(b, map[string]*tensor.Tensor{"anything": x}) })
	inFile("a=b.npz", func(b *bytes.Buffer) error { return writeNPZ(b, map[string]*tensor.Tensor{"x": x, "y": y}) })
	want, _ := done(t, "run", model, "--input", paths[0])
	for _, path := range paths {
		args := []string{"x=" + path}
		if !strings.Contains(path, "=") { // that file has two arrays, and the input's name decides
			args = append(args, path)
		}
		for _, arg := range args {
			if got, _ := done(t, "run", model, "--input", arg); got != want {
				t.Errorf("%s: got\n%swant\n%s", arg, got, want)
			}
		}
	}
	if _, stderr, code := execute(t, "run", model, "--input", filepath.Join(dir, "a=b.npz")); code != command.ExitUsage ||
		!strings.Contains(stderr, `the model has no input "y"`) {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

func writeNPZ(b *bytes.Buffer, arrays map[string]*tensor.Tensor) error {
	z := zip.NewWriter(b)
	for name, x := range arrays {
		w, err := z.Create(name + ".npy")
		if err != nil {
			return err
		}
		if err := npy.Write(w, x); err != nil {
			return err
		}
	}
	return z.Close()
}

// NaN is allowed and reported, in outputs always, in weights with --verbose.
func TestRunReportsNaN(t *testing.T) {
	pixels := make([]float32, 2*64)
	pixels[64] = float32(math.NaN())
	path := writeNPY(t, filepath.Join(t.TempDir(), "x.npy"), tensor.Of(pixels, 2, 1, 8, 8))
	stdout, stderr := done(t, "run", digitsFolder+"digits.pt2", "--input", path)
	const warning = "optimem: warning: output linear_1 holds 10 NaN of 20 values\n"
	if !strings.Contains(stderr, warning) || !strings.Contains(stdout, "  nan  ") {
		t.Errorf("%s%s", stdout, stderr)
	}
	if a := answer(t, "run", digitsFolder+"digits.pt2", "--input", path); a.Outputs[0].NaN != 10 {
		t.Errorf("%d NaN", a.Outputs[0].NaN)
	}

	weight := tensor.Of([]float32{1, float32(math.NaN()), 3}, 3)
	var file bytes.Buffer
	err := loader.WriteSafetensors(t.Context(), &file, []loader.TensorData{{
		Name: "w", DType: weight.DType, Shape: weight.Layout.Shape,
		ReadAt: func(_ context.Context, p []byte, off int64) error {
			copy(p, weight.Data[off:])
			return nil
		},
	}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "w.safetensors")
	if err := os.WriteFile(path, file.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	ckpt, err := loader.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer ckpt.Close()
	var said strings.Builder
	r := running.Run{Line: &command.Line{Stderr: &said}}
	if err := r.ScanWeights(t.Context(), ckpt); err != nil {
		t.Fatal(err)
	}
	if said.String() != "optimem: warning: weight w holds 1 NaN of 3 values\n" {
		t.Errorf("said %q", said.String())
	}
}

// TestRunOutputForms writes odd outputs in every form: views, scalars, nothing, bools, integers, bfloat16.
func TestRunOutputForms(t *testing.T) {
	dir := t.TempDir()
	x := writeNPY(t, filepath.Join(dir, "x.npy"), tensor.Of([]float32{1, -2, 0.25, 4, -0.5, 0}, 3, 2))
	model := programsFolder + "odd.pt2"
	inTensors, inJSON := filepath.Join(dir, "y.safetensors"), filepath.Join(dir, "y.json")
	done(t, "run", model, "--input", x, "--output", inTensors)
	done(t, "run", model, "--input", x, "--output", inJSON)
	ckpt, err := loader.Open(inTensors)
	if err != nil {
		t.Fatal(err)
	}
	defer ckpt.Close()
	var text []byte
	if text, err = os.ReadFile(inJSON); err != nil {
		t.Fatal(err)
	}
	var listing struct {
		Outputs []struct {
			Name, DType string
			Shape       []int
			Data        []any
		}
	}
	if err := json.Unmarshal(text, &listing); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"y": "float32 [3 2] [2 -4 0.5 8 -1 0]", "again": "float32 [3 2] [2 -4 0.5 8 -1 0]",
		"input": "float32 [3 2] [1 -2 0.25 4 -0.5 0]", "turned": "float32 [2 3] [2 0.5 -1 -4 8 0]",
		"row": "float32 [2] [0.5 8]", "none": "float32 [3 0] []", "scalar": "float32 [] [5.5]",
		"positive": "bool [3 2] [true false true true false false]", "index": "int32 [3 2] [10 -20 2 40 -5 0]",
		"half": "bfloat16 [3 2] [2 -4 0.5 8 -1 0]", "table": "float32 [3 2] [0 3 1 4 2 5]",
	}
	if len(listing.Outputs) != len(want) || len(ckpt.Weights) != len(want) {
		t.Errorf("%d and %d outputs, want %d", len(listing.Outputs), len(ckpt.Weights), len(want))
	}
	for _, o := range listing.Outputs {
		if got := fmt.Sprintf("%s %v %v", o.DType, o.Shape, o.Data); got != want[o.Name] {
			t.Errorf("JSON: %s is %s, want %s", o.Name, got, want[o.Name])
		}
	}
	for _, w := range ckpt.Weights {
		y, err := w.Contents(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		e := values.Of(y)
		values := []string{}
		for i := range e.N {
			values = append(values, e.Text(i))
		}
		if got := fmt.Sprintf("%v %v %v", y.DType, y.Layout.Shape, values); got != want[w.Name] {
			t.Errorf("safetensors: %s is %s, want %s", w.Name, got, want[w.Name])
		}
	}
}

// The numbers of an input stay what they are where another is given.
func TestRandomInputsStay(t *testing.T) {
	model := programsFolder + "rows.pt2" // its last output is the input z
	numbers := func(args ...string) []any {
		a := answer(t, append([]string{"run", model, "--input", "random", "--shape", "z=3,5"}, args...)...)
		return a.Outputs[len(a.Outputs)-1].First
	}
	x := writeNPY(t, filepath.Join(t.TempDir(), "x.npy"), tensor.Of(make([]float32, 20), 5, 4))
	all, some := numbers("--shape", "x=5,4"), numbers("--input", "x="+x)
	if len(all) == 0 || !reflect.DeepEqual(all, some) {
		t.Errorf("random are %v, and %v beside a file", all, some)
	}
}
