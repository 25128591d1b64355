package torchscript

import (
	"github.com/optimem/optimem/loader/script"
	"github.com/optimem/optimem/tensor"
)

// indexArgs are the places of arguments that are indices, so that a tensor that goes there is of integers.
var indexArgs = map[string]int{
	"torch.embedding": 1, "torch.embedding_bag": 1, "torch.one_hot": 0, "torch.index_select": 2, "torch.gather": 2,
	"torch.nll_loss": 1,
}

// guessDTypes makes inputs integers that are used as indices and of which nothing else tells the dtype.
func guessDTypes(p *script.Program, s *Signature) {
	forward := p.Method(p.Root.Class, "forward")
	g := &guesser{program: p, seen: make(map[guess]bool)}
	for _, a := range s.args {
		at, ok := a.node.(int)
		if !ok || s.Ports[at].Shape != nil {
			continue
		}
		g.left = maxGuessSteps
		if g.isIndex(forward, p.Root, a.name) {
			s.Ports[at].DType = tensor.Int64
		}
	}
}

// maxGuessSteps bounds the nodes that are looked at for one argument.
const maxGuessSteps = 200_000

// A guesser follows an argument through the code, by names alone.
type guesser struct {
	program *script.Program
	seen    map[guess]bool
	left    int
}

type guess struct {
	fn  *script.Function
	arg string
}

// A holder is what is known of the variables of a function.
type holder struct {
	names   map[string]bool             // the variables that are the argument
	modules map[string]*script.Object   // the variables that are modules
	funcs   map[string]*script.Function // the variables that are functions
	found   bool
}

// isIndex reports whether the argument of a function is used as an index. Function values and containers are not
// followed.
func (g *guesser) isIndex(fn *script.Function, self *script.Object, arg string) bool {
	if g.seen[guess{fn, arg}] || fn == nil {
		return false
	}
	g.seen[guess{fn, arg}] = true
	h := &holder{names: map[string]bool{arg: true}, modules: make(map[string]*script.Object),
		funcs: make(map[string]*script.Function)}
	if self != nil && len(fn.Args) > 0 {
		h.modules[fn.Args[0].Name] = self
	}
	g.block(h, fn.Body)
	return h.found
}

func (g *guesser) block(h *holder, body []script.Stmt) {
	for _, s := range body {
		if g.left--; g.left < 0 || h.found {
			return
		}
		switch s := s.(type) {
		case *script.Assign:
			for i, x := range s.Values {
				is, module := g.expr(h, x)
				if s.Unpack || i >= len(s.Targets) {
					continue
				}
				name, ok := s.Targets[i].(*script.Name)
				if !ok {
					continue
				}
				h.names[name.Name] = is
				h.modules[name.Name] = module
				if path, ok := x.(*script.Path); ok {
					h.funcs[name.Name] = g.program.Functions[path.Name]
				}
			}
		case *script.ExprStmt:
			g.expr(h, s.X)
		case *script.Return:
			if s.Value != nil {
				g.expr(h, s.Value)
			}
		case *script.If:
			g.expr(h, s.Cond)
			g.block(h, s.Then)
			g.block(h, s.Else)
		case *script.For:
			g.block(h, s.Body)
		case *script.While:
			g.block(h, s.Body)
		case *script.With:
			g.block(h, s.Body)
		}
	}
}

// keeps are the ops that give what they are given, as far as the dtype goes.
var keeps = map[string]bool{
	"torch.view": true, "torch.reshape": true, "torch.flatten": true, "torch.unsqueeze": true, "torch.squeeze": true,
	"torch.slice": true, "torch.select": true, "torch.contiguous": true, "torch.transpose": true, "torch.permute": true,
	"torch.add": true, "torch.clone": true, "torch.detach": true,
}

// expr reports whether an expression is the argument, and which module it is.
func (g *guesser) expr(h *holder, x script.Expr) (is bool, module *script.Object) {
	if g.left--; g.left < 0 || h.found {
		return false, nil
	}
	switch x := x.(type) {
	case *script.Name:
		return h.names[x.Name], h.modules[x.Name]
	case *script.Attr:
		_, of := g.expr(h, x.X)
		if of == nil {
			return false, nil
		}
		v, _ := of.Attribute(x.Name)
		module, _ = v.(*script.Object)
		return false, module
	case *script.Annotate:
		return g.expr(h, x.X)
	case *script.UncheckedCast:
		return g.expr(h, x.X)
	case *script.Call:
		return g.call(h, x), nil
	}
	return false, nil
}

func (g *guesser) call(h *holder, x *script.Call) bool {
	given := make([]bool, len(x.Args))
	any1 := false
	for i, a := range x.Args {
		given[i], _ = g.expr(h, a)
		any1 = any1 || given[i]
	}
	switch fn := x.Func.(type) {
	case *script.Path:
		if at, ok := indexArgs[fn.Name]; ok && at < len(given) && given[at] {
			h.found = true
		}
		if f := g.program.Functions[fn.Name]; f != nil && any1 {
			g.follow(h, f, nil, given, 0)
		}
		return keeps[fn.Name] && len(given) > 0 && given[0]
	case *script.Name:
		if any1 {
			g.follow(h, h.funcs[fn.Name], nil, given, 0)
		}
	case *script.Attr:
		_, of := g.expr(h, fn.X)
		if of != nil && any1 {
			g.follow(h, g.program.Method(of.Class, fn.Name), of, given, 1)
		}
	}
	return false
}

// follow looks at the code of a function that is called with the argument.
func (g *guesser) follow(h *holder, f *script.Function, self *script.Object, given []bool, skip int) {
	for i, is := range given {
		if is && f != nil && i+skip < len(f.Args) && g.isIndex(f, self, f.Args[i+skip].Name) {
			h.found = true
		}
	}
}
