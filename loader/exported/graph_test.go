package exported

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/optimem/optimem/loader/internal/fault"
)

// expr is the JSON of a size.
func expr(text, hint string) string {
	if hint != "" {
		hint = `,"hint":{"as_int":` + hint + `}`
	}
	return `{"as_expr":{"expr_str":"` + text + `"` + hint + `}}`
}

func withSize(size string) string { return strings.Replace(metaX, `{"as_int":2}`, size, 1) }

// A hint is what a symbol was in the example: of expressions none, and of several the first.
func TestHints(t *testing.T) {
	for _, test := range []struct {
		x, y string
		want map[string]int64
	}{
		{expr("Symbol('s0')", "4"), expr("Symbol('s0')", "4"), map[string]int64{"s0": 4}},
		{expr("Symbol('s0')", "4"), expr("Symbol('s0')", "5"), map[string]int64{"s0": 4}},
		{expr("Symbol('s0')", ""), expr("Symbol('s0')", "5"), map[string]int64{"s0": 5}},
		{expr("Symbol('s0')", "4"), expr("Add(Symbol('s0'), Integer(1))", "5"), map[string]int64{"s0": 4}},
		{expr("Add(Symbol('s0'), Integer(1))", "5"), expr("Symbol('s0')", "4"), map[string]int64{"s0": 4}},
		{expr("Symbol('s0')", "4"), expr("Symbol('u1')", "6"), map[string]int64{"s0": 4, "u1": 6}},
	} {
		p := decodeChanged(t, `"x":`+metaX, `"x":`+withSize(test.x), `"y":`+metaX, `"y":`+withSize(test.y))
		if diff := cmp.Diff(test.want, p.Hints); diff != "" {
			t.Errorf("%s, %s: %s", test.x, test.y, diff)
		}
	}
}

// Symbols of the shapes, strides and offsets need a meaning, which the inputs give to those of their own expressions.
func TestSymbolsHaveAMeaning(t *testing.T) {
	stride := func(e string) string { return strings.Replace(metaX, `[{"as_int":1}]`, `[`+e+`]`, 1) }
	offset := func(e string) string {
		return strings.Replace(metaX, `"storage_offset":{"as_int":0}`, `"storage_offset":`+e, 1)
	}
	sum := expr("Add(Symbol('s0'), Symbol('s1'))", "")
	for _, test := range []struct {
		x, y string
		ok   bool
	}{
		{withSize(expr("s0", "")), withSize(sum), false},
		{withSize(sum), withSize(expr("Mul(Symbol('s0'), Symbol('s1'))", "")), true}, // an input's
		{stride(sum), withSize(sum), true},
		{offset(sum), withSize(sum), true},
		{metaX, withSize(expr("u0", "")), true}, // computed while running
		{metaX, withSize(sum), false},
		{metaX, stride(sum), false},
		{metaX, stride(expr("u0", "")), false},
		{metaX, offset(sum), false},
		{metaX, offset(expr("u0", "")), false},
	} {
		_, err := Decode(strings.NewReader(changed(t, `"x":`+metaX, `"x":`+test.x, `"y":`+metaX, `"y":`+test.y)), Options{})
		if test.ok && err != nil || !test.ok && !errors.Is(err, fault.ErrFormat) {
			t.Errorf("x %s, y %s: %v", test.x, test.y, err)
		}
	}
}

// The nesting of expressions obeys the option, which is less than what is possible.
func TestExpressionsObeyTheDepth(t *testing.T) {
	nested := func(n int) string { return strings.Repeat("(", n) + "s0" + strings.Repeat(")", n) }
	for depth, most := range map[int]int{10: 10, 30: 30, 200: 100} {
		for levels, ok := range map[int]bool{most: true, most + 1: false} {
			doc := changed(t, `"x":`+metaX, `"x":`+withSize(expr(nested(levels), "")))
			_, err := Decode(strings.NewReader(doc), Options{Depth: depth})
			if ok && err != nil || !ok && !errors.Is(err, fault.ErrLimit) {
				t.Errorf("%d levels in a depth of %d: %v", levels, depth, err)
			}
		}
	}
}

// A node's metadata says where it came from, and the same words mean the same again.
func TestNodeMetadata(t *testing.T) {
	stacks := []string{
		"a,,m.Root;b,sub,m.Sub", "a,,m.Root", "b,sub,m.Sub", "a,,m.Root;b,sub,m.Sub",
		"L['x, y'],x[(0, 1)],m.Sub;k,p,m.C[a,b]",
	}
	want := [][]Frame{
		{{"a", "", "m.Root"}, {"b", "sub", "m.Sub"}}, {{"a", "", "m.Root"}}, {{"b", "sub", "m.Sub"}},
		{{"a", "", "m.Root"}, {"b", "sub", "m.Sub"}},
		{{"L['x, y']", "x[(0, 1)]", "m.Sub"}, {"k", "p", "m.C[a,b]"}},
	}
	var nodes []string
	for _, stack := range stacks {
		nodes = append(nodes, `{"target":"t","inputs":[],"outputs":[],"metadata":{"nn_module_stack":"`+stack+`",`+
			`"source_fn_stack":"x,torch.nn.Linear;y,torch.relu"}}`)
	}
	p := decodeChanged(t, nodeRelu, nodeRelu+`,`+strings.Join(nodes, ","))
	for i, stack := range want {
		n := p.Graph.Nodes[1+i]
		if diff := cmp.Diff(stack, n.Modules); diff != "" {
			t.Errorf("%s: %s", stacks[i], diff)
		}
		if n.SourceFn != "torch.relu" {
			t.Errorf("source function %q", n.SourceFn)
		}
	}
}

// Of a stack trace no more than a kilobyte is kept, however long its lines are.
func TestSourcesAreShort(t *testing.T) {
	trace := `File \"/home/user/net.py\", line 12, in forward\n    x = [` + strings.Repeat("ä, ", 5000) + `]`
	p := decodeChanged(t, `"metadata":{}`, `"metadata":{"stack_trace":"`+trace+`"}`)
	s := p.Graph.Nodes[0].Source
	if s == nil || s.File != "/home/user/net.py" || s.Line != 12 || s.Func != "forward" ||
		!strings.HasPrefix(s.Code, "x = [ä, ä, ") || len(s.Code) > 1<<10 {
		t.Errorf("source %.200v", s)
	}
}

func TestHowArgumentsArePassed(t *testing.T) {
	for kind, want := range map[string]ArgumentKind{
		`,"kind":1`: Positional, `,"kind":2`: Keyword, ``: KindUnknown, `,"kind":null`: KindUnknown, `,"kind":0`: KindUnknown,
		`,"kind":77`: KindUnknown,
	} {
		p := decodeChanged(t, `,"kind":1`, kind)
		if got := p.Graph.Nodes[0].Inputs[0].Kind; got != want {
			t.Errorf("%s is %d, want %d", kind, got, want)
		}
	}
}

// Whether an op or a subgraph gives a tensor or a tuple of one is what the file says.
func TestSingleReturns(t *testing.T) {
	for text, want := range map[string]Returns{
		``: ReturnsUnknown, `,"is_hop_single_tensor_return":null`: ReturnsUnknown,
		`,"is_hop_single_tensor_return":true`: ReturnsTensor, `,"is_hop_single_tensor_return":false`: ReturnsTuple,
	} {
		p := decodeChanged(t, `"metadata":{}`, `"metadata":{}`+text)
		if got := p.Graph.Nodes[0].Returns; got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
	for _, single := range []bool{true, false} {
		text := `{"as_graph":{"name":"g","graph":{"inputs":[],"nodes":[],"outputs":[],"tensor_values":{},` +
			`"is_single_tensor_return":` + map[bool]string{true: "true", false: "false"}[single] + `}}}`
		if g := argumentOf(t, text).Data.(*Graph); g.SingleTensorReturn != single {
			t.Errorf("a subgraph that returns a single tensor: %t, want %t", g.SingleTensorReturn, single)
		}
	}
}
