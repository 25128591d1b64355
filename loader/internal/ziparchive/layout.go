package ziparchive

import (
	"bytes"
	"context"
	"math"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/optimem/optimem/loader/internal/fault"
)

const (
	// readers is how many local headers are read at a time: a cold disk or a network answers several requests in
	// the time of one.
	readers = 8
	// readersBatch is how many headers one reader takes at a time.
	readersBatch = 64
	// extraWindowBytes is how much of a local header's extra fields is looked at. PyTorch's alignment padding may be
	// longer; nothing else may.
	extraWindowBytes = 8 << 10
	headerBytes      = localHeaderBytes + maxNameBytes + extraWindowBytes + descriptorBytes64
)

// checkLayout compares every local header with the directory and demands that the records, their headers and their
// data descriptors fill the file from its first byte to the directory without a gap or an overlap.
//
// Each local header is read by one request that begins at the previous record's data descriptor and ends where, by the
// directory, the record's data must begin, so no data is read and the requests are independent of each other. They run
// a few at a time and only mark what is suspect; the marked ones are then looked at again in order, to report.
func (a *Archive) checkLayout(ctx context.Context, rep *reporter) error {
	order := make([]int32, 0, len(a.records))
	for i, r := range a.records {
		if !r.suspect {
			order = append(order, int32(i))
		}
	}
	slices.SortFunc(order, func(i, j int32) int {
		p, q := &a.records[i], &a.records[j]
		if p.HeaderOffset != q.HeaderOffset {
			return compareInt64(p.HeaderOffset, q.HeaderOffset)
		}
		return compareInt64(p.centralOffset, q.centralOffset)
	})
	l := &layout{a: a, order: order}
	if err := l.readHeaders(ctx); err != nil {
		return err
	}
	before := len(rep.problems)
	buf := make([]byte, headerBytes)
	for i, k := range order {
		if rep.full() {
			break
		}
		if r := &a.records[k]; r.suspect {
			err := l.checkHeader(ctx, i, buf, func(class error, offset int64, format string, args ...any) {
				rep.report(r.Name, class, offset, format, args...)
			})
			if err != nil {
				return err
			}
		}
	}
	// A record that could not be placed leaves a hole that is no news.
	if len(rep.problems) == before && len(order) == len(a.records) {
		if err := l.checkGaps(ctx, rep); err != nil {
			return err
		}
	} else if len(order) > 0 {
		l.checkOverlaps(rep)
	}
	rep.sortByPlace()
	return nil
}

func compareInt64(a, b int64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// A layout is the records in the order of their headers in the file.
type layout struct {
	a     *Archive
	order []int32
}

func (l *layout) record(i int) *Record { return &l.a.records[l.order[i]] }

// next returns where what follows record i begins: the next header or the directory.
func (l *layout) next(i int) int64 {
	if i+1 < len(l.order) {
		return l.record(i + 1).HeaderOffset
	}
	return l.a.end.directoryOffset
}

// readHeaders runs checkHeader over all records, a few at a time, and marks the suspect ones.
func (l *layout) readHeaders(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	var taken atomic.Int64
	batch := min(readersBatch, (len(l.order)+readers)/readers)
	for range min(readers, len(l.order)) {
		g.Go(func() error {
			buf := make([]byte, headerBytes)
			for {
				first := int(taken.Add(int64(batch))) - batch
				if first >= len(l.order) {
					return nil
				}
				for i := first; i < min(first+batch, len(l.order)); i++ {
					r := l.record(i)
					err := l.checkHeader(ctx, i, buf, func(error, int64, string, ...any) { r.suspect = true })
					if err != nil {
						return err
					}
				}
			}
		})
	}
	return g.Wait()
}

// expectedDescriptorBytes is the length of the data descriptor as PyTorch, Go and Python write it: wide when a size or
// the header's place needs it.
func (r *Record) expectedDescriptorBytes() int64 {
	switch {
	case r.flags&flagDescriptor == 0:
		return 0
	case r.StoredBytes >= math.MaxUint32 || r.Bytes >= math.MaxUint32 || r.HeaderOffset >= math.MaxUint32:
		return descriptorBytes64
	}
	return descriptorBytes32
}

// checkHeader reads the local header of record i, sets where its data begins, and looks for the data descriptor of the
// record before it.
func (l *layout) checkHeader(
	ctx context.Context, i int, buf []byte, report func(class error, offset int64, format string, args ...any),
) error {
	r := l.record(i)
	start, back := r.HeaderOffset, int64(0)
	if i > 0 {
		prev := l.record(i - 1)
		room := start - prev.HeaderOffset - localHeaderBytes - int64(len(prev.Name)) - prev.StoredBytes
		back = max(0, min(prev.expectedDescriptorBytes(), room))
	}
	fixed := localHeaderBytes + int64(len(r.Name))
	end := l.next(i) - r.StoredBytes - r.expectedDescriptorBytes()
	end = min(max(end, start+fixed), start+fixed+extraWindowBytes)
	b := buf[:back+end-start]
	if err := l.a.readAt(ctx, b, start-back); err != nil {
		return err
	}
	if back > 0 {
		prev := l.record(i - 1)
		prev.descriptorBytes = uint8(prev.matchDescriptor(b[:back]))
	}
	b = b[back:]
	if le.Uint32(b) != localSignature {
		report(fault.ErrFormat, start, "there is no local header, though the directory says so")
		return nil
	}
	if n := int(le.Uint16(b[26:])); n != len(r.Name) || string(b[localHeaderBytes:fixed]) != r.Name {
		report(fault.ErrUnsafe, start+26, "the local header gives another name than the directory")
		return nil
	}
	extraBytes := int64(le.Uint16(b[28:]))
	r.DataOffset = start + fixed + extraBytes
	if flags := le.Uint16(b[6:]); flags != r.flags {
		report(fault.ErrUnsafe, start+6, "flags %#04x in the local header, %#04x in the directory", flags, r.flags)
	}
	if method := le.Uint16(b[8:]); method != r.method {
		report(fault.ErrUnsafe, start+8, "method %d in the local header, %d in the directory", method, r.method)
	}
	if v := b[4]; v > maxVersion {
		report(fault.ErrUnsupported, start+4, "the record needs version %d.%d of the zip format", v/10, v%10)
	}
	if crc := le.Uint32(b[14:]); crc != r.CRC32 && !(crc == 0 && r.flags&flagDescriptor != 0) {
		report(fault.ErrUnsafe, start+14, "CRC-32 %08x in the local header, %08x in the directory", crc, r.CRC32)
	}
	stored, size := int64(le.Uint32(b[18:])), int64(le.Uint32(b[22:]))
	extra := b[fixed:]
	if int64(len(extra)) < min(extraBytes, extraWindowBytes) {
		// The descriptor is shorter than expected, or the records do not lie as the directory says.
		if extraBytes > l.a.end.directoryOffset-start-fixed {
			report(fault.ErrFormat, start+28, "%d bytes of extra fields reach into the directory", extraBytes)
			return nil
		}
		extra = buf[:min(extraBytes, extraWindowBytes)]
		if err := l.a.readAt(ctx, extra, start+fixed); err != nil {
			return err
		}
	}
	var zip64 []byte
	if class, why := walkExtra(extra[:min(int64(len(extra)), extraBytes)], int(extraBytes),
		func(id uint16, body []byte) {
			if id == extraZip64 {
				zip64 = body
			}
		}); class != nil {
		report(class, start+fixed, "%s", why)
		return nil
	}
	r.checkLocalSizes(stored, size, zip64, start+fixed, report)
	return nil
}

// checkLocalSizes compares the sizes in the local header with the directory's. Where a data descriptor follows they may
// be zero. A zip64 field may repeat what the directory says and nothing else: beyond 4 GiB PyTorch puts the size, a
// zero and the header's place there, though the header does not ask for them.
func (r *Record) checkLocalSizes(
	stored, size int64, zip64 []byte, at int64, report func(class error, offset int64, format string, args ...any),
) {
	streamed := r.flags&flagDescriptor != 0
	for _, f := range []struct {
		what       string
		local, dir int64
	}{{"size", size, r.Bytes}, {"stored size", stored, r.StoredBytes}} {
		if f.local == math.MaxUint32 && len(zip64) >= 8 {
			f.local = int64(min(le.Uint64(zip64), math.MaxInt64))
			zip64 = zip64[8:]
		}
		if f.local != f.dir && (f.local != 0 || !streamed) {
			report(fault.ErrUnsafe, r.HeaderOffset+18, "%s %d in the local header, %d in the directory",
				f.what, f.local, f.dir)
		}
	}
	for ; len(zip64) >= 8; zip64 = zip64[8:] {
		switch v := le.Uint64(zip64); v {
		case 0, uint64(r.Bytes), uint64(r.StoredBytes), uint64(r.HeaderOffset):
		default:
			report(fault.ErrUnsafe, at, "a zip64 value of %d in the local header that the directory does not have", v)
		}
	}
	if len(bytes.Trim(zip64, "\x00")) > 0 {
		report(fault.ErrUnsafe, at, "a zip64 field of odd size in the local header")
	}
}

// matchDescriptor returns how many of the bytes of b are r's data descriptor, from its start on; 0 when none is. It
// knows the four forms: 32 or 64 bits, with or without signature.
func (r *Record) matchDescriptor(b []byte) int {
	n := 0
	if len(b) >= 4 && le.Uint32(b) == descriptorSignature {
		n = 4
	}
	for ; n >= 0; n -= 4 {
		f := b[n:]
		if len(f) < 12 || le.Uint32(f) != r.CRC32 {
			continue
		}
		if len(f) >= 20 && le.Uint64(f[4:]) == uint64(r.StoredBytes) && le.Uint64(f[12:]) == uint64(r.Bytes) {
			return n + 20
		}
		if le.Uint32(f[4:]) == uint32(r.StoredBytes) && le.Uint32(f[8:]) == uint32(r.Bytes) &&
			max(r.StoredBytes, r.Bytes) <= math.MaxUint32 {
			return n + 12
		}
	}
	return 0
}

// checkGaps demands that each record begins where the one before it ends. It runs when all headers are sound.
func (l *layout) checkGaps(ctx context.Context, rep *reporter) error {
	end := int64(0)
	for i := range l.order {
		r := l.record(i)
		if r.HeaderOffset > 0 && i == 0 {
			rep.report("", fault.ErrUnsafe, 0, "%d bytes precede the first record", r.HeaderOffset)
		} else if r.HeaderOffset > end {
			if err := l.explainGap(ctx, end, r.HeaderOffset, rep); err != nil {
				return err
			}
		}
		end = r.DataOffset + r.StoredBytes
		next := l.next(i)
		if r.flags&flagDescriptor != 0 && end <= next {
			n, err := l.descriptor(ctx, r, end, next)
			if err != nil {
				return err
			}
			if n == 0 {
				l.reportDescriptor(r, end, next, rep)
				n = min(r.expectedDescriptorBytes(), next-end)
			}
			end += n
		}
		if end > next {
			l.reportOverlap(i, end, rep)
			end = next
		}
		if rep.full() {
			return nil
		}
	}
	if gap := l.a.end.directoryOffset - end; gap > 0 && len(l.order) > 0 {
		return l.explainGap(ctx, end, l.a.end.directoryOffset, rep)
	} else if gap > 0 {
		rep.report("", fault.ErrUnsafe, 0, "%d bytes precede an empty directory", gap)
	}
	return nil
}

// descriptor returns the length of r's data descriptor at byte end, 0 when there is none before next.
func (l *layout) descriptor(ctx context.Context, r *Record, end, next int64) (int64, error) {
	if r.descriptorBytes != 0 && int64(r.descriptorBytes) == next-end {
		return next - end, nil
	}
	b := make([]byte, min(descriptorBytes64, next-end))
	if len(b) == 0 {
		return 0, nil
	}
	if err := l.a.readAt(ctx, b, end); err != nil {
		return 0, err
	}
	return int64(r.matchDescriptor(b)), nil
}

func (l *layout) reportDescriptor(r *Record, end, next int64, rep *reporter) {
	if next-end < 12 {
		rep.report(r.Name, fault.ErrFormat, end, "the data descriptor is missing")
		return
	}
	rep.report(r.Name, fault.ErrUnsafe, end, "the data descriptor disagrees with the directory")
}

// explainGap reports the bytes from end to next, which no record claims.
func (l *layout) explainGap(ctx context.Context, end, next int64, rep *reporter) error {
	b := make([]byte, min(4, next-end))
	if err := l.a.readAt(ctx, b, end); err != nil {
		return err
	}
	if len(b) == 4 && le.Uint32(b) == localSignature {
		rep.report("", fault.ErrUnsafe, end, "a record that the directory does not list, in %d bytes", next-end)
		return nil
	}
	rep.report("", fault.ErrFormat, end, "%d bytes belong to no record", next-end)
	return nil
}

// checkOverlaps reports overlaps only; it runs when headers are unsound, where gaps are no news.
func (l *layout) checkOverlaps(rep *reporter) {
	for i := range l.order {
		r := l.record(i)
		end := max(r.DataOffset, r.HeaderOffset+localHeaderBytes+int64(len(r.Name))) + r.StoredBytes
		if end > l.next(i) {
			l.reportOverlap(i, end, rep)
		}
	}
}

// reportOverlap reports that record i, which ends at byte end, does not end before what follows it.
func (l *layout) reportOverlap(i int, end int64, rep *reporter) {
	r := l.record(i)
	if i+1 == len(l.order) {
		rep.report(r.Name, fault.ErrFormat, r.HeaderOffset, "the record ends at byte %d, within the directory at %d",
			end, l.next(i))
		return
	}
	rep.report(r.Name, fault.ErrUnsafe, r.HeaderOffset, "the record ends at byte %d and overlaps %.100q at %d",
		end, l.record(i+1).Name, l.next(i))
}
