package lint

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const modulePath = "github.com/optimem/optimem"

// A source is one parsed Go file.
type source struct {
	path string // from the repository's root, with slashes
	dir  string // the package: path.Dir(path)
	test bool
	text string
	fset *token.FileSet
	file *ast.File
}

func parse(name, text string) (*source, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, text, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	return &source{
		path: name, dir: path.Dir(name), test: strings.HasSuffix(name, "_test.go"),
		text: text, fset: fset, file: file,
	}, nil
}

// imports returns import path → local name. A blank or missing name is the last element of the path.
func (s *source) imports() map[string]string {
	m := make(map[string]string)
	for _, spec := range s.file.Imports {
		p, _ := strconv.Unquote(spec.Path.Value)
		m[p] = path.Base(p)
		if spec.Name != nil {
			m[p] = spec.Name.Name
		}
	}
	return m
}

// at writes a finding with its place.
func (s *source) at(pos token.Pos, format string, args ...any) string {
	return fmt.Sprintf("%s:%d: %s", s.path, s.fset.Position(pos).Line, fmt.Sprintf(format, args...))
}

// root is the repository, seen from this directory, where go test runs.
const root = "../.."

// walk calls fn for every file of the repository that people write: not for hidden directories, test data, what is
// built, and what begins with an underscore, which the go command skips too.
func walk(fn func(name string) error) error {
	return filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(rel)
		base := path.Base(name)
		if d.IsDir() {
			hidden := name != "." && (strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_"))
			if hidden || slices.Contains([]string{"testdata", "bin", "dist", "benchmarks/data"}, name) || base == "testdata" {
				return filepath.SkipDir
			}
			return nil
		}
		return fn(name)
	})
}

func read(name string) (string, error) {
	b, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	return string(b), err
}

var tree = sync.OnceValues(func() ([]*source, error) {
	var files []*source
	err := walk(func(name string) error {
		if path.Ext(name) != ".go" {
			return nil
		}
		text, err := read(name)
		if err != nil {
			return err
		}
		s, err := parse(name, text)
		if err != nil {
			return err
		}
		files = append(files, s)
		return nil
	})
	return files, err
})

// match reports whether a package is one of the patterns: an exact path, or "path/..." for it and all below.
func match(patterns []string, pkg string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		if prefix, ok := strings.CutSuffix(p, "/..."); ok {
			return pkg == prefix || strings.HasPrefix(pkg, prefix+"/")
		}
		return p == "..." || p == pkg
	})
}

// A rule looks at all files and returns what breaks it.
type rule struct {
	name  string
	check func(files []*source) []string
}

// each makes a rule of a check that needs one file at a time.
func each(name string, check func(s *source) []string) rule {
	return rule{name, func(files []*source) []string {
		var found []string
		for _, s := range files {
			found = append(found, check(s)...)
		}
		return found
	}}
}

var rules = slices.Concat(importRules, codeRules)

func TestTree(t *testing.T) {
	files, err := tree()
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 10 {
		t.Fatalf("found only %d Go files: is this the repository?", len(files))
	}
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			for _, finding := range r.check(files) {
				t.Error(finding)
			}
		})
	}
}

// A violation is a small tree, path → source, and what a rule must find in it: one substring for each finding, in
// order. No substring means that the tree is right.
type violation struct {
	rule  string
	name  string
	files map[string]string
	want  []string
}

func TestRules(t *testing.T) {
	all := slices.Concat(importViolations, codeViolations, roomViolations)
	for _, r := range rules {
		breaks, passes := false, false
		for _, v := range all {
			if v.rule != r.name {
				continue
			}
			breaks = breaks || len(v.want) > 0
			passes = passes || len(v.want) == 0
			t.Run(r.name+"/"+v.name, func(t *testing.T) { v.run(t, r) })
		}
		if !breaks || !passes {
			t.Errorf("rule %q needs a source that breaks it and one that passes", r.name)
		}
	}
	for _, v := range all {
		if !slices.ContainsFunc(rules, func(r rule) bool { return r.name == v.rule }) {
			t.Errorf("violation %q is of no rule: %q", v.name, v.rule)
		}
	}
}

func (v violation) run(t *testing.T, r rule) {
	var files []*source
	for name, text := range v.files {
		s, err := parse(name, text)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, s)
	}
	slices.SortFunc(files, func(a, b *source) int { return strings.Compare(a.path, b.path) })
	got := r.check(files)
	if len(got) != len(v.want) {
		t.Fatalf("found %d:\n%s\nwant %d: %q", len(got), strings.Join(got, "\n"), len(v.want), v.want)
	}
	for i, want := range v.want {
		if !strings.Contains(got[i], want) {
			t.Errorf("finding %d is %q, want it to contain %q", i, got[i], want)
		}
	}
}
