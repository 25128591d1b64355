package tensor

import (
	"errors"
	"math"
	"testing"

	"github.com/optimem/optimem/storage"
)

func TestDTypes(t *testing.T) {
	for d := Invalid + 1; d < numDTypes; d++ {
		if d.String() == "" || d.Size() <= 0 {
			t.Errorf("dtype %d: %q, %d bytes", uint8(d), d, d.Size())
		}
		for _, name := range []string{d.String(), "torch." + d.String()} {
			if got, ok := ParseDType(name); !ok || got != d {
				t.Errorf("ParseDType(%q) = %v, %v", name, got, ok)
			}
		}
	}
	for _, name := range []string{"", "invalid", "torch.", "float", "Float32", "torch.torch.float32"} {
		if d, ok := ParseDType(name); ok || d != Invalid {
			t.Errorf("ParseDType(%q) = %v", name, d)
		}
	}
	if s := DType(200).String(); s != "dtype(200)" || DType(200).Size() != 0 || Invalid.Size() != 0 {
		t.Errorf("%s of %d bytes", s, DType(200).Size())
	}
	for d, bytes := range map[DType]int{Float16: 2, BFloat16: 2, Float8E5M2: 1, Complex128: 16, QInt32: 4, UInt64: 8} {
		if d.Size() != bytes {
			t.Errorf("%v has %d bytes", d, d.Size())
		}
	}
	if !QUInt8.Quantized() || UInt8.Quantized() {
		t.Error("Quantized is wrong")
	}
}

func TestWeight(t *testing.T) {
	src := bytesOf(100)
	w := Weight{DType: Float32, Layout: Layout{Shape{2, 2}, []int{3, 1}, 2}, Extent: storage.Extent{Source: src, Offset: 40, Bytes: 28}}
	if err := w.Check(); err != nil {
		t.Fatal(err)
	}
	if w.NumElements() != 4 || w.Bytes() != 16 {
		t.Errorf("%d elements, %d bytes", w.NumElements(), w.Bytes())
	}
	if got := w.Span(); got != (storage.Extent{Source: src, Offset: 48, Bytes: 20}) {
		t.Errorf("spans %v", got)
	}
	v := w
	v.Layout = Contiguous(1)
	if !w.SharesStorage(v) {
		t.Error("views of one storage do not share it")
	}
	v.Extent.Offset += v.Extent.Bytes - 1
	if !w.SharesStorage(v) || !v.SharesStorage(w) {
		t.Error("overlapping extents do not share")
	}
	v.Extent.Offset++
	if w.SharesStorage(v) || v.SharesStorage(w) {
		t.Error("neighbouring extents share")
	}
	v = w
	v.Extent.Source = bytesOf(100)
	if w.SharesStorage(v) {
		t.Error("extents of different sources share")
	}
	empty := Weight{DType: Float32, Layout: Contiguous(0), Extent: storage.Extent{Source: src, Offset: 0, Bytes: 0}}
	if empty.SharesStorage(empty) || empty.Check() != nil {
		t.Error("empty storages share nothing")
	}
}

func TestWeightCheck(t *testing.T) {
	e := storage.Extent{Source: bytesOf(100), Bytes: 28}
	for _, w := range []Weight{
		{DType: Float32, Extent: e, Layout: Layout{Shape{2, 2}, []int{3, 1}, 3}},
		{DType: Float32, Extent: e, Layout: Contiguous(8)},
		{DType: Float32, Extent: e, Layout: Layout{Shape{2}, []int{1, 1}, 0}},
		{DType: Float32, Extent: e, Layout: Layout{Shape{2}, []int{-1}, 4}},
		{DType: Float32, Extent: e, Layout: Layout{Shape{1 << 61}, []int{0}, 0}},
		{DType: Float64, Extent: e, Layout: Layout{Shape{}, nil, math.MaxInt64 / 4}},
		{DType: Float64, Extent: e, Layout: Layout{Shape{}, nil, math.MaxInt64}},
		{DType: Invalid, Extent: e, Layout: Contiguous(1)},
		{DType: UInt8, Extent: e, Layout: Layout{Shape{1 << 62, 4}, []int{0, 0}, 0}},
	} {
		if err := w.Check(); !errors.Is(err, ErrLayout) {
			t.Errorf("%v %+v: %v", w.DType, w.Layout, err)
		}
	}
}
