package template

import "maps"

// symbols are the names of a frame as jinja2's compiler sees them. A name that a frame sets without a condition, before it reads
// it, and that no frame around it knows, is undefined from the frame's beginning on, even where a variable of that name was passed
// in. Frames inside see that before the name is set.
type symbols struct {
	parent *symbols
	refs   map[string]bool // known here; true: undefined at the beginning
	stores map[string]bool
}

func (y *symbols) inner() *symbols {
	return &symbols{parent: y, refs: make(map[string]bool), stores: make(map[string]bool)}
}

func (y *symbols) knows(name string) bool {
	for ; y != nil; y = y.parent {
		if _, ok := y.refs[name]; ok {
			return true
		}
	}
	return false
}

func (y *symbols) load(name string) {
	if !y.knows(name) {
		y.refs[name] = false
	}
}

func (y *symbols) store(name string) {
	y.stores[name] = true
	if _, ok := y.refs[name]; !ok {
		y.refs[name] = !y.parent.knows(name)
	}
}

func (y *symbols) param(name string) {
	y.stores[name] = true
	y.refs[name] = false
}

// hidden returns the names that are undefined at the beginning.
func (y *symbols) hidden() []string {
	var names []string
	for name, undefined := range y.refs {
		if undefined {
			names = append(names, name)
		}
	}
	return names
}

// branches visits alternatives. What only they set is not undefined at the beginning.
func (y *symbols) branches(visits ...func(*symbols)) {
	var all []*symbols
	for _, visit := range visits {
		b := &symbols{parent: y.parent, refs: maps.Clone(y.refs), stores: maps.Clone(y.stores)}
		visit(b)
		all = append(all, b)
	}
	conditional := make(map[string]bool)
	for _, b := range all {
		for name := range b.stores {
			if !y.stores[name] {
				conditional[name] = true
			}
		}
	}
	for _, b := range all {
		maps.Copy(y.refs, b.refs)
		maps.Copy(y.stores, b.stores)
	}
	for name := range conditional {
		y.refs[name] = false
	}
}

// target visits what is assigned to.
func (y *symbols) target(e expr, set func(string)) {
	switch e := e.(type) {
	case *nameExpr:
		set(e.name)
	case *attrTarget:
		y.load(e.name)
	case *tupleExpr:
		for _, item := range e.items {
			y.target(item, set)
		}
	}
}

// frames finds what is hidden in a template's frames, by the statement that opens them.
type frames map[any][]string

// frame visits a body in a frame of its own and returns its names. open declares what the frame begins with.
func (f frames) frame(owner any, parent *symbols, open func(*symbols), body []stmt) {
	y := parent.inner()
	if open != nil {
		open(y)
	}
	// All of the frame's names are known before the frames inside are looked at.
	for _, s := range body {
		y.statement(s)
	}
	if hidden := y.hidden(); len(hidden) > 0 {
		f[owner] = hidden
	}
	f.inside(body, y)
}

// inside visits the frames that statements open.
func (f frames) inside(body []stmt, y *symbols) {
	signed := func(s *signature) func(*symbols) {
		return func(y *symbols) {
			for _, name := range s.names {
				y.param(name)
			}
			for _, name := range []string{"caller", "kwargs", "varargs"} {
				y.param(name)
			}
			for _, e := range s.defaults {
				y.names(e)
			}
		}
	}
	for _, s := range body {
		switch s := s.(type) {
		case *ifStmt:
			for _, b := range s.bodies {
				f.inside(b, y)
			}
			f.inside(s.otherwise, y)
		case *forStmt:
			f.frame(s, y, func(y *symbols) {
				y.param("loop")
				y.target(s.target, y.param)
			}, s.body)
			f.frame(&s.otherwise, y, nil, s.otherwise)
		case *macroStmt:
			f.frame(&s.signature, y, signed(&s.signature), s.body)
		case *callStmt:
			f.frame(&s.signature, y, signed(&s.signature), s.body)
		case *setBlockStmt:
			f.frame(s, y, nil, s.body)
		case *filterStmt:
			f.frame(s, y, func(y *symbols) { y.names(s.filter) }, s.body)
		case *scopeStmt:
			f.frame(s, y, nil, s.body)
		case *withStmt:
			f.frame(s, y, func(y *symbols) {
				for _, e := range s.targets {
					y.target(e, y.param)
				}
			}, s.body)
		case *blockStmt:
			f.frame(s, nil, nil, s.body)
		}
	}
}

// statement visits what a statement does with names in its own frame.
func (y *symbols) statement(s stmt) {
	switch s := s.(type) {
	case *outputStmt:
		y.names(s.of)
	case *setStmt:
		y.names(s.value)
		y.target(s.target, y.store)
	case *setBlockStmt:
		y.target(s.target, y.store)
	case *macroStmt:
		y.store(s.name)
	case *forStmt:
		y.names(s.over)
	case *callStmt:
		y.names(s.call)
	case *filterStmt:
		y.names(s.filter)
	case *withStmt:
		for _, e := range s.values {
			y.names(e)
		}
	case *ifStmt:
		y.condition(s, 0)
	}
}

// condition visits the i-th test of an {% if %} and what depends on it.
func (y *symbols) condition(s *ifStmt, i int) {
	visit := func(body []stmt) func(*symbols) {
		return func(y *symbols) {
			for _, s := range body {
				y.statement(s)
			}
		}
	}
	y.names(s.tests[i])
	if i > 0 {
		y.branches(visit(s.bodies[i]))
		return
	}
	y.branches(visit(s.bodies[0]), func(y *symbols) {
		for j := 1; j < len(s.tests); j++ {
			y.condition(s, j)
		}
	}, visit(s.otherwise))
}

// names visits the names that an expression reads.
func (y *symbols) names(es ...expr) {
	arguments := func(a *arguments) {
		y.names(a.positional...)
		y.names(a.named...)
		y.names(a.star, a.starStar)
	}
	for _, e := range es {
		switch e := e.(type) {
		case *nameExpr:
			y.load(e.name)
		case *concatExpr:
			y.names(e.parts...)
		case *listExpr:
			y.names(e.items...)
		case *tupleExpr:
			y.names(e.items...)
		case *dictExpr:
			y.names(e.keys...)
			y.names(e.values...)
		case *notExpr:
			y.names(e.of)
		case *logicalExpr:
			y.names(e.left, e.right)
		case *binaryExpr:
			y.names(e.left, e.right)
		case *unaryExpr:
			y.names(e.of)
		case *compareExpr:
			y.names(e.left)
			y.names(e.right...)
		case *condExpr:
			y.names(e.test, e.then, e.otherwise)
		case *attrExpr:
			y.names(e.of)
		case *itemExpr:
			y.names(e.of, e.key)
		case *sliceExpr:
			y.names(e.start, e.stop, e.step)
		case *callExpr:
			y.names(e.of)
			arguments(&e.args)
		case *filterExpr:
			y.names(e.of)
			arguments(&e.args)
		case *testExpr:
			y.names(e.of)
			arguments(&e.args)
		}
	}
}
