package pickle

import "github.com/optimem/optimem/loader/internal/fault"

// apply checks an opcode that would run code in Python.
func (v *verifier) apply(op byte) error {
	switch op {
	case opReduce, opNewObj:
		s, err := v.top(2)
		if err != nil {
			return err
		}
		return v.applyTo(op, s[0], s[1], 2)
	case opNewObjEx:
		s, err := v.top(3)
		if err != nil {
			return err
		}
		if s[2].kind != kindDict {
			return v.broken("NEWOBJ_EX with %s for keywords", s[2].kind)
		}
		s[1].depth = max(s[1].depth, s[2].depth)
		s[1].n++
		return v.applyTo(op, s[0], s[1], 3)
	case opObj:
		s, err := v.sinceMark()
		if err != nil {
			return err
		}
		if len(s) == 0 {
			return v.broken("OBJ without a class")
		}
		return v.applySince(op, s[0], s[1:])
	case opBinPersID:
		s, err := v.top(1)
		if err != nil {
			return err
		}
		return v.persistent(s[0], 1)
	}
	s, err := v.top(2)
	if err != nil {
		return err
	}
	depth, err := v.above(s[1])
	if err != nil {
		return err
	}
	switch s[0].kind {
	case kindObject, kindMapping, kindOpaque:
	case kindGlobal:
		err = v.complain(fault.ErrUnsafe, op, 0, s[0].n, "BUILD changes %s", v.globals[s[0].n].use.Global)
	default:
		err = v.complain(fault.ErrFormat, op, 1, uint32(s[0].kind), "BUILD changes %s", s[0].kind)
	}
	if err != nil {
		return err
	}
	v.write(op)
	if v.emit {
		if err := v.charge(objectRest); err != nil {
			return err
		}
	}
	s[0].depth = max(s[0].depth, depth)
	v.drop(1)
	return nil
}

// applyTo replaces the top n slots by what callable gives for the tuple args.
func (v *verifier) applyTo(op byte, callable, args slot, n int) error {
	if !args.kind.isTuple() && op == opReduce && v.opts.BareArgument {
		var err error
		if args, err = v.wrapArgument(args); err != nil {
			return err
		}
	}
	if args.kind == kindClassID { // never written where a call follows; the hook would see a tuple like any other
		args.kind, args.n = kindTuple, classIDItems
	}
	if args.kind != kindTuple {
		return v.broken("%s for the arguments of a call", args.kind)
	}
	depth, err := v.above(args)
	if err != nil {
		return err
	}
	made, err := v.call(callable, op != opReduce)
	if err != nil {
		return err
	}
	made.depth = depth
	v.write(op)
	if made.kind == kindOpaque {
		v.freed(args)
	} else if v.emit {
		if err := v.charge(int64(args.n) * tupleItemCost); err != nil { // kept by the object
			return err
		}
		v.freed(args)
	}
	v.drop(n)
	return v.push(made)
}

// wrapArgument puts the tuple that REDUCE wants around the argument on top of the stack.
func (v *verifier) wrapArgument(arg slot) (slot, error) {
	depth, err := v.above(arg)
	if err != nil {
		return slot{}, err
	}
	const cost = headerCost + tupleItemCost
	v.write(opTuple1)
	if v.emit {
		if err := v.charge(cost); err != nil {
			return slot{}, err
		}
	}
	return slot{kind: kindTuple, depth: depth, n: 1, ref: cost}, nil
}

// applySince replaces the innermost segment by what callable gives for the args in it.
func (v *verifier) applySince(op byte, callable slot, args []slot) error {
	depth, err := v.above(args...)
	if err != nil {
		return err
	}
	made, err := v.call(callable, false)
	if err != nil {
		return err
	}
	made.depth = depth
	if op == opInst {
		v.writeGlobal(op, callable.n)
	} else {
		v.write(op)
	}
	if v.emit {
		if err := v.charge(int64(len(args)) * tupleItemCost); err != nil {
			return err
		}
	}
	v.popMark()
	return v.push(made)
}

// persistent replaces the top n slots (none where the id is in the opcode) by what the id stands for.
func (v *verifier) persistent(id slot, n int) error {
	if !v.opts.Persistent {
		err := v.complain(fault.ErrFormat, opBinPersID, 0, 0, "a persistent id, where none is expected")
		if err != nil {
			return err
		}
	}
	if id.kind == kindClassID { // stands for the class, which the machine is given in its place
		v.write(opPop)
		v.writeGlobal(opGlobal, id.n)
		v.freed(id)
		v.drop(n)
		return v.push(slot{kind: kindGlobal, n: id.n})
	}
	v.write(opBinPersID)
	if v.emit {
		if err := v.charge(resultCost); err != nil {
			return err
		}
		v.freed(id)
	}
	v.drop(n)
	return v.push(slot{kind: kindOpaque, depth: id.depth})
}

// call decides what applying a callable gives, by REDUCE, INST or OBJ, or by NEWOBJ where instantiate is set.
func (v *verifier) call(callable slot, instantiate bool) (slot, error) {
	made := slot{kind: kindOpaque}
	cost := int64(resultCost)
	if callable.kind != kindGlobal {
		class := fault.ErrFormat
		if callable.kind >= kindObject {
			class = fault.ErrUnsafe
		}
		return made, v.complain(class, opReduce, 0, uint32(callable.kind), "%s is called", callable.kind)
	}
	g := &v.globals[callable.n]
	if instantiate {
		g.use.Instantiated = true
	} else {
		g.use.Called = true
	}
	var err error
	switch {
	case g.use.Class == Data && g.builtin == nil:
	case g.use.Class == Data && g.builtin.call != nil:
		made.kind, cost = g.builtin.kind, objectCost
	case g.use.Class == Data && !instantiate:
		err = v.complain(
			fault.ErrUnsafe, opReduce, 1, callable.n, "%s is called; only naming it is allowed", g.use.Global,
		)
	case g.use.Class == Data || g.use.Class == Inert && instantiate:
		made.kind, cost = kindObject, objectCost
	case g.use.Class == Inert:
		err = v.complain(fault.ErrUnsafe, opReduce, 2, callable.n,
			"%s is called; only rebuild functions of data may be", g.use.Global)
	}
	if err == nil && v.emit {
		err = v.charge(cost)
	}
	return made, err
}

// freed notes that a value on the stack is gone, if nothing else holds it. Only tuples are worth it: the arguments of
// rebuild functions and the persistent ids are most of a checkpoint's pickle.
func (v *verifier) freed(s slot) {
	if v.emit && s.kind.isTuple() && !s.shared {
		v.credit += int64(s.ref)
	}
}
