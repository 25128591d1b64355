package generate_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/runtime"
)

// A noted constraint allows everything and notes who writes. The engine calls it.
type noted struct {
	name  string
	order *[]string
	begun bool
}

func (n *noted) Mask([]uint64) error {
	if !n.begun {
		n.begun = true
		*n.order = append(*n.order, n.name)
	}
	return nil
}

func (n *noted) Accept(int) error { return nil }

// TestPriorities: texts that wait are written by their priority, and one of the last before all that came a minute
// after it, by the test's clock.
func TestPriorities(t *testing.T) {
	e := engine(t, generate.Options{Sequences: 1})
	start, second := time.Now(), 0
	begin, err := e.SetClock(t.Context(), func() time.Time { return start.Add(time.Duration(second) * time.Second) })
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	var texts sync.WaitGroup
	for i, w := range []struct {
		name     string
		second   int
		priority runtime.Priority
	}{
		{"last", 0, 7}, {"a", 1, 0}, {"b", 2, 0}, {"first", 3, 1}, {"third", 4, 3}, {"c", 29, 4}, {"late", 31, 0}, {"too late", 61, 1},
	} {
		second = w.second // requests that came before it are in their place
		r := request(i)
		r.MaxTokens, r.Priority, r.Constraint = 2, w.priority, &noted{name: w.name, order: &order}
		texts.Go(func() {
			if _, err := e.Generate(t.Context(), r, nil); err != nil {
				t.Errorf("%s: %v", w.name, err)
			}
		})
		if err := e.WaitFor(t.Context(), i+1); err != nil {
			t.Fatal(err)
		}
	}
	if err := begin(); err != nil {
		t.Fatal(err)
	}
	texts.Wait()
	const want = "first third a b c last late too late"
	if got := strings.Join(order, " "); got != want {
		t.Errorf("they were written as %q, not %q", got, want)
	}
}
