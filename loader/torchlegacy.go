package loader

import (
	"encoding/binary"

	"github.com/optimem/optimem/loader/internal/fault"
	"github.com/optimem/optimem/loader/internal/pickle"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// openLegacy reads what torch.save wrote before 1.6: five pickles one after another (magic number, protocol version,
// system information, the object, the keys of its storages) and then, for each key, an element count and the bytes.
func (o *opener) openLegacy(ckpt *Checkpoint, src storage.Source) error {
	ckpt.Format = FormatTorchLegacy
	l := &legacyReader{o: o, src: src, storages: make(map[string]*legacyStorage)}
	if err := l.header(); err != nil {
		return err
	}
	root, err := l.next("object", l.persistent)
	if err != nil {
		return err
	}
	keys, err := l.next("storage keys", nil)
	if err != nil {
		return err
	}
	if err := l.place(keys); err != nil {
		return err
	}
	return o.flatten(ckpt, root)
}

// A legacyReader walks a legacy file from front to back.
type legacyReader struct {
	o        *opener
	src      storage.Source
	off      int64
	storages map[string]*legacyStorage
}

// A legacyStorage is a storage of the file and the views that the pickle declared on it.
type legacyStorage struct {
	torchStorage
	// views are the storages handed to tensors: the whole, or a part of it.
	views  []*torchStorage
	placed bool
}

// next reads the pickle at the current offset.
func (l *legacyReader) next(record string, persistent func(any) (any, error)) (any, error) {
	in := readerAt{ctx: l.o.ctx, src: l.src}
	report, err := l.o.scanWith(record, in, l.off, l.src.Size()-l.off,
		pickle.Options{Policy: torchPolicy, ClassIDs: true, Exact: true})
	if err != nil {
		return nil, err
	}
	v, err := l.o.loadPickle(record, report, persistent)
	if err != nil {
		return nil, err
	}
	l.off = report.End
	return v, nil
}

// header reads the pickles before the object. The magic number comes first, so any other pickle is told apart here,
// after the scanner has looked at all of it.
func (l *legacyReader) header() error {
	magic, err := l.next("", nil)
	if err != nil {
		return err
	}
	if plainText(magic) != legacyMagic {
		return fault.New(fault.ErrUnsupported, -1,
			"a pickle that torch.save did not write: load it where it was made and re-save it with torch.save")
	}
	version, err := l.next("protocol version", nil)
	if err != nil {
		return err
	}
	if v, ok := pickle.Int(version); !ok || v != 1001 {
		return fault.New(fault.ErrUnsupported, -1, "legacy protocol version %s", plainText(version))
	}
	// The system information tells the writer's byte order and type sizes; PyTorch writes storages little-endian
	// whatever they are, and does not look at it either.
	_, err = l.next("system information", nil)
	return err
}

// legacyMagic is torch.serialization.MAGIC_NUMBER, 0x1950a86a20f9469cfc6c, as decimal text.
const legacyMagic = "119547037146038801333356"

// persistent returns the storage that a persistent id names. Extents are not known yet.
func (l *legacyReader) persistent(id any) (any, error) {
	s, view, err := parseStorageID(id)
	if err != nil {
		return nil, err
	}
	root, ok := l.storages[s.key]
	if !ok {
		const rootBytes = 256
		if err := l.o.meter.Charge(rootBytes + int64(len(s.key))); err != nil {
			return nil, err
		}
		root = &legacyStorage{torchStorage: *s}
		l.storages[s.key] = root
	} else if root.bytes != s.bytes {
		return nil, fault.New(
			fault.ErrFormat, -1, "storage %.40q is declared as %d and as %d bytes", s.key, root.bytes, s.bytes,
		)
	}
	if view != nil { // (key, offset, size), in elements
		first, ok1 := pickle.Int(view[1])
		count, ok2 := pickle.Int(view[2])
		size := int64(max(s.dtype.Size(), 1))
		if ok1 && ok2 {
			s.shift, ok1 = tensor.MulBytes(first, size)
			s.bytes, ok2 = tensor.MulBytes(count, size)
		}
		if !ok1 || !ok2 || s.shift > root.bytes || s.bytes > root.bytes-s.shift {
			return nil, fault.New(fault.ErrFormat, -1, "storage %.40q: a view lies outside it", s.key)
		}
	}
	if n := len(root.views); n > 0 && *root.views[n-1] == *s {
		return root.views[n-1], nil
	}
	if err := l.o.meter.Charge(128); err != nil {
		return nil, err
	}
	root.views = append(root.views, s)
	return s, nil
}

// place reads the element counts behind the pickles and gives every storage its extent.
func (l *legacyReader) place(keys any) error {
	list, ok := pickle.List(keys)
	if !ok {
		return errorAt(l.o.path, "storage keys", fault.New(fault.ErrFormat, l.off, "not a list"))
	}
	for _, k := range list {
		key, ok := pickle.String(k)
		root, known := l.storages[key]
		if !ok || !known {
			return errorAt(
				l.o.path, "storage keys", fault.New(fault.ErrFormat, l.off, "storage %.40q belongs to no tensor", key),
			)
		}
		if root.placed {
			return errorAt(l.o.path, key, fault.New(fault.ErrFormat, l.off, "storage comes twice"))
		}
		if err := l.placeOne(key, root); err != nil {
			return err
		}
	}
	if l.off != l.src.Size() {
		return fault.New(fault.ErrFormat, l.off, "%d bytes after the last storage", l.src.Size()-l.off)
	}
	for key, root := range l.storages {
		if !root.placed {
			return errorAt(l.o.path, key, fault.New(fault.ErrFormat, -1, "storage has no data in the file"))
		}
	}
	return nil
}

// placeOne reads the element count of one storage and skips its bytes.
func (l *legacyReader) placeOne(key string, root *legacyStorage) error {
	var count [8]byte
	if l.src.Size()-l.off < int64(len(count)) {
		return errorAt(l.o.path, key, fault.New(fault.ErrFormat, l.off, "the file ends before the storage"))
	}
	if err := l.src.ReadAt(l.o.ctx, count[:], l.off); err != nil {
		return err
	}
	n := int64(binary.LittleEndian.Uint64(count[:]))
	bytes, ok := tensor.MulBytes(n, int64(max(root.dtype.Size(), 1)))
	if !ok || bytes != root.bytes {
		return errorAt(l.o.path, key, fault.New(fault.ErrFormat, l.off,
			"storage of %d elements is declared as %d bytes", n, root.bytes))
	}
	l.off += int64(len(count))
	if bytes > l.src.Size()-l.off {
		return errorAt(l.o.path, key, fault.New(fault.ErrFormat, l.off,
			"the file ends %d bytes before the storage does", bytes-(l.src.Size()-l.off)))
	}
	for _, v := range root.views {
		v.extent = storage.Extent{Source: l.src, Offset: l.off + v.shift, Bytes: v.bytes}
	}
	root.placed = true
	l.off += bytes
	return nil
}
