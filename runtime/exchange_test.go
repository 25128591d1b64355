package runtime_test

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/optimem/optimem/models"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// rowsModel has inputs with rows in the first dimension, in the second and without any, and such outputs. For numbers as
// [eighths] gives them no op of it rounds: all ways to compute give the same bits.
const rowsModel = "testdata/rows.pt2"

// TestRowsAsPyTorch: outputs with rows anywhere are PyTorch's, of all rows at once and of micro-batches of any size.
func TestRowsAsPyTorch(t *testing.T) {
	text, err := os.ReadFile("testdata/rows.json")
	if err != nil {
		t.Fatal(err)
	}
	var runs []struct {
		Inputs  []recordedTensor
		Outputs map[string]recordedTensor
	}
	if err := json.Unmarshal(text, &runs); err != nil || len(runs) == 0 {
		t.Fatal(len(runs), err)
	}
	model := build(t, rowsModel, nil)
	for _, device := range []string{"cpu", "emu:memory=1MiB"} {
		for micro := range 7 {
			s := start(t, model, optimem.Options{Device: device, MicroBatch: micro})
			for _, r := range runs {
				in := recordedPass{Inputs: r.Inputs}.inputs(t, model)
				call := s.RunBatch
				if micro == 6 {
					call = s.Run
				}
				got, err := call(t.Context(), in)
				if err != nil || len(got) != len(r.Outputs) {
					t.Fatalf("micro-batches of %d: %d outputs, %v", micro, len(got), err)
				}
				for name, want := range r.Outputs {
					compareRecorded(t, name, got[name], want)
				}
			}
		}
	}
}

// rowsShapes are the shapes of the inputs of rowsModel.
func rowsShapes(rows int) map[string]tensor.Shape {
	return map[string]tensor.Shape{"x": {rows, 4}, "z": {3, rows}, "w": {3}}
}

// eighths draws bytes of float32 of a few bits.
func eighths(t *rapid.T, elements int) []byte {
	data := make([]byte, 4*elements)
	seed := rapid.Uint32().Draw(t, "seed")
	for i := range elements {
		seed = seed*1664525 + 1013904223
		binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(float32(int(seed>>27))/8-2))
	}
	return data
}

// anywhere draws a tensor of a shape that lies anywhere in its memory: contiguous or not, dimensions in any order, with gaps
// or seen several times, behind other elements and before others.
func anywhere(t *rapid.T, shape tensor.Shape) *tensor.Tensor {
	layout := tensor.Contiguous(slices.Clone(shape)...)
	if rapid.Bool().Draw(t, "strided") {
		step := rapid.IntRange(1, 2).Draw(t, "step")
		for _, d := range rapid.Permutation(slices.Collect(dims(shape))).Draw(t, "order") {
			layout.Strides[d] = step
			if rapid.IntRange(0, 4).Draw(t, "expanded") == 0 {
				layout.Strides[d] = 0
				continue
			}
			step *= shape[d] + rapid.IntRange(0, 1).Draw(t, "gap")
		}
	}
	layout.Offset = rapid.SampledFrom([]int{0, 0, 1, 3, 8}).Draw(t, "offset")
	_, end, err := layout.Span()
	if err != nil {
		t.Fatal(err)
	}
	elements := int(end) + rapid.IntRange(0, 3).Draw(t, "behind")
	return &tensor.Tensor{DType: tensor.Float32, Layout: layout, Data: eighths(t, elements)}
}

func dims(shape tensor.Shape) func(yield func(int) bool) {
	return func(yield func(int) bool) {
		for d := range shape {
			if !yield(d) {
				return
			}
		}
	}
}

// laidOut returns the elements of a tensor in order, looked up one by one.
func laidOut(x *tensor.Tensor) *tensor.Tensor {
	y := &tensor.Tensor{DType: x.DType, Layout: tensor.Contiguous(slices.Clone(x.Layout.Shape)...)}
	n, _ := x.Layout.NumElements()
	for i := range int(n) {
		at := x.Layout.Offset
		for d := len(x.Layout.Shape) - 1; d >= 0; d-- {
			at += i % x.Layout.Shape[d] * x.Layout.Strides[d]
			i /= x.Layout.Shape[d]
		}
		y.Data = append(y.Data, x.Data[4*at:4*at+4]...)
	}
	return y
}

// spoil makes one tensor of inputs such that the model cannot take it, and says how.
func spoil(t *rapid.T, in optimem.Values) (how string) {
	name := rapid.SampledFrom([]string{"x", "z", "w"}).Draw(t, "spoiled")
	bad := *in[name]
	in[name] = &bad
	n, _ := bad.Layout.NumElements()
	switch how = rapid.SampledFrom([]string{"dtype", "turned", "flat", "short", "missing", "nil", "extra", "strides"}).Draw(t, "how"); how {
	case "dtype": // of the same size
		bad.DType = tensor.Int32
	case "turned": // as many elements
		shape := slices.Clone(bad.Layout.Shape)
		slices.Reverse(shape)
		if shape.Equal(bad.Layout.Shape) {
			shape = append(shape, 1)
		}
		bad = *tensor.Of(make([]float32, n), shape...)
	case "flat":
		shape := tensor.Shape{int(n)}
		if len(bad.Layout.Shape) == 1 {
			shape = tensor.Shape{1, int(n)}
		}
		bad = *tensor.Of(make([]float32, n), shape...)
	case "short":
		_, end, _ := bad.Layout.Span()
		bad.Data = bad.Data[:rapid.IntRange(0, int(end)*4-1).Draw(t, "bytes")]
	case "missing":
		delete(in, name)
	case "nil":
		in[name] = nil
	case "extra":
		in["v"] = &bad
	case "strides":
		bad.Layout.Strides = bad.Layout.Strides[1:]
	}
	return name + " " + how
}

// roomFor returns tensors for outputs such as these, each in the middle of other memory, and a function that says whether
// that was left alone.
func roomFor(t *rapid.T, outputs optimem.Values) (into optimem.Values, kept func() error) {
	into = make(optimem.Values)
	before := rapid.IntRange(0, 3).Draw(t, "before")
	for name, y := range outputs {
		x := &tensor.Tensor{DType: y.DType, Layout: tensor.Contiguous(slices.Clone(y.Layout.Shape)...)}
		x.Layout.Offset = before
		x.Data = bytes.Repeat([]byte{0xa5}, before*y.DType.Size()+len(y.Data)+8)
		into[name] = x
	}
	return into, func() error {
		for name, x := range into {
			from := before * x.DType.Size()
			around := slices.Concat(x.Data[:from], x.Data[len(x.Data)-8:])
			if !bytes.Equal(around, bytes.Repeat([]byte{0xa5}, len(around))) {
				return fmt.Errorf("memory around output %s was written", name)
			}
		}
		return nil
	}
}

// sameBits compares outputs, wherever those that a call gave lie in their memory.
func sameBits(got, want optimem.Values) error {
	for name, w := range want {
		y := got[name]
		switch {
		case y == nil || y.DType != w.DType || !y.Layout.Shape.Equal(w.Layout.Shape):
			return fmt.Errorf("output %s is %v", name, y)
		case !bytes.Equal(y.Data[y.Layout.Offset*y.DType.Size():][:len(w.Data)], w.Data):
			return fmt.Errorf("output %s has other bits", name)
		}
	}
	if len(got) != len(want) {
		return fmt.Errorf("%d outputs, want %d", len(got), len(want))
	}
	return nil
}

// checkExchange makes calls with random inputs, some of which cannot be, and holds each to what a session by itself gives
// for inputs in order.
func checkExchange(t *testing.T, model *models.Model, s *optimem.Session) {
	t.Helper()
	alone := start(t, model, optimem.Options{Threads: 1})
	rapid.Check(t, func(t *rapid.T) {
		var last optimem.Values
		for range rapid.IntRange(2, 6).Draw(t, "calls") {
			in := make(optimem.Values)
			rows := rapid.IntRange(1, 5).Draw(t, "rows")
			if last != nil && rapid.Bool().Draw(t, "as before") {
				in = last // the same tensors, with other elements
				for _, x := range in {
					copy(x.Data, eighths(t, len(x.Data)/4))
				}
			} else {
				shapes := rowsShapes(rows)
				for _, name := range []string{"x", "z", "w"} {
					in[name] = anywhere(t, shapes[name])
				}
			}
			last = in
			ordered := make(optimem.Values)
			for name, x := range in {
				ordered[name] = laidOut(x)
			}
			want, err := alone.Run(t.Context(), ordered)
			if err != nil {
				t.Fatal(err)
			}
			how := ""
			if rapid.IntRange(0, 3).Draw(t, "good") == 0 {
				in = maps.Clone(in)
				how = spoil(t, in)
			}
			var got optimem.Values
			method := rapid.SampledFrom([]string{"Run", "RunInto", "RunBatch"}).Draw(t, "method")
			switch method {
			case "Run":
				got, err = s.Run(t.Context(), in)
			case "RunInto":
				room, kept := roomFor(t, want)
				if rapid.Bool().Draw(t, "few") {
					name := rapid.SampledFrom([]string{"y", "turned", "across", "shared", "input"}).Draw(t, "left out")
					delete(room, name)
					delete(want, name)
				}
				if err = s.RunInto(t.Context(), in, room); err == nil {
					got = room
				}
				if err := kept(); err != nil {
					t.Fatal(err)
				}
			case "RunBatch":
				got, err = s.RunBatch(t.Context(), in)
			}
			if how != "" {
				var input *optimem.InputError
				var axes *optimem.NotBatchableError
				if !errors.As(err, &input) && !(method == "RunBatch" && errors.As(err, &axes)) {
					t.Fatalf("%s of %s: %v", method, how, err)
				}
				continue
			}
			if err := cmp.Or(err, sameBits(got, want)); err != nil {
				t.Fatalf("%s of %d rows: %v", method, rows, err)
			}
		}
	})
}

// TestInputsLieAnywhere: wherever inputs lie, and whatever they held in the call before, each call gives what their elements
// give; inputs that the model cannot take are refused, also by a session that has a plan for others.
func TestInputsLieAnywhere(t *testing.T) {
	model := build(t, rowsModel, nil)
	for _, o := range []optimem.Options{
		{}, {MicroBatch: 2}, {Device: "emu:memory=1MiB,bandwidth=1GB/s", MicroBatch: 1}, {Device: "emu:memory=1MiB", MicroBatch: 3},
	} {
		t.Run(fmt.Sprintf("micro-batches of %d on %s", o.MicroBatch, o.Device), func(t *testing.T) {
			checkExchange(t, model, start(t, model, o))
		})
	}
}

// TestEqualSizeIsNoEqualInput: a second call whose input has as many elements as the first one's, as large, and whose data
// ends too early, is refused as the first one would be.
func TestEqualSizeIsNoEqualInput(t *testing.T) {
	s := start(t, build(t, digitsModel, nil), optimem.Options{})
	good := pictures(2)
	runDigits(t, s, good)
	view := func(shape ...int) *tensor.Tensor { return tensor.Of(good, shape...) }
	other, short := view(2, 1, 8, 8), view(2, 1, 8, 8)
	other.DType, short.Data = tensor.Int32, short.Data[:len(short.Data)-4]
	for name, x := range map[string]*tensor.Tensor{
		"shape": view(1, 2, 8, 8), "turned": view(2, 1, 4, 16), "rank": view(2, 64), "dtype": other, "data": short,
	} {
		var input *optimem.InputError
		in := optimem.Values{"input": x}
		if _, err := s.Run(t.Context(), in); !errors.As(err, &input) {
			t.Errorf("%s: %v", name, err)
		}
		out := optimem.Values{"linear_1": tensor.Of(make([]float32, 20), 2, 10)}
		if err := s.RunInto(t.Context(), in, out); !errors.As(err, &input) {
			t.Errorf("%s, into: %v", name, err)
		}
	}
}
