package pickle

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/optimem/optimem/loader/internal/fault"
)

// globalLines checks GLOBAL and INST, whose argument is two lines.
func (v *verifier) globalLines(op byte) error {
	p, err := v.in.line()
	if err != nil {
		return v.readError(err)
	}
	v.name = append(append(v.name[:0], p[:min(len(p), maxNameBytes+1)]...), '\n')
	if p, err = v.in.line(); err != nil {
		return v.readError(err)
	}
	v.name = append(v.name, p[:min(len(p), maxNameBytes+1)]...)
	i, err := v.find(v.name)
	if err != nil {
		return err
	}
	callable := slot{kind: kindGlobal, n: i}
	if op == opGlobal {
		v.writeGlobal(op, i)
		return v.push(callable)
	}
	args, err := v.sinceMark()
	if err != nil {
		return err
	}
	return v.applySince(op, callable, args)
}

// writeGlobal names a global to the machine by its index, so that the names gopickle knows by itself mean nothing.
func (v *verifier) writeGlobal(op byte, i uint32) {
	if v.emit {
		v.write(op, '\n')
		v.out = strconv.AppendUint(v.out, uint64(i), 10)
		v.write('\n')
	}
}

// stackGlobal checks STACK_GLOBAL, which is safe only where both names are literals that the verifier has seen.
func (v *verifier) stackGlobal() error {
	s, err := v.top(2)
	if err != nil {
		return err
	}
	module, name := v.recall(s[0]), v.recall(s[1])
	if module == nil || name == nil {
		err := v.complain(fault.ErrUnsafe, opStackGlobal, 0, 0, "STACK_GLOBAL with names that are not plain strings")
		if err != nil {
			return err
		}
		v.drop(2)
		return v.push(slot{kind: kindOpaque})
	}
	v.name = append(append(append(v.name[:0], module...), '\n'), name...)
	i, err := v.find(v.name)
	if err != nil {
		return err
	}
	v.write(opPop, opPop)
	v.writeGlobal(opGlobal, i)
	v.drop(2)
	return v.push(slot{kind: kindGlobal, n: i})
}

// remember keeps a string that may turn out to be a name, and returns where.
func (v *verifier) remember(p []byte) (uint32, error) {
	last := len(v.arena) - 1
	if last < 0 || len(v.arena[last])+len(p) > arenaChunk {
		if last == math.MaxUint16 {
			return 0, nil // such a pickle may have no further names
		}
		if err := v.charge(arenaCost); err != nil {
			return 0, err
		}
		v.arena = append(v.arena, make([]byte, 0, arenaChunk))
		last++
	}
	at := len(v.arena[last])
	v.arena[last] = append(v.arena[last], p...)
	return uint32(last*arenaChunk+at) + 1, nil
}

// recall returns a string that was remembered, and nil for any other value.
func (v *verifier) recall(s slot) []byte {
	if s.kind != kindString || s.ref == 0 {
		return nil
	}
	at := s.ref - 1
	return v.arena[at/arenaChunk][at%arenaChunk:][:s.n]
}

// find returns the index of the global whose module and name are in key, split by a newline.
func (v *verifier) find(key []byte) (uint32, error) {
	if i, ok := v.index[string(key)]; ok {
		return i, nil
	}
	g, err := parseGlobal(key)
	if err != nil {
		return 0, v.broken("%v", err)
	}
	if len(v.globals) == maxGlobals {
		return 0, fault.New(fault.ErrLimit, v.at, "more than %d globals", maxGlobals)
	}
	cost := globalCost + 2*int64(len(key))
	if err := v.charge(cost); err != nil {
		return 0, err
	}
	v.reportBytes += cost
	i := uint32(len(v.globals))
	entry := global{use: Use{Global: g, Class: v.opts.Policy(g), Offset: v.at}}
	if b, ok := pythonData[g]; ok && entry.use.Class == Data {
		entry.builtin = &b
	}
	v.globals = append(v.globals, entry)
	v.index[string(key)] = i
	if entry.use.Class != Data && entry.use.Class != Inert {
		err = v.complain(fault.ErrUnsafe, 'c', 0, i, "refused global %s", g)
	}
	return i, err
}

// parseGlobal splits and checks a module and a name.
func parseGlobal(key []byte) (Global, error) {
	for i, c := range key {
		if c == '\n' {
			g := Global{string(key[:i]), string(key[i+1:])}
			if !validName(g.Module) || !validName(g.Name) {
				return g, fmt.Errorf("%.100q is not the name of a global", key)
			}
			return g, nil
		}
	}
	return Global{}, fmt.Errorf("%.100q is not the name of a global", key)
}

// validName tells whether s can be a module or a qualified name: printable, without blanks, no empty component.
func validName(s string) bool {
	if s == "" || len(s) > maxNameBytes || !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if !unicode.IsPrint(r) || r == ' ' {
			return false
		}
	}
	return s[0] != '.' && s[len(s)-1] != '.' && !strings.Contains(s, "..")
}
