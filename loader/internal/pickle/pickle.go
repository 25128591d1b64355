// Package pickle reads Python pickles from untrusted files. Nothing in a pickle is executed or imported: [Scan] walks
// the opcodes on a symbolic stack and builds nothing; [Report.Load] lets gopickle's machine build values, but the
// machine never reads the file. It reads the opcodes that the scanner has checked and re-encoded in canonical form:
// complete, one encoding for each, without frames, and without unused names or memo entries. So the scanner's verdict
// holds for the machine even if the file changes in between.
//
// What is data is decided by a [Policy] over the names of globals. REDUCE, INST and OBJ (calls) work on Data globals
// only and end in [Hooks.Reduce] or in this package's own handling of Python's containers; NEWOBJ on another class
// makes an inert [Object] that keeps its name; refused names are a problem wherever they stand.
//
// Memory is charged to a meter before it is allocated, for the scanner's stack and memo and for every value the machine
// holds; each opcode costs a little too, so the meter also bounds time.
//
// The package knows Python's pickle format and Python's own data types. It does not know PyTorch, numpy or file
// layouts: the caller says what their globals mean.
//
//	report, err := pickle.Scan(record, 0, size, pickle.Options{Policy: policy, Meter: meter})
//	if err != nil {
//		return err // the record could not be read
//	}
//	if err := report.Err(); err != nil {
//		return err // the first of report.Problems
//	}
//	value, err := report.Load(pickle.Hooks{Persistent: storage, Reduce: rebuild})
package pickle

import (
	"errors"
	"io"

	"github.com/optimem/optimem/loader/internal/fault"
	"github.com/optimem/optimem/loader/internal/limit"
)

// A Global is the name of a Python class or function.
type Global struct {
	Module, Name string
}

// String returns the qualified name.
func (g Global) String() string { return g.Module + "." + g.Name }

// A Class says what a global may be used for.
type Class uint8

// The classes, from harmless to harmful.
const (
	// Data may stand as a value and be called: the call ends in a hook or in this package, never in Python.
	Data Class = iota + 1
	// Inert may stand as a value and be instantiated by NEWOBJ, which makes an Object. It is never called.
	Inert
	// Refused is a problem wherever it stands.
	Refused
)

// String names the class.
func (c Class) String() string {
	switch c {
	case Data:
		return "data"
	case Inert:
		return "inert"
	case Refused:
		return "refused"
	}
	return "unknown"
}

// A Policy classes a global. It is asked once for each distinct name in a pickle.
type Policy func(Global) Class

// PythonPolicy is the policy that knows Python alone: Data for Python's own data types, Refused for what [isRefused]
// lists, Inert for the rest. Policies that know more fall back on it.
func PythonPolicy(g Global) Class {
	switch {
	case IsPythonData(g):
		return Data
	case isRefused(g):
		return Refused
	}
	return Inert
}

// Options are the caller's policy and limits.
type Options struct {
	// Policy classes globals; nil is PythonPolicy.
	Policy Policy
	// Meter is charged; nil allows 32 MiB.
	Meter *limit.Meter
	// Depth bounds the nesting of marks and values; zero is 200. A container that is changed through the memo can
	// nest deeper or contain itself, so whoever walks values needs a bound of its own.
	Depth int
	// ClassIDs makes a persistent id ('module', class, …, …) stand for the class: how PyTorch's legacy format names the
	// classes of modules, their source text beside them.
	ClassIDs bool
	// Persistent allows persistent ids, which Hooks.Persistent then resolves.
	Persistent bool
	// Exact makes the scan read no byte behind STOP, at the price of a read for every part of an opcode: for pickles
	// that something follows which must not be read. The load that follows knows where to end.
	Exact bool
	// Sparing is for input that hardly is a pickle: no byte is read before an opcode needs it, and long strings are
	// passed over unread. What was scanned so is not loaded.
	Sparing bool
	// BareArgument lets REDUCE take one argument without a tuple around it, as TorchScript writes members of an Enum.
	BareArgument bool
}

const (
	defaultMeterBytes = 32 << 20
	defaultDepth      = 200
	maxProblems       = 100
	maxGlobals        = 1000
	maxNameBytes      = 512
)

func (o Options) withDefaults() Options {
	if o.Policy == nil {
		o.Policy = PythonPolicy
	}
	if o.Meter == nil {
		o.Meter = limit.New(defaultMeterBytes)
	}
	if o.Depth <= 0 {
		o.Depth = defaultDepth
	}
	o.Depth = min(o.Depth, 1<<15)
	return o
}

// A Use is one distinct global of a pickle.
type Use struct {
	Global Global
	Class  Class
	// Offset is where the global is first named.
	Offset int64
	// Called says that a REDUCE, INST or OBJ applies it, Instantiated that a NEWOBJ does.
	Called, Instantiated bool
}

// A Report is what a scan found.
type Report struct {
	// Protocol is the declared protocol, 0 where none is.
	Protocol int
	// Ops counts opcodes.
	Ops int64
	// End is the offset of the byte after STOP, or of where the scan had to stop.
	End int64
	// Globals lists every distinct global in the order of appearance.
	Globals []Use
	// Problems lists what is wrong, in the order of the file, each kind once, at most 100. What breaks the stream
	// comes last; everything before it was found by going on as if the pickle were sound.
	Problems []*fault.Error

	in      io.ReaderAt
	off     int64
	opts    Options
	fetched bitSet
}

// Err returns the first problem, or nil.
func (r *Report) Err() error {
	if len(r.Problems) == 0 {
		return nil
	}
	return r.Problems[0]
}

// Scan walks the pickle that starts at offset off of r and is at most size bytes long, up to its STOP. Bytes after
// STOP are left to the caller; see Report.End. The error is non-nil only where r could not be read; what is wrong with
// the bytes is in Report.Problems. Offsets in the report count from the start of r.
func Scan(r io.ReaderAt, off, size int64, o Options) (*Report, error) {
	o = o.withDefaults()
	v := newVerifier(r, off, size, o)
	err := v.scan()
	report := &Report{
		Protocol: v.protocol,
		Ops:      v.ops,
		End:      v.in.offset(),
		Problems: v.problems,
		in:       r,
		off:      off,
		opts:     o,
		fetched:  v.fetched,
	}
	for _, g := range v.globals {
		report.Globals = append(report.Globals, g.use)
	}
	v.keepOnly(v.time + v.reportBytes + v.fetched.bytes())
	return report, err
}

// Hooks give meaning to what is not Python's own. A hook may not keep or change the args slice (its elements it may
// keep), must charge what it builds, and its error ends the load with the place of the call added. Hooks meet
// containers that are deep, shared and cyclic; the accessors of this package do not recurse.
type Hooks struct {
	// Persistent resolves a persistent id.
	Persistent func(id any) (any, error)
	// Reduce applies a Data global that is not one of Python's own.
	Reduce func(g Global, args []any) (any, error)
	// Build applies a state to what Persistent or Reduce returned. Nil refuses.
	Build func(value, state any) error
}

// Load builds the value of a pickle that was scanned without problems, checking every opcode again. The value is read
// with the accessors ([Tuple], [List], [Dict], [String], …); what a hook returned is found with [Result].
func (r *Report) Load(h Hooks) (any, error) {
	if err := r.Err(); err != nil {
		return nil, err
	}
	if r.opts.Sparing {
		return nil, errors.New("BUG: load of a pickle that was scanned sparingly")
	}
	opts := r.opts
	opts.Exact = false
	v := newVerifier(r.in, r.off, r.End-r.off, opts)
	v.emit = true
	v.fetched = r.fetched
	m := &machine{v: v, hooks: h}
	value, err := m.run()
	if err != nil {
		v.keepOnly(0)
		return nil, err
	}
	v.releaseWork()
	return value, nil
}
