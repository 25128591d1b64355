package lint

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/optimem/optimem/graph"
)

// A package is a room: what somebody can know who works there. Generated files and tests do not count.
const (
	maxRoomFiles = 40
	maxRoomLines = 8000
)

// crowded are packages that have outgrown their room: why they did, which package is to take the rest, and how many
// files and lines they may have until then. These numbers only fall.
var crowded = map[string]struct {
	reason, room string
	files, lines int
}{}

// cramped stands for a crowded package in what is planted below.
const cramped, crampedFiles = "planted/cramped", 62

// checkRoom finds packages that are too large and not listed, and those that are listed and no longer too large.
func checkRoom(files []*source) []string {
	type size struct {
		first        *source
		files, lines int
	}
	sizes := make(map[string]*size)
	for _, s := range files {
		if s.test || strings.HasPrefix(path.Base(s.path), "gen_") {
			continue
		}
		if sizes[s.dir] == nil {
			sizes[s.dir] = &size{first: s}
		}
		sizes[s.dir].files++
		sizes[s.dir].lines += strings.Count(s.text, "\n")
	}
	var found []string
	for _, dir := range slices.Sorted(maps.Keys(sizes)) {
		z := sizes[dir]
		over := z.files > maxRoomFiles || z.lines > maxRoomLines
		most, listed := crowded[dir]
		if dir == cramped {
			most.files, most.lines, most.room, listed = crampedFiles, maxRoomLines, "another", true
		}
		switch pos := z.first.file.Package; {
		case over && !listed:
			found = append(found, z.first.at(pos, "%s has %d files of %d lines: split it, or say in crowded why not", dir, z.files, z.lines))
		case listed && (z.files > most.files || z.lines > most.lines):
			found = append(found, z.first.at(pos, "%s has %d files of %d lines, more than its %d and %d: what is new goes to %s",
				dir, z.files, z.lines, most.files, most.lines, most.room))
		case !over && listed:
			found = append(found, z.first.at(pos, "%s has %d files of %d lines: no longer crowded", dir, z.files, z.lines))
		}
	}
	return found
}

// devices have tables of kernels; deviceless are packages that work with any device.
var (
	devices    = []string{"internal/cpu", "internal/cpu/...", "cuda"}
	deviceless = []string{"graph/...", "plan/...", "pager/...", "chunker"}
)

// checkOwnKinds finds kinds of op that one device has for itself named where devices are not known. Such a kind is a row of
// a device's tables of kernels that is not in graph's registry.
func checkOwnKinds(files []*source) []string {
	own := make(map[string]string) // kind → device
	for _, s := range files {
		if s.test || !match(devices, s.dir) {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			table, ok := n.(*ast.CompositeLit)
			if !ok || !kernelTable(table.Type) {
				return true
			}
			for _, e := range table.Elts {
				row, ok := e.(*ast.KeyValueExpr)
				if !ok {
					continue
				}
				kind, ok := text(row.Key)
				if _, known := graph.Standard().Lookup(graph.Kind(kind)); ok && !known {
					own[kind] = s.dir
				}
			}
			return true
		})
	}
	var found []string
	for _, s := range files {
		if !match(deviceless, s.dir) {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if e, ok := n.(ast.Expr); ok {
				if kind, ok := text(e); ok && own[kind] != "" {
					found = append(found, s.at(n.Pos(), "%s names %q, a kind of op that only %s has", s.dir, kind, own[kind]))
				}
			}
			return true
		})
	}
	return found
}

// kernelTable reports whether a type is map[graph.Kind]kernel or map[graph.Kind]ops.Kernel.
func kernelTable(e ast.Expr) bool {
	m, ok := e.(*ast.MapType)
	if !ok {
		return false
	}
	key, ok := m.Key.(*ast.SelectorExpr)
	if !ok || key.Sel.Name != "Kind" {
		return false
	}
	switch value := m.Value.(type) {
	case *ast.Ident:
		return value.Name == "kernel"
	case *ast.SelectorExpr:
		return value.Sel.Name == "Kernel"
	}
	return false
}

// text returns the value of a string literal.
func text(e ast.Expr) (string, bool) {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	s, err := strconv.Unquote(lit.Value)
	return s, err == nil
}

// filesOnly are the files of the command that a program for files alone has (-tags files), which README's first command builds,
// beside those of the packages that they import.
var filesOnly = []string{"inspect.go", "main.go", "models_none.go", "scan.go", "version.go"}

// withModels are packages of the command that have what computes.
var withModels = []string{"cmd/optimem", "cmd/optimem/internal/running"}

// TestFilesOnly: every other file of the command says that it is not there.
func TestFilesOnly(t *testing.T) {
	files, err := tree()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range files {
		if s.test || !slices.Contains(withModels, s.dir) {
			continue
		}
		first, _, _ := strings.Cut(s.text, "\n")
		without := strings.HasPrefix(first, "//go:build ") && strings.HasSuffix(first, "!files")
		if listed := slices.Contains(filesOnly, path.Base(s.path)); listed == without {
			t.Errorf("%s begins with %q: what -tags files leaves out begins with //go:build !files, and ends so", s.path, first)
		}
	}
}

// TestOwnKindsAreFound: the CPU has kinds of its own, so that looking for them is not looking for nothing.
func TestOwnKindsAreFound(t *testing.T) {
	files, err := tree()
	if err != nil {
		t.Fatal(err)
	}
	planted, err := parse("plan/planted.go", "package plan\n\nvar a, b, c = \"conv16\", \"max32\", \"conv\"")
	if err != nil {
		t.Fatal(err)
	}
	if found := checkOwnKinds(append(slices.Clone(files), planted)); len(found) != 2 {
		t.Errorf("found %q, want the two that only the CPU has", found)
	}
}

// TestListedPackagesExist: no rule is for a package, or a file, that does not exist.
func TestListedPackagesExist(t *testing.T) {
	files, err := tree()
	if err != nil {
		t.Fatal(err)
	}
	lists := map[string][]string{
		"diagram": slices.Collect(maps.Keys(diagram)), "everyone": everyone, "programs": programs, "devices": devices,
		"deviceless": deviceless, "withModels": withModels, "crowded": slices.Collect(maps.Keys(crowded)),
	}
	for name, m := range map[string]map[string][]string{
		"diagram": diagram, "dependencies": dependencies, "standard": standard, "reserved": reserved,
	} {
		for _, patterns := range m {
			lists[name] = append(lists[name], patterns...)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(lists)) {
		for _, missing := range absent(lists[name], files) {
			t.Errorf("%s lists %s, which does not exist", name, missing)
		}
	}
	for dir, c := range crowded {
		if c.reason == "" || c.room == "" {
			t.Errorf("crowded: %s needs a reason and a room", dir)
		}
	}
	s, err := parse("examples/service/main.go", "package main")
	if err != nil {
		t.Fatal(err)
	}
	planted := []string{"examples/service", "examples/...", "examples/service/main.go", "...", "serve", "service/...", "examples"}
	if got, want := fmt.Sprint(absent(planted, []*source{s})), "[examples serve service/...]"; got != want {
		t.Errorf("planted: %s do not exist, want %s", got, want)
	}
}

// absent returns the patterns that no package and no file is.
func absent(patterns []string, files []*source) []string {
	var missing []string
	for _, p := range patterns {
		exists := slices.ContainsFunc(files, func(s *source) bool {
			return match([]string{p}, s.dir) || match([]string{p}, s.path)
		})
		if !exists && !slices.Contains(missing, p) {
			missing = append(missing, p)
		}
	}
	slices.Sort(missing)
	return missing
}

// tall is a package of so many files with so many lines each.
func tall(dir string, files, lines int) map[string]string {
	m := make(map[string]string)
	for i := range files {
		m[fmt.Sprintf("%s/f%02d.go", dir, i)] = "package " + path.Base(dir) + strings.Repeat("\n", lines)
	}
	return m
}

// with adds files to a tree.
func with(m map[string]string, more ...map[string]string) map[string]string {
	for _, files := range more {
		maps.Copy(m, files)
	}
	return m
}

var roomViolations = []violation{
	{"room", "full", with(tall("plan", maxRoomFiles, maxRoomLines/maxRoomFiles),
		map[string]string{"plan/x_test.go": "package plan" + strings.Repeat("\n", 9000), "plan/gen_x.go": "package plan\n"}), nil},
	{"room", "crowded for a reason", tall(cramped, maxRoomFiles+1, 1), nil},
	{"room", "more crowded than before", tall(cramped, crampedFiles+1, 1), []string{"planted/cramped has 63 files of 63 lines, more than its 62"}},
	{"room", "too many files", tall("plan", maxRoomFiles+1, 1), []string{"plan has 41 files of 41 lines"}},
	{"room", "too many lines", tall("plan", 2, maxRoomLines/2+1), []string{"plan has 2 files of 8002 lines"}},
	{"room", "an exception that is none", tall(cramped, 3, 1), []string{"planted/cramped has 3 files of 3 lines: no longer crowded"}},

	{"own kinds", "where they belong", map[string]string{
		"internal/cpu/a.go": `package cpu; var t = map[graph.Kind]kernel{"conv16": {}, "conv": {}}; var k = "conv16"`,
		"cuda/a.go":         `package cuda; func f() { _ = map[graph.Kind]int{"plain": 1} }`,
		"plan/a.go":         "package plan; var a, b, c = \"conv\", \"plain\", \"conv16 and so on\"",
		"runtime/a.go":      `package runtime; var k = "conv16"`,
	}, nil},
	{"own kinds", "where they do not", map[string]string{
		"internal/cpu/a.go": `package cpu; var t = map[graph.Kind]ops.Kernel{"conv16": {}}`,
		"cuda/a.go":         `package cuda; func f() { all := map[graph.Kind]kernel{"mma": {}}; _ = all }`,
		"plan/a.go":         "package plan\nfunc f(k string) bool { switch k {\ncase \"conv\", \"conv16\": return true }; return k == `mma` }",
		"pager/a_test.go":   `package pager; const k = "mma"`,
	}, []string{
		`pager/a_test.go:1: pager names "mma", a kind of op that only cuda has`,
		`plan/a.go:3: plan names "conv16", a kind of op that only internal/cpu has`, `plan/a.go:3: plan names "mma"`,
	}},
}
