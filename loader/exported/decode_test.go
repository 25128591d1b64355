package exported

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/optimem/optimem/loader/internal/limit"
	"github.com/optimem/optimem/tensor"
)

// program returns the JSON of a fixture.
func program(t testing.TB, name string) []byte {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name+".json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func decode(t testing.TB, doc []byte) *Program {
	t.Helper()
	p, err := Decode(bytes.NewReader(doc), Options{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A goldenProgram is what PyTorch says of a program; see testdata/programs.py.
type goldenProgram struct {
	Nodes     int
	Targets   map[string]int
	Values    map[string][2]any
	Inputs    [][3]*string
	Outputs   [][3]*string
	Ranges    map[string][2]string
	Verifiers []string
}

func golden(t testing.TB) map[string]goldenProgram {
	t.Helper()
	text, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var g map[string]goldenProgram
	if err := json.Unmarshal(text, &g); err != nil {
		t.Fatal(err)
	}
	return g
}

var inputKindNames = map[InputKind]string{
	UserInput: "USER_INPUT", Parameter: "PARAMETER", Buffer: "BUFFER", TensorConstant: "CONSTANT_TENSOR",
	CustomObject: "CUSTOM_OBJ", InputToken: "TOKEN", ConstantInput: "USER_INPUT",
}

var outputKindNames = map[OutputKind]string{
	UserOutput: "USER_OUTPUT", LossOutput: "LOSS_OUTPUT", BufferMutation: "BUFFER_MUTATION",
	ParameterMutation: "PARAMETER_MUTATION", UserInputMutation: "USER_INPUT_MUTATION",
	GradientToParameter: "GRADIENT_TO_PARAMETER", GradientToUserInput: "GRADIENT_TO_USER_INPUT", OutputToken: "TOKEN",
}

func TestProgramsAreWhatPyTorchSays(t *testing.T) {
	for name, want := range golden(t) {
		t.Run(name, func(t *testing.T) {
			p := decode(t, program(t, name))
			if p.SchemaVersion != (Version{SchemaMajor, SchemaMinor}) || p.TorchVersion == "" || p.OpsetVersion["aten"] < 10 {
				t.Errorf("schema %v, torch %q, opset %v", p.SchemaVersion, p.TorchVersion, p.OpsetVersion)
			}
			if diff := cmp.Diff(want.Verifiers, p.Verifiers); diff != "" {
				t.Errorf("verifiers: %s", diff)
			}
			if len(p.Graph.Nodes) != want.Nodes {
				t.Errorf("%d nodes, want %d", len(p.Graph.Nodes), want.Nodes)
			}
			targets := make(map[string]int)
			for _, n := range p.Graph.Nodes {
				targets[n.Target]++
			}
			if diff := cmp.Diff(want.Targets, targets); diff != "" {
				t.Errorf("targets: %s", diff)
			}
			checkValues(t, p, want)
			checkSpecs(t, p, want)
			ranges := make(map[string][2]string)
			for _, r := range p.Ranges {
				ranges[r.Symbol] = [2]string{bound(r.Min), bound(r.Max)}
			}
			if diff := cmp.Diff(want.Ranges, ranges); diff != "" {
				t.Errorf("ranges: %s", diff)
			}
		})
	}
}

func bound(n int64) string {
	switch n {
	case -1 << 63:
		return "-int_oo"
	case 1<<63 - 1:
		return "int_oo"
	}
	return strconv.FormatInt(n, 10)
}

// checkValues compares the dtype and shape of every value that PyTorch's graph has under the same name.
func checkValues(t *testing.T, p *Program, want goldenProgram) {
	t.Helper()
	for name, v := range want.Values {
		m, ok := p.Graph.TensorValues[name]
		if !ok {
			t.Errorf("no value %s", name)
			continue
		}
		if m.DType.String() != v[0] {
			t.Errorf("%s: dtype %v, want %v", name, m.DType, v[0])
		}
		var got, wanted []string
		for _, s := range m.Sizes {
			got = append(got, strings.ReplaceAll(s.String(), " ", ""))
		}
		for _, s := range v[1].([]any) {
			// Sympy and this package order products and parentheses differently: compare by value.
			wanted = append(wanted, strings.ReplaceAll(s.(string), " ", ""))
		}
		if len(got) != len(wanted) {
			t.Errorf("%s: shape %v, want %v", name, got, wanted)
			continue
		}
		for i := range got {
			if got[i] != wanted[i] && !sameExpr(t, m.Sizes[i].Expr, wanted[i]) {
				t.Errorf("%s: shape %v, want %v", name, got, wanted)
			}
		}
	}
}

// sameExpr compares an expression with sympy's infix text at some points.
func sameExpr(t *testing.T, e *Expr, infix string) bool {
	t.Helper()
	if e == nil {
		return false
	}
	o := Options{}.withDefaults()
	want, err := parseExpr(infix, o)
	if err != nil {
		t.Errorf("%s: %v", infix, err)
		return false
	}
	again, err := parseExpr(e.String(), o)
	if err != nil {
		t.Errorf("%s: %v", e, err)
		return false
	}
	for _, at := range []int64{2, 3, 8, 13, 17, 100} {
		values := make(map[string]int64)
		for i, s := range e.Symbols() {
			values[s] = at + int64(i)*7
		}
		x, errX := e.Eval(values)
		y, errY := want.Eval(values)
		z, errZ := again.Eval(values)
		if x != y || x != z || errX != nil || errY != nil || errZ != nil {
			t.Errorf("%s is %d (%v), %s is %d (%v), read again %d (%v)", e, x, errX, infix, y, errY, z, errZ)
			return false
		}
	}
	return true
}

func checkSpecs(t *testing.T, p *Program, want goldenProgram) {
	t.Helper()
	str := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	var inputs, outputs [][3]*string
	for _, s := range p.Signature.Inputs {
		row := [3]*string{str(inputKindNames[s.Kind]), str(s.Arg.Name), str(s.Target)}
		if s.Kind == ConstantInput {
			row[1], row[2] = row[2], nil
		}
		inputs = append(inputs, row)
	}
	for i, s := range p.Signature.Outputs {
		row := [3]*string{str(outputKindNames[s.Kind]), str(s.Arg.Name), str(s.Target)}
		if s.Arg.constant() {
			row[1] = want.Outputs[i][1] // PyTorch gives constants a name that it does not write
		}
		outputs = append(outputs, row)
	}
	if diff := cmp.Diff(want.Inputs, inputs); diff != "" {
		t.Errorf("input specs: %s", diff)
	}
	if diff := cmp.Diff(want.Outputs, outputs); diff != "" {
		t.Errorf("output specs: %s", diff)
	}
}

// ports writes ports as "name: dtype[shape]", or with the tag of what is no tensor.
func ports(list []Port) []string {
	var out []string
	for _, p := range list {
		s := p.Name + ": " + p.Tag.String()
		if p.Tag == Tensor {
			var dims []string
			for _, d := range p.Shape {
				dims = append(dims, d.String())
			}
			s = p.Name + ": " + p.DType.String() + "[" + strings.Join(dims, " ") + "]"
		}
		out = append(out, s)
	}
	return out
}

func TestPorts(t *testing.T) {
	tests := []struct {
		name            string
		inputs, outputs []string
	}{
		{"cnn", []string{"image: float32[2 3 16 16]"}, []string{"linear: float32[2 5]"}},
		{"cnn_dynamic", []string{"image: float32[s40 3 16 16]"}, []string{"linear: float32[s40 5]"}},
		{
			"keywords",
			[]string{"x: float32[2 4]", "scale: float32[]"},
			[]string{
				"sum: float32[2 4]", "parts.0: float32[2 4]", "parts.1.0: float32[2 4]", "parts.1.1: float32[2 4]",
			},
		},
		{
			"nested",
			[]string{"pair.0: float32[2]", "pair.1.left: float32[2]", "table.k: float32[2]"},
			[]string{"add: float32[2]", "table_k: float32[2]"},
		},
		{
			"tuples",
			[]string{"p.px: float32[2]", "p.py: float32[2]"},
			[]string{"0.px: float32[2]", "0.py: float32[2]", "1.second: float32[2]"},
		},
		{"dataclass", []string{"x: float32[2]"}, []string{"first: float32[2]", "second: float32[2]"}},
		{"mutation_decomposed", []string{"x: float32[3]"}, []string{"add_4: float32[3]"}},
		{
			"bert",
			[]string{"input_ids: int64[3 7]", "attention_mask: int64[3 7]"},
			[]string{"last_hidden_state: float32[3 7 16]", "pooler_output: float32[3 16]"},
		},
		{
			"arithmetic",
			[]string{"x: float32[s17 s27]", "y: float32[s17 s94]"},
			nil,
		},
		{"unbacked", []string{"x: float32[4]"}, []string{"mean: float32[1]", "zeros: float32[u1]", "mul: float32[4]"}},
		{"kinds", []string{"x: float32[3 3]"}, nil},
	}
	for _, test := range tests {
		p := decode(t, program(t, test.name))
		if diff := cmp.Diff(test.inputs, ports(p.Inputs())); diff != "" {
			t.Errorf("%s: inputs: %s", test.name, diff)
		}
		if diff := cmp.Diff(test.outputs, ports(p.Outputs())); diff != "" && test.outputs != nil {
			t.Errorf("%s: outputs: %s", test.name, diff)
		}
	}
}

func find(t *testing.T, g *Graph, target string) *Node {
	t.Helper()
	for i := range g.Nodes {
		if g.Nodes[i].Target == target {
			return &g.Nodes[i]
		}
	}
	t.Fatalf("no node %s among %v", target, slices.Sorted(maps.Keys(g.TensorValues)))
	return nil
}

func (n *Node) arg(t *testing.T, name string) Argument {
	t.Helper()
	for _, in := range n.Inputs {
		if in.Name == name {
			return in.Arg
		}
	}
	t.Fatalf("%s has no argument %s", n.Target, name)
	return Argument{}
}

func TestNodes(t *testing.T) {
	cnn := decode(t, program(t, "cnn"))
	conv := find(t, cnn.Graph, "torch.ops.aten.conv2d.default")
	wantStack := []Frame{
		{"L__self__", "", "__main__.CNN"},
		{"L__self__features", "features", "torch.nn.modules.container.Sequential"},
		{"L__self__features.0", "features.0", "torch.nn.modules.conv.Conv2d"},
	}
	if diff := cmp.Diff(wantStack, conv.Modules); diff != "" {
		t.Errorf("module stack: %s", diff)
	}
	if conv.Source == nil || conv.Source.File != "/home/user/programs.py" || conv.Source.Func != "forward" ||
		!strings.Contains(conv.Source.Code, "self.features(image)") || conv.Source.Line == 0 {
		t.Errorf("source %+v", conv.Source)
	}
	if conv.Inputs[0].Kind != Positional || conv.arg(t, "input").Name != "image" || conv.Outputs[0].Name != "conv2d" {
		t.Errorf("conv %+v", conv)
	}
	if flatten := find(t, cnn.Graph, "torch.ops.aten.flatten.using_ints"); flatten.arg(t, "start_dim").Int != 1 {
		t.Errorf("flatten %+v", flatten)
	}

	kinds := decode(t, program(t, "kinds")).Graph
	split := find(t, kinds, "torch.ops.aten.split_with_sizes.default")
	if diff := cmp.Diff([]int64{1, 2}, split.arg(t, "split_sizes").Data); diff != "" {
		t.Error(diff)
	}
	if out := split.Outputs[0]; out.Tag != Tensors || len(out.Data.([]string)) != 2 {
		t.Errorf("split gives %+v", out)
	}
	full := find(t, kinds, "torch.ops.aten.full.default")
	if v := full.arg(t, "fill_value"); v.Tag != Float || v.Float <= 1e308 {
		t.Errorf("fill value %+v", v)
	}
	if v := full.arg(t, "dtype"); v.DType() != tensor.BFloat16 {
		t.Errorf("dtype %+v", v)
	}
	if v := full.arg(t, "device"); v.Data != (Device{Type: "cpu", Index: -1}) {
		t.Errorf("device %+v", v)
	}
	if v := find(t, kinds, "torch.ops.aten.mul.Tensor").arg(t, "other"); v.Tag != Complex || v.Data != 1+2i {
		t.Errorf("complex %+v", v)
	}
	empty := find(t, kinds, "torch.ops.aten.empty.memory_format")
	if v := empty.arg(t, "memory_format"); v.Tag != Memory || MemoryFormat(v.Int) != ChannelsLast {
		t.Errorf("memory format %+v", v)
	}
	if v := find(t, kinds, "torch.ops.aten.index.Tensor").arg(t, "indices"); v.Tag != Tensors && v.Tag != OptionalTensors {
		t.Errorf("indices %+v", v)
	}

	control := decode(t, program(t, "control")).Graph
	cond := find(t, control, "torch.ops.higher_order.cond")
	branch := cond.Inputs[1].Arg
	if branch.Tag != Subgraph || branch.Name != "true_graph_0" {
		t.Fatalf("cond %+v", cond)
	}
	g := branch.Data.(*Graph)
	if len(g.Nodes) != 2 || g.Nodes[0].Target != "torch.ops.aten.sin.default" || g.Inputs[0].Name != "x" {
		t.Errorf("branch %+v", g)
	}
	find(t, control, "torch.ops.higher_order.while_loop")
	find(t, control, "torch.ops.higher_order.map_impl")

	arithmetic := decode(t, program(t, "arithmetic"))
	if got := arithmetic.Graph.SymInts["floordiv"].String(); got != "s27//2" {
		t.Errorf("floordiv is %s", got)
	}
	if got := arithmetic.Hints["s27"]; got != 12 {
		t.Errorf("hint of s27: %d", got)
	}
}

func TestDecodeCosts(t *testing.T) {
	doc := program(t, "bert")
	m := limit.New(32 << 20)
	if _, err := Decode(bytes.NewReader(doc), Options{Meter: m}); err != nil {
		t.Fatal(err)
	}
	if used := m.Used(); used > 8*int64(len(doc)) || used < int64(len(doc))/2 {
		t.Errorf("charged %d bytes for a document of %d", used, len(doc))
	}
}

func BenchmarkDecode(b *testing.B) {
	doc := large(program(b, "bert"), 5000)
	b.SetBytes(int64(len(doc)))
	b.ReportAllocs()
	var used int64
	for b.Loop() {
		m := limit.New(64 << 20)
		if _, err := Decode(bytes.NewReader(doc), Options{Meter: m}); err != nil {
			b.Fatal(err)
		}
		used = m.Used()
	}
	b.ReportMetric(float64(used), "charged-B")
}

// large repeats the nodes of a program under new names until there are n.
func large(doc []byte, n int) []byte {
	var p map[string]json.RawMessage
	var gm map[string]json.RawMessage
	var g map[string]json.RawMessage
	var nodes []json.RawMessage
	var values map[string]json.RawMessage
	for _, err := range []error{
		json.Unmarshal(doc, &p), json.Unmarshal(p["graph_module"], &gm), json.Unmarshal(gm["graph"], &g),
		json.Unmarshal(g["nodes"], &nodes), json.Unmarshal(g["tensor_values"], &values),
	} {
		if err != nil {
			panic(err)
		}
	}
	all := slices.Clone(nodes)
	defined := make(map[string]string)
	for _, node := range nodes {
		var v struct {
			Outputs []map[string]struct{ Name string }
		}
		if json.Unmarshal(node, &v) == nil {
			for _, o := range v.Outputs {
				defined[o["as_tensor"].Name] = ""
			}
		}
	}
	for round := 1; len(all) < n; round++ {
		for _, node := range nodes {
			text := string(node)
			for name := range defined {
				text = strings.ReplaceAll(text, `{"name": "`+name+`"}`, `{"name": "`+name+"__"+strconv.Itoa(round)+`"}`)
			}
			all = append(all, json.RawMessage(text))
		}
		for name := range defined {
			if m, ok := values[name]; ok {
				values[name+"__"+strconv.Itoa(round)] = m
			}
		}
	}
	g["nodes"], _ = json.Marshal(all)
	g["tensor_values"], _ = json.Marshal(values)
	gm["graph"], _ = json.Marshal(g)
	p["graph_module"], _ = json.Marshal(gm)
	out, _ := json.Marshal(p)
	return out
}

func TestLastUserFrame(t *testing.T) {
	user := "File \"/home/user/net.py\", line 12, in forward\n    return self.fc(x)  # File \"x\""
	torch := "\n  File \"/site-packages/torch/nn/modules/linear.py\", line 134, in forward\n    return F.linear(input)"
	graph := "\n  File \"<eval_with_key>.96\", line 6, in forward\n    child = x.sin()"
	tests := []struct {
		trace string
		want  Source
	}{
		{user, Source{"/home/user/net.py", 12, "forward", `return self.fc(x)  # File "x"`}},
		{"  " + user + "\n", Source{"/home/user/net.py", 12, "forward", `return self.fc(x)  # File "x"`}},
		{user + torch + graph, Source{"/home/user/net.py", 12, "forward", `return self.fc(x)  # File "x"`}},
		{torch[1:], Source{"/site-packages/torch/nn/modules/linear.py", 134, "forward", "return F.linear(input)"}},
		{"File \"a.py\", line 3, in f\n  " + user, Source{"/home/user/net.py", 12, "forward", `return self.fc(x)  # File "x"`}},
		{`File "a.py"`, Source{File: "a.py"}},
		{"", Source{}},
		{"nothing\n\n", Source{}},
	}
	for _, test := range tests {
		var got Source
		if frame := lastUserFrame([]byte(test.trace)); frame != nil {
			got = *parseFrame(string(frame))
		}
		if got != test.want {
			t.Errorf("%q: %+v, want %+v", test.trace, got, test.want)
		}
	}
}
