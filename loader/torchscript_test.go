package loader

import (
	"encoding/binary"
	"encoding/json"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/optimem/optimem/loader/internal/ziparchive"
	"github.com/optimem/optimem/loader/script"
)

// A scriptGolden is what a fixture's golden says of a TorchScript archive beyond its tensors.
type scriptGolden struct {
	Format  string
	Modules *scriptModule
	Methods map[string]struct {
		Args    []struct{ Name, Type string }
		Returns []string
	}
	Code map[string]string
}

type scriptModule struct {
	Class    string
	Path     string
	Training any
	Tensors  []string
	Attrs    map[string]any
	Children []*scriptModule
}

// TestTorchScriptGolden compares the object tree and the methods' signatures with PyTorch's.
func TestTorchScriptGolden(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(validFolder(), "*ts_*.golden.json"))
	if err != nil || len(paths) < 20 {
		t.Fatalf("%d goldens: %v", len(paths), err)
	}
	for _, p := range paths {
		t.Run(filepath.Base(strings.TrimSuffix(p, ".golden.json")), func(t *testing.T) {
			text, err := os.ReadFile(p)
			if err != nil {
				t.Fatal(err)
			}
			var want scriptGolden
			if err := json.Unmarshal(text, &want); err != nil {
				t.Fatal(err)
			}
			if want.Format != string(FormatTorchScript) {
				t.Skip("another format")
			}
			ckpt, err := Open(strings.TrimSuffix(p, ".golden.json"))
			if err != nil {
				t.Fatal(err)
			}
			defer ckpt.Close()
			prog := ckpt.Program.Script
			if diff := cmp.Diff(want.Modules, treeOf(t, prog.Root, "")); diff != "" {
				t.Errorf("object tree (-PyTorch +ours):\n%s", diff)
			}
			if len(prog.Files) != len(want.Code) {
				t.Errorf("%d files of code, want %d", len(prog.Files), len(want.Code))
			}
			for name, m := range want.Methods {
				f := prog.Method(prog.Root.Class, name)
				if f == nil {
					t.Errorf("no method %s", name)
					continue
				}
				if got := f.Returns.String(); got != m.Returns[0] {
					t.Errorf("%s returns %s, want %s", name, got, m.Returns[0])
				}
				for i, a := range m.Args {
					if i >= len(f.Args) || f.Args[i].Name != a.Name || f.Args[i].Type.String() != a.Type {
						t.Errorf("%s: argument %d is not %s %s", name, i, a.Name, a.Type)
					}
				}
			}
		})
	}
}

// treeOf writes an object as the fixtures' script does.
func treeOf(t *testing.T, o *script.Object, path string) *scriptModule {
	m := &scriptModule{
		Class: o.Class, Path: path, Tensors: []string{}, Attrs: map[string]any{}, Children: []*scriptModule{},
	}
	for _, f := range o.Attributes {
		switch v := f.Value.(type) {
		case script.Tensor:
			if want := join(path, f.Name); f.Name != "" && string(v) != want {
				t.Errorf("attribute %s holds the tensor %s", want, v)
			}
			m.Tensors = append(m.Tensors, f.Name)
		case *script.Object:
			m.Children = append(m.Children, treeOf(t, v, join(path, f.Name)))
		default:
			switch f.Name {
			case "": // the state of a class that PyTorch defines
			case "training":
				m.Training = v
			default:
				m.Attrs[f.Name] = plainValue(v)
			}
		}
	}
	return m
}

// plainValue writes a value as JSON read back would be.
func plainValue(v script.Value) any {
	list := func(items []script.Value) any {
		out := []any{}
		for _, item := range items {
			out = append(out, plainValue(item))
		}
		return out
	}
	switch v := v.(type) {
	case int64:
		return float64(v)
	case float64:
		if math.IsInf(v, 1) {
			return map[string]any{"float": "inf"}
		}
		return v
	case script.Tensor:
		return map[string]any{"class": "tensor"}
	case script.ListValue:
		return list(v)
	case script.TupleValue:
		return list(v)
	case script.DictValue:
		pairs := []any{}
		for _, e := range v {
			pairs = append(pairs, []any{e.Key, plainValue(e.Value)})
		}
		return map[string]any{"map": pairs}
	}
	return v
}

func TestTorchScriptTracedInputs(t *testing.T) {
	ckpt, err := Open(filepath.Join(validFolder(), "ts_traced_cnn.pt"))
	if err != nil {
		t.Fatal(err)
	}
	defer ckpt.Close()
	want := []script.TracedCall{{
		Method: "forward",
		Args:   []script.Value{script.TracedTensor{DType: "float32", Shape: []int{1, 2, 4, 4}}},
	}}
	if diff := cmp.Diff(want, ckpt.Program.Script.Traced); diff != "" {
		t.Errorf("traced inputs (-want +got):\n%s", diff)
	}
}

// Opcodes of hand-written pickles.
func pklGlobal(module, name string) string { return "c" + module + "\n" + name + "\n" }

func pklString(s string) string {
	return "X" + string(binary.LittleEndian.AppendUint32(nil, uint32(len(s)))) + s
}

func pklTensor(key string) string {
	return pklGlobal("torch._utils", "_rebuild_tensor_v2") + "((" + pklString("storage") +
		pklGlobal("torch", "FloatStorage") + pklString(key) + pklString("cpu") + "K\x02tQK\x00K\x02\x85K\x01\x85\x89" +
		pklGlobal("collections", "OrderedDict") + ")RtR"
}

// pklObject is an object of the class __torch__.<name> with a state.
func pklObject(name, state string) string {
	return pklGlobal("__torch__", name) + ")\x81" + state + "b"
}

func pklDict(pairs ...string) string {
	s := "}("
	for i := 0; i < len(pairs); i += 2 {
		s += pklString(pairs[i]) + pairs[i+1]
	}
	return s + "u"
}

const scriptCode = `class M(Module):
  __parameters__ = ["w", ]
  __buffers__ = []
  w : Tensor
  mode : __torch__.Mode
  dev : Device
  a : __torch__.Sub
  b : __torch__.Sub
  packed : __torch__.torch.classes.quantized.Packed
  def forward(self: __torch__.M,
    x: Tensor) -> Tensor:
    return torch.add(x, CONSTANTS.c0)
class Sub(Module):
  __parameters__ = ["w", ]
  __buffers__ = []
  w : Tensor
class Mode(Enum):
  FAST = "fast"
`

// scriptRecords are the records of a sound archive.
func scriptRecords() map[string]string {
	return map[string]string{
		"version":                     "3\n",
		"byteorder":                   "little",
		"code/__torch__.py":           scriptCode,
		"code/__torch__.py.debug_pkl": "anything",
		"extra/readme.pkl":            "the user's own",
		"data/0":                      "aaaabbbb",
		"data/1":                      "ccccdddd",
		"constants/0":                 "eeeeffff",
		"constants.pkl":               "\x80\x02" + pklTensor("0") + pklString("text") + "\x86.",
		"data.pkl": "\x80\x02" + pklObject("M", pklDict(
			"w", pklTensor("0"),
			"mode", pklGlobal("__torch__", "Mode")+pklString("fast")+"R",
			"dev", pklGlobal("torch", "device")+pklString("cuda")+"K\x01\x86R",
			"a", pklObject("Sub", pklDict("w", pklTensor("1")))+"q\x01",
			"b", "h\x01",
			"packed", pklGlobal("__torch__.torch.classes.quantized", "Packed")+")\x81"+pklTensor("1")+"K\x07\x86b",
		)) + ".",
	}
}

// writeScript writes an archive. The order of records is that of the names.
func writeScript(t testing.TB, records map[string]string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.pt")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := ziparchive.NewWriter(f, "archive")
	for _, name := range slices.Sorted(maps.Keys(records)) {
		if err := w.WriteRecord(name, []byte(records[name])); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTorchScriptValues(t *testing.T) {
	ckpt, err := Open(writeScript(t, scriptRecords()))
	if err != nil {
		t.Fatal(err)
	}
	defer ckpt.Close()
	names := []string{"w", "a.w", "b.w", "packed.0", "CONSTANTS.c0"}
	if diff := cmp.Diff(names, weightNames(ckpt)); diff != "" {
		t.Errorf("weights (-want +got):\n%s", diff)
	}
	a, _ := ckpt.Weight("a.w")
	b, _ := ckpt.Weight("b.w")
	c, _ := ckpt.Weight("CONSTANTS.c0")
	if !a.SharesStorage(b) || a.SharesStorage(c) {
		t.Error("a.w and b.w are the same bytes, CONSTANTS.c0 others")
	}
	prog := ckpt.Program.Script
	sub := &script.Object{Class: "__torch__.Sub", Attributes: []script.Field{{Name: "w", Value: script.Tensor("a.w")}}}
	want := &script.Object{Class: "__torch__.M", Attributes: []script.Field{
		{Name: "w", Value: script.Tensor("w")},
		{Name: "mode", Value: script.EnumValue{Class: "__torch__.Mode", Value: "fast"}},
		{Name: "dev", Value: script.Device("cuda:1")},
		{Name: "a", Value: sub},
		{Name: "b", Value: sub},
		{Name: "packed", Value: &script.Object{Class: "__torch__.torch.classes.quantized.Packed", Attributes: []script.Field{
			{Name: "", Value: script.TupleValue{script.Tensor("packed.0"), int64(7)}},
		}}},
	}}
	if diff := cmp.Diff(want, prog.Root); diff != "" {
		t.Errorf("root (-want +got):\n%s", diff)
	}
	first, _ := prog.Root.Attribute("a")
	second, _ := prog.Root.Attribute("b")
	if first != second {
		t.Error("a shared object has become two")
	}
	if diff := cmp.Diff([]script.Value{script.Tensor("CONSTANTS.c0"), "text"}, prog.Constants); diff != "" {
		t.Errorf("constants (-want +got):\n%s", diff)
	}
	report, err := Scan(t.Context(), ckpt.Path, Options{})
	if err != nil || report.Verdict != VerdictData {
		t.Errorf("scan: %+v, %v", report, err)
	}
}

// TestTorchScriptFails changes one record of a sound archive at a time; "" removes it.
func TestTorchScriptFails(t *testing.T) {
	root := func(state string) string { return "\x80\x02" + pklObject("M", state) + "." }
	var deep string
	for range 300 {
		deep += "]"
	}
	doubling := "]q\x00"
	for i := range 40 { // each list holds the one before twice
		last := "h" + string(rune(i))
		doubling += "0](" + last + last + "eq" + string(rune(i+1))
	}
	for _, tt := range []struct {
		why, record, content string
		class                error
		says                 string
	}{
		{"version is a word", "version", "three", ErrFormat, "version"},
		{"long version", "version", strings.Repeat("1", 100), ErrFormat, "100 bytes"},
		{"byte order", "byteorder", "middle", ErrFormat, "byte order"},
		{"stray record in code", "code/__torch__.so", "x", ErrFormat, "neither code"},
		{"broken code", "code/__torch__.py", "class M(Module:\n", ErrFormat, "__torch__.py:1:15"},
		{"foreign code", "code/__torch__.py", "import os\nos.system('x')\n", ErrUnsupported, "__torch__.py:2:1"},
		{"code without its class", "code/__torch__.py", "", ErrFormat, "not in the code"},
		{"deep code", "code/__torch__.py", "def f(x: int) -> int:\n  return " + strings.Repeat("[", 1000), ErrLimit, "deep"},
		{"no root", "data.pkl", "", ErrFormat, "data.pkl"},
		{"root is a number", "data.pkl", "\x80\x02K\x01.", ErrFormat, "not a module"},
		{"root is an Enum", "data.pkl", "\x80\x02" + pklGlobal("__torch__", "Mode") + pklString("x") + "R.", ErrFormat,
			"not a module"},
		{"Enum without a value", "data.pkl", root(pklDict("mode", pklGlobal("__torch__", "Mode")+")\x81")), ErrFormat,
			"wrong way"},
		{"call of a module", "data.pkl", root(pklDict("a", pklGlobal("__torch__", "Sub")+pklString("x")+"R")), ErrFormat,
			"wrong way"},
		{"call with two arguments", "data.pkl", root(pklDict("a", pklGlobal("__torch__", "Sub")+"K\x01K\x02\x86R")),
			ErrFormat, "2 arguments"},
		{"two states", "data.pkl", root(pklDict() + "b" + pklDict()), ErrFormat, "second state"},
		{"object in itself", "data.pkl",
			"\x80\x02" + pklGlobal("__torch__", "M") + ")\x81q\x01" + pklDict("a", "h\x01") + "b.", ErrFormat, "itself"},
		{"list in itself", "data.pkl", root(pklDict("a", "]q\x01h\x01a")), ErrFormat, "itself"},
		{"attribute without a name", "data.pkl", root("}K\x01K\x02s"), ErrFormat, "no name"},
		{"bytes", "data.pkl", root(pklDict("a", "\x8e"+strings.Repeat("\x00", 8))), ErrFormat, ""},
		{"number too large", "data.pkl", root(pklDict("a", "\x8a\x09"+strings.Repeat("\x01", 9))), ErrUnsupported,
			"no type"},
		{"class as a value", "data.pkl", root(pklDict("a", pklGlobal("__torch__", "Sub"))), ErrUnsupported, "no type"},
		{"foreign class", "data.pkl", root(pklDict("a", pklGlobal("mymodule", "Thing")+")\x81")), ErrUnsafe, "mymodule"},
		{"foreign call", "data.pkl", root(pklDict("a", pklGlobal("os", "system")+pklString("true")+"R")), ErrUnsafe, "os"},
		{"deep values", "data.pkl", root(pklDict("a", deep+strings.Repeat("a", 299))), ErrLimit, ""},
		{"values that double", "data.pkl", root(pklDict("a", doubling)), ErrLimit, ""},
		{"storage of another archive", "data.pkl", root(pklDict("w", pklTensor("7"))), ErrFormat, "no record"},
		{"storage too short", "data/0", "aaaa", ErrFormat, "declared as 8 bytes"},
		{"bytes after the pickle", "data.pkl", root(pklDict()) + "x", ErrUnsafe, "after the end"},
		{"constants are a list", "constants.pkl", "\x80\x02].", ErrFormat, "not a tuple"},
		{"constants call", "constants.pkl", "\x80\x02" + pklGlobal("os", "system") + pklString("true") + "\x85R.", ErrUnsafe,
			"os"},
		{"another pickle calls", "bytecode.pkl", "\x80\x02" + pklGlobal("os", "system") + pklString("true") + "\x85R.",
			ErrUnsafe, "os"},
		{"traced inputs are a list", "traced_inputs.pkl", "\x80\x02].", ErrFormat, "by method"},
		{"traced inputs call", "traced_inputs.pkl", "\x80\x02" + pklGlobal("os", "system") + pklString("a") + "\x85R.",
			ErrUnsafe, "os"},
	} {
		t.Run(tt.why, func(t *testing.T) {
			records := scriptRecords()
			if records[tt.record] = tt.content; tt.content == "" && tt.record != "code/__torch__.py" {
				delete(records, tt.record)
			}
			path := writeScript(t, records)
			ckpt, err := Open(path)
			if err == nil {
				ckpt.Close()
				t.Fatal("opened")
			}
			if Class(err) != tt.class || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("error %v, want %v with %q", err, tt.class, tt.says)
			}
			report, err := Scan(t.Context(), path, Options{})
			if err != nil || !report.Verdict.Refused() {
				t.Errorf("scan: %+v, %v", report, err)
			}
		})
	}
}
