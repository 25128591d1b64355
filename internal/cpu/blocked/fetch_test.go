package blocked

import (
	"slices"
	"testing"
	"unsafe"

	"github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/tensor"
)

// TestFollow: what is fetched is every byte of the weights that are packed next, each once but where a row's last piece
// reaches over its end, and nothing where there are none or they lie otherwise.
func TestFollow(t *testing.T) {
	const in, out, taps, piece = 48, 70, 9, 256
	c := newConv(square(in, out, 8, 3, 1), Direct, kernel.ConvSets()[0])
	c.fetches = true
	data := make([]float32, in*out*taps)
	raw := Weight{Data: bytesOf(data), DType: tensor.Float32, Layout: tensor.Contiguous(out, in, 3, 3)}
	base := uintptr(unsafe.Pointer(unsafe.SliceData(raw.Data)))
	for _, x := range []struct {
		name                     string
		first, outputs, from, to int
		rows                     int // that lie apart
	}{
		{"whole rows", 32, 32, 0, in, 1}, {"the last rows", 64, 32, 0, in, 1}, {"half of each", 32, 32, 16, 32, 32},
		{"the end of the last", 64, 32, 16, in, 6}, {"none", out, 32, 0, in, 0},
	} {
		f := c.follow(&raw, x.first, x.outputs, x.from, x.to)
		if f.rows != x.rows {
			t.Fatalf("%s: %d rows, want %d", x.name, f.rows, x.rows)
		}
		var want, got []int
		for o := x.first; o < min(x.first+x.outputs, out); o++ {
			for k := x.from * taps * 4; k < x.to*taps*4; k++ {
				want = append(want, o*in*taps*4+k)
			}
		}
		rowBytes, pieces := f.rowBytes, f.pieces(piece)
		left := 0 // of the row
		for ; f.rows > 0; pieces-- {
			at := int(f.next(piece) - base)
			if left == 0 {
				left = rowBytes
			}
			for k := range min(piece, left) {
				got = append(got, at+k)
			}
			left -= min(piece, left)
		}
		if pieces != 0 || !slices.Equal(got, want) {
			t.Errorf("%s: %d bytes are fetched, of %d, and %d pieces were not", x.name, len(got), len(want), pieces)
		}
		if at := f.next(piece); x.rows > 0 && (at < base || at >= base+uintptr(len(raw.Data))) {
			t.Errorf("%s: at its end it fetches elsewhere", x.name)
		}
	}
	whole := c.follow(&raw, 0, 32, 0, in)
	sum := 0
	for n := range 5 {
		f := whole.part(n, 5)
		if f.at != whole.at+uintptr(sum) {
			t.Errorf("part %d begins at %d, want %d", n, f.at-whole.at, sum)
		}
		sum += f.rowBytes
	}
	if sum != whole.rowBytes || c.follow(&raw, 0, 32, 16, 32).part(0, 5).rows != 0 {
		t.Errorf("parts are %d bytes of %d", sum, whole.rowBytes)
	}
	turned := raw
	turned.Layout = tensor.Layout{Shape: raw.Layout.Shape, Strides: []int{taps, out * taps, 3, 1}}
	if f := c.follow(&turned, 0, 32, 0, in); f.rows != 0 {
		t.Errorf("%d rows of weights that do not lie so", f.rows)
	}
	c.fetches = false
	if f := c.follow(&raw, 0, 32, 0, in); f.rows != 0 {
		t.Errorf("%d rows, although it does not pay", f.rows)
	}
}
