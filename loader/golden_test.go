package loader

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/optimem/optimem/internal/fixtures"
	"github.com/optimem/optimem/tensor"
)

// validFolder is that of testdata/README.md.
func validFolder() string { return fixtures.Folder("testdata/valid.tar.bz2") }

// A golden is what PyTorch itself saw in a fixture; testdata/README.md explains the fields.
type golden struct {
	Format      string
	Error       string
	Tensors     []goldenTensor
	Constants   []goldenTensor // of a TorchScript archive
	Unsupported []struct{ Name string }
	Values      []struct {
		Name, Type string
		Value      any
	}
	Modules   *goldenModule
	StateDict *struct {
		Path, Prefix string
		Names        []string
	} `json:"state_dict"`
}

type goldenTensor struct {
	Name         string
	DType        string
	Shape        []int
	Stride       []int
	Offset       int
	StorageBytes int64 `json:"storage_bytes"`
	SHA256       string
	SharesWith   *string `json:"shares_with"`
	Conj, Neg    bool
	Quant        *struct {
		Scheme     string
		Scale      float64
		ZeroPoint  int64 `json:"zero_point"`
		Axis       int
		Scales     *struct{ SHA256 string }
		ZeroPoints *struct{ SHA256 string } `json:"zero_points"`
	}
}

type goldenModule struct {
	Class    string
	Path     string
	Training bool
	Params   []goldenMember
	Buffers  []goldenMember
	Children []*goldenModule
}

type goldenMember struct{ Name, Weight string }

// goldens returns the valid fixtures with their goldens.
func goldens(t *testing.T) map[string]golden {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(validFolder(), "*.golden.json"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no goldens: %v", err)
	}
	all := make(map[string]golden)
	for _, p := range paths {
		text, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		var g golden
		if err := json.Unmarshal(text, &g); err != nil {
			t.Fatalf("%s: %v", p, err)
		}
		all[strings.TrimSuffix(filepath.Base(p), ".golden.json")] = g
	}
	return all
}

var classByName = map[string]error{
	"format": ErrFormat, "unsupported": ErrUnsupported, "unsafe": ErrUnsafe, "limit": ErrLimit,
}

// TestGolden opens every fixture and compares names, dtypes, shapes, strides, sharing and contents with PyTorch's.
func TestGolden(t *testing.T) {
	for name, want := range goldens(t) {
		t.Run(name, func(t *testing.T) {
			ckpt, err := Open(filepath.Join(validFolder(), name))
			if want.Error != "" {
				if err == nil {
					ckpt.Close()
					t.Fatalf("opened; want an error of class %s", want.Error)
				}
				if class := classByName[want.Error]; Class(err) == nil || class != nil && !errors.Is(err, class) {
					t.Fatalf("error %v; want class %s", err, want.Error)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer ckpt.Close()
			if got := string(ckpt.Format); got != want.Format {
				t.Errorf("format %s, want %s", got, want.Format)
			}
			for _, c := range want.Constants {
				c.Name = "CONSTANTS." + c.Name
				want.Tensors = append(want.Tensors, c)
			}
			compareTensors(t, ckpt, want.Tensors)
			compareUnreadable(t, ckpt, want)
			if want.Modules != nil && ckpt.Format != FormatTorchScript {
				if diff := cmp.Diff(want.Modules, moduleGolden(ckpt.Module)); diff != "" {
					t.Errorf("module tree (-PyTorch +ours):\n%s", diff)
				}
			}
			if want.StateDict != nil {
				compareStateDict(t, ckpt, want)
			}
		})
	}
}

func compareTensors(t *testing.T, ckpt *Checkpoint, want []goldenTensor) {
	t.Helper()
	var got []goldenTensor
	for i, w := range ckpt.Weights {
		contents, err := w.Contents(t.Context())
		if err != nil {
			t.Errorf("%s: %v", w.Name, err)
			continue
		}
		sum := sha256.Sum256(contents.Data)
		g := goldenTensor{
			Name: w.Name, DType: w.DType.String(), Shape: w.Layout.Shape, Stride: w.Layout.Strides, Offset: w.Layout.Offset,
			StorageBytes: w.Extent.Bytes, SHA256: hex.EncodeToString(sum[:]), Conj: w.Conj, Neg: w.Neg,
		}
		if j := slices.IndexFunc(ckpt.Weights[:i], w.SharesStorage); j >= 0 {
			g.SharesWith = &ckpt.Weights[j].Name
		}
		got = append(got, g)
	}
	byName := func(a, b goldenTensor) int { return strings.Compare(a.Name, b.Name) }
	want = slices.Clone(want)
	slices.SortFunc(want, byName)
	slices.SortFunc(got, byName)
	for i := range want {
		compareQuant(t, ckpt, want[i])
		want[i].Quant = nil
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("tensors (-PyTorch +ours):\n%s", diff)
	}
}

func compareQuant(t *testing.T, ckpt *Checkpoint, want goldenTensor) {
	t.Helper()
	w, ok := ckpt.Weight(want.Name)
	if !ok || want.Quant == nil {
		return
	}
	q := w.Quant
	if q == nil {
		t.Errorf("%s: no quantizer", want.Name)
		return
	}
	if q.Scheme != want.Quant.Scheme || q.Scale != want.Quant.Scale || q.ZeroPoint != want.Quant.ZeroPoint ||
		q.Axis != want.Quant.Axis {
		t.Errorf("%s: quantizer %+v, want %+v", want.Name, q, want.Quant)
	}
	for _, pair := range []struct {
		got  *tensor.Weight
		want *struct{ SHA256 string }
	}{{q.Scales, want.Quant.Scales}, {q.ZeroPoints, want.Quant.ZeroPoints}} {
		if (pair.got == nil) != (pair.want == nil) {
			t.Errorf("%s: scales or zero points are missing, or too many", want.Name)
			continue
		}
		if pair.got == nil {
			continue
		}
		contents, err := pair.got.Contents(t.Context())
		if err != nil {
			t.Errorf("%s: %v", pair.got.Name, err)
			continue
		}
		if sum := sha256.Sum256(contents.Data); hex.EncodeToString(sum[:]) != pair.want.SHA256 {
			t.Errorf("%s: other contents than PyTorch's", pair.got.Name)
		}
	}
}

func compareUnreadable(t *testing.T, ckpt *Checkpoint, want golden) {
	t.Helper()
	var got, names []string
	for _, e := range ckpt.Unreadable {
		if !errors.Is(e, ErrUnsupported) {
			t.Errorf("unreadable %s: %v is not ErrUnsupported", e.Record, e)
		}
		got = append(got, e.Record)
	}
	for _, u := range want.Unsupported {
		names = append(names, u.Name)
	}
	slices.Sort(got)
	slices.Sort(names)
	if diff := cmp.Diff(names, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("unreadable tensors (-PyTorch +ours):\n%s", diff)
	}
}

func moduleGolden(m *Module) *goldenModule {
	if m == nil {
		return nil
	}
	g := &goldenModule{
		Class: m.Class, Path: m.Path, Training: m.Training,
		Params: []goldenMember{}, Buffers: []goldenMember{}, Children: []*goldenModule{},
	}
	for _, p := range m.Params {
		g.Params = append(g.Params, goldenMember{p.Name, p.Weight})
	}
	for _, b := range m.Buffers {
		g.Buffers = append(g.Buffers, goldenMember{b.Name, b.Weight})
	}
	for _, c := range m.Children {
		g.Children = append(g.Children, moduleGolden(c))
	}
	return g
}

func compareStateDict(t *testing.T, ckpt *Checkpoint, want golden) {
	t.Helper()
	dicts := ckpt.StateDicts()
	if len(dicts) == 0 {
		t.Fatal("no state dict found")
	}
	d := dicts[0]
	if d.Path != want.StateDict.Path || d.Prefix != want.StateDict.Prefix {
		t.Errorf("state dict at %q with prefix %q, want %q and %q", d.Path, d.Prefix, want.StateDict.Path, want.StateDict.Prefix)
	}
	var names []string
	for _, w := range d.Weights {
		names = append(names, w.Name)
	}
	if diff := cmp.Diff(want.StateDict.Names, names); diff != "" {
		t.Errorf("names (-PyTorch +ours):\n%s", diff)
	}
}

// TestScanVerdicts compares scan's verdict on every fixture with the globals that Python's pickletools found, and holds
// it to its promise: what it accepts, Open accepts.
func TestScanVerdicts(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(validFolder(), "expected_scan.json"))
	if err != nil {
		t.Fatal(err)
	}
	var expected map[string]struct {
		Verdict string
		Classes []string
	}
	if err := json.Unmarshal(text, &expected); err != nil {
		t.Fatal(err)
	}
	verdicts := map[string]Verdict{
		"data": VerdictData, "classes": VerdictClasses, "unsafe": VerdictUnsafe, "refused": VerdictUnread,
	}
	for name, want := range expected {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(validFolder(), name)
			report, err := Scan(t.Context(), path, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if report.Verdict != verdicts[want.Verdict] && !(want.Verdict == "refused" && report.Verdict.Refused()) {
				t.Errorf("verdict %q, want %q; problems: %v", report.Verdict, want.Verdict, report.Problems)
			}
			if want.Verdict == "classes" {
				if diff := cmp.Diff(want.Classes, report.Classes); diff != "" {
					t.Errorf("classes (-Python +ours):\n%s", diff)
				}
			}
			ckpt, err := Open(path)
			if (err == nil) == report.Verdict.Refused() {
				t.Errorf("scan says %q and open says %v", report.Verdict, err)
			}
			if err == nil {
				ckpt.Close()
			}
		})
	}
}
