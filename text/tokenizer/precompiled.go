package tokenizer

import (
	"encoding/binary"
	"strings"
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

// precompiled is sentencepiece's table of replacements: a double array of what is replaced, whose values are places in a
// text where replacements stand, each up to a zero.
type precompiled struct {
	units []uint32
	texts string
}

func newPrecompiled(data []byte, path string) (*precompiled, error) {
	if len(data) < 4 {
		return nil, format(path, "%d bytes", len(data))
	}
	size := binary.LittleEndian.Uint32(data)
	data = data[4:]
	if uint64(size)/4*4 > uint64(len(data)) {
		return nil, format(path, "a table of %d bytes in %d", size, len(data))
	}
	p := &precompiled{units: make([]uint32, size/4)}
	for i := range p.units {
		p.units[i] = binary.LittleEndian.Uint32(data[4*i:])
	}
	p.texts = string(data[size/4*4:])
	if len(p.units) == 0 || !utf8.ValidString(p.texts) {
		return nil, format(path, "no table, or replacements that are not UTF-8")
	}
	return p, nil
}

func unitOffset(u uint32) uint32 { return u >> 10 << (u & (1 << 9) >> 6) }

// lookup returns the replacement of the shortest entry that key begins with.
func (p *precompiled) lookup(key string) (string, bool) {
	at := unitOffset(p.units[0])
	for i := range len(key) {
		b := key[i]
		if b == 0 {
			return "", false
		}
		if at ^= uint32(b); int64(at) >= int64(len(p.units)) {
			return "", false
		}
		u := p.units[at]
		if u&(1<<31|0xFF) != uint32(b) {
			return "", false
		}
		at ^= unitOffset(u)
		if u>>8&1 == 0 {
			continue
		}
		if int64(at) >= int64(len(p.units)) {
			return "", false
		}
		from := int64(p.units[at] & (1<<31 - 1))
		if from > int64(len(p.texts)) || from < int64(len(p.texts)) && !utf8.RuneStart(p.texts[from]) {
			return "", false
		}
		text, _, _ := strings.Cut(p.texts[from:], "\x00")
		return text, true
	}
	return "", false
}

// longestCluster is how long, in bytes, a cluster of characters may be that is looked up as a whole.
const longestCluster = 5

// maxSpread bounds how many characters there may be for a byte.
const maxSpread = 32

func (p *precompiled) normalize(r *run, s *piece) error {
	out := r.changes[:0]
	changed := false
	put := func(old, text string) {
		changed = true
		more := utf8.RuneCountInString(text) - utf8.RuneCountInString(old)
		for _, c := range text {
			out = append(out, change{c, 0})
		}
		// The last of them are the ones that were added, or take what was removed.
		for i := len(out) - 1; i >= 0 && i >= len(out)-more; i-- {
			out[i].by = 1
		}
		if more < 0 && len(out) > 0 {
			out[len(out)-1].by += int32(more)
		}
	}
	text := s.text
	for len(text) > 0 {
		cluster := text[:1]
		if text[0] >= utf8.RuneSelf || len(text) > 1 && (text[1] >= utf8.RuneSelf || text[0] == '\r') {
			cluster, _, _, _ = uniseg.FirstGraphemeClusterInString(text, -1)
		}
		text = text[len(cluster):]
		if len(out) > maxSpread*(len(s.text)+16) {
			return &TextError{"longer by far once normalized"}
		}
		if len(cluster) <= longestCluster {
			if with, ok := p.lookup(cluster); ok {
				put(cluster, with)
				continue
			}
		}
		for i, c := range cluster {
			one := cluster[i : i+utf8.RuneLen(c)]
			if with, ok := p.lookup(one); ok {
				put(one, with)
			} else {
				out = append(out, change{c, 0})
			}
		}
	}
	if changed {
		s.transform(out, 0)
	}
	r.changes = out
	return nil
}
