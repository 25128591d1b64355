package exported

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/optimem/optimem/loader/internal/fault"
)

// signed is a program whose graph has the inputs p, b, x and k and the outputs o and q, with the signature given.
func signed(t testing.TB, inputs, outputs, calls string) string {
	t.Helper()
	names := []string{"p", "b", "x", "k", "o", "q"}
	var in, values []string
	for _, name := range names {
		values = append(values, `"`+name+`":`+metaX)
		if len(in) < 4 {
			in = append(in, `{"as_tensor":{"name":"`+name+`"}}`)
		}
	}
	node := `{"target":"t","inputs":[],"outputs":[{"as_tensor":{"name":"o"}},{"as_tensor":{"name":"q"}}],"metadata":{}}`
	return changed(t,
		`"inputs":[{"as_tensor":{"name":"x"}}]`, `"inputs":[`+strings.Join(in, ",")+`]`,
		`"outputs":[{"as_tensor":{"name":"y"}}],"nodes"`,
		`"outputs":[{"as_tensor":{"name":"o"}},{"as_tensor":{"name":"q"}}],"nodes"`,
		nodeRelu, node, `"tensor_values":{"x":`+metaX+`,"y":`+metaX+`}`, `"tensor_values":{`+strings.Join(values, ",")+`}`,
		`{"user_input":{"arg":{"as_tensor":{"name":"x"}}}}`, inputs,
		`{"user_output":{"arg":{"as_tensor":{"name":"y"}}}}`, outputs,
		`"module_call_graph":[]`, `"module_call_graph":[`+calls+`]`)
}

const (
	specP = `{"parameter":{"arg":{"name":"p"},"parameter_name":"fc.weight"}}`
	specB = `{"buffer":{"arg":{"name":"b"},"buffer_name":"count"}}`
	specX = `{"user_input":{"arg":{"as_tensor":{"name":"x"}}}}`
	specK = `{"tensor_constant":{"arg":{"name":"k"},"tensor_constant_name":"table"}}`
	specO = `{"user_output":{"arg":{"as_tensor":{"name":"o"}}}}`
	specQ = `{"user_output":{"arg":{"as_tensor":{"name":"q"}}}}`
	specs = specP + "," + specB + "," + specX + "," + specK
)

func TestSignature(t *testing.T) {
	persistent := func(word string) string {
		return strings.Replace(specs, `"buffer_name":"count"`, `"buffer_name":"count","persistent":`+word, 1)
	}
	for inputs, want := range map[string]bool{specs: true, persistent("true"): true, persistent("false"): false} {
		p := decode(t, []byte(signed(t, inputs, specO+","+specQ, "")))
		got := p.Signature.Inputs
		wanted := []InputSpec{
			{Kind: Parameter, Arg: Argument{Tag: Tensor, Name: "p"}, Target: "fc.weight"},
			{Kind: Buffer, Arg: Argument{Tag: Tensor, Name: "b"}, Target: "count", Persistent: want},
			{Kind: UserInput, Arg: Argument{Tag: Tensor, Name: "x"}},
			{Kind: TensorConstant, Arg: Argument{Tag: Tensor, Name: "k"}, Target: "table"},
		}
		if diff := cmp.Diff(wanted, got); diff != "" {
			t.Error(diff)
		}
	}
}

// What an output is for must be an input of that kind.
func TestOutputsAreForInputs(t *testing.T) {
	targets := map[string]InputKind{
		"fc.weight": Parameter, "count": Buffer, "x": UserInput, "table": TensorConstant, "none": InputToken,
		"p": InputToken, "b": InputToken, "k": InputToken, // inputs of the graph that are none of the user
	}
	for _, kind := range []struct {
		tag, field string
		kind       OutputKind
		of         InputKind
	}{
		{"buffer_mutation", "buffer_name", BufferMutation, Buffer},
		{"parameter_mutation", "parameter_name", ParameterMutation, Parameter},
		{"user_input_mutation", "user_input_name", UserInputMutation, UserInput},
		{"gradient_to_parameter", "parameter_name", GradientToParameter, Parameter},
		{"gradient_to_user_input", "user_input_name", GradientToUserInput, UserInput},
	} {
		for target, of := range targets {
			spec := `{"` + kind.tag + `":{"arg":{"name":"o"},"` + kind.field + `":"` + target + `"}}`
			p, err := Decode(strings.NewReader(signed(t, specs, spec+","+specQ, "")), Options{})
			switch {
			case of != kind.of:
				if !errors.Is(err, fault.ErrFormat) {
					t.Errorf("%s of %s: %v", kind.tag, target, err)
				}
			case err != nil:
				t.Errorf("%s of %s: %v", kind.tag, target, err)
			case p.Signature.Outputs[0].Kind != kind.kind || p.Signature.Outputs[0].Target != target:
				t.Errorf("%s of %s: %+v", kind.tag, target, p.Signature.Outputs[0])
			}
		}
	}
}

func TestSignaturesRefused(t *testing.T) {
	for _, inputs := range []string{
		strings.Replace(specs, `"fc.weight"`, `""`, 1), strings.Replace(specs, `"count"`, `""`, 1),
		strings.Replace(specs, `"table"`, `""`, 1), strings.Replace(specs, `{"name":"p"}`, `{"name":"b"}`, 1),
		strings.Replace(specs, `{"arg":{"name":"p"},`, `{`, 1),
		strings.Replace(specs, specX, `{"user_input":{"arg":{"as_sym_int":{"as_name":"x"}}}}`, 1),
	} {
		_, err := Decode(strings.NewReader(signed(t, inputs, specO+","+specQ, "")), Options{})
		if !errors.Is(err, fault.ErrFormat) {
			t.Errorf("%s: %v", inputs, err)
		}
	}
	swapped := specQ + "," + specO
	if _, err := Decode(strings.NewReader(signed(t, specs, swapped, "")), Options{}); !errors.Is(err, fault.ErrFormat) {
		t.Errorf("outputs in another order: %v", err)
	}
}

// In files of PyTorch 2.1 the mutations come first among the outputs; the same value may be an output of the user, too.
func TestOldMutationsComeFirst(t *testing.T) {
	doc := signed(t, specs, specO+","+specQ, "")
	old := `"inputs_to_parameters":{"p":"fc.weight"},"inputs_to_buffers":{"b":"count"},"buffers_to_mutate":{"o":"count"}`
	doc = strings.Replace(doc, `"input_specs":[`+specs+`],"output_specs":[`+specO+`,`+specQ+`]`, old, 1)
	o, q := `{"as_tensor":{"name":"o"}}`, `{"as_tensor":{"name":"q"}}`
	for outputs, want := range map[string][]OutputKind{
		o + "," + q:           {BufferMutation, UserOutput},
		o + "," + o:           {BufferMutation, UserOutput},
		q + "," + o:           {UserOutput, UserOutput},
		o + "," + q + "," + o: {BufferMutation, UserOutput, UserOutput},
	} {
		p := decode(t, []byte(strings.Replace(doc, `"outputs":[`+o+","+q+`],"nodes"`, `"outputs":[`+outputs+`],"nodes"`, 1)))
		var got []OutputKind
		for _, s := range p.Signature.Outputs {
			got = append(got, s.Kind)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", outputs, diff)
		}
		in := p.Signature.Inputs
		if in[0].Kind != Parameter || in[1].Kind != Buffer || !in[1].Persistent || in[3].Kind != UserInput {
			t.Errorf("inputs %+v", in)
		}
	}
}

// call is the program's own entry of the module calls, for trees of arguments and results and the names of forward's.
func call(in, out, names string) string {
	quoted := func(s string) string { return `"` + strings.ReplaceAll(s, `"`, `\"`) + `"` }
	return `{"fqn":"","signature":{"inputs":[],"outputs":[],"in_spec":` + quoted(in) + `,"out_spec":` + quoted(out) +
		`,"forward_arg_names":` + names + `}}`
}

const leaf = `{"type":null,"context":null,"children_spec":[]}`

func node(typ, context string, children ...string) string {
	return `{"type":"` + typ + `","context":` + context + `,"children_spec":[` + strings.Join(children, ",") + `]}`
}

func tuple(children ...string) string { return node("builtins.tuple", `"null"`, children...) }

func dict2(keys string, children ...string) string {
	return node("builtins.dict", `"`+strings.ReplaceAll(keys, `"`, `\"`)+`"`, children...)
}

func tree(t string) string { return "[1," + strings.ReplaceAll(t, `\"`, `\\"`) + "]" }

func portNames(list []Port) []string {
	var names []string
	for _, p := range list {
		names = append(names, p.Name+"="+p.Value)
	}
	return names
}

// The names of ports are those of the call, each one once.
func TestPortsAreNamedByTheCall(t *testing.T) {
	user := func(name string) string { return `{"user_input":{"arg":{"as_tensor":{"name":"` + name + `"}}}}` }
	four := user("p") + "," + user("b") + "," + user("x") + "," + user("k")
	loss := strings.Replace(specO, "user_output", "loss_output", 1)
	loss = strings.Replace(loss, `{"as_tensor":{"name":"o"}}`, `{"name":"o"}`, 1)
	constant := `{"constant_input":{"name":"scale","value":{"as_int":3}}}`
	named := func(result, names string) string { // a call of four arguments
		return call(tree(tuple(tuple(leaf, leaf, leaf, leaf), dict2(`[]`))), tree(result), names)
	}
	for _, test := range []struct {
		what                  string
		inputs, outputs, call string
		in, out               []string
	}{
		{"without a call", four, specO + "," + specQ, "", []string{"p=p", "b=b", "x=x", "k=k"}, []string{"o=o", "q=q"}},
		{"nested", four, specO + "," + specQ,
			call(tree(tuple(tuple(leaf, tuple(leaf, leaf)), dict2(`["key"]`, leaf))), tree(tuple(leaf, leaf)),
				`["first","pair","key"]`),
			[]string{"first=p", "pair.0=b", "pair.1=x", "key=k"}, []string{"o=o", "q=q"}},
		{"results with names", four, specO + "," + specQ,
			named(dict2(`["logits","loss"]`, leaf, leaf), `["a","b","c","d"]`),
			[]string{"a=p", "b=b", "c=x", "d=k"}, []string{"logits=o", "loss=q"}},
		{"names deep within", four, specO + "," + specQ,
			named(dict2(`["r"]`, tuple(leaf, leaf)), `["a","b","c","d"]`),
			[]string{"a=p", "b=b", "c=x", "d=k"}, []string{"r.0=o", "r.1=q"}},
		{"too few keys", four, specO + "," + specQ,
			named(dict2(`["logits"]`, leaf, leaf), `["a","b","c","d"]`),
			[]string{"a=p", "b=b", "c=x", "d=k"}, []string{"o=o", "q=q"}},
		{"arguments without names", four, specO + "," + specQ,
			call(tree(tuple(tuple(leaf, tuple(leaf, leaf), leaf), dict2(`[]`))), tree(tuple(leaf, leaf)), `["a"]`),
			[]string{"a=p", "b=b", "x=x", "k=k"}, []string{"o=o", "q=q"}},
		{"a call of other arguments", four, specO + "," + specQ,
			call(tree(tuple(tuple(leaf, leaf), dict2(`[]`))), tree(tuple(leaf)), `["a","b"]`),
			[]string{"p=p", "b=b", "x=x", "k=k"}, []string{"o=o", "q=q"}},
		{"one name twice", four, specO + "," + specQ,
			named(dict2(`["q","q"]`, leaf, leaf), `["a","a","input_1","a"]`),
			[]string{"a=p", "input_1=b", "input_2=x", "input_3=k"}, []string{"q=o", "output_1=q"}},
		{"a name that would be made up", four, specO + "," + specQ,
			named(dict2(`["output_1","output_1"]`, leaf, leaf), `["input_1","input_1","c","d"]`),
			[]string{"input_1=p", "input_1_=b", "c=x", "d=k"}, []string{"output_1=o", "output_1_=q"}},
		{"a constant among the arguments", user("p") + "," + constant + "," + user("x") + "," + user("k"),
			specO + "," + specQ,
			named(tuple(leaf, leaf), `["a","scale","c","d"]`),
			[]string{"a=p", "c=x", "d=k"}, []string{"o=o", "q=q"}},
		{"weights are no ports", specs, loss + "," + specQ, "", []string{"x=x"}, []string{"o=o", "q=q"}},
		{"changed buffers are no ports", specs, `{"buffer_mutation":{"arg":{"name":"o"},"buffer_name":"count"}},` + specQ,
			call(tree(tuple(tuple(leaf), dict2(`[]`))), tree(dict2(`["y"]`, leaf)), `["image"]`),
			[]string{"image=x"}, []string{"y=q"}},
	} {
		p, err := Decode(strings.NewReader(signed(t, test.inputs, test.outputs, test.call)), Options{})
		if err != nil {
			t.Errorf("%s: %v", test.what, err)
			continue
		}
		if diff := cmp.Diff(test.in, portNames(p.Inputs())); diff != "" {
			t.Errorf("%s: inputs: %s", test.what, diff)
		}
		if diff := cmp.Diff(test.out, portNames(p.Outputs())); diff != "" {
			t.Errorf("%s: outputs: %s", test.what, diff)
		}
	}
}

// A named tuple has the fields of its own class.
func TestNamedTuplesHaveTheirOwnFields(t *testing.T) {
	point := func(class string) string { return node("collections.namedtuple", `"`+class+`"`, leaf, leaf) }
	image := tree(tuple(tuple(leaf), dict2(`[]`)))
	doc := signed(t, specs, specO+","+specQ, call(image, tree(point("m.Size")), `["image"]`))
	fields := `"treespec_namedtuple_fields":{"m.Point":{"field_names":["x","y"]},"m.Size":{"field_names":["w","h"]},` +
		`"m.Other":{"field_names":["r","s"]},"m.Last":{"field_names":["t","u"]}},"module_call_graph"`
	p := decode(t, []byte(strings.Replace(doc, `"module_call_graph"`, fields, 1)))
	if diff := cmp.Diff([]string{"w=o", "h=q"}, portNames(p.Outputs())); diff != "" {
		t.Error(diff)
	}
	// The fields may come after what needs them, and may be none.
	p = decode(t, []byte(doc))
	if diff := cmp.Diff([]string{"o=o", "q=q"}, portNames(p.Outputs())); diff != "" {
		t.Error(diff)
	}
}

func TestLeavesOfTreesAreCounted(t *testing.T) {
	leafTree := &TreeSpec{}
	pair := &TreeSpec{Type: "builtins.tuple", Children: []*TreeSpec{leafTree, leafTree}}
	nested := &TreeSpec{Type: "builtins.list", Children: []*TreeSpec{pair, leafTree, {Type: "builtins.tuple"}, pair}}
	for tree, want := range map[*TreeSpec]int{leafTree: 1, pair: 2, nested: 5, {Type: "builtins.tuple"}: 0} {
		if got := tree.Leaves(); got != want {
			t.Errorf("%+v has %d leaves, want %d", tree, got, want)
		}
	}
}
