package exported

import (
	"bytes"
	"errors"
	"fmt"
	goruntime "runtime"
	"strings"
	"testing"

	"github.com/optimem/optimem/loader/internal/fault"
	"github.com/optimem/optimem/loader/internal/limit"
)

// many joins n texts.
func many(n int, text func(i int) string) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(text(i))
	}
	return b.String()
}

// Whatever a program is full of, at least what is held of it was charged before, and a budget that is smaller ends the
// reading with a limit.
func TestChargesCoverWhatIsHeld(t *testing.T) {
	argument := func(arg string) string { return changed(t, `{"as_tensor":{"name":"x"}},"kind"`, arg+`,"kind"`) }
	value := func(kind, entries string) string {
		return changed(t, `"sym_bool_values":{}`, `"more":0,`+strings.Replace(`"KIND":{`+entries+`}`, "KIND", kind, 1))
	}
	spec := func(in string) string {
		return changed(t, `"module_call_graph":[]`, `"module_call_graph":[`+call(in, "", "[]")+`]`)
	}
	const n = 2500
	entry := func(format string) string { return many(n, func(i int) string { return fmt.Sprintf(format, i) }) }
	short := many(8*n, func(i int) string { return fmt.Sprintf(`"%x":{}`, i) }) // names take little
	for name, doc := range map[string]string{
		"integers":         argument(`{"as_ints":[` + many(40*n, func(i int) string { return fmt.Sprint(i % 10) }) + `]}`),
		"floats":           argument(`{"as_floats":[` + many(40*n, func(int) string { return "0.5" }) + `]}`),
		"truth values":     argument(`{"as_bools":[` + many(80*n, func(int) string { return "true" }) + `]}`),
		"lists":            argument(`{"as_int_lists":[` + many(4*n, func(int) string { return "[1,2]" }) + `]}`),
		"strings":          argument(`{"as_strings":[` + entry(`"string %d"`) + `]}`),
		"values":           value("sym_bool_values", entry(`"value %d":{"as_bool":true}`)),
		"floating values":  value("sym_float_values", entry(`"value %d":{"as_float":0.5}`)),
		"ranges":           changed(t, `"range_constraints":{}`, `"range_constraints":{`+short+`}`),
		"opsets":           changed(t, `{"aten":10}`, `{`+strings.ReplaceAll(short, "{}", "1")+`}`),
		"nodes":            changed(t, nodeRelu, nodeRelu+","+many(n, func(int) string { return `{"target":"t"}` })),
		"sums":             changed(t, `[{"as_int":2}]`, `[`+expr("s0"+strings.Repeat(" + s0", 2*n), "")+`]`),
		"leaves of a tree": spec(tree(node("t", "null", strings.Repeat("{},", 20*n)+leaf))),
		"branches":         spec(tree(node("t", "null", strings.Repeat(`{"type":"t"},`, n)+leaf))),
		"keys of a tree":   spec(tree(node("t", `"[`+entry("%d")+`]"`, strings.Repeat("{},", n-1)+leaf))),
	} {
		held, used, err := cost(doc, func(doc string, m *limit.Meter) (any, error) {
			return Decode(strings.NewReader(doc), Options{Meter: m})
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if used < held {
			t.Errorf("%s: %d bytes charged for a program of %d", name, used, held)
		}
		if _, err := Decode(strings.NewReader(doc), Options{Meter: limit.New(held / 2)}); !errors.Is(err, fault.ErrLimit) {
			t.Errorf("%s: in half of what it takes: %v", name, err)
		}
	}
}

// A list is charged what it takes, not what it took while it grew.
func TestChargesEndWithWhatIsHeld(t *testing.T) {
	doc := changed(t, `{"as_tensor":{"name":"x"}},"kind"`,
		`{"as_ints":[`+many(1<<18, func(i int) string { return fmt.Sprint(i % 10) })+`]},"kind"`)
	held, used, err := cost(doc, func(doc string, m *limit.Meter) (any, error) {
		return Decode(strings.NewReader(doc), Options{Meter: m})
	})
	if err != nil || used > held+held/4 {
		t.Errorf("%d bytes charged for a program of %d, %v", used, held, err)
	}
}

func TestPayloadsAreCharged(t *testing.T) {
	meta := `,"tensor_meta":` + metaX
	doc := `{"config":{` + many(20_000, func(i int) string { // whose names and paths take little
		return fmt.Sprintf(`"%x":{"path_name":"p","is_param":true,"use_pickle":true}`, i)
	}) + `,"last":{"path_name":"p"` + meta + `}}}`
	decode := func(doc string, m *limit.Meter) (any, error) {
		return DecodePayloads(strings.NewReader(doc), Options{Meter: m})
	}
	held, used, err := cost(doc, decode)
	if err != nil || used < held {
		t.Errorf("%d bytes charged for payloads of %d, %v", used, held, err)
	}
	if _, err := decode(doc, limit.New(held/2)); !errors.Is(err, fault.ErrLimit) {
		t.Errorf("in half of what they take: %v", err)
	}
	for _, tail := range []string{"{}", "x", `{"config":{}}`} {
		if p, err := decode(doc+tail, limit.New(1<<30)); !errors.Is(err, fault.ErrFormat) {
			t.Errorf("%d payloads with %q behind: %v", len(p.([]Payload)), tail, err)
		}
	}
	raw := `{"config":{"w":{"path_name":"p","is_param":false,"use_pickle":false}}}`
	if _, err := DecodePayloads(strings.NewReader(raw), Options{}); !errors.Is(err, fault.ErrFormat) {
		t.Errorf("raw bytes of a buffer without a description: %v", err)
	}
}

// cost decodes a document and returns the bytes of heap that the result takes and those that the meter was charged.
func cost(doc string, decode func(doc string, m *limit.Meter) (any, error)) (held, used int64, err error) {
	heap := func() int64 {
		goruntime.GC()
		var m goruntime.MemStats
		goruntime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	doc = string(bytes.Clone([]byte(doc)))
	m := limit.New(1 << 30)
	before := heap()
	v, err := decode(doc, m)
	held = heap() - before
	goruntime.KeepAlive(v)
	goruntime.KeepAlive(doc)
	return held, m.Used(), err
}
