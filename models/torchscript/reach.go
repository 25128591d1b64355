package torchscript

import (
	"fmt"
	"strings"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/loader/script"
)

// An OpUse is a call of an op, with the module that runs there and the line.
type OpUse struct {
	// Op is its name, "aten::conv2d".
	Op           string
	Path, Source string
}

// Uses lists the calls of ops in the code that forward reaches, without the functions of the language. Branches by a flag of a
// module, such as training, that are not taken do not count; other branches do, since only a run tells. Methods of objects that the
// code makes itself are not followed.
func Uses(p *script.Program) []OpUse {
	r := &reach{program: p, seen: make(map[visit]bool)}
	if p.Root == nil {
		return nil
	}
	r.method(p.Root, "forward", "")
	if class := p.Classes[p.Root.Class]; class != nil {
		for _, name := range append(append([]string(nil), class.ForwardPreHooks...), class.ForwardHooks...) {
			r.method(p.Root, name, "")
		}
	}
	for len(r.next) > 0 && len(r.uses) < maxUses {
		v := r.next[0]
		r.next = r.next[1:]
		r.path = v.path
		r.vars = make(map[string]any)
		if v.self != nil && len(v.fn.Args) > 0 {
			r.vars[v.fn.Args[0].Name] = placed{v.self, v.path}
		}
		r.block(v.fn.Body)
	}
	return r.uses
}

// maxUses bounds the calls that are listed, maxVisits the functions that are walked.
const (
	maxUses   = 1 << 20
	maxVisits = 1 << 16
)

// A visit is a function to walk, of an object that may be nil.
type visit struct {
	fn   *script.Function
	self *script.Object
	path string
}

// A reach walks code without evaluating it.
type reach struct {
	program *script.Program
	uses    []OpUse
	seen    map[visit]bool
	next    []visit

	path string
	// vars are the modules and flags that local variables hold.
	vars map[string]any
}

func (r *reach) add(fn *script.Function, self *script.Object, path string) {
	v := visit{fn, self, path}
	if fn == nil || r.seen[v] || len(r.seen) >= maxVisits {
		return
	}
	r.seen[v] = true
	r.next = append(r.next, v)
}

// method adds a method of an object of the archive.
func (r *reach) method(o *script.Object, name, path string) {
	if class := r.program.Classes[o.Class]; class != nil {
		r.add(class.Method(name), o, path)
	}
}

func (r *reach) block(body []script.Stmt) {
	for _, s := range body {
		switch s := s.(type) {
		case *script.Assign:
			r.exprs(s.Values...)
			for i, t := range s.Targets {
				if name, ok := t.(*script.Name); ok {
					delete(r.vars, name.Name)
					if i < len(s.Values) && !s.Unpack {
						if _, literal := s.Values[i].(*script.Bool); !literal { // which another branch may set otherwise
							r.vars[name.Name] = r.value(s.Values[i])
						}
					}
				}
			}
		case *script.ExprStmt:
			r.exprs(s.X)
		case *script.Return:
			r.exprs(s.Value)
		case *script.If:
			r.exprs(s.Cond)
			flag := r.value(s.Cond)
			if flag != any(false) {
				r.block(s.Then)
			}
			if flag != any(true) {
				r.block(s.Else)
			}
		case *script.For:
			r.exprs(s.Count)
			r.block(s.Body)
		case *script.While:
			r.exprs(s.Cond)
			r.block(s.Body)
		case *script.With:
			r.exprs(s.X)
			r.block(s.Body)
		case *script.Function:
			r.block(s.Body)
		}
	}
}

// placed is a module with its path from the root.
type placed struct {
	object *script.Object
	path   string
}

// value returns the module, a placed, or the flag, a bool, that an expression is; nil where it is neither or only a run tells.
func (r *reach) value(x script.Expr) any {
	switch x := x.(type) {
	case *script.Bool:
		return x.Value
	case *script.Name:
		return r.vars[x.Name]
	case *script.Attr:
		of, ok := r.value(x.X).(placed)
		if !ok {
			return nil
		}
		a, _ := of.object.Attribute(x.Name)
		switch a := a.(type) {
		case bool:
			return a
		case *script.Object:
			return placed{a, layers.Join(of.path, x.Name)}
		}
	case *script.Call:
		if fn, ok := x.Func.(*script.Path); ok && fn.Name == "torch.__not__" && len(x.Args) == 1 {
			if flag, ok := r.value(x.Args[0]).(bool); ok {
				return !flag
			}
		}
	}
	return nil
}

// exprs lists the calls in expressions.
func (r *reach) exprs(list ...script.Expr) {
	for _, x := range list {
		switch x := x.(type) {
		case *script.Path: // a function as a value is called by another name
			r.add(r.program.Functions[x.Name], nil, r.path)
		case *script.Attr:
			r.exprs(x.X)
		case *script.Call:
			r.exprs(x.Args...)
			for _, k := range x.Keywords {
				r.exprs(k.Value)
			}
			r.call(x)
		case *script.Index:
			r.exprs(x.X, x.Index)
		case *script.Slice:
			r.exprs(x.X, x.Low, x.High, x.Step)
		case *script.List:
			r.exprs(x.Elems...)
		case *script.Tuple:
			r.exprs(x.Elems...)
		case *script.Dict:
			for _, e := range x.Entries {
				r.exprs(e.Key, e.Value)
			}
		case *script.Annotate:
			r.exprs(x.X)
		case *script.UncheckedCast:
			r.exprs(x.X)
		case *script.IsInstance:
			r.exprs(x.X)
		}
	}
}

func (r *reach) call(x *script.Call) {
	switch fn := x.Func.(type) {
	case *script.Attr:
		r.exprs(fn.X)
		if of, ok := r.value(fn.X).(placed); ok {
			r.method(of.object, fn.Name, of.path)
		}
	case *script.Path:
		op, isOp := "", false
		if rest, ok := strings.CutPrefix(fn.Name, "torch."); ok {
			op, isOp = "aten::"+rest, true
		} else if rest, ok := strings.CutPrefix(fn.Name, "ops."); ok {
			space, name, _ := strings.Cut(rest, ".")
			op, isOp = space+"::"+name, true
		}
		switch {
		case !isOp:
			r.add(r.program.Functions[fn.Name], nil, r.path)
		case !ofLanguage(op):
			r.uses = append(r.uses, OpUse{op, r.path, sourceOf(r.program, x.Pos())})
		}
	}
}

// ofLanguage reports whether a name is a function of the language, for some arguments at least.
func ofLanguage(op string) bool {
	for _, table := range []map[string]builtin{anyFuncs, tensorFuncs, listFuncs, dictFuncs, stringFuncs, numberFuncs} {
		if _, ok := table[op]; ok {
			return true
		}
	}
	_, folded := foldOps[strings.TrimPrefix(op, "aten::")]
	return folded
}

// sourceOf writes a place in the code.
func sourceOf(p *script.Program, pos script.Pos) string {
	at := p.Position(pos)
	if at.File == "" {
		return ""
	}
	return fmt.Sprintf("code/%s:%d", at.File, at.Line)
}
