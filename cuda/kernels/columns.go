package kernels

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// PTX repeats itself but for its numbers: those of registers, of labels and of parameters, and offsets. So it is stored
// in columns, of which compression makes half of what it makes of the text: each different line once, with holes for
// the numbers; which line comes when; and for each kind of number a column of the differences between one and the next.

// hole stands in a line for a number.
const hole = 0

// maxDigits is what a number in a column may have, so that all fit in an int.
const maxDigits = 9

// errColumns is the error of what [join] cannot read.
var errColumns = errors.New("the columns of an image do not fit together")

// numbers are a column: what it holds, and the last number that went in or came out.
type numbers struct {
	bytes []byte
	last  int
}

// split returns text as columns.
func split(text []byte) ([]byte, error) {
	if bytes.IndexByte(text, hole) >= 0 {
		return nil, errors.New("the image has a zero byte")
	}
	var order, forms, form []byte
	columns := make(map[string]*numbers)
	places := make(map[string]int)
	for line := range bytes.SplitSeq(text, []byte("\n")) {
		form = form[:0]
		for i := 0; i < len(line); {
			n := number(line[i:])
			kind := kindOf(line[:i])
			if n == 0 || kind == "" {
				form = append(form, line[i])
				i++
				continue
			}
			if columns[kind] == nil {
				columns[kind] = new(numbers)
			}
			c, value := columns[kind], 0
			for _, digit := range line[i : i+n] {
				value = value*10 + int(digit-'0')
			}
			c.bytes = binary.AppendVarint(c.bytes, int64(value-c.last))
			c.last = value
			form = append(form, hole)
			i += n
		}
		place, ok := places[string(form)]
		if !ok {
			place = len(places)
			places[string(form)] = place
			forms = append(append(forms, form...), '\n')
		}
		order = binary.AppendUvarint(order, uint64(place))
	}
	packed := appendPart(appendPart(nil, forms), order)
	for _, kind := range slices.Sorted(maps.Keys(columns)) {
		packed = appendPart(appendPart(packed, []byte(kind)), columns[kind].bytes)
	}
	return packed, nil
}

// join returns the text that [split] was given, if it has no more than limit bytes.
func join(packed []byte, limit int) ([]byte, error) {
	var parts [][]byte
	for len(packed) > 0 {
		size, n := binary.Uvarint(packed)
		if n <= 0 || size > uint64(len(packed)-n) {
			return nil, errColumns
		}
		parts = append(parts, packed[n:n+int(size)])
		packed = packed[n+int(size):]
	}
	if len(parts) < 2 || len(parts)%2 != 0 {
		return nil, errColumns
	}
	forms, order := bytes.Split(parts[0], []byte("\n")), parts[1]
	columns := make(map[string]*numbers)
	for i := 2; i < len(parts); i += 2 {
		columns[string(parts[i])] = &numbers{bytes: parts[i+1]}
	}
	var text []byte
	for len(order) > 0 {
		place, n := binary.Uvarint(order)
		if n <= 0 || place >= uint64(len(forms)) {
			return nil, errColumns
		}
		order = order[n:]
		begin := len(text)
		for _, char := range forms[place] {
			if char != hole {
				text = append(text, char)
				continue
			}
			c := columns[kindOf(text[begin:])]
			if c == nil {
				return nil, errColumns
			}
			step, n := binary.Varint(c.bytes)
			if n <= 0 {
				return nil, errColumns
			}
			c.bytes, c.last = c.bytes[n:], c.last+int(step)
			text = fmt.Appendf(text, "%d", c.last)
		}
		if len(text) > limit {
			return nil, fmt.Errorf("the image has more than %d bytes", limit)
		}
		text = append(text, '\n')
	}
	return bytes.TrimSuffix(text, []byte("\n")), nil
}

func appendPart(to, part []byte) []byte {
	return append(binary.AppendUvarint(to, uint64(len(part))), part...)
}

// number returns how many digits line begins with, and 0 where they are no number that a column takes.
func number(line []byte) int {
	n := 0
	for n < len(line) && isDigit(line[n]) {
		n++
	}
	switch {
	case n == 0 || n > maxDigits || n > 1 && line[0] == '0':
		return 0
	case n < len(line) && (isLetter(line[n]) || line[n] == '.'):
		return 0
	}
	return n
}

// kindOf returns which column a number is in by what stands before it in its line: the class of a register, as in %rd,
// or the last character; "" if it stays where it is.
func kindOf(before []byte) string {
	i := len(before)
	for i > 0 && isLetter(before[i-1]) {
		i--
	}
	switch {
	case i > 0 && before[i-1] == '%':
		return string(before[i-1:])
	case i == len(before) && i > 0 && !isDigit(before[i-1]):
		return string(before[i-1:])
	case bytes.HasSuffix(before, []byte("BB")):
		return "BB"
	}
	return ""
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
