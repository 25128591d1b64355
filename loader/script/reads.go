package script

// Reads reports whether the code anywhere looks at an attribute of that name, or calls a method that has it.
func (p *Program) Reads(attribute string) bool {
	r := reader{name: attribute}
	for _, f := range p.Files {
		for _, def := range f.Defs {
			switch def := def.(type) {
			case *Function:
				r.block(def.Body)
			case *Class:
				for _, m := range def.Methods {
					r.block(m.Body)
				}
			}
			if r.found {
				return true
			}
		}
	}
	return false
}

// A reader looks for an attribute.
type reader struct {
	name  string
	found bool
}

func (r *reader) block(body []Stmt) {
	for _, s := range body {
		switch s := s.(type) {
		case *Assign:
			for _, t := range s.Targets {
				if a, ok := t.(*Attr); ok { // which is set, of an object that is read
					r.exprs(a.X)
				}
			}
			r.exprs(s.Values...)
		case *ExprStmt:
			r.exprs(s.X)
		case *Return:
			r.exprs(s.Value)
		case *If:
			r.exprs(s.Cond)
			r.block(s.Then)
			r.block(s.Else)
		case *For:
			r.exprs(s.Count)
			r.block(s.Body)
		case *While:
			r.exprs(s.Cond)
			r.block(s.Body)
		case *With:
			r.exprs(s.X)
			r.block(s.Body)
		case *Function:
			r.block(s.Body)
		}
	}
}

func (r *reader) exprs(list ...Expr) {
	for _, x := range list {
		switch x := x.(type) {
		case *Attr:
			r.found = r.found || x.Name == r.name
			r.exprs(x.X)
		case *Call:
			r.exprs(x.Func)
			r.exprs(x.Args...)
			for _, k := range x.Keywords {
				r.exprs(k.Value)
			}
		case *Index:
			r.exprs(x.X, x.Index)
		case *Slice:
			r.exprs(x.X, x.Low, x.High, x.Step)
		case *List:
			r.exprs(x.Elems...)
		case *Tuple:
			r.exprs(x.Elems...)
		case *Dict:
			for _, e := range x.Entries {
				r.exprs(e.Key, e.Value)
			}
		case *Annotate:
			r.exprs(x.X)
		case *UncheckedCast:
			r.exprs(x.X)
		case *IsInstance:
			r.exprs(x.X)
		}
	}
}
