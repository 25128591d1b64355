package main

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// A list stays true while the code changes: every mistake in it can still be planted.
func TestListsFitTheCode(t *testing.T) {
	root := filepath.Join("..", "..")
	lists, err := readLists(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(root, filepath.FromSlash(name))) }
	titles := make(map[string]bool)
	for _, l := range lists {
		for _, m := range l.mutants {
			texts, err := m.changed(read)
			if err != nil {
				t.Errorf("%s: %s: %v", l.name, m.title, err)
			}
			for name, text := range texts {
				if old, err := read(name); err == nil && string(old) == text {
					t.Errorf("%s: %s changes nothing", l.name, m.title)
				}
			}
			if titles[l.name+m.title] {
				t.Errorf("%s: %q stands twice", l.name, m.title)
			}
			titles[l.name+m.title] = true
		}
	}
}

func TestParseList(t *testing.T) {
	l, err := parseList("p", `# A comment.
tests: -short ./p

== first
file: p/a.go
- if a <
-	b {
+ if a <= b {
- gone()
file: p/b.go
- x
+ y
tests: -run=X ./p ./q

== second
file: p/a.go
- z
equivalent: z is nothing
`)
	if err != nil {
		t.Fatal(err)
	}
	if len(l.mutants) != 2 || strings.Join(l.tests, " ") != "-short ./p" {
		t.Fatalf("%+v", l)
	}
	first, second := l.mutants[0], l.mutants[1]
	if len(first.edits) != 3 || first.edits[2].file != "p/b.go" || strings.Join(first.tests, " ") != "-run=X ./p ./q" {
		t.Errorf("%+v", first)
	}
	if second.equivalent != "z is nothing" || second.edits[0].new != "" {
		t.Errorf("%+v", second)
	}
	texts, err := first.changed(func(name string) ([]byte, error) {
		return []byte(map[string]string{"p/a.go": "if a < b {\n\tgone()\n}", "p/b.go": "x"}[name]), nil
	})
	if err != nil || texts["p/a.go"] != "if a <= b {\n\t\n}" || texts["p/b.go"] != "y" {
		t.Errorf("%q, %v", texts, err)
	}
	for text, want := range map[string]string{
		"file: a":                              "before the first mistake",
		"== a\nfile: f\n- x\n":                 "no tests",
		"tests: .\n== a\n":                     "changes nothing",
		"tests: .\n== a\n- x\n":                "no file",
		"tests: .\n== a\nfile: f\n+ x\n":       "nothing is replaced",
		"tests: .\n== a\nfile: f\n-\n+ x\n":    "replaces nothing",
		"tests: .\n== a\nfile: f\n- x\nwhat\n": "no line of a list",
	} {
		if _, err := parseList("p", text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	e := edit{file: "f", old: "x", new: "y"}
	for text, want := range map[string]string{"a": "has no", "x x": "more than one"} {
		if _, err := e.apply(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// A module of two functions, of which the tests look at one.
const (
	counted = "package p\n\nfunc Add(a, b int) int { return a + b }\n\nfunc Less(a, b int) bool { return a < b }\n"
	looked  = "package p\n\nimport \"testing\"\n\nfunc TestAdd(t *testing.T) {\n\tif Add(1, 2) != 3 {\n\t\tt.Fatal()\n\t}\n}\n"
)

func smallModule(t *testing.T) *runner {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module m\n\ngo 1.26.0\n", "p/p.go": counted, "p/p_test.go": looked} {
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return &runner{root: root, scratch: t.TempDir(), timeout: time.Minute, clean: map[string]error{}}
}

func TestScore(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the go command")
	}
	r := smallModule(t)
	l, err := parseList("p", `tests: ./p
== a difference for a sum
file: p/p.go
- a + b
+ a - b
== one off
file: p/p.go
- a < b
+ a <= b
== no Go
file: p/p.go
- a + b
+ a plus b
== who cares
file: p/p.go
- a + b
+ b + a
equivalent: sums commute
`)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	s, err := r.score(context.Background(), &out, l, regexp.MustCompile(""))
	if err != nil {
		t.Fatal(err)
	}
	if want := (score{found: 1, missed: 1, unbuilt: 1, equivalent: 1}); s != want || int(s.percent()) != 33 {
		t.Errorf("%+v, %v %%\n%s", s, s.percent(), out.String())
	}
	for _, want := range []string{"found      a difference for a sum  [TestAdd]", "MISSED     one off", "p: 1 of 3 found"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if text, err := os.ReadFile(filepath.Join(r.root, "p", "p.go")); err != nil || string(text) != counted {
		t.Errorf("the tree was written: %q, %v", text, err)
	}

	// Tests that fail anyhow notice nothing.
	r = smallModule(t)
	broken := strings.Replace(looked, "!= 3", "!= 4", 1)
	if err := os.WriteFile(filepath.Join(r.root, "p", "p_test.go"), []byte(broken), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := r.score(context.Background(), &out, l, regexp.MustCompile("a difference")); err == nil || !strings.Contains(err.Error(), "fails without a mistake") {
		t.Errorf("%v", err)
	}
}

func TestOperators(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the go command")
	}
	r := smallModule(t)
	l, err := drawn(r.root, "p", 100, 1)
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]string)
	for _, m := range l.mutants {
		texts, err := m.changed(func(name string) ([]byte, error) { return []byte(counted), nil })
		if err != nil {
			t.Fatal(err)
		}
		all[m.title] = texts["p/p.go"]
	}
	want := map[string]string{
		"p/p.go:3: the other sum: a + b":      strings.Replace(counted, "a + b", "a - b", 1),
		"p/p.go:5: one off in a bound: a < b": strings.Replace(counted, "a < b", "a <= b", 1),
	}
	if len(all) != len(want) {
		t.Errorf("%q", all)
	}
	for title, text := range want {
		if all[title] != text {
			t.Errorf("%s: %q, want %q", title, all[title], text)
		}
	}
}

// Each operator fits where it is meant to, and what it makes is Go.
func TestEveryOperator(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the go command")
	}
	r := smallModule(t)
	source := `package p

type box struct{ n int }

func fill(b *box, xs []float64, f func() error) (err error) {
	if err := f(); err != nil {
		return err
	}
	if len(xs) > 3 && xs[0] < xs[1] {
		clear(xs)
	}
	if b.n == 2 {
		b.n = max(b.n, 7)
	}
	return nil
}
`
	if err := os.WriteFile(filepath.Join(r.root, "p", "fill.go"), []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	p, err := check(r.root, filepath.Join(r.root, "p"))
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for _, m := range p.mutants("p") {
		if m.edits[0].file != "p/fill.go" {
			continue
		}
		texts, err := m.changed(func(string) ([]byte, error) { return []byte(source), nil })
		if err != nil {
			t.Fatal(err)
		}
		overlay, err := r.overlay(texts)
		if err != nil {
			t.Fatal(err)
		}
		output, failed, err := r.goTest(context.Background(), []string{"-overlay", overlay, "-run=^$", "./p"})
		if err != nil || failed {
			t.Errorf("%s: %v\n%s", m.title, err, output)
		}
		for _, op := range operators {
			seen[op.name] = seen[op.name] || strings.Contains(m.title, ": "+op.name+": ")
		}
	}
	for _, op := range operators {
		if !seen[op.name] && op.name != "the other sum" {
			t.Errorf("%s fits nowhere", op.name)
		}
	}
}

// The flags of rapid go only to tests that know them.
func TestQuickly(t *testing.T) {
	r := &runner{root: filepath.Join("..", "..")}
	for _, test := range []struct {
		args  []string
		knows bool
	}{
		{[]string{"-short", "./plan/search"}, true}, {[]string{"./internal/mutants"}, false}, {[]string{"./plan/search", "./internal/mutants"}, false},
	} {
		if got := r.quickly(test.args); (len(got) > 0) != test.knows {
			t.Errorf("%q: %q", test.args, got)
		}
	}
}
