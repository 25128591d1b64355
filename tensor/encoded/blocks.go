package encoded

// In blocks of 32 codes of 4 bits, a byte's low half is of the first sixteen and its high half of the others. Products are
// rounded before a minimum is added to them, as NumPy does: float32(…) keeps compilers from making one operation of both.

// decodeQ40 is d × (code − 8).
func decodeQ40(to []float32, b []byte) {
	d := half(b)
	for i, c := range b[2:18] {
		to[i] = d * float32(int8(c&15)-8)
		to[i+16] = d * float32(int8(c>>4)-8)
	}
}

// decodeQ41 is d × code + m.
func decodeQ41(to []float32, b []byte) {
	d, m := half(b), half(b[2:])
	for i, c := range b[4:20] {
		to[i] = float32(d*float32(c&15)) + m
		to[i+16] = float32(d*float32(c>>4)) + m
	}
}

// decodeQ50 is d × (code − 16), whose fifth bits are together.
func decodeQ50(to []float32, b []byte) {
	d, high := half(b), double(b[2:])
	for i, c := range b[6:22] {
		to[i] = d * float32(int8(c&15|uint8(high>>i&1)<<4)-16)
		to[i+16] = d * float32(int8(c>>4|uint8(high>>(i+16)&1)<<4)-16)
	}
}

// decodeQ51 is d × code + m, whose fifth bits are together.
func decodeQ51(to []float32, b []byte) {
	d, m, high := half(b), half(b[2:]), double(b[4:])
	for i, c := range b[8:24] {
		to[i] = float32(d*float32(c&15|uint8(high>>i&1)<<4)) + m
		to[i+16] = float32(d*float32(c>>4|uint8(high>>(i+16)&1)<<4)) + m
	}
}

// decodeQ80 is d × code.
func decodeQ80(to []float32, b []byte) {
	d := half(b)
	for i, c := range b[2:34] {
		to[i] = float32(int8(c)) * d
	}
}

// tableIQ4 are the numbers of the codes of IQ4_NL and IQ4_XS.
var tableIQ4 = [16]float32{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

// decodeIQ4NL is d × table[code].
func decodeIQ4NL(to []float32, b []byte) { lookUp(to, b[2:18], half(b), &tableIQ4) }

// tableMXFP4 are twice the numbers of the codes of MXFP4.
var tableMXFP4 = [16]float32{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}

// decodeMXFP4 is 2^(e − 127) × number, of which the table has twice.
func decodeMXFP4(to []float32, b []byte) { lookUp(to, b[1:17], halfPower(b[0]), &tableMXFP4) }

// lookUp decodes 32 codes that stand for the numbers of a table.
func lookUp(to []float32, codes []byte, d float32, table *[16]float32) {
	for i, c := range codes {
		to[i] = d * table[c&15]
		to[i+16] = d * table[c>>4]
	}
}
