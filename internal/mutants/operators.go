package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// drawn returns a list of n operators for a package, drawn evenly from all that fit anywhere in it.
func drawn(root, pkg string, n int, seed uint64) (list, error) {
	dir := filepath.Join(root, filepath.FromSlash(pkg))
	p, err := check(root, dir)
	if err != nil {
		return list{}, err
	}
	all := p.mutants(pkg)
	random := rand.New(rand.NewPCG(seed, 0))
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return list{name: strings.ReplaceAll(pkg, "/", "-"), mutants: all[:min(n, len(all))]}, nil
}

// A checked package has its syntax and the types of its expressions.
type checked struct {
	fset  *token.FileSet
	files []*ast.File
	texts map[*ast.File]string
	info  *types.Info
}

// check parses and type-checks the package in a directory, with the build tags of this machine and without its tests.
func check(root, dir string) (*checked, error) {
	bp, err := build.ImportDir(dir, 0)
	if err != nil {
		return nil, err
	}
	p := &checked{
		fset: token.NewFileSet(), texts: make(map[*ast.File]string),
		info: &types.Info{Types: make(map[ast.Expr]types.TypeAndValue)},
	}
	for _, name := range bp.GoFiles {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		file, err := parser.ParseFile(p.fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		p.files = append(p.files, file)
		p.texts[file] = string(text)
	}
	exports, err := exportData(root, dir)
	if err != nil {
		return nil, err
	}
	lookup := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	conf := types.Config{Importer: importer.ForCompiler(p.fset, "gc", lookup)}
	_, err = conf.Check(bp.Name, p.fset, p.files, p.info)
	return p, err
}

// exportData says where the go command has the types of all that a package imports.
func exportData(root, dir string) (map[string]string, error) {
	cmd := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Export", dir)
	cmd.Dir, cmd.Stderr = root, os.Stderr
	output, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	exports := make(map[string]string)
	for dec := json.NewDecoder(bytes.NewReader(output)); ; {
		var p struct{ ImportPath, Export string }
		if err := dec.Decode(&p); err == io.EOF {
			return exports, nil
		} else if err != nil {
			return nil, err
		}
		exports[p.ImportPath] = p.Export
	}
}

// An operator returns the text that replaces a node, or false where it does not fit. text is a node as it is written.
type operator struct {
	name   string
	change func(p *checked, n ast.Node, text func(ast.Node) string) (string, bool)
}

// operators are the kinds of mistake that types tell apart: what is compared or counted is a whole number, what is
// ordered may be no number, what is left out gives no result, and an error is one.
var operators = []operator{
	{"one off in a bound", func(p *checked, n ast.Node, text func(ast.Node) string) (string, bool) {
		swap := map[token.Token]string{token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">"}
		b, ok := n.(*ast.BinaryExpr)
		if !ok || swap[b.Op] == "" || !p.is(b.X, types.IsInteger) {
			return "", false
		}
		return text(b.X) + " " + swap[b.Op] + " " + text(b.Y), true
	}},
	{"a comparison of floats turned", func(p *checked, n ast.Node, text func(ast.Node) string) (string, bool) {
		swap := map[token.Token]string{token.LSS: ">=", token.LEQ: ">", token.GTR: "<=", token.GEQ: "<"}
		b, ok := n.(*ast.BinaryExpr)
		if !ok || swap[b.Op] == "" || !p.is(b.X, types.IsFloat) {
			return "", false
		}
		return "!(" + text(b.X) + " " + swap[b.Op] + " " + text(b.Y) + ") == false", true
	}},
	{"equality turned", func(p *checked, n ast.Node, text func(ast.Node) string) (string, bool) {
		swap := map[token.Token]string{token.EQL: "!=", token.NEQ: "=="}
		b, ok := n.(*ast.BinaryExpr)
		if !ok || swap[b.Op] == "" || !p.is(b.X, types.IsInteger) && !p.is(b.X, types.IsString) {
			return "", false
		}
		return text(b.X) + " " + swap[b.Op] + " " + text(b.Y), true
	}},
	{"half of a condition", func(p *checked, n ast.Node, text func(ast.Node) string) (string, bool) {
		b, ok := n.(*ast.BinaryExpr)
		if !ok || b.Op != token.LAND && b.Op != token.LOR {
			return "", false
		}
		return text(b.X), true
	}},
	{"the other sum", func(p *checked, n ast.Node, text func(ast.Node) string) (string, bool) {
		swap := map[token.Token]string{token.ADD: "-", token.SUB: "+"}
		b, ok := n.(*ast.BinaryExpr)
		if !ok || swap[b.Op] == "" || !p.is(b.X, types.IsInteger) || p.info.Types[b].Value != nil {
			return "", false
		}
		return text(b.X) + " " + swap[b.Op] + " " + text(b.Y), true
	}},
	{"min for max", func(p *checked, n ast.Node, text func(ast.Node) string) (string, bool) {
		swap := map[string]string{"min": "max", "max": "min"}
		c, ok := n.(*ast.CallExpr)
		if !ok {
			return "", false
		}
		id, ok := c.Fun.(*ast.Ident)
		if !ok || swap[id.Name] == "" || !p.info.Types[c.Fun].IsBuiltin() {
			return "", false
		}
		return swap[id.Name] + strings.TrimPrefix(text(c), id.Name), true
	}},
	{"a number one larger", func(p *checked, n ast.Node, text func(ast.Node) string) (string, bool) {
		lit, ok := n.(*ast.BasicLit)
		if !ok || lit.Kind != token.INT || !p.is(lit, types.IsInteger) {
			return "", false
		}
		return "(" + text(lit) + " + 1)", true
	}},
	{"a call left out", func(p *checked, n ast.Node, text func(ast.Node) string) (string, bool) {
		s, ok := n.(*ast.ExprStmt)
		if !ok || !p.info.Types[s.X].IsVoid() {
			return "", false
		}
		c, ok := s.X.(*ast.CallExpr)
		if !ok || p.info.Types[c.Fun].IsBuiltin() && strings.HasPrefix(text(c), "panic") {
			return "", false
		}
		return "if false { " + text(s) + " }", true
	}},
	{"an error ignored", func(p *checked, n ast.Node, text func(ast.Node) string) (string, bool) {
		s, ok := n.(*ast.IfStmt)
		if !ok || s.Else != nil {
			return "", false
		}
		b, ok := s.Cond.(*ast.BinaryExpr)
		if !ok || b.Op != token.NEQ || p.info.Types[b.X].Type == nil || p.info.Types[b.X].Type.String() != "error" {
			return "", false
		}
		init := ""
		if s.Init != nil {
			init = text(s.Init) + "; "
		}
		return "if " + init + text(s.Cond) + " && false " + text(s.Body), true
	}},
	{"a field not set", func(p *checked, n ast.Node, text func(ast.Node) string) (string, bool) {
		s, ok := n.(*ast.AssignStmt)
		if !ok || s.Tok == token.DEFINE || len(s.Lhs) != 1 {
			return "", false
		}
		if _, ok := s.Lhs[0].(*ast.SelectorExpr); !ok {
			return "", false
		}
		return "if false { " + text(s) + " }", true
	}},
}

// is reports whether an expression has a basic type of the kind that info names.
func (p *checked) is(e ast.Expr, info types.BasicInfo) bool {
	t := p.info.Types[e].Type
	if t == nil {
		return false
	}
	basic, ok := t.Underlying().(*types.Basic)
	return ok && basic.Info()&info != 0
}

// mutants returns every operator at every place where it fits, outside of declarations of constants, which say what a
// number is rather than use it.
func (p *checked) mutants(pkg string) []mutant {
	var all []mutant
	for _, file := range p.files {
		name := filepath.ToSlash(filepath.Join(pkg, p.fset.Position(file.Pos()).Filename))
		if strings.HasPrefix(filepath.Base(name), "gen_") {
			continue
		}
		source := p.texts[file]
		offset := func(pos token.Pos) int { return p.fset.Position(pos).Offset }
		text := func(n ast.Node) string { return source[offset(n.Pos()):offset(n.End())] }
		// A for or switch has statements where only an expression may stand.
		var header []ast.Node
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GenDecl:
				return n.Tok == token.VAR
			case *ast.ForStmt:
				header = append(header, n.Init, n.Post)
			case *ast.IfStmt:
				header = append(header, n.Init)
			case *ast.SwitchStmt:
				header = append(header, n.Init)
			}
			if n == nil || slices.Contains(header, n) {
				return true
			}
			for _, op := range operators {
				if changed, ok := op.change(p, n, text); ok {
					all = append(all, placed(name, source, offset(n.Pos()), offset(n.End()), changed, op.name))
				}
			}
			return true
		})
	}
	return all
}

// placed is an operator at one place of a file.
func placed(name, source string, from, to int, changed, operator string) mutant {
	line := 1 + strings.Count(source[:from], "\n")
	title := fmt.Sprintf("%s:%d: %s: %s", name, line, operator, strings.Join(strings.Fields(source[from:to]), " "))
	return mutant{title: title, edits: []edit{{file: name, from: from, to: to, new: changed}}}
}
