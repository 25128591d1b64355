package loader

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/optimem/optimem/loader/internal/ziparchive"
	"github.com/optimem/optimem/tensor"
)

// A TensorData is a tensor to be written: what it is, and how to get at its bytes.
type TensorData struct {
	Name  string
	DType tensor.DType
	Shape tensor.Shape
	// ReadAt fills p with the tensor's bytes from offset off: contiguous, row-major, little-endian. The method of a
	// [storage.Extent] or of a [Random] will do.
	ReadAt func(ctx context.Context, p []byte, off int64) error
}

// bytes returns the size of the tensor's elements.
func (t TensorData) bytes() (int64, error) {
	n, err := t.Shape.NumElements()
	if err != nil {
		return 0, err
	}
	size, ok := tensor.MulBytes(n, int64(t.DType.Size()))
	if !ok {
		return 0, fmt.Errorf("%w: shape %v of %v takes more than 2^63 bytes", tensor.ErrLayout, t.Shape, t.DType)
	}
	return size, nil
}

// copyTo writes the tensor's bytes in pieces of at most len(buf).
func (t TensorData) copyTo(ctx context.Context, w io.Writer, bytes int64, buf []byte) error {
	for off := int64(0); off < bytes; {
		p := buf[:min(int64(len(buf)), bytes-off)]
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := t.ReadAt(ctx, p, off); err != nil {
			return fmt.Errorf("%s: %w", t.Name, err)
		}
		if _, err := w.Write(p); err != nil {
			return err
		}
		off += int64(len(p))
	}
	return nil
}

// copyBytes is how much of a tensor is in memory while it is written.
const copyBytes = 1 << 20

// WriteTorchZip writes a state dict as torch.save does since torch 1.6: an OrderedDict of the given tensors in their
// order, each contiguous and with a storage of its own. torch.load reads it, also with weights_only and mmap. All
// records lie in a folder called name; torch.save names it after the file.
//
// The tensors' bytes pass through a buffer of 1 MiB, so the size of the file does not matter. The same tensors give
// the same file.
func WriteTorchZip(ctx context.Context, w io.Writer, name string, tensors []TensorData) error {
	if strings.Contains(name, "/") {
		return fmt.Errorf("folder name %q: a slash is not possible there", name)
	}
	pickle, err := pickleStateDict(tensors)
	if err != nil {
		return err
	}
	zw := ziparchive.NewWriter(w, name)
	for _, r := range []struct {
		name    string
		content []byte
	}{
		{"data.pkl", pickle},
		{".format_version", []byte("1")},
		{".storage_alignment", []byte(strconv.Itoa(ziparchive.Alignment))},
		{"byteorder", []byte("little")},
	} {
		if err := zw.WriteRecord(r.name, r.content); err != nil {
			return err
		}
	}
	buf := make([]byte, copyBytes)
	for i, t := range tensors {
		bytes, err := t.bytes()
		if err != nil {
			return fmt.Errorf("%s: %w", t.Name, err)
		}
		if err := zw.Create(fmt.Sprintf("data/%d", i), bytes); err != nil {
			return err
		}
		if err := t.copyTo(ctx, zw, bytes, buf); err != nil {
			return err
		}
	}
	if err := zw.WriteRecord("version", []byte("3\n")); err != nil {
		return err
	}
	if err := zw.WriteRecord(".data/serialization_id", []byte(zw.SerializationID())); err != nil {
		return err
	}
	return zw.Close()
}
