package cpu

import "sync"

// A memo keeps what was made for keys.
type memo[K comparable, V any] struct {
	mu sync.Mutex
	of map[K]V
}

// mostMade is how much a memo keeps.
const mostMade = 256

func newMemo[K comparable, V any]() *memo[K, V] { return &memo[K, V]{of: make(map[K]V)} }

// get returns what was made for a key, or makes it.
func (m *memo[K, V]) get(key K, made func() V) V {
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
