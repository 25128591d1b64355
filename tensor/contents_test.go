package tensor

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/optimem/optimem/storage"
)

// bytesSource is a source of bytes in memory.
type bytesSource struct{ data []byte }

// bytesOf returns a source of n zeros.
func bytesOf(n int) *bytesSource { return &bytesSource{make([]byte, n)} }

func (b *bytesSource) Size() int64 { return int64(len(b.data)) }

func (b *bytesSource) ReadAt(ctx context.Context, p []byte, off int64) error {
	if off < 0 || off+int64(len(p)) > b.Size() {
		return io.ErrUnexpectedEOF
	}
	copy(p, b.data[off:])
	return ctx.Err()
}

func TestContents(t *testing.T) {
	data := []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
	layout := func(offset int, shape Shape, strides ...int) Layout { return Layout{shape, strides, offset} }
	for _, c := range []struct {
		name string
		w    Weight
		want []byte
	}{
		{"contiguous", Weight{DType: UInt8, Layout: layout(3, Shape{2, 3}, 3, 1)}, []byte{3, 4, 5, 6, 7, 8}},
		{"scalar", Weight{DType: Int16, Layout: layout(2, Shape{})}, []byte{4, 5}},
		{"empty", Weight{DType: Float32, Layout: layout(99, Shape{0, 5}, 5, 1)}, []byte{}},
		{"transposed", Weight{DType: UInt8, Layout: layout(1, Shape{3, 2}, 1, 3)}, []byte{1, 4, 2, 5, 3, 6}},
		{"transposed pairs", Weight{DType: Int16, Layout: layout(1, Shape{3, 2}, 1, 3)},
			[]byte{2, 3, 8, 9, 4, 5, 10, 11, 6, 7, 12, 13}},
		{"expanded", Weight{DType: UInt8, Layout: layout(7, Shape{2, 2, 2}, 0, 1, 0)}, []byte{7, 7, 8, 8, 7, 7, 8, 8}},
		{"rows with gaps", Weight{DType: UInt8, Layout: layout(0, Shape{2, 1, 3}, 8, 77, 1)}, []byte{0, 1, 2, 8, 9, 10}},
		{"inner runs", Weight{DType: UInt8, Layout: layout(0, Shape{2, 2, 2, 2}, 1, 8, 4, 2)},
			[]byte{0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15}},
		{"four-byte steps", Weight{DType: Float32, Layout: layout(0, Shape{2, 2}, 1, 2)},
			[]byte{0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15}},
		{"big-endian", Weight{DType: Int32, BigEndian: true, Layout: layout(1, Shape{2}, 1)},
			[]byte{7, 6, 5, 4, 11, 10, 9, 8}},
		{"big-endian complex", Weight{DType: Complex64, BigEndian: true, Layout: layout(1, Shape{1}, 1)},
			[]byte{11, 10, 9, 8, 15, 14, 13, 12}},
		{"big-endian bytes", Weight{DType: Bool, BigEndian: true, Layout: layout(0, Shape{2}, 1)}, []byte{0, 1}},
		{"conjugate", Weight{DType: Complex64, Conj: true, Layout: layout(0, Shape{2}, 1)},
			[]byte{0, 1, 2, 3, 4, 5, 6, 0x87, 8, 9, 10, 11, 12, 13, 14, 0x8f}},
		{"big-endian conjugate", Weight{DType: Complex32, Conj: true, BigEndian: true, Layout: layout(1, Shape{1}, 1)},
			[]byte{5, 4, 7, 0x86}},
		{"negative", Weight{DType: Float16, Neg: true, Layout: layout(0, Shape{2}, 2)}, []byte{0, 0x81, 4, 0x85}},
		{"negative conjugate", Weight{DType: Complex32, Neg: true, Conj: true, Layout: layout(0, Shape{1}, 1)},
			[]byte{0, 0x81, 2, 3}},
	} {
		c.w.Name = c.name
		c.w.Extent = storage.Extent{Source: &bytesSource{append([]byte("head"), data...)}, Offset: 4, Bytes: int64(len(data))}
		if c.name == "empty" {
			c.w.Extent.Bytes = 0
		}
		got, err := c.w.Contents(t.Context())
		if err != nil {
			t.Error(err)
			continue
		}
		if !bytes.Equal(got.Data, c.want) {
			t.Errorf("%s: % x, want % x", c.name, got.Data, c.want)
		}
		if !got.Layout.Shape.Equal(c.w.Layout.Shape) || !got.Layout.IsContiguous() || got.Layout.Offset != 0 ||
			got.DType != c.w.DType {
			t.Errorf("%s: %v of %+v", c.name, got.DType, got.Layout)
		}
	}
}

func TestContentsFails(t *testing.T) {
	src := bytesOf(64)
	all := storage.Extent{Source: src, Offset: 0, Bytes: 64}
	for _, c := range []struct {
		what string
		w    Weight
		want string
	}{
		{"expanded without bound", Weight{DType: UInt8, Extent: all, Layout: Layout{Shape{1 << 40}, []int{0}, 0}},
			"1099511627776 bytes are repeated from a storage of 64"},
		{"claimed but absent", Weight{DType: UInt8, Extent: storage.Extent{Source: src, Offset: 0, Bytes: 1 << 50}, Layout: Contiguous(1 << 50)},
			"unexpected EOF"},
		{"outside its storage", Weight{DType: Float32, Extent: all, Layout: Contiguous(17)}, "impossible layout"},
		{"conjugate float", Weight{DType: Float32, Conj: true, Extent: all, Layout: Contiguous(4)}, "conjugate"},
		{"negative integer", Weight{DType: Int32, Neg: true, Extent: all, Layout: Contiguous(4)}, "negative"},
		{"source too short", Weight{DType: Int32, Extent: storage.Extent{Source: src, Offset: 60, Bytes: 64}, Layout: Contiguous(4)}, "unexpected EOF"},
	} {
		c.w.Name = "the.weight"
		_, err := c.w.Contents(t.Context())
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "the.weight: ") {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}
