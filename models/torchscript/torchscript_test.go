package torchscript

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/loader/script"
	"github.com/optimem/optimem/tensor"
)

// A fake records calls. Every op gives a float32 tensor of the shape of its first argument.
type fake struct {
	calls []string
	path  string
	at    string
}

type fakeTensor struct {
	dtype tensor.DType
	shape tensor.Shape
	known *tensor.Tensor
	name  string
}

func (t *fakeTensor) DType() tensor.DType { return t.dtype }
func (t *fakeTensor) Shape() tensor.Shape { return t.shape }

func (r *fake) Call(op string, args []any, named layers.Named) ([]any, error) {
	text := r.path + "|" + r.at + "|" + op
	shape := tensor.Shape{}
	for i, a := range args {
		t, ok := a.(*fakeTensor)
		if !ok {
			text += fmt.Sprintf(" %v", a)
			continue
		}
		if i == 0 {
			shape = t.shape
		}
		text += " T"
	}
	r.calls = append(r.calls, text)
	if op == "aten::nothing_known" {
		return nil, errors.New("no such op")
	}
	return []any{&fakeTensor{dtype: tensor.Float32, shape: shape}}, nil
}

func (r *fake) Weight(name string, _ tensor.DType) (layers.Tensor, error) {
	return &fakeTensor{dtype: tensor.Float32, shape: tensor.Shape{2, 3}, name: name}, nil
}

func (r *fake) Kept(k Kept) (layers.Tensor, error) {
	return &fakeTensor{dtype: k.DType, shape: k.Shape, name: k.Name}, nil
}

func (r *fake) Constant(t *tensor.Tensor) (layers.Tensor, error) {
	return &fakeTensor{dtype: t.DType, shape: t.Layout.Shape, known: t}, nil
}

func (r *fake) Known(t layers.Tensor) (*tensor.Tensor, error) { return t.(*fakeTensor).known, nil }
func (r *fake) Depends(layers.Tensor, layers.Tensor) bool     { return true }
func (r *fake) Counted(layers.Tensor) (int, any, error)       { return -1, nil, nil }
func (r *fake) CountOf(string, []any) (any, bool, error)      { return nil, false, nil }
func (r *fake) EmptyWith(layers.Tensor, any) int              { return -1 }
func (r *fake) Layout(t layers.Tensor) tensor.Layout          { return tensor.Contiguous(t.Shape()...) }
func (r *fake) Enter(path string)                             { r.path = path }
func (r *fake) Leave(string, any)                             {}
func (r *fake) At(source string)                              { r.at = source }

// program parses a module's forward, written without its indentation, and what else the file has.
func program(t testing.TB, body, more string) *script.Program {
	t.Helper()
	src := "class M(Module):\n  __parameters__ = []\n  __buffers__ = []\n  n : int\n  l : List[int]\n  w : Tensor\n" +
		"  def forward(self: __torch__.M, x: Tensor, k: int=3) -> Any:\n"
	for line := range strings.SplitSeq(strings.TrimRight(body, "\n"), "\n") {
		src += "    " + line + "\n"
	}
	p, err := script.Parse(func(yield func(string, string) bool) { yield("__torch__.py", src+more) }, script.Options{})
	if err != nil {
		t.Fatalf("%v\n%s", err, src+more)
	}
	p.Root = &script.Object{Class: "__torch__.M", Attributes: []script.Field{
		{Name: "n", Value: int64(5)}, {Name: "l", Value: script.ListValue{int64(1), int64(2)}},
		{Name: "w", Value: script.Tensor("w")},
	}}
	return p
}

func input() Arguments {
	return Arguments{"x": &fakeTensor{dtype: tensor.Float32, shape: tensor.Shape{2, 3}}}
}

// TestLanguage evaluates functions on numbers, texts and containers. What is wanted is what PyTorch 2.15 gives.
func TestLanguage(t *testing.T) {
	for _, c := range []struct {
		body string
		want any
	}{
		{"return torch.add(1, torch.mul(2, k))", 7},
		{"return [torch.floordiv(-7, 2), torch.remainder(-7, 3), torch.__round_to_zero_floordiv(-7, 2)]", []any{-4, 2, -3}},
		{"return [torch.div(7, 2), torch.pow(2, 3), torch.neg(2.5), ops.prim.abs(-3)]", []any{3.5, 8.0, -2.5, 3}},
		{"return [torch.floor(-1.5), torch.ceil(1.2), torch.round(2.5), int(-1.9)]", []any{-2, 2, 2.0, -1}},
		{"return [torch.__lshift__(3, 2), torch.__rshift__(-8, 1), torch.__xor__(6, 3), torch.__and__(True, False)]",
			[]any{12, -4, 5, false}},
		{"return [torch.lt(1, 1.5), torch.ge(2, 2), torch.eq(1, 1.), torch.ne(\"a\", \"b\"), torch.__not__(True)]",
			[]any{true, true, true, true, false}},
		{"return [ops.prim.min(3, 2), ops.prim.max([1, 5, 2]), ops.prim.max(1, 2.5)]", []any{2, 5, 2.5}},
		{"return [9223372036854775807, torch.add(9223372036854775807, 1)]",
			[]any{9223372036854775807, -9223372036854775808}},
		{"return torch.format(\"{} {} {}\", [1, 2], 0.5, \"a\")", "[1, 2] 0.5 a"},
		{"return torch.format(\"{} {}\", 2., 0.1)", "2. 0.10000000000000001"},
		{"return torch.join(\"-\", torch.split(\"a,b,c\", \",\"))", "a-b-c"},
		{"return [torch.upper(\"ab\"), torch.slice(\"hello\", 1, -1, 2), torch.find(\"hello\", \"l\")]", []any{"AB", "el", 2}},
		{"return [torch.startswith(\"abc\", \"ab\"), torch.len(\"abc\"), int(\"42\"), float(\"1.5\")]",
			[]any{true, 3, 42, 1.5}},
		{"return torch.replace(torch.add(\"x\", \"yx\"), \"x\", \"z\")", "zyz"},
		{"a = [3, 1, 2]\nb = a\n_0 = torch.append(b, 0)\ntorch.sort(a)\nreturn [torch.len(b), b[0], b[-1], torch.index(a, 2)]",
			[]any{4, 0, 3, 2}},
		{"a = [1, 2, 3, 4]\n_0 = torch.insert(a, 1, 9)\n_1 = torch.pop(a)\ntorch.remove(a, 2)\nreturn torch.slice(a, -2, None, 1)",
			[]any{9, 3}},
		{"a = [1, 2]\n_0 = torch._set_item(a, -1, 7)\ntorch.Delete(a, 0)\nreturn torch.add(a, torch.mul(a, 2))",
			[]any{7, 7, 7}},
		{"return [torch.any([0, 1]), torch.all([0, 1]), torch.sum([1, 2]), torch.__contains__([1, 2], 3)]",
			[]any{true, false, 3, false}},
		{"d = {\"b\": 1, \"a\": 2}\ntorch._set_item(d, \"c\", 3)\ntorch.Delete(d, \"b\")\nreturn [torch.keys(d), torch.values(d)]",
			[]any{[]any{"a", "c"}, []any{2, 3}}},
		{"d = {1: \"x\"}\nreturn [torch.get(d, 2, \"y\"), torch.setdefault(d, 1, \"z\"), torch.pop(d, 1), torch.len(d)]",
			[]any{"y", "x", "x", 0}},
		{"s = 0\nfor i in range(4):\n  s = torch.add(s, i)\nreturn s", 6},
		{"i, go = 0, True\nwhile go:\n  i = torch.add(i, 2)\n  go = torch.lt(i, 5)\nreturn i", 6},
		{"if torch.gt(torch.size(x, 0), 1):\n  r = \"many\"\nelse:\n  r = \"one\"\nreturn r", "many"},
		{"a, b, = torch.size(x)\nreturn (b, a)", []any{3, 2}},
		{"for i in range(4):\n  if torch.eq(i, 2):\n    return i\nreturn -1", 2},
		{"i = 0\nwhile True:\n  i = torch.add(i, 1)\n  if torch.gt(i, 6):\n    return i\nreturn -1", 7},
		{"n = ops.prim.NumToTensor(7)\nreturn int(torch.rsub(n, 2))", -5},
		{"a, b = 1, 2\na, b = b, a\nreturn [a, b]", []any{2, 1}},
		{"return ops.prim.dtype(torch.tensor([1, 2.5]))", 6},
		{"t = torch.tensor([-3, 4], dtype=3)\nreturn annotate(List[int], (t).tolist())", []any{-3, 4}},
		{"if torch.eq(k, 4):\n  r = 1\nelse:\n  return 5\nreturn r", 5},
		{"return [torch.dim(x), torch.numel(x), torch.len(x), ops.prim.dtype(x), torch.size(x, -1)]", []any{2, 6, 2, 6, 3}},
		{"n = ops.prim.NumToTensor(torch.size(x, 1))\nm = torch.floor_divide(torch.mul(n, CONSTANTS.c0), 4)\nreturn int(m)", 6},
		{"n = ops.prim.NumToTensor(7)\nreturn int(torch.floor(torch.div(n, 2)))", 3},
		{"t = torch.tensor([[1, 2], [3, 4]])\nreturn annotate(List[List[int]], (t).tolist())",
			[]any{[]any{1, 2}, []any{3, 4}}},
		{"return float(torch.tensor(0.1))", float64(float32(0.1))},
		{"v = torch.add(self.n, torch.len(self.l))\nreturn v", 7},
		{"return isinstance(k, int)", true},
		{"return [isinstance(annotate(List[int], []), List[int]), isinstance(\"\", (int, float))]", []any{true, false}},
		{"if torch.__is__(None, None):\n  r = 1\nelse:\n  r = uninitialized(int)\nreturn r", 1},
		{"p = __torch__.P(1, b=2)\nreturn p.b", 2},
		{"return __torch__.P(1, 2)", layers.Fields{{Name: "a", Value: 1}, {Name: "b", Value: 2}}},
		{"return [(__torch__.E.TWO).value, torch.eq(__torch__.E.ONE, __torch__.E.ONE)]", []any{2, true}},
		{"o = __torch__.O.__new__(__torch__.O)\n_0 = (o).__init__(4, )\nreturn (o).twice()", 8},
		{"def local():\n  return torch.add(k, 1)\n_0 = fork(local)\nreturn torch.wait(_0)", 4},
		{"return __torch__.double(k, )", 6},
		{"f = __torch__.double\nreturn f(4, )", 8},
		{"return ops.prim.type(torch.device(\"cuda\", 1))", "cuda"},
		{"return [torch.__range_length(0, 10, 3), torch.__derive_index(2, 1, 3)]", []any{4, 7}},
	} {
		p := program(t, c.body, others)
		p.Constants = []script.Value{int64(0)}
		r := &fake{}
		p.Constants[0] = script.Tensor("c0")
		result, err := Evaluate(p, constants{r}, input(), Options{})
		if err != nil {
			t.Errorf("%s:\n%v", c.body, err)
			continue
		}
		if diff := cmp.Diff(c.want, result.Value); diff != "" {
			t.Errorf("%s:\n%s", c.body, diff)
		}
	}
}

const others = `class P(NamedTuple):
  a : int
  b : int
class E(Enum):
  ONE = 1
  TWO = 2
class O:
  n : int
  def __init__(self: __torch__.O, n: int) -> NoneType:
    self.n = n
    return None
  def twice(self: __torch__.O) -> int:
    return torch.mul(self.n, 2)
def double(k: int) -> int:
  return torch.mul(k, 2)
def again(k: int) -> int:
  return __torch__.again(k, )
`

// constants makes the weight c0 the number 8.
type constants struct{ *fake }

func (r constants) Weight(name string, d tensor.DType) (layers.Tensor, error) {
	if name == "c0" {
		return r.Constant(&tensor.Tensor{DType: tensor.Int64, Layout: tensor.Contiguous(), Data: []byte{8, 0, 0, 0, 0, 0, 0, 0}})
	}
	return r.fake.Weight(name, d)
}

// TestErrors evaluates programs that are wrong, cannot be known before a run, or never end.
func TestErrors(t *testing.T) {
	unsupported := &UnsupportedError{}
	raised := &RaisedError{}
	for _, c := range []struct {
		body string
		// as is the type of the error, or is the error that it wraps.
		as   any
		is   error
		text string
	}{
		{"while True:\n  pass\nreturn 1", nil, ErrLimit, "steps"},
		{"for i in range(9223372036854775807):\n  pass\nreturn 1", nil, ErrLimit, "steps"},
		{"l = [1]\nwhile True:\n  _0 = torch.append(l, 1)\nreturn l", nil, ErrLimit, ""},
		{"l = [1]\nfor i in range(100):\n  l = torch.add(l, l)\nreturn l", nil, ErrLimit, ""},
		{"s = \"ab\"\nfor i in range(100):\n  s = torch.add(s, s)\nreturn s", nil, ErrLimit, "memory"},
		{"return torch.mul(\"ab\", 9223372036854775807)", nil, ErrLimit, "repeated"},
		{"return torch.mul([1], 9223372036854775807)", nil, ErrLimit, "repeated"},
		{"return ops.prim.rangelist(9223372036854775807)", nil, ErrLimit, ""},
		{"s = torch.mul(\"a\", 1000000)\nreturn torch.replace(s, \"a\", s)", nil, ErrLimit, "replacements"},
		{"s = torch.mul(\"a\", 100000000)\nreturn torch.list(s)", nil, ErrLimit, ""},
		{"l = [1]\n_0 = torch.append(l, l)\nreturn torch.str(l)", nil, ErrLimit, "deep"},
		{"l = [1]\n_0 = torch.append(l, l)\nreturn l", nil, ErrLimit, "deep"},
		{"l = [1]\n_0 = torch.append(l, l)\nreturn torch.tensor(l)", nil, nil, "depth"},
		{"y = x\nwhile True:\n  y = torch.relu(y)\nreturn y", nil, ErrLimit, "memory"},
		{"l = [x]\nfor i in range(12):\n  l = torch.add(l, l)\nfor j in range(60):\n  y = torch.stack(l)\nreturn y", nil, ErrLimit, "memory"},
		{"s = torch.mul(\"a\", 1000000)\nfor i in range(3):\n  y = torch.einsum(s, x)\nreturn y", nil, ErrLimit, "steps"},
		{"return __torch__.again(1, )", nil, nil, "again calls itself"},
		{"return (self).forward(x, )", nil, nil, "forward calls itself"},
		{"return torch.floordiv(1, 0)", nil, nil, "division by zero"},
		{"return torch.remainder(1, 0)", nil, nil, "division by zero"},
		{"return torch.div(1, 0)", nil, nil, "division by zero"},
		{"return torch.floor_divide(ops.prim.NumToTensor(1), 0)", nil, nil, "division by zero"},
		{"return [1][3]", nil, nil, "index 3 of 1"},
		{"return {\"a\": 1}[\"b\"]", nil, nil, "no key"},
		{"return self.missing", nil, nil, "has no attribute missing"},
		{"return nope", nil, nil, "no variable nope"},
		{"return __torch__.nope(1, )", nil, nil, "no function __torch__.nope"},
		{"a, b, = [1, 2, 3]\nreturn a", nil, nil, "3 values for 2 names"},
		{"return torch.append(1, 2)", nil, nil, ""},
		{"return torch.nothing_known(x)", nil, nil, "no such op"},
		{"if x:\n  r = 1\nelse:\n  r = 2\nreturn r", nil, nil, "6 elements"},
		{"if bool(torch.select(x, 0, 0)):\n  r = 1\nelse:\n  r = 2\nreturn r", nil, nil, "elements"},
		{"y = annotate(Tensor, self.s)\nreturn int(y)", &unsupported, nil, "contents of a tensor"},
		{"while bool(self.s):\n  pass\nreturn 1", &unsupported, nil, "branches on the contents"},
		{"return annotate(number, self.s)", &unsupported, nil, "as a number"},
		{"return (self.s).tolist()", &unsupported, nil, ""},
		{"n = ops.prim.NumToTensor(7)\nreturn int(torch.add(n, 2, 3))", &unsupported, nil, "contents of a tensor"},
		{"self.n = 6\nv = self.n\nreturn v", nil, nil, ""},
		{"v = self.n\nself.n = {\"a\": 6}\nreturn v", &unsupported, nil, "attribute n"},
		{"l = self.l\n_0 = torch.append(l, {\"a\": 6})\nreturn 1", &unsupported, nil, "attribute l"},
		{"ops.prim.RaiseException(\"bad thing\", \"builtins.ValueError\")\nreturn 1", &raised, nil,
			"builtins.ValueError: bad thing"},
		{"return torch._unwrap_optional(None)", nil, nil, "unwrapping None"},
		{"return torch.tensor([[1, 2], [3]])", nil, nil, "different length"},
		{"return torch.slice([1, 2], 0, 2, 0)", nil, nil, "in steps of 0"},
		{"return torch.zeros([1], dtype=99)", nil, nil, ""},
		{"return int(inf)", nil, nil, "int of"},
		{"return torch.sort(1, 2)", nil, nil, ""},
		{"return torch.sorted([1, \"a\"])", nil, nil, "no order"},
		{"return self", &unsupported, nil, "outputs are"},
	} {
		p := program(t, c.body, others)
		p.Classes["__torch__.M"].Attributes = append(p.Classes["__torch__.M"].Attributes, script.Attribute{Name: "s"})
		p.Root.Attributes = append(p.Root.Attributes, script.Field{Name: "s", Value: script.Tensor("scalar")})
		_, err := Evaluate(p, scalars{&fake{}}, input(), Options{Steps: 2_000_000, Bytes: 32 << 20})
		if c.text == "" && c.as == nil && c.is == nil {
			continue // either way, as long as it ends
		}
		if err == nil {
			t.Errorf("%s: no error", c.body)
			continue
		}
		var placed *Error
		if !errors.As(err, &placed) || !strings.HasPrefix(placed.Source, "code/__torch__.py:") {
			t.Errorf("%s: %v has no place", c.body, err)
		}
		if !strings.Contains(err.Error(), c.text) || c.is != nil && !errors.Is(err, c.is) || c.as != nil && !errors.As(err, c.as) {
			t.Errorf("%s: got %v, want %q", c.body, err, c.text)
		}
	}
}

// scalars makes the weight "scalar" one without dimensions.
type scalars struct{ *fake }

func (r scalars) Weight(name string, d tensor.DType) (layers.Tensor, error) {
	if name == "scalar" {
		return &fakeTensor{dtype: tensor.Float32, shape: tensor.Shape{}}, nil
	}
	return r.fake.Weight(name, d)
}

// TestOps checks what a recorder is told: modules, lines, arguments.
func TestOps(t *testing.T) {
	r := &fake{}
	p := program(t, "w = self.w\ny = torch.conv2d(x, w, None, [1, 1], [0, 0])\nc = self.c\nz = (c).forward(y, )\nreturn torch.relu(z)",
		"class C(Module):\n  __parameters__ = []\n  __buffers__ = []\n  def forward(self: __torch__.C, x: Tensor) -> Tensor:\n"+
			"    return torch.add(x, 1, alpha=2)\n")
	p.Root.Attributes = append(p.Root.Attributes, script.Field{Name: "c", Value: &script.Object{Class: "__torch__.C"}})
	if _, err := Evaluate(p, r, input(), Options{}); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"|code/__torch__.py:9|aten::conv2d T T <nil> [1 1] [0 0]",
		"c|code/__torch__.py:17|aten::add T 1",
		"|code/__torch__.py:12|aten::relu T",
	}
	if diff := cmp.Diff(want, r.calls); diff != "" {
		t.Error(diff)
	}
}

// TestUpdates checks which assignments to attributes outlive a pass.
func TestUpdates(t *testing.T) {
	p := program(t, "w = self.w\ny = torch.add(w, 1)\nself.w = y\nreturn y", "")
	result, err := Evaluate(p, &fake{}, input(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(result.Updates) != 1 || result.Updates[0].Weight != "w" || result.Updates[0].Value != result.Value {
		t.Errorf("updates %v", result.Updates)
	}
	p = program(t, "w = self.w\ny = torch.add(w, 1)\nself.w = y\nself.w = w\nreturn y", "")
	if result, err = Evaluate(p, &fake{}, input(), Options{}); err != nil || len(result.Updates) != 0 {
		t.Errorf("a buffer that is set back is updated: %v", err)
	}
}

// TestAttributes: what attributes hold after a call is there in the next one, and only what is not as the archive says.
func TestAttributes(t *testing.T) {
	run := func(body string, before Attributes) *Result {
		t.Helper()
		p := program(t, body, "")
		for _, name := range []string{"s", "o", "p"} {
			p.Classes["__torch__.M"].Attributes = append(p.Classes["__torch__.M"].Attributes, script.Attribute{Name: name})
			var first script.Value
			if name == "s" {
				first = "a"
			}
			p.Root.Attributes = append(p.Root.Attributes, script.Field{Name: name, Value: first})
		}
		result, err := Evaluate(p, &fake{}, input(), Options{Attributes: before})
		if err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		return result
	}
	left := Attributes{
		"n": 6, "s": "b", "l": []any{1, 2, 3},
		"o": Kept{"o", tensor.Float32, tensor.Shape{2, 3}},
		"p": Tuple{7, Kept{"p.1", tensor.Float32, tensor.Shape{2, 3}}},
	}
	const set = "v = [self.n]\nself.n = 6\nself.s = \"b\"\nself.o = x\nself.p = (7, torch.relu(x))\n" +
		"_0 = torch.append(self.l, 3)\nw = (self.s, self.o, self.p)\nreturn v"
	first := run(set, nil)
	if diff := cmp.Diff(left, first.Attributes); diff != "" {
		t.Error(diff)
	}
	var stored []string
	for _, u := range first.Updates {
		stored = append(stored, u.Kept.Name)
	}
	if diff := cmp.Diff([]string{"o", "p.1"}, stored); diff != "" {
		t.Error(diff)
	}
	second := run("return (self.n, self.s, self.l, self.o, self.p)", left)
	if diff := cmp.Diff(left, second.Attributes); diff != "" || len(second.Updates) > 0 {
		t.Errorf("what was looked at: %d updates, %s", len(second.Updates), diff)
	}
	got := second.Value.([]any)
	if got[0] != 6 || got[1] != "b" || len(got[2].([]any)) != 3 || got[3].(*fakeTensor).name != "o" ||
		got[4].([]any)[0] != 7 || got[4].([]any)[1].(*fakeTensor).name != "p.1" {
		t.Errorf("the next call finds %v", got)
	}
	if untouched := run("return x", left); untouched.Attributes.String() != left.String() {
		t.Errorf("what was not looked at is now %v", untouched.Attributes)
	}
	back := run("v = [self.n, self.s]\nself.n = 5\nself.s = \"a\"\nself.o = None\nself.p = None\nself.l = [1, 2]\nreturn self.o", left)
	if len(back.Attributes) > 0 {
		t.Errorf("set back: %v", back.Attributes)
	}
	moved := run("self.o = (self.p)[1]\nreturn self.o", left)
	if len(moved.Updates) != 1 || moved.Updates[0].Kept.Name != "o" || moved.Updates[0].Value.(*fakeTensor).name != "p.1" {
		t.Errorf("a tensor that another attribute kept: %v", moved.Updates)
	}
	if ignored := run("self.o = x\nreturn x", nil); len(ignored.Attributes) > 0 || len(ignored.Updates) > 0 {
		t.Errorf("what nobody reads is kept: %v", ignored.Attributes)
	}
}

// TestAttributeTexts: attributes have the same text only where they are equal.
func TestAttributeTexts(t *testing.T) {
	x := Kept{"a", tensor.Float32, tensor.Shape{2}}
	texts := make(map[string]Attributes)
	for _, a := range []Attributes{
		nil, {"a": 1}, {"a": 2}, {"a": 1.0}, {"a": "1"}, {"a": true}, {"a": nil}, {"b": 1}, {"a": []any{}}, {"a": Tuple{}},
		{"a": []any{1}}, {"a": Tuple{1}}, {"a": []any{1, 1}}, {"a": []any{[]any{1}, 1}}, {"a": x},
		{"a": Kept{"a", tensor.Float64, tensor.Shape{2}}}, {"a": Kept{"a", tensor.Float32, tensor.Shape{2, 1}}}, {"a": "float32[2]"},
	} {
		text := a.String()
		if other, taken := texts[text]; taken {
			t.Errorf("%v and %v are both %q", other, a, text)
		}
		texts[text] = a
	}
	for _, c := range []struct {
		before, after Attributes
		want          string
	}{
		{Attributes{"a": 1, "b": x}, Attributes{"a": 1, "b": x}, ""},
		{Attributes{"a": 1, "b": x}, Attributes{"a": 1, "b": Kept{"b", tensor.Float32, tensor.Shape{3}}}, "b"},
		{nil, Attributes{"a": 1}, "a"}, {Attributes{"a": 1}, nil, "a"},
	} {
		if got := c.after.Changed(c.before); got != c.want {
			t.Errorf("from %v to %v: %q, want %q", c.before, c.after, got, c.want)
		}
	}
}

// FuzzEvaluate checks that no program panics, or takes more than its limits.
func FuzzEvaluate(f *testing.F) {
	f.Add("return torch.add(x, 1)")
	f.Add("l = [1]\nwhile True:\n  l = torch.add(l, l)\nreturn l")
	f.Add("d = {\"a\": [1, 2]}\nfor i in range(3):\n  torch._set_item(d, str(i), torch.mul([i], 2))\nreturn d")
	f.Add("return torch.format(\"{}\", torch.split(\"a b\", None))")
	f.Add("n = ops.prim.NumToTensor(torch.size(x, 0))\nreturn torch.view(x, [int(torch.mul(n, 3)), -1])")
	f.Add("o = __torch__.O.__new__(__torch__.O)\n_0 = (o).__init__(4, )\nreturn (o).twice()")
	f.Fuzz(func(t *testing.T, body string) {
		src := "class M(Module):\n  __parameters__ = []\n  __buffers__ = []\n" +
			"  def forward(self: __torch__.M, x: Tensor, k: int=3) -> Any:\n"
		for line := range strings.SplitSeq(body, "\n") {
			src += "    " + line + "\n"
		}
		p, err := script.Parse(func(yield func(string, string) bool) { yield("__torch__.py", src+others) }, script.Options{Depth: 50})
		if err != nil || p.Classes["__torch__.M"] == nil || p.HighestConstant != nil {
			return
		}
		p.Root = &script.Object{Class: "__torch__.M"}
		if _, err := Inspect(p); err != nil {
			return
		}
		if _, err := Evaluate(p, &fake{}, input(), Options{Steps: 50_000, Bytes: 4 << 20}); err != nil {
			var placed *Error
			if !errors.As(err, &placed) {
				t.Fatalf("%v has no place", err)
			}
		}
	})
}

// TestStopped: code that goes on and on ends when it is told to.
func TestStopped(t *testing.T) {
	stop := errors.New("stop")
	for _, last := range []int{1, 2, 5} {
		asked := 0
		p := program(t, "n = 0\nwhile True:\n  n = torch.add(n, 1)\nreturn n", "")
		_, err := Evaluate(p, &fake{}, input(), Options{Stop: func() error {
			if asked++; asked == last {
				return stop
			}
			return nil
		}})
		if !errors.Is(err, stop) || asked != last {
			t.Errorf("told to stop when asked for the %d. time: %v after %d", last, err, asked)
		}
	}
}
