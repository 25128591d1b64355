package recent

import (
	"maps"
	"testing"
)

// TestMap: what was used last stays, by whichever of the methods that use it.
func TestMap(t *testing.T) {
	m := New[string, int](3)
	for i, key := range []string{"a", "b", "c"} {
		if _, gone := m.Put(key, i); gone {
			t.Errorf("%s took the place of another", key)
		}
	}
	if v, ok := m.Get("a"); v != 0 || !ok {
		t.Errorf("a is %d, %v", v, ok)
	}
	if old, gone := m.Put("d", 3); old != 1 || !gone {
		t.Errorf("d took the place of %d, %v, want that of b", old, gone)
	}
	for range m.All() { // uses none
	}
	if old, gone := m.Put("e", 4); old != 2 || !gone {
		t.Errorf("e took the place of %d, %v, want that of c", old, gone)
	}
	if _, ok := m.Get("c"); ok || m.Len() != 3 {
		t.Errorf("%v", maps.Collect(m.All()))
	}
	m.Delete("a")
	if got := maps.Collect(m.All()); !maps.Equal(got, map[string]int{"d": 3, "e": 4}) {
		t.Errorf("%v", got)
	}
	m.Clear()
	if _, gone := m.Put("f", 5); gone || m.Len() != 1 {
		t.Errorf("%v", maps.Collect(m.All()))
	}
}
