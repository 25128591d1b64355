package pickle

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/optimem/optimem/loader/internal/limit"
)

type realPickle struct {
	Name     string
	Protocol int
	Pickle   string
	Want     string
	data     []byte
}

func readReal(t testing.TB) []realPickle {
	t.Helper()
	f, err := os.Open("testdata/real.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var all []realPickle
	if err := json.NewDecoder(text).Decode(&all); err != nil {
		t.Fatal(err)
	}
	for i := range all {
		packed, err := base64.StdEncoding.DecodeString(all[i].Pickle)
		if err != nil {
			t.Fatal(err)
		}
		r, err := zlib.NewReader(bytes.NewReader(packed))
		if err != nil {
			t.Fatal(err)
		}
		if all[i].data, err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func bits(f float64) string { return fmt.Sprintf("%016x", math.Float64bits(f)) }

// describe gives the text that testdata/make_pickles.py gives.
func describe(v any, depth int) string {
	if depth > 60 {
		return "..."
	}
	d := depth + 1
	list := func(items []any) string {
		texts := make([]string, len(items))
		for i, it := range items {
			texts[i] = describe(it, d)
		}
		return strings.Join(texts, ", ")
	}
	pairs := func(entries []Entry) string {
		texts := make([]string, len(entries))
		for i, e := range entries {
			texts[i] = describe(e.Key, d) + ": " + describe(e.Value, d)
		}
		return "{" + strings.Join(texts, ", ") + "}"
	}
	if IsNone(v) {
		return "None"
	}
	if b, ok := Bool(v); ok {
		if b {
			return "True"
		}
		return "False"
	}
	if i, ok := bigInt(v); ok {
		return "int " + i.String()
	}
	if f, ok := Float(v); ok {
		return "float " + bits(f)
	}
	if c, ok := v.(complex128); ok {
		return "complex " + bits(real(c)) + " " + bits(imag(c))
	}
	if s, ok := String(v); ok {
		return fmt.Sprintf("str %x", s)
	}
	if b, ok := Bytes(v); ok {
		return fmt.Sprintf("bytes %x", b)
	}
	if t, ok := Tuple(v); ok {
		return "(" + list(t) + ")"
	}
	if l, ok := List(v); ok {
		return "[" + list(l) + "]"
	}
	if s, ok := Set(v); ok {
		return "set {" + list(s) + "}"
	}
	if g, ok := AsGlobal(v); ok { // protocols below 3 write Python 2's names
		return "global " + strings.NewReplacer("long", "int", "unicode", "str").Replace(g.Name)
	}
	if e, ok := Dict(v); ok {
		o, isObject := AsObject(v)
		if !isObject {
			return pairs(e)
		}
		text := "mapping " + pairs(e)
		if attrs := o.Attrs(); len(attrs) == 1 {
			text += " with {_metadata: " + describe(attrs[0].Value, d) + "}"
		}
		return text
	}
	if o, ok := AsObject(v); ok {
		name := o.Class().Name
		if name == "xrange" {
			name = "range"
		}
		return "object " + name
	}
	if r, ok := Result(v); ok {
		return fmt.Sprintf("result %v", r)
	}
	return fmt.Sprintf("unexpected %T", v)
}

// TestReal loads what Python wrote, of every protocol, and compares the values.
func TestReal(t *testing.T) {
	all := readReal(t)
	if len(all) < 250 {
		t.Fatalf("only %d pickles", len(all))
	}
	for _, p := range all {
		t.Run(fmt.Sprintf("%s/%d", p.Name, p.Protocol), func(t *testing.T) {
			meter := limit.New(32 << 20)
			// The bytes after the pickle are no part of it.
			data := append(append([]byte("before"), p.data...), "after"...)
			report, err := Scan(bytes.NewReader(data), 6, int64(len(data)-6), Options{Meter: meter})
			if err != nil {
				t.Fatal(err)
			}
			if err := report.Err(); err != nil {
				t.Fatal(err)
			}
			if want := int64(6 + len(p.data)); report.End != want {
				t.Errorf("end %d, want %d", report.End, want)
			}
			if want := p.Protocol; want >= 2 && report.Protocol != want || want < 2 && report.Protocol != 0 {
				t.Errorf("protocol %d, want %d", report.Protocol, want)
			}
			v, err := report.Load(Hooks{})
			if err != nil {
				t.Fatal(err)
			}
			got := describe(v, 0)
			if strings.HasPrefix(p.Want, "sha256 ") {
				got = fmt.Sprintf("sha256 %x", sha256.Sum256([]byte(got)))
			}
			if got != p.Want {
				t.Errorf("got  %s\nwant %s", got, p.Want)
			}
		})
	}
}
