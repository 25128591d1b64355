package template

// Expressions.
type (
	expr interface{}

	constExpr struct{ value any }
	nameExpr  struct {
		name string
		line int
	}
	concatExpr  struct{ parts []expr }
	listExpr    struct{ items []expr }
	tupleExpr   struct{ items []expr }
	dictExpr    struct{ keys, values []expr }
	notExpr     struct{ of expr }
	logicalExpr struct {
		and         bool
		left, right expr
	}
	binaryExpr struct {
		op          string
		left, right expr
		line        int
	}
	unaryExpr struct {
		op   string
		of   expr
		line int
	}
	compareExpr struct {
		left  expr
		ops   []string
		right []expr
		line  int
	}
	condExpr struct{ test, then, otherwise expr } // otherwise nil: undefined
	attrExpr struct {
		of   expr
		name string
		line int
	}
	itemExpr struct {
		of, key expr
		line    int
	}
	sliceExpr struct{ start, stop, step expr } // nil: left out
	callExpr  struct {
		of   expr
		args arguments
		line int
	}
	// A filter or a test applied to of. Nil: to the text of a block.
	filterExpr struct {
		of   expr
		name string
		args arguments
		line int
	}
	testExpr struct {
		of   expr
		name string
		args arguments
		line int
	}
)

type arguments struct {
	positional []expr
	names      []string
	named      []expr
	star       expr // *args
	starStar   expr // **kwargs
}

// Assignment targets are a nameExpr, a tupleExpr of targets, or an attribute of a namespace.
type attrTarget struct {
	name, attr string
	line       int
}

// Statements.
type (
	stmt interface{}

	textStmt   struct{ text string }
	outputStmt struct {
		of   expr
		line int
	}
	setStmt struct {
		target, value expr
		line          int
	}
	setBlockStmt struct {
		target expr
		filter expr // nil: none
		body   []stmt
		line   int
	}
	ifStmt struct {
		tests     []expr
		bodies    [][]stmt
		otherwise []stmt
	}
	forStmt struct {
		target, over    expr
		test            expr // nil: none
		recursive       bool
		body, otherwise []stmt
		line            int
	}
	macroStmt struct {
		name      string
		signature signature
		body      []stmt
		line      int
	}
	callStmt struct {
		call      *callExpr
		signature signature
		body      []stmt
		line      int
	}
	filterStmt struct {
		filter expr
		body   []stmt
		line   int
	}
	withStmt struct {
		targets, values []expr
		body            []stmt
		line            int
	}
	blockStmt struct {
		name   string
		scoped bool
		body   []stmt
		line   int
	}
	scopeStmt struct{ body []stmt } // {% generation %}
	jumpStmt  struct{ again bool }  // continue, or break
	// refuseStmt is what fails only if it is reached, as in jinja2.
	refuseStmt struct {
		text string
		line int
	}
)

type signature struct {
	names    []string
	defaults []expr // of the last names
	// What the body asks for beyond its names.
	varargs, kwargs, caller bool
}

// mentions reports whether a macro's body loads a name anywhere.
func mentions(tokens []token, name string) bool {
	for i, t := range tokens {
		if t.kind == tokenName && t.text == name && (i == 0 || tokens[i-1].text != "." || tokens[i-1].kind != tokenOperator) {
			return true
		}
	}
	return false
}
