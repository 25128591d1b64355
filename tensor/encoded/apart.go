package encoded

import (
	"context"
	"fmt"
	"sync"

	"github.com/optimem/optimem/storage"
)

// mxfp4Codes is how many bytes the codes of a block of MXFP4 take, beside one of scale.
const mxfp4Codes = 16

// Apart returns a source of blocks of MXFP4 as GGUF files have them, of which the codes and the scales lie in extents of their
// own: 16 bytes and 1 byte a block. There the lower half of byte i is number 2i of the block and the upper half number 2i + 1;
// here they are the numbers i and 16 + i. That is how gpt-oss's folders have experts.
func Apart(codes, scales storage.Extent) (storage.Source, error) {
	if codes.Bytes%mxfp4Codes != 0 || codes.Bytes/mxfp4Codes != scales.Bytes || scales.Bytes == 0 {
		return nil, fmt.Errorf("codes of %d bytes with scales of %d", codes.Bytes, scales.Bytes)
	}
	return &apart{codes, scales}, nil
}

// An apart is a source whose blocks are put together as they are read.
type apart struct{ codes, scales storage.Extent }

var _ storage.Guarded = (*apart)(nil)

// Size implements storage.Source.
func (a *apart) Size() int64 { return a.scales.Bytes * (mxfp4Codes + 1) }

// Unchanged implements storage.Guarded.
func (a *apart) Unchanged() error {
	if g, ok := a.codes.Source.(storage.Guarded); ok {
		return g.Unchanged()
	}
	return nil
}

// apartBlocks is how many blocks are put together at a time.
const apartBlocks = 4096

// apartRooms have the codes and the scales of as many blocks.
var apartRooms = sync.Pool{New: func() any { return new([apartBlocks * (mxfp4Codes + 1)]byte) }}

// ReadAt implements storage.Source.
func (a *apart) ReadAt(ctx context.Context, p []byte, off int64) error {
	if off < 0 || int64(len(p)) > a.Size()-off {
		return fmt.Errorf("read of %d bytes at %d lies outside blocks of %d bytes", len(p), off, a.Size())
	}
	const size = mxfp4Codes + 1
	room := apartRooms.Get().(*[apartBlocks * size]byte)
	defer apartRooms.Put(room)
	for len(p) > 0 {
		first := off / size
		n := min((off+int64(len(p))+size-1)/size-first, apartBlocks)
		codes, scales := room[:n*mxfp4Codes], room[apartBlocks*mxfp4Codes:][:n]
		if err := a.codes.ReadAt(ctx, codes, first*mxfp4Codes); err != nil {
			return err
		}
		if err := a.scales.ReadAt(ctx, scales, first); err != nil {
			return err
		}
		skip := off - first*size
		for i := range n {
			var block [size]byte
			together(&block, scales[i], codes[i*mxfp4Codes:][:mxfp4Codes])
			copied := copy(p, block[skip:])
			p, off, skip = p[copied:], off+int64(copied), 0
		}
	}
	return ctx.Err()
}

// together writes a block.
func together(block *[mxfp4Codes + 1]byte, scale byte, codes []byte) {
	block[0] = scale
	for i := range mxfp4Codes / 2 {
		low, high := codes[i], codes[mxfp4Codes/2+i]
		block[1+2*i] = low&15 | high<<4
		block[2+2*i] = low>>4 | high&0xF0
	}
}
