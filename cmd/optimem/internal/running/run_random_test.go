//go:build !files

package running

import (
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/optimem/optimem/cmd/optimem/internal/values"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// Random floats are from -1 to 1, bytes from 0 to 255, other integers 0 or 1.
func TestRandomNumbers(t *testing.T) {
	const n = 4096
	for _, tt := range []struct {
		dtype     tensor.DType
		low, high float64 // how near the ends of the range there are some
		two       bool    // there is nothing between
	}{
		{tensor.Float32, -1, 1, false}, {tensor.Float64, -1, 1, false}, {tensor.Float16, -1, 1, false},
		{tensor.BFloat16, -1, 1, false}, {tensor.UInt8, 0, 255, false}, {tensor.Bool, 0, 1, true}, {tensor.Int8, 0, 1, true},
		{tensor.Int16, 0, 1, true}, {tensor.Int32, 0, 1, true}, {tensor.Int64, 0, 1, true}, {tensor.UInt16, 0, 1, true},
		{tensor.UInt32, 0, 1, true}, {tensor.UInt64, 0, 1, true},
	} {
		x := &tensor.Tensor{DType: tt.dtype, Layout: tensor.Contiguous(n), Data: make([]byte, n*tt.dtype.Size())}
		if err := fillRandom(x.Data, tt.dtype, rand.New(rand.NewPCG(1, 2))); err != nil {
			t.Fatal(err)
		}
		e := values.Of(x)
		low, high, sum := math.Inf(1), math.Inf(-1), 0.0
		for i := range e.N {
			v := e.Value(i)
			low, high, sum = min(low, v), max(high, v), sum+v
			if tt.two && v != 0 && v != 1 {
				t.Fatalf("%v: %v is neither 0 nor 1", tt.dtype, v)
			}
		}
		width := tt.high - tt.low
		if low < tt.low || high > tt.high || low > tt.low+width/100 || high < tt.high-width/100 {
			t.Errorf("%v: from %v to %v, want %v to %v", tt.dtype, low, high, tt.low, tt.high)
		}
		if mean := sum / n; math.Abs(mean-(tt.low+tt.high)/2) > width/20 {
			t.Errorf("%v: the mean is %v", tt.dtype, mean)
		}
	}
}

// Each input has numbers of its own.
func TestRandomInputsDiffer(t *testing.T) {
	var r Run
	in := &RunInputs{Values: make(runtime.Values), Shapes: map[string]tensor.Shape{"a": {8}, "b": {8}}}
	defer in.Free()
	for i, name := range []string{"a", "b"} {
		in.random = append(in.random, randomPort{models.Port{Name: name, DType: tensor.Float32}, i, 32})
	}
	if err := r.makeRandom(in); err != nil {
		t.Fatal(err)
	}
	if reflect.DeepEqual(in.Values["a"].Data, in.Values["b"].Data) {
		t.Error("two inputs hold the same numbers")
	}
}
