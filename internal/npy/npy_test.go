package npy

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/tensor"
)

// seen is what testdata/make_arrays.py recorded of an array.
type seen struct {
	DType, Bytes string
	Shape        []int
}

func recorded(t *testing.T) map[string]seen {
	t.Helper()
	text, err := os.ReadFile("testdata/arrays.json")
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]seen
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	if len(all) < 30 {
		t.Fatalf("%d arrays recorded", len(all))
	}
	return all
}

func read(data []byte) (*tensor.Tensor, error) {
	a, err := Open(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, err
	}
	return a.Read()
}

func TestReadAsNumPy(t *testing.T) {
	for name, want := range recorded(t) {
		file, array, inArchive := strings.Cut(name, ":")
		data, err := os.ReadFile("testdata/" + file)
		if err != nil {
			t.Fatal(err)
		}
		var got *tensor.Tensor
		if inArchive {
			got, err = readArchived(data, array)
		} else {
			got, err = read(data)
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		elements := hex.EncodeToString(got.Contiguous().Data)
		if got.DType.String() != want.DType || !slices.Equal(got.Layout.Shape, want.Shape) || elements != want.Bytes {
			t.Errorf("%s: %v %v %s, want %v", name, got.DType, got.Layout.Shape, elements, want)
		}
		if inArchive {
			continue
		}
		if over, err := Over(data); err != nil || over.DType != got.DType || !slices.Equal(over.Layout.Shape, got.Layout.Shape) ||
			!bytes.Equal(over.Contiguous().Data, got.Contiguous().Data) {
			t.Errorf("%s: over its bytes %v: %v", name, over, err)
		}
	}
}

func readArchived(data []byte, name string) (*tensor.Tensor, error) {
	z, err := OpenArchive(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, err
	}
	a, closer, err := z.Open(name)
	if err != nil {
		return nil, err
	}
	defer closer.Close()
	return a.Read()
}

// What NumPy wrote in its own order comes back to the byte.
func TestWriteAsNumPy(t *testing.T) {
	n := 0
	for name := range recorded(t) {
		if strings.ContainsAny(name, ":_") || strings.HasPrefix(name, "version") || name == "fortran.npy" {
			continue
		}
		want, err := os.ReadFile("testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		x, err := read(want)
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if err := Write(&got, x); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Bytes(), want) {
			t.Errorf("%s: wrote %q, NumPy %q", name, got.Bytes(), want)
		}
		n++
	}
	if n < 15 {
		t.Errorf("compared %d files", n)
	}
}

func TestWriteGathers(t *testing.T) {
	x := tensor.Of([]float32{1, 2, 3, 4, 5, 6}, 2, 3)
	x.Layout = tensor.Layout{Shape: tensor.Shape{3, 2}, Strides: []int{1, 3}}
	var b bytes.Buffer
	if err := Write(&b, x); err != nil {
		t.Fatal(err)
	}
	back, err := read(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	got, err := tensor.Slice[float32](back)
	if err != nil || !slices.Equal(got, []float32{1, 4, 2, 5, 3, 6}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, d := range []tensor.DType{tensor.BFloat16, tensor.Float8E5M2, tensor.Complex32, tensor.QInt8} {
		y := &tensor.Tensor{DType: d, Layout: tensor.Contiguous(0)}
		if err := Write(&b, y); !errors.Is(err, ErrUnsupported) {
			t.Errorf("%v: %v", d, err)
		}
	}
}

// file returns an array file of the given header.
func file(header string, elementBytes int) []byte {
	b := []byte(magic + "\x01\x00")
	b = binary.LittleEndian.AppendUint16(b, uint16(len(header)))
	b = append(b, header...)
	return append(b, make([]byte, elementBytes)...)
}

func TestHeaders(t *testing.T) {
	const good = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n"
	replace := func(from, to string) string {
		if !strings.Contains(good, from) {
			t.Fatalf("nothing to replace: %s", from)
		}
		return strings.Replace(good, from, to, 1)
	}
	for _, c := range []struct {
		header string
		bytes  int
		class  error
	}{
		{good, 8, nil},
		{`{"shape":(2,),"fortran_order":True,"descr":"<f4"}`, 8, nil},
		{replace("(2,)", "(2L, 1L)"), 8, nil},
		{replace("(2,)", "( 1 , 2 , )"), 8, nil},
		{replace("(2,)", "()"), 4, nil},
		{replace("<f4", "=f4"), 8, nil},
		{good, 7, ErrFormat},
		{good, 9, ErrFormat},
		{good, 0, ErrFormat},
		{replace("(2,)", "(4611686018427387904,)"), 8, ErrFormat},
		{replace("(2,)", "(4294967296, 4294967296)"), 8, ErrFormat},
		{replace("(2,)", "(9223372036854775808,)"), 8, ErrFormat},
		{replace("(2,)", "(-2,)"), 8, ErrFormat},
		{replace("(2,)", "(2)"), 8, ErrFormat},
		{replace("(2,)", "(2,"), 8, ErrFormat},
		{replace("(2,)", "[2]"), 8, ErrFormat},
		{replace("(2,)", "(2,2"), 8, ErrFormat},
		{replace("(2,)", "(2"), 8, ErrFormat},
		{replace("(2,)", "(,)"), 8, ErrFormat},
		{replace("(2,)", "(2,)*2"), 8, ErrFormat},
		{replace("(2,)", "("+strings.Repeat("1,", 65)+")"), 4, ErrFormat},
		{replace("False", "0"), 8, ErrFormat},
		{replace("'<f4'", "f4"), 8, ErrFormat},
		{replace("'<f4'", `'<f4\''`), 8, ErrFormat},
		{replace("'<f4'", "'<f4"), 8, ErrFormat},
		{replace("'descr'", "'shape'"), 8, ErrFormat},
		{replace("'descr'", "'dtype'"), 8, ErrFormat},
		{replace("{'descr': '<f4', ", "{"), 8, ErrFormat},
		{good + "x", 8, ErrFormat},
		{"", 8, ErrFormat},
		{"{", 8, ErrFormat},
		{"{}", 8, ErrFormat},
		{"__import__('os')", 8, ErrFormat},
		{replace("'<f4'", "''"), 8, ErrFormat},
		{replace("<f4", "|f4"), 8, ErrUnsupported},
		{replace("<f4", "|O"), 16, ErrUnsupported},
		{replace("<f4", "<U3"), 24, ErrUnsupported},
		{replace("<f4", "|V2"), 4, ErrUnsupported},
		{replace("<f4", "<M8[ns]"), 16, ErrUnsupported},
		{replace("<f4", "<f16"), 32, ErrUnsupported},
		{replace("'<f4'", "[('a', '<f4')]"), 8, ErrUnsupported},
	} {
		x, err := read(file(c.header, c.bytes))
		if !errors.Is(err, c.class) || (err == nil) != (c.class == nil) {
			t.Errorf("%q and %d bytes: %v, want %v", c.header, c.bytes, err, c.class)
		}
		if err == nil && len(x.Data) != c.bytes {
			t.Errorf("%q: %d bytes", c.header, len(x.Data))
		}
	}
}

func TestFilesThatLie(t *testing.T) {
	good := file("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n", 8)
	for n := range good {
		if _, err := read(good[:n]); !errors.Is(err, ErrFormat) {
			t.Errorf("the first %d bytes: %v", n, err)
		}
	}
	version := slices.Clone(good)
	version[6] = 4
	if _, err := read(version); !errors.Is(err, ErrUnsupported) {
		t.Errorf("version 4: %v", err)
	}
	long := append([]byte(magic+"\x02\x00\xff\xff\xff\xff"), good...)
	if _, err := read(long); !errors.Is(err, ErrFormat) {
		t.Errorf("a header of 4 GiB: %v", err)
	}
	bools := file("{'descr': '|b1', 'fortran_order': False, 'shape': (2,), }\n", 2)
	bools[len(bools)-1] = 2
	if _, err := read(bools); !errors.Is(err, ErrFormat) {
		t.Errorf("a bool of 2: %v", err)
	}
}

func TestArchivesThatLie(t *testing.T) {
	array := file("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n", 8)
	archive := func(names ...string) []byte {
		var b bytes.Buffer
		w := zip.NewWriter(&b)
		for _, name := range names {
			f, err := w.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Store})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.Write(array); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	corrupt := archive("x.npy")
	corrupt[bytes.Index(corrupt, []byte("}\n"))+3] ^= 1 // an element
	many := make([]string, maxArrays+1)
	for i := range many {
		many[i] = fmt.Sprintf("%d.npy", i)
	}
	for name, c := range map[string]struct {
		data  []byte
		class error
	}{
		"fine":      {archive("y.npy", "x.npy"), nil},
		"checksum":  {corrupt, ErrFormat},
		"no array":  {archive("x.npy", "notes.txt"), ErrFormat},
		"twice":     {archive("x.npy", "x.npy"), ErrFormat},
		"no zip":    {array, ErrFormat},
		"truncated": {archive("x.npy")[:150], ErrFormat},
		"too many":  {archive(many...), ErrUnsupported},
	} {
		x, err := readArchived(c.data, "x")
		if !errors.Is(err, c.class) || (err == nil) != (c.class == nil) {
			t.Errorf("%s: %v, want %v", name, err, c.class)
		}
		if err == nil && len(x.Data) != 8 {
			t.Errorf("%s: %d bytes", name, len(x.Data))
		}
	}
	if _, err := readArchived(archive("x.npy"), "z"); err == nil {
		t.Error("an array that is not there was read")
	}
}

func FuzzOpen(f *testing.F) {
	f.Add(file("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n", 8))
	f.Add(file("{'descr': '>i2', 'fortran_order': True, 'shape': (2, 1), }\n", 4))
	f.Fuzz(func(t *testing.T, data []byte) {
		x, err := read(data)
		if err != nil {
			if !errors.Is(err, ErrFormat) && !errors.Is(err, ErrUnsupported) {
				t.Errorf("an error of no class: %v", err)
			}
			return
		}
		var b bytes.Buffer
		if err := Write(&b, x); err != nil {
			t.Fatal(err)
		}
		back, err := read(b.Bytes())
		if err != nil || !bytes.Equal(back.Data, x.Contiguous().Data) {
			t.Errorf("did not come back: %v", err)
		}
	})
}
