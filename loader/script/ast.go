package script

// A Node is any part of the syntax tree: a *Class, *Function, *Type, [Stmt] or [Expr]. [Format] prints it.
type Node interface {
	Pos() Pos
}

type at struct{ pos Pos }

// Pos returns where the node begins; for calls, subscripts and attributes, where the operand begins.
func (a at) Pos() Pos { return a.pos }

// A ClassKind tells what a class statement declares; the comment is the base class in the code.
type ClassKind uint8

// The kinds of class.
const (
	PlainClass      ClassKind = iota // no base
	ModuleClass                      // Module
	NamedTuple                       // NamedTuple
	EnumClass                        // Enum
	Interface                        // Interface
	ModuleInterface                  // ModuleInterface
)

var classBases = [...]string{
	PlainClass: "", ModuleClass: "Module", NamedTuple: "NamedTuple", EnumClass: "Enum", Interface: "Interface",
	ModuleInterface: "ModuleInterface",
}

// String returns the name of the base class, "" for a plain class.
func (k ClassKind) String() string { return classBases[k] }

// A Class is a class statement.
type Class struct {
	at
	// Name is the qualified name.
	Name string
	Kind ClassKind
	// Parameters and Buffers name the attributes of a module that are parameters and buffers.
	Parameters, Buffers []string
	// ForwardPreHooks and ForwardHooks name the methods that run before and after forward.
	ForwardPreHooks, ForwardHooks []string
	// Attributes are the instance's attributes; the fields, for a NamedTuple. Names need not be identifiers ("0").
	Attributes []Attribute
	// Finals are the constants of the class; the members, for an Enum.
	Finals  []Final
	Methods []*Function
}

// An Attribute is a declaration in a class: name : Type.
type Attribute struct {
	at
	Name string
	Type *Type
}

// A Final is a constant of a class: name : Final[Type] = value. A member of an Enum has no type.
type Final struct {
	at
	Name  string
	Type  *Type
	Value Expr
}

// Method returns the method with the given name, or nil.
func (c *Class) Method(name string) *Function {
	for _, m := range c.Methods {
		if m.Name == name {
			return m
		}
	}
	return nil
}

// A Function is a free function, a method (its first argument is the object, whatever its name) or a local function
// that is only used as fork's operand.
type Function struct {
	at
	// Name is qualified for a free function, plain for a method or local function.
	Name string
	Args []Arg
	// Returns is nil for a local function.
	Returns *Type
	// Body is empty where the code says pass.
	Body []Stmt
}

// An Arg is a formal argument. The first argument of an interface's method has no type. Default is nil where the
// caller must give a value.
type Arg struct {
	at
	Name    string
	Type    *Type
	Default Expr
}

// A Stmt is a statement: *Assign, *ExprStmt, *Return, *If, *For, *While, *With or a local *Function. There is none for
// pass.
type Stmt interface {
	Node
	stmt()
}

// Assign is one of
//
//	a = x            one target, one value
//	a : T = x        the same with a type
//	o.b = x          sets an attribute
//	a, b = x, y      as many values as targets, all evaluated before the first target is set
//	a, b, = x        Unpack: the elements of one tuple or list, or the results of one call
type Assign struct {
	at
	Targets []Expr // *Name, or a single *Attr
	Unpack  bool
	Type    *Type
	Values  []Expr
}

// ExprStmt evaluates X for its effect.
type ExprStmt struct{ X Expr }

// Return ends the function. Value is nil where nothing is returned.
type Return struct {
	at
	Value Expr
}

// If runs Then or Else, both possibly empty.
type If struct {
	at
	Cond       Expr
	Then, Else []Stmt
}

// For is: for Var in range(Count).
type For struct {
	at
	Var   string
	Count Expr
	Body  []Stmt
}

// While evaluates Cond before every turn.
type While struct {
	at
	Cond Expr
	Body []Stmt
}

// With enters the context X, names what it gives As (unless As is ""), and leaves it after Body.
type With struct {
	at
	X    Expr
	As   string
	Body []Stmt
}

// Pos returns where the expression begins.
func (s *ExprStmt) Pos() Pos { return s.X.Pos() }

func (*Assign) stmt()   {}
func (*ExprStmt) stmt() {}
func (*Return) stmt()   {}
func (*If) stmt()       {}
func (*For) stmt()      {}
func (*While) stmt()    {}
func (*With) stmt()     {}
func (*Function) stmt() {}

// An Expr is an expression: *Name, *Path, *Attr, *Call, *Index, *Slice, a literal (*None, *Bool, *Int, *Float,
// *Complex, *String, *List, *Tuple, *Dict), or one of the forms of the importer (*ConstantRef, *Annotate,
// *Uninitialized, *UncheckedCast, *IsInstance, *New).
type Expr interface {
	Node
	expr()
}

// Name is a local variable, or a built-in where it is called: int, float, bool, str, print, sorted, fork.
type Name struct {
	at
	Name string
}

// Path is a dotted global name: an operator ("torch.add" is aten::add, "ops.prim.dtype" is prim::dtype), or below
// "__torch__" a function, a class that is called, or a member of an Enum.
type Path struct {
	at
	Name string
}

// Attr is X.Name. Name need not be an identifier: getattr(x, "0") is an Attr too.
type Attr struct {
	X    Expr
	Name string
}

// Call is Func(Args..., Keywords...).
type Call struct {
	Func     Expr
	Args     []Expr
	Keywords []Keyword
}

// A Keyword is a named argument of a call.
type Keyword struct {
	at
	Name  string
	Value Expr
}

// Index is X[Index].
type Index struct{ X, Index Expr }

// Slice is X[Low:High:Step]; what the code leaves out is nil.
type Slice struct{ X, Low, High, Step Expr }

// None is the literal None.
type None struct{ at }

// Bool is True or False.
type Bool struct {
	at
	Value bool
}

// Int is an integer literal with its sign. PyTorch also writes float constants from 1e15 to 1e17 without a point.
type Int struct {
	at
	Value int64
}

// Float is a literal such as 1., -0.5, 1e-05, inf or nan.
type Float struct {
	at
	Value float64
}

// Complex is a literal such as 0.+1.j.
type Complex struct {
	at
	Value complex128
}

// String is a string literal without its quotes and escapes: bytes, not necessarily UTF-8.
type String struct {
	at
	Value string
}

// List is [Elems...].
type List struct {
	at
	Elems []Expr
}

// Tuple is (Elems...).
type Tuple struct {
	at
	Elems []Expr
}

// Dict is {Key: Value, ...}.
type Dict struct {
	at
	Entries []DictEntry
}

// A DictEntry is one pair of a [Dict].
type DictEntry struct{ Key, Value Expr }

// ConstantRef is CONSTANTS.cN.
type ConstantRef struct {
	at
	Index int
}

// Annotate is annotate(Type, X): X, which has that type.
type Annotate struct {
	at
	Type *Type
	X    Expr
}

// Uninitialized is uninitialized(Type): a value that no path of the program uses.
type Uninitialized struct {
	at
	Type *Type
}

// UncheckedCast is unchecked_cast(Type, X): X, refined to a type that an earlier test has established.
type UncheckedCast struct {
	at
	Type *Type
	X    Expr
}

// IsInstance is isinstance(X, Type) or isinstance(X, (Types...)).
type IsInstance struct {
	at
	X     Expr
	Types []*Type
}

// New is Class.__new__(Class): an object whose attributes are not yet set.
type New struct {
	at
	Class string
}

// Pos returns where X begins.
func (e *Attr) Pos() Pos { return e.X.Pos() }

// Pos returns where the function's name begins.
func (e *Call) Pos() Pos { return e.Func.Pos() }

// Pos returns where X begins.
func (e *Index) Pos() Pos { return e.X.Pos() }

// Pos returns where X begins.
func (e *Slice) Pos() Pos { return e.X.Pos() }

func (*Name) expr()          {}
func (*Path) expr()          {}
func (*Attr) expr()          {}
func (*Call) expr()          {}
func (*Index) expr()         {}
func (*Slice) expr()         {}
func (*None) expr()          {}
func (*Bool) expr()          {}
func (*Int) expr()           {}
func (*Float) expr()         {}
func (*Complex) expr()       {}
func (*String) expr()        {}
func (*List) expr()          {}
func (*Tuple) expr()         {}
func (*Dict) expr()          {}
func (*ConstantRef) expr()   {}
func (*Annotate) expr()      {}
func (*Uninitialized) expr() {}
func (*UncheckedCast) expr() {}
func (*IsInstance) expr()    {}
func (*New) expr()           {}
