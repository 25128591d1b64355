package ops

import "sync"

// A Memo keeps what was made for keys.
type Memo[K comparable, V any] struct {
	mu sync.Mutex
	of map[K]V
}

// mostMade is how much a memo keeps.
const mostMade = 256

// NewMemo returns a memo of nothing yet.
func NewMemo[K comparable, V any]() *Memo[K, V] { return &Memo[K, V]{of: make(map[K]V)} }

// Get returns what was made for a key, or makes it.
func (m *Memo[K, V]) Get(key K, made func() V) V {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.of[key]
	if !ok {
		v = made()
		if len(m.of) >= mostMade { // programs choose the keys, so there is no end of them
			clear(m.of)
		}
		m.of[key] = v
	}
	return v
}
