package loader

import (
	"errors"
	"strings"

	"github.com/optimem/optimem/loader/internal/fault"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/storage/packed"
)

// openPacked reads what a packed file stands for: a file in any format, but not one that is packed again.
func (o *opener) openPacked(ckpt *Checkpoint, src storage.Source) error {
	if o.isPacked {
		return fault.New(fault.ErrUnsupported, 0, "a packed file within a packed file")
	}
	original, err := packed.Open(o.ctx, src, o.meter.Charge)
	if err != nil {
		return packedFault(err)
	}
	original.Explain = func(e *packed.CorruptError) error { return placePacked(ckpt, o.path, original, e) }
	if o.opts.Verify {
		if err := original.Verify(o.ctx); err != nil {
			return err
		}
	}
	within := *o
	within.isPacked = true
	return within.openSource(ckpt, original)
}

// A damaged packed file has the words of a fault, and its cause for those who ask.
type damaged struct {
	fault error
	cause *packed.CorruptError
}

// Error returns the fault's words.
func (d *damaged) Error() string { return d.fault.Error() }

// Unwrap returns the fault, and so its class, and the cause.
func (d *damaged) Unwrap() []error { return []error{d.fault, d.cause} }

// packedFault gives an error of opening a packed file its class.
func packedFault(err error) error {
	var bad *packed.CorruptError
	switch {
	case errors.As(err, &bad):
		return &damaged{fault.New(fault.ErrFormat, 0, "packed: %v", bad), bad}
	case errors.Is(err, packed.ErrVersion):
		return fault.New(fault.ErrUnsupported, 0, "%v", err)
	}
	return err
}

// mostNamed is how many tensors an error names that lie in one block.
const mostNamed = 3

// placePacked says which tensors do not come back. It is called where weights are read, long after the file was opened.
func placePacked(ckpt *Checkpoint, path string, original *packed.Source, e *packed.CorruptError) error {
	var names []string
	more := false
	for i := range ckpt.Weights {
		w := &ckpt.Weights[i]
		if at := w.Span(); at.Source != storage.Source(original) || at.Offset >= e.Offset+e.Bytes ||
			at.Offset+at.Bytes <= e.Offset {
			continue
		}
		if len(names) == mostNamed {
			more = true
			break
		}
		names = append(names, w.Name)
	}
	record := strings.Join(names, ", ")
	if more {
		record += ", …"
	}
	why := &damaged{fault.New(fault.ErrFormat, e.Offset, "packed: %s", e.Reason), e}
	return &Error{Path: path, Record: record, Offset: e.Offset, Err: why}
}

// PackedFile says what a file takes that [packed.Write] wrote, and what it stands for.
type PackedFile struct{ PackedBytes, Bytes int64 }

// Packed lists the packed files that weights lie in, in the order of the weights.
func (c *Checkpoint) Packed() []PackedFile {
	var list []PackedFile
	seen := make(map[storage.Source]bool)
	for i := range c.Weights {
		s, ok := storage.Packed(c.Weights[i].Extent.Source)
		if !ok || seen[s] {
			continue
		}
		seen[s] = true
		if p, ok := s.(*packed.Source); ok {
			list = append(list, PackedFile{p.PackedBytes(), p.Size()})
		}
	}
	return list
}
