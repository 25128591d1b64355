package kernel

import "sync"

// FewPays reports whether a product of few rows by an element takes less time with Few than with Multiply. On processors of
// AMD's Zen 5, pairs are read faster as one stream.
func (s *Set) FewPays(e Element) bool {
	return e != Pairs || !zen5()
}

// FetchingPays reports whether turning rows of a few hundred bytes, which lie in memory far from each other, takes less time
// where what follows them is fetched by [FetchRows] meanwhile. Zen 5 takes 0.6 of the time then; on Intel's processors it is
// as much or a little more.
func FetchingPays() bool { return zen5() }

var zen5 = sync.OnceValue(func() bool {
	const family = 0x1a
	p := identify()
	return p.vendor == "AuthenticAMD" && p.family >= family
})

// A processor is who made it, as it spells that, and which of the maker's families it is of; the zero value is not known.
type processor struct {
	vendor string
	family int
}

// familyOf returns the family that the register EAX of CPUID's leaf 1 names.
func familyOf(a uint32) int {
	const most = 0xf // from there on a second field adds to the first
	family := int(a >> 8 & most)
	if family == most {
		family += int(a >> 20 & 0xff)
	}
	return family
}
