package lint

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// programs are the packages that have a terminal and a process to themselves. All others are libraries.
var programs = []string{"cmd/...", "examples/...", "benchmarks/...", "internal/mutants"}

// reserved names what libraries leave to the programs that embed them, and who may use it.
var reserved = map[string][]string{
	"os.Exit": programs, "syscall.Exit": programs,
	"os.Stdin": programs, "os.Stdout": programs, "os.Stderr": programs,
	"fmt.Print": programs, "fmt.Printf": programs, "fmt.Println": programs,
	// cuda/sim is for tests: whether it must be there is CI's to say.
	"os.Getenv": {"cmd/...", "cuda/sim"}, "os.LookupEnv": {"cmd/..."}, "os.Environ": {"cmd/..."}, "os.ExpandEnv": {"cmd/..."},
	"os.Setenv": {"cmd/..."}, "os.Unsetenv": {"cmd/..."}, "os.Clearenv": {"cmd/..."},
	"syscall.Getenv": {"cmd/..."}, "syscall.Environ": {"cmd/..."},
}

const maxLines = 800

// longFiles are allowed to be longer than maxLines, each for a reason.
var longFiles = map[string]string{}

// A function fits on a screen or two, and what takes more values than one remembers takes a struct.
const (
	maxFuncLines  = 80
	maxFuncParams = 7
)

// largeFuncs are allowed to be longer, or to take more, each for a reason: "package function".
var largeFuncs = map[string]string{
	"internal/cpu gemm":              "the operands of BLAS's gemm, in its order",
	"internal/cpu/kernel Dot":        "arguments of kernels in assembly are registers",
	"internal/cpu/kernel Gemm":       "arguments of kernels in assembly are registers",
	"internal/cpu/kernel Multiply":   "arguments of kernels in assembly are registers",
	"internal/cpu/kernel Few":        "arguments of kernels in assembly are registers",
	"internal/cpu/kernel Across":     "arguments of kernels in assembly are registers",
	"internal/cpu/kernel Codes":      "arguments of kernels in assembly are registers",
	"internal/cpu/kernel CodesTwice": "arguments of kernels in assembly are registers",
	"internal/cpu/kernel Map":        "arguments of kernels in assembly are registers",
	"internal/cpu/kernel AddRows":    "arguments of kernels in assembly are registers",
	"internal/cpu/kernel MapRows":    "arguments of kernels in assembly are registers",
	"internal/cpu/kernel NormRows":   "arguments of kernels in assembly are registers",
	"internal/preprocess/jpeg eight": "the eight values of a transform, which stay in registers",
	"models stepModel":               "the ports of a step and the closure that binds them are read together",
}

// vagueNames say nothing about what is inside.
var vagueNames = []string{
	"util", "utils", "common", "types", "helper", "helpers", "misc", "base", "shared", "lib",
}

var codeRules = []rule{
	each("process", checkProcess),
	{"panic", checkPanic},
	each("length", checkLength),
	{"function", checkFunctions},
	{"wide", checkWide},
	each("names", checkNames),
	each("marks", checkMarks),
	{"package comment", checkPackageComment},
	{"room", checkRoom},
	{"own kinds", checkOwnKinds},
}

func checkProcess(s *source) []string {
	if s.test {
		return nil
	}
	locals := make(map[string]string) // local name → import path
	for imp, name := range s.imports() {
		locals[name] = imp
	}
	var found []string
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			id, ok := n.X.(*ast.Ident)
			if !ok {
				return true
			}
			what := locals[id.Name] + "." + n.Sel.Name
			if allowed, ok := reserved[what]; ok && !match(allowed, s.dir) {
				found = append(found, s.at(n.Pos(), "%s uses %s", s.dir, what))
			}
		case *ast.CallExpr:
			id, ok := n.Fun.(*ast.Ident)
			if ok && (id.Name == "print" || id.Name == "println") && !match(programs, s.dir) {
				found = append(found, s.at(n.Pos(), "%s calls %s", s.dir, id.Name))
			}
		}
		return true
	})
	return found
}

// Code never panics on input. What remains is the impossible, which says BUG:, what was recovered and is passed on, and
// a type of the package's own that the package itself recovers: the way out of a recursive descent.
func checkPanic(files []*source) []string {
	bailouts := make(map[string]bool) // "dir type"
	for _, s := range files {
		ast.Inspect(s.file, func(n ast.Node) bool {
			sw, ok := n.(*ast.TypeSwitchStmt)
			if !ok {
				return true
			}
			if a, ok := sw.Assign.(*ast.AssignStmt); !ok || !recovers(a.Rhs[0]) {
				return true
			}
			for _, c := range sw.Body.List {
				for _, t := range c.(*ast.CaseClause).List {
					if id, ok := t.(*ast.Ident); ok && !id.IsExported() {
						bailouts[s.dir+" "+id.Name] = true
					}
				}
			}
			return true
		})
	}
	var found []string
	for _, s := range files {
		if s.test || s.dir == "device/devicetest" {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && !rightPanic(s, call, bailouts) {
				found = append(found, s.at(call.Pos(), "panic without BUG: says that input can cause it"))
			}
			return true
		})
	}
	return found
}

func rightPanic(s *source, call *ast.CallExpr, bailouts map[string]bool) bool {
	if fn, ok := call.Fun.(*ast.Ident); !ok || fn.Name != "panic" || len(call.Args) != 1 {
		return true
	}
	switch arg := call.Args[0].(type) {
	case *ast.Ident:
		if arg.Obj == nil {
			return false
		}
		a, ok := arg.Obj.Decl.(*ast.AssignStmt)
		return ok && recovers(a.Rhs[0])
	case *ast.CompositeLit:
		id, ok := arg.Type.(*ast.Ident)
		return ok && bailouts[s.dir+" "+id.Name]
	}
	return strings.HasPrefix(leftmost(call.Args[0]), "BUG: ")
}

// recovers reports whether e is recover() or recover().(type).
func recovers(e ast.Expr) bool {
	if assertion, ok := e.(*ast.TypeAssertExpr); ok {
		e = assertion.X
	}
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	fn, ok := call.Fun.(*ast.Ident)
	return ok && fn.Name == "recover"
}

// leftmost returns the string literal that an expression begins with: of a sum its first term, of a call (Sprintf,
// Errorf, New) its first argument.
func leftmost(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			s, _ := strconv.Unquote(e.Value)
			return s
		}
	case *ast.BinaryExpr:
		return leftmost(e.X)
	case *ast.ParenExpr:
		return leftmost(e.X)
	case *ast.CallExpr:
		if len(e.Args) > 0 {
			return leftmost(e.Args[0])
		}
	}
	return ""
}

func checkLength(s *source) []string {
	lines := strings.Count(s.text, "\n")
	reason, excepted := longFiles[s.path]
	switch {
	case strings.HasPrefix(path.Base(s.path), "gen_"):
	case lines > maxLines && !excepted:
		return []string{s.at(s.file.Package, "%d lines: split it, or say in longFiles why not", lines)}
	case lines <= maxLines && excepted:
		return []string{s.at(s.file.Package, "%d lines: no longer an exception (%s)", lines, reason)}
	}
	return nil
}

// A line of code is at most so wide, with tabs of four columns. Rows of tables, which begin with a brace or a text, may be wider.
const maxColumns = 120

// mostWide is how many lines are wider: it only falls. Below it by wideSlack, it is to be lowered.
const (
	mostWide  = 1140
	wideSlack = 200
)

// checkWide counts lines of code that are too wide.
func checkWide(files []*source) []string {
	n := 0
	var last string
	for _, s := range files {
		if s.test || strings.HasPrefix(path.Base(s.path), "gen_") || ast.IsGenerated(s.file) {
			continue
		}
		for i, line := range strings.Split(s.text, "\n") {
			if wide(line) {
				n++
				last = fmt.Sprintf("%s:%d", s.path, i+1)
			}
		}
	}
	switch {
	case n > mostWide:
		return []string{fmt.Sprintf("%s and others: %d lines of code are wider than %d columns, and %d may be: break yours", last, n, maxColumns, mostWide)}
	case n < mostWide-wideSlack && len(files) > maxRoomFiles:
		return []string{fmt.Sprintf("only %d lines are wider than %d columns: lower mostWide", n, maxColumns)}
	}
	return nil
}

// wide reports whether a line of code is too wide.
func wide(line string) bool {
	code := strings.TrimLeft(line, "\t")
	if strings.HasPrefix(code, "//") || strings.HasPrefix(code, "{") || strings.HasPrefix(code, "\"") {
		return false
	}
	return utf8.RuneCountInString(code)+4*(len(line)-len(code)) > maxColumns
}

// TestWide: what counts as wide.
func TestWide(t *testing.T) {
	for line, want := range map[string]bool{
		"\t\tx := f(" + strings.Repeat("a", 104) + ")": false,
		"\t\tx := f(" + strings.Repeat("a", 105) + ")": true,
		"\t" + strings.Repeat("é", 116):                false,
		"\t// " + strings.Repeat("a", 200):             false,
		"\t{" + strings.Repeat("a", 200):               false,
		"\t\"" + strings.Repeat("a", 200):              false,
	} {
		if wide(line) != want {
			t.Errorf("%q: %v", line, !want)
		}
	}
}

// checkFunctions finds functions that are too long or take too much. Tests are tables and steps, and may be long;
// functions without a body are assembly.
func checkFunctions(files []*source) []string {
	var found []string
	large := make(map[string]bool)
	for _, s := range files {
		if s.test || strings.HasPrefix(path.Base(s.path), "gen_") || ast.IsGenerated(s.file) {
			continue
		}
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			lines := s.fset.Position(f.End()).Line - s.fset.Position(f.Pos()).Line + 1
			params := f.Type.Params.NumFields()
			if lines <= maxFuncLines && params <= maxFuncParams {
				continue
			}
			name := s.dir + " " + f.Name.Name
			large[name] = true
			if largeFuncs[name] == "" {
				found = append(found, s.at(f.Pos(), "%s has %d lines and %d parameters: shorten it, or say in largeFuncs why not",
					f.Name.Name, lines, params))
			}
		}
	}
	for _, s := range files {
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && largeFuncs[s.dir+" "+f.Name.Name] != "" && !large[s.dir+" "+f.Name.Name] {
				found = append(found, s.at(f.Pos(), "%s is no longer an exception", f.Name.Name))
			}
		}
	}
	return found
}

func checkNames(s *source) []string {
	stem := strings.TrimSuffix(strings.TrimSuffix(path.Base(s.path), ".go"), "_test")
	names := append(strings.Split(s.dir, "/"), s.file.Name.Name, stem)
	for _, name := range names {
		if slices.Contains(vagueNames, name) {
			return []string{s.at(s.file.Package, "%q names nothing", name)}
		}
	}
	return nil
}

var mark = regexp.MustCompile(`\b(TODO|FIXME|XXX|HACK)\b`)

// What is not done is an issue or a line of the README, not a comment.
func checkMarks(s *source) []string {
	var found []string
	for _, group := range s.file.Comments {
		for _, c := range group.List {
			if m := mark.FindString(c.Text); m != "" && !match([]string{"internal/lint"}, s.dir) {
				found = append(found, s.at(c.Pos(), "%s in a comment", m))
			}
		}
	}
	return found
}

func checkPackageComment(files []*source) []string {
	byDir := make(map[string][]*source)
	for _, s := range files {
		byDir[s.dir] = append(byDir[s.dir], s)
	}
	var found []string
	for _, dir := range slices.Sorted(maps.Keys(byDir)) {
		group := byDir[dir]
		// The comment stands in a file that is not a test, where there is one.
		slices.SortStableFunc(group, func(a, b *source) int { return cmp.Compare(btoi(a.test), btoi(b.test)) })
		onlyTests := group[0].test
		ok := slices.ContainsFunc(group, func(s *source) bool {
			want := "Package " + s.file.Name.Name + " "
			if s.file.Name.Name == "main" {
				want = "Command " + path.Base(dir) + " "
			}
			return s.test == onlyTests && s.file.Doc != nil && strings.HasPrefix(s.file.Doc.Text(), want)
		})
		if !ok {
			found = append(found, group[0].at(group[0].file.Package, "%s has no package comment", dir))
		}
	}
	return found
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

var codeViolations = []violation{
	{"process", "programs print, libraries write to what they are given", map[string]string{
		"cmd/optimem/main.go": `package main; import ("os"; "fmt"); func main() { fmt.Println(os.Getenv("X")); os.Exit(1) }`,
		"plan/report.go":      `package plan; import ("fmt"; "io"); func w(w io.Writer) { fmt.Fprintln(w) }`,
		"plan/x_test.go":      `package plan; import "fmt"; func Example() { fmt.Println(1) }`,
		"plan/local.go":       `package plan; type T struct{ Exit func() }; func f(os T) { os.Exit() }`,
	}, nil},
	{"process", "a library that thinks it is a program", map[string]string{
		"plan/a.go": `package plan; import "os"; func f() { os.Exit(1) }`,
		"plan/b.go": `package plan; import f "fmt"; func g() { f.Printf("x") }`,
		"plan/c.go": `package plan; import "os"; var debug = os.Getenv("OPTIMEM_DEBUG") != ""`,
		"plan/d.go": `package plan; import ("fmt"; "os"); func h() { fmt.Fprintln(os.Stderr, 1) }`,
		"plan/e.go": `package plan; func i() { println("x") }`,
	}, []string{"os.Exit", "fmt.Printf", "os.Getenv", "os.Stderr", "calls println"}},
	{"process", "an example reads the environment", map[string]string{
		"examples/x/main.go": `package main; import "os"; func main() { os.Stdout.WriteString(os.Getenv("X")) }`,
	}, []string{"os.Getenv"}},

	{"panic", "the impossible", map[string]string{
		"plan/a.go": `package plan; import "fmt"
			func f(err error) {
				panic("BUG: " + err.Error())
				panic(fmt.Sprintf("BUG: %v", err))
				panic(fmt.Errorf(("BUG: %w"), err))
			}
			func g() { defer func() { if r := recover(); r != nil { panic(r) } }() }`,
		"plan/a_test.go": `package plan; func h() { panic("x") }`,
		"plan/b.go": `package plan
			type bailout struct{ err error }
			func parse() (err error) {
				defer func() {
					switch r := recover().(type) {
					case nil:
					case bailout: err = r.err
					default: panic(r)
					}
				}()
				return nil
			}`,
		"plan/c.go": `package plan; func fail(err error) { panic(bailout{err}) }`,
	}, nil},
	{"panic", "a way out that nobody takes", map[string]string{
		"plan/a.go":  `package plan; type bailout struct{}; func f() { panic(bailout{}) }`,
		"pager/a.go": `package pager; func f() { defer func() { switch recover().(type) { case bailout: } }() }`,
	}, []string{"plan/a.go:1"}},
	{"panic", "on input", map[string]string{
		"plan/a.go": "package plan\nfunc f(err error) {\n\tpanic(err)\n\tpanic(\"bad file\")\n\tpanic(\"BUG\")\n}",
	}, []string{"plan/a.go:3", "plan/a.go:4", "plan/a.go:5"}},

	{"length", "long, but generated", map[string]string{
		"plan/a.go":     "package plan" + strings.Repeat("\n", maxLines),
		"plan/gen_b.go": "package plan" + strings.Repeat("\n", maxLines+1),
	}, nil},
	{"length", "long", map[string]string{
		"plan/a.go": "package plan" + strings.Repeat("\n", maxLines+1),
	}, []string{"plan/a.go:1: 801 lines"}},

	{"function", "short, a test, or assembly", map[string]string{
		"plan/a.go":      "package plan\nfunc f(a, b, c, d, e, f, g int) {" + strings.Repeat("\n", maxFuncLines-1) + "}",
		"plan/a_test.go": "package plan\nfunc g() {" + strings.Repeat("\n", maxFuncLines) + "}",
		"plan/gen_b.go":  "package plan\nfunc h() {" + strings.Repeat("\n", maxFuncLines) + "}",
		"plan/c.go":      "package plan\nfunc i(a, b, c, d, e, f, g, h int)",
	}, nil},
	{"function", "long, or of many parameters", map[string]string{
		"plan/a.go":         "package plan\nfunc f() {" + strings.Repeat("\n", maxFuncLines) + "}",
		"plan/b.go":         "package plan\nfunc (t T) g(a, b, c, d, e int, f, g, h string) {}",
		"internal/cpu/c.go": "package cpu\nfunc gemm() {}",
	}, []string{"plan/a.go:2: f has 81 lines and 0 parameters", "plan/b.go:2: g has 1 lines and 8", "gemm is no longer an exception"}},

	{"wide", "comments", map[string]string{"plan/a.go": "package plan\n" + strings.Repeat("\n//"+strings.Repeat("a", 130), mostWide+1)}, nil},
	{"wide", "more lines than may be", map[string]string{"plan/a.go": "package plan\n" + strings.Repeat("\nvar _ = \""+strings.Repeat("a", 130)+"\"", mostWide+1)},
		[]string{"are wider than 120 columns"}},

	{"names", "what is inside", map[string]string{"plan/lifetimes.go": "package plan", "plan/commonest.go": "package plan"}, nil},
	{"names", "nothing", map[string]string{
		"plan/types.go":         "package plan",
		"plan/helpers_test.go":  "package plan",
		"internal/util/x.go":    "package x",
		"internal/numeric/x.go": "package common",
	}, []string{`"common"`, `"util"`, `"helpers"`, `"types"`}},

	{"marks", "prose", map[string]string{"plan/a.go": "package plan // fixed, to do\nconst s = `TODO`"}, nil},
	{"marks", "left behind", map[string]string{
		"plan/a.go": "package plan\n\n// TODO: all\n\n/* a\nFIXME */",
	}, []string{"plan/a.go:3: TODO", "plan/a.go:5: FIXME"}},

	{"package comment", "one file has it", map[string]string{
		"plan/a.go":            "package plan",
		"plan/b.go":            "// Package plan decides.\npackage plan",
		"cmd/optimem/main.go":  "// Command optimem opens.\npackage main",
		"benchmarks/b_test.go": "// Package benchmarks measures.\npackage benchmarks",
	}, nil},
	{"package comment", "missing", map[string]string{
		"plan/a.go":           "package plan",
		"plan/a_test.go":      "// Package plan decides.\npackage plan",
		"tensor/a.go":         "// Tensors and so on.\npackage tensor",
		"cmd/optimem/main.go": "// Package main is the program.\npackage main",
	}, []string{"cmd/optimem has no package comment", "plan has no", "tensor has no"}},
}

// TestLargeFuncsExist: an exception that names no function protects nothing.
func TestLargeFuncsExist(t *testing.T) {
	files, err := tree()
	if err != nil {
		t.Fatal(err)
	}
	there := make(map[string]bool)
	for _, s := range files {
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				there[s.dir+" "+f.Name.Name] = true
			}
		}
	}
	for name, reason := range largeFuncs {
		if !there[name] || reason == "" {
			t.Errorf("largeFuncs: %s (%q) is not there, or has no reason", name, reason)
		}
	}
}

// An exception that names no file protects nothing.
func TestLongFilesExist(t *testing.T) {
	for name, reason := range longFiles {
		if _, err := read(name); err != nil || reason == "" {
			t.Errorf("longFiles: %s (%q): %v", name, reason, err)
		}
	}
}
