package kernels

import (
	"bytes"
	"fmt"
)

// Alone returns an image with one kernel of those that it has, and all that is no kernel: an assembler takes about the time that the
// kernel needs by itself. What kernels call is theirs, and they share no variables that change.
func Alone(image []byte, kernel string) ([]byte, error) {
	head := []byte(entryHead)
	alone, found := make([]byte, 0, len(image)), false
	for rest := image; ; {
		begin := bytes.Index(rest, head)
		if begin < 0 {
			if !found {
				return nil, fmt.Errorf("the image has no kernel %s", kernel)
			}
			return append(alone, rest...), nil
		}
		size := bodyEnd(rest[begin:])
		if size < 0 {
			return nil, fmt.Errorf("a kernel beside %s has no end", kernel)
		}
		alone = append(alone, rest[:begin]...)
		if bytes.HasPrefix(rest[begin+len(head):], append([]byte(kernel), '(')) {
			alone, found = append(alone, rest[begin:begin+size]...), true
		}
		rest = rest[begin+size:]
	}
}

// bodyEnd returns where the body that text begins with ends, with the end of its last line; −1 if it does not. Braces within it are
// those of scopes and of operands.
func bodyEnd(text []byte) int {
	depth, at := 0, 0
	for line := range bytes.Lines(text) {
		opened := bytes.Count(line, []byte("{"))
		depth += opened - bytes.Count(line, []byte("}"))
		at += len(line)
		if depth == 0 && opened == 0 && bytes.Equal(line, []byte("}\n")) {
			return at
		}
	}
	return -1
}
