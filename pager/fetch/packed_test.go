package fetch

import (
	"testing"

	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/storage"
)

// inBlocks is a file whose blocks are decoded by who reads.
type inBlocks struct {
	*file
	block int64
}

func (f *inBlocks) StoredBytes(_, n int64) int64 { return n / 2 }
func (f *inBlocks) BlockBytes() int64            { return f.block }
func (f *inBlocks) Cut(off, n, most int64) int64 {
	if n <= most {
		return n
	}
	if over := (off + most) % f.block; over < most {
		return most - over
	}
	return most
}
func (f *inBlocks) BufferBytes() int64 { return f.block }

// TestPiecesOfBlocks: reads of a packed file begin and end with its blocks, but for the first and the last of a span,
// and are all of it.
func TestPiecesOfBlocks(t *testing.T) {
	const page = storage.AlignBytes
	for _, block := range []int64{4 * page, 16 * page, 64 * page} {
		f := &inBlocks{newFile(400 * page), block}
		for _, begin := range []int64{0, 3, 16, 21} {
			const pages, most = 301, 32 * page
			span := plan.Span{Extent: storage.Extent{Source: f, Offset: begin * page, Bytes: pages * page}}
			into := make([]byte, pages*page)
			at := begin * page
			list := pieces([]plan.Span{span}, into, most, &visit{})
			for i, p := range list {
				e := p.request[0].Extent
				if e.Offset != at || e.Bytes <= 0 || e.Bytes > most || int64(len(p.request[0].Into)) != e.Bytes {
					t.Fatalf("block %d: piece %d is %v, not from %d", block, i, e, at)
				}
				if at += e.Bytes; block <= most && i < len(list)-1 && at%block != 0 {
					t.Errorf("blocks of %d from page %d: piece %d ends at %d", block, begin, i, at)
				}
			}
			if at != (begin+pages)*page {
				t.Errorf("the pieces end at %d", at)
			}
		}
	}
}
