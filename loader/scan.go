package loader

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/optimem/optimem/loader/internal/pickle"
)

// A Verdict says whether a file is data only.
type Verdict string

// The verdicts of [Scan].
const (
	// VerdictData: nothing but data. Any loader that is safe for data may open it.
	VerdictData Verdict = "data only"
	// VerdictClasses: data, and objects of named classes. They are inert here; a loader that unpickles would import
	// those classes and call their constructors.
	VerdictClasses Verdict = "data plus named classes"
	// VerdictUnsafe: refused, for the reasons in Problems.
	VerdictUnsafe Verdict = "unsafe"
	// VerdictUnread: not read to the end, and nothing unsafe or malformed until there: it takes more than the limits allow,
	// or optimem does not read its kind.
	VerdictUnread Verdict = "not read"
)

// Refused reports whether files with this verdict do not open.
func (v Verdict) Refused() bool { return v == VerdictUnsafe || v == VerdictUnread }

// A ScanReport is everything that opening a file would object to.
type ScanReport struct {
	Path    string
	Format  Format // "" where the file is none that we know
	Verdict Verdict
	// Classes names the classes of objects in the file, sorted.
	Classes []string
	// Globals lists every name that a pickle in the file refers to, in order of record and offset.
	Globals []GlobalUse
	// Problems lists all that is wrong. Open fails with the first that it meets.
	Problems []*Error
	// Unreadable lists tensors that optimem cannot represent; they do not make a file unsafe.
	Unreadable []*Error
}

// harms reports whether a problem says that a file is not what it should be, rather than that optimem cannot tell.
func harms(p *Error) bool { return Class(p) != ErrLimit && Class(p) != ErrUnsupported }

// A GlobalUse is a name that a pickle refers to.
type GlobalUse struct {
	Record string
	Name   string
	Offset int64
	// Class is "data", "class" or "refused".
	Class string
}

// Scan says whether a file is data only. It is the code of [OpenWith], which keeps going after a problem: what Scan
// accepts, OpenWith accepts, and the other way round. The error is for I/O and cancellation; whatever is wrong with the
// file is in the report.
func Scan(ctx context.Context, path string, opts Options) (*ScanReport, error) {
	o := newOpener(ctx, path, opts)
	o.findings.keepGoing = true
	ckpt, err := o.open()
	report := &ScanReport{Path: path}
	if ckpt != nil {
		report.Format = ckpt.Format
		report.Unreadable = ckpt.Unreadable
		if cerr := ckpt.Close(); err == nil {
			err = cerr
		}
	}
	if err != nil {
		var placed *Error
		if ctx.Err() != nil || !errors.As(err, &placed) {
			return nil, err
		}
	}
	f := o.findings
	report.Globals = f.globals
	report.Classes = f.classNames()
	report.Problems = f.sorted()
	switch {
	case slices.ContainsFunc(report.Problems, func(p *Error) bool { return harms(p) }):
		report.Verdict = VerdictUnsafe
	case len(report.Problems) > 0:
		report.Verdict = VerdictUnread
	case len(report.Classes) > 0:
		report.Verdict = VerdictClasses
	default:
		report.Verdict = VerdictData
	}
	return report, nil
}

// maxProblems bounds what is kept of a file in which everything is wrong.
const maxProblems = 100

// findings collects what the readers object to, over all records and shards of a file.
type findings struct {
	keepGoing bool

	mu       sync.Mutex
	problems []*Error
	globals  []GlobalUse
	classes  map[string]bool
}

// problem notes what is wrong. It returns nil where reading should go on, to list the rest.
func (f *findings) problem(e *Error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.ContainsFunc(f.problems, func(p *Error) bool { return p.Error() == e.Error() }) &&
		len(f.problems) < maxProblems {
		f.problems = append(f.problems, e)
	}
	if f.keepGoing {
		return nil
	}
	return e
}

// noteGlobals adds what a pickle refers to.
func (f *findings) noteGlobals(record string, uses []pickle.Use) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, u := range uses {
		class := "data"
		switch u.Class {
		case pickle.Inert:
			class = "class"
			if f.classes == nil {
				f.classes = make(map[string]bool)
			}
			f.classes[u.Global.String()] = true
		case pickle.Refused:
			class = "refused"
		}
		f.globals = append(
			f.globals, GlobalUse{Record: record, Name: u.Global.String(), Offset: u.Offset, Class: class},
		)
	}
}

func (f *findings) classNames() []string {
	names := make([]string, 0, len(f.classes))
	for name := range f.classes {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// sorted returns the problems, the gravest class first.
func (f *findings) sorted() []*Error {
	grave := func(e *Error) int {
		return slices.Index([]error{ErrUnsafe, ErrLimit, ErrFormat, ErrUnsupported, nil}, Class(e))
	}
	slices.SortStableFunc(f.problems, func(a, b *Error) int { return cmp.Compare(grave(a), grave(b)) })
	return f.problems
}
