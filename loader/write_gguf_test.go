package loader

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/optimem/optimem/tensor"
	"github.com/optimem/optimem/tensor/encoded"
)

// TestLayOutGGUF: what is laid out is read back, with every kind of key, and tensors have the bytes that were written
// to their places.
func TestLayOutGGUF(t *testing.T) {
	q4, _ := encoded.ByName("Q4_0")
	f32, _ := encoded.ByName("F32")
	keys := []GGUFKey{
		{"general.architecture", "nobody's"}, {"a.number", uint32(7)}, {"a.signed", int32(-3)}, {"a.large", uint64(1 << 40)},
		{"a.fraction", float32(0.25)}, {"a.flag", true}, {"names", []string{"x", "", "ß"}}, {"kinds", []int32{1, -2, 3}},
		{"scores", []float32{1, -0.5}},
	}
	tensors := []GGUFTensor{
		{"one", q4, tensor.Shape{3, 64}}, {"two", f32, tensor.Shape{5}}, {"three", f32, tensor.Shape{2, 3}},
	}
	head, offsets, size, err := LayOutGGUF(keys, tensors)
	if err != nil {
		t.Fatal(err)
	}
	file := append(head, bytes.Repeat([]byte{0}, int(size)-len(head))...)
	for i := range tensors {
		n, err := tensors[i].Bytes()
		if err != nil || offsets[i]%32 != 0 {
			t.Fatalf("%d bytes at %d, %v", n, offsets[i], err)
		}
		for k := range n {
			file[offsets[i]+k] = byte(i + 1)
		}
	}
	path := filepath.Join(t.TempDir(), "a.gguf")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	ckpt, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer ckpt.Close()
	for _, k := range keys {
		if got := ckpt.Metadata[k.Name]; !reflect.DeepEqual(got, k.Value) {
			t.Errorf("%s is %v, not %v", k.Name, got, k.Value)
		}
	}
	for i, x := range tensors {
		w, ok := ckpt.Weight(x.Name)
		if !ok || !w.Layout.Shape.Equal(x.Shape) {
			t.Fatalf("%s has the shape %v", x.Name, w.Layout.Shape)
		}
		if x.Encoding == q4 {
			continue
		}
		raw := make([]byte, w.Bytes())
		if err := w.Extent.ReadAt(t.Context(), raw, 0); err != nil || !bytes.Equal(raw, bytes.Repeat([]byte{byte(i + 1)}, len(raw))) {
			t.Errorf("%s: other bytes, %v", x.Name, err)
		}
	}
	for _, bad := range []GGUFTensor{
		{"x", q4, tensor.Shape{2, 33}}, {"x", f32, tensor.Shape{1, 1, 1, 1, 1}}, {"\xff", f32, tensor.Shape{1}},
		{"x", f32, tensor.Shape{1 << 40, 1 << 40}},
	} {
		if _, _, _, err := LayOutGGUF(nil, []GGUFTensor{bad}); err == nil {
			t.Errorf("%v was laid out", bad)
		}
	}
	if _, _, _, err := LayOutGGUF([]GGUFKey{{"x", 1.5}}, nil); err == nil {
		t.Error("a float64 was laid out")
	}
}
