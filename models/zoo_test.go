package models_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/device/devicetest"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/models/internal/zoo"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

var (
	rewriteZoo = flag.Bool("rewrite", false, "write ZOO.md from what was measured")
	zooAll     = flag.Bool("zoo-all", false, "run every model of the zoo, not a third of them")
)

const zooFolder = "testdata/zoo"

// quick are the models that -short runs: one of each kind.
var quick = []string{
	"extra/cond", "extra/buffer_mutation", "tv/alexnet", "tv/mobilenet_v2", "tv/resnet18", "hf/bert_mask", "hf/gpt2", "hf/llama",
	"nn/lstm", "hf/t5", "tv/swin_t", "extra/views",
}

// chosen reports whether a test of the zoo runs a model: those that stand for a mechanism, one of each kind, and of all others
// a third, unless all are asked for, which takes minutes of a fast processor and a quarter of an hour of a slow one.
func chosen(name string) bool {
	const part = 3
	switch {
	case slices.Contains(quick, name) || *zooAll || *rewriteZoo:
		return true
	case testing.Short():
		return false
	}
	return strings.HasPrefix(name, "extra/") || strings.HasPrefix(name, "nn/") || zoo.Key(name)%part == 0
}

// zooResult is a row of the table.
type zooResult struct {
	worst float64
	err   error
}

// TestZoo runs models of the zoo in both forms and compares sampled outputs with PyTorch's.
func TestZoo(t *testing.T) {
	names, err := zoo.Names(zooFolder)
	if err != nil || len(names) == 0 {
		t.Fatalf("no zoo: %v", err)
	}
	for _, name := range quick {
		if !slices.Contains(names, name) {
			t.Errorf("no %s in the zoo", name)
		}
	}
	results := make(map[string]map[string]zooResult)
	for _, name := range names {
		if !chosen(name) {
			continue
		}
		results[name] = make(map[string]zooResult)
		for _, form := range []string{"aten", "core"} {
			if testing.Short() && form == "core" {
				continue
			}
			if !zoo.Has(zooFolder, name, form) {
				continue
			}
			t.Run(name+"/"+form, func(t *testing.T) {
				worst, err := runZoo(t.Context(), name, form)
				results[name][form] = zooResult{worst, err}
				if err != nil {
					t.Error(err)
				}
			})
		}
	}
	if *rewriteZoo {
		writeTable(t, results)
	}
}

// runZoo runs one model on the CPU and returns the largest error, as a part of the largest magnitude of its output.
func runZoo(ctx context.Context, name, form string) (float64, error) {
	return runZooWith(ctx, name, form, func(m *models.Model) (*optimem.Session, error) {
		return optimem.Resident(ctx, m, optimem.ResidentOptions{})
	}, nil)
}

// runZooWith is runZoo in sessions of the caller, who is told what each case gave if that is wanted.
func runZooWith(
	ctx context.Context, name, form string, start func(*models.Model) (*optimem.Session, error),
	tell func(n int, out optimem.Values),
) (float64, error) {
	ckpt, ref, err := zoo.Load(zooFolder, name, form)
	if err != nil {
		return 0, err
	}
	defer ckpt.Close()
	model, err := models.Build(ckpt, models.Options{})
	if ref.Unsupported != "" {
		if err == nil {
			_, err = model.Graph(nil)
		}
		var unsupported *models.UnsupportedError
		if !errors.As(err, &unsupported) {
			return 0, fmt.Errorf("got %v, want an UnsupportedError", err)
		}
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	session, err := start(model)
	if err != nil {
		return 0, err
	}
	defer func() { session.Close() }()
	var worst float64
	for i, c := range ref.Cases {
		if i > 0 && !c.Continues {
			if err := session.Close(); err != nil {
				return 0, err
			}
			if session, err = start(model); err != nil {
				return 0, err
			}
		}
		w, err := runCase(ctx, session, form, c, func(out optimem.Values) {
			if tell != nil {
				tell(i, out)
			}
		})
		if err != nil {
			return 0, fmt.Errorf("case %d: %w", i, err)
		}
		worst = max(worst, w)
	}
	return worst, nil
}

func runCase(
	ctx context.Context, session *optimem.Session, form string, c zoo.Case, tell func(optimem.Values),
) (float64, error) {
	in := make(optimem.Values, len(c.Inputs))
	for name, f := range c.Inputs {
		t, err := f.Tensor(name)
		if err != nil {
			return 0, err
		}
		in[name] = t
	}
	out, err := session.Run(ctx, in)
	if err != nil {
		return 0, err
	}
	tell(out)
	var worst float64
	for _, want := range c.Outputs {
		if want.Values == nil && want.Value != nil || want.DType == "" {
			continue // not a tensor
		}
		name := want.Name
		if form == "core" && want.CoreName != "" {
			name = want.CoreName
		}
		w, err := compareSample(out[name], want)
		if err != nil {
			return 0, fmt.Errorf("output %s: %w (there are %v)", name, err, slices.Sorted(maps.Keys(out)))
		}
		worst = max(worst, w)
	}
	return worst, nil
}

// zooBounds are the errors allowed, as a part of the largest magnitude of an output.
var zooBounds = map[tensor.DType]float64{
	tensor.Float32: 1e-4, tensor.Float64: 1e-10, tensor.Float16: 1e-2, tensor.BFloat16: 4e-2,
	tensor.Complex64: 1e-4, tensor.Complex128: 1e-10,
}

// compareSample compares the sampled elements of an output.
func compareSample(got *tensor.Tensor, want zoo.Output) (float64, error) {
	if got == nil {
		return 0, errors.New("is missing")
	}
	if got.DType.String() != want.DType || !got.Layout.Shape.Equal(tensor.Shape(want.Shape)) {
		return 0, fmt.Errorf("%v %v, PyTorch gave %s %v", got.DType, got.Layout.Shape, want.DType, want.Shape)
	}
	n, _ := got.Layout.NumElements()
	at := func(i int) int { return i }
	if n > 256 {
		at = func(i int) int { return int(int64(i) * n / 256) }
	}
	values := devicetest.Floats(got)
	bound := zooBounds[got.DType] * want.MaxAbs
	if values == nil {
		values = integers(got)
	}
	var worst float64
	for i, w := range want.Values {
		a, b := values[at(i)], float64(w)
		if math.IsNaN(a) && math.IsNaN(b) || a == b {
			continue
		}
		if diff := math.Abs(a - b); !(diff <= bound) {
			return 0, fmt.Errorf("element %d is %v, PyTorch gave %v: off by %.3g of the largest (%.4g)",
				at(i), a, b, diff/want.MaxAbs, want.MaxAbs)
		} else if want.MaxAbs > 0 {
			worst = max(worst, diff/want.MaxAbs)
		}
	}
	return worst, nil
}

// integers returns the elements of an integer or bool tensor.
func integers(t *tensor.Tensor) []float64 {
	size := t.DType.Size()
	out := make([]float64, len(t.Data)/size)
	signed := strings.HasPrefix(t.DType.String(), "int")
	for i := range out {
		var bits uint64
		for k := range size {
			bits |= uint64(t.Data[i*size+k]) << (8 * k)
		}
		out[i] = float64(bits)
		if signed {
			shift := 64 - 8*size
			out[i] = float64(int64(bits<<shift) >> shift)
		}
	}
	return out
}

func writeTable(t *testing.T, results map[string]map[string]zooResult) {
	var b strings.Builder
	b.WriteString("# The zoo: exported programs and their errors\n\nMade by `go test ./models -run TestZoo -rewrite`. " +
		"An error is the largest difference from PyTorch over sampled elements of all outputs, as a part of the largest " +
		"magnitude of the output.\n\n| model | as saved | after decompositions |\n|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(results)) {
		fmt.Fprintf(&b, "| %s |", name)
		for _, form := range []string{"aten", "core"} {
			r, ok := results[name][form]
			switch {
			case !ok:
				b.WriteString(" – |")
			case r.err != nil:
				b.WriteString(" **fails** |")
			default:
				fmt.Fprintf(&b, " %.1e |", r.worst)
			}
		}
		b.WriteString("\n")
	}
	if err := os.WriteFile("ZOO.md", []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}
