// Package told reads what NVIDIA's assembler, ptxas -v, tells of kernels.
package told

import (
	"regexp"
	"strconv"
	"strings"
)

// A Use is what a kernel takes of an architecture: registers, bytes of each thread's own memory, and of these what is spilled by
// stores and by loads.
type Use struct{ Registers, Frame, Stores, Loads int }

var (
	entryLine    = regexp.MustCompile(`Compiling entry function '(\w+)'`)
	propertyLine = regexp.MustCompile(`Function properties for (\w+)`)
	frameLine    = regexp.MustCompile(`(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads`)
	usedLine     = regexp.MustCompile(`Used (\d+) registers`)
)

// Parse returns the use of each kernel. A function that one calls counts with it.
func Parse(text string) map[string]Use {
	uses := make(map[string]Use)
	entry := ""
	for line := range strings.Lines(text) {
		if m := entryLine.FindStringSubmatch(line); m != nil {
			entry = m[1]
			uses[entry] = Use{}
		} else if propertyLine.MatchString(line) || entry == "" {
			continue
		} else if m := frameLine.FindStringSubmatch(line); m != nil {
			u := uses[entry]
			u.Frame, u.Stores, u.Loads = max(u.Frame, number(m[1])), u.Stores+number(m[2]), u.Loads+number(m[3])
			uses[entry] = u
		} else if m := usedLine.FindStringSubmatch(line); m != nil {
			u := uses[entry]
			u.Registers = number(m[1])
			uses[entry] = u
		}
	}
	return uses
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return n
}
