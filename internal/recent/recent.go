// Package recent is a least-recently-used cache.
//
// It is for a few entries that are expensive to make: lookups are linear. It does not know what it holds; the caller of
// Put frees the evicted entry.
//
//	plans := recent.New[string, *Plan](16)
//	plans.Put("a", plan)
//	p, ok := plans.Get("a")
package recent

import (
	"iter"
	"slices"
)

// A Map keeps a number of entries at most. It must not be used by two goroutines at once.
type Map[K comparable, V any] struct {
	most int
	// entries are in the order in which they were used, the last one last.
	entries []entry[K, V]
}

type entry[K comparable, V any] struct {
	key   K
	value V
}

// New returns a map of at most so many entries.
func New[K comparable, V any](most int) *Map[K, V] { return &Map[K, V]{most: most} }

func (m *Map[K, V]) index(key K) int {
	return slices.IndexFunc(m.entries, func(e entry[K, V]) bool { return e.key == key })
}

// Get returns what is kept under a key, which is used by that.
func (m *Map[K, V]) Get(key K) (value V, ok bool) {
	i := m.index(key)
	if i < 0 {
		return value, false
	}
	e := m.entries[i]
	copy(m.entries[i:], m.entries[i+1:])
	m.entries[len(m.entries)-1] = e
	return e.value, true
}

// Put keeps a value under a key that is not there. Where there are too many then, the one that was not used for longest gives
// way and is returned.
func (m *Map[K, V]) Put(key K, value V) (old V, gone bool) {
	old, gone = m.MakeRoom()
	m.entries = append(m.entries, entry[K, V]{key, value})
	return old, gone
}

// MakeRoom has the entry that was not used for longest give way, if there is no room for one more, and returns it.
func (m *Map[K, V]) MakeRoom() (old V, gone bool) {
	if len(m.entries) < m.most {
		return old, false
	}
	old = m.entries[0].value
	m.entries = slices.Delete(m.entries, 0, 1)
	return old, true
}

// Delete forgets a key.
func (m *Map[K, V]) Delete(key K) {
	m.entries = slices.DeleteFunc(m.entries, func(e entry[K, V]) bool { return e.key == key })
}

// Clear forgets all.
func (m *Map[K, V]) Clear() {
	clear(m.entries)
	m.entries = m.entries[:0]
}

// Len returns how many entries there are.
func (m *Map[K, V]) Len() int { return len(m.entries) }

// All lists the entries, those first that were not used for longest. None is used by that.
func (m *Map[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for i := range m.entries {
			if !yield(m.entries[i].key, m.entries[i].value) {
				return
			}
		}
	}
}
