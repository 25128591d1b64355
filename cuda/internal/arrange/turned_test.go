package arrange

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/optimem/optimem/tensor"
)

// TestTurnedViews: where there is a layout for a view of a value whose channels go last, it shows the same elements, each of
// which is looked up alone; and there is one for the value in any order of its dimensions.
func TestTurnedViews(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := bounds{
			rapid.IntRange(1, 3).Draw(t, "images"), rapid.IntRange(1, 4).Draw(t, "channels"), rapid.IntRange(1, 4).Draw(t, "pixels"),
		}
		image := b.channels * b.pixels
		var l tensor.Layout
		last := 0
		for range rapid.IntRange(0, 4).Draw(t, "rank") {
			n := rapid.IntRange(1, 3).Draw(t, "size")
			s := rapid.SampledFrom([]int{0, 1, 2, b.pixels, 2 * b.pixels, image, 2 * image, b.channels}).Draw(t, "stride")
			l.Shape, l.Strides = append(l.Shape, n), append(l.Strides, s)
			last += (n - 1) * s
		}
		if last >= b.images*image {
			t.Skip("it leaves the value")
		}
		l.Offset = rapid.IntRange(0, b.images*image-1-last).Draw(t, "offset")
		turned, ok := b.turned(l)
		if !ok {
			return
		}
		n, err := l.NumElements()
		if err != nil {
			t.Fatal(err)
		}
		for i := range int(n) {
			was, is, rest := l.Offset, turned.Offset, i
			for d := len(l.Shape) - 1; d >= 0; d-- {
				at := rest % l.Shape[d]
				rest /= l.Shape[d]
				was, is = was+at*l.Strides[d], is+at*turned.Strides[d]
			}
			of, channel, pixel := was/image, was%image/b.pixels, was%b.pixels
			if want := of*image + pixel*b.channels + channel; is != want {
				t.Fatalf("element %d of %+v in %+v is at %d, want %d", i, l, b, is, want)
			}
		}
	})
	b := bounds{2, 3, 20}
	for _, l := range []tensor.Layout{
		{Shape: tensor.Shape{2, 3, 4, 5}, Strides: []int{60, 20, 5, 1}}, {Shape: tensor.Shape{2, 4, 5, 3}, Strides: []int{60, 5, 1, 20}},
		{Shape: tensor.Shape{2, 2, 4, 2}, Strides: []int{60, 20, 5, 2}, Offset: 21}, {Shape: tensor.Shape{2, 3, 7}, Strides: []int{0, 20, 0}},
	} {
		if _, ok := b.turned(l); !ok {
			t.Errorf("there is no layout for %+v", l)
		}
	}
}
