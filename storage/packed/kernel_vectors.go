//go:build (amd64 || arm64) && !noasm

package packed

// named is plain with the processor's vectors.
func (b *parts) named(p []byte) {
	var planes *byte
	if len(b.planes) > 0 {
		planes = &b.planes[0]
	}
	_, _ = b.low[b.groups*group-1], p[2*b.groups*group-1]
	if b.method == kindF16 {
		nameFloat16(&p[0], planes, &b.low[0], b.groups, b.bits, b.dictionary)
		return
	}
	var upper, lower [dictionary]byte
	for i, e := range b.dictionary {
		upper[i], lower[i] = e>>1, e<<7
	}
	nameBFloat16(&p[0], planes, &b.low[0], b.groups, b.bits, &upper, &lower)
}

// lowerBytes are the lower bytes of numbers, nil where there are none.
func (b *parts) lowerBytes(p, halves []byte) (lower [2]*byte) {
	for i, bytes := range b.lower {
		if bytes != nil {
			_ = bytes[b.groups*group-1]
			lower[i] = &bytes[0]
		}
	}
	_, _ = p[4*b.groups*group-1], halves[2*b.groups*group-1]
	return lower
}
