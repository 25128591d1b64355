package loader

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/optimem/optimem/loader/internal/fault"
	"github.com/optimem/optimem/loader/internal/pickle"
	"github.com/optimem/optimem/loader/internal/ziparchive"
	"github.com/optimem/optimem/loader/script"
)

// openTorchScript reads what torch.jit.save writes: the code, the object tree of data.pkl, the table of constants.pkl,
// and the shapes of traced_inputs.pkl where a traced module has one. Attributes' tensors become weights under the path
// of the attribute, tensors of the table under "CONSTANTS.c0", "CONSTANTS.c1", ….
func (o *opener) openTorchScript(ckpt *Checkpoint, a *ziparchive.Archive, top string) error {
	s := &scriptArchive{o: o, ckpt: ckpt, archive: a, top: top}
	if err := s.checkRecords(); err != nil {
		return err
	}
	if err := s.parseCode(); err != nil {
		return err
	}
	if err := s.readRoot(); err != nil {
		return err
	}
	if err := s.readConstants(); err != nil {
		return err
	}
	if err := s.readTraced(); err != nil {
		return err
	}
	ckpt.Program = &Program{Script: s.program}
	return nil
}

// A scriptArchive is a TorchScript archive while it is read.
type scriptArchive struct {
	o         *opener
	ckpt      *Checkpoint
	archive   *ziparchive.Archive
	top       string
	bigEndian bool
	program   *script.Program
}

// checkRecords checks the names of the records and the version, and scans the pickles that are not built here.
func (s *scriptArchive) checkRecords() error {
	for _, rec := range s.archive.Records() {
		name := strings.TrimPrefix(rec.Name, s.top)
		var err error
		switch {
		case strings.HasPrefix(name, "extra/"): // the user's own files
		case strings.HasPrefix(name, "code/"):
			if !strings.HasSuffix(name, ".py") && !strings.HasSuffix(name, ".debug_pkl") {
				err = fault.New(fault.ErrFormat, -1, "neither code nor debug information")
			}
		case name == "version":
			err = s.checkVersion(rec)
		case name == "data.pkl", name == "constants.pkl", name == "traced_inputs.pkl":
		case strings.HasSuffix(name, ".pkl"):
			_, err = s.scan(rec)
		}
		if err == nil {
			continue
		}
		if err := s.o.problem(rec.Name, err); err != nil {
			return err
		}
	}
	return nil
}

func (s *scriptArchive) checkVersion(rec ziparchive.Record) error {
	const maxBytes = 20
	if rec.Bytes > maxBytes {
		return fault.New(fault.ErrFormat, 0, "version of %d bytes", rec.Bytes)
	}
	text, err := s.archive.ReadAll(s.o.ctx, rec, s.o.meter)
	if err != nil {
		return err
	}
	if _, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 31); err != nil {
		return fault.New(fault.ErrFormat, 0, "version %q is not a number", text)
	}
	return nil
}

// parseCode parses the files under code/.
func (s *scriptArchive) parseCode() error {
	current := s.top + "code/"
	var readErr error
	files := func(yield func(name, src string) bool) {
		for _, rec := range s.archive.Records() {
			name, ok := strings.CutPrefix(rec.Name, s.top+"code/")
			if !ok || !strings.HasSuffix(name, ".py") {
				continue
			}
			current = rec.Name
			text, err := s.archive.ReadAll(s.o.ctx, rec, s.o.meter)
			if err == nil {
				err = s.o.meter.Charge(rec.Bytes) // for the copy as a string
			}
			if err != nil {
				readErr = err
				return
			}
			if !yield(name, string(text)) {
				return
			}
		}
	}
	program, err := script.Parse(files, script.Options{Meter: s.o.meter, Depth: s.o.opts.Limits.Depth})
	if readErr != nil {
		err = readErr
	}
	if err != nil {
		return errorAt(s.o.path, current, err)
	}
	s.program = program
	return nil
}

// scriptPolicy says what each global of a TorchScript pickle is. Classes of the program are data: their objects hold
// attributes, and what is called is code that the archive holds as text.
func scriptPolicy(g pickle.Global) pickle.Class {
	switch {
	case isScriptClass(g), isTorchData(g), pickle.IsPythonData(g):
		return pickle.Data
	}
	return pickle.Refused
}

func isScriptClass(g pickle.Global) bool {
	return g.Module == "__torch__" || strings.HasPrefix(g.Module, "__torch__.")
}

// scan reads and scans a pickle.
func (s *scriptArchive) scan(rec ziparchive.Record) (*pickle.Report, error) {
	data, err := s.archive.ReadAll(s.o.ctx, rec, s.o.meter)
	if err != nil {
		return nil, errorAt(s.o.path, rec.Name, err)
	}
	report, err := s.o.scanWith(rec.Name, bytes.NewReader(data), 0, rec.Bytes,
		pickle.Options{Policy: scriptPolicy, BareArgument: true})
	if err != nil {
		return nil, err
	}
	if report.End != rec.Bytes {
		return nil, fault.New(fault.ErrUnsafe, report.End, "%d bytes after the end of the pickle", rec.Bytes-report.End)
	}
	return report, nil
}

// load builds the value of the pickle name.pkl, whose storages persistent finds.
func (s *scriptArchive) load(name string, persistent func(any) (any, error)) (any, error) {
	record := s.top + name
	rec, ok := s.archive.Lookup(record)
	if !ok {
		return nil, fault.New(fault.ErrFormat, -1, "no record %s", record)
	}
	report, err := s.scan(rec)
	if err != nil {
		return nil, errorAt(s.o.path, record, err)
	}
	v, err := report.Load(pickle.Hooks{Persistent: persistent, Reduce: s.reduce, Build: buildScript})
	return v, errorAt(s.o.path, record, err)
}

// A scriptObject is an object of one of the program's classes, or a member of an Enum.
type scriptObject struct {
	class string
	args  []any
	state any
	built bool
}

func (s *scriptArchive) reduce(g pickle.Global, args []any) (any, error) {
	if !isScriptClass(g) {
		return s.o.rebuild(g, args)
	}
	const objectBytes = 160
	if err := s.o.meter.Charge(objectBytes); err != nil {
		return nil, err
	}
	if len(args) > 1 {
		return nil, badArgs(g, "%d arguments", len(args))
	}
	return &scriptObject{class: g.String(), args: slices.Clone(args)}, nil
}

func buildScript(value, state any) error {
	obj, ok := value.(*scriptObject)
	switch {
	case !ok:
		return buildState(value, state)
	case obj.built || len(obj.args) > 0:
		return fault.New(fault.ErrFormat, -1, "%s: a second state", obj.class)
	}
	obj.state, obj.built = state, true
	return nil
}

func (s *scriptArchive) storages(folder string) *zipStorages {
	z := s.o.newZipStorages(s.archive, s.top+folder)
	z.bigEndian = s.bigEndian
	return z
}

// readRoot reads data.pkl, the module that was saved.
func (s *scriptArchive) readRoot() error {
	z := s.storages("data/")
	if err := z.readByteOrder(s.o, s.top); err != nil {
		return err
	}
	s.bigEndian = z.bigEndian
	v, err := s.load("data.pkl", z.persistent)
	if err != nil {
		return err
	}
	root, err := s.tree().value("", v, 0)
	if err != nil {
		return errorAt(s.o.path, s.top+"data.pkl", err)
	}
	obj, ok := root.(*script.Object)
	if !ok || s.program.Classes[obj.Class] == nil || s.program.Classes[obj.Class].Kind != script.ModuleClass {
		return errorAt(s.o.path, s.top+"data.pkl", fault.New(fault.ErrFormat, -1, "the root is not a module"))
	}
	s.program.Root = obj
	return nil
}

// readConstants reads constants.pkl, the table that code refers to.
func (s *scriptArchive) readConstants() error {
	v, err := s.load("constants.pkl", s.storages("constants/").persistent)
	if err != nil {
		return err
	}
	record := s.top + "constants.pkl"
	items, ok := pickle.Tuple(v)
	if !ok {
		return errorAt(s.o.path, record, fault.New(fault.ErrFormat, -1, "the table of constants is not a tuple"))
	}
	tree := s.tree()
	for i, item := range items {
		c, err := tree.value("CONSTANTS.c"+strconv.Itoa(i), item, 0)
		if err != nil {
			return errorAt(s.o.path, record, err)
		}
		s.program.Constants = append(s.program.Constants, c)
	}
	if ref := s.program.HighestConstant; ref != nil && ref.Index >= len(s.program.Constants) {
		err := fault.New(fault.ErrFormat, -1, "%v uses constant c%d of a table of %d",
			s.program.Position(ref.Pos()), ref.Index, len(s.program.Constants))
		return errorAt(s.o.path, record, err)
	}
	return nil
}

// readTraced reads traced_inputs.pkl: a dictionary from methods to the arguments they were traced with. The records of
// its storages are empty, so only dtypes and shapes are known.
func (s *scriptArchive) readTraced() error {
	if _, ok := s.archive.Lookup(s.top + "traced_inputs.pkl"); !ok {
		return nil
	}
	v, err := s.load("traced_inputs.pkl", func(id any) (any, error) {
		storage, _, err := parseStorageID(id)
		return storage, err
	})
	if err != nil {
		return err
	}
	tree := s.tree()
	tree.traced = true
	value, err := tree.value("", v, 0)
	if err != nil {
		return errorAt(s.o.path, s.top+"traced_inputs.pkl", err)
	}
	methods, ok := value.(script.DictValue)
	for _, m := range methods {
		name, isString := m.Key.(string)
		args, isList := m.Value.(script.ListValue)
		ok = ok && isString && isList
		s.program.Traced = append(s.program.Traced, script.TracedCall{Method: name, Args: args})
	}
	if !ok {
		err := fault.New(fault.ErrFormat, -1, "traced inputs are not lists by method")
		return errorAt(s.o.path, s.top+"traced_inputs.pkl", err)
	}
	return nil
}

func (s *scriptArchive) tree() *scriptTree {
	return &scriptTree{
		archive:   s,
		flattener: &flattener{o: s.o, ckpt: s.ckpt, inside: make(map[any]bool)},
		objects:   make(map[*scriptObject]*script.Object),
		inside:    make(map[any]bool),
	}
}

// A scriptTree turns pickled values into those of package script and lists the tensors among them.
type scriptTree struct {
	archive   *scriptArchive
	flattener *flattener
	traced    bool
	objects   map[*scriptObject]*script.Object
	inside    map[any]bool // the containers between the root and the current value
}

// value converts v, which stands at the given path. What is shared is walked once for each path, because every path
// names a weight, and paid for each time.
func (t *scriptTree) value(path string, v any, depth int) (script.Value, error) {
	o := t.archive.o
	if depth > o.opts.Limits.Depth {
		return nil, fault.New(
			fault.ErrLimit, -1, "objects nested more than %d deep at %.100q", o.opts.Limits.Depth, path,
		)
	}
	const valueBytes = 96
	if err := o.meter.Charge(valueBytes + int64(len(path))); err != nil {
		return nil, err
	}
	switch v := unwrap(v).(type) {
	case nil, bool, float64, complex128, string:
		return v, nil
	case *tensorValue:
		return t.tensor(path, v, depth)
	case *plainCall:
		return device(v)
	case *scriptObject:
		return t.object(path, v, depth)
	default:
		if n, ok := pickle.Int(v); ok {
			return n, nil
		}
		return t.container(path, v, depth)
	}
}

// enter notes that the walk is inside of v; it fails where it is already.
func (t *scriptTree) enter(path string, v any) error {
	if t.inside[v] {
		return fault.New(fault.ErrFormat, -1, "the value at %.100q contains itself", path)
	}
	t.inside[v] = true
	return nil
}

func (t *scriptTree) container(path string, v any, depth int) (script.Value, error) {
	entries, isDict := pickle.Dict(v)
	tuple, isTuple := pickle.Tuple(v)
	list, isList := pickle.List(v)
	if !isDict && !isTuple && !isList {
		return nil, fault.New(fault.ErrUnsupported, -1, "a value at %.100q that TorchScript has no type for: %s",
			path, plainText(v))
	}
	if err := t.enter(path, v); err != nil {
		return nil, err
	}
	defer delete(t.inside, v)
	if isDict {
		dict := make(script.DictValue, 0, len(entries))
		for _, e := range entries {
			key, err := t.value(path, e.Key, depth+1)
			if err != nil {
				return nil, err
			}
			value, err := t.value(join(path, keyText(e.Key)), e.Value, depth+1)
			if err != nil {
				return nil, err
			}
			dict = append(dict, script.DictItem{Key: key, Value: value})
		}
		return dict, nil
	}
	items := make([]script.Value, 0, len(tuple)+len(list))
	for i, item := range slices.Concat(tuple, list) {
		value, err := t.value(join(path, strconv.Itoa(i)), item, depth+1)
		if err != nil {
			return nil, err
		}
		items = append(items, value)
	}
	if isTuple {
		return script.TupleValue(items), nil
	}
	return script.ListValue(items), nil
}

// object converts an object or a member of an Enum.
func (t *scriptTree) object(path string, v *scriptObject, depth int) (script.Value, error) {
	class := t.archive.program.Classes[v.class]
	if class == nil && !strings.HasPrefix(v.class, "__torch__.torch.classes.") {
		return nil, fault.New(fault.ErrFormat, -1, "class %.100q at %.100q is not in the code", v.class, path)
	}
	if isEnum := class != nil && class.Kind == script.EnumClass; isEnum != (len(v.args) == 1) {
		return nil, fault.New(fault.ErrFormat, -1, "class %.100q at %.100q is used in the wrong way", v.class, path)
	} else if isEnum {
		value, err := t.value(path, v.args[0], depth+1)
		return script.EnumValue{Class: v.class, Value: value}, err
	}
	if err := t.enter(path, v); err != nil {
		return nil, err
	}
	defer delete(t.inside, v)
	obj, again := t.objects[v]
	if !again {
		const objectBytes = 128
		if err := t.archive.o.meter.Charge(objectBytes); err != nil {
			return nil, err
		}
		obj = &script.Object{Class: v.class}
		t.objects[v] = obj
	}
	var fields []script.Field
	entries, isDict := pickle.Dict(v.state)
	if !isDict && v.built {
		entries = []pickle.Entry{{Key: "", Value: v.state}}
	}
	for _, e := range entries {
		name, ok := pickle.String(e.Key)
		if !ok {
			return nil, fault.New(fault.ErrFormat, -1, "an attribute of %.100q has no name", path)
		}
		at := path
		if name != "" {
			at = join(path, name)
		}
		value, err := t.value(at, e.Value, depth+1)
		if err != nil {
			return nil, err
		}
		fields = append(fields, script.Field{Name: name, Value: value})
	}
	if !again {
		obj.Attributes = fields
	}
	return obj, nil
}

// tensor lists v as a weight and returns its name.
func (t *scriptTree) tensor(path string, v *tensorValue, depth int) (script.Value, error) {
	if t.traced {
		if v.unreadable != nil {
			return script.TracedTensor{}, nil
		}
		return script.TracedTensor{DType: v.dtype.String(), Shape: v.layout.Shape}, nil
	}
	before := len(t.flattener.ckpt.Weights)
	if err := t.flattener.tensor(path, v, depth); err != nil {
		return nil, err
	}
	if weights := t.flattener.ckpt.Weights; len(weights) > before {
		path = weights[before].Name
	}
	return script.Tensor(path), nil
}

// device converts a torch.device, the only class of Python's that TorchScript stores.
func device(c *plainCall) (script.Value, error) {
	if c.callee.String() != "torch.device" || len(c.args) < 1 || len(c.args) > 2 {
		return nil, fault.New(fault.ErrUnsupported, -1, "a value of class %v", c.callee)
	}
	name, ok := pickle.String(c.args[0])
	if !ok {
		return nil, badArgs(c.callee, "argument 0 is not a name")
	}
	if len(c.args) == 2 {
		index, ok := pickle.Int(c.args[1])
		if !ok {
			return nil, badArgs(c.callee, "argument 1 is not an index")
		}
		name = fmt.Sprintf("%s:%d", name, index)
	}
	return script.Device(name), nil
}
