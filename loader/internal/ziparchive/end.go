package ziparchive

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"

	"github.com/optimem/optimem/loader/internal/fault"
	"github.com/optimem/optimem/storage"
)

// Signatures and fixed sizes of the zip format (PKWARE APPNOTE 6.3.10, section 4.3).
const (
	localSignature      = 0x04034b50
	centralSignature    = 0x02014b50
	endSignature        = 0x06054b50
	end64Signature      = 0x06064b50
	locatorSignature    = 0x07064b50
	descriptorSignature = 0x08074b50

	localHeaderBytes   = 30
	centralHeaderBytes = 46
	endBytes           = 22
	end64Bytes         = 56
	locatorBytes       = 20
	descriptorBytes32  = 16
	descriptorBytes64  = 24
)

var le = binary.LittleEndian

// An endRecord is what the end of the archive says about its directory.
type endRecord struct {
	offset          int64 // of the end record itself
	records         int64
	directoryOffset int64
	directoryBytes  int64
}

// findEnd reads the end records. They must be the last bytes of the file: a comment after them is where two readers
// begin to disagree about which end record counts.
func findEnd(ctx context.Context, src storage.Source, rep *reporter) (endRecord, error) {
	size := src.Size()
	if size < endBytes {
		return endRecord{}, fault.New(fault.ErrFormat, 0, "%d bytes are too few for a zip archive", size)
	}
	tail := make([]byte, min(size, end64Bytes+locatorBytes+endBytes))
	if err := readAt(ctx, src, tail, size-int64(len(tail))); err != nil {
		return endRecord{}, err
	}
	b := tail[len(tail)-endBytes:]
	if le.Uint32(b) != endSignature {
		return endRecord{}, explainMissingEnd(ctx, src)
	}
	e := endRecord{
		offset:          size - endBytes,
		records:         int64(le.Uint16(b[10:])),
		directoryBytes:  int64(le.Uint32(b[12:])),
		directoryOffset: int64(le.Uint32(b[16:])),
	}
	if n := le.Uint16(b[20:]); n != 0 {
		rep.report("", fault.ErrFormat, e.offset+20, "the end record announces a comment of %d bytes past the end", n)
	}
	disk, directoryDisk := le.Uint16(b[4:]), le.Uint16(b[6:])
	directoryEnd := e.offset
	saturated := e.records == math.MaxUint16 || e.directoryBytes == math.MaxUint32 ||
		e.directoryOffset == math.MaxUint32
	if locator := tail[:len(tail)-endBytes]; len(locator) >= locatorBytes &&
		le.Uint32(locator[len(locator)-locatorBytes:]) == locatorSignature {
		if err := e.read64(ctx, src, locator[len(locator)-locatorBytes:], rep); err != nil {
			return endRecord{}, err
		}
		directoryEnd = e.offset - locatorBytes - end64Bytes
		if disk == math.MaxUint16 { // saturated as well: the zip64 record has told
			disk = 0
		}
		if directoryDisk == math.MaxUint16 {
			directoryDisk = 0
		}
	} else if saturated {
		return endRecord{}, fault.New(
			fault.ErrFormat, e.offset, "the end record refers to a zip64 record that is missing",
		)
	}
	if disk != 0 || directoryDisk != 0 || le.Uint16(b[8:]) != le.Uint16(b[10:]) {
		rep.report("", fault.ErrUnsupported, e.offset+4, "the archive is one part of several")
	}
	return e, e.checkDirectory(directoryEnd, rep)
}

// read64 replaces e's fields with those of the zip64 end record, which must lie right before its locator and agree
// with every field of the plain end record that is not saturated.
func (e *endRecord) read64(ctx context.Context, src storage.Source, locator []byte, rep *reporter) error {
	at := e.offset - locatorBytes - end64Bytes
	if disk, disks := le.Uint32(locator[4:]), le.Uint32(locator[16:]); disk != 0 || disks > 1 {
		rep.report("", fault.ErrUnsupported, e.offset-locatorBytes, "the archive is one part of several")
	}
	if off := le.Uint64(locator[8:]); at < 0 || off != uint64(at) {
		return fault.New(fault.ErrUnsafe, e.offset-locatorBytes,
			"the zip64 end record is said to be at byte %d, but does not lie right before its locator", off)
	}
	b := make([]byte, end64Bytes)
	if err := readAt(ctx, src, b, at); err != nil {
		return err
	}
	if le.Uint32(b) != end64Signature || le.Uint64(b[4:]) != end64Bytes-12 {
		return fault.New(fault.ErrFormat, at, "there is no zip64 end record of 56 bytes")
	}
	if le.Uint32(b[16:]) != 0 || le.Uint32(b[20:]) != 0 || le.Uint64(b[24:]) != le.Uint64(b[32:]) {
		rep.report("", fault.ErrUnsupported, at+16, "the archive is one part of several")
	}
	for _, f := range []struct {
		what      string
		plain     *int64
		saturated int64
		wide      uint64
	}{
		{"number of records", &e.records, math.MaxUint16, le.Uint64(b[32:])},
		{"size of the directory", &e.directoryBytes, math.MaxUint32, le.Uint64(b[40:])},
		{"place of the directory", &e.directoryOffset, math.MaxUint32, le.Uint64(b[48:])},
	} {
		if f.wide > math.MaxInt64 {
			return fault.New(fault.ErrFormat, at, "%s: %d is not possible", f.what, f.wide)
		}
		if *f.plain != f.saturated && *f.plain != int64(f.wide) {
			rep.report("", fault.ErrUnsafe, at, "the two end records disagree on the %s: %d and %d",
				f.what, *f.plain, f.wide)
		}
		*f.plain = int64(f.wide)
	}
	return nil
}

// checkDirectory demands that the directory ends where the end records begin, at end.
func (e *endRecord) checkDirectory(end int64, rep *reporter) error {
	if e.directoryOffset > end || e.directoryBytes > end-e.directoryOffset {
		return fault.New(fault.ErrFormat, e.offset, "a directory of %d bytes at %d does not fit before byte %d",
			e.directoryBytes, e.directoryOffset, end)
	}
	if rest := end - e.directoryOffset - e.directoryBytes; rest != 0 {
		rep.report("", fault.ErrUnsafe, e.directoryOffset+e.directoryBytes,
			"%d bytes lie between the directory and the end record", rest)
	}
	if e.records > e.directoryBytes/centralHeaderBytes {
		return fault.New(fault.ErrFormat, e.offset, "a directory of %d bytes cannot list %d records",
			e.directoryBytes, e.records)
	}
	return nil
}

// explainMissingEnd says why no end record ends the file.
func explainMissingEnd(ctx context.Context, src storage.Source) error {
	size := src.Size()
	tail := make([]byte, min(size, endBytes+math.MaxUint16))
	at := size - int64(len(tail))
	if err := readAt(ctx, src, tail, at); err != nil {
		return err
	}
	signature := le.AppendUint32(nil, endSignature)
	found, last := 0, int64(0)
	fits := false
	for rest := tail; ; {
		i := bytes.Index(rest, signature)
		if i < 0 {
			break
		}
		if len(rest)-i >= endBytes {
			found++
			last = size - int64(len(rest)-i)
			fits = int(le.Uint16(rest[i+20:])) == len(rest)-i-endBytes
		}
		rest = rest[i+4:]
	}
	switch {
	case found == 0:
		return fault.New(fault.ErrFormat, size, "there is no end record: the file is truncated or not a zip archive")
	case found > 1:
		return fault.New(fault.ErrUnsafe, last, "there are %d end records, and the file ends with none", found)
	case fits:
		return fault.New(fault.ErrUnsupported, last, "the archive has a comment")
	default:
		return fault.New(fault.ErrUnsafe, last+endBytes, "%d bytes follow the end record", size-last-endBytes)
	}
}
