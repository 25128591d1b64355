package runtime_test

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"github.com/optimem/optimem/graph"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// In bf16 the result is another one, but near: the factors of a product are off by 1/256 at most. It is the same to the bit
// whether weights stay or are paged. A processor without such products says so.
func TestPrecision(t *testing.T) {
	model := build(t, digitsModel, nil)
	x := pictures(33)
	want := runDigits(t, start(t, model, optimem.ResidentOptions{Precision: "fp32"}), x)
	resident, err := optimem.Resident(t.Context(), model, optimem.ResidentOptions{Precision: "bf16"})
	if err == nil {
		t.Cleanup(func() { _ = resident.Close() })
		_, err = resident.Run(t.Context(), digitsInput(x))
	}
	if errors.Is(err, graph.ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	got := runDigits(t, resident, x)
	if bytes.Equal(got, want) {
		t.Fatal("bf16 gives the bits of fp32")
	}
	floats := func(data []byte) []float32 {
		s, err := tensor.Slice[float32](&tensor.Tensor{
			DType: tensor.Float32, Layout: tensor.Contiguous(len(data) / 4), Data: data,
		})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	largest, worst := 0.0, 0.0
	for i, y := range floats(want) {
		largest = max(largest, math.Abs(float64(y)))
		worst = max(worst, math.Abs(float64(y-floats(got)[i])))
	}
	if !(worst <= largest/64) {
		t.Errorf("bf16 is off by %g, of numbers up to %g", worst, largest)
	}
	paged, err := optimem.Page(t.Context(), model, optimem.PageOptions{Precision: "bf16"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = paged.Close() })
	if !bytes.Equal(runDigits(t, paged, x), got) {
		t.Error("paged gives other bits than resident")
	}
}

// A precision that there is not, or not on the device, is an error, never another one silently.
func TestPrecisionIsNeverAnother(t *testing.T) {
	model := build(t, digitsModel, nil)
	for _, precision := range []string{"int3", "tf32"} {
		s, err := optimem.Resident(t.Context(), model, optimem.ResidentOptions{Precision: precision})
		if err == nil {
			_, err = s.Run(t.Context(), digitsInput(pictures(1)))
			_ = s.Close()
		}
		if err == nil {
			t.Errorf("precision %q runs", precision)
		}
	}
}
