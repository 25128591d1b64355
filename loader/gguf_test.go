package loader

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor/encoded"
)

// ggufFile is a GGUF file of uint16 and text keys, in pairs, and of tensors of eight float32 each, whose bytes are b.
func ggufFile(b byte, tensors []string, keys ...any) string {
	var f bytes.Buffer
	text := func(s string) {
		_ = binary.Write(&f, binary.LittleEndian, uint64(len(s)))
		f.WriteString(s)
	}
	put := func(values ...any) {
		for _, v := range values {
			_ = binary.Write(&f, binary.LittleEndian, v)
		}
	}
	f.WriteString("GGUF")
	put(uint32(3), uint64(len(tensors)), uint64(len(keys)/2))
	for i := 0; i < len(keys); i += 2 {
		text(keys[i].(string))
		switch v := keys[i+1].(type) {
		case string:
			put(uint32(8))
			text(v)
		case int:
			put(uint32(2), uint16(v))
		}
	}
	for i, name := range tensors {
		text(name)
		put(uint32(2), uint64(2), uint64(4), uint32(0), uint64(32*i))
	}
	f.Write(make([]byte, -f.Len()&31))
	for i := range tensors {
		for row := range 4 { // each row has the bytes of its number
			f.Write(bytes.Repeat([]byte{b + byte(16*i+row)}, 8))
		}
	}
	return f.String()
}

// split are the files of a model in three, as llama.cpp's gguf-split cuts it: the first says everything.
func split() map[string]string {
	return map[string]string{
		"m-00001-of-00003.gguf": ggufFile(0, []string{"a"}, "general.architecture", "llama", "llama.attention.head_count", 1,
			"split.no", 0, "split.count", 3, "split.tensors.count", 4),
		"m-00002-of-00003.gguf": ggufFile(1, []string{"blk.0.attn_q.weight", "c"}, "split.no", 1, "split.count", 3),
		"m-00003-of-00003.gguf": ggufFile(2, []string{"d"}, "split.no", 2, "split.count", 3),
	}
}

// TestGGUFInSeveralFiles: the first file opens all, and what it says of the model holds for the tensors of the others.
func TestGGUFInSeveralFiles(t *testing.T) {
	dir := writeFiles(t, split())
	ckpt, err := Open(filepath.Join(dir, "m-00001-of-00003.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, w := range ckpt.Weights {
		names = append(names, w.Name)
	}
	if want := []string{"a", "blk.0.attn_q.weight", "c", "d"}; !slices.Equal(names, want) || ckpt.Format != FormatGGUF {
		t.Errorf("tensors %q of a %s, want %q", names, ckpt.Format, want)
	}
	w, _ := ckpt.Weight("blk.0.attn_q.weight")
	got, err := w.Contents(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got.Data[0] != 1 || got.Data[8] != 3 || got.Data[16] != 2 { // one head: rows 0 and 2 are its first half
		t.Errorf("rows %v", got.Data)
	}
	if n, ok := GGUFInteger(ckpt.Metadata, "llama.attention.head_count"); n != 1 || !ok {
		t.Errorf("metadata of %v", ckpt.Metadata)
	}
	if err := ckpt.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.Extent.ReadAt(t.Context(), make([]byte, 4), 0); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a file that is closed is read: %v", err)
	}
}

// TestGGUFOfWhichAFileIsWrong: every file must be there and be the one that it is taken for.
func TestGGUFOfWhichAFileIsWrong(t *testing.T) {
	second := "m-00002-of-00003.gguf"
	for want, file := range map[string]string{
		"it is not number 2 of the 3 files":          ggufFile(0, []string{"b", "c"}, "split.no", 2, "split.count", 3),
		"it is not number 2 of the 3":                ggufFile(0, []string{"b", "c"}, "split.no", 1, "split.count", 4),
		"it is not number 2 of":                      string(safetensorsFile(`{"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}}`, 9)),
		"another of the files holds it too":          ggufFile(0, []string{"a", "c"}, "split.no", 1, "split.count", 3),
		"3 tensors in all files, and the first says": ggufFile(0, []string{"b"}, "split.no", 1, "split.count", 3),
	} {
		files := split()
		files[second] = file
		err := refused(t, filepath.Join(writeFiles(t, files), "m-00001-of-00003.gguf"))
		if !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), want) {
			t.Errorf("want …%s…, got %v", want, err)
		}
	}
	files := split()
	delete(files, second)
	if _, err := Open(filepath.Join(writeFiles(t, files), "m-00001-of-00003.gguf")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without the second: %v", err)
	}
	files = split()
	dir := writeFiles(t, files)
	err := refused(t, filepath.Join(dir, second))
	if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "number 2 of the 3 files of a model: open the first") {
		t.Errorf("the second by itself: %v", err)
	}
}

// TestGGUFRowsOfHeads: rows of queries go by the number of heads, those of keys by that of their own; other architectures have them
// in order, and norms of Gemma lose the one that was added.
func TestGGUFRowsOfHeads(t *testing.T) {
	order := func(arch, name string, keys ...any) string {
		t.Helper()
		file := ggufFile(0, []string{name}, append([]any{"general.architecture", arch}, keys...)...)
		ckpt := &Checkpoint{}
		if err := newOpener(t.Context(), "file", Options{}).openSource(ckpt, bytesSource([]byte(file))); err != nil {
			t.Fatal(err)
		}
		got, err := ckpt.Weights[0].Contents(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(got.Data[0], got.Data[8], got.Data[16], got.Data[24])
	}
	query, key := "blk.7.attn_q.weight", "blk.7.attn_k.weight"
	for _, c := range []struct{ got, want string }{
		{order("llama", query, "llama.attention.head_count", 1), "0 2 1 3"},
		{order("llama", query, "llama.attention.head_count", 2, "llama.attention.head_count_kv", 1), "0 1 2 3"},
		{order("llama", key, "llama.attention.head_count", 2, "llama.attention.head_count_kv", 1), "0 2 1 3"},
		{order("llama", key, "llama.attention.head_count", 1), "0 2 1 3"},
		{order("llama", "blk.7.attn_v.weight", "llama.attention.head_count", 1), "0 1 2 3"},
		{order("llama", query), "0 1 2 3"},
		{order("llama", query, "llama.attention.head_count", 4), "0 1 2 3"}, // no halves
		{order("llama", query, "llama.attention.head_count", 3), "0 1 2 3"},
		{order("qwen2", query, "qwen2.attention.head_count", 1), "0 1 2 3"},
	} {
		if c.got != c.want {
			t.Errorf("rows %s, want %s", c.got, c.want)
		}
	}
	// −1 is the float of bytes 00 00 80 bf.
	if got := order("gemma", "blk.0.attn_norm.weight"); got != "0 0 0 0" {
		t.Errorf("norms begin %s", got)
	}
	if got := order("llama", "blk.0.attn_norm.weight"); got != "0 1 2 3" {
		t.Errorf("norms of llama begin %s", got)
	}
}

// TestGGUFTensorsOfTheFixture: the fixture's tensors lie where gguf says, encoded as it says, and read as it decodes them; those
// that lie in the file as they are keep their dtype and are read from there.
func TestGGUFTensorsOfTheFixture(t *testing.T) {
	ckpt, err := Open(filepath.Join(validFolder(), "gguf_llama.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer ckpt.Close()
	var golden struct {
		Tensors []struct {
			Name, Encoding string
			FileBytes      int64 `json:"file_bytes"`
			FileOffset     int64 `json:"file_offset"`
		}
	}
	text, err := os.ReadFile(filepath.Join(validFolder(), "gguf_llama.gguf.golden.json"))
	if err == nil {
		err = json.Unmarshal(text, &golden)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range golden.Tensors {
		w, _ := ckpt.Weight(want.Name)
		encoding, extent := strings.ToUpper(strings.Replace(strings.Replace(w.DType.String(), "bfloat", "BF", 1), "float", "F", 1)), w.Extent
		if s, ok := w.Extent.Source.(*encoded.Source); ok {
			var run encoded.Run
			if run, extent, ok = s.At(w.Extent.Offset); !ok {
				t.Errorf("%s is nowhere", w.Name)
			}
			encoding = run.Encoding.Name
		}
		if encoding != want.Encoding || extent.Offset != want.FileOffset || extent.Bytes != want.FileBytes {
			t.Errorf("%s: %s of %d bytes at %d, want %s of %d at %d",
				w.Name, encoding, extent.Bytes, extent.Offset, want.Encoding, want.FileBytes, want.FileOffset)
		}
		if _, isFile := extent.Source.(*storage.File); !isFile {
			t.Errorf("%s is read from a %T", w.Name, extent.Source)
		}
	}
	values := make(map[string]string)
	for _, v := range ckpt.Values {
		values[v.Name] = v.Text
	}
	for key, want := range map[string]string{
		"general.architecture": "llama", "llama.block_count": "1", "llama.rope.freq_base": "5000",
		"tokenizer.ggml.tokens": "[268 × string]", "tokenizer.ggml.add_bos_token": "false",
	} {
		if values[key] != want {
			t.Errorf("%s is %q, want %q", key, values[key], want)
		}
	}
}

// TestGGUFThatIsAPickleAsWell: the first letter is an opcode that takes eight bytes, and what follows may be another.
func TestGGUFThatIsAPickleAsWell(t *testing.T) {
	names := make([]string, 'V'<<8) // the second byte of their number is UNICODE, whose text ends at a line's end
	for i := range names {
		names[i] = fmt.Sprint(i)
	}
	file := ggufFile(0, names, "\ncos\nsystem\n(S'id'\ntR.", 1)
	path := filepath.Join(writeFiles(t, map[string]string{"model.gguf": file}), "model.gguf")
	if err := refused(t, path); !errors.Is(err, ErrUnsafe) || !strings.Contains(err.Error(), "the file is a pickle as well") {
		t.Errorf("got %v", err)
	}
	file = ggufFile(0, names, "plain", 1)
	path = filepath.Join(writeFiles(t, map[string]string{"model.gguf": file}), "model.gguf")
	ckpt, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := ckpt.Close(); err != nil || len(ckpt.Weights) != len(names) {
		t.Errorf("%d tensors, %v", len(ckpt.Weights), err)
	}
}
