package strictjson

import "hash/maphash"

// Bounds of the interner: what a file repeats is module stacks, op names and keys of some hundred bytes, mostly near
// to each other.
const (
	internMinEntries = 32
	internMaxEntries = 8 << 10
	internMaxBytes   = 4 << 10
	stringCost       = 16
)

// An interner hands out one string for equal texts, as long as its table remembers. A text has one place in the table
// and drives out what was there, so that a lookup is one comparison, and a file made of collisions gains nothing but
// strings that are not shared.
type interner struct {
	seed   maphash.Seed
	table  []string // its length is a power of two
	stored int      // since the table grew
}

// get returns text as a string, the one handed out before if the table has it.
func (in *interner) get(d *Decoder, text []byte) (string, error) {
	if len(text) == 0 {
		return "", nil
	}
	if len(text) > internMaxBytes {
		if err := d.charge(int64(len(text)) + stringCost); err != nil {
			return "", err
		}
		return string(text), nil
	}
	if in.stored >= len(in.table) && len(in.table) < internMaxEntries {
		if err := in.grow(d); err != nil {
			return "", err
		}
	}
	place := in.place(text)
	if s := *place; s == string(text) {
		return s, nil
	}
	if err := d.charge(int64(len(text)) + stringCost); err != nil {
		return "", err
	}
	*place = string(text)
	in.stored++
	return *place, nil
}

func (in *interner) place(text []byte) *string {
	return &in.table[maphash.Bytes(in.seed, text)&uint64(len(in.table)-1)]
}

// grow gives the table room for four times as many texts.
func (in *interner) grow(d *Decoder) error {
	old := in.table
	if old == nil {
		in.seed = maphash.MakeSeed()
	}
	n := max(internMinEntries, 4*len(old))
	if err := d.charge(stringCost * int64(n)); err != nil {
		return err
	}
	in.table = make([]string, n)
	in.stored = 0
	for _, s := range old {
		if s != "" {
			*in.place([]byte(s)) = s
			in.stored++
		}
	}
	return nil
}

// A keySet finds keys that an object has twice. A small object's keys lie on the decoder's stack and are compared one
// by one; a large one's go to a map.
type keySet struct {
	first   int // index in Decoder.keys of the object's first key
	large   map[string]struct{}
	charged int64 // keys of large that were charged
}

const (
	smallObject  = 12
	largeKeyCost = 40
)

// add adds key and reports whether it was there.
func (s *keySet) add(d *Decoder, key string) (dup bool, err error) {
	if s.large == nil {
		keys := d.keys[s.first:]
		for _, k := range keys {
			if k == key {
				return true, nil
			}
		}
		if len(keys) < smallObject {
			d.keys = append(d.keys, key)
			return false, nil
		}
		s.large = make(map[string]struct{}, 4*smallObject)
		for _, k := range keys {
			s.large[k] = struct{}{}
		}
	}
	n := len(s.large)
	s.large[key] = struct{}{}
	if len(s.large) == n {
		return true, nil
	}
	s.charged++
	return false, d.charge(largeKeyCost)
}
