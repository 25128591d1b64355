package tensor

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestShape(t *testing.T) {
	if s := (Shape{2, 3, 224}).String(); s != "[2 3 224]" {
		t.Error(s)
	}
	if s := (Shape{}).String(); s != "[]" {
		t.Error(s)
	}
	if !(Shape{}).Equal(nil) || (Shape{1}).Equal(Shape{1, 1}) || (Shape{1, 2}).Equal(Shape{1, 3}) {
		t.Error("Equal is wrong")
	}
	for _, c := range []struct {
		shape Shape
		want  int64
		ok    bool
	}{
		{nil, 1, true}, {Shape{2, 3, 4}, 24, true}, {Shape{5, 0, 3}, 0, true}, {Shape{1 << 31, 1 << 31}, 1 << 62, true},
		{Shape{1 << 32, 1 << 31}, 0, false}, {Shape{1 << 40, 1 << 40, 0}, 0, false}, {Shape{-1, 2}, 0, false},
		{Shape{0, -1}, 0, false}, {Shape{math.MaxInt64}, math.MaxInt64, true}, {Shape{math.MaxInt64, 2}, 0, false},
	} {
		n, err := c.shape.NumElements()
		if n != c.want || (err == nil) != c.ok || err != nil && !errors.Is(err, ErrLayout) {
			t.Errorf("%v: %d, %v", c.shape, n, err)
		}
	}
}

func TestContiguousLayout(t *testing.T) {
	for _, c := range []struct {
		dims, strides []int
	}{{nil, []int{}}, {[]int{5}, []int{1}}, {[]int{2, 3, 4}, []int{12, 4, 1}}, {[]int{2, 0, 4}, []int{4, 4, 1}}} {
		if l := Contiguous(c.dims...); !slices.Equal(l.Strides, c.strides) || !l.IsContiguous() {
			t.Errorf("%v: %+v", c.dims, l)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("an overflowing layout was made")
		}
	}()
	Contiguous(math.MaxInt64, 4)
}

func TestIsContiguous(t *testing.T) {
	for _, c := range []struct {
		l    Layout
		want bool
	}{
		{Layout{Shape{2, 3}, []int{3, 1}, 7}, true}, {Layout{Shape{2, 3}, []int{1, 2}, 0}, false},
		{Layout{Shape{1, 3}, []int{99, 1}, 0}, true}, {Layout{Shape{3, 1}, []int{1, 99}, 0}, true},
		{Layout{Shape{2, 0}, []int{99, 99}, 0}, true}, {Layout{Shape{2}, []int{0}, 0}, false},
		{Layout{Shape{2, 3}, []int{4, 1}, 0}, false},
	} {
		if c.l.IsContiguous() != c.want {
			t.Errorf("%+v: %v", c.l, !c.want)
		}
	}
}

func TestSpan(t *testing.T) {
	for _, c := range []struct {
		l          Layout
		first, end int64
		ok         bool
	}{
		{Layout{nil, nil, 3}, 3, 4, true},
		{Layout{Shape{2, 3}, []int{3, 1}, 5}, 5, 11, true},
		{Layout{Shape{3, 2}, []int{1, 10}, 0}, 0, 13, true},
		{Layout{Shape{1000}, []int{0}, 2}, 2, 3, true},
		{Layout{Shape{4, 0}, []int{1, 1}, 9}, 9, 9, true},
		{Layout{Shape{1}, []int{math.MaxInt64}, 1}, 1, 2, true},
		{Layout{Shape{2}, nil, 0}, 0, 0, false},
		{Layout{Shape{2}, []int{-1}, 5}, 0, 0, false},
		{Layout{Shape{2}, []int{1}, -1}, 0, 0, false},
		{Layout{Shape{3}, []int{math.MaxInt64 / 2}, 2}, 0, 0, false},
		{Layout{Shape{2}, []int{math.MaxInt64}, 0}, 0, 0, false},
		{Layout{nil, nil, math.MaxInt64 - 1}, math.MaxInt64 - 1, math.MaxInt64, true},
		{Layout{nil, nil, math.MaxInt64}, 0, 0, false},
	} {
		first, end, err := c.l.Span()
		if first != c.first || end != c.end || (err == nil) != c.ok || err != nil && !errors.Is(err, ErrLayout) {
			t.Errorf("%+v: [%d, %d), %v", c.l, first, end, err)
		}
	}
}

func TestMulBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.Int64().Draw(t, "a"), rapid.Int64().Draw(t, "b")
		got, ok := MulBytes(a, b)
		want := a >= 0 && b >= 0 && (a == 0 || b <= math.MaxInt64/a)
		if ok != want || ok && got != a*b {
			t.Errorf("%d × %d = %d, %v", a, b, got, ok)
		}
	})
}

// TestSpanHoldsEveryElement walks small random layouts and compares with the positions that the definition gives.
func TestSpanHoldsEveryElement(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rank := rapid.IntRange(0, 4).Draw(t, "rank")
		l := Layout{Offset: rapid.IntRange(0, 9).Draw(t, "offset")}
		positions := []int64{int64(l.Offset)}
		for range rank {
			d, step := rapid.IntRange(0, 4).Draw(t, "d"), rapid.IntRange(0, 20).Draw(t, "step")
			l.Shape, l.Strides = append(l.Shape, d), append(l.Strides, step)
			var next []int64
			for _, p := range positions {
				for i := range d {
					next = append(next, p+int64(i*step))
				}
			}
			positions = next
		}
		first, end, err := l.Span()
		if err != nil {
			t.Fatal(err)
		}
		if len(positions) == 0 {
			if first != end {
				t.Fatalf("%+v is empty and spans [%d, %d)", l, first, end)
			}
			return
		}
		if first != slices.Min(positions) || end != slices.Max(positions)+1 {
			t.Fatalf("%+v spans [%d, %d), not [%d, %d]", l, first, end, slices.Min(positions), slices.Max(positions))
		}
		x := &Tensor{UInt8, l, noise(int(end))}
		got := x.Contiguous()
		for i, p := range positions {
			if got.Data[i] != x.Data[p] {
				t.Fatalf("%+v: element %d is not the one at %d", l, i, p)
			}
		}
	})
}

// TestJoined joins dimensions that lie in order, and no others.
func TestJoined(t *testing.T) {
	for _, c := range []struct{ shape, strides, wantShape, wantStrides []int }{
		{[]int{2, 3, 4}, []int{12, 4, 1}, []int{24}, []int{1}},
		{[]int{2, 3, 4}, []int{24, 4, 1}, []int{2, 12}, []int{24, 1}},
		{[]int{3, 2}, []int{1, 3}, []int{3, 2}, []int{1, 3}},
		{[]int{5, 1, 2}, []int{0, 9, 1}, []int{5, 2}, []int{0, 1}},
		{[]int{}, []int{}, []int{1}, []int{1}},
		{[]int{1, 1}, []int{7, 7}, []int{1}, []int{1}},
		{[]int{4, 3}, []int{0, 0}, []int{12}, []int{0}},
	} {
		got := Layout{Shape: c.shape, Strides: c.strides, Offset: 5}.Joined()
		if !got.Shape.Equal(c.wantShape) || !Shape(got.Strides).Equal(c.wantStrides) {
			t.Errorf("%v by %v: %v by %v", c.shape, c.strides, got.Shape, got.Strides)
		}
	}
}

// noise returns n bytes that are always the same.
func noise(n int) []byte {
	p := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{}).Read(p)
	return p
}

// TestOffsetOf compares where elements lie with counting through them, the last dimension fastest.
func TestOffsetOf(t *testing.T) {
	for _, l := range []Layout{
		{Offset: 5}, Contiguous(2, 3, 4), {Shape: Shape{3, 2, 2}, Strides: []int{1, 0, 7}, Offset: 2},
		{Shape: Shape{2, 1, 3}, Strides: []int{4, 9, 1}},
	} {
		want := []int{l.Offset}
		for d, n := range l.Shape {
			var next []int
			for _, at := range want {
				for k := range n {
					next = append(next, at+k*l.Strides[d])
				}
			}
			want = next
		}
		for i, at := range want {
			if got := l.OffsetOf(i); got != at {
				t.Errorf("element %d of %v lies at %d, not %d", i, l, got, at)
			}
		}
	}
}
