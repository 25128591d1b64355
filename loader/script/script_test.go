package script

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"iter"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/optimem/optimem/loader/internal/fault"
	"github.com/optimem/optimem/loader/internal/limit"
)

// archive reads a file of testdata: code files, each after a line "-- path --".
func archive(t testing.TB, path string) iter.Seq2[string, string] {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return func(yield func(name, src string) bool) {
		for _, part := range strings.Split("\n"+string(text), "\n-- ")[1:] {
			name, src, _ := strings.Cut(part, " --\n")
			if !yield(name, src+"\n") {
				return
			}
		}
	}
}

func models(t testing.TB) []string {
	t.Helper()
	var names []string
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range paths {
		if name := strings.TrimSuffix(filepath.Base(p), ".txt"); name != "trees" {
			names = append(names, name)
		}
	}
	if len(names) < 10 {
		t.Fatalf("only %d models in testdata", len(names))
	}
	return names
}

func one(name, src string) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) { yield(name, src) }
}

func parse(t testing.TB, src string) *Program {
	t.Helper()
	p, err := Parse(one("__torch__.py", src), Options{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestTrees compares the tree of every class and function that PyTorch wrote with what Python's parser made of it.
func TestTrees(t *testing.T) {
	text, err := os.ReadFile("testdata/trees.txt")
	if err != nil {
		t.Fatal(err)
	}
	want := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		want[f[0]+" "+f[1]+" "+f[2]] = f[3]
	}
	for _, name := range models(t) {
		p, err := Parse(archive(t, "testdata/"+name+".txt"), Options{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, f := range p.Files {
			for _, d := range f.Defs {
				plain := ""
				switch d := d.(type) {
				case *Class:
					plain = plainName(d.Name)
				case *Function:
					plain = plainName(d.Name)
				}
				key := name + " " + f.Name + " " + plain
				sum := sha256.Sum256([]byte(sexp(d)))
				if got := hex.EncodeToString(sum[:8]); got != want[key] {
					t.Errorf("%s: tree %s, Python's %s: %.2000s", key, got, want[key], sexp(d))
				}
				delete(want, key)
			}
		}
	}
	for key := range want {
		t.Errorf("%s was not parsed", key)
	}
}

// same reports whether two files have the same trees, positions aside.
func same(a, b *File) bool { return each(a.Defs) == each(b.Defs) }

// TestPrint checks that printed code parses to the same tree.
func TestPrint(t *testing.T) {
	for _, name := range models(t) {
		p, err := Parse(archive(t, "testdata/"+name+".txt"), Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range p.Files {
			q, err := Parse(one(f.Name, f.String()), Options{})
			if err != nil {
				t.Errorf("%s: %s printed: %v", name, f.Name, err)
				continue
			}
			if !same(f, q.Files[0]) {
				t.Errorf("%s: %s printed parses to another tree:\n%s", name, f.Name, f)
			}
		}
	}
}

// TestCharge checks that the meter is charged about what the tree takes, not less, and that it is obeyed.
func TestCharge(t *testing.T) {
	var files [][2]string
	for name, src := range archive(t, "testdata/resnet18_scripted.txt") {
		files = append(files, [2]string{name, strings.Clone(src)})
	}
	each := func(yield func(name, src string) bool) {
		for _, f := range files {
			if !yield(f[0], f[1]) {
				return
			}
		}
	}
	heap := func() int64 {
		goruntime.GC()
		var m goruntime.MemStats
		goruntime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	meter := limit.New(1 << 30)
	p, err := Parse(each, Options{Meter: meter})
	if err != nil {
		t.Fatal(err)
	}
	held, used := heap()-before, meter.Used()
	if used < held || used > 2*held {
		t.Errorf("%d bytes charged for a tree of %d", used, held)
	}
	goruntime.KeepAlive(p)
	if _, err := Parse(each, Options{Meter: limit.New(used - 1)}); !errors.Is(err, fault.ErrLimit) {
		t.Errorf("with a byte too few: %v", err)
	}
	if _, err := Parse(each, Options{Meter: limit.New(used)}); err != nil {
		t.Errorf("with just enough: %v", err)
	}
}

func TestProgram(t *testing.T) {
	p, err := Parse(archive(t, "testdata/everything.txt"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := p.Classes["__torch__.Everything"]
	if c == nil || c.Kind != ModuleClass {
		t.Fatalf("class %+v", c)
	}
	if got, want := c.Parameters, []string{"p", "none_p"}; !cmp.Equal(got, want) {
		t.Errorf("parameters %v, want %v", got, want)
	}
	kinds := map[string]ClassKind{
		"__torch__.Color": EnumClass, "__torch__.Out": NamedTuple, "__torch__.Op": ModuleInterface,
		"__torch__.Pair": PlainClass, "__torch__.torch.nn.modules.container.ModuleDict": ModuleClass,
	}
	for name, want := range kinds {
		if c := p.Classes[name]; c == nil || c.Kind != want || c.Name != name {
			t.Errorf("%s: %+v, want kind %d", name, c, want)
		}
	}
	if p.Functions["__torch__.scale"] == nil || p.Functions["__torch__.torch.nn.functional.relu"] == nil {
		t.Error("free functions are missing")
	}
	var inputs []string
	for _, a := range p.Inputs("__torch__.Everything") {
		inputs = append(inputs, a.Name+" "+a.Type.String())
	}
	want := []string{"x Tensor", "flag bool", "eps float", "dims Optional[List[int]]", "kw str", "c __torch__.Color"}
	if diff := cmp.Diff(want, inputs); diff != "" {
		t.Errorf("inputs (-want +got):\n%s", diff)
	}
	want = []string{"logits Tensor", "aux Optional[Tensor]", "n int"}
	if diff := cmp.Diff(want, outputs(p, "__torch__.Everything")); diff != "" {
		t.Errorf("outputs (-want +got):\n%s", diff)
	}
	if p.Method("__torch__.Everything", "backward") != nil || p.Method("__torch__.Nothing", "forward") != nil {
		t.Error("a method that is not there")
	}
	pos := p.Position(p.Functions["__torch__.scale"].Pos())
	line := 0
	for name, src := range archive(t, "testdata/everything.txt") {
		if name == "__torch__.py" {
			line = strings.Count(src[:strings.Index(src, "\ndef scale(")], "\n") + 2
		}
	}
	if want := (Position{"__torch__.py", line, 1}); pos != want {
		t.Errorf("scale stands at %v, want %v", pos, want)
	}
}

func outputs(p *Program, class string) []string {
	var list []string
	for _, o := range p.Outputs(class) {
		list = append(list, o.Name+" "+o.Type.String())
	}
	return list
}

func TestOutputs(t *testing.T) {
	for _, tt := range []struct{ returns, body, want string }{
		{"Tensor", "x", "output_0 Tensor"},
		{"NoneType", "None", ""},
		{"List[Tensor]", "[x]", "output_0 List[Tensor]"},
		{"Tuple[Tensor, Tuple[int, Tensor]]", "y", "output_0 Tensor|output_1 int|output_2 Tensor"},
		{"__torch__.Out", "y", "logits Tensor|aux Optional[Tensor]"},
		{"Tuple[__torch__.Out, __torch__.Out]", "y",
			"logits Tensor|aux Optional[Tensor]|output_2 Tensor|output_3 Optional[Tensor]"},
		{"Dict[str, Tensor]", `{"a": x, "b c": x}`, "a Tensor|b c Tensor"},
		{"Dict[str, Tensor]", "d", "k Tensor"},
		{"Dict[str, Tensor]", "again", "b Tensor"},
		{"Dict[str, Tensor]", "more", "output_0 Dict[str, Tensor]"},
		{"Dict[str, Tensor]", "maybe", "output_0 Dict[str, Tensor]"},
		{"Dict[str, Tensor]", "e", "output_0 Dict[str, Tensor]"},
		{"Dict[int, Tensor]", "{1: x}", "output_0 Dict[int, Tensor]"},
		{"__torch__.Loop", "y", "output_0 __torch__.Loop"},
	} {
		src := "class Out(NamedTuple):\n  logits : Tensor\n  aux : Optional[Tensor]\n" +
			"class Loop(NamedTuple):\n  a : __torch__.Loop\n  b : __torch__.Loop\n" +
			"class M(Module):\n  def forward(self: __torch__.M, x: Tensor) -> " + tt.returns + ":\n" +
			"    d = annotate(Dict[str, Tensor], {\"k\": x})\n" +
			"    again = {\"a\": x}\n    again = {\"b\": x}\n    more = {\"a\": x}\n" +
			"    torch._set_item(more, \"b\", x)\n    maybe = {\"a\": x}\n" +
			"    for i in range(2):\n      if y:\n        torch._set_item(maybe, \"b\", x)\n    return " + tt.body + "\n"
		got := strings.Join(outputs(parse(t, src), "__torch__.M"), "|")
		if tt.want == "output_0 __torch__.Loop" {
			if !strings.HasPrefix(got, "a __torch__.Loop|b __torch__.Loop|output_2") {
				t.Errorf("%s: %.100s", tt.returns, got)
			}
		} else if got != tt.want {
			t.Errorf("%s, %s: %s, want %s", tt.returns, tt.body, got, tt.want)
		}
	}
}
