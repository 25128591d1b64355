package packed

// Ways to decode, from the slowest on.
const (
	// inGo is plain Go.
	inGo = iota
	// withVectors has vectors of bytes that are looked up in tables of 16: AVX2, NEON. Exponents that are elsewhere
	// come to their places one by one.
	withVectors
	// withExpand has vectors of 64 bytes, and puts exponents to their places many at a time: AVX-512 for bytes, with
	// VBMI2.
	withExpand
)
