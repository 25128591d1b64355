package loader

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/loader/internal/ziparchive"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// Parts of pickles of protocol 2.
const (
	pickleStart = "\x80\x02"
	// pickleRebuild and pickleView are a call of _rebuild_tensor_v2 around a storage of 64 floats called s, an offset of
	// 0 and the size and strides that the memo holds at 0.
	pickleRebuild = "ctorch._utils\n_rebuild_tensor_v2\n"
	pickleView    = "((X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x00sX\x03\x00\x00\x00cpuK@tQ" +
		"K\x00h\x00h\x00\x89ccollections\nOrderedDict\n)RtR"
)

func pickleString(s string) string {
	return "X" + string(binary.LittleEndian.AppendUint32(nil, uint32(len(s)))) + s
}

// ones is a tuple of n ones, put in the memo at 0 and taken from the stack.
func ones(n int) string { return "(" + strings.Repeat("K\x01", n) + "tq\x000" }

// manyEntries is a dict of n entries with the same value.
func manyEntries(n int, value string) string {
	var b strings.Builder
	b.WriteString("}(")
	for i := range n {
		b.WriteString(pickleString(layerName(i)) + value)
	}
	return b.String() + "u"
}

// writeArchive writes a torch.save file with the given pickle and one storage, of 64 floats.
func writeArchive(t *testing.T, pickle string) string {
	t.Helper()
	var b bytes.Buffer
	w := ziparchive.NewWriter(&b, "archive")
	for _, r := range []struct{ name, content string }{
		{"data.pkl", pickle}, {"data/s", strings.Repeat("\x00", 256)}, {"version", "3\n"},
	} {
		if err := w.WriteRecord(r.name, []byte(r.content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return writeTemp(t, b.Bytes())
}

func liveBytes() int64 {
	goruntime.GC()
	goruntime.GC()
	var m goruntime.MemStats
	goruntime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestChargesCoverTheHeap lists what costs most for its length, and compares what is charged with the heap while all
// of it lives. Too high a charge would refuse files for nothing.
func TestChargesCoverTheHeap(t *testing.T) {
	n := 20_000
	if testing.Short() {
		n /= 4
	}
	rebuilt := pickleRebuild + pickleView
	for name, path := range map[string]string{
		"tensors":    writeTensors(t, n),
		"one tensor": writeArchive(t, pickleStart+ones(1)+rebuilt+"q\x010"+manyEntries(n, "h\x01")+"."),
		"scalars":    writeArchive(t, pickleStart+ones(0)+manyEntries(n, rebuilt)+"."),
		"64 dims":    writeArchive(t, pickleStart+ones(64)+manyEntries(n, rebuilt)+"."),
	} {
		t.Run(name, func(t *testing.T) {
			o := newOpener(t.Context(), path, Options{Limits: Limits{MemoryBytes: 1 << 30}})
			before := liveBytes()
			file, err := storage.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			archive, err := o.readArchive(file)
			if err != nil {
				t.Fatal(err)
			}
			storages := o.newZipStorages(archive, "archive/data/")
			root, err := o.unpickle(archive, "archive/data.pkl", torchPolicy, storages.persistent)
			if err != nil {
				t.Fatal(err)
			}
			ckpt := &Checkpoint{}
			if err := o.flatten(ckpt, root); err != nil {
				t.Fatal(err)
			}
			heap := liveBytes() - before
			goruntime.KeepAlive(archive)
			goruntime.KeepAlive(storages)
			goruntime.KeepAlive(root)
			if len(ckpt.Weights) != n {
				t.Fatalf("%d weights are listed", len(ckpt.Weights))
			}
			if used := o.meter.Used(); used < heap || used > 4*heap {
				t.Errorf("%d bytes charged for a heap of %d", used, heap)
			}
		})
	}
}

// writeTensors writes a file of n small tensors.
func writeTensors(t *testing.T, n int) string {
	t.Helper()
	tensors := make([]TensorData, n)
	for i := range tensors {
		r := Random{Tensor: uint64(i), DType: tensor.Float32, Scale: 1}
		tensors[i] = TensorData{
			Name: layerName(i), DType: tensor.Float32, Shape: tensor.Shape{4, 4}, ReadAt: r.ReadAt,
		}
	}
	var b bytes.Buffer
	if err := WriteTorchZip(t.Context(), &b, "archive", tensors); err != nil {
		t.Fatal(err)
	}
	return writeTemp(t, b.Bytes())
}

func layerName(i int) string { return fmt.Sprintf("model.layers.%d.self_attn.q_proj.weight", i) }

func writeTemp(t *testing.T, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "archive.pt")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestSharedPartsArePaidFor opens files in which a part that is written once is gone through very often. Each visit
// must be charged, or a small file takes any time.
func TestSharedPartsArePaidFor(t *testing.T) {
	const many = 40_000
	nones := manyEntries(many, "N")
	module := func(parameters, buffers, children string) string {
		return "cm\nM\n)\x81}(" + pickleString("_parameters") + parameters + pickleString("_buffers") + buffers +
			pickleString("_modules") + children + "ub"
	}
	parts := map[string]string{
		"members":  module("h\x00", "}", "}"),
		"children": module("}", "}", "h\x00"),
	}
	for name, part := range parts {
		t.Run(name, func(t *testing.T) {
			pickle := pickleStart + nones + "q\x000" + part + "q\x010" + module("}", "}", manyEntries(many, "h\x01")) + "."
			ckpt, err := Open(writeArchive(t, pickle))
			if err == nil {
				ckpt.Close()
			}
			if !errors.Is(err, ErrLimit) {
				t.Errorf("%v, want a limit", err)
			}
		})
	}
}

func TestTooManyArguments(t *testing.T) {
	for n, want := range map[int]error{maxArgs: nil, maxArgs + 1: ErrFormat} {
		ckpt, err := Open(writeArchive(t, pickleStart+ones(n)+"ctorch\ndevice\nh\x00R."))
		if err == nil {
			ckpt.Close()
		}
		if !errors.Is(err, want) {
			t.Errorf("%d arguments: %v, want %v", n, err, want)
		}
	}
}

// TestEqualNames opens a file in which very many tensors have one path: each split of a.a.….a into nested dictionaries
// is another place for one.
func TestEqualNames(t *testing.T) {
	var nested func(parts int) string // a dict with a tensor for every split of a path of so many parts
	nested = func(parts int) string {
		var b strings.Builder
		b.WriteString("}(")
		for head := 1; head <= parts; head++ {
			value := "h\x01"
			if head < parts {
				value = nested(parts - head)
			}
			b.WriteString(pickleString(strings.Repeat("a.", head-1)+"a") + value)
		}
		return b.String() + "u"
	}
	const parts = 14
	path := writeArchive(t, pickleStart+ones(1)+pickleRebuild+pickleView+"q\x010"+nested(parts)+".")
	ckpt, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer ckpt.Close()
	if n := len(ckpt.Weights); n != 1<<(parts-1) {
		t.Fatalf("%d weights", n)
	}
	base := strings.Repeat("a.", parts-1) + "a"
	for i, w := range ckpt.Weights {
		want := base
		if i > 0 {
			want = fmt.Sprintf("%s#%d", base, i+1)
		}
		if w.Name != want {
			t.Fatalf("weight %d is named %s, want %s", i, w.Name, want)
		}
	}
	total := 0
	for _, d := range ckpt.StateDicts() {
		total += len(d.Weights)
	}
	if total > len(ckpt.Weights) {
		t.Errorf("the state dicts have %d weights of %d", total, len(ckpt.Weights))
	}
}

// TestStateDictsShareNoWeight: a dictionary with an empty key holds another one of nearly the same path.
func TestStateDictsShareNoWeight(t *testing.T) {
	value := "h\x01"
	for range 50 {
		value = "}(" + pickleString("w") + "h\x01" + pickleString("") + value + "u"
	}
	value = "}" + pickleString("model") + value + "s"
	ckpt, err := Open(writeArchive(t, pickleStart+ones(1)+pickleRebuild+pickleView+"q\x010"+value+"."))
	if err != nil {
		t.Fatal(err)
	}
	defer ckpt.Close()
	dicts := ckpt.StateDicts()
	if len(ckpt.Weights) != 51 || len(dicts) != 1 || len(dicts[0].Weights) != 51 {
		t.Errorf("%d weights, %d state dicts", len(ckpt.Weights), len(dicts))
	}
}

func TestOutermost(t *testing.T) {
	nodes := []dictNode{
		{path: "a.b", first: 0, end: 2}, {path: "a", first: 0, end: 3}, {path: "c", first: 3, end: 5},
		{path: "d.e", first: 5, end: 6}, {path: "d", first: 5, end: 6}, {path: "f", first: 7, end: 9},
	}
	var got []string
	for _, n := range outermost(nodes) {
		got = append(got, n.path)
	}
	if want := []string{"a", "c", "d", "f"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestWrapperPrefix(t *testing.T) {
	for want, names := range map[string][]string{
		"":                      {"module.a", "b"},
		"module.":               {"module.a", "module.b"},
		"module._orig_mod.":     {"module._orig_mod.a", "module._orig_mod.module.b"},
		"_fsdp_wrapped_module.": {"_fsdp_wrapped_module.module."},
	} {
		var weights []tensor.Weight
		for _, n := range names {
			weights = append(weights, tensor.Weight{Name: n})
		}
		if got := wrapperPrefix(weights); got != want {
			t.Errorf("%v: prefix %q, want %q", names, got, want)
		}
	}
}
