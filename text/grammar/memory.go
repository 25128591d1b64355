package grammar

import (
	goruntime "runtime"
	"slices"
	"sync"
	"unsafe"
	"weak"
)

// Memory of the heap is counted as it is asked for, rounded up: an entry of a map, or a small object, with what surrounds it.
const (
	stateBytes = int64(unsafe.Sizeof(state{})+unsafe.Sizeof(run{})) + 160 // without places and what follows
	placeBytes = int64(unsafe.Sizeof(item{})) + 8 + 8                     // and its part of the key
	frameBytes = 2*int64(unsafe.Sizeof(frame{})) + 48
	localBytes = int64(unsafe.Sizeof(local{})+unsafe.Sizeof(localKey{})) + 64
	cutBytes   = 2*int64(unsafe.Sizeof(charSet{})) + int64(unsafe.Sizeof(cut{})) + 64
)

// learned is what the engines of a vocabulary hold of what they found. One of them works at a time.
type learned struct {
	mu sync.Mutex
	// most is what they may hold together, in bytes. A call that finds more there has those forget that were used least recently, and
	// may add as much again.
	most    int64
	held    int64
	engines []*holding // that which was used last is last
}

// A holding is what one engine holds.
type holding struct {
	engine weak.Pointer[Engine]
	bytes  int64
}

// begin makes the account of a vocabulary: an engine that is the only one has room for as many masks as it may keep.
func (v *Vocabulary) begin() {
	const states = 2 << 20
	v.learned.most = states + maxMasks*v.maskBytes()
}

func (v *Vocabulary) maskBytes() int64 { return int64(len(v.tokens)+63) / 64 * 8 }

// Bytes is what the vocabulary takes, with what grammars share of what was found, and what all its engines hold together, at most.
// The grammars themselves are beside it ([Grammar.Bytes]).
func (v *Vocabulary) Bytes() int64 {
	n := int64(len(v.tokens)) * int64(unsafe.Sizeof([]byte(nil)))
	for _, t := range v.tokens {
		n += int64(len(t)+7) &^ 7
	}
	n += sliceBytes(v.tree) + sliceBytes(v.ids) + sliceBytes(v.sets) + sliceBytes(v.behind) + sliceBytes(v.tall) + sliceBytes(v.whole)
	for _, from := range v.from {
		n += sliceBytes(from)
	}
	n += sliceBytes(v.tallFrom) + int64(unsafe.Sizeof(*v))
	return n + maxCuts*(cutBytes+v.maskBytes()+int64(len(v.sets)+63)/64*8) + 2*v.learned.most
}

// MostBytes is what [Vocabulary.Bytes] of these tokens will be at most.
func MostBytes(tokens [][]byte) int64 {
	v := Vocabulary{tokens: tokens}
	v.begin()
	nodes := int64(1)
	var last []byte
	for _, id := range sorted(tokens) {
		t := tokens[id]
		nodes += int64(len(t) - same(t, last))
		last = t
	}
	charSets := int64(unsafe.Sizeof(charSet{}))
	each := int64(unsafe.Sizeof(treeNode{})+unsafe.Sizeof(behind{})) + charSets + maxCuts/8 + 1
	const ids = 4 + 4 + 8 // by their bytes and by their characters, where each begins
	return v.Bytes() + nodes*each + int64(len(tokens))*(charSets+ids)
}

// Bytes is what a grammar takes, with an [Engine] of it that has found nothing.
func (g *Grammar) Bytes() int64 {
	n := int64(unsafe.Sizeof(*g)+unsafe.Sizeof(Engine{})) + 4*int64(len(g.nodes)) + sliceBytes(g.nodes) + sliceBytes(g.firsts) + sliceBytes(g.chars)
	for i := range g.nodes {
		x := &g.nodes[i]
		n += sliceBytes(x.bytes) + sliceBytes(x.free) + sliceBytes(x.calls) + sliceBytes(x.wide)
	}
	return n
}

// sliceBytes is what the elements of a slice take.
func sliceBytes[T any](s []T) int64 {
	var one T
	return (int64(cap(s))*int64(unsafe.Sizeof(one)) + 7) &^ 7
}

// open has an engine hold something from now on.
func (l *learned) open(e *Engine) {
	h := &holding{engine: weak.Make(e)}
	e.holding = h
	l.mu.Lock()
	l.engines = append(l.engines, h)
	l.mu.Unlock()
	goruntime.AddCleanup(e, l.close, h)
}

// close forgets an engine that nobody has any more.
func (l *learned) close(h *holding) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held -= h.bytes
	h.bytes = 0
	l.engines = slices.DeleteFunc(l.engines, func(x *holding) bool { return x == h })
}

// use says that an engine is used now, and has others, and then it itself, forget while all hold too much.
func (l *learned) use(e *Engine) {
	if last := len(l.engines) - 1; l.engines[last] != e.holding {
		i := slices.Index(l.engines, e.holding)
		copy(l.engines[i:], l.engines[i+1:])
		l.engines[last] = e.holding
	}
	for _, h := range l.engines {
		if l.held <= l.most {
			return
		}
		if x := h.engine.Value(); x != nil && h != e.holding {
			x.forget()
		}
	}
}

// hold counts bytes of an engine, less of them where they are negative.
func (e *Engine) hold(bytes int64) {
	e.holding.bytes += bytes
	e.v.learned.held += bytes
}
