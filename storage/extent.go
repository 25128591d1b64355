package storage

import (
	"context"
	"fmt"
)

// An Extent is a run of bytes in a source: what a pager moves.
type Extent struct {
	Source Source
	Offset int64
	Bytes  int64
}

// ReadAt fills p from offset off within the extent.
func (e Extent) ReadAt(ctx context.Context, p []byte, off int64) error {
	if off < 0 || int64(len(p)) > e.Bytes-off {
		return fmt.Errorf("read of %d bytes at %d lies outside an extent of %d bytes", len(p), off, e.Bytes)
	}
	if len(p) == 0 {
		return ctx.Err()
	}
	return e.Source.ReadAt(ctx, p, e.Offset+off)
}

// Aligned returns the smallest extent around e that a [BulkSource] can read, and how many bytes into it e begins. It
// may reach past the end of the source.
func (e Extent) Aligned() (around Extent, skip int64) {
	skip = e.Offset % AlignBytes
	bytes := (skip + e.Bytes + AlignBytes - 1) / AlignBytes * AlignBytes
	return Extent{Source: e.Source, Offset: e.Offset - skip, Bytes: bytes}, skip
}

// String writes where the extent lies; its source has the name.
func (e Extent) String() string { return fmt.Sprintf("extent of %d bytes at %d", e.Bytes, e.Offset) }

// StoredBytes returns how many bytes of a file reading the extent takes: as many as it has, or those of the blocks that a
// [StoredSource] decodes.
func (e Extent) StoredBytes() int64 {
	if s, ok := e.Source.(StoredSource); ok {
		return s.StoredBytes(e.Offset, e.Bytes)
	}
	return e.Bytes
}
