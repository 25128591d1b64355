package strictjson

// Bounds of the interner: what a file repeats is module stacks, op names and keys of some hundred bytes; the table
// starts again when it is full, so that it follows the part of the document being read.
const (
	internEntries   = 8 << 10
	internMaxBytes  = 4 << 10
	internEntryCost = 40
	stringCost      = 16
)

// An interner hands out one string for equal texts, as long as its table remembers.
type interner struct {
	table map[string]string
	most  int // entries the table has had at once, which are paid for
}

// get returns text as a string, the one handed out before if the table has it.
func (in *interner) get(d *Decoder, text []byte) (string, error) {
	if len(text) == 0 {
		return "", nil
	}
	if s, ok := in.table[string(text)]; ok {
		return s, nil
	}
	if err := d.charge(int64(len(text)) + stringCost); err != nil {
		return "", err
	}
	s := string(text)
	if len(s) > internMaxBytes {
		return s, nil
	}
	if in.table == nil {
		in.table = make(map[string]string)
	}
	if len(in.table) >= internEntries {
		clear(in.table)
	}
	in.table[s] = s
	if len(in.table) > in.most {
		in.most++
		if err := d.charge(internEntryCost); err != nil {
			return "", err
		}
	}
	return s, nil
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
