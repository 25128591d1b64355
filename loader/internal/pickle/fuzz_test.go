package pickle

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/optimem/optimem/loader/internal/fault"
	"github.com/optimem/optimem/loader/internal/limit"
)

var errHook = errors.New("the hook refuses")

// FuzzScan checks that what passes a scan also loads, that neither panics, and that both stay within the input and the
// meter. Errors of calls (a hook's, or Python data made of the wrong arguments) and of limits may come at the load.
func FuzzScan(f *testing.F) {
	for _, p := range readReal(f) {
		if len(p.data) < 200 {
			f.Add(p.data)
		}
	}
	f.Add(stateDict(2))
	f.Fuzz(func(t *testing.T, data []byte) {
		meter := limit.New(2 << 20)
		o := Options{Policy: tensorPolicy, Meter: meter, Persistent: true, Depth: 50}
		report, err := Scan(bytes.NewReader(data), 0, int64(len(data)), o)
		if err != nil {
			t.Fatalf("a reader that cannot fail failed: %v", err)
		}
		if report.End < 0 || report.End > int64(len(data)) {
			t.Fatalf("end %d of %d", report.End, len(data))
		}
		for _, p := range report.Problems {
			if p.Offset < 0 || p.Offset > int64(len(data)) || p.Class == nil || p.Msg == "" {
				t.Fatalf("problem %+v", p)
			}
		}
		calls := 0
		count := func(value any) (any, error) {
			if calls++; calls > 100 {
				return nil, errHook
			}
			return value, nil
		}
		value, err := report.Load(Hooks{
			Persistent: count,
			Reduce:     func(g Global, args []any) (any, error) { return count(len(args)) },
			Build: func(value, state any) error {
				_, err := count(state)
				return err
			},
		})
		var placed *fault.Error
		switch {
		case report.Err() != nil:
			if err == nil {
				t.Fatalf("loaded in spite of %v", report.Err())
			}
		case err == nil:
			walk(value, 20, new(int))
		case errors.Is(err, fault.ErrLimit) || errors.Is(err, errHook):
		case errors.As(err, &placed) && placed.Err != nil && placed.Msg != "unpickling failed":
			// A call of Python data; see fail.
			if !errors.As(placed.Err, &placed) {
				t.Fatalf("scan passed, load failed: %v", err)
			}
		default:
			t.Fatalf("scan passed, load failed: %v", err)
		}
	})
}

// walk visits what the accessors show.
func walk(v any, depth int, visits *int) {
	if *visits++; depth == 0 || *visits > 10_000 {
		return
	}
	for _, sequence := range []func(any) ([]any, bool){Tuple, List, Set} {
		if items, ok := sequence(v); ok {
			for _, it := range items {
				walk(it, depth-1, visits)
			}
		}
	}
	if entries, ok := Dict(v); ok {
		for _, e := range entries {
			walk(e.Key, depth-1, visits)
			walk(e.Value, depth-1, visits)
		}
	}
	if o, ok := AsObject(v); ok {
		_ = o.Class().String()
		for _, e := range append(o.Attrs(), o.Entries()...) {
			walk(e.Value, depth-1, visits)
		}
		for _, it := range append(o.Items()[:len(o.Items()):len(o.Items())], o.Args()...) {
			walk(it, depth-1, visits)
		}
		walk(o.State(), depth-1, visits)
	}
	if r, ok := Result(v); ok {
		_ = fmt.Sprintf("%T", r)
	}
}
