package loader

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/tensor"
)

// bytesSource is a Source of bytes.
type bytesSource []byte

func (s bytesSource) Size() int64 { return int64(len(s)) }

func (s bytesSource) ReadAt(ctx context.Context, p []byte, off int64) error {
	if off < 0 || off > s.Size() || copy(p, s[off:]) < len(p) {
		return io.ErrUnexpectedEOF
	}
	return ctx.Err()
}

// safetensorsFile puts a file together, right or wrong.
func safetensorsFile(header string, dataBytes int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), make([]byte, dataBytes)...)
}

// u8Entry is a tensor's entry in a header.
func u8Entry(name string, begin, end int) string {
	return fmt.Sprintf(`%q:{"dtype":"U8","shape":[%d],"data_offsets":[%d,%d]}`, name, end-begin, begin, end)
}

func readSafetensors(t testing.TB, file []byte, opts Options) (*Checkpoint, error) {
	t.Helper()
	ckpt := &Checkpoint{}
	o := newOpener(t.Context(), "x.safetensors", opts)
	return ckpt, o.openSafetensors(ckpt, bytesSource(file))
}

func TestSafetensors(t *testing.T) {
	header := `{"__metadata__":{"format":"pt","note":"two\nlines"},` +
		`"b":{"dtype":"BF16","shape":[2,1,3],"data_offsets":[8,20]},` +
		`"packed":{"shape":[4],"data_offsets":[24,26],"dtype":"F4"},` +
		`"a":{"dtype":"I64","shape":[],"data_offsets":[0,8]},` +
		`"none":{"dtype":"F32","shape":[0,7],"data_offsets":[20,20]},` +
		`"c\u00e9":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[20,24],"future":[{"x":null}]}}   `
	file := safetensorsFile(header, 26)
	for i := range 26 {
		file[8+len(header)+i] = byte(i)
	}
	ckpt, err := readSafetensors(t, file, Options{})
	if err != nil {
		t.Fatal(err)
	}
	type row struct {
		name  string
		dtype tensor.DType
		shape string
		data  string
	}
	var got []row
	for _, w := range ckpt.Weights {
		c, err := w.Contents(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, row{w.Name, w.DType, w.Layout.Shape.String(), fmt.Sprintf("% x", c.Data)})
	}
	want := []row{
		{"b", tensor.BFloat16, "[2 1 3]", "08 09 0a 0b 0c 0d 0e 0f 10 11 12 13"},
		{"a", tensor.Int64, "[]", "00 01 02 03 04 05 06 07"},
		{"none", tensor.Float32, "[0 7]", ""},
		{"cé", tensor.Float8E4M3FN, "[4]", "14 15 16 17"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if len(ckpt.Unreadable) != 1 || ckpt.Unreadable[0].Record != "packed" ||
		!errors.Is(ckpt.Unreadable[0], ErrUnsupported) || !strings.Contains(ckpt.Unreadable[0].Error(), `"F4"`) {
		t.Errorf("unreadable: %v", ckpt.Unreadable)
	}
	if v := ckpt.Values; !slices.Equal(v, []Value{{"__metadata__.format", "pt"}, {"__metadata__.note", "two\nlines"}}) {
		t.Errorf("values: %q", v)
	}
	if w, ok := ckpt.Weight("a"); !ok || w.DType != tensor.Int64 || ckpt.Format != FormatSafetensors {
		t.Errorf("a is %v, %v in a file of format %s", w.DType, ok, ckpt.Format)
	}
}

// TestTiedNames: an entry of the metadata names a tensor that was left out where the one that it names is stored, and no other
// entry does: not in circles, not in chains, not over a tensor of that name, not what says which framework wrote the file.
func TestTiedNames(t *testing.T) {
	header := `{"__metadata__":{"left.out":"a","format":"a","circle":"line","line":"circle","chain":"left.out","b":"a",` +
		`"gone":"nothing","itself":"itself","packed":"a"},` + u8Entry("a", 0, 3) + "," + u8Entry("b", 3, 4) +
		`,"packed":{"shape":[4],"data_offsets":[4,6],"dtype":"F4"}}`
	ckpt, err := readSafetensors(t, safetensorsFile(header, 6), Options{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, w := range ckpt.Weights {
		names = append(names, w.Name)
	}
	if want := []string{"a", "b", "left.out"}; !slices.Equal(names, want) {
		t.Fatalf("the tensors are %v, want %v", names, want)
	}
	a, _ := ckpt.Weight("a")
	if w, ok := ckpt.Weight("left.out"); !ok || w.Extent.Offset != a.Extent.Offset || w.Extent.Bytes != a.Extent.Bytes || !w.Layout.Shape.Equal(a.Layout.Shape) {
		t.Errorf("what was left out is %v, and not %v", w, a)
	}
	if b, _ := ckpt.Weight("b"); b.Layout.Shape.Equal(a.Layout.Shape) {
		t.Error("a tensor that is stored was taken for another")
	}
	// Names that nobody reads cost memory, too.
	var many strings.Builder
	for i := range maxValues {
		fmt.Fprintf(&many, `"tied%d":"a",`, i)
	}
	header = `{"__metadata__":{` + strings.TrimSuffix(many.String(), ",") + `},` + u8Entry("a", 0, 1) + `}`
	if _, err := readSafetensors(t, safetensorsFile(header, 1), Options{Limits: Limits{MemoryBytes: 400 << 10}}); !errors.Is(err, ErrLimit) {
		t.Errorf("%d tied names in 400 KiB: %v", maxValues, err)
	}
}

func TestSafetensorsDTypes(t *testing.T) {
	for name, want := range map[string]string{
		"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn",
		"F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu", "F8_E4M3FNUZ": "float8_e4m3fnuz",
		"F8_E5M2FNUZ": "float8_e5m2fnuz", "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64", "U8": "uint8",
		"U16": "uint16", "U32": "uint32", "U64": "uint64", "BOOL": "bool", "C64": "complex64",
		"F4": "", "F6_E2M3": "", "F6_E3M2": "", "f32": "", "Q4": "",
	} {
		d, _ := tensor.ParseDType(want)
		size := max(d.Size(), 1)
		file := safetensorsFile(fmt.Sprintf(`{"t":{"dtype":%q,"shape":[1],"data_offsets":[0,%d]}}`, name, size), size)
		ckpt, err := readSafetensors(t, file, Options{})
		switch {
		case err != nil:
			t.Errorf("%s: %v", name, err)
		case want == "" && (len(ckpt.Weights) != 0 || len(ckpt.Unreadable) != 1):
			t.Errorf("%s: %d weights", name, len(ckpt.Weights))
		case want != "" && (len(ckpt.Weights) != 1 || ckpt.Weights[0].DType != d):
			t.Errorf("%s: %v", name, ckpt.Weights)
		}
	}
}

// hostileSafetensors are files that must be refused, with the class and a part of the message.
func hostileSafetensors() map[string]struct {
	file  []byte
	class error
	says  string
} {
	type row = struct {
		file  []byte
		class error
		says  string
	}
	one := func(dtype, shape, offsets string, dataBytes int) []byte {
		entry := fmt.Sprintf(`{"t":{"dtype":%s,"shape":%s,"data_offsets":%s}}`, dtype, shape, offsets)
		return safetensorsFile(entry, dataBytes)
	}
	length := func(n uint64, rest string) []byte { return append(binary.LittleEndian.AppendUint64(nil, n), rest...) }
	u8 := u8Entry
	return map[string]row{
		"empty":                  {nil, ErrFormat, "too few"},
		"eight bytes":            {length(0, ""), ErrFormat, "too few"},
		"length of zero":         {length(0, "{}"), ErrFormat, "does not begin with {"},
		"length past the end":    {length(100, "{}"), ErrFormat, "in the 2 that remain"},
		"length of 2^63":         {length(1<<63, "{}"), ErrFormat, "9223372036854775808 bytes"},
		"length of 2^64-8":       {length(1<<64-8, "{}"), ErrFormat, "that remain"},
		"array for object":       {safetensorsFile(`[]`, 0), ErrFormat, "does not begin with {"},
		"space first":            {safetensorsFile(` {}`, 0), ErrFormat, "does not begin with {"},
		"text after the object":  {safetensorsFile(`{}  {}`, 0), ErrFormat, "after the end"},
		"line feed after it":     {safetensorsFile("{}\n", 0), ErrFormat, "after the end"},
		"zeros after it":         {safetensorsFile("{}\x00", 0), ErrFormat, "after the end"},
		"cut object":             {safetensorsFile(`{"a":`, 0), ErrFormat, "header"},
		"not UTF-8":              {safetensorsFile("{\"\xff\":1}", 0), ErrFormat, "UTF-8"},
		"duplicate tensor":       {safetensorsFile("{"+u8("a", 0, 1)+","+u8("a", 1, 2)+"}", 2), ErrFormat, "twice"},
		"duplicate by escape":    {safetensorsFile("{"+u8("a", 0, 1)+`,"\u0061":1}`, 1), ErrFormat, "twice"},
		"duplicate key inside":   {one(`"U8","dtype":"U8"`, `[1]`, `[0,1]`, 1), ErrFormat, "twice"},
		"metadata not strings":   {safetensorsFile(`{"__metadata__":{"a":1}}`, 0), ErrFormat, "__metadata__"},
		"metadata not an object": {safetensorsFile(`{"__metadata__":[]}`, 0), ErrFormat, "__metadata__"},
		"duplicate metadata":     {safetensorsFile(`{"__metadata__":{},"__metadata__":{}}`, 0), ErrFormat, "twice"},
		"tensor not an object":   {safetensorsFile(`{"a":[]}`, 0), ErrFormat, "/a"},
		"no dtype":               {safetensorsFile(`{"a":{"shape":[],"data_offsets":[0,0]}}`, 0), ErrFormat, "needs dtype"},
		"no shape":               {safetensorsFile(`{"a":{"dtype":"U8","data_offsets":[0,0]}}`, 0), ErrFormat, "needs dtype"},
		"no offsets":             {safetensorsFile(`{"a":{"dtype":"U8","shape":[0]}}`, 0), ErrFormat, "needs dtype"},
		"one offset":             {one(`"U8"`, `[0]`, `[0]`, 0), ErrFormat, "needs dtype"},
		"three offsets":          {one(`"U8"`, `[0]`, `[0,0,0]`, 0), ErrFormat, "one of two offsets"},
		"dtype a number":         {one(`1`, `[0]`, `[0,0]`, 0), ErrFormat, "/t/dtype"},
		"shape null":             {one(`"U8"`, `null`, `[0,0]`, 0), ErrFormat, "/t/shape"},
		"negative dimension":     {one(`"U8"`, `[-1]`, `[0,0]`, 0), ErrFormat, "dimension of -1"},
		"fractional dimension":   {one(`"U8"`, `[1.0]`, `[0,1]`, 1), ErrFormat, "/t/shape"},
		"exponent in dimension":  {one(`"U8"`, `[1e0]`, `[0,1]`, 1), ErrFormat, "/t/shape"},
		"dimension of 2^64":      {one(`"U8"`, `[18446744073709551616]`, `[0,0]`, 0), ErrFormat, "/t/shape"},
		"product overflows to 0": {one(`"U8"`, `[4294967296,4294967296]`, `[0,0]`, 0), ErrFormat, "2^63"},
		"overflow beside a zero": {one(`"U8"`, `[0,4294967296,4294967296]`, `[0,0]`, 0), ErrFormat, "2^63"},
		"bytes overflow":         {one(`"F64"`, `[2305843009213693952]`, `[0,0]`, 0), ErrFormat, "does not take"},
		"too few bytes":          {one(`"F32"`, `[2,2]`, `[0,15]`, 15), ErrFormat, "does not take the 15 bytes"},
		"too many bytes":         {one(`"F32"`, `[2,2]`, `[0,17]`, 17), ErrFormat, "does not take the 17 bytes"},
		"negative offset":        {one(`"U8"`, `[1]`, `[-1,0]`, 1), ErrFormat, "not one of two offsets"},
		"offsets backwards":      {one(`"U8"`, `[1]`, `[1,0]`, 1), ErrFormat, "backwards"},
		"offset past the end":    {one(`"U8"`, `[2]`, `[0,2]`, 1), ErrFormat, "not one of two offsets"},
		"hole at the start":      {safetensorsFile("{"+u8("a", 1, 2)+"}", 2), ErrFormat, "hole of 1 bytes"},
		"hole between":           {safetensorsFile("{"+u8("b", 3, 4)+","+u8("a", 0, 1)+"}", 4), ErrFormat, "hole of 2 bytes"},
		"overlap":                {safetensorsFile("{"+u8("a", 0, 2)+","+u8("b", 1, 3)+"}", 3), ErrFormat, "overlaps"},
		"the same bytes twice":   {safetensorsFile("{"+u8("a", 0, 2)+","+u8("b", 0, 2)+"}", 2), ErrFormat, "overlaps"},
		"empty inside another":   {safetensorsFile("{"+u8("a", 0, 2)+","+u8("b", 1, 1)+"}", 2), ErrFormat, "overlaps"},
		"bytes at the end":       {safetensorsFile("{"+u8("a", 0, 2)+"}", 5), ErrFormat, "3 bytes after the last"},
		"a byte at the end":      {safetensorsFile("{"+u8("a", 0, 2)+"}", 3), ErrFormat, "1 bytes after the last"},
		"a zip at the end":       {append(safetensorsFile("{}", 0), "PK\x05\x06"...), ErrFormat, "4 bytes after the last"},
		"unknown dtype overlaps": {safetensorsFile("{"+u8("a", 0, 2)+
			`,"b":{"dtype":"F4","shape":[2],"data_offsets":[1,2]}}`, 2), ErrFormat, "overlaps"},
		"nested without end": {safetensorsFile(`{"a":{"x":`+strings.Repeat("[", 100_000), 0), ErrLimit, "nested"},
		"a long shape":       {one(`"U8"`, `[1`+strings.Repeat(",1", 2<<20)+`]`, `[0,1]`, 1), ErrLimit, "memory"},
		"many tensors":       {manyTensors(200_000), ErrLimit, "memory"},
		"a long name":        {safetensorsFile(`{"`+strings.Repeat("x", 5<<20)+`":{}}`, 0), ErrLimit, "longer than"},
	}
}

// manyTensors returns a right file of n empty tensors.
func manyTensors(n int) []byte {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"%x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}`, i)
	}
	return safetensorsFile("{"+b.String()[1:]+"}", 0)
}

func TestSafetensorsHostile(t *testing.T) {
	for name, c := range hostileSafetensors() {
		_, err := readSafetensors(t, c.file, Options{})
		if Class(err) != c.class || !strings.Contains(fmt.Sprint(err), c.says) {
			t.Errorf("%s: %v; want %v: …%s…", name, err, c.class, c.says)
		}
	}
}

func TestSafetensorsHeaderLimit(t *testing.T) {
	// A sparse file: the length alone must decide.
	path := filepath.Join(t.TempDir(), "big.safetensors")
	head := append(binary.LittleEndian.AppendUint64(nil, maxSafetensorsHeader+1), "{}"...)
	if err := os.WriteFile(path, head, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 200_000_000); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); !errors.Is(err, ErrLimit) || !strings.Contains(err.Error(), "100000001 bytes") {
		t.Errorf("%v", err)
	}
}

// TestSafetensorsMemory opens the largest files that pass and that fail: what stays must have been charged, and what
// is allocated on the way, garbage included, must not be out of proportion.
func TestSafetensorsMemory(t *testing.T) {
	for name, file := range map[string][]byte{
		"30,000 tensors": manyTensors(30_000), "200,000 tensors": manyTensors(200_000),
		"a long shape": hostileSafetensors()["a long shape"].file,
	} {
		var before, after, later goruntime.MemStats
		ckpt := &Checkpoint{}
		o := newOpener(t.Context(), "x", Options{})
		goruntime.GC()
		goruntime.ReadMemStats(&before)
		err := o.openSafetensors(ckpt, bytesSource(file))
		goruntime.ReadMemStats(&after)
		goruntime.GC()
		goruntime.ReadMemStats(&later)
		if live := int64(later.HeapAlloc) - int64(before.HeapAlloc); live > o.meter.Used() {
			t.Errorf("%s: %d bytes stay, %d were charged", name, live, o.meter.Used())
		}
		if total := after.TotalAlloc - before.TotalAlloc; total > 3*DefaultMemoryBytes {
			t.Errorf("%s: %d bytes were allocated", name, total)
		}
		if (err == nil) != (name == "30,000 tensors") || len(ckpt.Weights) < 30_000 && name != "a long shape" {
			t.Errorf("%s: %d weights, %v", name, len(ckpt.Weights), err)
		}
	}
}

// TestSafetensorsReadsNoWeight counts what opening reads.
func TestSafetensorsReadsNoWeight(t *testing.T) {
	file := safetensorsFile(`{"a":{"dtype":"U8","shape":[100000],"data_offsets":[0,100000]}}`, 100_000)
	src := &countingSource{bytesSource: file}
	o := newOpener(t.Context(), "x", Options{})
	if err := o.openSafetensors(&Checkpoint{}, src); err != nil {
		t.Fatal(err)
	}
	if limit := int64(len(file) - 100_000); src.end > limit {
		t.Errorf("read up to byte %d; the header ends at %d", src.end, limit)
	}
}

type countingSource struct {
	bytesSource
	end int64
}

func (s *countingSource) ReadAt(ctx context.Context, p []byte, off int64) error {
	s.end = max(s.end, off+int64(len(p)))
	return s.bytesSource.ReadAt(ctx, p, off)
}

func TestSafetensorsCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := newOpener(ctx, "x", Options{}).openSafetensors(&Checkpoint{}, bytesSource(safetensorsFile("{}", 0)))
	if !errors.Is(err, context.Canceled) || Class(err) != nil {
		t.Errorf("%v", err)
	}
}

func FuzzSafetensors(f *testing.F) {
	f.Add(safetensorsFile(`{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]}} `, 8))
	f.Add(safetensorsFile("{"+u8Entry("a", 0, 1)+`,"b":{"dtype":"BOOL","shape":[],"data_offsets":[1,2]}}`, 2))
	for _, c := range hostileSafetensors() {
		if len(c.file) < 300 {
			f.Add(c.file)
		}
	}
	addFound(f, "FuzzSafetensors")
	f.Fuzz(func(t *testing.T, file []byte) {
		ckpt, err := readSafetensors(t, file, Options{Limits: Limits{MemoryBytes: 4 << 20}})
		if err != nil {
			if Class(err) == nil {
				t.Fatalf("an error without a class: %v", err)
			}
			return
		}
		covered := make([]bool, len(file))
		for _, w := range ckpt.Weights {
			if err := w.Check(); err != nil {
				t.Fatal(err)
			}
			e := w.Extent
			if e.Offset < 0 || e.Bytes < 0 || e.Offset+e.Bytes > int64(len(file)) || w.Bytes() != e.Bytes {
				t.Fatalf("%q is %v, %d bytes of a file of %d", w.Name, e, w.Bytes(), len(file))
			}
			for i := range covered[e.Offset : e.Offset+e.Bytes] {
				if covered[e.Offset+int64(i)] {
					t.Fatalf("byte %d belongs to two tensors", e.Offset+int64(i))
				}
				covered[e.Offset+int64(i)] = true
			}
		}
		begin := 8 + int(binary.LittleEndian.Uint64(file))
		if i := bytes.IndexByte(boolBytes(covered[begin:]), 0); i >= 0 && len(ckpt.Unreadable) == 0 {
			t.Fatalf("byte %d belongs to no tensor", begin+i)
		}
		if !json.Valid(file[8:begin]) {
			t.Fatal("encoding/json does not accept the header")
		}
	})
}

func boolBytes(bs []bool) []byte {
	p := make([]byte, len(bs))
	for i, b := range bs {
		if b {
			p[i] = 1
		}
	}
	return p
}
