package loader

import (
	"bytes"
	"io"
	"strings"

	"github.com/optimem/optimem/loader/internal/fault"
	"github.com/optimem/optimem/loader/internal/limit"
	"github.com/optimem/optimem/loader/internal/pickle"
	"github.com/optimem/optimem/loader/internal/ziparchive"
	"github.com/optimem/optimem/storage"
)

// openZip reads an archive and goes on by what its records say it is.
func (o *opener) openZip(ckpt *Checkpoint, src storage.Source) error {
	a, err := o.readArchive(src)
	if err != nil {
		return err
	}
	if o.opts.Verify {
		if err := o.verifyArchive(a); err != nil {
			return err
		}
	}
	top := topFolder(a)
	has := func(name string) bool {
		_, ok := a.Lookup(top + name)
		return ok
	}
	switch {
	case has("archive_format"), has("models/model.json"):
		ckpt.Format = FormatExported
		return o.openExported(ckpt, a, top)
	case has("serialized_exported_program.json"):
		ckpt.Format = FormatExportedOld
		return o.openExportedOld(ckpt, a, top)
	case has("constants.pkl"):
		ckpt.Format = FormatTorchScript
		return o.openTorchScript(ckpt, a, top)
	case has("data.pkl"):
		ckpt.Format = FormatTorchZip
		return o.openTorchZip(ckpt, a, top)
	case has("model.json"):
		return fault.New(fault.ErrUnsupported, -1,
			"a TorchScript archive of torch < 1.4: load and re-save it with a current PyTorch")
	case strings.HasPrefix(top, ".data/") || has(".data/extern_modules"):
		return fault.New(fault.ErrUnsupported, -1, "a torch.package archive: save the state dict instead")
	}
	for _, r := range a.Records() {
		if folder, name, _ := strings.Cut(r.Name, "/"); top == "" && name == "data.pkl" {
			return fault.New(fault.ErrFormat, -1,
				"%s lies in the folder %.100q, others do not: PyTorch has all records in one", r.Name, folder)
		}
		if strings.HasSuffix(r.Name, ".npy") {
			return fault.New(fault.ErrUnsupported, -1, "a NumPy .npz archive, not a checkpoint")
		}
	}
	return fault.New(fault.ErrUnsupported, -1, "a zip archive that PyTorch did not write: it has no data.pkl")
}

// readArchive lists the records of an archive and notes every irregularity.
func (o *opener) readArchive(src storage.Source) (*ziparchive.Archive, error) {
	a, problems, err := ziparchive.Read(o.ctx, src, ziparchive.Options{Meter: o.meter, Records: o.opts.Limits.Records})
	for _, p := range problems {
		if perr := o.problem(p.Record, p.Err); perr != nil {
			return nil, perr
		}
	}
	return a, err
}

// verifyArchive reads every record once and compares its checksum.
func (o *opener) verifyArchive(a *ziparchive.Archive) error {
	buf := make([]byte, 1<<20)
	for _, r := range a.Records() {
		content, err := a.Open(o.ctx, r)
		if err == nil {
			_, err = io.CopyBuffer(io.Discard, content, buf)
		}
		if err != nil {
			if err := o.problem(r.Name, err); err != nil {
				return err
			}
		}
	}
	return nil
}

// topFolder returns the folder, with its slash, that all records of a PyTorch archive lie under.
func topFolder(a *ziparchive.Archive) string {
	records := a.Records()
	if len(records) == 0 {
		return ""
	}
	top, _, found := strings.Cut(records[0].Name, "/")
	if !found {
		return ""
	}
	top += "/"
	for _, r := range a.Records() {
		if !strings.HasPrefix(r.Name, top) {
			return ""
		}
	}
	return top
}

// openTorchZip reads what torch.save wrote since 1.6: data.pkl and one stored record for each storage.
func (o *opener) openTorchZip(ckpt *Checkpoint, a *ziparchive.Archive, top string) error {
	z := o.newZipStorages(a, top+"data/")
	if err := z.readByteOrder(o, top); err != nil {
		return err
	}
	root, err := o.unpickle(a, top+"data.pkl", torchPolicy, z.persistent)
	if err != nil {
		return err
	}
	for _, r := range a.Records() {
		if strings.HasSuffix(r.Name, ".pkl") && r.Name != top+"data.pkl" {
			if err := o.problem(
				r.Name, fault.New(fault.ErrUnsafe, -1, "a pickle that no torch.save writes"),
			); err != nil {
				return err
			}
		}
	}
	return o.flatten(ckpt, root)
}

// unpickle reads one pickle of an archive: scanned first, then built, with nothing but data as the result.
func (o *opener) unpickle(
	a *ziparchive.Archive, record string, policy pickle.Policy, persistent func(any) (any, error),
) (any, error) {
	rec, ok := a.Lookup(record)
	if !ok {
		return nil, fault.New(fault.ErrFormat, -1, "no record %s", record)
	}
	data, err := a.ReadAll(o.ctx, rec, o.meter)
	if err != nil {
		return nil, errorAt(o.path, record, err)
	}
	report, err := o.scanPickle(record, bytes.NewReader(data), 0, rec.Bytes, policy)
	if err != nil {
		return nil, err
	}
	if report.End != rec.Bytes {
		err := fault.New(fault.ErrUnsafe, report.End, "%d bytes after the end of the pickle", rec.Bytes-report.End)
		if err := o.problem(record, err); err != nil {
			return nil, err
		}
	}
	v, err := o.loadPickle(record, report, persistent)
	o.meter.Release(rec.Bytes) // the values are copies
	return v, err
}

// zipStorages finds the records that persistent ids name.
type zipStorages struct {
	archive   *ziparchive.Archive
	meter     *limit.Meter
	folder    string
	byKey     map[string]*torchStorage
	bigEndian bool
}

func (o *opener) newZipStorages(a *ziparchive.Archive, folder string) *zipStorages {
	return &zipStorages{archive: a, meter: o.meter, folder: folder, byKey: make(map[string]*torchStorage)}
}

// readByteOrder reads the record that files written since torch 2.1 have.
func (z *zipStorages) readByteOrder(o *opener, top string) error {
	rec, ok := z.archive.Lookup(top + "byteorder")
	if !ok {
		return nil
	}
	text, err := z.archive.ReadAll(o.ctx, rec, o.meter)
	if err != nil {
		return errorAt(o.path, rec.Name, err)
	}
	switch string(text) {
	case "little":
	case "big":
		z.bigEndian = true
	default:
		return errorAt(o.path, rec.Name, fault.New(fault.ErrFormat, 0, "byte order %.20q", text))
	}
	return nil
}

// persistent returns the storage that a persistent id names. Nothing of it is read.
func (z *zipStorages) persistent(id any) (any, error) {
	s, view, err := parseStorageID(id)
	if err != nil {
		return nil, err
	}
	if view != nil {
		return nil, fault.New(fault.ErrFormat, -1, "storage %.40q: storage views belong to the legacy format", s.key)
	}
	if known, ok := z.byKey[s.key]; ok && known.dtype == s.dtype && known.bytes == s.bytes {
		return known, nil
	}
	rec, ok := z.archive.Lookup(z.folder + s.key)
	switch {
	case !ok:
		return nil, fault.New(fault.ErrFormat, -1, "storage %.40q has no record", s.key)
	case rec.Bytes != s.bytes:
		return nil, fault.New(fault.ErrFormat, -1, "storage %.40q is declared as %d bytes and its record has %d",
			s.key, s.bytes, rec.Bytes)
	}
	if s.extent, err = z.archive.Extent(rec); err != nil {
		return nil, err
	}
	if err := z.meter.Charge(storageBytes); err != nil {
		return nil, err
	}
	s.bigEndian = z.bigEndian
	z.byKey[s.key] = s
	return s, nil
}
