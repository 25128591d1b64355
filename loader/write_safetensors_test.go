package loader

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"strings"
	"testing"

	"github.com/optimem/optimem/tensor"
)

func TestWriteSafetensors(t *testing.T) {
	content := func(s string) func(context.Context, []byte, int64) error { return memory(s).ReadAt }
	var out bytes.Buffer
	err := WriteSafetensors(t.Context(), &out, []TensorData{
		{Name: "b", DType: tensor.Int8, Shape: tensor.Shape{3}, ReadAt: content("bcd")},
		{Name: "z<\"", DType: tensor.Float32, Shape: tensor.Shape{}, ReadAt: content("zzzz")},
		{Name: "a", DType: tensor.Float32, Shape: tensor.Shape{1, 2}, ReadAt: content("aaaaAAAA")},
		{Name: "e", DType: tensor.Int64, Shape: tensor.Shape{0}},
		{Name: "s", DType: tensor.BFloat16, ReadAt: content("ss")},
	}, map[string]string{"format": "pt", "by": "a test"})
	if err != nil {
		t.Fatal(err)
	}
	const header = `{"__metadata__":{"by":"a test","format":"pt"},` +
		`"e":{"dtype":"I64","shape":[0],"data_offsets":[0,0]},` +
		`"a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},` +
		`"z<\"":{"dtype":"F32","shape":[],"data_offsets":[8,12]},` +
		`"s":{"dtype":"BF16","shape":[],"data_offsets":[12,14]},` +
		`"b":{"dtype":"I8","shape":[3],"data_offsets":[14,17]}}`
	padded := header + strings.Repeat(" ", -len(header)&7)
	want := string(binary.LittleEndian.AppendUint64(nil, uint64(len(padded)))) + padded + "aaaaAAAAzzzzssbcd"
	if out.String() != want {
		t.Errorf("wrote\n%q, want\n%q", out.String(), want)
	}
}

func TestWriteSafetensorsRefuses(t *testing.T) {
	if err := WriteSafetensors(t.Context(), io.Discard, []TensorData{
		{Name: "__metadata__", DType: tensor.Int8, Shape: tensor.Shape{0}},
	}, nil); err == nil {
		t.Error("a tensor named as the metadata is accepted")
	}
	if err := WriteSafetensors(t.Context(), io.Discard, nil, map[string]string{"a": "\xff"}); err == nil {
		t.Error("metadata that is not UTF-8 is accepted")
	}
}

// The reference library reads what is written, and writes the same bytes itself.
func TestSafetensorsEqualsReference(t *testing.T) {
	var list []TensorData
	for _, d := range oneOfEach() {
		if d.DType != tensor.Complex32 && d.DType != tensor.Complex128 {
			list = append(list, d)
		}
	}
	path := createFile(t, "written.safetensors", func(w io.Writer) error {
		return WriteSafetensors(t.Context(), w, list, map[string]string{"format": "pt"})
	})
	got := python(t, []string{"torch", "safetensors"}, `
import sys, torch, safetensors.torch
raw = open(sys.argv[1], "rb").read()
d = safetensors.torch.load_file(sys.argv[1])
assert safetensors.torch.save(d, {"format": "pt"}) == raw, "the reference library writes other bytes"
d = {name: d[name] for name in sys.argv[2].split()}
`+printTensors, path, strings.Join(names(list), " "))
	if want := listing(t, list); got != want {
		t.Errorf("the reference library sees\n%swant\n%s", got, want)
	}
}

func names(list []TensorData) []string {
	var names []string
	for _, d := range list {
		names = append(names, d.Name)
	}
	return names
}
