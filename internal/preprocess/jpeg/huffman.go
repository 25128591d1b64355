package jpeg

// A table is a Huffman code. It is prepared when a scan first uses it: files may define any number of them.
type table struct {
	counts  [16]byte // codes of each length, from 1 on
	symbols []byte   // in the order of their codes

	*lookup
}

// A lookup finds symbols in bits.
type lookup struct {
	// short has what the next bits mean, where shortBits say it: symbol << 8 | length of the code, or 0.
	short [1 << shortBits]uint16
	// whole has a symbol and the value that follows, where shortBits contain both: value << 16 | run << 8 | bits, or 0.
	whole [1 << shortBits]int32
	// Codes of a length are below its limit, both with 16 bits, and the symbol of one is at offset + code.
	limits  [17]uint32
	offsets [17]int32
}

const shortBits = 10

// newTable returns the code of a DHT segment that data begin with, and what follows it.
func newTable(data []byte) (t *table, rest []byte, err error) {
	if len(data) < 16 {
		return nil, nil, FormatError("a Huffman table is too short")
	}
	t = &table{}
	n := 0
	for i := range t.counts {
		t.counts[i] = data[i]
		n += int(data[i])
	}
	if n > 256 || n > len(data)-16 {
		return nil, nil, FormatError("a Huffman table has more symbols than there are")
	}
	t.symbols = append(t.symbols, data[16:16+n]...)
	return t, data[16+n:], nil
}

// prepare makes what decoding needs. A table for first coefficients has no symbols above 15.
func (t *table) prepare(first bool) error {
	if first {
		for _, s := range t.symbols {
			if s > 15 {
				return FormatError("a Huffman table has a symbol that is none")
			}
		}
	}
	if t.lookup != nil {
		return nil
	}
	l := new(lookup)
	code, next := uint32(0), 0
	for length := uint(1); length <= 16; length++ {
		l.offsets[length] = int32(next) - int32(code)
		for range t.counts[length-1] {
			if length <= shortBits {
				low := code << (shortBits - length)
				for i := range uint32(1) << (shortBits - length) {
					if int(low+i) < len(l.short) {
						l.short[low+i] = uint16(t.symbols[next])<<8 | uint16(length)
					}
				}
			}
			code++
			next++
		}
		// No code is all ones.
		if code >= 1<<length {
			return FormatError("a Huffman table has too many codes of a length")
		}
		l.limits[length] = code << (16 - length)
		code <<= 1
	}
	for i, e := range l.short {
		length, run, size := uint(e&0xff), int32(e>>12), uint(e>>8&15)
		if e == 0 || size == 0 || length+size > shortBits {
			continue
		}
		v := extend(int32(i)>>(shortBits-length-size)&(1<<size-1), size)
		l.whole[i] = v<<16 | run<<8 | int32(length+size)
	}
	t.lookup = l
	return nil
}

// long finds a symbol whose code is longer than shortBits in the next bits. A length of 0 means that there is none.
func (t *table) long(window uint64) (symbol byte, length uint) {
	code := uint32(window >> 48)
	for length = shortBits + 1; length <= 16; length++ {
		if code < t.limits[length] {
			return t.symbols[t.offsets[length]+int32(code>>(16-length))], length
		}
	}
	return 0, 0
}

// symbol takes the next symbol.
func (s *source) symbol(t *table) (byte, error) {
	if s.count < 32 {
		s.refill()
	}
	e := t.short[s.window>>(64-shortBits)]
	symbol, length := byte(e>>8), uint(e&0xff)
	if e == 0 {
		if symbol, length = t.long(s.window); length == 0 {
			return 0, errCode
		}
	}
	s.window <<= length
	s.count -= length
	return symbol, nil
}

const errCode = FormatError("the data of a scan make no sense")
