package loader

import (
	"io"

	"github.com/optimem/optimem/loader/internal/fault"
	"github.com/optimem/optimem/loader/internal/pickle"
)

// scanPickle walks the pickle at offset off of r, notes what it names and all that is wrong with it, and fails where
// anything is.
func (o *opener) scanPickle(
	record string, r io.ReaderAt, off, sizeBytes int64, policy pickle.Policy,
) (*pickle.Report, error) {
	return o.scanWith(record, r, off, sizeBytes, pickle.Options{Policy: policy})
}

// scanWith is scanPickle with options beyond the policy; the limits are the opener's.
func (o *opener) scanWith(
	record string, r io.ReaderAt, off, sizeBytes int64, opts pickle.Options,
) (*pickle.Report, error) {
	opts.Meter, opts.Depth, opts.Persistent = o.meter, o.opts.Limits.Depth, true
	report, err := pickle.Scan(r, off, sizeBytes, opts)
	if err != nil {
		return nil, errorAt(o.path, record, err)
	}
	o.findings.noteGlobals(record, report.Globals)
	for _, p := range report.Problems {
		if err := o.problem(record, p); err != nil {
			return nil, err
		}
	}
	if err := report.Err(); err != nil {
		return nil, errorAt(o.path, record, err)
	}
	return report, nil
}

// Estimates of what lives until all is listed: of a rebuilt tensor, each of its dimensions, and a storage with its
// place in the index.
const (
	rebuiltBytes   = 144
	dimensionBytes = 16
	storageBytes   = 144
)

// loadPickle builds the value of a scanned pickle. A nil persistent means that there can be no storages.
func (o *opener) loadPickle(record string, report *pickle.Report, persistent func(any) (any, error)) (any, error) {
	if persistent == nil {
		persistent = func(any) (any, error) {
			return nil, fault.New(fault.ErrFormat, -1, "a storage where there can be none")
		}
	}
	v, err := report.Load(pickle.Hooks{Persistent: persistent, Reduce: o.rebuild, Build: buildState})
	if err != nil {
		return nil, errorAt(o.path, record, err)
	}
	return v, nil
}

// rebuild is reduceTorch, paid for.
func (o *opener) rebuild(g pickle.Global, args []any) (any, error) {
	const argBytes = 16
	if err := o.meter.Charge(rebuiltBytes + argBytes*int64(max(len(args)-usualArgs, 0))); err != nil {
		return nil, err
	}
	v, err := reduceTorch(g, args)
	if t, ok := v.(*tensorValue); ok && err == nil {
		o.rebuilt++
		err = o.meter.Charge(dimensionBytes * int64(len(t.layout.Shape)))
	}
	return v, err
}

// unwrap returns what a rebuild function or persistent id gave, which the machine hands on in a wrapper.
func unwrap(v any) any {
	for {
		inner, ok := pickle.Result(v)
		if !ok {
			return v
		}
		v = inner
	}
}

// buildState applies a pickled state to what a rebuild function returned.
func buildState(value, state any) error {
	switch v := value.(type) {
	case *ndarray:
		return v.build(state)
	case *numpyDType:
		return v.build(state)
	case *tensorValue:
		v.attrs = state
		return nil
	case *plainCall:
		if v.callee == partial {
			fields, _ := pickle.Tuple(state)
			return checkPartial(fields)
		}
		return nil
	}
	return fault.New(fault.ErrFormat, -1, "a state for a value that has none")
}
