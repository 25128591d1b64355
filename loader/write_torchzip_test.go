package loader

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/optimem/optimem/loader/internal/limit"
	"github.com/optimem/optimem/loader/internal/ziparchive"
	"github.com/optimem/optimem/tensor"
)

// memory is a source over bytes.
type memory []byte

func (m memory) Size() int64 { return int64(len(m)) }

func (m memory) ReadAt(ctx context.Context, p []byte, off int64) error {
	if off < 0 || int64(len(p)) > m.Size()-off {
		return errors.New("read outside the source")
	}
	copy(p, m[off:])
	return ctx.Err()
}

// oneOfEach is the state dict of ziparchive/testdata/make.py: a tensor of each dtype.
func oneOfEach() []TensorData {
	var list []TensorData
	for k, d := range []tensor.DType{
		tensor.Float32, tensor.Float64, tensor.Float16, tensor.BFloat16, tensor.Int8, tensor.Int16, tensor.Int32,
		tensor.Int64, tensor.UInt8, tensor.Bool, tensor.Complex64, tensor.Complex128, tensor.UInt16, tensor.UInt32,
		tensor.UInt64, tensor.Float8E4M3FN, tensor.Float8E5M2, tensor.Float8E4M3FNUZ, tensor.Float8E5M2FNUZ,
		tensor.Float8E8M0FNU, tensor.Complex32,
	} {
		modulus := int64(64)
		if d == tensor.Bool {
			modulus = 2
		}
		list = append(list, TensorData{
			Name:  "layer." + d.String(),
			DType: d,
			Shape: []tensor.Shape{{2, 3}, {}, {0, 4}, {1, 2, 1, 3}}[k%4],
			ReadAt: func(_ context.Context, p []byte, off int64) error {
				for i := range p {
					p[i] = byte((int64(k) + 1 + off + int64(i)) % modulus)
				}
				return nil
			},
		})
	}
	return list
}

// TestWriteTorchZipEqualsPyTorch compares with a file that torch.save wrote. Only half of the serialization id, a hash
// that depends on the C++ library, may differ, and the checksum of it.
func TestWriteTorchZipEqualsPyTorch(t *testing.T) {
	want, err := os.ReadFile("internal/ziparchive/testdata/statedict.pt")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := WriteTorchZip(t.Context(), &out, "statedict", oneOfEach()); err != nil {
		t.Fatal(err)
	}
	got := out.Bytes()
	records := func(b []byte) *ziparchive.Archive {
		a, problems, err := ziparchive.Read(t.Context(), memory(b), ziparchive.Options{})
		if err != nil || len(problems) > 0 {
			t.Fatal(err, problems)
		}
		return a
	}
	a, b := records(got), records(want)
	if len(a.Records()) != len(b.Records()) {
		t.Fatalf("%d records, PyTorch writes %d", len(a.Records()), len(b.Records()))
	}
	for i, w := range b.Records() {
		g := a.Records()[i]
		if g.Name != w.Name || g.DataOffset != w.DataOffset {
			t.Errorf("record %s at %d, PyTorch writes %s at %d", g.Name, g.DataOffset, w.Name, w.DataOffset)
		}
		x, errX := a.ReadAll(t.Context(), g, limit.New(1<<20))
		y, errY := b.ReadAll(t.Context(), w, limit.New(1<<20))
		if errX != nil || errY != nil {
			t.Fatal(errX, errY)
		}
		if strings.HasSuffix(g.Name, "/.data/serialization_id") {
			x, y = x[20:], y[20:]
		}
		if !bytes.Equal(x, y) {
			t.Errorf("%s: %q, PyTorch writes %q", g.Name, x, y)
		}
	}
	differ := 0
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			differ++
		}
	}
	if len(got) != len(want) || differ > 20+2*4 {
		t.Errorf("%d bytes, %d of them different; PyTorch writes %d", len(got), differ, len(want))
	}
}

// The sums are those that ziparchive/testdata/make.py prints: of data.pkl with so many tensors that the numbers of
// remembered objects take four bytes and the dictionary is written in several batches.
func TestPickleEqualsPyTorch(t *testing.T) {
	for n, want := range map[int]string{
		1:    "0674a60c89ac41321f6240b8752282293aa59a620dbcfdf42762bb2e10b1e430",
		255:  "18a6b05dd08c80aa9dc94db1195a16f638bb88b69d07e36063187cb2eb595f1a",
		1000: "f8f311eb22d8f64eb7d1cdf6db28351da25823cf08fb4066c2ba2684644a6c29",
		1001: "f75b489c561d2cad3a9438dea59e2cec12b3a56a43284eb8007ff670469b8310",
	} {
		var list []TensorData
		for i := range n {
			name, shape := fmt.Sprintf("t%d", i), tensor.Shape{i % 3, 70000}
			list = append(list, TensorData{Name: name, DType: tensor.Float32, Shape: shape})
		}
		pickle, err := pickleStateDict(list)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(pickle)
		if got := hex.EncodeToString(sum[:]); got != want {
			t.Errorf("%d tensors: the pickle of %d bytes has SHA-256 %s, PyTorch's %s", n, len(pickle), got, want)
		}
	}
}

func TestPickleInt(t *testing.T) {
	for n, want := range map[int64]string{
		0: "K\x00", 255: "K\xff", 256: "M\x00\x01", 65535: "M\xff\xff", 65536: "J\x00\x00\x01\x00",
		1<<31 - 1: "J\xff\xff\xff\x7f", 1 << 31: "\x8a\x05\x00\x00\x00\x80\x00", 1 << 32: "\x8a\x05\x00\x00\x00\x00\x01",
		1<<39 - 1: "\x8a\x05\xff\xff\xff\xff\x7f", 1 << 39: "\x8a\x06\x00\x00\x00\x00\x80\x00",
	} {
		var p pickler
		if p.int(n); string(p.out) != want {
			t.Errorf("%d is pickled as %q, want %q", n, p.out, want)
		}
	}
}

func TestWritersRefuse(t *testing.T) {
	one := TensorData{Name: "w", DType: tensor.Float32, Shape: tensor.Shape{2}, ReadAt: memory(make([]byte, 8)).ReadAt}
	with := func(change func(*TensorData)) []TensorData {
		d := one
		change(&d)
		return []TensorData{d}
	}
	broken := errors.New("disk on fire")
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		what string
		ctx  context.Context
		w    io.Writer
		list []TensorData
		is   error
		msg  string
	}{
		{"duplicate", t.Context(), io.Discard, []TensorData{one, one}, nil, `two tensors are named "w"`},
		{"quantized", t.Context(), io.Discard, with(func(d *TensorData) { d.DType = tensor.QInt8 }),
			ErrUnsupported, "qint8"},
		{"no dtype", t.Context(), io.Discard, with(func(d *TensorData) { d.DType = tensor.Invalid }),
			ErrUnsupported, "invalid"},
		{"name", t.Context(), io.Discard, with(func(d *TensorData) { d.Name = "\xff" }), nil, `\xff`},
		{"negative", t.Context(), io.Discard, with(func(d *TensorData) { d.Shape = tensor.Shape{-1} }),
			tensor.ErrLayout, "w: "},
		{"too large", t.Context(), io.Discard, with(func(d *TensorData) { d.Shape = tensor.Shape{1 << 31, 1 << 31} }),
			tensor.ErrLayout, "w: "},
		{"source fails", t.Context(), io.Discard, with(func(d *TensorData) {
			d.ReadAt = func(context.Context, []byte, int64) error { return broken }
		}), broken, "w: "},
		{"destination fails", t.Context(), writerFunc(func([]byte) (int, error) { return 0, broken }),
			[]TensorData{one}, broken, ""},
		{"cancelled", cancelled, io.Discard, []TensorData{one}, context.Canceled, ""},
	} {
		for format, err := range map[string]error{
			"torch zip":   WriteTorchZip(c.ctx, c.w, "m", c.list),
			"safetensors": WriteSafetensors(c.ctx, c.w, c.list, nil),
		} {
			if err == nil || !strings.Contains(err.Error(), c.msg) || c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("%s, %s: %v; want %v with %q", c.what, format, err, c.is, c.msg)
			}
		}
	}
	if err := WriteTorchZip(t.Context(), io.Discard, "a/b", nil); err == nil {
		t.Error("a slash in the folder's name is accepted")
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// python runs a script, with the given arguments, in a Python that has the modules, or skips the test. Set
// OPTIMEM_PYTHON to choose the interpreter.
func python(t *testing.T, modules []string, script string, args ...string) string {
	t.Helper()
	name := os.Getenv("OPTIMEM_PYTHON")
	if name == "" {
		name = "python3"
	}
	if out, err := exec.Command(name, "-c", "import "+strings.Join(modules, ", ")).CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: not compared with the original: %s cannot import %v (%v: %s); set OPTIMEM_PYTHON",
			name, modules, err, bytes.TrimSpace(out))
	}
	cmd := exec.Command(name, append([]string{"-c", script}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, stderr.Bytes())
	}
	return string(out)
}

// printTensors is Python that prints a line for each tensor of the dict d.
const printTensors = `
import hashlib
for name, t in d.items():
    raw = t.contiguous().flatten().view(torch.uint8).numpy().tobytes() if t.numel() else b""
    print(name, str(t.dtype)[6:], list(t.shape), list(t.stride()), hashlib.sha256(raw).hexdigest()[:16])
`

// listing is what printTensors prints of tensors that were written right.
func listing(t *testing.T, list []TensorData) string {
	var b strings.Builder
	for _, d := range list {
		n, err := d.bytes()
		if err != nil {
			t.Fatal(err)
		}
		p := make([]byte, n)
		if err := d.ReadAt(t.Context(), p, 0); err != nil {
			t.Fatal(err)
		}
		pythonList := func(ns []int) string { return strings.ReplaceAll(fmt.Sprint(ns), " ", ", ") }
		sum := sha256.Sum256(p)
		fmt.Fprintln(&b, d.Name, d.DType, pythonList(d.Shape), pythonList(tensor.Contiguous(d.Shape...).Strides),
			hex.EncodeToString(sum[:8]))
	}
	return b.String()
}

func createFile(t *testing.T, name string, write func(w io.Writer) error) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(write(f), f.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTorchLoadsWhatIsWritten(t *testing.T) {
	list := append(oneOfEach(), TensorData{
		Name: "mlp.größe.weight", DType: tensor.Float32, Shape: tensor.Shape{300, 1001},
		ReadAt: Random{Seed: 1, Tensor: 2, DType: tensor.Float32, Scale: 0.5}.ReadAt,
	})
	path := createFile(t, "written.pt", func(w io.Writer) error {
		return WriteTorchZip(t.Context(), w, "written", list)
	})
	for _, mmap := range []string{"False", "True"} {
		got := python(t, []string{"torch"}, `
import sys, torch
d = torch.load(sys.argv[1], weights_only=True, mmap=`+mmap+`)
`+printTensors, path)
		if want := listing(t, list); got != want {
			t.Errorf("torch.load with mmap=%s sees\n%swant\n%s", mmap, got, want)
		}
	}
}
