// Package ziparchive lists the records of a zip archive without reading them, and writes archives as PyTorch does.
//
// Listing is strict: what the directory says, what the header before each record says and how the records lie in the
// file must agree to the byte, so that no other reader of the same file can see other contents. Every irregularity is
// reported, not only the first. Of the records' own bytes none are read until they are asked for.
//
// It does not know what the records mean: pickles, storages and code are bytes here.
//
//	archive, problems, err := ziparchive.Read(ctx, src, ziparchive.Options{Meter: meter})
//	if err == nil && len(problems) == 0 {
//		rec, _ := archive.Lookup("model/data.pkl")
//		pickle, err := archive.ReadAll(ctx, rec, meter)
//	}
package ziparchive

import (
	"context"
	"fmt"
	"slices"

	"github.com/optimem/optimem/loader/internal/fault"
	"github.com/optimem/optimem/loader/internal/limit"
	"github.com/optimem/optimem/storage"
)

// A Record is one file in the archive.
type Record struct {
	// Name is the full name, the archive's top folder included.
	Name string
	// HeaderOffset is where the record's local header begins in the source.
	HeaderOffset int64
	// DataOffset is where its bytes begin.
	DataOffset int64
	// StoredBytes is what it takes in the source, Bytes what it holds; they differ only when it is compressed.
	StoredBytes, Bytes int64
	// CRC32 is the checksum of the contents that the archive declares.
	CRC32 uint32
	// Compressed is set unless the bytes are stored as they are.
	Compressed bool

	centralOffset   int64
	flags, method   uint16
	descriptorBytes uint8 // as found after the data, 0 until it was found
	suspect         bool  // the parallel pass saw something wrong with the local header
}

// A Problem is one irregularity. Offset of Err counts from the start of the archive.
type Problem struct {
	// Record is the name of the record concerned, "" for the archive itself.
	Record string
	Err    *fault.Error
}

// Options bound what listing may cost. The zero value sets no bound but maxRecords.
type Options struct {
	// Meter is charged for the list of records.
	Meter *limit.Meter
	// Records is the largest number of records; 0 means 200,000.
	Records int
}

const (
	maxRecords  = 200_000
	maxProblems = 100
	// recordBytes estimates what one record takes on the heap, its places in the order and in the map included, but
	// not its name.
	recordBytes = 144
	// maxNameBytes bounds names. The longest that PyTorch writes are module paths of TorchScript code.
	maxNameBytes = 4096
)

// An Archive is the list of records of a zip archive.
type Archive struct {
	src     storage.Source
	base    storage.Extent // where the archive lies in the outermost source
	records []Record
	byName  map[string]int // by folded name
	end     endRecord
	// unchecked: the writer computed no checksums (torch.serialization.set_crc32_options(False) writes zeros).
	unchecked bool
}

// Read lists the archive that src holds. Problems are everything irregular about it, at most 100 of them, ordered by
// place as far as possible; an archive with problems is not to be trusted. The error is for what makes listing
// impossible: failing reads, a directory that cannot be found or walked, exceeded limits.
func Read(ctx context.Context, src storage.Source, o Options) (*Archive, []Problem, error) {
	if o.Records <= 0 {
		o.Records = maxRecords
	}
	if o.Meter == nil {
		o.Meter = limit.New(1 << 62)
	}
	a := &Archive{src: src, base: storage.Extent{Source: src, Bytes: src.Size()}}
	if s, ok := src.(section); ok {
		a.base = s.extent
	}
	var rep reporter
	end, err := findEnd(ctx, src, &rep)
	if err != nil {
		return nil, rep.problems, err
	}
	a.end = end
	if end.records > int64(o.Records) {
		return nil, rep.problems, fault.New(fault.ErrLimit, end.offset,
			"the archive holds %d records, more than the %d allowed", end.records, o.Records)
	}
	if err := a.readDirectory(ctx, o.Meter, &rep); err != nil {
		return nil, rep.problems, err
	}
	if err := a.checkLayout(ctx, &rep); err != nil {
		return nil, rep.problems, err
	}
	return a, rep.problems, nil
}

// Records lists the records in the order of the directory; the names of folders end with a slash. The caller does not
// change the list.
func (a *Archive) Records() []Record { return a.records }

// Lookup returns the record with exactly the given name.
func (a *Archive) Lookup(name string) (Record, bool) {
	i, ok := a.byName[fold(name)]
	if !ok || a.records[i].Name != name {
		return Record{}, false
	}
	return a.records[i], true
}

// A reporter collects problems up to the number that anybody would read.
type reporter struct {
	problems []Problem
}

func (r *reporter) full() bool { return len(r.problems) >= maxProblems }

func (r *reporter) report(record string, class error, offset int64, format string, args ...any) {
	if r.full() {
		return
	}
	r.problems = append(r.problems, Problem{Record: record, Err: fault.New(class, offset, format, args...)})
}

// sortByPlace orders the problems by the place in the file that they name.
func (r *reporter) sortByPlace() {
	slices.SortStableFunc(r.problems, func(p, q Problem) int {
		switch {
		case p.Err.Offset < q.Err.Offset:
			return -1
		case p.Err.Offset > q.Err.Offset:
			return 1
		}
		return 0
	})
}

// readAt reads from the archive and places errors of the operating system.
func (a *Archive) readAt(ctx context.Context, p []byte, off int64) error {
	return readAt(ctx, a.src, p, off)
}

func readAt(ctx context.Context, src storage.Source, p []byte, off int64) error {
	if off < 0 || int64(len(p)) > src.Size()-off {
		return fault.New(fault.ErrFormat, off, "%d bytes are needed there, but the archive has %d", len(p), src.Size())
	}
	if err := src.ReadAt(ctx, p, off); err != nil {
		return fmt.Errorf("read %d bytes at %d: %w", len(p), off, err)
	}
	return nil
}
