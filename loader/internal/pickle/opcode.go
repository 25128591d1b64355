package pickle

import (
	"encoding/binary"
	"errors"
	"fmt"

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
	if v.in.pos == len(v.in.buf) {
		if err := v.in.fill(1); err != nil {
			return v.readError(err)
		}
	}
	v.opcode = v.in.buf[v.in.pos]
	v.in.pos++
	if !v.emit {
		cost := int64(opCost)
		switch v.opcode {
		case opMark, opGlobal, opInst, opStackGlobal:
			cost = slowOpCost
		}
		if err := v.charge(cost); err != nil {
			return err
		}
		v.time += cost
	}
	if v.transient != 0 {
		v.credit += v.transient
		v.transient = 0
	}
	if v.opcode > opLong4 && v.protocol < 4 && v.opcode < opNextBuffer {
		err := v.complain(fault.ErrFormat, v.opcode, 255, 0,
			"opcode 0x%02x belongs to protocol 4 or 5, the file declares %d",
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
	case errors.Is(err, errLongLine) && v.opts.Sparing:
		return v.broken("a line is longer than %d bytes", maxWindowBytes) // as the text of other formats is
	case errors.Is(err, errLongLine):
		return fault.New(fault.ErrLimit, v.at, "a line is longer than %d bytes", maxWindowBytes)
	}
	return fmt.Errorf("pickle at byte %d: %w", v.in.offset(), err)
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
		if v.opts.Sparing {
			return v.broken("an extension code") // unpicklers know none unless they were told
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
		return v.complain(
			fault.ErrFormat, opStop, 0, 0, "STOP with %d values and %d marks on the stack", n, len(v.marks),
		)
	}
	return nil
}
