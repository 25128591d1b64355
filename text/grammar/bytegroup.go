package grammar

import "math/bits"

// byteGroups are bytes that rules mostly allow together or not at all, each less than 0x80 in one of them: what is below a node
// of the tree is known by its groups, so that a part of the tree that a rule allows whole is taken whole.
var byteGroups = [...]string{
	"abcdef", "ghijklmnopqrstuvwxyz", "ABCDEF", "GHIJKLMNOPQRSTUVWXYZ", "0123456789", " ", "\t\n\r", "()", "[]", "{}", "<>",
	"#$%&", "`~^|", "!", "\"", "'", "*", "+", ",", "-", ".", "/", ":", ";", "=", "?", "@", "\\", "_",
}

// otherGroup is the bit of all other bytes, which are never taken whole.
const otherGroup = 1 << len(byteGroups)

// groupOf has the bit of each byte's group.
var groupOf = func() (of [256]uint32) {
	for i := range of {
		of[i] = otherGroup
	}
	for g, all := range byteGroups {
		for i := range len(all) {
			of[all[i]] = 1 << g
		}
	}
	return of
}()

// afterGroup returns the one state to which every byte of a group leads, nil if they lead to several or if one leads nowhere.
func (e *Engine) afterGroup(s *state, group int) (*state, error) {
	if s.grouped>>group&1 != 0 {
		return s.groups[group], nil
	}
	var then *state
	for i := range len(byteGroups[group]) {
		next, err := e.step(s, byteGroups[group][i])
		if err != nil {
			return nil, err
		}
		if next == nil || i > 0 && next != then {
			then = nil
			break
		}
		then = next
	}
	if s.groups == nil {
		s.groups = new([len(byteGroups)]*state)
	}
	s.grouped |= 1 << group
	s.groups[group] = then
	return then, nil
}

// takes reports whether a state allows every text of so many bytes at most of some groups.
func (e *Engine) takes(s *state, groups uint32, bytes int) (bool, error) {
	if groups&otherGroup != 0 {
		return false, nil
	}
	for at := s; bytes > 0; bytes-- {
		var then *state
		for left := groups; left != 0; left &= left - 1 {
			next, err := e.afterGroup(at, bits.TrailingZeros32(left))
			if err != nil || next == nil || then != nil && next != then {
				return false, err
			}
			then = next
		}
		if then == at {
			return true, nil
		}
		at = then
	}
	return true, nil
}
