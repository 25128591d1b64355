package pack_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/pack"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

const chat = "../generate/testdata/chat"

// filesOf reads a folder, by name.
func filesOf(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	files := make(map[string][]byte)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		files[filepath.ToSlash(name)], err = os.ReadFile(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func same(a, b map[string][]byte) bool {
	for name, data := range a {
		if other, ok := b[name]; !ok || !bytes.Equal(data, other) {
			return false
		}
	}
	return len(a) == len(b)
}

// TestThereAndBack: a folder with folders in it comes back byte for byte, and its copy is smaller.
func TestThereAndBack(t *testing.T) {
	from, dir := t.TempDir(), t.TempDir()
	weights := make([]byte, 300_000)
	for i := 0; i < len(weights); i += 2 {
		binary.LittleEndian.PutUint16(weights[i:], 0x3C00|uint16(rand.Uint32())&0x80FF)
	}
	random := make([]byte, 5000)
	for i := range random {
		random[i] = byte(rand.Uint32())
	}
	for name, data := range map[string][]byte{
		"model-1.safetensors": weights, "within/model.bin": weights[:70_000], "codes.gguf": random, "config.json": []byte("{}"),
		"within/notes.txt": random[:3000],
	} {
		path := filepath.Join(from, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o777), os.WriteFile(path, data, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(from, ".git"), 0o777); err != nil {
		t.Fatal(err)
	}
	told := int64(0)
	total, err := pack.Bytes(from)
	if err != nil {
		t.Fatal(err)
	}
	report, err := pack.Write(t.Context(), from, filepath.Join(dir, "packed"), pack.Options{Progress: func(n int64) { told += n }})
	if err != nil {
		t.Fatal(err)
	}
	if report.Copied != 2 || len(report.Files) != 3 || told != total || report.Bytes != total || report.AfterBytes > total*3/4 {
		t.Errorf("%+v, told of %d bytes of %d", report, told, total)
	}
	for _, f := range report.Files {
		if codes := f.Name == "codes.gguf"; f.Packed == codes || codes && f.PackedBytes != f.Bytes {
			t.Errorf("%+v", f)
		}
	}
	copied := filesOf(t, filepath.Join(dir, "packed"))
	if len(copied) != 5 || !bytes.Equal(copied["codes.gguf"], random) || len(copied["model-1.safetensors"]) > len(weights)*3/4 {
		t.Errorf("%d files", len(copied))
	}
	again, err := pack.Write(t.Context(), filepath.Join(dir, "packed"), filepath.Join(dir, "twice"), pack.Options{})
	if err != nil || again.AfterBytes != report.AfterBytes || !same(copied, filesOf(t, filepath.Join(dir, "twice"))) {
		t.Errorf("what is packed is packed again: %+v, %v", again, err)
	}
	back, err := pack.Restore(t.Context(), filepath.Join(dir, "packed"), filepath.Join(dir, "back"), pack.Options{})
	if err != nil || back.Bytes != total || back.AfterBytes != report.AfterBytes {
		t.Errorf("%+v, %v", back, err)
	}
	if want := filesOf(t, from); !same(want, filesOf(t, filepath.Join(dir, "back"))) {
		t.Error("another folder came back")
	}
}

// TestNothingHalfDone: what fails leaves nothing, and what is there stays.
func TestNothingHalfDone(t *testing.T) {
	dir := t.TempDir()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := pack.Write(cancelled, chat, filepath.Join(dir, "a"), pack.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if err := os.Mkdir(filepath.Join(dir, "empty"), 0o777); err != nil {
		t.Fatal(err)
	}
	_, err := pack.Write(t.Context(), filepath.Join(dir, "empty"), filepath.Join(dir, "b"), pack.Options{})
	if !errors.Is(err, pack.ErrNothing) || loader.Class(err) != loader.ErrUnsupported {
		t.Errorf("a folder without weights: %v", err)
	}
	if _, err := pack.Write(t.Context(), chat, filepath.Join(dir, "empty"), pack.Options{}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a folder that is there: %v", err)
	}
	if _, err := pack.Write(t.Context(), filepath.Join(dir, "absent"), filepath.Join(dir, "c"), pack.Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder that is not there: %v", err)
	}
	file := filepath.Join(dir, "empty", "model.safetensors")
	if _, err := pack.Write(t.Context(), filepath.Join(chat, "model.safetensors"), file, pack.Options{}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)-1] ^= 1
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	var placed *loader.Error
	if _, err := pack.Restore(t.Context(), file, filepath.Join(dir, "d"), pack.Options{}); loader.Class(err) != loader.ErrFormat || !errors.As(err, &placed) || placed.Path != file {
		t.Errorf("a block that does not come back: %v", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

// TestSameBits: a packed folder computes what the folder does, to the bit, in every mode, within its budget, for which
// the plan knows what decoding takes.
func TestSameBits(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "packed")
	if _, err := pack.Write(t.Context(), chat, folder, pack.Options{}); err != nil {
		t.Fatal(err)
	}
	ids := runtime.Values{"input_ids": tensor.Of([]int64{1, 5, 9, 13, 2, 77}, 1, 6)}
	run := func(path string, o runtime.Options) ([]byte, *plan.Plan) {
		t.Helper()
		ckpt, err := loader.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer ckpt.Close()
		model, err := models.Build(ckpt, models.Options{})
		if err != nil {
			t.Fatal(err)
		}
		session, err := runtime.Start(t.Context(), model, o)
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close()
		p, err := session.Plan(t.Context(), map[string]tensor.Shape{"input_ids": {1, 6}})
		if err != nil {
			t.Fatal(err)
		}
		var last []byte
		for range 2 {
			out, err := session.Run(t.Context(), ids)
			if err != nil {
				t.Fatal(err)
			}
			now := out["logits"].Contiguous().Data
			if last != nil && !bytes.Equal(now, last) {
				t.Fatalf("%s, %s: a second pass has other bits", path, o.Mode)
			}
			last = slices.Clone(now)
		}
		return last, p
	}
	want, _ := run(chat, runtime.Options{Mode: plan.Resident, Device: "cpu"})
	for _, o := range []runtime.Options{
		{Mode: plan.Page}, {Mode: plan.Auto}, {Mode: plan.Resident}, {Mode: plan.Chunk}, {Mode: plan.Page, Memory: 2_200_000},
		{Mode: plan.Auto, Memory: 2_200_000}, {Mode: plan.Auto, Device: "emu:memory=300KiB,bandwidth=10GB/s"},
	} {
		if o.Device == "" {
			o.Device = "cpu"
		}
		got, p := run(folder, o)
		if !bytes.Equal(got, want) {
			t.Errorf("%s within %d on %s: other bits", o.Mode, o.Memory, o.Device)
		}
		if p.DecodeBytes == 0 || o.Memory > 0 && p.PeakBytes() > o.Memory || o.Device == "cpu" && p.PeakBytes() < p.PassBytes()+p.DecodeBytes {
			t.Errorf("%s within %d on %s: decoding takes %d of %d", o.Mode, o.Memory, o.Device, p.DecodeBytes, p.PeakBytes())
		}
	}
}
