package runtime_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

const digitsModel = "../examples/digits/digits.pt2"

// pictures returns rows of random pictures for the model of examples/digits.
func pictures(rows int) []float32 {
	rng := rand.New(rand.NewPCG(1, 2))
	x := make([]float32, rows*64)
	for i := range x {
		x[i] = rng.Float32()
	}
	return x
}

// digitsInput returns the inputs of the model of examples/digits.
func digitsInput(x []float32) optimem.Values {
	return optimem.Values{"input": tensor.Of(x, len(x)/64, 1, 8, 8)}
}

func runDigits(t *testing.T, s *optimem.Session, x []float32) []byte {
	t.Helper()
	out, err := s.Run(t.Context(), digitsInput(x))
	if err != nil {
		t.Fatal(err)
	}
	for _, y := range out {
		return y.Data
	}
	t.Fatal("no output")
	return nil
}

// The number of threads changes nothing, to the last bit, and neither does a second pass.
func TestThreadsGiveTheSameBits(t *testing.T) {
	model := build(t, digitsModel, nil)
	x := pictures(33)
	want := runDigits(t, start(t, model, optimem.ResidentOptions{Threads: 1}), x)
	for _, threads := range []int{1, 2, 3, 8} {
		s := start(t, model, optimem.ResidentOptions{Threads: threads})
		for range 2 {
			if got := runDigits(t, s, x); !bytes.Equal(got, want) {
				t.Errorf("%d threads give other bits than one", threads)
			}
		}
	}
}

// A row is the same to the last bit wherever it stands in a batch, and whatever stands beside it.
func TestPositionInBatch(t *testing.T) {
	const rows, rowBytes = 9, 10 * 4
	s := start(t, build(t, digitsModel, nil), optimem.ResidentOptions{})
	x := pictures(rows)
	want := runDigits(t, s, x)
	for shift := 1; shift < rows; shift++ {
		moved := slices.Concat(x[shift*64:], x[:shift*64])
		for i := range 64 { // the last row becomes another
			moved[(rows-1)*64+i] = float32(i)
		}
		got := runDigits(t, s, moved)
		for row := range rows - 1 {
			from := (row + shift) % rows
			if !bytes.Equal(got[row*rowBytes:][:rowBytes], want[from*rowBytes:][:rowBytes]) {
				t.Errorf("row %d at %d gives other bits", from, row)
			}
		}
	}
}

// Shapes in turn, in one session: each time the same bits.
func TestShapesInTurn(t *testing.T) {
	s := start(t, build(t, digitsModel, nil), optimem.ResidentOptions{})
	want := make(map[int][]byte)
	for range 2 {
		for _, rows := range []int{1, 40, 2, 90, 3} {
			got := runDigits(t, s, pictures(rows))
			if want[rows] != nil && !bytes.Equal(got, want[rows]) {
				t.Errorf("%d rows give other bits the second time", rows)
			}
			want[rows] = got
		}
	}
}

// The planned memory is all there is: weights and activations are held once, and shapes share.
func TestMetricsOfMemory(t *testing.T) {
	s := start(t, build(t, digitsModel, nil), optimem.ResidentOptions{})
	runDigits(t, s, pictures(8))
	small := s.Metrics()
	runDigits(t, s, pictures(256))
	large := s.Metrics()
	runDigits(t, s, pictures(8))
	after := s.Metrics()
	if small.LoadedBytes == 0 || large.LoadedBytes != small.LoadedBytes || after.LoadedBytes != small.LoadedBytes {
		t.Errorf("weights were read %d, %d and %d bytes", small.LoadedBytes, large.LoadedBytes, after.LoadedBytes)
	}
	// 32 times the rows: the largest op reads 256·16·64 floats and writes 256·32·64 of them.
	if least := int64(256 * (16 + 32) * 64 * 4); large.ActivationBytes < least || large.ActivationBytes > 2*least {
		t.Errorf("activations of %d bytes, at least %d are alive together", large.ActivationBytes, least)
	}
	if after.ActivationBytes != large.ActivationBytes || after.PeakBytes < large.ActivationBytes+large.WeightBytes {
		t.Errorf("%+v, after %+v", after, large)
	}
}
