package generate

import "testing"

// TestSourcesGiveWay: sources that nobody uses go, the one used longest ago first, where another needs their place;
// what was not read is nobody's, and blocks are neither lost nor in two sources.
func TestSourcesGiveWay(t *testing.T) {
	s := newSources(6)
	text := func(id int) *Source { return &Source{Tokens: []int{id}} }
	a, b := s.take(text(1), 32, 1), s.take(text(2), 17, 2)
	if a == nil || b == nil || len(a.table) != 2 || len(b.table) != 2 || len(s.free) != 2 {
		t.Fatalf("%v and %v, %d free", a, b, len(s.free))
	}
	if s.take(text(3), 33, 3) != nil {
		t.Error("there is room for three blocks where there are two")
	}
	a.read, b.read = true, true
	if again := s.take(text(1), 32, 9); again != a || again.serial != 1 {
		t.Error("a source that is there is another")
	}
	s.release(a)
	if s.take(text(3), 33, 3) != nil {
		t.Error("a source in use gives way")
	}
	s.release(b)
	s.release(a) // used last
	c := s.take(text(3), 33, 3)
	if c == nil || s.held[text(2).keyOf()] != nil || s.held[text(1).keyOf()] != a {
		t.Fatal("it is not the one used longest ago that goes")
	}
	s.release(c) // which was not read
	if s.held[text(3).keyOf()] != nil || len(s.free) != 4 {
		t.Errorf("what was not read stays, %d blocks are free", len(s.free))
	}
	d := s.take(text(4), 96, 4)
	seen := make(map[int]bool)
	for _, i := range d.table {
		seen[i] = true
	}
	if len(seen) != 6 || len(s.free) != 0 || len(s.held) != 1 {
		t.Errorf("blocks %v, %d free, %d sources", d.table, len(s.free), len(s.held))
	}
}
