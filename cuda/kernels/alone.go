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
		end := bytes.Index(rest[begin:], []byte("\n}\n"))
		if end < 0 {
			return nil, fmt.Errorf("a kernel beside %s has no end", kernel)
		}
		end += begin + len("\n}\n")
		alone = append(alone, rest[:begin]...)
		if bytes.HasPrefix(rest[begin+len(head):], append([]byte(kernel), '(')) {
			alone, found = append(alone, rest[begin:end]...), true
		}
		rest = rest[end:]
	}
}
