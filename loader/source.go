package loader

import (
	"context"
	"errors"
	"io"

	"github.com/optimem/optimem/loader/internal/fault"
	"github.com/optimem/optimem/storage"
)

// openFile opens a regular file; anything else is a kind that is not supported.
func openFile(path string) (*storage.File, error) {
	file, err := storage.Open(path)
	var other *storage.NotRegularError
	if errors.As(err, &other) {
		err = &Error{
			Path: path, Offset: -1, Err: fault.New(fault.ErrUnsupported, -1, "%s, not a regular file", other.Kind),
		}
	}
	if err != nil {
		return nil, err
	}
	return file, nil
}

// A memorySource is a source over bytes in memory, for the few weights that lie inside a pickle.
type memorySource struct {
	data []byte
}

func (s *memorySource) Size() int64 { return int64(len(s.data)) }

func (s *memorySource) ReadAt(ctx context.Context, p []byte, off int64) error {
	if off < 0 || off > int64(len(s.data)) || copy(p, s.data[off:]) < len(p) {
		return io.ErrUnexpectedEOF
	}
	return ctx.Err()
}

// A readerAt is a source as an io.ReaderAt, for readers that do not know where their input ends.
type readerAt struct {
	ctx context.Context
	src storage.Source
}

func (r readerAt) ReadAt(p []byte, off int64) (int, error) {
	if off >= r.src.Size() {
		return 0, io.EOF
	}
	n := int(min(int64(len(p)), r.src.Size()-off))
	if err := r.src.ReadAt(r.ctx, p[:n], off); err != nil {
		return 0, err
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// section returns a reader of the bytes [off, end) of a source, from front to back.
func section(ctx context.Context, src storage.Source, off, end int64) *io.SectionReader {
	return io.NewSectionReader(readerAt{ctx: ctx, src: src}, off, end-off)
}
