package exported

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/optimem/optimem/loader/internal/fault"
	"github.com/optimem/optimem/tensor"
)

// changed is the small program with pieces replaced: old, new, old, new, …
func changed(t testing.TB, pieces ...string) string {
	t.Helper()
	doc := small
	for i := 0; i < len(pieces); i += 2 {
		if !strings.Contains(doc, pieces[i]) {
			t.Fatalf("the program has no %s", pieces[i])
		}
		doc = strings.Replace(doc, pieces[i], pieces[i+1], 1)
	}
	return doc
}

func decodeChanged(t testing.TB, pieces ...string) *Program {
	t.Helper()
	return decode(t, []byte(changed(t, pieces...)))
}

// metaOfX is what the program says of x with pieces of its description replaced.
func metaOfX(t testing.TB, pieces ...string) *TensorMeta {
	t.Helper()
	meta := metaX
	for i := 0; i < len(pieces); i += 2 {
		meta = strings.Replace(meta, pieces[i], pieces[i+1], 1)
	}
	return decodeChanged(t, `"x":`+metaX, `"x":`+meta).Graph.TensorValues["x"]
}

// argumentOf returns the argument that takes the place of relu's.
func argumentOf(t testing.TB, arg string) Argument {
	t.Helper()
	return decodeChanged(t, `{"as_tensor":{"name":"x"}},"kind"`, arg+`,"kind"`).Graph.Nodes[0].Inputs[0].Arg
}

// The numbers of dtypes, layouts and memory formats are those that PyTorch writes.
func TestNumbersAreWhatPyTorchWrites(t *testing.T) {
	text, err := os.ReadFile("testdata/numbers.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		DTypes, Layouts map[string]int64
		MemoryFormats   map[string]int64 `json:"memory_formats"`
	}
	if err := json.Unmarshal(text, &golden); err != nil {
		t.Fatal(err)
	}
	if len(golden.DTypes) < 15 || len(golden.Layouts) < 7 || len(golden.MemoryFormats) < 4 {
		t.Fatalf("only %+v", golden)
	}
	for name, n := range golden.DTypes {
		number := strconv.FormatInt(n, 10)
		want, ok := tensor.ParseDType(name)
		if m := metaOfX(t, `"dtype":7`, `"dtype":`+number); !ok || m.DType != want || m.ScalarType != n {
			t.Errorf("dtype number %s is %v, PyTorch's is %s", number, m.DType, name)
		}
		if got := argumentOf(t, `{"as_scalar_type":`+number+`}`).DType(); got != want {
			t.Errorf("argument of dtype number %s is %v, PyTorch's is %s", number, got, name)
		}
	}
	for name, n := range golden.Layouts {
		number := strconv.FormatInt(n, 10)
		if m := metaOfX(t, `"layout":7`, `"layout":`+number); m.Layout.String() != name {
			t.Errorf("layout number %s is %v, PyTorch's is %s", number, m.Layout, name)
		}
	}
	formats := map[string]MemoryFormat{
		"contiguous_format": ContiguousFormat, "channels_last": ChannelsLast, "channels_last_3d": ChannelsLast3d,
		"preserve_format": PreserveFormat,
	}
	for name, n := range golden.MemoryFormats {
		a := argumentOf(t, `{"as_memory_format":`+strconv.FormatInt(n, 10)+`}`)
		if got, ok := formats[name]; !ok || MemoryFormat(a.Int) != got {
			t.Errorf("memory format number %d is %d, PyTorch's is %s", n, a.Int, name)
		}
	}
}

// Every field of a tensor's description counts, and each for itself.
func TestTensorMetaFields(t *testing.T) {
	m := metaOfX(t, `"sizes":[{"as_int":2}]`, `"sizes":[{"as_int":4},{"as_int":3}]`,
		`"strides":[{"as_int":1}]`, `"strides":[{"as_int":1},{"as_int":4}]`,
		`"storage_offset":{"as_int":0}`, `"storage_offset":{"as_int":5}`,
		`"requires_grad":false`, `"requires_grad":true`, `"index":null`, `"index":3`)
	want := &TensorMeta{
		DType: tensor.Float32, Layout: Strided, RequiresGrad: true, ScalarType: 7, Sizes: []SymInt{{Int: 4}, {Int: 3}},
		Strides: []SymInt{{Int: 1}, {Int: 4}}, StorageOffset: SymInt{Int: 5}, Device: Device{Type: "cpu", Index: 3},
	}
	if diff := cmp.Diff(want, m); diff != "" {
		t.Error(diff)
	}
	if m := metaOfX(t); m.RequiresGrad || m.Device.Index != -1 {
		t.Errorf("without an index and a gradient: %+v", m)
	}
	for _, device := range []string{`"device":{"type":"cpu"}`, `"device":{"type":"cpu","index":null}`} {
		if m := metaOfX(t, `"device":{"type":"cpu","index":null}`, device); m.Device.Index != -1 {
			t.Errorf("%s has the index %d", device, m.Device.Index)
		}
		a := argumentOf(t, `{"as_device":`+strings.TrimPrefix(device, `"device":`)+`}`)
		if a.Data != (Device{Type: "cpu", Index: -1}) {
			t.Errorf("the argument %s is %+v", device, a.Data)
		}
	}
	// A sparse tensor has no strides to agree with its sizes.
	m = metaOfX(t, `"layout":7`, `"layout":1`, `"strides":[{"as_int":1}]`, `"strides":[]`)
	if m.Layout != SparseCOO || len(m.Sizes) != 1 || m.Strides != nil {
		t.Errorf("sparse: %+v", m)
	}
}

func TestTensorMetaRefused(t *testing.T) {
	many := func(n int, each ...string) string {
		return strings.TrimSuffix(strings.Repeat(`{"as_int":`+append(each, "1")[0]+`},`, n), ",")
	}
	dims := func(n int) string {
		meta := strings.Replace(metaX, `[{"as_int":2}]`, `[`+many(n)+`]`, 1)
		return strings.Replace(meta, `[{"as_int":1}]`, `[`+many(n)+`]`, 1)
	}
	if _, err := Decode(strings.NewReader(changed(t, `"x":`+metaX, `"x":`+dims(64))), Options{}); err != nil {
		t.Errorf("64 dimensions: %v", err)
	}
	for _, test := range []struct {
		meta  string
		class error
	}{
		{dims(65), fault.ErrLimit},
		{strings.Replace(metaX, `"strides":[{"as_int":1}],`, ``, 1), fault.ErrFormat},
		{strings.Replace(metaX, `"sizes":[{"as_int":2}],`, ``, 1), fault.ErrFormat},
		{strings.Replace(strings.Replace(metaX, `"strides":[{"as_int":1}],`, ``, 1), `[{"as_int":2}]`, `[]`, 1), fault.ErrFormat},
		{strings.Replace(metaX, `"dtype":7,`, ``, 1), fault.ErrFormat},
		{strings.Replace(metaX, `"strides":[{"as_int":1}]`, `"strides":[{"as_int":1},{"as_int":1}]`, 1), fault.ErrFormat},
		{strings.Replace(metaX, `"dtype":7`, `"dtype":99`, 1), fault.ErrUnsupported},
		{strings.Replace(metaX, `"dtype":7`, `"dtype":0`, 1), fault.ErrUnsupported},
		// 2^61 elements are a number, 2^63 bytes are none; nor are 2^32 times 2^30 elements of 4 bytes.
		{strings.Replace(metaX, `[{"as_int":2}]`, `[{"as_int":2305843009213693952}]`, 1), fault.ErrFormat},
		{strings.Replace(strings.Replace(metaX, `[{"as_int":2}]`, `[{"as_int":4294967296},{"as_int":1073741824}]`, 1),
			`[{"as_int":1}]`, `[{"as_int":1},{"as_int":1}]`, 1), fault.ErrFormat},
		{strings.Replace(dims(3), many(3), many(3, "2097152"), 1), fault.ErrFormat},
	} {
		_, err := Decode(strings.NewReader(changed(t, `"x":`+metaX, `"x":`+test.meta)), Options{})
		if !errors.Is(err, test.class) {
			t.Errorf("%.200s: %v, want %v", test.meta, err, test.class)
		}
	}
}

// Every kind of argument keeps what it holds.
func TestArgumentValues(t *testing.T) {
	syms := `"sym_int_values":{"n":{"as_int":4}},"sym_float_values":{"f":{"as_float":0.5}},`
	for arg, want := range map[string]Argument{
		`{"as_none":true}`:                               {Tag: None},
		`{"as_int":-9223372036854775808}`:                {Tag: Int, Int: math.MinInt64},
		`{"as_float":0.1}`:                               {Tag: Float, Float: 0.1},
		`{"as_float":1}`:                                 {Tag: Float, Float: 1},
		`{"as_float":"Infinity"}`:                        {Tag: Float, Float: math.Inf(1)},
		`{"as_float":"-Infinity"}`:                       {Tag: Float, Float: math.Inf(-1)},
		`{"as_float":-Infinity}`:                         {Tag: Float, Float: math.Inf(-1)},
		`{"as_floats":[1.5,"-Infinity"]}`:                {Tag: Floats, Data: []float64{1.5, math.Inf(-1)}},
		`{"as_bool":true}`:                               {Tag: Bool, Int: 1},
		`{"as_bool":false}`:                              {Tag: Bool},
		`{"as_bools":[true,false]}`:                      {Tag: Bools, Data: []bool{true, false}},
		`{"as_int_lists":[[1,2],[3]]}`:                   {Tag: IntLists, Data: [][]int64{{1, 2}, {3}}},
		`{"as_strings":["a",""]}`:                        {Tag: Strings, Data: []string{"a", ""}},
		`{"as_complex":{"real":1.0,"imag":-2.0}}`:        {Tag: Complex, Data: complex(1, -2)},
		`{"as_sym_int":{"as_int":7}}`:                    {Tag: SymbolicInt, Int: 7},
		`{"as_sym_int":{"as_name":"n"}}`:                 {Tag: SymbolicInt, Name: "n"},
		`{"as_sym_float":{"as_float":2.5}}`:              {Tag: SymbolicFloat, Float: 2.5},
		`{"as_sym_float":{"as_name":"f"}}`:               {Tag: SymbolicFloat, Name: "f"},
		`{"as_sym_bool":{"as_bool":true}}`:               {Tag: SymbolicBool, Int: 1},
		`{"as_sym_bool":{"as_bool":false}}`:              {Tag: SymbolicBool},
		`{"as_sym_bools":[{"as_bool":true}]}`:            {Tag: SymbolicBools, Data: []Sym{{Int: 1}}},
		`{"as_sym_floats":[{"as_float":0.25}]}`:          {Tag: SymbolicFloats, Data: []Sym{{Float: 0.25}}},
		`{"as_sym_ints":[{"as_name":"n"},{"as_int":3}]}`: {Tag: SymbolicInts, Data: []Sym{{Name: "n"}, {Int: 3}}},
		`{"as_optional_tensors":[{"as_none":true},{"as_tensor":{"name":"x"}}]}`: {
			Tag: OptionalTensors, Data: []string{"", "x"}},
		`{"as_optional_tensor":{"as_none":true}}`: {Tag: OptionalTensor},
		`{"as_ints":[1,2,3,4,5,6,7,8,9,10]}`:      {Tag: Ints, Data: []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}},
		`{"as_string_to_argument":{"b":{"as_int":1},"a":{"as_tensor":{"name":"x"}}}}`: {
			Tag: Dict, Data: []NamedArgument{
				{Name: "b", Arg: Argument{Tag: Int, Int: 1}}, {Name: "a", Arg: Argument{Tag: Tensor, Name: "x"}},
			}},
	} {
		p := decodeChanged(t, `{"as_tensor":{"name":"x"}},"kind"`, arg+`,"kind"`, `"sym_int_values":{},`, syms,
			`{"as_tensor":{"name":"x"}}],"outputs"`, `{"as_tensor":{"name":"x"}},{"as_sym_int":{"as_name":"n"}},`+
				`{"as_sym_float":{"as_name":"f"}}],"outputs"`,
			`{"user_input":{"arg":{"as_tensor":{"name":"x"}}}}`, `{"user_input":{"arg":{"as_tensor":{"name":"x"}}}},`+
				`{"user_input":{"arg":{"as_sym_int":{"as_name":"n"}}}},{"user_input":{"arg":{"as_sym_float":{"as_name":"f"}}}}`)
		if diff := cmp.Diff(want, p.Graph.Nodes[0].Inputs[0].Arg); diff != "" {
			t.Errorf("%s: %s", arg, diff)
		}
	}
	if a := argumentOf(t, `{"as_float":"NaN"}`); !math.IsNaN(a.Float) {
		t.Errorf("NaN is %g", a.Float)
	}
}

func TestArgumentsRefused(t *testing.T) {
	for _, arg := range []string{
		`{"as_float":"infinite"}`, `{"as_float":""}`, `{"as_float":true}`, `{"as_int":1.5}`, `{"as_bool":1}`,
		`{"as_sym_int":{"as_name":""}}`, `{"as_sym_int":{}}`, `{"as_tensor":{}}`, `{"as_graph":{"name":"g"}}`,
		`{"as_string_to_argument":{"a":{"as_tensor":{"name":"z"}}}}`,
		`{"as_string_to_argument":{"a":{"as_tensor":{"name":""}}}}`,
		`{"as_nested_tensors":[[{"name":"z"}]]}`, `{"as_sym_ints":[{"as_int":1},{"as_name":"z"}]}`,
		`{"as_int":1,"as_float":1.0}`, `{"as_int":null}`,
	} {
		doc := changed(t, `{"as_tensor":{"name":"x"}},"kind"`, arg+`,"kind"`)
		if p, err := Decode(strings.NewReader(doc), Options{}); !errors.Is(err, fault.ErrFormat) || p != nil {
			t.Errorf("%s: %v", arg, err)
		}
	}
}

// A newer minor version only adds fields; a program says no version of PyTorch before 2.5.
func TestVersions(t *testing.T) {
	p := decodeChanged(t, `"minor":1`, `"minor":9999,"patch":1`, `"schema_version"`, `"news":[1,{"a":2}],"schema_version"`)
	if p.SchemaVersion != (Version{8, 9999}) {
		t.Errorf("version %v", p.SchemaVersion)
	}
	for text, want := range map[string]string{"<=2.4": "", "2.7.1": "2.7.1"} {
		p := decodeChanged(t, `"schema_version"`, `"torch_version":"`+text+`","schema_version"`)
		if p.TorchVersion != want {
			t.Errorf("torch %q is %q", text, p.TorchVersion)
		}
	}
}

func TestRanges(t *testing.T) {
	const least, most = math.MinInt64, math.MaxInt64
	for text, want := range map[string]Range{
		`{"min_val":2,"max_val":9}`:                {"s0", 2, 9},
		`{"min_val":4,"max_val":4}`:                {"s0", 4, 4},
		`{"min_val":-3,"max_val":0}`:               {"s0", -3, 0},
		`{"min_val":null,"max_val":9}`:             {"s0", least, 9},
		`{"min_val":2,"max_val":null}`:             {"s0", 2, most},
		`{}`:                                       {"s0", least, most},
		`{"min_val":2.0,"max_val":9.0}`:            {"s0", 2, 9},
		`{"min_val":-1e300,"max_val":1e300}`:       {"s0", least, most},
		`{"min_val":-Infinity,"max_val":Infinity}`: {"s0", least, most},
		`{"min_val":-9223372036854775808.0,"max_val":9223372036854775807.0}`: {"s0", least, most},
		`{"min_val":-9223372036854775808,"max_val":9223372036854775807}`:     {"s0", least, most},
		`{"min_val":-99999999999999999999,"max_val":99999999999999999999}`:   {"s0", least, most},
		`{"min_val":9007199254740993,"max_val":9007199254740993}`:            {"s0", 9007199254740993, 9007199254740993},
	} {
		p := decodeChanged(t, `"range_constraints":{}`, `"range_constraints":{"s0":`+text+`}`)
		if diff := cmp.Diff([]Range{want}, p.Ranges); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
	}
	for _, text := range []string{
		`{"min_val":2.5}`, `{"max_val":-0.5}`, `{"min_val":NaN}`, `{"min_val":9,"max_val":8}`, `{"min_val":"2"}`, `2`,
	} {
		doc := changed(t, `"range_constraints":{}`, `"range_constraints":{"s0":`+text+`}`)
		if _, err := Decode(strings.NewReader(doc), Options{}); !errors.Is(err, fault.ErrFormat) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
