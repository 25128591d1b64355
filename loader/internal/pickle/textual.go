package pickle

import (
	"encoding/binary"
	"math"
	"math/big"
	"strconv"
	"unicode/utf8"

	"github.com/optimem/optimem/loader/internal/fault"
)

// Integers may have this many bytes, more than any writer of data needs: decoding takes quadratic time.
const (
	maxLongBytes  = 64
	maxLongDigits = 150
)

// integer checks an opcode that pushes a binary integer.
func (v *verifier) integer(op byte) error {
	width := 1
	switch op {
	case opBinInt2:
		width = 2
	case opBinInt, opLong4:
		width = 4
	}
	p, err := v.arg(width)
	if err != nil {
		return err
	}
	switch op {
	case opBinInt1:
		return v.pushInt(int64(p[0]))
	case opBinInt2:
		return v.pushInt(int64(binary.LittleEndian.Uint16(p)))
	case opBinInt:
		return v.pushInt(int64(int32(binary.LittleEndian.Uint32(p))))
	}
	n := int64(p[0])
	if op == opLong4 {
		n = int64(binary.LittleEndian.Uint32(p))
	}
	if left := v.in.left(); n > left {
		return v.broken("truncated: an integer claims %d bytes, %d remain", n, left)
	}
	if n > maxLongBytes {
		return fault.New(fault.ErrLimit, v.at, "an integer of %d bytes", n)
	}
	if p, err = v.arg(int(n)); err != nil {
		return err
	}
	return v.pushLong(p)
}

// pushInt writes the shortest opcode for i.
func (v *verifier) pushInt(i int64) error {
	cost := int64(scalarCost)
	if v.emit {
		switch {
		case i >= 0 && i < 256:
			v.write(opBinInt1, byte(i))
			cost = 0 // Go has these boxed
		case i >= 0 && i < 65536:
			v.write(opBinInt2, byte(i), byte(i>>8))
		case i >= math.MinInt32 && i <= math.MaxInt32:
			v.write(opBinInt)
			v.out = binary.LittleEndian.AppendUint32(v.out, uint32(int32(i)))
		default:
			v.write(opLong1, 8)
			v.out = binary.LittleEndian.AppendUint64(v.out, uint64(i))
		}
	}
	return v.pushValue(kindInt, cost)
}

// pushLong takes an integer in little-endian two's complement; no bytes are 0.
func (v *verifier) pushLong(p []byte) error {
	for n := len(p); n > 1; n-- { // bytes that repeat the sign
		if hi, next := p[n-1], p[n-2]; hi == 0 && next < 0x80 || hi == 0xff && next >= 0x80 {
			p = p[:n-1]
			continue
		}
		break
	}
	if len(p) > 8 {
		v.write(opLong1, byte(len(p)))
		v.write(p...)
		// The charge is for time as well as for memory.
		return v.pushValue(kindInt, 512)
	}
	i := int64(0)
	for k := len(p) - 1; k >= 0; k-- {
		if k == len(p)-1 {
			i = int64(int8(p[k]))
			continue
		}
		i = i<<8 | int64(p[k])
	}
	return v.pushInt(i)
}

// textual checks an opcode whose argument is a line of text.
func (v *verifier) textual(op byte) error {
	if op == opGlobal || op == opInst {
		return v.globalLines(op)
	}
	p, err := v.in.line()
	if err != nil {
		return v.readError(err)
	}
	switch op {
	case opInt, opLong:
		return v.decimal(op, p)
	case opFloat:
		f, ok := parseFloat(p)
		if !ok {
			return v.broken("%.40q is not a number", p)
		}
		v.write(opBinFloat)
		if v.emit {
			v.out = binary.BigEndian.AppendUint64(v.out, math.Float64bits(f))
		}
		return v.pushValue(kindFloat, scalarCost)
	case opString:
		s, ok := unquote(p)
		if !ok {
			return v.broken("%.40q is not a quoted string", p)
		}
		v.writeHeader(kindString, int64(len(s)))
		v.write(s...)
		return v.pushValue(kindString, stringCost(int64(len(s))))
	case opUnicode:
		s, ok := rawUnicodeUnescape(p)
		if !ok {
			return v.broken("%.40q has an escape that is no character", p)
		}
		return v.text(s)
	case opPersID:
		if !utf8.Valid(p) {
			return v.broken("a persistent id is not text")
		}
		if v.emit {
			if err := v.charge(stringCost(int64(len(p)))); err != nil {
				return err
			}
			v.writeString(p)
		}
		return v.persistent(slot{kind: kindString}, 0)
	}
	i, err := strconv.ParseUint(string(p[:min(len(p), 11)]), 10, 32)
	if err != nil || len(p) > 10 {
		return v.broken("%.40q is not a memo index", p)
	}
	if op == opGet {
		return v.get(int64(i))
	}
	return v.put(int64(i))
}

// decimal checks INT and LONG. Python writes plain decimals; that it reads more than that has fooled scanners.
func (v *verifier) decimal(op byte, p []byte) error {
	if op == opInt && (string(p) == "00" || string(p) == "01") {
		v.write(opNewFalse - (p[1] - '0'))
		return v.push(slot{kind: kindBool})
	}
	text := p
	if op == opLong && len(p) > 0 && p[len(p)-1] == 'L' {
		p = p[:len(p)-1]
	}
	digits := p
	if len(p) > 0 && p[0] == '-' {
		digits = p[1:]
	}
	if len(digits) > maxLongDigits {
		return fault.New(fault.ErrLimit, v.at, "an integer of %d digits", len(digits))
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			digits = nil
			break
		}
	}
	if len(digits) == 0 {
		return v.broken("%.40q is not an integer", text)
	}
	if i, err := strconv.ParseInt(string(p), 10, 64); err == nil {
		return v.pushInt(i)
	}
	b, _ := new(big.Int).SetString(string(p), 10)
	return v.pushLong(twosComplement(b))
}

// twosComplement returns the little-endian bytes of b.
func twosComplement(b *big.Int) []byte {
	n := b.BitLen()/8 + 1
	if b.Sign() < 0 {
		b = new(big.Int).Add(b, new(big.Int).Lsh(big.NewInt(1), uint(8*n)))
	}
	p := b.FillBytes(make([]byte, n))
	for i, j := 0, len(p)-1; i < j; i, j = i+1, j-1 {
		p[i], p[j] = p[j], p[i]
	}
	return p
}

// parseFloat reads what Python's repr of a float gives.
func parseFloat(p []byte) (float64, bool) {
	switch string(p) {
	case "inf", "-inf", "nan":
	default:
		if len(p) > 40 {
			return 0, false
		}
		for _, c := range p {
			if (c < '0' || c > '9') && c != '.' && c != '-' && c != '+' && c != 'e' {
				return 0, false
			}
		}
	}
	f, err := strconv.ParseFloat(string(p), 64)
	return f, err == nil
}

// unquote reads the repr of a Python 2 str: quotes and backslash escapes. It gives the bytes as they are.
func unquote(p []byte) ([]byte, bool) {
	if len(p) < 2 || p[0] != p[len(p)-1] || p[0] != '\'' && p[0] != '"' {
		return nil, false
	}
	p = p[1 : len(p)-1]
	out := make([]byte, 0, len(p))
	for i := 0; i < len(p); i++ {
		if p[i] != '\\' {
			out = append(out, p[i])
			continue
		}
		if i++; i == len(p) {
			return nil, false
		}
		switch c := p[i]; c {
		case '\\', '\'', '"':
			out = append(out, c)
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'x':
			if i+2 >= len(p) {
				return nil, false
			}
			b, err := strconv.ParseUint(string(p[i+1:i+3]), 16, 8)
			if err != nil {
				return nil, false
			}
			out = append(out, byte(b))
			i += 2
		default:
			return nil, false // repr writes no other
		}
	}
	return out, true
}

// rawUnicodeUnescape reads Python's raw-unicode-escape: Latin-1 with \u and \U for the rest.
func rawUnicodeUnescape(p []byte) ([]byte, bool) {
	out := make([]byte, 0, len(p)+len(p)/8)
	for i := 0; i < len(p); i++ {
		if p[i] != '\\' || i+1 == len(p) {
			out = utf8.AppendRune(out, rune(p[i]))
			continue
		}
		i++
		n := 0
		switch p[i] {
		case 'u':
			n = 4
		case 'U':
			n = 8
		default:
			out = append(out, '\\')
			out = utf8.AppendRune(out, rune(p[i]))
			continue
		}
		if i+n >= len(p) {
			return nil, false
		}
		r, err := strconv.ParseUint(string(p[i+1:i+1+n]), 16, 32)
		if err != nil || r > utf8.MaxRune || !utf8.ValidRune(rune(r)) {
			return nil, false
		}
		out = utf8.AppendRune(out, rune(r))
		i += n
	}
	return out, true
}

// A utf8Check checks text that comes in pieces.
type utf8Check struct {
	part [utf8.UTFMax]byte // of a character that the last piece ended in
	n    int
}

// write takes the next piece and tells whether the text can still be UTF-8.
func (c *utf8Check) write(p []byte, last bool) bool {
	for c.n > 0 && len(p) > 0 {
		c.part[c.n] = p[0]
		c.n++
		p = p[1:]
		if utf8.FullRune(c.part[:c.n]) {
			if !utf8.Valid(c.part[:c.n]) {
				return false
			}
			c.n = 0
		}
	}
	for k := 1; k <= min(len(p), utf8.UTFMax-1); k++ {
		if tail := p[len(p)-k:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				c.n = copy(c.part[:], tail)
				p = p[:len(p)-k]
			}
			break
		}
	}
	return utf8.Valid(p) && (!last || c.n == 0)
}
