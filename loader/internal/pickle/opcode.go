package pickle

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"

	"github.com/optimem/optimem/loader/internal/fault"
)

// The opcodes, by their names in Python's pickletools.
const (
	opMark            = '('
	opStop            = '.'
	opPop             = '0'
	opPopMark         = '1'
	opDup             = '2'
	opFloat           = 'F'
	opInt             = 'I'
	opBinInt          = 'J'
	opBinInt1         = 'K'
	opLong            = 'L'
	opBinInt2         = 'M'
	opNone            = 'N'
	opPersID          = 'P'
	opBinPersID       = 'Q'
	opReduce          = 'R'
	opString          = 'S'
	opBinString       = 'T'
	opShortBinString  = 'U'
	opUnicode         = 'V'
	opBinUnicode      = 'X'
	opAppend          = 'a'
	opBuild           = 'b'
	opGlobal          = 'c'
	opDict            = 'd'
	opEmptyDict       = '}'
	opAppends         = 'e'
	opGet             = 'g'
	opBinGet          = 'h'
	opInst            = 'i'
	opLongBinGet      = 'j'
	opList            = 'l'
	opEmptyList       = ']'
	opObj             = 'o'
	opPut             = 'p'
	opBinPut          = 'q'
	opLongBinPut      = 'r'
	opSetItem         = 's'
	opTuple           = 't'
	opEmptyTuple      = ')'
	opSetItems        = 'u'
	opBinFloat        = 'G'
	opProto           = 0x80
	opNewObj          = 0x81
	opExt1            = 0x82
	opExt2            = 0x83
	opExt4            = 0x84
	opTuple1          = 0x85
	opTuple2          = 0x86
	opTuple3          = 0x87
	opNewTrue         = 0x88
	opNewFalse        = 0x89
	opLong1           = 0x8a
	opLong4           = 0x8b
	opBinBytes        = 'B'
	opShortBinBytes   = 'C'
	opShortBinUnicode = 0x8c
	opBinUnicode8     = 0x8d
	opBinBytes8       = 0x8e
	opEmptySet        = 0x8f
	opAddItems        = 0x90
	opFrozenSet       = 0x91
	opNewObjEx        = 0x92
	opStackGlobal     = 0x93
	opMemoize         = 0x94
	opFrame           = 0x95
	opByteArray8      = 0x96
	opNextBuffer      = 0x97
	opReadonlyBuffer  = 0x98
)

const highestProtocol = 5

// step checks one opcode.
func (v *verifier) step() error {
	v.at = v.in.offset()
	p, err := v.in.next(1)
	if err != nil {
		return v.readError(err)
	}
	v.opcode = p[0]
	if !v.emit {
		if err := v.charge(opCost); err != nil {
			return err
		}
	}
	if v.transient != 0 {
		v.credit += v.transient
		v.transient = 0
	}
	if v.opcode > opLong4 && v.protocol < 4 && v.opcode < opNextBuffer {
		err = v.complain(fault.ErrFormat, v.opcode, 255, 0, "opcode 0x%02x belongs to protocol 4 or 5, the file declares %d",
			v.opcode, v.protocol)
		if err != nil {
			return err
		}
	}
	if err := v.dispatch(v.opcode); err != nil {
		return err
	}
	v.ops++
	if v.frameEnd >= 0 {
		switch after := v.in.offset() + v.big.left; {
		case after > v.frameEnd:
			return v.broken("opcode %q crosses the end of its frame", v.opcode)
		case after == v.frameEnd:
			v.frameEnd = -1
		case v.done:
			return v.broken("STOP comes %d bytes before the end of its frame", v.frameEnd-after)
		}
	}
	return nil
}

func (v *verifier) dispatch(op byte) error {
	switch op {
	case opMark:
		v.write(op)
		return v.mark()
	case opNone:
		v.write(op)
		return v.push(slot{kind: kindNone})
	case opNewTrue, opNewFalse:
		v.write(op)
		return v.push(slot{kind: kindBool})
	case opBinInt1, opBinInt2, opBinInt, opLong1, opLong4:
		return v.integer(op)
	case opBinFloat:
		p, err := v.arg(8)
		if err != nil {
			return err
		}
		v.write(op)
		v.write(p...)
		return v.pushValue(kindFloat, scalarCost)
	case opInt, opLong, opFloat, opString, opUnicode, opPersID, opGlobal, opInst, opGet, opPut:
		return v.textual(op)
	case opBinUnicode, opShortBinUnicode, opBinUnicode8, opBinString, opShortBinString,
		opBinBytes, opShortBinBytes, opBinBytes8, opByteArray8:
		return v.counted(op)
	case opBinPut, opLongBinPut, opBinGet, opLongBinGet, opMemoize:
		return v.memoOp(op)
	case opEmptyTuple, opTuple1, opTuple2, opTuple3, opTuple, opEmptyList, opList, opEmptyDict, opDict, opEmptySet,
		opFrozenSet:
		return v.container(op)
	case opAppend, opAppends, opSetItem, opSetItems, opAddItems:
		return v.fill(op)
	case opReduce, opNewObj, opNewObjEx, opObj, opBuild, opBinPersID:
		return v.apply(op)
	case opStackGlobal:
		return v.stackGlobal()
	case opPop, opPopMark, opDup:
		return v.shuffle(op)
	case opProto, opFrame:
		return v.framing(op)
	case opExt1, opExt2, opExt4, opNextBuffer, opReadonlyBuffer:
		return v.foreign(op)
	case opStop:
		return v.stop()
	}
	return v.broken("unknown opcode 0x%02x", op)
}

// write appends to the canonical opcodes.
func (v *verifier) write(p ...byte) {
	if v.emit {
		v.out = append(v.out, p...)
	}
}

func (v *verifier) writeMemo(short, long byte, i uint32) {
	if i < 256 {
		v.write(short, byte(i))
		return
	}
	v.write(long)
	v.out = binary.LittleEndian.AppendUint32(v.out, i)
}

// writeString writes a string that lies in the window, and so is short enough for a four-byte length.
func (v *verifier) writeString(p []byte) {
	v.writeCounted(opShortBinUnicode, opBinUnicode, int64(len(p)))
	v.write(p...)
}

func (v *verifier) writeCounted(short, long byte, n int64) {
	if n < 256 {
		v.write(short, byte(n))
		return
	}
	v.write(long)
	v.out = binary.LittleEndian.AppendUint32(v.out, uint32(n))
}

// arg returns the opcode's argument of n bytes.
func (v *verifier) arg(n int) ([]byte, error) {
	p, err := v.in.next(n)
	if err != nil {
		return nil, v.readError(err)
	}
	return p, nil
}

// readError gives what the window says a class and a place.
func (v *verifier) readError(err error) error {
	switch {
	case errors.Is(err, errTruncated) && v.emit:
		return v.broken("the file changed while it was read")
	case errors.Is(err, errTruncated):
		return v.broken("truncated: the pickle ends before its STOP")
	case errors.Is(err, errLongLine):
		return fault.New(fault.ErrLimit, v.at, "a line is longer than %d bytes", maxWindowBytes)
	}
	return fmt.Errorf("pickle at byte %d: %w", v.in.offset(), err)
}

// counted checks an opcode with a length and that many bytes.
func (v *verifier) counted(op byte) error {
	width := 4
	switch op {
	case opShortBinUnicode, opShortBinString, opShortBinBytes:
		width = 1
	case opBinUnicode8, opBinBytes8, opByteArray8:
		width = 8
	}
	p, err := v.arg(width)
	if err != nil {
		return err
	}
	var n uint64
	switch width {
	case 1:
		n = uint64(p[0])
	case 4:
		n = uint64(binary.LittleEndian.Uint32(p))
	default:
		n = binary.LittleEndian.Uint64(p)
	}
	if left := v.in.left(); n > uint64(left) {
		return v.broken("truncated: a value claims %d bytes, %d remain", n, left)
	}
	if n > math.MaxInt32 {
		return fault.New(fault.ErrLimit, v.at, "a value of %d bytes", n)
	}
	k, text := kindBytes, false
	switch op {
	case opBinUnicode, opShortBinUnicode, opBinUnicode8:
		k, text = kindString, true
	case opBinString, opShortBinString:
		k = kindString
	case opByteArray8:
		k = kindByteArray
	}
	if n > maxWindowBytes/2 {
		return v.bigValue(k, text, int64(n))
	}
	if p, err = v.arg(int(n)); err != nil {
		return err
	}
	if text {
		if !utf8.Valid(p) {
			return v.broken("a string is not UTF-8")
		}
		return v.text(p)
	}
	v.writeHeader(k, int64(n))
	v.write(p...)
	return v.pushValue(k, stringCost(int64(n)))
}

func (v *verifier) writeHeader(k kind, n int64) {
	if !v.emit {
		return
	}
	switch k {
	case kindString:
		v.writeCounted(opShortBinUnicode, opBinUnicode, n)
	case kindBytes:
		v.writeCounted(opShortBinBytes, opBinBytes, n)
	case kindByteArray:
		v.write(opByteArray8)
		v.out = binary.LittleEndian.AppendUint64(v.out, uint64(n))
	}
}

// bigValue checks a payload that is not held in the window: the scan reads through it, the machine reads it itself.
func (v *verifier) bigValue(k kind, text bool, n int64) error {
	v.big = bigPayload{left: n, text: text}
	if v.emit {
		v.writeHeader(k, n)
		if k == kindString {
			v.transient = n // the machine reads bytes and copies them into a string
			if err := v.charge(n); err != nil {
				return err
			}
		}
		return v.pushValue(k, stringCost(n))
	}
	// What cannot be loaded under the meter is not read either.
	if err := v.charge(stringCost(n)); err != nil {
		return err
	}
	v.credit += stringCost(n)
	for v.big.left > 0 {
		if _, err := v.bigChunk(v.big.left); err != nil {
			return err
		}
	}
	return v.push(slot{kind: k})
}

// bigChunk returns up to n of the payload's bytes to come.
func (v *verifier) bigChunk(n int64) ([]byte, error) {
	p, err := v.in.some(min(n, v.big.left))
	if err != nil {
		return nil, v.readError(err)
	}
	v.big.left -= int64(len(p))
	if v.big.text && !v.big.utf8.write(p, v.big.left == 0) {
		return nil, v.broken("a string is not UTF-8")
	}
	return p, nil
}

// memoOp checks an opcode that moves between stack and memo.
func (v *verifier) memoOp(op byte) error {
	i := int64(v.puts)
	if op != opMemoize {
		width := 1
		if op == opLongBinPut || op == opLongBinGet {
			width = 4
		}
		p, err := v.arg(width)
		if err != nil {
			return err
		}
		if i = int64(p[0]); width == 4 {
			i = int64(binary.LittleEndian.Uint32(p))
		}
	}
	if op == opBinGet || op == opLongBinGet {
		return v.get(i)
	}
	return v.put(i)
}

// container checks an opcode that makes a container of what is on the stack.
func (v *verifier) container(op byte) error {
	switch op {
	case opEmptyTuple:
		v.write(op)
		return v.pushTuple(0, 1, headerCost)
	case opEmptyList:
		v.write(op)
		return v.pushValue(kindList, listCost)
	case opEmptyDict:
		v.write(op)
		return v.pushValue(kindDict, dictCost)
	case opEmptySet:
		v.write(op)
		return v.pushValue(kindSet, setCost)
	case opTuple1, opTuple2, opTuple3:
		n := int(op-opTuple1) + 1
		items, err := v.top(n)
		if err != nil {
			return err
		}
		depth, err := v.above(items...)
		if err != nil {
			return err
		}
		v.write(op)
		v.drop(n)
		return v.pushTuple(n, depth, headerCost+int64(n)*tupleItemCost)
	}
	items, err := v.sinceMark()
	if err != nil {
		return err
	}
	depth, err := v.above(items...)
	if err != nil {
		return err
	}
	n := len(items)
	made := slot{depth: depth}
	cost := int64(0)
	switch op {
	case opDict:
		if err := v.checkKeys(items); err != nil {
			return err
		}
		made.kind, cost = kindDict, dictCost+int64(n/2)*dictItemCost
	case opFrozenSet:
		if err := v.checkElements(items); err != nil {
			return err
		}
		made.kind, cost = kindFrozenSet, setCost+int64(n)*setItemCost
	case opList:
		made.kind = kindList
	}
	v.write(op)
	room := int64(v.popMark())
	switch {
	case op == opTuple && room <= 256:
		return v.pushTuple(n, depth, headerCost+room*tupleItemCost)
	case op == opTuple:
		return v.pushTuple(n, depth, headerCost+room*machineCost)
	case op == opList:
		cost = headerCost + room*machineCost
	}
	if v.emit {
		if err := v.charge(cost); err != nil {
			return err
		}
	}
	return v.push(made)
}

func (v *verifier) pushTuple(n int, depth uint16, cost int64) error {
	if v.emit {
		if err := v.charge(cost); err != nil {
			return err
		}
	}
	return v.push(slot{kind: kindTuple, depth: depth, n: uint32(n), ref: uint32(min(cost, math.MaxUint32))})
}

// checkKeys checks that items are pairs with keys that Python would take.
func (v *verifier) checkKeys(items []slot) error {
	if len(items)%2 != 0 {
		return v.broken("a key without a value")
	}
	for i := 0; i < len(items); i += 2 {
		if k := items[i].kind; !k.hashable() {
			if err := v.complain(fault.ErrFormat, opSetItem, 0, uint32(k), "%s is a dict's key", k); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkElements checks that items may be in a set. Bytes may not, because they cannot be in the machine's.
func (v *verifier) checkElements(items []slot) error {
	for _, it := range items {
		class := fault.ErrFormat
		if it.kind == kindBytes {
			class = fault.ErrUnsupported
		} else if it.kind.hashable() {
			continue
		}
		if err := v.complain(class, opAddItems, 0, uint32(it.kind), "%s is in a set", it.kind); err != nil {
			return err
		}
	}
	return nil
}

// fill checks an opcode that adds to a container below the items.
func (v *verifier) fill(op byte) error {
	var items []slot
	var err error
	marked := op == opAppends || op == opSetItems || op == opAddItems
	below := 0 // the container's place
	switch op {
	case opAppend:
		items, err = v.top(2)
	case opSetItem:
		items, err = v.top(3)
	default:
		if items, err = v.sinceMark(); err == nil {
			if outer := v.marks[len(v.marks)-1]; v.seg.base == outer.base {
				err = v.broken("stack underflow: nothing below the MARK")
			}
		}
	}
	if err != nil {
		return err
	}
	if marked {
		below = v.seg.base - 1
	} else {
		items = items[1:]
		below = len(v.stack) - len(items) - 1
	}
	depth, err := v.above(items...)
	if err != nil {
		return err
	}
	target := &v.stack[below]
	ok, cost := false, int64(0)
	switch op {
	case opAppend, opAppends:
		ok = target.kind == kindList || target.kind == kindObject
		cost = int64(len(items)) * listItemCost
	case opSetItem, opSetItems:
		ok = target.kind == kindDict || target.kind == kindMapping || target.kind == kindObject
		cost = int64(len(items)/2) * dictItemCost
		err = v.checkKeys(items)
	case opAddItems:
		ok = target.kind == kindSet || target.kind == kindObject
		cost = int64(len(items)) * setItemCost
		if target.kind == kindSet {
			err = v.checkElements(items)
		}
	}
	if err == nil && !ok {
		class := fault.ErrFormat
		if target.kind == kindOpaque || target.kind == kindGlobal {
			class = fault.ErrUnsafe
		}
		err = v.complain(class, op, 1, uint32(target.kind), "items are added to %s", target.kind)
	}
	if err != nil {
		return err
	}
	v.write(op)
	if v.emit {
		if target.kind == kindObject || target.kind == kindMapping {
			cost += objectRest
		}
		if err := v.charge(cost); err != nil {
			return err
		}
	}
	target.depth = max(target.depth, depth)
	if marked {
		v.popMark()
	} else {
		v.drop(len(items))
	}
	return nil
}

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
	if args.kind != kindTuple && op == opReduce && v.opts.BareArgument {
		var err error
		if args, err = v.wrapArgument(args); err != nil {
			return err
		}
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

// stackGlobal checks STACK_GLOBAL, which is safe only where both names are literals that the verifier has seen.
func (v *verifier) stackGlobal() error {
	s, err := v.top(2)
	if err != nil {
		return err
	}
	if s[0].kind != kindString || s[1].kind != kindString || s[0].ref == 0 || s[1].ref == 0 {
		err := v.complain(fault.ErrUnsafe, opStackGlobal, 0, 0, "STACK_GLOBAL with names that are not plain strings")
		if err != nil {
			return err
		}
		v.drop(2)
		return v.push(slot{kind: kindOpaque})
	}
	v.name = append(v.name[:0], v.arena[s[0].ref-1:s[0].ref-1+s[0].n]...)
	v.name = append(v.name, '\n')
	v.name = append(v.name, v.arena[s[1].ref-1:s[1].ref-1+s[1].n]...)
	i, err := v.find(v.name)
	if err != nil {
		return err
	}
	v.write(opPop, opPop)
	v.writeGlobal(opGlobal, i)
	v.drop(2)
	return v.push(slot{kind: kindGlobal, n: i})
}

// shuffle checks the opcodes that only move what is on the stack.
func (v *verifier) shuffle(op byte) error {
	if op == opPop && len(v.stack) == v.seg.base {
		op = opPopMark // Python pops the mark
	}
	if op == opPopMark {
		if _, err := v.sinceMark(); err != nil {
			return err
		}
		v.write(op)
		v.popMark()
		return nil
	}
	s, err := v.top(1)
	if err != nil {
		return err
	}
	v.write(op)
	if op == opPop {
		v.drop(1)
		return nil
	}
	s[0].shared = true
	return v.push(s[0])
}

// framing checks PROTO and FRAME, which the machine never sees.
func (v *verifier) framing(op byte) error {
	if op == opProto {
		p, err := v.arg(1)
		if err != nil {
			return err
		}
		if v.ops != 0 {
			return v.broken("PROTO in the middle")
		}
		if p[0] > highestProtocol {
			return fault.New(fault.ErrUnsupported, v.at, "pickle protocol %d", p[0])
		}
		v.protocol = int(p[0])
		return nil
	}
	p, err := v.arg(8)
	if err != nil {
		return err
	}
	if v.frameEnd >= 0 {
		return v.broken("a frame begins inside a frame")
	}
	n := binary.LittleEndian.Uint64(p)
	if left := v.in.left(); n > uint64(left) {
		return v.broken("truncated: a frame claims %d bytes, %d remain", n, left)
	}
	v.frameEnd = v.in.offset() + int64(n)
	return nil
}

// foreign rejects opcodes that refer to what is outside the pickle.
func (v *verifier) foreign(op byte) error {
	switch op {
	case opExt1, opExt2, opExt4:
		if _, err := v.arg(1 << (op - opExt1)); err != nil {
			return err
		}
		if err := v.complain(fault.ErrUnsafe, opExt1, 0, 0, "an extension code stands for a global"); err != nil {
			return err
		}
	case opNextBuffer:
		if err := v.complain(fault.ErrUnsupported, op, 0, 0, "an out-of-band buffer"); err != nil {
			return err
		}
	case opReadonlyBuffer:
		if _, err := v.top(1); err != nil {
			return err
		}
		return v.complain(fault.ErrUnsupported, op, 0, 0, "a read-only buffer")
	}
	return v.push(slot{kind: kindOpaque})
}

func (v *verifier) stop() error {
	if _, err := v.top(1); err != nil {
		return err
	}
	v.write(opStop)
	v.done = true
	if n := len(v.stack); n != 1 || len(v.marks) != 0 {
		return v.complain(fault.ErrFormat, opStop, 0, 0, "STOP with %d values and %d marks on the stack", n, len(v.marks))
	}
	return nil
}
