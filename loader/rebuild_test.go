package loader

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/optimem/optimem/tensor"
)

// Parts of pickles that PyTorch could write and that are rare: each is of the storage of 256 bytes that writeArchive
// makes.

func pickledStorage(class string, elements int) string {
	return "(" + pickleString("storage") + "ctorch\n" + class + "\n" + pickleString("s") + pickleString("cpu") +
		"M" + string(binary.LittleEndian.AppendUint16(nil, uint16(elements))) + "tQ"
}

const (
	pickledSize    = "K\x02\x85K\x01\x85" // (2,), (1,)
	pickledNoHooks = "\x89ccollections\nOrderedDict\n)R"
)

// openPickle opens a file whose pickle is a dictionary of the values, whose names are w0, w1, ….
func openPickle(t *testing.T, values ...string) (*Checkpoint, error) {
	t.Helper()
	var b strings.Builder
	b.WriteString(pickleStart + "}(")
	for i, v := range values {
		b.WriteString(pickleString(fmt.Sprintf("w%d", i)) + v)
	}
	ckpt, err := Open(writeArchive(t, b.String()+"u."))
	if err == nil {
		t.Cleanup(func() { ckpt.Close() })
	}
	return ckpt, err
}

func mustOpenPickle(t *testing.T, values ...string) *Checkpoint {
	t.Helper()
	ckpt, err := openPickle(t, values...)
	if err != nil {
		t.Fatal(err)
	}
	return ckpt
}

// The metadata of a tensor names the bits that are set, and False is none.
func TestMetadataBitsAreTheirValues(t *testing.T) {
	for _, test := range []struct {
		conj, neg string
		want      [2]bool
	}{
		{"\x88", "\x88", [2]bool{true, true}}, {"\x88", "\x89", [2]bool{true, false}},
		{"\x89", "\x88", [2]bool{false, true}}, {"\x89", "\x89", [2]bool{false, false}},
	} {
		metadata := "}(" + pickleString("conj") + test.conj + pickleString("neg") + test.neg + "u"
		ckpt := mustOpenPickle(t,
			pickleRebuild+"("+pickledStorage("ComplexFloatStorage", 32)+"K\x00"+pickledSize+pickledNoHooks+metadata+"tR")
		if w := ckpt.Weights[0]; w.Conj != test.want[0] || w.Neg != test.want[1] {
			t.Errorf("conjugated %t and negated %t, want %v", w.Conj, w.Neg, test.want)
		}
	}
}

// Scales are numbers: with one that is none, every value would be none.
func TestScalesAreNumbers(t *testing.T) {
	quantized := func(scale float64) string {
		bits := binary.BigEndian.AppendUint64([]byte("G"), math.Float64bits(scale))
		return "ctorch._utils\n_rebuild_qtensor\n(" + pickledStorage("QInt8Storage", 256) + "K\x00" + pickledSize +
			"(ctorch\nper_tensor_affine\n" + string(bits) + "K\x03t" + pickledNoHooks + "tR"
	}
	w := mustOpenPickle(t, quantized(0.25)).Weights[0]
	if w.Quant == nil || w.Quant.Scale != 0.25 || w.Quant.ZeroPoint != 3 {
		t.Errorf("quantised by %+v", w.Quant)
	}
	if _, err := openPickle(t, quantized(math.NaN())); !errors.Is(err, ErrFormat) {
		t.Errorf("a scale that is no number: %v", err)
	}
}

// A dtype goes by each of its names in PyTorch.
func TestDTypesGoByTheirOtherNames(t *testing.T) {
	names := map[string]tensor.DType{
		"half": tensor.Float16, "float16": tensor.Float16, "float": tensor.Float32, "float32": tensor.Float32,
		"double": tensor.Float64, "long": tensor.Int64, "int": tensor.Int32, "short": tensor.Int16,
		"chalf": tensor.Complex32, "cfloat": tensor.Complex64, "cdouble": tensor.Complex128, "int8": tensor.Int8,
	}
	for name, want := range names {
		ckpt := mustOpenPickle(t, "ctorch._utils\n_rebuild_tensor_v3\n("+pickledStorage("UntypedStorage", 256)+"K\x00"+
			pickledSize+pickledNoHooks+"ctorch\n"+name+"\ntR")
		if len(ckpt.Weights) != 1 || ckpt.Weights[0].DType != want {
			t.Errorf("torch.%s: %v", name, ckpt.Weights)
		}
	}
}

// One record may be the storage of tensors of several dtypes.
func TestOneStorageSeenAsTwoDTypes(t *testing.T) {
	rebuilt := func(class string, elements int) string {
		return pickleRebuild + "(" + pickledStorage(class, elements) + "K\x00" + pickledSize + pickledNoHooks + "tR"
	}
	ckpt := mustOpenPickle(t, rebuilt("FloatStorage", 64), rebuilt("IntStorage", 64), rebuilt("FloatStorage", 64),
		rebuilt("LongStorage", 32))
	for i, want := range []tensor.DType{tensor.Float32, tensor.Int32, tensor.Float32, tensor.Int64} {
		if got := ckpt.Weights[i]; got.DType != want || got.Extent != ckpt.Weights[0].Extent {
			t.Errorf("tensor %d is %v at %d, want %v at %d", i, got.DType, got.Extent.Offset, want, ckpt.Weights[0].Extent.Offset)
		}
	}
	if _, err := openPickle(t, rebuilt("FloatStorage", 64), rebuilt("FloatStorage", 32)); !errors.Is(err, ErrFormat) {
		t.Errorf("one storage of two sizes: %v", err)
	}
}

// A view of a legacy storage lies inside it, by whatever sums of its bounds.
func TestLegacyViewsOfAnySize(t *testing.T) {
	file, err := os.ReadFile(filepath.Join(hostileFolder(), "legacy_view_beyond.pt"))
	if err != nil {
		t.Fatal(err)
	}
	const bounds = "K\x02K\x03t" // a view of 3 elements from the second on, of 4
	if bytes.Count(file, []byte(bounds)) != 1 {
		t.Fatal("the file has no such view")
	}
	long := func(n int64) string { return "\x8a\x08" + string(binary.LittleEndian.AppendUint64(nil, uint64(n))) }
	for _, view := range []struct {
		first, count int64
		ok           bool
	}{
		{2, 2, true}, {0, 4, true}, {4, 0, true}, {1, 2, true}, {2, 3, false}, {5, 0, false}, {0, 5, false}, {-1, 2, false},
		{2, -1, false}, {1 << 60, 1 << 60, false}, {1<<61 - 1, 1<<61 - 1, false}, {1<<61 - 1, 2, false}, {2, 1<<61 - 1, false},
		{1 << 62, 1, false}, {math.MaxInt64, math.MaxInt64, false}, {math.MinInt64, math.MinInt64, false},
	} {
		text := strings.Replace(string(file), bounds, long(view.first)+long(view.count)+"t", 1)
		// The tensor has 4 elements: of a smaller view none.
		text = strings.Replace(text, "(K\x04t(K\x01t", "(K"+string(rune(max(0, min(view.count, 4))))+"t(K\x01t", 1)
		ckpt, err := Open(writeTemp(t, []byte(text)))
		if err == nil {
			ckpt.Close()
		}
		if view.ok && err != nil || !view.ok && !errors.Is(err, ErrFormat) {
			t.Errorf("%d elements from %d on: %v", view.count, view.first, err)
		}
	}
}
