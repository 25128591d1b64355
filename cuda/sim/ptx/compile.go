package ptx

import (
	"fmt"
	"strings"
)

// A scalar is a type of the ISA: 's', 'u', 'b', 'f' or 'p', and its bits. bf16 is 'h', tf32 't'.
type scalar struct {
	kind byte
	bits int
}

var scalars = map[string]scalar{
	"s8": {'s', 8}, "s16": {'s', 16}, "s32": {'s', 32}, "s64": {'s', 64},
	"u8": {'u', 8}, "u16": {'u', 16}, "u32": {'u', 32}, "u64": {'u', 64},
	"b8": {'b', 8}, "b16": {'b', 16}, "b32": {'b', 32}, "b64": {'b', 64},
	"f16": {'f', 16}, "f32": {'f', 32}, "f64": {'f', 64}, "bf16": {'h', 16}, "tf32": {'t', 32}, "pred": {'p', 1},
	"f16x2": {'f', 17}, "bf16x2": {'h', 17},
}

// parseType reads the name of a type.
func parseType(name string) (scalar, bool) {
	t, ok := scalars[name]
	return t, ok
}

// extend makes 64 bits of the low bits of a register.
func (t scalar) extend(x uint64) uint64 {
	switch {
	case t.kind == 's':
		switch t.bits {
		case 8:
			return uint64(int8(x))
		case 16:
			return uint64(int16(x))
		case 32:
			return uint64(int32(x))
		}
		return x
	case t.bits < 64:
		return x & (1<<t.bits - 1)
	}
	return x
}

// An action is what an instruction does.
type action func(t *thread)

// An instruction is one that was made ready to run.
type instruction struct {
	do     action
	guard  int32 // the register of the predicate, or -1
	negate bool
	line   int32
	touch  *touch // of registers of products of warpgroups, or nil
}

// integer reports whether a type is of integers or bits.
func (t scalar) integer() bool { return t.kind == 's' || t.kind == 'u' || t.kind == 'b' }

// A target is where a branch goes.
type target struct {
	pc int
}

// A register's slot and bits.
type register struct {
	slot, bits int
}

// A Kernel is an entry that was made ready to run, with what it calls. It can run several launches at a time.
type Kernel struct {
	Name string

	m              *Module
	code           []instruction
	parameters     []declaration
	parameterBytes int
	frameBytes     int // of the parameters of calls
	sharedBytes    int // that the kernel declares
	localBytes     int
	slots          int
	initial        []initial
	special        []special
	waits          bool // for other threads
	async          bool // it has an asynchrony
	marks          int  // registers that products of warpgroups use
}

// An initial is a register that holds a constant.
type initial struct {
	slot  int
	value uint64
}

// A special is a register that tells a thread where it is.
type special struct {
	slot int
	of   func(t *thread) uint64
}

// A compiler makes a kernel ready.
type compiler struct {
	*Kernel
	scopes    []map[string]any // register, or variable
	constants map[uint64]int
	specials  map[string]int
	// labels are those of the braces that the compiler is in; braces are what comes, as the function was looked through.
	labels *labels
	braces []*labels
	// entries are the functions that are called: where they begin, and where they find their operands.
	entries map[string]*called
	pending []*called
	line    int
	// groups are the products of warpgroups, marked the numbers of registers from 1 on, used what each instruction uses.
	groups []*groupProduct
	marked []int32
	used   []usage
}

// A called is a function as linked into a kernel, once: there is no recursion.
type called struct {
	f                   *function
	at                  target
	results, parameters []variable
	calls               map[string]bool
}

func (c *compiler) fail(format string, args ...any) {
	panic(failure{&SyntaxError{Line: c.line, Reason: fmt.Sprintf(format, args...)}})
}

// Kernel makes an entry ready to run. The error is a *SyntaxError where an instruction is not known.
func (m *Module) Kernel(name string) (k *Kernel, err error) {
	if k, ok := m.linked[name]; ok {
		return k, nil
	}
	f, ok := m.functions[name]
	if !ok || !f.entry {
		return nil, fmt.Errorf("no kernel %s", name)
	}
	defer recovered(&err)
	c := &compiler{
		Kernel: &Kernel{Name: name, m: m, parameters: f.parameters, sharedBytes: m.sharedBytes},
		scopes: []map[string]any{{}}, constants: make(map[uint64]int), specials: make(map[string]int),
		entries: make(map[string]*called), line: f.line,
	}
	for n, v := range m.variables {
		c.scopes[0][n] = v
	}
	for _, d := range f.parameters {
		c.parameterBytes = rounded(c.parameterBytes, d.align)
		v := variable{in: inParameter, offset: uint64(c.parameterBytes), bytes: d.bytes()}
		c.scopes[0][d.name] = v
		if c.parameterBytes += d.bytes(); c.parameterBytes > maxParameterBytes {
			c.fail("%d bytes of parameters", c.parameterBytes)
		}
	}
	top := &called{f: f, calls: make(map[string]bool)}
	c.function(top)
	for len(c.pending) > 0 {
		next := c.pending[0]
		c.pending = c.pending[1:]
		c.function(next)
	}
	c.acyclic(top, make(map[*called]int))
	c.watch()
	m.linked[name] = c.Kernel
	return c.Kernel, nil
}

// acyclic fails where functions call each other in a circle. What is known of a function is 1 while it is looked at.
func (c *compiler) acyclic(f *called, known map[*called]int) {
	if known[f] == 1 {
		c.line = f.f.line
		c.fail("%s calls itself", f.f.name)
	}
	if known[f] == 2 {
		return
	}
	known[f] = 1
	for name := range f.calls {
		c.acyclic(c.entries[name], known)
	}
	known[f] = 2
}

// function appends a function's code.
func (c *compiler) function(f *called) {
	c.labels, c.braces = c.lookThrough(f.f)
	c.scopes = append(c.scopes[:1:1], make(map[string]any))
	for i, d := range f.f.parameters {
		if f.parameters != nil {
			c.declare(d.name, f.parameters[i])
		}
	}
	for i, d := range f.f.results {
		c.declare(d.name, f.results[i])
	}
	f.at.pc = len(c.code)
	for i := range f.f.body {
		s := &f.f.body[i]
		c.line = s.line
		switch s.kind {
		case isOpen:
			c.scopes = append(c.scopes, make(map[string]any))
			c.labels, c.braces = c.braces[0], c.braces[1:]
		case isClose:
			if len(c.scopes) > 2 {
				c.scopes, c.labels = c.scopes[:len(c.scopes)-1], c.labels.outer
			}
		case isLabel:
			c.label(s.op).pc = len(c.code)
		case isDeclaration:
			c.declaration(s.decl)
		case isInstruction:
			c.instruction(s, f)
		}
	}
	c.emit((*thread).leave, nil)
}

func (c *compiler) declare(name string, what any) {
	scope := c.scopes[len(c.scopes)-1]
	if _, twice := scope[name]; twice {
		c.fail("%s is there twice", name)
	}
	scope[name] = what
}

func (c *compiler) declaration(d declaration) {
	switch d.space {
	case ".reg":
		bits := min(max(d.bits, 1), 64)
		if !d.ranged {
			c.declare(d.name, register{c.slot(), bits})
			return
		}
		for i := range d.count {
			c.declare(fmt.Sprintf("%s%d", d.name, i), register{c.slot(), bits})
		}
	case ".local":
		c.declare(d.name, c.place(inLocal, &c.localBytes, d, maxVariableBytes))
	case ".shared":
		c.declare(d.name, c.place(inShared, &c.sharedBytes, d, maxSharedBytes))
	case ".param":
		c.declare(d.name, c.frame(d))
	}
}

// frame places an operand of calls, which each thread has.
func (c *compiler) frame(d declaration) variable {
	v := c.place(inParameter, &c.frameBytes, d, maxVariableBytes)
	v.offset += frameBase
	return v
}

func (c *compiler) place(in space, used *int, d declaration, most int) variable {
	*used = rounded(*used, d.align)
	v := variable{in: in, offset: uint64(*used), bytes: d.bytes()}
	if *used += d.bytes(); *used > most {
		c.fail("%s: %d bytes are more than there can be", d.name, *used)
	}
	return v
}

func (c *compiler) slot() int {
	if c.slots++; c.slots > maxRegisters {
		c.fail("more than %d registers", maxRegisters)
	}
	return c.slots - 1
}

// Labels are those between braces, in others.
type labels struct {
	here  map[string]*target
	outer *labels
}

// lookThrough finds a function's labels: its own, and those of each of the braces in it, in the order in which
// those open.
func (c *compiler) lookThrough(f *function) (own *labels, braces []*labels) {
	own = &labels{here: make(map[string]*target)}
	at := own
	for i := range f.body {
		switch s := &f.body[i]; s.kind {
		case isOpen:
			at = &labels{here: make(map[string]*target), outer: at}
			braces = append(braces, at)
		case isClose:
			if at.outer != nil {
				at = at.outer
			}
		case isLabel:
			if at.here[s.op] != nil {
				c.line = s.line
				c.fail("the label %s is there twice", s.op)
			}
			at.here[s.op] = &target{}
		}
	}
	return own, braces
}

// label returns the innermost label of a name.
func (c *compiler) label(name string) *target {
	for l := c.labels; l != nil; l = l.outer {
		if to := l.here[name]; to != nil {
			return to
		}
	}
	c.fail("there is no label %s", name)
	return nil
}

func (c *compiler) emit(do action, s *statement) {
	in := instruction{do: do, guard: -1, line: int32(c.line)}
	if s != nil && s.guard != "" {
		r := c.dst(operand{kind: isName, name: s.guard})
		if r.bits != 1 {
			c.fail("%s is no predicate", s.guard)
		}
		in.guard, in.negate = int32(r.slot), s.negate
	}
	c.code = append(c.code, in)
	if c.m.grouped {
		c.used = append(c.used, c.usage(s))
	}
}

// lookup finds what a name stands for where the compiler is.
func (c *compiler) lookup(name string) (any, bool) {
	for i := len(c.scopes) - 1; i >= 0; i-- {
		if what, ok := c.scopes[i][name]; ok {
			return what, true
		}
	}
	return nil, false
}

// dst returns the register that an operand names. An underscore is one that nobody reads.
func (c *compiler) dst(o operand) register {
	if o.kind == isName && o.name == "_" {
		return register{c.slot(), 64}
	}
	what, ok := c.lookup(o.name)
	r, is := what.(register)
	if o.kind != isName || !ok || !is {
		c.fail("%q is no register", o.name)
	}
	return r
}

// src returns the slot that holds an operand: a register, a constant, a variable's address, or where the thread is.
func (c *compiler) src(o operand) int {
	switch o.kind {
	case isNumber:
		return c.constant(o.bits)
	case isName:
		switch what, ok := c.lookup(o.name); v := what.(type) {
		case register:
			return v.slot
		case variable:
			if v.dynamic {
				return c.tells("dynamic", func(t *thread) uint64 { return uint64(t.b.dynamicAt) })
			}
			return c.constant(v.offset)
		default:
			if of, special := specials[o.name]; !ok && special {
				return c.tells(o.name, of)
			}
			c.fail("%q is not declared", o.name)
		}
	}
	c.fail("an operand of another kind must be here")
	return 0
}

func (c *compiler) constant(bits uint64) int {
	at, ok := c.constants[bits]
	if !ok {
		at = c.slot()
		c.constants[bits] = at
		c.initial = append(c.initial, initial{at, bits})
	}
	return at
}

func (c *compiler) tells(name string, of func(t *thread) uint64) int {
	at, ok := c.specials[name]
	if !ok {
		at = c.slot()
		c.specials[name] = at
		c.special = append(c.special, special{at, of})
	}
	return at
}

// specials are the registers that tell a thread where it is.
var specials = map[string]func(t *thread) uint64{
	"%tid.x":    func(t *thread) uint64 { return uint64(t.at[0]) },
	"%tid.y":    func(t *thread) uint64 { return uint64(t.at[1]) },
	"%tid.z":    func(t *thread) uint64 { return uint64(t.at[2]) },
	"%ntid.x":   func(t *thread) uint64 { return uint64(t.b.l.Block[0]) },
	"%ntid.y":   func(t *thread) uint64 { return uint64(t.b.l.Block[1]) },
	"%ntid.z":   func(t *thread) uint64 { return uint64(t.b.l.Block[2]) },
	"%ctaid.x":  func(t *thread) uint64 { return uint64(t.b.at[0]) },
	"%ctaid.y":  func(t *thread) uint64 { return uint64(t.b.at[1]) },
	"%ctaid.z":  func(t *thread) uint64 { return uint64(t.b.at[2]) },
	"%nctaid.x": func(t *thread) uint64 { return uint64(t.b.l.Grid[0]) },
	"%nctaid.y": func(t *thread) uint64 { return uint64(t.b.l.Grid[1]) },
	"%nctaid.z": func(t *thread) uint64 { return uint64(t.b.l.Grid[2]) },
	"%laneid":   func(t *thread) uint64 { return uint64(t.id % warpThreads) },
	"%lanemask_lt": func(t *thread) uint64 {
		return 1<<(t.id%warpThreads) - 1
	},
	"WARP_SZ": func(*thread) uint64 { return warpThreads },
}

// args checks the number of operands.
func (c *compiler) args(s *statement, n int) []operand {
	if len(s.args) != n {
		c.fail("%s has %d operands, not %d", s.op, len(s.args), n)
	}
	return s.args
}

// address returns the base and the offset of an operand in brackets.
func (c *compiler) address(o operand) (slot int, offset uint64) {
	if o.kind != isAddress || len(o.args) != 1 {
		c.fail("an address must be here")
	}
	return c.src(o.args[0]), o.bits
}

// registers returns the registers of {a, b}, or of one operand.
func (c *compiler) registers(o operand) []register { return each(o, c.dst) }

// sources returns the slots of {a, b}, or of one operand.
func (c *compiler) sources(o operand) []int { return each(o, c.src) }

// each returns what get makes of the parts of {a, b}, or of one operand.
func each[T any](o operand, get func(operand) T) []T {
	if o.kind != isVector {
		return []T{get(o)}
	}
	var list []T
	for _, a := range o.args {
		list = append(list, get(a))
	}
	return list
}

// A form is an instruction's name, cut at the dots.
type form struct {
	name  string
	mods  []string
	types []scalar
	// flags are the modifiers that are no types, but those taken.
	flags map[string]bool
}

func cut(op string) form {
	f := form{flags: make(map[string]bool)}
	parts := strings.Split(op, ".")
	f.name, f.mods = parts[0], parts[1:]
	for _, m := range f.mods {
		if t, ok := parseType(m); ok {
			f.types = append(f.types, t)
		} else {
			f.flags[m] = true
		}
	}
	return f
}

// take reports whether a modifier is there, and takes it.
func (f *form) take(flag string) bool {
	has := f.flags[flag]
	delete(f.flags, flag)
	return has
}

// builders make instructions, by the first part of their names. They return nil where they do not know a form.
var builders map[string]func(c *compiler, f *form, s *statement) action

func init() {
	builders = map[string]func(c *compiler, f *form, s *statement) action{
		"mov": buildMove, "ld": buildLoad, "st": buildStore, "atom": buildAtomic, "red": buildAtomic,
		"cvta": buildAddress,
		"add":  buildBinary, "sub": buildBinary, "mul": buildBinary, "div": buildBinary, "rem": buildBinary,
		"min": buildBinary,
		"max": buildBinary, "and": buildBinary, "or": buildBinary, "xor": buildBinary, "shl": buildBinary,
		"shr":  buildBinary,
		"addc": buildCarry, "subc": buildCarry, "madc": buildCarry, "mad": buildMulAdd, "fma": buildMulAdd,
		"abs": buildUnary, "neg": buildUnary, "not": buildUnary, "clz": buildUnary, "popc": buildUnary,
		"brev": buildUnary,
		"sqrt": buildUnary, "rcp": buildUnary, "rsqrt": buildUnary, "ex2": buildUnary, "lg2": buildUnary,
		"sin": buildUnary,
		"cos": buildUnary, "tanh": buildUnary, "cvt": buildConvert, "setp": buildCompare, "selp": buildSelect,
		"bfi": buildBits, "bfe": buildBits, "prmt": buildBits, "shf": buildBits, "lop3": buildBits, "dp4a": buildBits,
		"bra": buildBranch, "ret": buildLeave, "exit": buildExit, "trap": buildTrap, "bar": buildBarrier,
		"barrier": buildBarrier,
		"membar":  buildFence, "fence": buildFence, "shfl": buildShuffle, "vote": buildVote,
		"mma": buildMultiply, "ldmatrix": buildLoadMatrix, "cp": buildCopy, "mbarrier": buildBarrierObject,
		"wgmma": buildGroup,
	}
}

// wants fails where an instruction is for a newer architecture than the module, or for one alone.
func (c *compiler) wants(s *statement, target int, only bool) {
	if c.m.Target < target || only && !(c.m.Only && c.m.Target == target) || target >= 90 && c.m.Version < 80 {
		c.fail("%s is not for this version and target", s.op)
	}
}

// instruction appends an instruction.
func (c *compiler) instruction(s *statement, in *called) {
	if strings.HasPrefix(s.op, "call") {
		c.call(s, in)
		return
	}
	f := cut(s.op)
	build := builders[f.name]
	var do action
	if build != nil {
		do = build(c, &f, s)
	}
	if do == nil || len(f.flags) > 0 {
		c.fail("%s is not known", s.op)
	}
	c.emit(do, s)
}
