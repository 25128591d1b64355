package pickle

import (
	"encoding/binary"
	"math"
	"unicode/utf8"

	"github.com/optimem/optimem/loader/internal/fault"
)

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
	if n > math.MaxInt32 && !v.opts.Sparing {
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

// text pushes a string whose bytes are in the window, remembering what may be a name.
func (v *verifier) text(p []byte) error {
	s := slot{kind: kindString, n: uint32(len(p))}
	isName := v.protocol >= 4 && len(p) > 0 && len(p) <= maxNameBytes
	if isName || v.opts.ClassIDs && string(p) == "module" {
		var err error
		if s.ref, err = v.remember(p); err != nil {
			return err
		}
	}
	if v.emit {
		if err := v.charge(stringCost(int64(len(p)))); err != nil {
			return err
		}
		v.writeString(p)
	}
	return v.push(s)
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
	if v.opts.Sparing {
		v.in.skip(n)
		return v.push(slot{kind: k})
	}
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
