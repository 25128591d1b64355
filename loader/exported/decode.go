package exported

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"github.com/optimem/optimem/loader/internal/fault"
	"github.com/optimem/optimem/loader/internal/limit"
	"github.com/optimem/optimem/loader/internal/strictjson"
)

// Options bound what reading a program may cost.
type Options struct {
	// Meter is charged for the program. Nil: a meter of 32 MiB.
	Meter *limit.Meter
	// Depth bounds the nesting of the document, of subgraphs, expressions and tree specs. Default 200.
	Depth int
}

const defaultMemoryBytes = 32 << 20

func (o Options) withDefaults() Options {
	if o.Meter == nil {
		o.Meter = limit.New(defaultMemoryBytes)
	}
	if o.Depth <= 0 {
		o.Depth = strictjson.DefaultDepth
	}
	return o
}

// A decoder reads one document. What many nodes share (module stacks, sources, expressions) is built once.
type decoder struct {
	*strictjson.Decoder
	opts   Options
	exprs  map[string]*Expr
	stacks map[string][]Frame
	places map[string]*Source
	hints  map[string]int64
	named  map[string][]string // field names of named tuples
	specs  []pendingSpec
	// anyDType accepts dtypes that package tensor does not have.
	anyDType bool
}

func newDecoder(r io.Reader, o Options) *decoder {
	o = o.withDefaults()
	return &decoder{
		Decoder: strictjson.NewDecoder(r, strictjson.Options{Meter: o.Meter, Depth: o.Depth, NonFinite: true}),
		opts:    o,
		exprs:   make(map[string]*Expr),
		stacks:  make(map[string][]Frame),
		places:  make(map[string]*Source),
		hints:   make(map[string]int64),
		named:   make(map[string][]string),
	}
}

// Decode reads a program and checks that it is consistent.
func Decode(r io.Reader, o Options) (*Program, error) {
	d := newDecoder(r, o)
	p := &Program{}
	var seen struct{ module, version bool }
	var old *oldSignature
	err := d.Object(func(key string) (err error) {
		switch key {
		case "graph_module":
			seen.module = true
			old, err = d.graphModule(p)
		case "opset_version":
			p.OpsetVersion, err = d.opsets()
		case "range_constraints":
			p.Ranges, err = d.ranges()
		case "schema_version":
			seen.version = true
			p.SchemaVersion, err = d.version()
		case "verifiers":
			p.Verifiers, err = d.strings()
		case "dialect": // before schema 8
			var dialect string
			dialect, err = d.String()
			p.Verifiers = []string{dialect}
		case "torch_version":
			if p.TorchVersion, err = d.String(); p.TorchVersion == "<=2.4" {
				p.TorchVersion = ""
			}
		case "guards_code":
			p.GuardsCode, err = d.strings()
		}
		return err
	})
	if err == nil {
		err = d.End()
	}
	switch {
	case err != nil:
		return nil, err
	case !seen.module:
		return nil, fault.New(fault.ErrFormat, 0, "the program has no graph_module")
	case !seen.version:
		return nil, fault.New(fault.ErrFormat, 0, "the program has no schema_version")
	}
	if old != nil {
		if err := d.charge(len(p.Graph.Inputs)+len(p.Graph.Outputs), 2*specBytes); err != nil {
			return nil, err
		}
		p.Signature = old.specs(p.Graph)
	}
	if err := d.resolveSpecs(); err != nil {
		return nil, err
	}
	p.Hints = d.hints
	if err := p.check(d.opts); err != nil {
		return nil, err
	}
	return p, nil
}

// charge charges for n values of size bytes each.
func (d *decoder) charge(n int, size int64) error {
	if err := d.opts.Meter.Charge(int64(n) * size); err != nil {
		return fmt.Errorf("%s: %w", d.Pointer(), err)
	}
	return nil
}

// list reads an array, which may be null, of elements of size bytes each.
func list[T any](d *decoder, size int64, element func() (T, error)) ([]T, error) {
	if null, err := d.IsNull(); err != nil || null {
		return nil, err
	}
	var small [8]T
	s := small[:0]
	err := d.Array(func(int) error {
		if len(s) >= len(small) { // growing holds the elements twice for a while
			if err := d.charge(1, 2*size); err != nil {
				return err
			}
		}
		v, err := element()
		s = append(s, v)
		return err
	})
	if err != nil || len(s) == 0 {
		return nil, err
	}
	if err := d.charge(len(s), size); err != nil {
		return nil, err
	}
	d.opts.Meter.Release(2 * size * int64(max(0, len(s)-len(small))))
	return slices.Clone(s), nil
}

// mapEntryBytes is what an entry of a map of strings costs beside its value.
const mapEntryBytes = 48

// dict reads an object, which may be null, into a map.
func dict[T any](d *decoder, size int64, value func() (T, error)) (map[string]T, error) {
	m := make(map[string]T)
	if null, err := d.IsNull(); err != nil || null {
		return m, err
	}
	err := d.Object(func(key string) error {
		if err := d.charge(1, mapEntryBytes+2*size); err != nil {
			return err
		}
		v, err := value()
		m[key] = v
		return err
	})
	return m, err
}

func (d *decoder) strings() ([]string, error) { return list(d, 16, d.String) }
func (d *decoder) ints() ([]int64, error)     { return list(d, 8, d.Int) }
func (d *decoder) floats() ([]float64, error) { return list(d, 8, d.float) }

// union reads an object of which exactly one key has a value: the others are absent or, as old files write them,
// null.
func (d *decoder) union(fn func(tag string) error) error {
	n := 0
	err := d.Object(func(tag string) error {
		if null, err := d.IsNull(); err != nil || null {
			return err
		}
		if n++; n > 1 {
			return d.Errorf(fault.ErrFormat, "a union with more than one value")
		}
		return fn(tag)
	})
	if err == nil && n == 0 {
		return d.Errorf(fault.ErrFormat, "a union without a value")
	}
	return err
}

func (d *decoder) unknownTag(tag string) error {
	return d.Errorf(fault.ErrUnsupported, "the unknown kind of value %s", quote(tag))
}

// float reads a number, or one of the strings that stand for those that JSON does not have.
func (d *decoder) float() (float64, error) {
	k, err := d.Kind()
	if err != nil || k != strictjson.String {
		if err != nil {
			return 0, err
		}
		return d.Float()
	}
	text, err := d.Text()
	if err != nil {
		return 0, err
	}
	switch string(text) {
	case "Infinity":
		return math.Inf(1), nil
	case "-Infinity":
		return math.Inf(-1), nil
	case "NaN":
		return math.NaN(), nil
	}
	return 0, d.Errorf(fault.ErrFormat, "%s is not a number", quote(string(text)))
}

// optionalInt reads an integer or null, which stands for absent.
func (d *decoder) optionalInt(absent int64) (int64, error) {
	if null, err := d.IsNull(); err != nil || null {
		return absent, err
	}
	return d.Int()
}

// optionalString reads a string or null, which is "".
func (d *decoder) optionalString() (string, error) {
	if null, err := d.IsNull(); err != nil || null {
		return "", err
	}
	return d.String()
}

// version reads a schema version: an object, or a number in the oldest files.
func (d *decoder) version() (v Version, err error) {
	if k, err := d.Kind(); err != nil {
		return v, err
	} else if k == strictjson.Number {
		v.Major, err = d.Int()
		if err != nil {
			return v, err
		}
	} else {
		err := d.Object(func(key string) (err error) {
			switch key {
			case "major":
				v.Major, err = d.Int()
			case "minor":
				v.Minor, err = d.Int()
			}
			return err
		})
		if err != nil {
			return v, err
		}
	}
	if v.Major < 0 || v.Minor < 0 {
		return v, d.Errorf(fault.ErrFormat, "the negative schema version %d.%d", v.Major, v.Minor)
	}
	if v.Major > SchemaMajor {
		return v, d.Errorf(fault.ErrUnsupported, "schema version %d.%d is newer than %d.%d, the newest known",
			v.Major, v.Minor, SchemaMajor, SchemaMinor)
	}
	return v, nil
}

func (d *decoder) opsets() (map[string]int64, error) {
	return dict(d, 8, d.Int)
}

func (d *decoder) ranges() ([]Range, error) {
	var ranges []Range
	err := d.Object(func(symbol string) error {
		if err := d.charge(1, 64); err != nil {
			return err
		}
		r := Range{Symbol: symbol, Min: math.MinInt64, Max: math.MaxInt64}
		err := d.Object(func(key string) (err error) {
			switch key {
			case "min_val":
				r.Min, err = d.bound(math.MinInt64)
			case "max_val":
				r.Max, err = d.bound(math.MaxInt64)
			}
			return err
		})
		if err != nil {
			return err
		}
		if r.Min > r.Max {
			return d.Errorf(fault.ErrFormat, "the empty range from %d to %d", r.Min, r.Max)
		}
		ranges = append(ranges, r)
		return nil
	})
	return ranges, err
}

// bound reads an end of a range, which old files also write as a float.
func (d *decoder) bound(open int64) (int64, error) {
	if null, err := d.IsNull(); err != nil || null {
		return open, err
	}
	text, err := d.Number()
	if err != nil {
		return 0, err
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, nil
	}
	f, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil && f == 0, math.IsNaN(f):
		return 0, d.Errorf(fault.ErrFormat, "%s is not a bound", quote(text))
	case f >= math.MaxInt64:
		return math.MaxInt64, nil
	case f <= math.MinInt64:
		return math.MinInt64, nil
	case f != math.Trunc(f):
		return 0, d.Errorf(fault.ErrFormat, "the bound %s is not an integer", quote(text))
	}
	return int64(f), nil
}

func quote(s string) string {
	if len(s) > 80 {
		s = s[:80]
	}
	return strconv.Quote(s)
}

func formatInt(n int64) string { return strconv.FormatInt(n, 10) }
