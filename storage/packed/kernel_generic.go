//go:build !(amd64 || arm64) || noasm

package packed

// level is the best way to decode that there is.
var level = inGo

func (b *parts) named(p []byte) { b.plain(p) }

func (b *parts) fast(p []byte) (used int, ok bool) {
	b.plain(p)
	return b.placeEscapes(p)
}

func (b *parts) fastJoin(p, halves []byte) { b.join(p, halves) }
