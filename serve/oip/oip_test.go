package oip

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/optimem/optimem/tensor"
)

// parse parses a body that ends in bytes of tensors behind its JSON.
func parse(head, tail string) (*Request, error) {
	if tail == "" {
		return Parse([]byte(head), NoHeader, Limits{})
	}
	return Parse([]byte(head+tail), len(head), Limits{})
}

func input(datatype, shape, data string) string {
	return fmt.Sprintf(`{"inputs":[{"data":%s,"name":"x","shape":%s,"datatype":%q}]}`, data, shape, datatype)
}

// TestElements: numbers of each datatype become the elements that they are, nested or not.
func TestElements(t *testing.T) {
	for _, c := range []struct {
		datatype, shape, data string
		want                  []byte
	}{
		{"BOOL", "[4]", "[true, false, 1, 0]", []byte{1, 0, 1, 0}},
		{"UINT8", "[2]", "[0, 255]", []byte{0, 255}},
		{"INT8", "[2]", "[-128, 127]", []byte{128, 127}},
		{"UINT16", "[1]", "[65535]", []byte{255, 255}},
		{"INT16", "[1]", "[-2]", []byte{254, 255}},
		{"INT32", "[2,1]", "[[1],[-1]]", []byte{1, 0, 0, 0, 255, 255, 255, 255}},
		{"UINT32", "[1]", "[4294967295]", []byte{255, 255, 255, 255}},
		{"INT64", "[1]", "[-9223372036854775808]", []byte{0, 0, 0, 0, 0, 0, 0, 128}},
		{"UINT64", "[1]", "[18446744073709551615]", []byte{255, 255, 255, 255, 255, 255, 255, 255}},
		{"FP32", "[1,1,2]", "[[[1.5,-1e0]]]", []byte{0, 0, 192, 63, 0, 0, 128, 191}},
		{"FP32", "[2]", "[Infinity, -Infinity]", []byte{0, 0, 128, 127, 0, 0, 128, 255}},
		{"FP64", "[]", "[1]", []byte{0, 0, 0, 0, 0, 0, 240, 63}},
		{"FP16", "[1]", "[1]", []byte{0, 60}},
		{"BF16", "[1]", "[1]", []byte{128, 63}},
		{"FP32", "[0, 7]", "[]", []byte{}},
	} {
		r, err := parse(input(c.datatype, c.shape, c.data), "")
		if err != nil {
			t.Errorf("%s %s: %v", c.datatype, c.data, err)
			continue
		}
		if got := r.Inputs[0].Tensor; string(got.Data) != string(c.want) || got.DType != DType(c.datatype) {
			t.Errorf("%s %s: %v, not %v", c.datatype, c.data, got.Data, c.want)
		}
	}
}

// TestRefused: each of these says where it is wrong, and none of them is read as something else.
func TestRefused(t *testing.T) {
	deep := strings.Repeat("[", 40) + strings.Repeat("]", 40)
	for _, c := range []struct{ head, tail, want string }{
		{``, "", "'{' expected"},
		{`{}`, "", "inputs: missing"},
		{`{"inputs":[]} x`, "", "follows"},
		{`{"inputs":[],"inputs":[]}`, "", "twice"},
		{`{"inputs":[],"x":` + deep + `}`, "", "nested"},
		{`{"inputs":[],"id":"` + "\x01" + `"}`, "", "control character"},
		{`{"inputs":[],"id":"\ud8"}`, "", "escape"},
		{`{"inputs":[],"id":"` + "\xff" + `"}`, "", "UTF-8"},
		{`{"inputs":[],"parameters":{"a":1e999}}`, "", "out of range"},
		{`{"inputs":[],"parameters":{"a":+1}}`, "", "a value expected"},
		{`{"inputs":[],"parameters":{"a":01}}`, "", "a value expected"},
		{`{"inputs":[{"name":"x","shape":[1],"datatype":"FP32"}]}`, "", "no data"},
		{`{"inputs":[{"shape":[1],"datatype":"FP32","data":[1]}]}`, "", "no name"},
		{`{"inputs":[{"name":"x","datatype":"FP32","data":[1]}]}`, "", "no shape"},
		{`{"inputs":[{"name":"x","shape":[1],"datatype":"FP8","data":[1]}]}`, "", "unknown"},
		{input("FP32", "[2]", "[1]"), "", "1 elements"},
		{input("FP32", "[1]", "[1,2]"), "", "more than"},
		{input("FP32", "[1]", `["1"]`), "", "a string"},
		{input("FP32", "[1]", "[1e39]"), "", "out of range"},
		{input("INT8", "[1]", "[128]"), "", "out of range"},
		{input("INT32", "[1]", "[1.5]"), "", "whole number"},
		{input("INT32", "[1]", "[0x1]"), "", "a value expected"},
		{input("UINT8", "[1]", "[-1]"), "", "whole number"},
		{input("BOOL", "[1]", "[2]"), "", "neither"},
		{input("FP32", "[-1]", "[]"), "", "no dimension"},
		{input("FP32", "[4294967296]", "[]"), "", "no dimension"},
		{input("FP32", "[2147483647,2147483647,2147483647]", "[]"), "", "shape"},
		{input("FP32", "[100000000]", "[]"), "", "more bytes"},
		{input("FP32", "[1000]", "[1]"), "", "more elements than the data"},
		{input("FP32", "["+strings.TrimSuffix(strings.Repeat("1,", 17), ",")+"]", "[1]"), "", "dimensions"},
		{input("BYTES", "[1]", "[1]"), "", "expected"},
		{`{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","parameters":{"binary_data_size":4}}]}`, "abc", "3 bytes are left"},
		{`{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","parameters":{"binary_data_size":4}}]}`, "abcde", "follow"},
		{`{"inputs":[{"name":"x","shape":[2],"datatype":"FP32","parameters":{"binary_data_size":4}}]}`, "abcd", "takes 8"},
		{`{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","parameters":{"binary_data_size":-4}}]}`, "abcd", "binary_data_size"},
		{`{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1],"parameters":{"binary_data_size":4}}]}`, "abcd", "both"},
		{`{"inputs":[{"name":"x","shape":[1],"datatype":"BOOL","parameters":{"binary_data_size":1}}]}`, "\x02", "BOOL"},
		{`{"inputs":[{"name":"x","shape":[1],"datatype":"BYTES","parameters":{"binary_data_size":4}}]}`, "\xff\xff\xff\xff", "are left"},
		{`{"inputs":[{"name":"x","shape":[9],"datatype":"BYTES","parameters":{"binary_data_size":4}}]}`, "\x00\x00\x00\x00", "9 elements"},
		{`{"inputs":[{"name":"x","shape":[1],"datatype":"BYTES","parameters":{"binary_data_size":8}}]}`, "\x00\x00\x00\x00\x00\x00\x00\x00", "not those"},
	} {
		_, err := parse(c.head, c.tail)
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.120s: %v, which has not %q", c.head, err, c.want)
		}
	}
	if _, err := Parse([]byte("{}"), 3, Limits{}); err == nil {
		t.Error("a header longer than the body is taken")
	}
	many := `{"inputs":[` + strings.Repeat(`{"name":"x","shape":[0],"datatype":"FP32","data":[]},`, 256) + `{"name":"x","shape":[0],"datatype":"FP32","data":[]}]}`
	if _, err := parse(many, ""); err == nil || !strings.Contains(err.Error(), "more than 256") {
		t.Errorf("257 inputs: %v", err)
	}
}

// TestTensorsTogether: what tensors take together is bounded, also where each by itself is small.
func TestTensorsTogether(t *testing.T) {
	one := `{"name":"x","shape":[4],"datatype":"FP32","data":[1,2,3,4]}`
	body := `{"inputs":[` + one + `,` + one + `]}`
	if _, err := Parse([]byte(body), NoHeader, Limits{TensorBytes: 32}); err != nil {
		t.Error(err)
	}
	if _, err := Parse([]byte(body), NoHeader, Limits{TensorBytes: 31}); err == nil {
		t.Error("two tensors of 16 bytes in 31")
	}
}

// TestTexts: escapes are what JSON says, and bytes behind the JSON are taken as they are.
func TestTexts(t *testing.T) {
	r, err := parse(input("BYTES", "[4]", `["a", "\u00e9\n\"", "\ud83d\ude00", "\ud83d"]`), "")
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%q", r.Inputs[0].Texts); got != `["a" "é\n\"" "😀" "�"]` {
		t.Error(got)
	}
	r, err = parse(`{"inputs":[{"name":"x","shape":[2],"datatype":"BYTES","parameters":{"binary_data_size":9}}]}`, "\x00\x00\x00\x00\x01\x00\x00\x00\xff")
	if err != nil || len(r.Inputs[0].Texts[0]) != 0 || string(r.Inputs[0].Texts[1]) != "\xff" {
		t.Error(r, err)
	}
}

// TestWants: which outputs are asked for, and how, as the extension has it.
func TestWants(t *testing.T) {
	for text, want := range map[string]string{
		`{"inputs":[]}`: "true false", `{"inputs":[],"parameters":{"binary_data_output":true}}`: "true true",
		`{"inputs":[],"outputs":[{"name":"y"}]}`: "true false", `{"inputs":[],"outputs":[{"name":"z"}]}`: "false false",
		`{"inputs":[],"outputs":[{"name":"y","parameters":{"binary_data":true}}]}`:                                           "true true",
		`{"inputs":[],"parameters":{"binary_data_output":true},"outputs":[{"name":"y","parameters":{"binary_data":false}}]}`: "true false",
	} {
		r, err := parse(text, "")
		if err != nil {
			t.Fatal(err)
		}
		wanted, binary := r.Wants("y")
		if got := fmt.Sprint(wanted, binary); got != want {
			t.Errorf("%s: %s, not %s", text, got, want)
		}
	}
}

// TestResponse: what is written is read again as the same bits, by JSON's own reader where it has words for it.
func TestResponse(t *testing.T) {
	floats := []float32{0, float32(math.Copysign(0, -1)), 1.1, 1e-45, math.MaxFloat32, -3}
	r := &Response{Model: `a"b`, Version: "1", ID: "7", Outputs: []Output{
		{Name: "y", Tensor: tensor.Of(floats, 2, 3)}, {Name: "t", Texts: [][]byte{[]byte("é")}, Shape: tensor.Shape{1}},
		{Name: "b", Tensor: tensor.Of([]bool{true, false}, 2)}, {Name: "i", Tensor: tensor.Of([]int64{math.MinInt64}, 1)},
	}}
	var text strings.Builder
	if err := r.WriteJSON(&text); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Name    string `json:"model_name"`
		ID      string `json:"id"`
		Outputs []struct {
			Name, Datatype string
			Shape          []int
			Data           json.RawMessage
		} `json:"outputs"`
	}
	if err := json.Unmarshal([]byte(text.String()), &got); err != nil {
		t.Fatal(err, text.String())
	}
	var list []float32
	if err := json.Unmarshal(got.Outputs[0].Data, &list); err != nil {
		t.Fatal(err)
	}
	for i, f := range list {
		if math.Float32bits(f) != math.Float32bits(floats[i]) {
			t.Errorf("%g became %g", floats[i], f)
		}
	}
	if got.Name != `a"b` || got.ID != "7" || fmt.Sprint(got.Outputs[0].Shape) != "[2 3]" || got.Outputs[1].Datatype != "BYTES" ||
		string(got.Outputs[1].Data) != `["é"]` || string(got.Outputs[2].Data) != "[true,false]" || string(got.Outputs[3].Data) != "[-9223372036854775808]" {
		t.Error(text.String())
	}
	bad := Output{Tensor: tensor.Of([]float32{float32(math.NaN()), float32(math.Inf(-1))}, 2)}
	text.Reset()
	if err := (&Response{Outputs: []Output{bad}}).WriteJSON(&text); err != nil || !strings.Contains(text.String(), "[NaN,-Infinity]") {
		t.Error(text.String(), err)
	}
	raw := Output{Texts: [][]byte{[]byte("ab"), nil}, Shape: tensor.Shape{2}}
	if string(raw.Raw()) != "\x02\x00\x00\x00ab\x00\x00\x00\x00" || raw.RawBytes() != 10 {
		t.Errorf("%q", raw.Raw())
	}
}

// checkParsed holds a request that was taken to what it says of itself.
func checkParsed(t *testing.T, r *Request, limits Limits) {
	total := int64(0)
	for _, in := range r.Inputs {
		n, err := in.Shape.NumElements()
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case in.Datatype == Bytes && int64(len(in.Texts)) != n, in.Datatype != Bytes && int64(len(in.Tensor.Data)) != n*int64(in.Tensor.DType.Size()):
			t.Fatalf("input %q of shape %v has other elements", in.Name, in.Shape)
		case in.Tensor != nil:
			total += int64(len(in.Tensor.Data))
		}
	}
	if total > limits.TensorBytes || len(r.Inputs) > limits.filled().Tensors {
		t.Fatalf("%d inputs of %d bytes", len(r.Inputs), total)
	}
}

func FuzzJSON(f *testing.F) {
	f.Add([]byte(input("FP32", "[1,2]", "[[1,2.5e3]]")))
	f.Add([]byte(input("BYTES", "[1]", `["a\ud83d\ude00"]`)))
	f.Add([]byte(`{"id":"1","parameters":{"a":null,"b":[{}]},"inputs":[],"outputs":[{"name":"y","parameters":{"binary_data":true}}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		limits := Limits{TensorBytes: 1 << 16}
		r, err := Parse(body, NoHeader, limits)
		if err == nil {
			checkParsed(t, r, limits)
			if !json.Valid(body) && !strings.Contains(string(body), "NaN") && !strings.Contains(string(body), "Infinity") {
				t.Fatalf("%q is no JSON, and taken", body)
			}
		}
	})
}

func FuzzBinary(f *testing.F) {
	head := `{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","parameters":{"binary_data_size":4}},` +
		`{"name":"t","shape":[2],"datatype":"BYTES","parameters":{"binary_data_size":9}}]}`
	f.Add([]byte(head+"\x00\x00\x00\x00\x01\x00\x00\x00a\x00\x00\x00\x00"), len(head))
	f.Add([]byte("raw"), 0)
	f.Fuzz(func(t *testing.T, body []byte, header int) {
		limits := Limits{TensorBytes: 1 << 16}
		if r, err := Parse(body, header, limits); err == nil {
			checkParsed(t, r, limits)
		}
	})
}

// TestAligned: elements behind a JSON of any length can be read as their dtype, and are not copied where that is so already.
func TestAligned(t *testing.T) {
	for pad := range 9 {
		head := `{"inputs":[{"name":"x","shape":[2],"datatype":"FP64","parameters":{"binary_data_size":16}}]` + strings.Repeat(" ", pad) + `}`
		body := append([]byte(head), "\x00\x00\x00\x00\x00\x00\xf0\x3f\x00\x00\x00\x00\x00\x00\x00\x40"...)
		r, err := Parse(body, len(head), Limits{})
		if err != nil {
			t.Fatal(err)
		}
		list, err := tensor.Slice[float64](r.Inputs[0].Tensor)
		if err != nil || list[0] != 1 || list[1] != 2 {
			t.Errorf("%d bytes of JSON: %v %v", len(head), list, err)
		}
		if same := &r.Inputs[0].Tensor.Data[0] == &body[len(head)]; same != (len(head)%8 == 0) {
			t.Errorf("%d bytes of JSON: shares the body's memory: %v", len(head), same)
		}
	}
}
