package pickle

import "encoding/binary"

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

// put stores the top of the stack in the memo. A load keeps only what a GET fetches later.
func (v *verifier) put(i int64) error {
	top, err := v.top(1)
	if err != nil {
		return err
	}
	// Writers number their memo as they write, some from 1, some with gaps: never beyond the opcodes so far.
	if i < 0 || i > v.ops {
		return v.broken("memo index %d after %d opcodes", i, v.ops)
	}
	fresh, err := v.written.add(v, i)
	if err != nil {
		return err
	}
	if fresh {
		v.puts++
	}
	place := i
	if v.emit {
		if !v.fetched.has(i) {
			return nil
		}
		// The value lives on in the machine's memo, so what it is part of cannot be counted as freed.
		top[0].shared = true
		j, ok := v.memoIndex[uint32(i)]
		if !ok {
			if err := v.charge(memoCost); err != nil {
				return err
			}
			if v.memoIndex == nil {
				v.memoIndex = make(map[uint32]uint32)
			}
			j = memoFree + uint32(len(v.memoIndex))
			v.memoIndex[uint32(i)] = j
		}
		v.writeMemo(opBinPut, opLongBinPut, j)
		place = int64(j)
	}
	if n := int(place) + 1; n > len(v.memo) {
		if n > cap(v.memo) {
			if v.memo, err = v.grow(v.memo, n-len(v.memo)); err != nil {
				return err
			}
		}
		v.memo = v.memo[:n]
	}
	v.memo[place] = top[0]
	return nil
}

// get pushes a memo slot.
func (v *verifier) get(i int64) error {
	if !v.written.has(i) {
		return v.broken("memo index %d was never put", i)
	}
	place := i
	if v.emit {
		j, ok := v.memoIndex[uint32(i)]
		if !ok {
			return v.broken("the file changed while it was read")
		}
		v.writeMemo(opBinGet, opLongBinGet, j)
		place = int64(j)
	} else if _, err := v.fetched.add(v, i); err != nil {
		return err
	}
	s := v.memo[place]
	s.shared = true
	return v.push(s)
}

// A bitSet is a set of memo indexes.
type bitSet []uint64

func (b bitSet) has(i int64) bool {
	return i >= 0 && i/64 < int64(len(b)) && b[i/64]&(1<<(i%64)) != 0
}

// bytes is what the set holds.
func (b bitSet) bytes() int64 { return int64(cap(b)) * 8 }

// add adds i ≥ 0 and tells whether it is new.
func (b *bitSet) add(v *verifier, i int64) (bool, error) {
	if n := int(i/64) + 1; n > len(*b) {
		if n > cap(*b) {
			room := max(2*cap(*b), n, 16)
			if err := v.charge(int64(room) * 8); err != nil {
				return false, err
			}
			v.credit += b.bytes()
			*b = append(make(bitSet, 0, room), *b...)
		}
		*b = (*b)[:n]
	}
	word, bit := &(*b)[i/64], uint64(1)<<(i%64)
	fresh := *word&bit == 0
	*word |= bit
	return fresh, nil
}
