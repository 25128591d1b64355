package ziparchive

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/optimem/optimem/loader/internal/fault"
	"github.com/optimem/optimem/loader/internal/limit"
)

// General-purpose flag bits.
const (
	flagEncrypted  = 1<<0 | 1<<6 | 1<<13
	flagDescriptor = 1 << 3
	flagLevel      = 1<<1 | 1<<2 // how hard deflate tried
	flagUTF8       = 1 << 11
)

const (
	methodStore   = 0
	methodDeflate = 8

	// maxRatio is deflate's largest expansion: 258 bytes from two bits.
	maxRatio = 1032
	// maxVersion is the version of the format that brought zip64.
	maxVersion = 45

	extraZip64       = 0x0001
	extraUnicodePath = 0x7075
	extraUnicodeText = 0x6375
	extraPadding     = 'F' | 'B'<<8
	maxExtraFields   = 16

	directoryWindowBytes = 64 << 10
)

// readDirectory walks the directory and fills records and byName. What it reports, it reports once per record and
// kind; it fails where the next entry cannot be found.
func (a *Archive) readDirectory(ctx context.Context, meter *limit.Meter, rep *reporter) error {
	if err := meter.Charge(directoryWindowBytes + a.end.records*recordBytes); err != nil {
		return err
	}
	a.records = make([]Record, 0, a.end.records)
	a.byName = make(map[string]int, a.end.records)
	a.unchecked = true
	start, stop := a.end.directoryOffset, a.end.directoryOffset+a.end.directoryBytes
	r := bufio.NewReaderSize(&rangeReader{ctx: ctx, src: a.src, off: start, end: stop}, directoryWindowBytes)
	at := start
	for range a.end.records {
		n, err := a.readEntry(r, at, stop, meter, rep)
		if err != nil {
			return err
		}
		at += n
	}
	if at != stop {
		rep.report("", fault.ErrUnsafe, at, "the directory goes on for %d bytes after the %d records of the end record",
			stop-at, a.end.records)
	}
	return nil
}

// readEntry parses the directory's entry at byte at, adds its record and returns the entry's length.
func (a *Archive) readEntry(
	r *bufio.Reader, at, stop int64, meter *limit.Meter, rep *reporter,
) (int64, error) {
	b, err := r.Peek(centralHeaderBytes)
	if err != nil {
		return 0, directoryError(err, at)
	}
	if le.Uint32(b) != centralSignature {
		return 0, fault.New(fault.ErrFormat, at, "the directory lists %d records, but only %d are there",
			a.end.records, len(a.records))
	}
	nameBytes, extraBytes, commentBytes := int(le.Uint16(b[28:])), int(le.Uint16(b[30:])), int(le.Uint16(b[32:]))
	if nameBytes > maxNameBytes || extraBytes > maxNameBytes || commentBytes > maxNameBytes {
		return 0, fault.New(fault.ErrFormat, at,
			"a record with a name of %d, extra fields of %d and a comment of %d bytes",
			nameBytes, extraBytes, commentBytes)
	}
	n := centralHeaderBytes + nameBytes + extraBytes + commentBytes
	if b, err = r.Peek(n); err != nil {
		return 0, directoryError(err, at)
	}
	rawName := b[centralHeaderBytes:][:nameBytes]
	if err := meter.Charge(int64(nameBytes)); err != nil {
		return 0, err
	}
	rec := Record{
		Name:          string(rawName),
		HeaderOffset:  int64(le.Uint32(b[42:])),
		StoredBytes:   int64(le.Uint32(b[20:])),
		Bytes:         int64(le.Uint32(b[24:])),
		CRC32:         le.Uint32(b[16:]),
		centralOffset: at,
		flags:         le.Uint16(b[8:]),
		method:        le.Uint16(b[10:]),
	}
	rec.Compressed = rec.method != methodStore
	rec.checkEntry(b, rep)
	rec.readZip64(b[centralHeaderBytes+nameBytes:][:extraBytes], rep)
	if err := a.add(rec, meter, rep); err != nil {
		return 0, err
	}
	_, err = r.Discard(n)
	return int64(n), directoryError(err, at)
}

// checkEntry judges the fields of a directory entry that stand on their own.
func (r *Record) checkEntry(b []byte, rep *reporter) {
	at := r.centralOffset
	if class, why := checkName(r.Name); class != nil {
		rep.report(r.Name, class, at+centralHeaderBytes, "%s", why)
	}
	switch unknown := r.flags &^ (flagDescriptor | flagLevel | flagUTF8); {
	case unknown&flagEncrypted != 0:
		rep.report(r.Name, fault.ErrUnsafe, at+8, "the record is marked as encrypted (flags %#04x)", r.flags)
	case unknown != 0:
		rep.report(r.Name, fault.ErrUnsafe, at+8, "unknown flags %#04x", unknown)
	}
	if r.method != methodStore && r.method != methodDeflate {
		rep.report(r.Name, fault.ErrUnsupported, at+10, "compression method %d", r.method)
	}
	if v := b[6]; v > maxVersion {
		rep.report(r.Name, fault.ErrUnsupported, at+6, "the record needs version %d.%d of the zip format", v/10, v%10)
	}
	if le.Uint16(b[32:]) != 0 {
		rep.report(r.Name, fault.ErrUnsupported, at+32, "the record has a comment")
	}
	if le.Uint16(b[34:]) != 0 {
		rep.report(r.Name, fault.ErrUnsupported, at+34, "the record lies in another part of the archive")
	}
	const unix, fileType, regular, folder = 3, 0xf000, 0x8000, 0x4000
	if mode := le.Uint16(b[40:]) & fileType; b[5] == unix && mode != 0 && mode != regular && mode != folder {
		rep.report(r.Name, fault.ErrUnsafe, at+38, "the record is a link or a device (mode %#o)", mode)
	}
}

// readZip64 reads the extra fields of a directory entry: the wide values must be there for exactly those fields of the
// header that are saturated.
func (r *Record) readZip64(extra []byte, rep *reporter) {
	at := r.centralOffset + centralHeaderBytes + int64(len(r.Name))
	var zip64 []byte
	if class, why := walkExtra(extra, len(extra), func(id uint16, body []byte) {
		if id == extraZip64 {
			zip64 = body
		}
	}); class != nil {
		rep.report(r.Name, class, at, "%s", why)
		return
	}
	for _, field := range []*int64{&r.Bytes, &r.StoredBytes, &r.HeaderOffset} {
		if *field != math.MaxUint32 {
			continue
		}
		if len(zip64) < 8 {
			rep.report(
				r.Name, fault.ErrFormat, at,
				"a size or an offset of the record refers to a zip64 field that is missing",
			)
			return
		}
		wide := le.Uint64(zip64)
		if wide > math.MaxInt64 {
			rep.report(r.Name, fault.ErrFormat, at, "a size or an offset of %d bytes", wide)
			wide = math.MaxInt64
		}
		*field, zip64 = int64(wide), zip64[8:]
	}
	if len(zip64) > 0 {
		rep.report(r.Name, fault.ErrUnsafe, at, "the zip64 field holds %d bytes that the header does not refer to",
			len(zip64))
	}
}

// walkExtra calls visit for each extra field. The field must fill total bytes exactly; of these, b may hold only the
// beginning when the last field is padding.
//
//lint:ignore ST1008 the class is a finding, not a failure of the function
func walkExtra(b []byte, total int, visit func(id uint16, body []byte)) (class error, why string) {
	zip64s := 0
	for fields := 0; total > 0; fields++ {
		if fields == maxExtraFields {
			return fault.ErrFormat, fmt.Sprintf("the record has more than %d extra fields", maxExtraFields)
		}
		if total < 4 {
			return fault.ErrFormat, fmt.Sprintf("%d bytes are left over after the extra fields", total)
		}
		if len(b) < 4 {
			return fault.ErrUnsupported, "the extra fields are too large"
		}
		id, n := le.Uint16(b), int(le.Uint16(b[2:]))
		b, total = b[4:], total-4
		if n > total {
			return fault.ErrFormat, fmt.Sprintf("an extra field of %d bytes exceeds the %d that remain", n, total)
		}
		if n > len(b) && (id != extraPadding || n != total) {
			return fault.ErrUnsupported, "the extra fields are too large"
		}
		switch id {
		case extraZip64:
			if zip64s++; zip64s > 1 {
				return fault.ErrUnsafe, "the record has two zip64 fields"
			}
		case extraUnicodePath, extraUnicodeText:
			return fault.ErrUnsafe, "an extra field gives the record a second name or comment"
		}
		visit(id, b[:min(n, len(b))])
		b, total = b[min(n, len(b)):], total-n
	}
	return nil, ""
}

// add appends a record that the directory lists after checking its place, its sizes and that its name is new.
func (a *Archive) add(rec Record, meter *limit.Meter, rep *reporter) error {
	at := rec.centralOffset
	room := a.end.directoryOffset - localHeaderBytes - int64(len(rec.Name))
	if rec.HeaderOffset > room || rec.StoredBytes > room-rec.HeaderOffset {
		rep.report(rec.Name, fault.ErrFormat, at, "%d bytes after a header at %d do not fit before the directory at %d",
			rec.StoredBytes, rec.HeaderOffset, a.end.directoryOffset)
		rec.suspect = true
	}
	switch {
	case rec.method == methodStore && rec.StoredBytes != rec.Bytes:
		rep.report(rec.Name, fault.ErrUnsafe, at+20, "a stored record declares two sizes: %d and %d bytes",
			rec.StoredBytes, rec.Bytes)
	case rec.Compressed && rec.Bytes/maxRatio > rec.StoredBytes:
		rep.report(rec.Name, fault.ErrUnsafe, at+20, "%d compressed bytes cannot hold %d", rec.StoredBytes, rec.Bytes)
	}
	folder := strings.HasSuffix(rec.Name, "/")
	if folder && (rec.Bytes != 0 || rec.CRC32 != 0) {
		rep.report(rec.Name, fault.ErrFormat, at+20, "a folder with %d bytes of data", rec.Bytes)
	}
	if rec.Bytes > 0 && rec.CRC32 != 0 {
		a.unchecked = false
	}
	key := fold(rec.Name)
	if key != rec.Name && !folder {
		if err := meter.Charge(int64(len(key))); err != nil {
			return err
		}
	}
	if other, dup := a.byName[key]; dup {
		if a.records[other].Name == rec.Name {
			rep.report(rec.Name, fault.ErrUnsafe, at, "two records have this name")
		} else {
			rep.report(rec.Name, fault.ErrUnsafe, at, "the name differs from that of another record, %q, only in case",
				a.records[other].Name)
		}
	} else {
		a.byName[key] = len(a.records)
	}
	a.records = append(a.records, rec)
	return nil
}

// directoryError places an error of walking the directory at byte at.
func directoryError(err error, at int64) error {
	if errors.Is(err, io.EOF) {
		return fault.New(fault.ErrFormat, at, "the directory ends within a record")
	}
	return err
}
