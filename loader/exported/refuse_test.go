package exported

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/optimem/optimem/loader/internal/fault"
	"github.com/optimem/optimem/loader/internal/limit"
	"github.com/optimem/optimem/tensor"
)

// A small program, in pieces that tests replace.
const (
	metaX = `{"dtype":7,"sizes":[{"as_int":2}],"requires_grad":false,"device":{"type":"cpu","index":null},` +
		`"strides":[{"as_int":1}],"storage_offset":{"as_int":0},"layout":7}`
	nodeRelu = `{"target":"torch.ops.aten.relu.default","inputs":[{"name":"self","arg":{"as_tensor":{"name":"x"}},"kind":1}],` +
		`"outputs":[{"as_tensor":{"name":"y"}}],"metadata":{}}`
	small = `{"graph_module":{"graph":{"inputs":[{"as_tensor":{"name":"x"}}],"outputs":[{"as_tensor":{"name":"y"}}],` +
		`"nodes":[` + nodeRelu + `],"tensor_values":{"x":` + metaX + `,"y":` + metaX + `},"sym_int_values":{},"sym_bool_values":{}},` +
		`"signature":{"input_specs":[{"user_input":{"arg":{"as_tensor":{"name":"x"}}}}],` +
		`"output_specs":[{"user_output":{"arg":{"as_tensor":{"name":"y"}}}}]},"module_call_graph":[]},` +
		`"opset_version":{"aten":10},"range_constraints":{},"schema_version":{"major":8,"minor":1}}`
)

func TestRefused(t *testing.T) {
	tests := []struct {
		name, old, new string
		class          error
		text           string
	}{
		{"undefined value", `"arg":{"as_tensor":{"name":"x"}},"kind"`, `"arg":{"as_tensor":{"name":"z"}},"kind"`,
			fault.ErrFormat, `node 0 (torch.ops.aten.relu.default): the value "z" is used before it is defined`},
		{"itself", `"arg":{"as_tensor":{"name":"x"}},"kind"`, `"arg":{"as_tensor":{"name":"y"}},"kind"`,
			fault.ErrFormat, `"y" is used before`},
		{"nameless", `"arg":{"as_tensor":{"name":"x"}},"kind"`, `"arg":{"as_tensors":[{"name":""}]},"kind"`,
			fault.ErrFormat, "without a name is used"},
		{"defined twice", `"outputs":[{"as_tensor":{"name":"y"}}],"metadata"`,
			`"outputs":[{"as_tensor":{"name":"x"}}],"metadata"`, fault.ErrFormat, `"x" is defined twice`},
		{"unknown output", `"outputs":[{"as_tensor":{"name":"y"}}],"nodes"`,
			`"outputs":[{"as_tensor":{"name":"q"}}],"nodes"`, fault.ErrFormat, `output 0: the value "q"`},
		{"nothing said", `,"y":` + metaX, ``, fault.ErrFormat, `nothing is said of the value "y"`},
		{"subgraph sees outside", `{"as_tensor":{"name":"x"}},"kind":1}`,
			`{"as_graph":{"name":"g","graph":{"inputs":[],"nodes":[` + nodeRelu + `],"outputs":[],"tensor_values":{}}}},"kind":1}`,
			fault.ErrFormat, `subgraph "g": node 0`},
		{"signature of another graph", `{"user_input":{"arg":{"as_tensor":{"name":"x"}}}}`,
			`{"user_input":{"arg":{"as_tensor":{"name":"y"}}}}`, fault.ErrFormat, "signature: input 0"},
		{"fewer specs", `{"user_input":{"arg":{"as_tensor":{"name":"x"}}}}`, ``, fault.ErrFormat, "0 inputs for a graph of 1"},
		{"mutation of nothing", `{"user_output":{"arg":{"as_tensor":{"name":"y"}}}}`,
			`{"buffer_mutation":{"arg":{"name":"y"},"buffer_name":"b"}}`, fault.ErrFormat, `"b", which is no such input`},
		{"unknown tag", `{"as_tensor":{"name":"x"}},"kind"`, `{"as_hologram":{"name":"x"}},"kind"`,
			fault.ErrUnsupported, `"as_hologram"`},
		{"two tags", `{"as_tensor":{"name":"x"}},"kind"`, `{"as_tensor":{"name":"x"},"as_int":1},"kind"`,
			fault.ErrFormat, "more than one value"},
		{"no tag", `{"as_tensor":{"name":"x"}},"kind"`, `{},"kind"`, fault.ErrFormat, "without a value"},
		{"unknown input kind", `"user_input"`, `"telepathy"`, fault.ErrUnsupported, `"telepathy"`},
		{"newer schema", `"major":8`, `"major":9`, fault.ErrUnsupported, "9.1 is newer than 8.20"},
		{"negative schema", `"major":8`, `"major":-1`, fault.ErrFormat, "negative schema version"},
		{"no schema", `"schema_version"`, `"shema_version"`, fault.ErrFormat, "no schema_version"},
		{"no graph", `"graph":`, `"grph":`, fault.ErrFormat, "no graph"},
		{"no signature", `"signature":`, `"sig":`, fault.ErrFormat, "no signature"},
		{"unknown dtype", `{"dtype":7`, `{"dtype":27`, fault.ErrUnsupported, "dtype number 27"},
		{"unknown layout", `"layout":7`, `"layout":8`, fault.ErrUnsupported, "layout number 8"},
		{"negative size", `"sizes":[{"as_int":2}]`, `"sizes":[{"as_int":-2}]`, fault.ErrFormat, "impossible shape"},
		{"overflow", `"sizes":[{"as_int":2}],`, `"sizes":[{"as_int":4611686018427387904}],`, fault.ErrFormat, "impossible shape"},
		{"strides", `"strides":[{"as_int":1}]`, `"strides":[]`, fault.ErrFormat, "1 sizes and 0 strides"},
		{"negative stride", `"strides":[{"as_int":1}]`, `"strides":[{"as_int":-1}]`, fault.ErrFormat, "negative stride"},
		{"negative offset", `"storage_offset":{"as_int":0}`, `"storage_offset":{"as_int":-1}`, fault.ErrFormat, "negative storage offset"},
		{"unbound symbol", `"y":` + metaX, `"y":` + strings.Replace(metaX, `{"as_int":2}`,
			`{"as_expr":{"expr_str":"Add(Symbol('s9'), Integer(1))"}}`, 1), fault.ErrFormat, `nothing binds the symbol "s9"`},
		{"bad expression", `"sizes":[{"as_int":2}]`, `"sizes":[{"as_expr":{"expr_str":"Add(Symbol('s9',"}}]`,
			fault.ErrFormat, "ends early"},
		{"deep expression", `"sizes":[{"as_int":2}]`, `"sizes":[{"as_expr":{"expr_str":"` + strings.Repeat("(", 5000) + `"}}]`,
			fault.ErrLimit, "nested deeper"},
		{"long chain", `"sizes":[{"as_int":2}]`, `"sizes":[{"as_expr":{"expr_str":"s` + strings.Repeat("//s", 5000) + `"}}]`,
			fault.ErrLimit, "nested deeper"},
		{"long expression", `"sizes":[{"as_int":2}]`, `"sizes":[{"as_expr":{"expr_str":"` + strings.Repeat("s+", 50000) + `s"}}]`,
			fault.ErrLimit, "longer than"},
		{"empty range", `"range_constraints":{}`, `"range_constraints":{"s0":{"min_val":3,"max_val":2}}`,
			fault.ErrFormat, "empty range"},
		{"duplicate value", `"tensor_values":{"x":`, `"tensor_values":{"x":` + metaX + `,"x":`, fault.ErrFormat, "occurs twice"},
		{"big integer", `{"as_tensor":{"name":"x"}},"kind"`, `{"as_int":9223372036854775808},"kind"`, fault.ErrFormat, "64 bits"},
		{"module stack", `"metadata":{}`, `"metadata":{"nn_module_stack":"a,b"}`, fault.ErrFormat, "module stack entry"},
		{"tree spec", `"module_call_graph":[]`, `"module_call_graph":[{"fqn":"","signature":{"inputs":[],"outputs":[],` +
			`"in_spec":"[1,{\"type\":null,\"children_spec\":[{}]}]","out_spec":""}}]`, fault.ErrFormat, "a leaf with children"},
		{"tree protocol", `"module_call_graph":[]`, `"module_call_graph":[{"fqn":"","signature":{"inputs":[],"outputs":[],` +
			`"in_spec":"[7,{}]","out_spec":""}}]`, fault.ErrUnsupported, "protocol 7"},
		{"deep tree", `"module_call_graph":[]`, `"module_call_graph":[{"fqn":"","signature":{"inputs":[],"outputs":[],` +
			`"in_spec":"[1,` + strings.Repeat(`{\"type\":\"t\",\"children_spec\":[`, 150) + `","out_spec":""}}]`,
			fault.ErrLimit, "nested deeper"},
		{"truncated", `"opset_version":{"aten":10},"range_constraints":{},"schema_version":{"major":8,"minor":1}}`, ``,
			fault.ErrFormat, "ends early"},
		{"trailing", `"minor":1}}`, `"minor":1}}{}`, fault.ErrFormat, "after the end"},
	}
	if _, err := Decode(strings.NewReader(small), Options{}); err != nil {
		t.Fatal(err)
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if !strings.Contains(small, test.old) {
				t.Fatalf("the program has no %s", test.old)
			}
			p, err := Decode(strings.NewReader(strings.Replace(small, test.old, test.new, 1)), Options{})
			if p != nil || !errors.Is(err, test.class) || !strings.Contains(err.Error(), test.text) {
				t.Errorf("got %v; want %v: …%s…", err, test.class, test.text)
			}
			var f *fault.Error
			if err != nil && !errors.As(err, &f) {
				t.Errorf("%v is no fault.Error", err)
			}
		})
	}
}

func TestMemoryIsBounded(t *testing.T) {
	bombs := map[string]string{
		"nodes":   strings.Replace(small, nodeRelu, strings.Repeat(`{"target":"t"},`, 300_000)+`{"target":"t"}`, 1),
		"ints":    strings.Replace(small, `{"as_tensor":{"name":"x"}},"kind"`, `{"as_ints":[0`+strings.Repeat(`,0`, 8_000_000)+`]},"kind"`, 1),
		"symbols": strings.Replace(small, `[{"as_int":2}]`, `[{"as_expr":{"expr_str":"s`+strings.Repeat("+s", 30_000)+`"}}]`, 1),
	}
	for name, doc := range bombs {
		budget := int64(16 << 20)
		if name == "symbols" {
			budget = 1 << 20
		}
		_, err := Decode(strings.NewReader(doc), Options{Meter: limit.New(budget)})
		if !errors.Is(err, fault.ErrLimit) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestOldSchemas reads the forms that files before schema 8 have.
func TestOldSchemas(t *testing.T) {
	doc := `{"graph_module":{"graph":{"inputs":[{"as_none":null,"as_tensor":{"name":"w"},"as_int":null},{"as_tensor":{"name":"b"}},` +
		`{"as_tensor":{"name":"x"}}],"outputs":[{"as_tensor":{"name":"b2"}},{"as_tensor":{"name":"y"}}],"nodes":[` +
		`{"target":"torch.ops.aten.index.Tensor","inputs":[{"name":"self","arg":{"as_tensor":{"name":"x"}}},` +
		`{"name":"indices","arg":{"as_optional_tensors":[{"as_none":[]},{"as_tensor":"w"}]}}],` +
		`"outputs":[{"as_tensor":{"name":"y"}}],"metadata":{}},` +
		`{"target":"torch.ops.aten.add.Tensor","inputs":[{"name":"self","arg":{"as_tensor":{"name":"b"}}},` +
		`{"name":"other","arg":{"as_none":[]}}],"outputs":[{"as_tensor":{"name":"b2"}}],"metadata":{"stack_trace":null}}],` +
		`"tensor_values":{"w":M,"b":M,"x":S,"y":S,"b2":M},"sym_int_values":{"n":{"as_expr":{"expr_str":"s0//2 + 1","hint":null}}},` +
		`"sym_bool_values":{"p":{"as_expr":{"expr_str":"Eq(s0, 2)"}}}},` +
		`"signature":{"inputs_to_parameters":{"w":"fc.weight"},"inputs_to_buffers":{"b":"count"},"user_inputs":["x"],` +
		`"user_outputs":["y"],"buffers_to_mutate":{"b2":"count"},"backward_signature":null},"module_call_graph":[]},` +
		`"opset_version":{"aten":10},"range_constraints":{"s0":{"min_val":2,"max_val":9223372036854775806.0}},` +
		`"equality_constraints":[],"schema_version":1,"dialect":"ATEN"}`
	old := strings.Replace(metaX, `{"as_int":0}`, `0`, 1)
	doc = strings.ReplaceAll(doc, ":M", ":"+old)
	doc = strings.ReplaceAll(doc, ":S", ":"+strings.Replace(old, `{"as_int":2}`,
		`{"as_expr":{"expr_str":"s0","hint":{"as_int":4}},"as_int":null}`, 1))
	p := decode(t, []byte(doc))
	if p.SchemaVersion != (Version{Major: 1}) || p.Verifiers[0] != "ATEN" || p.TorchVersion != "" {
		t.Errorf("version %v, dialect %v, torch %q", p.SchemaVersion, p.Verifiers, p.TorchVersion)
	}
	var specs []string
	for _, s := range p.Signature.Inputs {
		specs = append(specs, inputKindNames[s.Kind]+" "+s.Arg.Name+" "+s.Target)
	}
	for _, s := range p.Signature.Outputs {
		specs = append(specs, outputKindNames[s.Kind]+" "+s.Arg.Name+" "+s.Target)
	}
	want := []string{"PARAMETER w fc.weight", "BUFFER b count", "USER_INPUT x ", "BUFFER_MUTATION b2 count", "USER_OUTPUT y "}
	if diff := cmp.Diff(want, specs); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"", "w"}, p.Graph.Nodes[0].arg(t, "indices").Data); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"x: float32[s0]"}, ports(p.Inputs())); diff != "" {
		t.Error(diff)
	}
	if p.Ranges[0].Max != math.MaxInt64 || p.Hints["s0"] != 4 {
		t.Errorf("ranges %v, hints %v", p.Ranges, p.Hints)
	}
	if got := p.Graph.SymInts["n"].String(); got != "s0//2 + 1" {
		t.Errorf("n is %s", got)
	}
}

func TestPayloads(t *testing.T) {
	doc := `{"config":{"b":{"path_name":"weight_1","is_param":false,"use_pickle":false,"tensor_meta":` + metaX + `},` +
		`"a":{"path_name":"weight_0","is_param":true,"use_pickle":true,"tensor_meta":` + strings.Replace(metaX, `7`, `99`, 1) + `},` +
		`"o":{"path_name":"custom_obj_0","is_param":false,"use_pickle":true,"tensor_meta":null}}}`
	got, err := DecodePayloads(strings.NewReader(doc), Options{})
	if err != nil || len(got) != 3 {
		t.Fatal(got, err)
	}
	if got[0].Name != "b" || got[0].Path != "weight_1" || got[0].Meta.DType != tensor.Float32 || got[0].Meta.Sizes[0].Int != 2 {
		t.Errorf("b: %+v %+v", got[0], got[0].Meta)
	}
	if !got[1].Param || !got[1].Pickled || got[1].Meta.DType != tensor.Invalid || got[1].Meta.ScalarType != 99 {
		t.Errorf("a: %+v", got[1])
	}
	if got[2].Meta != nil {
		t.Errorf("o: %+v", got[2])
	}
	for _, change := range [][2]string{{`"weight_1"`, `""`}, {`true,"tensor_meta":null`, `false,"tensor_meta":null`}} {
		_, err := DecodePayloads(strings.NewReader(strings.Replace(doc, change[0], change[1], 1)), Options{})
		if !errors.Is(err, fault.ErrFormat) {
			t.Errorf("%s: %v", change[1], err)
		}
	}
}

func TestDecodeVersion(t *testing.T) {
	v, err := DecodeVersion(strings.NewReader(small), Options{})
	if err != nil || v != (Version{8, 1}) {
		t.Errorf("%v, %v", v, err)
	}
	newer := strings.NewReplacer(`"major":8`, `"major":12`, "as_tensor", "as_vector").Replace(small)
	if _, err := DecodeVersion(strings.NewReader(newer), Options{}); !errors.Is(err, fault.ErrUnsupported) {
		t.Errorf("a newer schema: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(small))
	for _, name := range []string{"nested", "tuples", "dataclass", "mutation_decomposed", "keywords"} {
		f.Add(program(f, name))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		p, err := Decode(bytes.NewReader(doc), Options{Meter: limit.New(8 << 20)})
		if err != nil {
			var fe *fault.Error
			if p != nil || !errors.As(err, &fe) || fe.Class == nil {
				t.Fatalf("the error %v has no class", err)
			}
			return
		}
		for _, port := range append(p.Inputs(), p.Outputs()...) {
			if port.Name == "" {
				t.Fatalf("a port without a name: %+v", port)
			}
			for _, s := range port.Shape {
				if s.Expr != nil {
					_ = s.String()
					_, _ = s.Expr.Eval(map[string]int64{"s0": 3})
				}
			}
		}
	})
}
