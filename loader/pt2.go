package loader

import (
	"bytes"
	"errors"
	"slices"
	"strings"

	"github.com/optimem/optimem/loader/exported"
	"github.com/optimem/optimem/loader/internal/fault"
	"github.com/optimem/optimem/loader/internal/ziparchive"
	"github.com/optimem/optimem/tensor"
)

// openExported reads what torch.export.save has written since 2.8: programs as JSON, and for each the lists of its
// weights and constants, whose bytes are records of their own.
func (o *opener) openExported(ckpt *Checkpoint, a *ziparchive.Archive, top string) error {
	for _, marker := range []struct{ record, want string }{{"archive_format", "pt2"}, {"archive_version", "0"}} {
		if err := o.checkMarker(a, top+marker.record, marker.want); err != nil {
			return err
		}
	}
	x := &exportedReader{o: o, ckpt: ckpt, archive: a, top: top}
	order := zipStorages{archive: a}
	if err := order.readByteOrder(o, top); err != nil {
		return err
	}
	x.bigEndian = order.bigEndian

	models := modelNames(a, top)
	if len(models) == 0 {
		return fault.New(fault.ErrUnsupported, -1, "a torch.export archive without a program (only compiled code?)")
	}
	var programs []*exported.Program
	for _, model := range models {
		prefix := ""
		if len(models) > 1 {
			prefix = model
		}
		p, err := x.model(model, prefix)
		if err != nil {
			return err
		}
		programs = append(programs, p)
	}
	first := max(0, slices.Index(models, "model"))
	p := programs[first]
	p.Others = slices.Delete(programs, first, first+1)
	ckpt.Program = &Program{Exported: p}
	return o.scanIgnored(a, top)
}

// checkMarker compares a short record, which may be absent, with what it must hold.
func (o *opener) checkMarker(a *ziparchive.Archive, record, want string) error {
	rec, ok := a.Lookup(record)
	if !ok {
		return nil
	}
	text, err := a.ReadAll(o.ctx, rec, o.meter)
	if err == nil && strings.TrimSpace(string(text)) != want {
		err = fault.New(fault.ErrUnsupported, 0, "%.20q where only %q is known", text, want)
	}
	return errorAt(o.path, record, err)
}

// modelNames returns the names of the archive's programs, in its order.
func modelNames(a *ziparchive.Archive, top string) []string {
	var names []string
	for _, r := range a.Records() {
		name, ok := strings.CutPrefix(r.Name, top+"models/")
		if !ok || strings.Contains(name, "/") {
			continue
		}
		if name, ok = strings.CutSuffix(name, ".json"); ok {
			names = append(names, name)
		}
	}
	return names
}

// An exportedReader reads the models of one archive.
type exportedReader struct {
	o         *opener
	ckpt      *Checkpoint
	archive   *ziparchive.Archive
	top       string
	bigEndian bool
}

// model reads a program and its weights and constants, whose names begin with prefix where an archive has several.
func (x *exportedReader) model(model, prefix string) (*exported.Program, error) {
	p, err := x.o.readProgram(x.archive, x.top+"models/"+model+".json")
	if err != nil {
		return nil, err
	}
	p.Name = model
	for _, kind := range []string{"weights", "constants"} {
		folder := x.top + "data/" + kind + "/"
		if rec, ok := x.archive.Lookup(folder + model + ".pt"); ok { // nightly builds before 2.8
			if err := x.o.readNested(x.ckpt, x.archive, rec, prefix); err != nil {
				return nil, err
			}
			continue
		}
		if err := x.payloads(folder, folder+model+"_"+kind+"_config.json", prefix); err != nil {
			return nil, err
		}
	}
	return p, x.ckpt.checkProgram(p, prefix)
}

// readProgram reads the JSON of a program.
func (o *opener) readProgram(a *ziparchive.Archive, record string) (*exported.Program, error) {
	rec, ok := a.Lookup(record)
	if !ok {
		return nil, fault.New(fault.ErrFormat, -1, "no record %s", record)
	}
	r, err := a.Open(o.ctx, rec)
	if err != nil {
		return nil, errorAt(o.path, record, err)
	}
	p, err := exported.Decode(r, o.exportedOptions())
	if err == nil {
		return p, nil
	}
	if class := Class(err); class == ErrFormat || class == ErrUnsupported {
		if r, rerr := a.Open(o.ctx, rec); rerr == nil {
			if _, verr := exported.DecodeVersion(r, o.exportedOptions()); errors.Is(verr, ErrUnsupported) {
				err = verr
			}
		}
	}
	return nil, errorAt(o.path, record, err)
}

func (o *opener) exportedOptions() exported.Options {
	return exported.Options{Meter: o.meter, Depth: o.opts.Limits.Depth}
}

// payloads lists the tensors of a configuration.
func (x *exportedReader) payloads(folder, config, prefix string) error {
	rec, ok := x.archive.Lookup(config)
	if !ok {
		return fault.New(fault.ErrFormat, -1, "no record %s", config)
	}
	r, err := x.archive.Open(x.o.ctx, rec)
	if err != nil {
		return errorAt(x.o.path, config, err)
	}
	list, err := exported.DecodePayloads(r, x.o.exportedOptions())
	if err != nil {
		return errorAt(x.o.path, config, err)
	}
	x.ckpt.grow(len(list))
	for _, p := range list {
		rec, ok := x.archive.Lookup(folder + p.Path)
		if !ok {
			return errorAt(
				x.o.path, config, fault.New(fault.ErrFormat, -1, "%.100q has no record %.100q", p.Name, p.Path),
			)
		}
		switch {
		case p.Pickled && p.Meta == nil:
			err = x.o.scanObject(x.archive, rec) // an object that is no tensor
		case p.Pickled:
			err = x.o.readNested(x.ckpt, x.archive, rec, join(prefix, p.Name))
		default:
			err = x.raw(rec, p, join(prefix, p.Name))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// raw adds a tensor whose storage is a record.
func (x *exportedReader) raw(rec ziparchive.Record, p exported.Payload, name string) error {
	if why := unreadableMeta(p.Meta); why != nil {
		x.ckpt.Unreadable = append(x.ckpt.Unreadable, &Error{Path: x.o.path, Record: name, Offset: -1, Err: why})
		return nil
	}
	if err := x.o.meter.Charge(weightBytes + int64(len(name))); err != nil {
		return err
	}
	w := tensor.Weight{Name: x.ckpt.uniqueName(name), DType: p.Meta.DType, BigEndian: x.bigEndian}
	var err error
	if w.Layout, err = constantLayout(p.Meta); err != nil {
		return errorAt(x.o.path, name, err)
	}
	if w.Extent, err = x.archive.Extent(rec); err != nil {
		return errorAt(x.o.path, rec.Name, err)
	}
	if w.Extent.Bytes%int64(w.DType.Size()) != 0 {
		return errorAt(x.o.path, rec.Name, fault.New(fault.ErrFormat, -1,
			"%d bytes are no whole number of %v elements", w.Extent.Bytes, w.DType))
	}
	if err := x.ckpt.addWeight(w); err != nil {
		return errorAt(x.o.path, rec.Name, fault.New(fault.ErrFormat, -1, "%.100q: %v", name, err))
	}
	return nil
}

// unreadableMeta says why a tensor cannot be represented, nil if it can.
func unreadableMeta(m *exported.TensorMeta) error {
	switch {
	case m.DType == tensor.Invalid:
		return fault.New(fault.ErrUnsupported, -1, "the dtype number %d", m.ScalarType)
	case m.Layout != exported.Strided:
		return fault.New(fault.ErrUnsupported, -1, "the layout %v", m.Layout)
	}
	return nil
}

// constantLayout returns the layout of a tensor, which must not depend on symbols.
func constantLayout(m *exported.TensorMeta) (tensor.Layout, error) {
	var l tensor.Layout
	number := func(s exported.SymInt) (int, error) {
		n := int(s.Int)
		if s.Expr != nil || n < 0 || int64(n) != s.Int {
			return 0, fault.New(fault.ErrFormat, -1, "the size %v of a stored tensor", s)
		}
		return n, nil
	}
	l.Shape = make(tensor.Shape, len(m.Sizes))
	l.Strides = make([]int, len(m.Strides))
	var err error
	for i, s := range m.Sizes {
		if l.Shape[i], err = number(s); err != nil {
			return l, err
		}
	}
	for i, s := range m.Strides {
		if l.Strides[i], err = number(s); err != nil {
			return l, err
		}
	}
	l.Offset, err = number(m.StorageOffset)
	return l, err
}

// checkProgram checks that the checkpoint holds, in the right dtypes and shapes, what the program reads.
func (c *Checkpoint) checkProgram(p *exported.Program, prefix string) error {
	unreadable := make(map[string]bool)
	for _, e := range c.Unreadable {
		unreadable[e.Record] = true
	}
	for _, in := range p.Signature.Inputs {
		switch in.Kind {
		case exported.Parameter, exported.Buffer, exported.TensorConstant:
		default:
			continue
		}
		name := join(prefix, in.Target)
		w, ok := c.Weight(name)
		if !ok {
			if unreadable[name] {
				continue
			}
			return fault.New(fault.ErrFormat, -1, "the program reads %.100q, which the file does not hold", name)
		}
		m := p.Graph.TensorValues[in.Arg.Name]
		if m.DType != w.DType || !sameShape(m.Sizes, w.Layout.Shape) {
			return fault.New(fault.ErrFormat, -1, "the program reads %.100q as %v %v, the file holds %v %v",
				name, m.DType, m.Sizes, w.DType, w.Layout.Shape)
		}
	}
	return nil
}

func sameShape(sizes []exported.SymInt, shape tensor.Shape) bool {
	return slices.EqualFunc(sizes, shape, func(s exported.SymInt, d int) bool {
		return s.Expr != nil || s.Int == int64(d)
	})
}

// openExportedOld reads what torch.export.save wrote before 2.8: the program, and one torch.save file each for
// weights and constants.
func (o *opener) openExportedOld(ckpt *Checkpoint, a *ziparchive.Archive, top string) error {
	p, err := o.readProgram(a, top+"serialized_exported_program.json")
	if err != nil {
		return err
	}
	p.Name = "model"
	for _, part := range []string{"serialized_state_dict", "serialized_constants", "serialized_example_inputs"} {
		rec, ok := a.Lookup(top + part + ".pt")
		if !ok {
			rec, ok = a.Lookup(top + part + ".json") // 2.1 called them so, with the same contents
		}
		if !ok || rec.Bytes == 0 {
			continue
		}
		if part == "serialized_example_inputs" {
			err = o.scanObject(a, rec)
		} else {
			err = o.readNested(ckpt, a, rec, "")
		}
		if err != nil {
			return err
		}
	}
	ckpt.dicts = nil // weights and constants together are the model's
	ckpt.Program = &Program{Exported: p}
	return ckpt.checkProgram(p, "")
}

// readNested lists what a torch.save file that is a stored record holds, under the given path.
func (o *opener) readNested(ckpt *Checkpoint, a *ziparchive.Archive, rec ziparchive.Record, path string) error {
	return o.within(rec.Name, func(o *opener) error {
		root, err := o.unpickleNested(a, rec)
		if err != nil {
			return err
		}
		f := &flattener{o: o, ckpt: ckpt, inside: make(map[any]bool)}
		return f.walk(path, root, 0)
	})
}

// unpickleNested builds the value of a torch.save file that is a stored record.
func (o *opener) unpickleNested(a *ziparchive.Archive, rec ziparchive.Record) (any, error) {
	src, err := a.Section(rec)
	if err != nil {
		return nil, err
	}
	inner, err := o.readArchive(src)
	if err != nil {
		return nil, err
	}
	top := topFolder(inner)
	z := o.newZipStorages(inner, top+"data/")
	if err := z.readByteOrder(o, top); err != nil {
		return nil, err
	}
	return o.unpickle(inner, top+"data.pkl", torchPolicy, z.persistent)
}

// scanObject scans the pickle of a record that is not read here but that PyTorch would load: a torch.save file or a
// bare pickle.
func (o *opener) scanObject(a *ziparchive.Archive, rec ziparchive.Record) error {
	return o.within(rec.Name, func(o *opener) error {
		src, err := a.Section(rec)
		if err != nil {
			return err
		}
		head := make([]byte, min(src.Size(), 2))
		if err := src.ReadAt(o.ctx, head, 0); err != nil {
			return err
		}
		if string(head) != "PK" {
			return o.scanRecord(a, rec, "")
		}
		inner, err := o.readArchive(src)
		if err != nil {
			return err
		}
		for _, r := range inner.Records() {
			if strings.HasSuffix(r.Name, ".pkl") {
				if err := o.scanRecord(inner, r, r.Name); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// scanRecord scans a record that is a pickle.
func (o *opener) scanRecord(a *ziparchive.Archive, rec ziparchive.Record, name string) error {
	data, err := a.ReadAll(o.ctx, rec, o.meter)
	if err == nil {
		_, err = o.scanPickle(name, bytes.NewReader(data), 0, rec.Bytes, torchPolicy)
	}
	return errorAt(o.path, name, err)
}

// scanIgnored scans the pickles of the archive that are of no use here but that PyTorch would load.
func (o *opener) scanIgnored(a *ziparchive.Archive, top string) error {
	for _, r := range a.Records() {
		if strings.HasPrefix(r.Name, top+"data/sample_inputs/") && r.Bytes > 0 {
			if err := o.scanObject(a, r); err != nil {
				return err
			}
		}
	}
	return nil
}

// within runs fn for an archive that is a record of this one: the names of its records follow the record's own.
func (o *opener) within(record string, fn func(inner *opener) error) error {
	inner := *o
	inner.findings = &findings{keepGoing: o.findings.keepGoing}
	err := errorAt(o.path, "", fn(&inner))
	moved := make(map[*Error]bool)
	move := func(e *Error) {
		if moved[e] {
			return
		}
		moved[e] = true
		if e.Record = strings.TrimSuffix(record+"/"+e.Record, "/"); e.Path == "" {
			e.Path = o.path
		}
	}
	for _, p := range inner.findings.problems {
		move(p)
		if perr := o.findings.problem(p); perr != nil && err == nil {
			err = perr
		}
	}
	o.findings.adopt(inner.findings, record)
	var placed *Error
	if errors.As(err, &placed) {
		move(placed)
	}
	return err
}

// adopt adds what the pickles of a nested archive refer to.
func (f *findings) adopt(inner *findings, record string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, g := range inner.globals {
		g.Record = strings.TrimSuffix(record+"/"+g.Record, "/")
		f.globals = append(f.globals, g)
	}
	for class := range inner.classes {
		if f.classes == nil {
			f.classes = make(map[string]bool)
		}
		f.classes[class] = true
	}
}
