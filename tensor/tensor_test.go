package tensor

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
)

func roundTrip[T Element](t *testing.T, want DType, data ...T) {
	t.Helper()
	x := Of(data, 1, len(data))
	if x.DType != want || len(x.Data) != len(data)*want.Size() || !x.Layout.Shape.Equal(Shape{1, len(data)}) {
		t.Errorf("%v: %v %v with %d bytes", want, x.DType, x.Layout, len(x.Data))
	}
	got, err := Slice[T](x)
	if err != nil || !slices.Equal(got, data) {
		t.Errorf("%v: %v, %v", want, got, err)
	}
	if len(got) > 0 && &got[0] != &data[0] {
		t.Errorf("%v: the elements were copied", want)
	}
}

func TestOfAndSlice(t *testing.T) {
	roundTrip(t, Float32, 1, -2.5, float32(math.Inf(1)))
	roundTrip(t, Float64, 1, -2.5, 3)
	roundTrip[int8](t, Int8, 1, -2, 3)
	roundTrip[int16](t, Int16, 1, -2, 3)
	roundTrip[int32](t, Int32, 1, -2, 3)
	roundTrip[int64](t, Int64, 1, -2, 3)
	roundTrip[uint8](t, UInt8, 1, 2, 255)
	roundTrip[uint16](t, UInt16, 1, 2, 3)
	roundTrip[uint32](t, UInt32, 1, 2, 3)
	roundTrip[uint64](t, UInt64, 1, 2, 1<<63)
	roundTrip(t, Bool, true, false, true)
	roundTrip[complex64](t, Complex64, 1+2i, -3i)
	roundTrip(t, Complex128, 1+2i, -3i)
	roundTrip[float32](t, Float32)
	if s := Of([]int64{7}); len(s.Layout.Shape) != 0 || binary.NativeEndian.Uint64(s.Data) != 7 {
		t.Errorf("scalar: %+v", s)
	}
}

func TestOfPanicsOnMistakes(t *testing.T) {
	defer func() {
		if r := recover(); r == nil || !strings.Contains(r.(string), "3 elements for shape [2 2]") {
			t.Errorf("recovered %v", r)
		}
	}()
	Of([]float32{1, 2, 3}, 2, 2)
}

func TestSliceFails(t *testing.T) {
	x := Of([]float32{0, 1, 2, 3, 4, 5}, 2, 3)
	if _, err := Slice[int32](x); err == nil {
		t.Error("floats came out as integers")
	}
	turned := &Tensor{Float32, Layout{Shape{3, 2}, []int{1, 3}, 0}, x.Data}
	if _, err := Slice[float32](turned); err == nil {
		t.Error("a transposed tensor has a slice")
	}
	got, err := Slice[float32](turned.Contiguous())
	if err != nil || !slices.Equal(got, []float32{0, 3, 1, 4, 2, 5}) {
		t.Errorf("transposed: %v, %v", got, err)
	}
	row := &Tensor{Float32, Layout{Shape{3}, []int{1}, 3}, x.Data}
	if got, err := Slice[float32](row); err != nil || !slices.Equal(got, []float32{3, 4, 5}) {
		t.Errorf("row: %v, %v", got, err)
	}
	for _, bad := range []*Tensor{
		{Float32, Layout{Shape{7}, []int{1}, 0}, x.Data},
		{Float32, Layout{Shape{4}, []int{1}, 3}, x.Data},
		{Float32, Layout{Shape{4}, nil, 0}, x.Data},
		{Float32, Layout{Shape{-1}, []int{1}, 0}, x.Data},
	} {
		if _, err := Slice[float32](bad); !errors.Is(err, ErrLayout) {
			t.Errorf("%+v: %v", bad.Layout, err)
		}
	}
	if _, err := Slice[float32](&Tensor{Float32, Contiguous(2), x.Data[1:]}); err == nil {
		t.Error("a slice at an odd address")
	}
	if _, err := Slice[bool](&Tensor{Bool, Contiguous(2), []byte{1, 2}}); err == nil {
		t.Error("2 became a bool")
	}
}

func TestContiguousKeepsWhatIs(t *testing.T) {
	x := Of([]int16{1, 2, 3, 4}, 2, 2)
	if c := x.Contiguous(); &c.Data[0] != &x.Data[0] || !c.Layout.IsContiguous() {
		t.Errorf("a contiguous tensor was copied: %+v", c)
	}
	part := &Tensor{Int16, Layout{Shape{1, 2}, []int{5, 1}, 1}, x.Data}
	if c := part.Contiguous(); !bytes.Equal(c.Data, x.Data[2:6]) || c.Layout.Offset != 0 {
		t.Errorf("part: %+v", c)
	}
}
