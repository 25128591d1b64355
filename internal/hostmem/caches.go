package hostmem

import "sync"

// Caches are used bit by bit: the system gives a page of their memory when something is written to it first. They begin with small
// pages, so that what is not used takes nothing, and [Buf.Settle] makes huge ones of what is full.

// caches are the buffers for caches, and what each has.
var caches struct {
	mu sync.Mutex
	of map[*Buf][]byte
}

// note keeps what a buffer for caches has, nil of one that is to be freed.
func (b *Buf) note(data []byte) {
	if b.purpose != Caches {
		return
	}
	b.huge = b.huge[:min(len(b.huge), len(data)/hugeBytes)]
	caches.mu.Lock()
	defer caches.mu.Unlock()
	if data == nil {
		delete(caches.of, b)
		return
	}
	if caches.of == nil {
		caches.of = make(map[*Buf][]byte)
	}
	caches.of[b] = data
}

// Unwritten is how many bytes of caches the system has not given yet, and believes that others can have. Where it does not tell,
// these are all caches.
func Unwritten() (bytes int64) {
	caches.mu.Lock()
	defer caches.mu.Unlock()
	for _, data := range caches.of {
		bytes += unwritten(data)
	}
	return bytes
}

// Settle has those parts of a buffer for caches lie in huge pages, which are read faster, that are full by now. What they hold
// stays, and they take no more than before.
func (b *Buf) Settle() {
	if b.purpose != Caches || len(b.data) < hugeBytes {
		return
	}
	for k := range len(b.data) / hugeBytes {
		if k == len(b.huge) {
			b.huge = append(b.huge, false)
		}
		part := b.data[k*hugeBytes:][:hugeBytes]
		if b.huge[k] || unwritten(part[hugeBytes-int(pageBytes):]) > 0 || unwritten(part) > 0 {
			continue
		}
		collapse(part)
		b.huge[k] = true
	}
}
