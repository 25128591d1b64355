package models_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/loader/script"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/models/internal/zoo"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

const scriptFolder = "testdata/script"

// TestScript runs TorchScript archives and compares what they give with PyTorch.
func TestScript(t *testing.T) {
	archives, err := filepath.Glob(filepath.Join(scriptFolder, "*.pt.gz"))
	if err != nil || len(archives) == 0 {
		t.Fatalf("no archives: %v", err)
	}
	for _, archive := range archives {
		name := strings.TrimSuffix(filepath.Base(archive), ".pt.gz")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base, form, _ := strings.Cut(name, ".")
			ref := readReference(t, filepath.Join(scriptFolder, base+".ref.json.gz"))
			model, err := models.Build(openScript(t, archive, ref), models.Options{})
			if err != nil {
				t.Fatal(err)
			}
			cases := ref.Cases
			if form == "trace" && base != "shapes" {
				cases = cases[:1] // a trace holds the sizes that it was traced with
			}
			runScript(t, model, cases)
		})
	}
}

func runScript(t *testing.T, model *models.Model, cases []zoo.Case) {
	t.Helper()
	var session *optimem.Session
	for i, c := range cases {
		var err error
		if !c.Continues {
			if session, err = optimem.Resident(t.Context(), model, optimem.ResidentOptions{Threads: 1}); err != nil {
				t.Fatal(err)
			}
			defer session.Close()
		}
		in := make(optimem.Values, len(c.Inputs))
		for name, f := range c.Inputs {
			if in[name], err = f.Tensor(name); err != nil {
				t.Fatal(err)
			}
			if !model.SetDType(name, in[name].DType) {
				t.Fatalf("input %s cannot be %v", name, in[name].DType)
			}
		}
		out, err := session.Run(t.Context(), in)
		if err != nil {
			t.Fatalf("case %d: %v", i, err)
		}
		if len(out) != len(c.Outputs) {
			t.Errorf("case %d: %d outputs, PyTorch gave %d", i, len(out), len(c.Outputs))
		}
		for _, want := range c.Outputs {
			if _, err := compareSample(out[want.Name], want); err != nil {
				t.Errorf("case %d: output %s: %v", i, want.Name, err)
			}
		}
	}
}

// readReference reads what PyTorch computed.
func readReference(t *testing.T, path string) *zoo.Reference {
	t.Helper()
	ref := &zoo.Reference{}
	if err := zoo.Unzip(path, func(r io.Reader) error { return json.NewDecoder(r).Decode(ref) }); err != nil {
		t.Fatal(err)
	}
	return ref
}

// openScript opens an archive of the fixtures. Its weights are those of the reference, where there is one.
func openScript(t *testing.T, archive string, ref *zoo.Reference) *loader.Checkpoint {
	t.Helper()
	packed, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	r, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	return openArchive(t, r, ref)
}

// openArchive is openScript of an archive that is not compressed.
func openArchive(t *testing.T, r io.Reader, ref *zoo.Reference) *loader.Checkpoint {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.pt")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(f, r)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	ckpt, err := loader.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ckpt.Close() })
	if ref == nil {
		return ckpt
	}
	filled, err := zoo.Weights(ref.Weights)
	if err != nil {
		t.Fatal(err)
	}
	weights := slices.Clone(ckpt.Weights)
	hash := make(map[storage.Extent]tensor.Weight) // an archive has names for one storage that a state dict has not
	for _, w := range weights {
		if at := slices.IndexFunc(filled, func(f tensor.Weight) bool { return f.Name == w.Name }); at >= 0 {
			if !filled[at].Layout.Shape.Equal(w.Layout.Shape) {
				t.Fatalf("%s is %v, and %v in the reference", w.Name, w.Layout.Shape, filled[at].Layout.Shape)
			}
			hash[w.Extent] = filled[at]
		}
	}
	for i, w := range weights {
		filled, ok := hash[w.Extent]
		switch {
		case ok:
			weights[i].Extent, weights[i].Layout = filled.Extent, filled.Layout
		case strings.HasPrefix(w.Name, "_"), strings.HasPrefix(w.Name, "anchor_generator."),
			strings.HasPrefix(w.Name, "rpn.anchor_generator."): // no buffer, but an attribute, whose value is in the archive
		case !strings.HasPrefix(w.Name, "CONSTANTS."):
			t.Fatalf("%s is not in the reference", w.Name)
		}
	}
	hashed, err := loader.NewCheckpoint(path, weights, ckpt.Program)
	if err != nil {
		t.Fatal(err)
	}
	return hashed
}

// TestScriptGraphs holds the graphs of archives against those of the same models exported: op by op, so that both forms
// give the same bits.
func TestScriptGraphs(t *testing.T) {
	for _, name := range []string{"densenet_small", "shufflenet_v2_small", "convnext_small", "efficientnet_v2_small"} {
		ckpt, exportedRef, err := zoo.Load("testdata/families", "tv/"+name, "aten")
		if err != nil {
			t.Fatal(err)
		}
		exported, err := models.Build(ckpt, models.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, form := range []string{"trace", "script"} {
			t.Run(name+"/"+form, func(t *testing.T) {
				ref := readReference(t, filepath.Join(scriptFolder, name+".ref.json.gz"))
				archive := filepath.Join(scriptFolder, name+"."+form+".pt.gz")
				model, err := models.Build(openScript(t, archive, ref), models.Options{})
				if err != nil {
					t.Fatal(err)
				}
				sameGraphs(t, exported, model, exportedRef)
			})
		}
	}
}

// scriptOf returns a checkpoint whose program is a module with the given forward, a buffer b of 2×3, and one constant,
// the integer 3.
func scriptOf(t testing.TB, body string) *loader.Checkpoint {
	t.Helper()
	src := "class M(Module):\n  __parameters__ = []\n  __buffers__ = [\"b\", ]\n  b : Tensor\n" +
		"  def forward(self: __torch__.M, x: Tensor) -> Any:\n"
	for line := range strings.SplitSeq(body, "\n") {
		src += "    " + line + "\n"
	}
	p, err := script.Parse(func(yield func(string, string) bool) { yield("__torch__.py", src) }, script.Options{Depth: 50})
	if err != nil {
		return nil
	}
	p.Root = &script.Object{Class: "__torch__.M", Attributes: []script.Field{{Name: "b", Value: script.Tensor("b")}}}
	p.Constants = []script.Value{script.Tensor("CONSTANTS.c0")}
	weights, err := zoo.Weights(map[string]zoo.Filled{
		"b": {DType: "float32", Shape: []int{2, 3}, Offset: number("0"), Scale: number("0")},
	})
	if err != nil {
		t.Fatal(err)
	}
	three := tensor.Of([]int64{3}).Data
	weights = append(weights, tensor.Weight{
		Name: "CONSTANTS.c0", DType: tensor.Int64, Layout: tensor.Contiguous(),
		Extent: storage.Extent{Source: &ram{three}, Bytes: int64(len(three))},
	})
	ckpt, err := loader.NewCheckpoint("script", weights, &loader.Program{Script: p})
	if err != nil {
		t.Fatal(err)
	}
	return ckpt
}

// scriptGraph builds the graph of a program for one input.
func scriptGraph(ckpt *loader.Checkpoint, shape ...int) error {
	model, err := models.Build(ckpt, models.Options{Steps: 200_000})
	if err != nil {
		return err
	}
	_, err = model.Graph(map[string]tensor.Shape{"x": shape})
	return err
}

// many is a list of the same tensor, 2048 times.
const many = "l = [torch.slice(torch.select(x, 0, 0), 0, 0, 1)]\nfor i in range(11):\n  l = torch.add(l, l)\n"

// selected is as much of x as is above zero.
const selected = "m = torch.gt(x, 0)\ns = torch.index(x, annotate(List[Optional[Tensor]], [m]))\n"

// hostileScripts ask for too much, or for what is not there.
var hostileScripts = []struct{ body, want string }{
	{"return torch.split(torch.expand(torch.select(x, 1, 0), [1099511627776, 2]), 1)", "parts"},
	{"return torch.unbind(torch.expand(torch.select(x, 1, 0), [1099511627776, 2]))", "parts"},
	{"y = x\nwhile True:\n  y = torch.unsqueeze(y, 0)\nreturn y", "dimensions"},
	{"return torch.expand(torch.select(x, 1, 0), [4611686018427387904, 4611686018427387904, 2])", ""},
	{"return torch.zeros([4611686018427387904, 16])", ""},
	{"return torch.arange(0, 9223372036854775807, 1)", ""},
	{"return torch.chunk(torch.zeros([9223372036854775807], dtype=0), 2)", ""},
	{"return torch.split(torch.zeros([9223372036854775807], dtype=0), 4611686018427387904)", ""},
	{many + "return torch.chain_matmul(l)", "2048 matrices; at most"},
	{many + "return torch.meshgrid(l)", "2048 dimensions; at most"},
	{many + "return torch.cartesian_prod(l)", "2048 dimensions; at most"},
	{many + "return torch.einsum(torch.add(torch.mul(\"a,\", 2047), \"a\"), l)", "2048 operands; at most"},
	{"y = torch.slice(x, 1, 0, 2)\nwhile True:\n  y = torch.matrix_power(y, 9223372036854775807)\nreturn y", "more than 262144 ops"},
	{"y = torch.expand(torch.slice(torch.select(x, 0, 0), 0, 0, 1), [1000])\nwhile True:\n  y = torch.select(torch.combinations(y), 1, 0)\nreturn y",
		"more than 24788 combinations"},
	{"return torch.combinations(torch.select(x, 0, 0), 1048576, True)", "combinations of 1048576"},
	{"return torch.as_strided(x, [1], [1], -1)", "storage offset -1"},
	{"i = torch.expand(torch.zeros([1], dtype=4), [1152921504606846975])\nreturn torch.index_fill(torch.zeros([3, 16]), 0, i, 0)",
		"impossible"},
	{"return torch.conv2d(x)", "no overload takes (Tensor)"},
	{"return torch.conv2d(\"a\", x, x)", "no overload takes"},
	{"return ops.quantized.linear_dynamic(x, self)", "it is given an object of __torch__.M"},
	{"return torch.frobnicate(x)", "torch.ops.aten.frobnicate"},
	{"return ops.mylib.thing(x)", "torch.ops.mylib.thing"},
	{"return torch.to(x, 99)", "no dtype"},
	{"return torch.zeros([2], dtype=99)", "no dtype 99"},
	{"return torch.select(x, 7, 0)", "dimension"},
	{"return torch.view(x, [7, -1])", ""},
	{"return torch.dropout(x, 0.5, True)", "random"},
	{"return torch.to_sparse(x)", "depends on data"},
	{"return torch.rand([2])", "random"},
	{"return int(torch.sum(x))", "contents of a tensor"},
	{"return torch.item(torch.sum(x))", "contents of a tensor"},
	{"if bool(torch.any(torch.gt(x, 0))):\n  y = x\nelse:\n  y = torch.neg(x)\nreturn y", "branches on the contents"},
	{"b = self.b\nself.b = torch.cat([b, b])\nreturn b", "attribute b: it has another value or shape after every call"},
	{selected + "return torch.index(s, annotate(List[Optional[Tensor]], [s]))", "an index of float32"},
	{selected + "i = annotate(List[Optional[Tensor]], [torch.gt(s, 1), torch.zeros([1], dtype=4)])\n" +
		"return torch.index(torch.unsqueeze(s, 1), i)", "indexing with a mask"},
	{selected + "return ops.quantized.linear_dynamic(s, s)", "torch.ops.quantized.linear_dynamic"},
	{selected + "return torch.matmul(s, s)", "depends on data"},
	{selected + "return torch._shape_as_tensor(s)", "contents of a tensor"},
	{selected + "return torch.zeros(torch.stride(s))", "contents of a tensor"},
	{selected + "return torch.zeros([torch.storage_offset(s)])", "contents of a tensor"},
	{selected + "if torch.is_contiguous(s):\n  y = x\nelse:\n  y = s\nreturn y", "contents of a tensor"},
	{selected + "if torch.is_same_size(x, s):\n  y = x\nelse:\n  y = s\nreturn y", "contents of a tensor"},
	{selected + "return int(s)", "contents of a tensor"},
	{selected + "if bool(s):\n  y = x\nelse:\n  y = s\nreturn y", "contents of a tensor"},
	{selected + "return ops.prim.tolist(s)", "contents of a tensor"},
	{selected + "b = self.b\nself.b = s\nreturn b", "contents of a tensor"},
	{selected + "self.c = s\nreturn x", "attribute c"},
	{selected + "b = self.b\nself.b = torch.zeros([torch.len(s), 3])\nreturn b", "contents of a tensor"},
	{"i = annotate(List[Optional[Tensor]], [torch.gt(torch.select(x, 1, 0), 0)])\nself.b = torch.cat([torch.index(x, i)])\nreturn x",
		"buffer b: the size of its result depends on data"},
}

// TestHostileScript gives programs that ask for too much typed errors with a place.
func TestHostileScript(t *testing.T) {
	for _, c := range hostileScripts {
		ckpt := scriptOf(t, c.body)
		if ckpt == nil {
			t.Fatalf("%s does not parse", c.body)
		}
		err := scriptGraph(ckpt, 2, 3)
		if c.want == "" && err == nil {
			continue // the plan refuses what takes too much memory
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.body, err, c.want)
			continue
		}
		if !strings.Contains(err.Error(), "code/__torch__.py:") && !strings.Contains(err.Error(), "attribute") &&
			!strings.Contains(err.Error(), "buffer") {
			t.Errorf("%s: %v has no place", c.body, err)
		}
	}
}

// FuzzScript checks that no program panics when it calls ops.
func FuzzScript(f *testing.F) {
	for _, c := range hostileScripts {
		f.Add(c.body)
	}
	f.Add("b = self.b\n_0 = torch.add_(b, x)\nreturn torch.matmul(torch.relu(b), torch.t(x))")
	f.Fuzz(func(t *testing.T, body string) {
		if ckpt := scriptOf(t, body); ckpt != nil {
			_ = scriptGraph(ckpt, 2, 3)
		}
	})
}

// TestDigitsScript compares the digits' two programs: the same bits.
func TestDigitsScript(t *testing.T) {
	run := func(name string) *tensor.Tensor {
		ckpt, err := loader.Open(filepath.Join("../examples/digits", name))
		if err != nil {
			t.Fatal(err)
		}
		defer ckpt.Close()
		model, err := models.Build(ckpt, models.Options{})
		if err != nil {
			t.Fatal(err)
		}
		session, err := optimem.Resident(t.Context(), model, optimem.ResidentOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close()
		pictures, err := zoo.Filled{DType: "float32", Shape: []int{5, 1, 8, 8}, Offset: number("0"), Scale: number("1")}.Tensor("x")
		if err != nil {
			t.Fatal(err)
		}
		out, err := session.Run(t.Context(), optimem.Values{model.Inputs()[0].Name: pictures})
		if err != nil {
			t.Fatal(err)
		}
		return out[model.Outputs()[0]]
	}
	exported, scripted := run("digits.pt2"), run("digits_script.pt")
	if !bytes.Equal(exported.Data, scripted.Data) || len(scripted.Data) != 4*5*10 {
		t.Error("the programs differ")
	}
}

// TestScriptConstants: a size may come from a constant of the program, which nothing replaces. It may not come from a
// buffer, whose value a state dict may replace, nor from a constant that the program changes, which is another size in
// the next pass.
func TestScriptConstants(t *testing.T) {
	const read, change = "n = int(CONSTANTS.c0)\n", "_0 = torch.sub_(CONSTANTS.c0, 1)\n"
	const back = "return torch.reshape(x, [n, -1])"
	for _, c := range []struct{ name, body, refused string }{
		{"a constant", read + back, ""},
		{"a buffer", "n = torch.add(int(torch.select(torch.select(self.b, 0, 0), 0, 0)), 3)\n" + back,
			"contents of a tensor"},
		{"a constant that is changed later", read + change + back, "computes sizes with and changes"},
		{"a constant that was changed", change + read + back, "computes sizes with and changes"},
	} {
		model, err := models.Build(scriptOf(t, c.body), models.Options{})
		if err != nil {
			t.Fatal(err)
		}
		g, err := model.Graph(map[string]tensor.Shape{"x": {2, 3}})
		var unsupported *models.UnsupportedError
		switch {
		case c.refused != "":
			if !errors.As(err, &unsupported) || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%s: got %v, want %q", c.name, err, c.refused)
			}
		case err != nil:
			t.Errorf("%s: %v", c.name, err)
		case !g.Outputs[0].Operand.Layout.Shape.Equal(tensor.Shape{3, 2}):
			t.Errorf("%s: the result is %v", c.name, g.Outputs[0].Operand.Layout.Shape)
		}
	}
}

func number(text string) *json.Number {
	n := json.Number(text)
	return &n
}

// TestReturnedBuffer: a buffer that a program returns and then changes is returned as it was.
func TestReturnedBuffer(t *testing.T) {
	model, err := models.Build(scriptOf(t, "b = self.b\nself.b = torch.add(b, x)\nreturn b"), models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	session, err := optimem.Resident(t.Context(), model, optimem.ResidentOptions{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	x := tensor.Of([]float32{1, 2, 3, 4, 5, 6}, 2, 3)
	for pass := range 3 {
		out, err := session.Run(t.Context(), optimem.Values{"x": x})
		if err != nil {
			t.Fatal(err)
		}
		got, err := tensor.Slice[float32](out[model.Outputs()[0]])
		if err != nil {
			t.Fatal(err)
		}
		for i, y := range got {
			if want := float32(pass * (i + 1)); y != want {
				t.Errorf("pass %d: element %d is %v, want %v", pass, i, y, want)
			}
		}
	}
}

// TestScriptNumbers: one session runs a program for several values of the numbers that it takes, each with the answer for it.
func TestScriptNumbers(t *testing.T) {
	ref := readReference(t, filepath.Join(scriptFolder, "rates.ref.json.gz"))
	model, err := models.Build(openScript(t, filepath.Join(scriptFolder, "rates.script.pt.gz"), ref), models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	session, err := optimem.Resident(t.Context(), model, optimem.ResidentOptions{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	sr := tensor.Of([]int64{0})
	for i := range 2 * len(ref.Cases) { // the second time with what is planned
		c := ref.Cases[i%len(ref.Cases)]
		in := make(optimem.Values, len(c.Inputs))
		for name, f := range c.Inputs {
			if in[name], err = f.Tensor(name); err != nil {
				t.Fatal(err)
			}
		}
		copy(sr.Data, in["sr"].Data) // one memory for all calls: a graph keeps its own number
		in["sr"] = sr
		out, err := session.Run(t.Context(), in)
		if err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
		for _, want := range c.Outputs {
			if _, err := compareSample(out[want.Name], want); err != nil {
				t.Errorf("call %d: output %s: %v", i, want.Name, err)
			}
		}
	}
	copy(sr.Data, tensor.Of([]int64{8000}).Data)
	shapes := map[string]tensor.Shape{"x": {2, 6}, "sr": {}}
	if _, err := model.Graph(shapes); err == nil || !strings.Contains(err.Error(), "no value is given") {
		t.Errorf("a graph without the number: %v", err)
	}
	if model.SetNumber("x", sr) || model.SetNumber("sr", tensor.Of([]int64{1, 2}, 2)) || !model.SetNumber("sr", sr) {
		t.Error("SetNumber takes what is no number, or not what is one")
	}
	if _, err := model.Graph(shapes); err != nil {
		t.Error(err)
	}
	if _, err := model.GraphFor(shapes, models.Numbers{"sr": tensor.Of([]int64{44100})}); err == nil ||
		!strings.Contains(err.Error(), "sampling rates are 8000 and 16000") {
		t.Errorf("a rate that the program refuses: %v", err)
	}
}

// refusedScript returns the error of a program that is refused, for an input x of 3×3.
func refusedScript(t *testing.T, name string) *models.UnsupportedError {
	t.Helper()
	ckpt := openScript(t, filepath.Join(scriptFolder, name+".refused.gz"), nil)
	model, err := models.Build(ckpt, models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = model.Graph(map[string]tensor.Shape{"x": {3, 3}})
	var refused *models.UnsupportedError
	if !errors.As(err, &refused) {
		t.Fatalf("%s: %v", name, err)
	}
	return refused
}

// TestScriptLacking: a program that needs several ops which optimem lacks is told all of them, each with its first place and how
// often it stands in the code, and none that is called in training only.
func TestScriptLacking(t *testing.T) {
	var got []string
	for _, m := range refusedScript(t, "lacking").Missing {
		if !strings.HasPrefix(m.Source, "code/__torch__") {
			t.Errorf("%s stands at %q", m.Name, m.Source)
		}
		got = append(got, fmt.Sprintf("%s in %q, %d", m.Name, m.Path, m.Uses))
	}
	slices.Sort(got)
	want := []string{
		`torch.ops.aten.geqrf in "", 1`, `torch.ops.aten.linalg_cholesky in "first.1", 2`,
		`torch.ops.aten.linalg_eigvalsh in "", 3`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestScriptHints: a hint says what would help. What depends on data, or has no meaning before a run, cannot be exported either.
func TestScriptHints(t *testing.T) {
	if hint := refusedScript(t, "looping").Hint; !strings.Contains(hint, "torch.where") || strings.Contains(hint, "export") {
		t.Errorf("a loop on data: hint %q", hint)
	}
	for _, c := range []struct{ body, want string }{
		{"return torch.frobnicate(x)", "run_decompositions"},
		{"return ops.mylib.thing(x)", "models.Options.Ops"},
		{"return torch.to_sparse(x)", ""},
		{"return torch.rand([2])", ""},
		{"return torch.linalg_qr(x)", ""},
		{"return int(torch.sum(x))", "torch.where"},
		{"b = self.b\nself.b = torch.cat([b, b])\nreturn b", ""},
		{"self.c = torch.neg(x)\nreturn x", "register_buffer"},
	} {
		var refused *models.UnsupportedError
		if err := scriptGraph(scriptOf(t, c.body), 2, 3); !errors.As(err, &refused) {
			t.Errorf("%s: %v", c.body, err)
		} else if !strings.Contains(refused.Hint, c.want) || c.want == "" && refused.Hint != "" {
			t.Errorf("%s: hint %q, want %q", c.body, refused.Hint, c.want)
		}
	}
}
