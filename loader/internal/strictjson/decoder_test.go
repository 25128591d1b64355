package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"github.com/optimem/optimem/loader/internal/fault"
	"github.com/optimem/optimem/loader/internal/limit"
)

// read turns a document into what encoding/json would give for an any, with numbers as json.Number.
func read(d *Decoder) (any, error) {
	k, err := d.Kind()
	if err != nil {
		return nil, err
	}
	switch k {
	case Object:
		m := map[string]any{}
		err := d.Object(func(key string) error {
			v, err := read(d)
			m[key] = v
			return err
		})
		return m, err
	case Array:
		a := []any{}
		err := d.Array(func(int) error {
			v, err := read(d)
			a = append(a, v)
			return err
		})
		return a, err
	case String:
		return d.String()
	case Number:
		n, err := d.Number()
		return json.Number(n), err
	case Bool:
		return d.Bool()
	default:
		return nil, d.Null()
	}
}

func readAll(d *Decoder) (any, error) {
	v, err := read(d)
	if err == nil {
		err = d.End()
	}
	return v, err
}

func viaEncodingJSON(t *testing.T, doc []byte) any {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(doc))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("encoding/json: %v", err)
	}
	return v
}

func TestDecodeAgreesWithEncodingJSON(t *testing.T) {
	long := strings.Repeat("a long string é 😀 ", 10_000)
	docs := []string{
		`null`, ` true `, "\t\nfalse\r", `0`, `-0`, `1.5e-3`, `123456789012345678901234567890`, `""`, `"\u00e9\ud83d\ude00\/\b\f\n\r\t\"\\"`,
		`[]`, `{}`, `[ ]`, `{ }`, `[[],[[]],{}]`, `{"a":{"b":[1,2,{"c":null}]},"d":"x"}`, `{"":1}`, `"\u0000"`, `"é😀"`,
		`["` + long + `","` + strings.ReplaceAll(long, "é", `\u00e9`) + `"]`,
		`[` + strings.Repeat(`{"key":"value","n":12345,"f":1.25e10,"b":true},`, 5_000) + `null]`,
	}
	for _, doc := range docs {
		want := viaEncodingJSON(t, []byte(doc))
		readers := map[string]*Decoder{
			"bytes":    NewBytesDecoder([]byte(doc), Options{}),
			"stream":   NewDecoder(strings.NewReader(doc), Options{}),
			"one byte": NewDecoder(iotest.OneByteReader(strings.NewReader(doc)), Options{}),
			"with EOF": NewDecoder(iotest.DataErrReader(strings.NewReader(doc)), Options{}),
		}
		for name, d := range readers {
			got, err := readAll(d)
			if err != nil {
				t.Errorf("%s: %.60s: %v", name, doc, err)
			} else if !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %.60s: got %.200v, want %.200v", name, doc, got, want)
			}
			if d.Offset() != int64(len(doc)) {
				t.Errorf("%s: %.60s: offset %d after %d bytes", name, doc, d.Offset(), len(doc))
			}
		}
		d := NewDecoder(strings.NewReader(doc), Options{})
		if err := errors.Join(d.Skip(), d.End()); err != nil {
			t.Errorf("skip %.60s: %v", doc, err)
		}
	}
}

func TestRefused(t *testing.T) {
	tests := []struct {
		doc   string
		class error
		at    int64
		text  string
	}{
		{``, fault.ErrFormat, 0, "ends early"},
		{`  `, fault.ErrFormat, 2, "ends early"},
		{`[1,`, fault.ErrFormat, 3, "ends early"},
		{`[1,]`, fault.ErrFormat, 3, "/1: unexpected ']'"},
		{`{"a":1,}`, fault.ErrFormat, 7, "'}' where a key"},
		{`{"a" 1}`, fault.ErrFormat, 5, "colon"},
		{`{"a":1 "b":2}`, fault.ErrFormat, 7, "comma"},
		{`{a:1}`, fault.ErrFormat, 1, "key should begin"},
		{`[1 2]`, fault.ErrFormat, 3, "comma"},
		{`{"x":{"y/~":[0,{"k":1,"k":2}]}}`, fault.ErrFormat, 22, `/x/y~1~0/1/k: the key "k" occurs twice`},
		{`1 2`, fault.ErrFormat, 2, "after the end"},
		{`01`, fault.ErrFormat, 0, "malformed number"},
		{`-`, fault.ErrFormat, 0, "malformed number"},
		{`1.`, fault.ErrFormat, 0, "malformed number"},
		{`1e`, fault.ErrFormat, 0, "malformed number"},
		{`1e5.5`, fault.ErrFormat, 0, "malformed number"},
		{`0x10`, fault.ErrFormat, 0, "malformed number"},
		{`+1`, fault.ErrFormat, 0, "unexpected '+'"},
		{`NaN`, fault.ErrFormat, 0, "unexpected 'N'"},
		{`-Infinity`, fault.ErrFormat, 0, "malformed number"},
		{`nul`, fault.ErrFormat, 0, "unknown word"},
		{`trues`, fault.ErrFormat, 0, "unknown word"},
		{`"abc`, fault.ErrFormat, 4, "ends within a string"},
		{`"a\`, fault.ErrFormat, 2, "ends within a string"},
		{"\"a\nb\"", fault.ErrFormat, 2, "control character 0xa"},
		{`"\x41"`, fault.ErrFormat, 1, "unknown escape"},
		{`"\u12g4"`, fault.ErrFormat, 1, `malformed \u escape`},
		{`"\ud800"`, fault.ErrFormat, 1, "lone surrogate"},
		{`"\ud800\ud800"`, fault.ErrFormat, 1, "lone surrogate"},
		{`"\udc00"`, fault.ErrFormat, 1, "lone surrogate"},
		{"\"\xff\"", fault.ErrFormat, 1, "not UTF-8"},
		{"\"\xed\xa0\x80\"", fault.ErrFormat, 1, "not UTF-8"},
		{"\"\\n\xc3\"", fault.ErrFormat, 4, "not UTF-8"},
		{"\xef\xbb\xbf1", fault.ErrFormat, 0, "byte 0xef"},
		{"1\x00", fault.ErrFormat, 1, "zero byte"},
		{strings.Repeat("[", 201), fault.ErrLimit, 200, "deeper than 200"},
		{strings.Repeat(`{"a":`, 201), fault.ErrLimit, 1000, "deeper than 200"},
		{strings.Repeat("1", 2000), fault.ErrLimit, 0, "1024 digits"},
		{`"` + strings.Repeat("x", defaultMaxStringBytes+1) + `"`, fault.ErrLimit, -2, "longer than"},
	}
	for _, test := range tests {
		for _, skip := range []bool{false, true} {
			if skip && strings.Contains(test.text, "occurs twice") {
				continue
			}
			for _, r := range []io.Reader{strings.NewReader(test.doc), iotest.HalfReader(strings.NewReader(test.doc)), nil} {
				d := NewBytesDecoder([]byte(test.doc), Options{})
				if r != nil {
					d = NewDecoder(r, Options{})
				}
				var err error
				if skip {
					if err = d.Skip(); err == nil {
						err = d.End()
					}
				} else {
					_, err = readAll(d)
				}
				var f *fault.Error
				if !errors.As(err, &f) {
					t.Errorf("%.40q: error %v is not a fault.Error", test.doc, err)
					continue
				}
				if !errors.Is(err, test.class) || !strings.Contains(err.Error(), test.text) && !skip {
					t.Errorf("%.40q: error %v, want %v: …%s…", test.doc, err, test.class, test.text)
				}
				if test.at != -2 && f.Offset != test.at {
					t.Errorf("%.40q: error at %d, want %d: %v", test.doc, f.Offset, test.at, err)
				}
				if again := d.Skip(); !errors.Is(again, err) {
					t.Errorf("%.40q: the error is not final: %v, then %v", test.doc, err, again)
				}
			}
		}
	}
}

// A string may be as long as the option says, however it is written.
func TestStringsOfTheLongestLength(t *testing.T) {
	const longest = 100
	for _, written := range []string{"x", `\n`, `\u0041`, "é", `\ud83d\ude00`} {
		var one string
		if err := json.Unmarshal([]byte(`"`+written+`"`), &one); err != nil {
			t.Fatal(err)
		}
		for n, ok := range map[int]bool{longest: true, longest + len(one): false} {
			doc := `"` + strings.Repeat(written, n/len(one)) + `"`
			for name, d := range map[string]*Decoder{
				"bytes":  NewBytesDecoder([]byte(doc), Options{MaxStringBytes: longest}),
				"reader": NewDecoder(iotest.HalfReader(strings.NewReader(doc)), Options{MaxStringBytes: longest}),
			} {
				got, err := d.String()
				if ok && (err != nil || got != strings.Repeat(one, n/len(one))) || !ok && !errors.Is(err, fault.ErrLimit) {
					t.Errorf("%s: %s, %d bytes: %q, %v", name, written, n, got, err)
				}
			}
		}
	}
}

func TestNumbers(t *testing.T) {
	ints := map[string]int64{
		"0": 0, "-0": 0, "7": 7, "-12": -12, "9223372036854775807": math.MaxInt64, "-9223372036854775808": math.MinInt64,
		"999999999999999999": 999999999999999999,
	}
	for doc, want := range ints {
		if got, err := NewBytesDecoder([]byte(doc), Options{}).Int(); err != nil || got != want {
			t.Errorf("%s: %d, %v", doc, got, err)
		}
	}
	for _, doc := range []string{"9223372036854775808", "-9223372036854775809", "1.0", "1e3", "NaN", `"1"`, "null"} {
		if got, err := NewBytesDecoder([]byte(doc), Options{NonFinite: true}).Int(); !errors.Is(err, fault.ErrFormat) {
			t.Errorf("%s read as the integer %d, %v", doc, got, err)
		}
	}
	floats := map[string]float64{"1": 1, "-1.5e3": -1500, "5e-324": 5e-324, "Infinity": math.Inf(1), "-Infinity": math.Inf(-1)}
	for doc, want := range floats {
		if got, err := NewBytesDecoder([]byte(doc), Options{NonFinite: true}).Float(); err != nil || got != want {
			t.Errorf("%s: %v, %v", doc, got, err)
		}
	}
	if got, err := NewBytesDecoder([]byte("NaN"), Options{NonFinite: true}).Float(); err != nil || !math.IsNaN(got) {
		t.Errorf("NaN: %v, %v", got, err)
	}
	for _, doc := range []string{"1e400", "NaNs", "Infinit"} {
		if got, err := NewBytesDecoder([]byte(doc), Options{NonFinite: true}).Float(); !errors.Is(err, fault.ErrFormat) {
			t.Errorf("%s read as %v, %v", doc, got, err)
		}
	}
}

func TestCallbacks(t *testing.T) {
	doc := `{"a":[1,{"b":2}],"c":{"d":[3]},"e":4}`
	d := NewBytesDecoder([]byte(doc), Options{})
	var e int64
	err := d.Object(func(key string) (err error) {
		if key == "e" {
			e, err = d.Int()
		}
		return err
	})
	if err != nil || e != 4 {
		t.Errorf("values left alone are not skipped: e = %d, %v", e, err)
	}

	mine := errors.New("mine")
	d = NewBytesDecoder([]byte(doc), Options{})
	err = d.Object(func(string) error {
		return d.Array(func(i int) error {
			if i == 1 {
				if _, err := d.Kind(); err != nil {
					return err
				}
				return fmt.Errorf("at %s: %w", d.Pointer(), mine)
			}
			return nil
		})
	})
	if !errors.Is(err, mine) || !strings.HasPrefix(err.Error(), "at /a/1") {
		t.Errorf("the callback's error came back as %v", err)
	}
	if err := d.Skip(); !errors.Is(err, mine) {
		t.Errorf("the callback's error is not final: %v", err)
	}

	d = NewBytesDecoder([]byte(`{"a":[1,"x"]}`), Options{})
	err = d.Object(func(string) error {
		return d.Array(func(i int) error {
			if i == 0 {
				return d.Skip()
			}
			s, err := d.String()
			if err != nil {
				return err
			}
			return d.Errorf(fault.ErrUnsupported, "no %s", s)
		})
	})
	if !errors.Is(err, fault.ErrUnsupported) || err.Error() != "/a/1: no x (at byte 8)" {
		t.Errorf("Errorf: %v", err)
	}
}

func TestReadErrorIsKept(t *testing.T) {
	broken := errors.New("broken disk")
	d := NewDecoder(io.MultiReader(strings.NewReader(`{"a":`), iotest.ErrReader(broken)), Options{})
	if err := d.Skip(); !errors.Is(err, broken) || errors.Is(err, fault.ErrFormat) {
		t.Errorf("got %v", err)
	}
	d = NewDecoder(noProgress{}, Options{})
	if err := d.Skip(); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("got %v", err)
	}
}

type noProgress struct{}

func (noProgress) Read([]byte) (int, error) { return 0, nil }

func TestManyKeys(t *testing.T) {
	var doc strings.Builder
	doc.WriteByte('{')
	for i := range 50_000 {
		fmt.Fprintf(&doc, `"key%d":0,`, i)
	}
	n := 0
	d := NewDecoder(strings.NewReader(doc.String()+`"key":1}`), Options{})
	if err := d.Object(func(string) error { n++; return nil }); err != nil || n != 50_001 {
		t.Errorf("%d keys, %v", n, err)
	}
	for _, dup := range []string{"key0", "key11", "key12", "key13", "key49999"} {
		d := NewDecoder(strings.NewReader(doc.String()+`"`+dup+`":1}`), Options{})
		if err := d.Object(func(string) error { return nil }); !errors.Is(err, fault.ErrFormat) {
			t.Errorf("second %s: %v", dup, err)
		}
	}
}

func TestStringsAreSharedAndCharged(t *testing.T) {
	m := limit.New(1 << 20)
	text := strings.Repeat("m", 100)
	doc := `[` + strings.Repeat(`"`+text+`",`, 99_999) + `"` + text + `"]`
	d := NewDecoder(strings.NewReader(doc), Options{Meter: m})
	if err := d.Array(func(int) error { _, err := d.String(); return err }); err != nil {
		t.Fatal(err)
	}
	if used := m.Used(); used < bufferBytes+100 || used > bufferBytes+1000 {
		t.Errorf("charged %d bytes for a buffer and one string", used)
	}
	var unique strings.Builder
	unique.WriteByte('[')
	for i := range 100_000 {
		fmt.Fprintf(&unique, `"%s%d",`, text, i)
	}
	d = NewDecoder(strings.NewReader(unique.String()), Options{Meter: m})
	n := 0
	err := d.Array(func(int) error { n++; _, err := d.String(); return err })
	if !errors.Is(err, fault.ErrLimit) || n > 10_000 {
		t.Errorf("%d strings of 100 bytes within a budget of 1 MiB: %v", n, err)
	}
}

func TestTextIsNotKept(t *testing.T) {
	m := limit.New(1 << 20)
	doc := `["` + strings.Repeat("x", 500_000) + `",` + strings.Repeat(`"`+strings.Repeat("y", 10_000)+`",`, 500) + `1]`
	d := NewDecoder(strings.NewReader(doc), Options{Meter: m})
	total := 0
	err := d.Array(func(int) error {
		if k, err := d.Kind(); err != nil || k != String {
			return err
		}
		text, err := d.Text()
		total += len(text)
		return err
	})
	if err != nil || total != 5_500_000 {
		t.Errorf("%d bytes of text, %v", total, err)
	}
}

func FuzzDecoder(f *testing.F) {
	for _, doc := range []string{
		`{"a":[1,-2.5e3,true,false,null,"\u00e9\ud83d\ude00"],"b":{"a":{}}}`, `[[[]]]`, `{"a":1,"a":2}`, `"\ud800"`, "\"\xff\"",
		` 1 `, `1 2`, `[1,]`, `{"a":1,}`, `01`, `1e`, `nulll`, `"` + strings.Repeat("é", 100) + `"`,
	} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		got, err := readAll(NewDecoder(iotest.HalfReader(bytes.NewReader(doc)), Options{}))
		again, errAgain := readAll(NewBytesDecoder(doc, Options{}))
		if fmt.Sprint(err) != fmt.Sprint(errAgain) || !reflect.DeepEqual(got, again) {
			t.Fatalf("streamed: %v, %v; from memory: %v, %v", got, err, again, errAgain)
		}
		skip := NewBytesDecoder(doc, Options{})
		errSkip := errors.Join(skip.Skip(), skip.End())
		valid := json.Valid(doc)
		if (err == nil || errSkip == nil) && !valid {
			t.Fatalf("accepted, but encoding/json refuses it: %v, %v", err, errSkip)
		}
		if err == nil {
			if errSkip != nil {
				t.Fatalf("read, but not skipped: %v", errSkip)
			}
			if want := viaEncodingJSON(t, doc); !reflect.DeepEqual(got, want) {
				t.Fatalf("got %v, encoding/json %v", got, want)
			}
			return
		}
		var fe *fault.Error
		if !errors.As(err, &fe) || fe.Offset < 0 || fe.Offset > int64(len(doc)) {
			t.Fatalf("error %v has no place in %d bytes", err, len(doc))
		}
		if valid && utf8.Valid(doc) && !bytes.Contains(doc, []byte(`\u`)) && !errors.Is(err, fault.ErrLimit) &&
			!strings.Contains(err.Error(), "occurs twice") {
			t.Fatalf("refused, but encoding/json accepts it: %v", err)
		}
	})
}

func BenchmarkSkip(b *testing.B) { benchmark(b, func(d *Decoder) error { return d.Skip() }) }

func BenchmarkRead(b *testing.B) {
	var walk func(d *Decoder) error
	walk = func(d *Decoder) error {
		k, err := d.Kind()
		if err != nil {
			return err
		}
		switch k {
		case Object:
			return d.Object(func(string) error { return walk(d) })
		case Array:
			return d.Array(func(int) error { return walk(d) })
		case String:
			_, err = d.String()
		case Number:
			_, err = d.Int()
		default:
			err = d.Skip()
		}
		return err
	}
	benchmark(b, walk)
}

func benchmark(b *testing.B, walk func(*Decoder) error) {
	node := `{"target": "torch.ops.aten.linear.default", "inputs": [{"name": "input", "arg": {"as_tensor": {"name": "x_%d"}}, "kind": 1},` +
		` {"name": "weight", "arg": {"as_tensor": {"name": "p_layers_%d_weight"}}, "kind": 1}], "outputs": [{"as_tensor": {"name":` +
		` "linear_%d"}}], "metadata": {"stack_trace": "  File \"/a/b/c.py\", line 10, in forward\n    return self.fc(x)\n",` +
		` "nn_module_stack": "L__self__,,model.Model;L__self___layers_0,layers.0,torch.nn.modules.linear.Linear"}},`
	var doc strings.Builder
	doc.WriteByte('[')
	for i := range 5_000 {
		fmt.Fprintf(&doc, node, i, i, i+1)
	}
	doc.WriteString("null]")
	b.SetBytes(int64(doc.Len()))
	b.ReportAllocs()
	for b.Loop() {
		if err := walk(NewDecoder(strings.NewReader(doc.String()), Options{Meter: limit.New(32 << 20)})); err != nil {
			b.Fatal(err)
		}
	}
}
