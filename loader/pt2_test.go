package loader

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/optimem/optimem/loader/exported"
	"github.com/optimem/optimem/loader/internal/limit"
	"github.com/optimem/optimem/loader/internal/ziparchive"
	"github.com/optimem/optimem/storage"
)

// A goldenModel is what PyTorch saw in one program of a fixture.
type goldenModel struct {
	Schema  struct{ Major, Minor int64 } `json:"schema_version"`
	Torch   string                       `json:"torch_version"`
	Inputs  []goldenSpec
	Outputs []goldenSpec
	Args    []string `json:"forward_arg_names"`
	Nodes   [][]*string
	Targets []string `json:"written_targets"`
	Values  []string `json:"tensor_values"`
	Calls   []string `json:"module_calls"`
}

type goldenSpec struct {
	Kind, Arg  string
	Name       any
	Target     string
	Persistent *bool
	DType      string
	Shape      []any
}

func goldenModels(t *testing.T, name string) map[string]goldenModel {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(validFolder(), name+".golden.json"))
	if err != nil {
		t.Fatal(err)
	}
	var g struct{ Models map[string]goldenModel }
	if err := json.Unmarshal(text, &g); err != nil {
		t.Fatal(err)
	}
	return g.Models
}

func TestExportedPrograms(t *testing.T) {
	names, err := filepath.Glob(filepath.Join(validFolder(), "*pt2_*.pt2"))
	if err != nil || len(names) < 20 {
		t.Fatalf("%d fixtures, %v", len(names), err)
	}
	for _, path := range names {
		name := filepath.Base(path)
		if strings.Contains(name, "subclass") || strings.Contains(name, "refused") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			ckpt, err := Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer ckpt.Close()
			programs := append([]*exported.Program{ckpt.Program.Exported}, ckpt.Program.Exported.Others...)
			want := goldenModels(t, name)
			if len(programs) != len(want) {
				t.Fatalf("%d programs, want %d", len(programs), len(want))
			}
			for _, p := range programs {
				compareProgram(t, p, want[p.Name])
			}
		})
	}
}

func compareProgram(t *testing.T, p *exported.Program, want goldenModel) {
	t.Helper()
	if v := p.SchemaVersion; v != (exported.Version{Major: want.Schema.Major, Minor: want.Schema.Minor}) {
		t.Errorf("%s: schema %v, want %v", p.Name, v, want.Schema)
	}
	if p.TorchVersion != want.Torch {
		t.Errorf("%s: torch %q, want %q", p.Name, p.TorchVersion, want.Torch)
	}
	var targets, calls []string
	for _, n := range p.Graph.Nodes {
		targets = append(targets, n.Target)
	}
	for _, c := range p.ModuleCalls {
		calls = append(calls, c.FQN)
	}
	if diff := cmp.Diff(want.Targets, targets); diff != "" {
		t.Errorf("%s: targets: %s", p.Name, diff)
	}
	if diff := cmp.Diff(want.Calls, calls); diff != "" {
		t.Errorf("%s: module calls: %s", p.Name, diff)
	}
	if diff := cmp.Diff(want.Args, p.ModuleCalls[0].Signature.ArgNames); diff != "" {
		t.Errorf("%s: argument names: %s", p.Name, diff)
	}
	for _, v := range want.Values {
		if p.Graph.TensorValues[v] == nil {
			t.Errorf("%s: nothing is said of %s", p.Name, v)
		}
	}
	if len(want.Values) != len(p.Graph.TensorValues) {
		t.Errorf("%s: %d values, want %d", p.Name, len(p.Graph.TensorValues), len(want.Values))
	}
	compareSpecs(t, p, want)
	compareModules(t, p, want)
}

func compareSpecs(t *testing.T, p *exported.Program, want goldenModel) {
	t.Helper()
	if len(p.Signature.Inputs) != len(want.Inputs) || len(p.Signature.Outputs) != len(want.Outputs) {
		t.Errorf("%s: %d inputs and %d outputs, want %d and %d", p.Name,
			len(p.Signature.Inputs), len(p.Signature.Outputs), len(want.Inputs), len(want.Outputs))
		return
	}
	kinds := map[exported.InputKind]string{
		exported.UserInput: "user_input", exported.ConstantInput: "user_input", exported.Parameter: "parameter",
		exported.Buffer: "buffer", exported.TensorConstant: "constant_tensor", exported.CustomObject: "custom_obj",
		exported.InputToken: "token",
	}
	for i, s := range p.Signature.Inputs {
		w := want.Inputs[i]
		if kinds[s.Kind] != w.Kind || s.Kind != exported.ConstantInput && (s.Arg.Name != w.Name || s.Target != w.Target) {
			t.Errorf("%s: input %d is %v, want %v", p.Name, i, s, w)
		}
		if w.Persistent != nil && s.Persistent != *w.Persistent {
			t.Errorf("%s: input %d: persistent %v", p.Name, i, s.Persistent)
		}
		if m := p.Graph.TensorValues[s.Arg.Name]; w.DType != "" && (m.DType.String() != w.DType || len(m.Sizes) != len(w.Shape)) {
			t.Errorf("%s: input %d is %v %v, want %v %v", p.Name, i, m.DType, m.Sizes, w.DType, w.Shape)
		}
	}
	for i, s := range p.Signature.Outputs {
		if w := want.Outputs[i]; w.Arg == "tensor" && s.Arg.Name != w.Name || s.Target != w.Target {
			t.Errorf("%s: output %d is %v, want %v", p.Name, i, s, w)
		}
	}
}

// compareModules compares the innermost module of each node that PyTorch has under the same name.
func compareModules(t *testing.T, p *exported.Program, want goldenModel) {
	t.Helper()
	byName := make(map[string]exported.Node)
	for _, n := range p.Graph.Nodes {
		for _, out := range n.Outputs {
			if out.Tag == exported.Tensor {
				byName[out.Name] = n
			}
		}
	}
	compared := 0
	for _, w := range want.Nodes {
		n, ok := byName[*w[0]]
		if !ok || w[2] == nil || len(n.Modules) == 0 {
			continue
		}
		compared++
		if last := n.Modules[len(n.Modules)-1]; last.Path != *w[2] || last.Class != *w[3] {
			t.Errorf("%s: %s belongs to %v, want %s (%s)", p.Name, *w[0], last, *w[2], *w[3])
		}
	}
	if compared == 0 {
		t.Errorf("%s: no node has a module", p.Name)
	}
}

func TestExportedTwoModels(t *testing.T) {
	ckpt, err := Open(filepath.Join(validFolder(), "pt2_two_models.pt2"))
	if err != nil {
		t.Fatal(err)
	}
	defer ckpt.Close()
	p := ckpt.Program.Exported
	if p.Name != "first" || len(p.Others) != 1 || p.Others[0].Name != "second" {
		t.Errorf("programs %q and %v", p.Name, p.Others)
	}
	embed, ok1 := ckpt.Weight("second.embed.weight")
	out, ok2 := ckpt.Weight("second.out.weight")
	if !ok1 || !ok2 || embed.Extent != out.Extent {
		t.Errorf("tied weights lie at %v and %v", embed.Extent, out.Extent)
	}
}

// edited writes a copy of a fixture in which records are changed: nil removes one.
func edited(t *testing.T, name string, edit func(record string, text []byte) []byte) string {
	t.Helper()
	src, err := storage.Open(filepath.Join(validFolder(), name))
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	a, problems, err := ziparchive.Read(t.Context(), src, ziparchive.Options{})
	if err != nil || len(problems) > 0 {
		t.Fatal(err, problems)
	}
	var out bytes.Buffer
	top := strings.TrimSuffix(topFolder(a), "/")
	w := ziparchive.NewWriter(&out, "archive")
	for _, r := range a.Records() {
		inner := strings.TrimPrefix(strings.TrimPrefix(r.Name, top), "/")
		if strings.HasPrefix(inner, ".data/") || inner == "version" {
			continue
		}
		text, err := a.ReadAll(t.Context(), r, limit.New(1<<20))
		if err != nil {
			t.Fatal(err)
		}
		if text = edit(inner, text); text == nil {
			continue
		}
		if err := w.WriteRecord(inner, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "edited.pt2")
	if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestExportedRefused(t *testing.T) {
	const config = "data/weights/model_weights_config.json"
	replace := func(record, old, new string) func(string, []byte) []byte {
		return func(name string, text []byte) []byte {
			if name != record {
				return text
			}
			if !bytes.Contains(text, []byte(old)) {
				t.Fatalf("%s has no %s", record, old)
			}
			return bytes.Replace(text, []byte(old), []byte(new), 1)
		}
	}
	remove := func(record string) func(string, []byte) []byte {
		return func(name string, text []byte) []byte {
			if name == record {
				return nil
			}
			return text
		}
	}
	put := func(record, contents string) func(string, []byte) []byte {
		return func(name string, text []byte) []byte {
			if name == record {
				return []byte(contents)
			}
			return text
		}
	}
	tests := []struct {
		name, fixture string
		edit          func(string, []byte) []byte
		class         error
		text          string
	}{
		{"no payload", "pt2_mlp.pt2", remove("data/weights/weight_1"), ErrFormat, `has no record "weight_1"`},
		{"no list", "pt2_mlp.pt2", remove(config), ErrFormat, "no record"},
		{"no constants", "pt2_mlp.pt2", remove("data/constants/model_constants_config.json"), ErrFormat, "no record"},
		{"short payload", "pt2_mlp.pt2", put("data/weights/weight_1", "1234"), ErrFormat, "need 24 bytes of a storage of 4"},
		{"ragged payload", "pt2_mlp.pt2", put("data/weights/weight_1", strings.Repeat("x", 25)), ErrFormat, "no whole number"},
		{"empty payload", "pt2_mlp.pt2", put("data/weights/weight_1", ""), ErrFormat, "storage of 0"},
		{"format", "pt2_mlp.pt2", put("archive_format", "pt3"), ErrUnsupported, `"pt3"`},
		{"version", "pt2_mlp.pt2", put("archive_version", "1"), ErrUnsupported, `"1" where only "0"`},
		{"byte order", "pt2_mlp.pt2", put("byteorder", "middle"), ErrFormat, `"middle"`},
		{"newer schema", "pt2_mlp.pt2", replace("models/model.json", `"major": 8`, `"major": 9`), ErrUnsupported, "9.20 is newer"},
		{"damaged newer schema", "pt2_mlp.pt2", func(name string, text []byte) []byte {
			if name == "models/model.json" {
				text = bytes.ReplaceAll(text, []byte("as_tensor"), []byte("as_vector"))
				text = bytes.Replace(text, []byte(`"major": 8`), []byte(`"major": 9`), 1)
			}
			return text
		}, ErrUnsupported, "9.20 is newer"},
		{"damaged program", "pt2_mlp.pt2", replace("models/model.json", `"nodes"`, `"node`), ErrFormat, "models/model.json: /graph_module"},
		{"weight missing", "pt2_mlp.pt2", replace(config, `"fc1.bias"`, `"fc1.bios"`), ErrFormat, `reads "fc1.bias"`},
		{"other shape", "pt2_mlp.pt2", replace(config, `"as_int": 6`, `"as_int": 5`), ErrFormat, "the file holds float32 [5 4]"},
		{"symbolic weight", "pt2_mlp.pt2", replace(config, `{"as_int": 6}`, `{"as_expr": {"expr_str": "s0"}}`), ErrFormat, "the size s0"},
		{"two tensors of a name", "pt2_mlp.pt2", replace(config, `"fc1.bias"`, `"fc1.weight"`), ErrFormat, "occurs twice"},
		{"no model", "pt2_mlp.pt2", remove("models/model.json"), ErrUnsupported, "without a program"},
		{"pickle in the inputs", "pt2_mlp.pt2", put("data/sample_inputs/model.pt", "cos\nsystem\n(S'id'\ntR."), ErrUnsafe, "os.system"},
		{"old: no weights", "t26_pt2_mlp.pt2", remove("serialized_state_dict.pt"), ErrFormat, `reads "fc1.weight"`},
		{"old: weights no archive", "t26_pt2_mlp.pt2", put("serialized_state_dict.pt", "PK\x03\x04 nothing"), ErrFormat, "serialized_state_dict.pt"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			path := edited(t, test.fixture, test.edit)
			ckpt, err := Open(path)
			if err == nil {
				ckpt.Close()
				t.Fatal("opened")
			}
			if !errors.Is(err, test.class) || !strings.Contains(err.Error(), test.text) {
				t.Errorf("got %v; want %v: …%s…", err, test.class, test.text)
			}
			report, err := Scan(t.Context(), path, Options{})
			if err != nil || !report.Verdict.Refused() {
				t.Errorf("scan: %+v, %v", report, err)
			}
		})
	}
}

func TestExportedUnreadable(t *testing.T) {
	const config = "data/weights/model_weights_config.json"
	for old, text := range map[string]string{`"dtype": 7`: "dtype number 27", `"layout": 7`: "layout sparse_coo"} {
		path := edited(t, "pt2_mlp.pt2", func(name string, contents []byte) []byte {
			if name == config {
				changed := map[string]string{`"dtype": 7`: `"dtype": 27`, `"layout": 7`: `"layout": 1`}[old]
				return bytes.Replace(contents, []byte(old), []byte(changed), 1)
			}
			return contents
		})
		ckpt, err := Open(path)
		if err != nil {
			t.Errorf("%s: %v", old, err)
			continue
		}
		defer ckpt.Close()
		if len(ckpt.Unreadable) != 1 || ckpt.Unreadable[0].Record != "fc1.weight" || len(ckpt.Weights) != 2 ||
			!strings.Contains(ckpt.Unreadable[0].Error(), text) {
			t.Errorf("%s: unreadable %v beside %d weights", old, ckpt.Unreadable, len(ckpt.Weights))
		}
	}
}
