package ziparchive

import (
	"bytes"
	"compress/flate"
	"errors"
	"hash/crc32"
	"math"
	"strings"
	"testing"

	"github.com/optimem/optimem/loader/internal/fault"
	"github.com/optimem/optimem/loader/internal/limit"
)

// An entry is a record to be assembled by assemble. The functions change its headers after they are made.
type entry struct {
	name           string
	data           []byte // as stored
	size           int    // uncompressed, if compressed
	method, flags  uint16
	local, central func(h []byte) []byte
	before, after  []byte // bytes around the record that belong to nothing
	at             *int64 // header offset for the directory, instead of the record's own
	hidden         bool   // not in the directory
}

// An assembly is an archive in the making: the end record's fields may be changed.
type assembly struct {
	b                        []byte
	directory, directorySize int
	records                  int
}

func plain(name, data string) entry { return entry{name: name, data: []byte(data)} }

func assembleDirectory(entries []entry) (a assembly) {
	var directory []byte
	for _, e := range entries {
		a.b = append(a.b, e.before...)
		offset := int64(len(a.b))
		if e.at != nil {
			offset = *e.at
		}
		size := len(e.data)
		crc := crc32.ChecksumIEEE(e.data)
		if e.method == methodDeflate {
			size = e.size
			crc = 0x1234
		}
		fields := func(h []byte) []byte {
			h = le.AppendUint16(h, 20)
			h = le.AppendUint16(h, e.flags)
			h = le.AppendUint16(h, e.method)
			h = le.AppendUint32(h, 0)
			h = le.AppendUint32(h, crc)
			h = le.AppendUint32(h, uint32(len(e.data)))
			h = le.AppendUint32(h, uint32(size))
			h = le.AppendUint16(h, uint16(len(e.name)))
			return le.AppendUint16(h, 0)
		}
		local := append(fields(le.AppendUint32(nil, localSignature)), e.name...)
		if e.local != nil {
			local = e.local(local)
		}
		central := fields(le.AppendUint16(le.AppendUint32(nil, centralSignature), 20))
		central = append(central, make([]byte, 10)...)
		central = le.AppendUint32(central, uint32(offset))
		central = append(central, e.name...)
		if e.central != nil {
			central = e.central(central)
		}
		a.b = append(append(append(a.b, local...), e.data...), e.after...)
		if !e.hidden {
			directory = append(directory, central...)
			a.records++
		}
	}
	a.directory, a.directorySize = len(a.b), len(directory)
	a.b = append(a.b, directory...)
	return a
}

func (a assembly) end() []byte {
	b := le.AppendUint32(a.b, endSignature)
	b = le.AppendUint32(b, 0)
	b = le.AppendUint16(b, uint16(a.records))
	b = le.AppendUint16(b, uint16(a.records))
	b = le.AppendUint32(b, uint32(a.directorySize))
	b = le.AppendUint32(b, uint32(a.directory))
	return le.AppendUint16(b, 0)
}

func assemble(entries ...entry) []byte { return assembleDirectory(entries).end() }

// put16 and put32 change a field of a header.
func put16(at int, v uint16) func([]byte) []byte {
	return func(h []byte) []byte { le.PutUint16(h[at:], v); return h }
}

func put32(at int, v uint32) func([]byte) []byte {
	return func(h []byte) []byte { le.PutUint32(h[at:], v); return h }
}

// extra appends an extra field to a header whose length field for it is at the given place.
func extra(at int, id uint16, body ...byte) func([]byte) []byte {
	return func(h []byte) []byte {
		le.PutUint16(h[at:], le.Uint16(h[at:])+4+uint16(len(body)))
		h = le.AppendUint16(h, id)
		h = le.AppendUint16(h, uint16(len(body)))
		return append(h, body...)
	}
}

const (
	inLocal   = 28 // where the length of the extra fields is
	inCentral = 30
)

func both(fs ...func([]byte) []byte) func([]byte) []byte {
	return func(h []byte) []byte {
		for _, f := range fs {
			h = f(h)
		}
		return h
	}
}

// torchArchive is an archive by the Writer with a zip64 end record, to be damaged.
func torchArchive(t *testing.T) []byte {
	s := &bytes.Buffer{}
	w := NewWriter(s, "m")
	for _, name := range []string{"data.pkl", "data/0", "data/1"} {
		if err := w.WriteRecord(name, []byte("contents of "+name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return s.Bytes()
}

func TestRefuse(t *testing.T) {
	one := plain("one", "first") // header at 0, data at 33, ends at 38
	two := plain("two", "second")
	dir := int64(38 + 39) // of one and two
	with := func(e entry, change func(*entry)) entry { change(&e); return e }
	zero := int64(0)
	descriptor := func(crc uint32, sizes ...uint32) []byte {
		b := le.AppendUint32(le.AppendUint32(nil, descriptorSignature), crc)
		for _, n := range sizes {
			b = le.AppendUint32(b, n)
		}
		return b
	}
	streamed := func(data string, after []byte) entry {
		return entry{name: "one", data: []byte(data), flags: flagDescriptor, after: after,
			local: both(put32(14, 0), put32(18, 0), put32(22, 0))}
	}
	firstCRC := crc32.ChecksumIEEE([]byte("first"))
	torch := func(change func(b []byte) []byte) []byte { return change(torchArchive(t)) }
	endOf := func(b []byte) int { return len(b) - endBytes }

	for _, c := range []struct {
		what   string
		b      []byte
		class  error
		record string
		offset int64
		msg    string
	}{
		// The end of the archive.
		{"empty file", nil, fault.ErrFormat, "", 0, "0 bytes are too few"},
		{"no end record", bytes.Repeat([]byte("x"), 100), fault.ErrFormat, "", 100, "no end record"},
		{"truncated", assemble(one, two)[:dir+20], fault.ErrFormat, "", dir + 20, "no end record"},
		{"truncated by a byte", torch(func(b []byte) []byte { return b[:len(b)-1] }), fault.ErrFormat, "",
			int64(len(torchArchive(t)) - 1), "no end record"},
		{"trailing data", append(assemble(one), "MZ..."...), fault.ErrUnsafe, "", 38 + 49 + 22, "5 bytes follow"},
		{"comment", append(func() []byte {
			b := assemble(one)
			b[len(b)-2] = 4
			return b
		}(), "hide"...), fault.ErrUnsupported, "", 38 + 49, "comment"},
		{"announced comment", func() []byte { b := assemble(one); b[len(b)-2] = 4; return b }(),
			fault.ErrFormat, "", 38 + 49 + 20, "comment of 4 bytes"},
		{"end record in a comment", append(func() []byte {
			b := assemble(one)
			b[len(b)-2] = 23
			return b
		}(), append(assemble()[:22], 'x')...), fault.ErrUnsafe, "", 38 + 49 + 22, "2 end records"},
		{"several parts", torch(func(b []byte) []byte { b[endOf(b)+4] = 1; return b }),
			fault.ErrUnsupported, "", int64(len(torchArchive(t)) - 18), "one part of several"},
		{"locator of several parts", torch(func(b []byte) []byte { b[endOf(b)-4] = 2; return b }),
			fault.ErrUnsupported, "", int64(len(torchArchive(t)) - 42), "one part of several"},
		{"locator points elsewhere", torch(func(b []byte) []byte { b[endOf(b)-12]--; return b }),
			fault.ErrUnsafe, "", int64(len(torchArchive(t)) - 42), "does not lie right before its locator"},
		{"zip64 record missing", torch(func(b []byte) []byte { b[endOf(b)-76] = 'Q'; return b }),
			fault.ErrFormat, "", int64(len(torchArchive(t)) - 98), "no zip64 end record"},
		{"end records disagree on the count", torch(func(b []byte) []byte {
			b[endOf(b)+8], b[endOf(b)+10] = 2, 2
			return b
		}), fault.ErrUnsafe, "", int64(len(torchArchive(t)) - 98), "disagree on the number of records: 2 and 3"},
		{"end records disagree on the place", torch(func(b []byte) []byte { b[endOf(b)+16]--; return b }),
			fault.ErrUnsafe, "", int64(len(torchArchive(t)) - 98), "disagree on the place"},
		{"end records disagree on the size", torch(func(b []byte) []byte { b[endOf(b)+12]--; return b }),
			fault.ErrUnsafe, "", int64(len(torchArchive(t)) - 98), "disagree on the size"},
		{"impossible count", torch(func(b []byte) []byte {
			le.PutUint64(b[endOf(b)-76+24:], math.MaxUint64)
			le.PutUint64(b[endOf(b)-76+32:], math.MaxUint64)
			return b
		}), fault.ErrFormat, "", int64(len(torchArchive(t)) - 98), "number of records"},
		{"saturated without zip64", func() []byte {
			a := assembleDirectory([]entry{one})
			a.records = math.MaxUint16
			return a.end()
		}(), fault.ErrFormat, "", 38 + 49, "zip64 record that is missing"},

		// The directory as a whole.
		{"directory past the end record", func() []byte {
			a := assembleDirectory([]entry{one})
			a.directorySize++
			return a.end()
		}(), fault.ErrFormat, "", 38 + 49, "does not fit"},
		{"bytes after the directory", func() []byte {
			a := assembleDirectory([]entry{one})
			a.b = append(a.b, "gap"...)
			return a.end()
		}(), fault.ErrUnsafe, "", 38 + 49, "3 bytes lie between the directory and the end record"},
		{"more records than counted", func() []byte {
			a := assembleDirectory([]entry{one, two})
			a.records = 1
			return a.end()
		}(), fault.ErrUnsafe, "", dir + 49, "goes on for 49 bytes"},
		{"fewer records than counted", func() []byte {
			a := assembleDirectory([]entry{one, with(two, func(e *entry) {
				e.central = both(extra(inCentral, 0x9999, make([]byte, 40)...))
			})})
			a.records = 3
			return a.end()
		}(), fault.ErrFormat, "", dir + 49 + 49 + 44, "within a record"},
		{"count beyond the directory", func() []byte {
			a := assembleDirectory([]entry{one})
			a.records = 60000
			return a.end()
		}(), fault.ErrFormat, "", 38 + 49, "cannot list 60000"},
		{"directory is not one", func() []byte {
			a := assembleDirectory([]entry{one})
			a.b[a.directory] = 'Q'
			return a.end()
		}(), fault.ErrFormat, "", 38, "lists 1 records, but only 0"},
		{"name past the directory", assemble(with(one, func(e *entry) { e.central = put16(28, 4000) })),
			fault.ErrFormat, "", 38, "within a record"},
		{"huge name", assemble(with(one, func(e *entry) { e.central = put16(28, 60000) })),
			fault.ErrFormat, "", 38, "name of 60000"},

		// Names.
		{"no name", assemble(plain("", "x")), fault.ErrFormat, "", 31 + 46, "no name"},
		{"not UTF-8", assemble(plain("a\xff", "")), fault.ErrFormat, "a\xff", 32 + 46, "not UTF-8"},
		{"climbing", assemble(plain("m/../../x", "")), fault.ErrUnsafe, "m/../../x", 39 + 46, "climbs"},
		{"absolute", assemble(plain("/etc/x", "")), fault.ErrUnsafe, "/etc/x", 36 + 46, "absolute"},
		{"drive", assemble(plain("C:x", "")), fault.ErrUnsafe, "C:x", 33 + 46, "drive letter"},
		{"backslash", assemble(plain(`m\..\x`, "")), fault.ErrUnsafe, `m\..\x`, 36 + 46, "backslash"},
		{"NUL", assemble(plain("data.pkl\x00.txt", "")), fault.ErrUnsafe, "data.pkl\x00.txt", 43 + 46, "control"},
		{"terminal escape", assemble(plain("\x1b[2J", "")), fault.ErrUnsafe, "\x1b[2J", 34 + 46, "control"},
		{"empty part", assemble(plain("m//x", "")), fault.ErrUnsafe, "m//x", 34 + 46, "empty part"},
		{"dot part", assemble(plain("./x", "")), fault.ErrUnsafe, "./x", 33 + 46, "empty part"},
		{"duplicate", assemble(one, one), fault.ErrUnsafe, "one", 76 + 49, "two records have this name"},
		{"case", assemble(one, plain("ONE", "")), fault.ErrUnsafe, "ONE", 71 + 49, `"one", only in case`},
		{"case beyond ASCII", assemble(plain("straſe", ""), plain("STRASE", "")), fault.ErrUnsafe, "STRASE",
			37 + 36 + 46 + 7, "only in case"},
		{"folder and file", assemble(one, plain("one/", "")), fault.ErrUnsafe, "one/", 72 + 49, "only in case"},

		// Entries on their own.
		{"encrypted", assemble(with(one, func(e *entry) { e.flags = 1 })), fault.ErrUnsafe, "one", 38 + 8, "encrypted"},
		{"strongly encrypted", assemble(with(one, func(e *entry) { e.flags = 1 << 6 })),
			fault.ErrUnsafe, "one", 38 + 8, "encrypted"},
		{"masked headers", assemble(with(one, func(e *entry) { e.flags = 1 << 13 })),
			fault.ErrUnsafe, "one", 38 + 8, "encrypted"},
		{"patched data", assemble(with(one, func(e *entry) { e.flags = 1 << 5 })),
			fault.ErrUnsafe, "one", 38 + 8, "unknown flags 0x0020"},
		{"method", assemble(with(one, func(e *entry) { e.method = 14 })), fault.ErrUnsupported, "one", 38 + 10, "method 14"},
		{"version", assemble(with(one, func(e *entry) { e.central = put16(6, 63) })),
			fault.ErrUnsupported, "one", 38 + 6, "needs version 6.3"},
		{"comment of a record", assemble(with(one, func(e *entry) {
			e.central = both(put16(32, 2), func(h []byte) []byte { return append(h, "hi"...) })
		})), fault.ErrUnsupported, "one", 38 + 32, "comment"},
		{"record in another part", assemble(with(one, func(e *entry) { e.central = put16(34, 1) })),
			fault.ErrUnsupported, "one", 38 + 34, "another part"},
		{"symbolic link", assemble(with(one, func(e *entry) {
			e.central = both(put16(4, 3<<8|20), put32(38, 0o120777<<16))
		})), fault.ErrUnsafe, "one", 38 + 38, "link or a device"},
		{"two sizes", assemble(with(one, func(e *entry) { e.local, e.central = put32(22, 500), put32(24, 500) })),
			fault.ErrUnsafe, "one", 38 + 20, "two sizes: 5 and 500"},
		{"impossible ratio", assemble(entry{name: "one", data: []byte("12345"), method: methodDeflate, size: 1 << 20}),
			fault.ErrUnsafe, "one", 38 + 20, "cannot hold 1048576"},
		{"folder with data", assemble(plain("d/", "data")), fault.ErrFormat, "d/", 36 + 20, "folder with 4 bytes"},
		{"header outside", assemble(with(one, func(e *entry) { e.central = put32(42, 1<<20) })),
			fault.ErrFormat, "one", 38, "do not fit"},
		{"data outside", assemble(with(one, func(e *entry) {
			e.local, e.central = both(put32(18, 99), put32(22, 99)), both(put32(20, 99), put32(24, 99))
		})), fault.ErrFormat, "one", 38, "do not fit"},
		{"data that ends beyond 2^63", assemble(one, with(two, func(e *entry) {
			most := []byte{255, 255, 255, 255, 255, 255, 255, 127}
			e.central = both(put32(20, math.MaxUint32), put32(24, math.MaxUint32),
				extra(inCentral, extraZip64, append(bytes.Clone(most), most...)...))
		})), fault.ErrFormat, "two", dir + 49, "do not fit"},
		{"zip64 missing", assemble(with(one, func(e *entry) { e.central = put32(24, math.MaxUint32) })),
			fault.ErrFormat, "one", 38 + 49, "zip64 field that is missing"},
		{"zip64 uncalled for", assemble(with(one, func(e *entry) {
			e.central = extra(inCentral, extraZip64, 5, 0, 0, 0, 0, 0, 0, 0)
		})), fault.ErrUnsafe, "one", 38 + 49, "8 bytes that the header does not refer to"},
		{"zip64 offset beyond", assemble(with(one, func(e *entry) {
			e.central = both(put32(42, math.MaxUint32), extra(inCentral, extraZip64, 0, 0, 0, 0, 0, 0, 0, 0x80))
		})), fault.ErrFormat, "one", 38 + 49, "offset of 9223372036854775808"},
		{"two zip64 fields", assemble(with(one, func(e *entry) {
			e.central = both(put32(42, math.MaxUint32), extra(inCentral, extraZip64, make([]byte, 8)...),
				extra(inCentral, extraZip64, make([]byte, 8)...))
		})), fault.ErrUnsafe, "one", 38 + 49, "two zip64 fields"},
		{"second name", assemble(with(one, func(e *entry) {
			e.central = extra(inCentral, extraUnicodePath, 1, 0, 0, 0, 0, 'e', 'v', 'i', 'l')
		})), fault.ErrUnsafe, "one", 38 + 49, "second name"},
		{"extra field too long", assemble(with(one, func(e *entry) {
			e.central = both(extra(inCentral, 0x9999, 1, 2), func(h []byte) []byte { h[51] = 3; return h })
		})), fault.ErrFormat, "one", 38 + 49, "extra field of 3 bytes exceeds the 2"},
		{"extra field too short", assemble(with(one, func(e *entry) {
			e.central = both(put16(inCentral, 3), func(h []byte) []byte { return append(h, 1, 2, 3) })
		})), fault.ErrFormat, "one", 38 + 49, "3 bytes are left over"},
		{"many extra fields", assemble(with(one, func(e *entry) {
			e.central = func(h []byte) []byte {
				for range 17 {
					h = extra(inCentral, 0x9999)(h)
				}
				return h
			}
		})), fault.ErrFormat, "one", 38 + 49, "more than 16"},

		// The local header against the directory.
		{"no local header", assemble(with(one, func(e *entry) { e.local = put16(0, 0) })),
			fault.ErrFormat, "one", 0, "no local header"},
		{"other name", assemble(with(one, func(e *entry) { e.local = func(h []byte) []byte { h[30] = 'O'; return h } })),
			fault.ErrUnsafe, "one", 26, "another name"},
		{"longer name", assemble(with(one, func(e *entry) { e.local = put16(26, 5) })),
			fault.ErrUnsafe, "one", 26, "another name"},
		{"other flags", assemble(with(one, func(e *entry) { e.local = put16(6, 1) })),
			fault.ErrUnsafe, "one", 6, "flags 0x0001 in the local header, 0x0000 in the directory"},
		{"other method", assemble(with(one, func(e *entry) { e.local = put16(8, 8) })),
			fault.ErrUnsafe, "one", 8, "method 8 in the local header"},
		{"local version", assemble(with(one, func(e *entry) { e.local = put16(4, 63) })),
			fault.ErrUnsupported, "one", 4, "needs version 6.3"},
		{"other CRC", assemble(with(one, func(e *entry) { e.local = put32(14, 7) })),
			fault.ErrUnsafe, "one", 14, "CRC-32 00000007 in the local header"},
		{"no CRC, not streamed", assemble(with(one, func(e *entry) { e.local = put32(14, 0) })),
			fault.ErrUnsafe, "one", 14, "CRC-32 00000000 in the local header"},
		{"other size", assemble(with(one, func(e *entry) { e.local = put32(22, 6) })),
			fault.ErrUnsafe, "one", 18, "size 6 in the local header, 5 in the directory"},
		{"zero size, not streamed", assemble(with(one, func(e *entry) { e.local = put32(18, 0) })),
			fault.ErrUnsafe, "one", 18, "stored size 0 in the local header"},
		{"local zip64 says otherwise", assemble(with(one, func(e *entry) {
			e.local = extra(inLocal, extraZip64, 9, 0, 0, 0, 0, 0, 0, 0)
		})), fault.ErrUnsafe, "one", 33, "a zip64 value of 9"},
		{"local zip64 of odd size", assemble(with(one, func(e *entry) {
			e.local = extra(inLocal, extraZip64, 0, 0, 9)
		})), fault.ErrUnsafe, "one", 33, "odd size"},
		{"saturated local zip64", assemble(with(one, func(e *entry) {
			e.local = both(put32(22, math.MaxUint32), extra(inLocal, extraZip64, 6, 0, 0, 0, 0, 0, 0, 0))
		})), fault.ErrUnsafe, "one", 18, "size 6 in the local header"},
		{"local second name", assemble(with(one, func(e *entry) {
			e.local = extra(inLocal, extraUnicodePath, 1)
		})), fault.ErrUnsafe, "one", 33, "second name"},
		{"local extra into the directory", assemble(with(one, func(e *entry) { e.local = put16(28, 6000) })),
			fault.ErrFormat, "one", 28, "reach into the directory"},
		{"large local extra", assemble(with(one, func(e *entry) {
			e.local = extra(inLocal, 0x9999, make([]byte, 20000)...)
		})), fault.ErrUnsupported, "one", 33, "too large"},

		// The layout.
		{"prepended", append([]byte("#!/bin/sh\n"), func() []byte {
			a := assembleDirectory([]entry{one})
			a.directory += 10
			le.PutUint32(a.b[38+42:], 10)
			return a.end()
		}()...), fault.ErrUnsafe, "", 0, "10 bytes precede"},
		{"prepended, offsets left", append([]byte("#!/bin/sh\n"), assemble(one)...),
			fault.ErrUnsafe, "", 38 + 49, "10 bytes lie between"},
		{"prepended to nothing", func() []byte {
			a := assembleDirectory(nil)
			a.b, a.directory = []byte("x"), 1
			return a.end()
		}(), fault.ErrUnsafe, "", 0, "1 bytes precede"},
		{"gap", assemble(one, with(two, func(e *entry) { e.before = []byte("gap") })),
			fault.ErrFormat, "", 38, "3 bytes belong to no record"},
		{"gap before the directory", assemble(with(one, func(e *entry) { e.after = make([]byte, 64) })),
			fault.ErrFormat, "", 38, "64 bytes belong to no record"},
		{"hidden record", assemble(one, with(two, func(e *entry) { e.hidden = true })),
			fault.ErrUnsafe, "", 38, "does not list"},
		{"same header twice", assemble(one, with(one, func(e *entry) {
			e.name, e.at, e.local = "two", &zero, nil
		})), fault.ErrUnsafe, "two", 26, "another name"},
		{"overlap", assemble(with(one, func(e *entry) {
			n := uint32(5 + 39)
			e.local, e.central = both(put32(18, n), put32(22, n)), both(put32(20, n), put32(24, n))
		}), two), fault.ErrUnsafe, "one", 0, `overlaps "two" at 38`},
		{"quoted overlap", assemble(with(one, func(e *entry) {
			e.local = extra(inLocal, 0x9999)
			e.central = both(put32(20, 5+36), put32(24, 5+36))
			e.data = nil
			e.local = both(put32(18, 5+36), put32(22, 5+36), extra(inLocal, 0x9999))
		}), with(two, func(e *entry) { e.data = []byte("12345678") })), fault.ErrUnsafe, "one", 0, "overlaps"},

		// Data descriptors.
		{"no descriptor", assemble(streamed("first", nil), two), fault.ErrFormat, "one", 38, "descriptor is missing"},
		{"descriptor of another CRC", assemble(streamed("first", descriptor(firstCRC+1, 5, 5)), two),
			fault.ErrUnsafe, "one", 38, "descriptor disagrees"},
		{"descriptor of another size", assemble(streamed("first", descriptor(firstCRC, 5, 6)), two),
			fault.ErrUnsafe, "one", 38, "descriptor disagrees"},
		{"last descriptor wrong", assemble(two, streamed("first", descriptor(firstCRC, 6, 5))),
			fault.ErrUnsafe, "one", 39 + 38, "descriptor disagrees"},
		{"gap after a descriptor", assemble(streamed("first", append(descriptor(firstCRC, 5, 5), "gap"...)), two),
			fault.ErrFormat, "", 38 + 16, "3 bytes belong to no record"},
	} {
		t.Run(c.what, func(t *testing.T) {
			_, problems, err := Read(t.Context(), bytesSource(c.b), Options{Meter: limit.New(1 << 20)})
			var f *fault.Error
			if errors.As(err, &f) {
				problems = append(problems, Problem{Err: f})
			} else if err != nil {
				t.Fatal(err)
			}
			for _, p := range problems {
				if strings.Contains(p.Err.Msg, c.msg) {
					if p.Err.Class != c.class || p.Record != c.record || p.Err.Offset != c.offset {
						t.Errorf("%q: %v at %d: %v; want %q: %v at %d",
							p.Record, p.Err.Class, p.Err.Offset, p.Err, c.record, c.class, c.offset)
					}
					return
				}
			}
			t.Errorf("got %v and %v, want %q", problems, err, c.msg)
		})
	}
}

// The archives that TestRefuse damages, and harmless variants of them, are accepted.
func TestAccept(t *testing.T) {
	crc := crc32.ChecksumIEEE([]byte("first"))
	descriptor32 := le.AppendUint32(le.AppendUint32(le.AppendUint32(nil, crc), 5), 5)
	descriptor64 := le.AppendUint64(le.AppendUint64(le.AppendUint32(nil, crc), 5), 5)
	signed := le.AppendUint32(nil, descriptorSignature)
	streamed := func(after []byte) entry {
		return entry{name: "one", data: []byte("first"), flags: flagDescriptor, after: after,
			local: both(put32(14, 0), put32(18, 0), put32(22, 0))}
	}
	two := plain("two", "second")
	for what, b := range map[string][]byte{
		"nothing":            assemble(),
		"one":                assemble(plain("one", "first")),
		"empty records":      assemble(plain("a", ""), plain("b", ""), plain("d/", "")),
		"torch":              torchArchive(t),
		"descriptor, 12":     assemble(streamed(descriptor32), two),
		"descriptor, 16":     assemble(streamed(append(signed, descriptor32...)), two),
		"descriptor, 20":     assemble(streamed(descriptor64), two),
		"descriptor, 24":     assemble(streamed(append(signed, descriptor64...)), two),
		"last descriptor 12": assemble(two, streamed(descriptor32)),
		"last descriptor 20": assemble(two, streamed(descriptor64)),
		"sizes and descriptor": assemble(entry{name: "one", data: []byte("first"), flags: flagDescriptor,
			after: descriptor32}),
		"regular file": assemble(entry{name: "one", central: both(put16(4, 3<<8|20), put32(38, 0o100644<<16))}),
		"time stamps": assemble(entry{name: "one", local: extra(inLocal, 0x5455, 1, 2, 3, 4, 5),
			central: extra(inCentral, 0x5455, 1, 2, 3, 4, 5)}),
		"directory out of order": func() []byte {
			b := assemble(plain("one", "x"), plain("two", "y"))
			d := b[len(b)-endBytes-2*49:]
			first := bytes.Clone(d[:49])
			copy(d, d[49:2*49])
			copy(d[49:], first)
			return b
		}(),
	} {
		t.Run(what, func(t *testing.T) {
			a := mustRead(t, bytesSource(b))
			for _, r := range a.Records() {
				got, err := a.ReadAll(t.Context(), r, limit.New(100))
				if err != nil || int64(len(got)) != r.Bytes {
					t.Errorf("%s: %q, %v", r.Name, got, err)
				}
			}
		})
	}
}

// The wide fields stand in the order of the format, for those of the header that are saturated and no others.
func TestWideFieldsAreInOrder(t *testing.T) {
	const first, second = "first", "second of them"
	size, offset := int64(len(second)), int64(38) // of the second record's header
	for _, c := range []struct {
		at   []int // of the fields of the header that are saturated
		wide []int64
	}{
		{[]int{24}, []int64{size}},
		{[]int{20}, []int64{size}},
		{[]int{42}, []int64{offset}},
		{[]int{24, 20}, []int64{size, size}},
		{[]int{24, 42}, []int64{size, offset}},
		{[]int{20, 42}, []int64{size, offset}},
		{[]int{24, 20, 42}, []int64{size, size, offset}},
	} {
		var wide []byte
		var change []func([]byte) []byte
		for i, at := range c.at {
			wide = le.AppendUint64(wide, uint64(c.wide[i]))
			change = append(change, put32(at, math.MaxUint32))
		}
		e := plain("two", second)
		e.central = both(append(change, extra(inCentral, extraZip64, wide...))...)
		a := mustRead(t, bytesSource(assemble(plain("one", first), e)))
		r := a.Records()[1]
		if r.HeaderOffset != offset || r.Bytes != size || r.StoredBytes != size {
			t.Errorf("fields at %v: %+v", c.at, r)
		}
		if got, err := a.ReadAll(t.Context(), r, limit.New(100)); err != nil || string(got) != second {
			t.Errorf("fields at %v: %q, %v", c.at, got, err)
		}
	}
}

func TestAllProblemsAreReportedUpTo100(t *testing.T) {
	var entries []entry
	for range 3 {
		entries = append(entries, plain("../x", ""))
	}
	_, problems, err := Read(t.Context(), bytesSource(assemble(entries...)), Options{})
	if err != nil || len(problems) != 5 {
		t.Errorf("%v, %v; want three bad names and two duplicates", problems, err)
	}
	for range 200 {
		entries = append(entries, plain("../x", ""))
	}
	_, problems, err = Read(t.Context(), bytesSource(assemble(entries...)), Options{})
	if err != nil || len(problems) != maxProblems {
		t.Errorf("%d problems, %v", len(problems), err)
	}
}

func deflated(t *testing.T, s string) []byte {
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte(s)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestContentsAreChecked(t *testing.T) {
	text := strings.Repeat("abc", 100)
	compressed := deflated(t, text)
	crc := crc32.ChecksumIEEE([]byte(text))
	setCRC := func(e *entry, crc uint32) { e.local, e.central = put32(14, crc), put32(16, crc) }
	record := func(data []byte, size int, crc uint32) []byte {
		e := entry{name: "one", data: data, size: size, method: methodDeflate}
		setCRC(&e, crc)
		return assemble(e)
	}
	stored := plain("one", text)
	setCRC(&stored, crc+1)

	for _, c := range []struct {
		what  string
		b     []byte
		class error
		msg   string
	}{
		{"sound", record(compressed, 300, crc), nil, ""},
		{"wrong CRC", record(compressed, 300, crc+1), fault.ErrFormat, "declared is"},
		{"wrong CRC of a stored record", assemble(stored), fault.ErrFormat, "declared is"},
		{"bomb", record(compressed, 299, crc), fault.ErrUnsafe, "more than the 299"},
		{"less than declared", record(compressed, 301, crc), fault.ErrFormat, "holds 300 bytes, but declares 301"},
		{"nothing declared", record(compressed, 0, crc), fault.ErrUnsafe, "more than the 0"},
		{"cut", record(compressed[:len(compressed)-3], 300, crc), fault.ErrFormat, "corrupt"},
		{"corrupt", record(append([]byte{7}, compressed...), 300, crc), fault.ErrFormat, "corrupt"},
		{"hidden tail", record(append(bytes.Clone(compressed), "evil"...), 300, crc), fault.ErrUnsafe, "4 bytes follow"},
		{"hidden byte", record(append(bytes.Clone(compressed), 0), 300, crc), fault.ErrUnsafe, "1 bytes follow"},
	} {
		t.Run(c.what, func(t *testing.T) {
			a := mustRead(t, bytesSource(c.b))
			got, err := a.ReadAll(t.Context(), a.Records()[0], limit.New(1000))
			if c.class == nil {
				if err != nil || string(got) != text {
					t.Errorf("%q, %v", got, err)
				}
				return
			}
			var f *fault.Error
			if !errors.As(err, &f) || f.Class != c.class || f.Offset != 33 || !strings.Contains(f.Msg, c.msg) {
				t.Errorf("%v; want %v at 33: %s", err, c.class, c.msg)
			}
		})
	}
}

// Checksums that the writer never computed are zero in all records; one zero among others is a wrong checksum.
func TestChecksumsNotComputed(t *testing.T) {
	zero := func(e entry) entry { e.local, e.central = put32(14, 0), put32(16, 0); return e }
	a := mustRead(t, bytesSource(assemble(zero(plain("one", "first")), zero(plain("two", "second")))))
	if got, err := a.ReadAll(t.Context(), a.Records()[0], limit.New(10)); err != nil || string(got) != "first" {
		t.Errorf("%q, %v", got, err)
	}
	a = mustRead(t, bytesSource(assemble(zero(plain("one", "first")), plain("two", "second"))))
	if _, err := a.ReadAll(t.Context(), a.Records()[0], limit.New(10)); !errors.Is(err, fault.ErrFormat) {
		t.Errorf("one zero checksum among others: %v", err)
	}
}
