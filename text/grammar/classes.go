package grammar

import (
	"math/bits"
	"unicode/utf8"
)

// settle makes what matching needs to know of all nodes: which bytes no edge tells apart.
func (g *Grammar) settle() {
	var first [257]bool
	first[0], first[utf8.RuneSelf] = true, true
	for i := range g.nodes {
		for _, e := range g.nodes[i].bytes {
			first[e.lo], first[int(e.hi)+1] = true, true
		}
	}
	for b := range 256 {
		if first[b] {
			g.firsts = append(g.firsts, byte(b))
			if b < utf8.RuneSelf {
				g.chars = append(g.chars, charSet{})
			}
		}
		c := len(g.firsts) - 1
		g.classOf[b] = uint8(c)
		if b < utf8.RuneSelf {
			g.chars[c].ascii[b/64] |= 1 << (b % 64)
		}
	}
}

// A charSet is characters: each of ASCII by itself, all others together.
type charSet struct {
	ascii [2]uint64
	other uint32 // 0 or otherChars, and notChars for bytes that are no characters, which no rule has in its set
}

const (
	otherChars = 1
	notChars   = 2
)

// within reports whether another set has all of this one.
func (c *charSet) within(d *charSet) bool {
	return c.ascii[0]&^d.ascii[0]|c.ascii[1]&^d.ascii[1]|uint64(c.other&^d.other) == 0
}

// add adds the characters of another set.
func (c *charSet) add(d charSet) {
	c.ascii[0] |= d.ascii[0]
	c.ascii[1] |= d.ascii[1]
	c.other |= d.other
}

// weight is about how many characters of texts a set has.
func (c *charSet) weight() int {
	return bits.OnesCount64(c.ascii[0]) + bits.OnesCount64(c.ascii[1]) + 64*int(c.other&otherChars)
}

// hasByte reports whether a set has the character of a byte of ASCII, or characters of other bytes.
func (c *charSet) hasByte(b byte) bool {
	if b >= utf8.RuneSelf {
		return c.other&otherChars != 0
	}
	return c.ascii[b/64]>>(b%64)&1 != 0
}
