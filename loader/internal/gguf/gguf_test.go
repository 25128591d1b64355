package gguf_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/optimem/optimem/loader/internal/fault"
	"github.com/optimem/optimem/loader/internal/gguf"
	"github.com/optimem/optimem/loader/internal/limit"
)

// le are values as the file has them: texts with their lengths.
func le(values ...any) string {
	var b bytes.Buffer
	for _, v := range values {
		if s, ok := v.(string); ok {
			_ = binary.Write(&b, binary.LittleEndian, uint64(len(s)))
			b.WriteString(s)
		} else if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
			panic(err)
		}
	}
	return b.String()
}

// file is a file of keys and tensors, which are texts of le, and of so many bytes of data.
func file(keys, tensors []string, dataBytes int) string {
	s := "GGUF" + le(uint32(3), uint64(len(tensors)), uint64(len(keys))) + strings.Join(keys, "") + strings.Join(tensors, "")
	return s + strings.Repeat("\x00", -len(s)&31+dataBytes)
}

func read(s string, memory int64) (*gguf.File, error) {
	return gguf.Read(strings.NewReader(s), int64(len(s)), gguf.Options{Meter: limit.New(memory), Depth: 4})
}

const enough = 1 << 20

// everyType has a key of every type of value.
func everyType() ([]string, map[string]any) {
	want := map[string]any{
		"u8": uint8(200), "i8": int8(-3), "u16": uint16(60000), "i16": int16(-300), "u32": uint32(1 << 31), "i32": int32(-7),
		"f32": float32(1.5), "yes": true, "no": false, "text": "\xffnot UTF-8", "u64": uint64(1 << 63), "i64": int64(-9),
		"f64": math.Pi, "none": []string{}, "texts": []string{"", "ab"}, "bytes": []byte{1, 2}, "i8s": []int8{-1, 1},
		"u16s": []uint16{1, 2}, "i16s": []int16{-1, 2}, "u32s": []uint32{3, 1 << 31}, "i32s": []int32{-3, 4},
		"f32s": []float32{-1, 2.5}, "bools": []bool{true, false}, "u64s": []uint64{1 << 63}, "i64s": []int64{-1},
		"f64s": []float64{1e300}, "lists": []any{[]int32{1}, []int32{}, []string{"x"}},
	}
	array := func(name string, kind uint32, n int, values ...any) string {
		return le(name, uint32(9), kind, uint64(n)) + le(values...)
	}
	return []string{
		le("u8", uint32(0), uint8(200)), le("i8", uint32(1), int8(-3)), le("u16", uint32(2), uint16(60000)),
		le("i16", uint32(3), int16(-300)), le("u32", uint32(4), uint32(1<<31)), le("i32", uint32(5), int32(-7)),
		le("f32", uint32(6), float32(1.5)), le("yes", uint32(7), uint8(1)), le("no", uint32(7), uint8(0)),
		le("text", uint32(8), "\xffnot UTF-8"), le("u64", uint32(10), uint64(1<<63)), le("i64", uint32(11), int64(-9)),
		le("f64", uint32(12), math.Pi), array("none", 8, 0), array("texts", 8, 2, "", "ab"),
		array("bytes", 0, 2, []byte{1, 2}), array("i8s", 1, 2, int8(-1), int8(1)), array("u16s", 2, 2, []uint16{1, 2}),
		array("i16s", 3, 2, []int16{-1, 2}), array("u32s", 4, 2, []uint32{3, 1 << 31}), array("i32s", 5, 2, []int32{-3, 4}),
		array("f32s", 6, 2, []float32{-1, 2.5}), array("bools", 7, 2, []uint8{1, 0}), array("u64s", 10, 1, uint64(1<<63)),
		array("i64s", 11, 1, int64(-1)), array("f64s", 12, 1, 1e300),
		array("lists", 9, 3, uint32(5), uint64(1), int32(1), uint32(5), uint64(0), uint32(8), uint64(1), "x"),
	}, want
}

// tensorOf is a tensor's entry, with its dimensions as the file has them: the fastest first.
func tensorOf(name string, kind uint32, off uint64, dims ...uint64) string {
	return le(name, uint32(len(dims)), dims, kind, off)
}

// TestEverythingIsReadAsItIs: values of every type, and tensors with the dimensions turned round and offsets in the file.
func TestEverythingIsReadAsItIs(t *testing.T) {
	keys, want := everyType()
	for _, version := range []uint32{2, 3} {
		s := file(keys, []string{
			tensorOf("a", 2, 0, 64, 3), tensorOf("scalar", 0, 128), tensorOf("empty", 1, 160, 7, 0), tensorOf("b", 0, 160, 2, 3, 4, 5),
		}, 160+480)
		s = s[:4] + le(version) + s[8:]
		f, err := read(s, enough)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, f.Meta); diff != "" {
			t.Errorf("values (-want +got):\n%s", diff)
		}
		if len(f.Keys) != len(keys) || f.Keys[0] != "u8" || f.Version != version || f.Data%32 != 0 {
			t.Errorf("keys %q, version %d, data at %d", f.Keys, f.Version, f.Data)
		}
		type place struct {
			Name, Encoding string
			Shape          []int
			Offset, Bytes  int64
		}
		var got []place
		for _, x := range f.Tensors {
			got = append(got, place{x.Name, x.Encoding.Name, x.Shape, x.Offset - f.Data, x.Bytes})
		}
		if diff := cmp.Diff([]place{
			{"a", "Q4_0", []int{3, 64}, 0, 108}, {"scalar", "F32", []int{}, 128, 4},
			{"empty", "F16", []int{0, 7}, 160, 0}, {"b", "F32", []int{5, 4, 3, 2}, 160, 480},
		}, got); diff != "" {
			t.Errorf("tensors (-want +got):\n%s", diff)
		}
	}
}

// TestAlignment: data begins at what general.alignment says, which need not be there, and the last tensor need not be padded.
func TestAlignment(t *testing.T) {
	align := le("general.alignment", uint32(4), uint32(64))
	s := file([]string{align}, []string{tensorOf("a", 0, 0, 3), tensorOf("b", 0, 64, 3)}, 0)
	s += strings.Repeat("\x00", -len(s)&63+64+12)
	f, err := read(s, enough)
	if err != nil || f.Data%64 != 0 || f.Tensors[1].Offset != f.Data+64 {
		t.Fatalf("%+v, %v", f, err)
	}
	if _, err := read(s+strings.Repeat("\x00", 52), enough); err != nil {
		t.Errorf("padded: %v", err)
	}
	if _, err := read(s+strings.Repeat("\x00", 53), enough); !errors.Is(err, fault.ErrFormat) {
		t.Errorf("a byte behind the padding: %v", err)
	}
	if f, err = read(file(nil, nil, 0), enough); err != nil || len(f.Tensors) != 0 {
		t.Errorf("a file of nothing: %v", err)
	}
}

// TestEveryCutIsRefused: a file that ends anywhere before its end is malformed, and never read beyond.
func TestEveryCutIsRefused(t *testing.T) {
	keys, _ := everyType()
	s := file(keys, []string{tensorOf("a", 2, 0, 64, 3), tensorOf("b", 0, 128, 5)}, 128+20)
	for n := range len(s) {
		if _, err := read(s[:n], enough); !errors.Is(err, fault.ErrFormat) {
			t.Fatalf("the first %d of %d bytes: %v", n, len(s), err)
		}
	}
	if _, err := gguf.Read(strings.NewReader(s[:100]), int64(len(s)), gguf.Options{Meter: limit.New(enough), Depth: 4}); err == nil {
		t.Error("a file shorter than its size is read")
	}
	broken := errors.New("broken")
	in := io.MultiReader(strings.NewReader(s[:100]), iotest.ErrReader(broken))
	if _, err := gguf.Read(in, int64(len(s)), gguf.Options{Meter: limit.New(enough), Depth: 4}); !errors.Is(err, broken) {
		t.Errorf("an error of the disk: %v", err)
	}
}

// TestMemoryIsCharged: what a file makes of memory is charged before it is taken.
func TestMemoryIsCharged(t *testing.T) {
	many := func(n int, one string) []string {
		return []string{le("k", uint32(9), uint32(8), uint64(n)) + strings.Repeat(one, n)}
	}
	var keys []string
	var tensors []string
	for i := range 100 {
		name := string(rune('0'+i/10)) + string(rune('0'+i%10))
		keys = append(keys, le(name, uint32(0), uint8(1)))
		tensors = append(tensors, tensorOf(name, 0, 0, 0))
	}
	for name, c := range map[string]struct {
		file   string
		memory int64
	}{
		"texts":   {file(many(1000, le("")), nil, 0), 16000},
		"letters": {file(many(1, le(strings.Repeat("x", 5000))), nil, 0), 5000},
		"numbers": {file([]string{le("k", uint32(9), uint32(12), uint64(1000), make([]float64, 1000))}, nil, 0), 8000},
		"bytes":   {file([]string{le("k", uint32(9), uint32(0), uint64(9000), make([]byte, 9000))}, nil, 0), 9000},
		"lists":   {file([]string{le("k", uint32(9), uint32(9), uint64(300)) + strings.Repeat(le(uint32(0), uint64(0)), 300)}, nil, 0), 64 * 300},
		"keys":    {file(keys, nil, 0), 19200},
		"tensors": {file(nil, tensors, 0), 32000},
	} {
		if _, err := read(c.file, c.memory); !errors.Is(err, fault.ErrMemory) {
			t.Errorf("%s within %d: %v", name, c.memory, err)
		}
		if _, err := read(c.file, c.memory+c.memory/4+1000); err != nil {
			t.Errorf("%s within more: %v", name, err)
		}
	}
}

// TestLengthsAreHeldAgainstWhatIsLeft: what says that it is longer than the rest of the file is malformed, and no memory is asked
// for it, also where the file as a whole is longer.
func TestLengthsAreHeldAgainstWhatIsLeft(t *testing.T) {
	rest := strings.Repeat("\x00", 1000)
	for name, key := range map[string]string{
		"text":  le("k", uint32(8), uint64(1040)),
		"array": le("k", uint32(9), uint32(10), uint64(500)),
	} {
		if _, err := read(file([]string{key + rest}, nil, 0), 500); !errors.Is(err, fault.ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestDepthIsBounded: four arrays in each other are read here, and no fifth.
func TestDepthIsBounded(t *testing.T) {
	deep := func(n int) string {
		return file([]string{le("k", uint32(9)) + strings.Repeat(le(uint32(9), uint64(1)), n-1) + le(uint32(0), uint64(0))}, nil, 0)
	}
	if _, err := read(deep(4), enough); err != nil {
		t.Error(err)
	}
	if _, err := read(deep(5), enough); !errors.Is(err, fault.ErrLimit) {
		t.Errorf("five: %v", err)
	}
}

// FuzzRead: whatever a file holds, it is read within its limit or refused with a class, and its tensors lie in it one behind
// the other.
func FuzzRead(f *testing.F) {
	keys, _ := everyType()
	f.Add([]byte(file(keys, []string{tensorOf("a", 2, 0, 64, 3), tensorOf("b", 0, 128, 5)}, 128+20)))
	f.Add([]byte(file([]string{le("general.alignment", uint32(4), uint32(64))}, nil, 0)))
	f.Fuzz(func(t *testing.T, data []byte) {
		x, err := read(string(data), enough)
		if err != nil {
			var at *fault.Error
			if !errors.As(err, &at) {
				t.Fatalf("an error without a class: %v", err)
			}
			return
		}
		end := x.Data
		for _, tensor := range x.Tensors {
			if tensor.Offset < end || tensor.Bytes < 0 || tensor.Bytes > int64(len(data))-tensor.Offset {
				t.Fatalf("%+v behind %d in %d bytes", tensor, end, len(data))
			}
			end = tensor.Offset + tensor.Bytes
		}
		if len(x.Keys) != len(x.Meta) {
			t.Fatalf("%d keys, %d values", len(x.Keys), len(x.Meta))
		}
		again, err := read(string(data), enough)
		if err != nil || !reflect.DeepEqual(x.Keys, again.Keys) {
			t.Fatalf("read again: %v", err)
		}
	})
}
