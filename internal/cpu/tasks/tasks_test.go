package tasks

import (
	"sync"
	"testing"
)

// serial does the parts of a task one after the other.
type serial struct{}

func (serial) Do(n, grain int, task Task) {
	for i := 0; i < n; i += grain {
		task.Run(i, min(i+grain, n))
	}
}

type sum struct {
	x  []int
	to *int
}

func (s *sum) Run(from, to int) {
	for _, v := range s.x[from:to] {
		*s.to += v
	}
}

// A nested task does another of its own type within each part.
type nested struct {
	depth int
	runs  *int
}

func (t *nested) Run(from, to int) {
	*t.runs++
	if t.depth > 0 {
		Do(serial{}, 1, 1, nested{t.depth - 1, t.runs})
	}
	if t.runs == nil {
		panic("a task within took the memory of this one")
	}
}

func TestDo(t *testing.T) {
	x := []int{1, 2, 3, 4, 5}
	got := 0
	pass := func() {
		got = 0
		Do(serial{}, len(x), 2, sum{x, &got})
	}
	pass()
	if got != 15 {
		t.Errorf("got %d", got)
	}
	if n := testing.AllocsPerRun(100, pass); n != 0 {
		t.Errorf("%v allocations", n)
	}
	runs := 0
	Do(serial{}, 3, 1, nested{2, &runs})
	if runs != 9 {
		t.Errorf("%d parts ran, want 9", runs)
	}
	if kept := Take[sum](); kept.x != nil || kept.to != nil {
		t.Error("what a task referred to is kept")
	}
}

// Tasks of one type at the same time have memory of their own.
func TestTogether(t *testing.T) {
	x := make([]int, 1000)
	for i := range x {
		x[i] = 1
	}
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for range 200 {
				got := 0
				if Do(serial{}, len(x), 100, sum{x, &got}); got != len(x) {
					t.Errorf("got %d", got)
					return
				}
			}
		})
	}
	wait.Wait()
}

// What was given back is taken again, and never by another type, even one of the same name.
func TestTakeGivesWhatWasGivenBack(t *testing.T) {
	type kept struct{ x int }
	first := Take[kept]()
	first.x = 7
	Give(first)
	if again := Take[kept](); again != first || again.x != 7 {
		t.Errorf("it gave %v in place of %v", again, first)
	}
	Give(first)
	func() {
		type kept struct{ y string }
		if other := Take[kept](); other.y != "" {
			t.Errorf("another type got %v", other)
		}
	}()
	if again := Take[kept](); again != first {
		t.Error("what was given back is lost")
	}
	if other := Take[kept](); other == first {
		t.Error("two users have the same memory")
	}
}
