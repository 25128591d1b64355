package runtime_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	optimem "github.com/optimem/optimem/runtime"
)

// A waiter is a call that comes at a second of the test's clock.
type waiter struct {
	name     string
	second   int
	priority optimem.Priority
}

type waiterName struct{}

// TestPoolPriorities: calls of a model that wait go by their priority, as many in a pass as go together; and one of the
// last priority goes before all that come a minute after it, by the test's clock.
func TestPoolPriorities(t *testing.T) {
	for name, c := range map[string]struct {
		join    int
		waiters []waiter
		want    string
	}{
		"in order":         {1, []waiter{{"a", 0, 0}, {"b", 0, 0}, {"c", 1, 4}}, "a b c"},
		"by priority":      {1, []waiter{{"last", 0, 7}, {"none", 0, 0}, {"first", 0, 1}, {"third", 0, 3}, {"beyond", 0, 1000}}, "first third none last beyond"},
		"a default's age":  {1, []waiter{{"last", 0, 7}, {"early", 29, 0}, {"late", 31, 0}}, "early last late"},
		"a first's age":    {1, []waiter{{"last", 0, 7}, {"early", 59, 1}, {"late", 61, 1}}, "early last late"},
		"within a pass":    {4, []waiter{{"a", 0, 5}, {"b", 0, 0}, {"c", 0, 1}}, "c+b+a"},
		"through passes":   {2, []waiter{{"a", 0, 0}, {"b", 1, 0}, {"c", 2, 0}, {"d", 3, 1}, {"e", 4, 2}}, "d+e a+b c"},
		"into what is not": {2, []waiter{{"a", 0, 0}, {"b", 1, 7}, {"c", 2, 5}, {"d", 3, 5}}, "a+c d+b"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := poolOrder(t, c.join, c.waiters); got != c.want {
				t.Errorf("they went as %q, not %q", got, c.want)
			}
		})
	}
}

// placed returns once so many calls of the first member have their place.
func placed(p *optimem.Pool, n int) {
	for p.Metrics().Members[0].Waiting != n {
		time.Sleep(time.Millisecond)
	}
}

// poolOrder has calls come while a pass runs, and returns the passes that follow.
func poolOrder(t *testing.T, join int, waiters []waiter) string {
	model := stacks(t, 1)[0]
	var second atomic.Int64
	start := time.Now()
	p := newPool(t, optimem.PoolOptions{Memory: 16 << 20})
	p.SetClock(func() time.Time { return start.Add(time.Duration(second.Load()) * time.Second) })
	begun, hold := make(chan struct{}, 1), make(chan struct{})
	var passes []string
	observe := func(e optimem.Event) {
		if e.Kind == optimem.GroupDone && e.Group == 0 {
			select {
			case begun <- struct{}{}:
				<-hold
			default:
			}
		}
		if e.Kind == optimem.PassDone {
			var names []string
			for _, ctx := range e.Calls.Contexts {
				names = append(names, ctx.Value(waiterName{}).(string))
			}
			passes = append(passes, strings.Join(names, "+"))
		}
	}
	m, err := p.Open(t.Context(), model.name, model.model, optimem.Options{MaxJoin: join, Observe: observe})
	if err != nil {
		t.Fatal(err)
	}
	var calls sync.WaitGroup
	call := func(w waiter) {
		calls.Go(func() {
			out, err := m.RunWith(context.WithValue(t.Context(), waiterName{}, w.name), model.in, optimem.CallOptions{Priority: w.priority})
			if err != nil || !slices.Equal(bytesOf(out), model.want) {
				t.Errorf("%s: %v, or other bits", w.name, err)
			}
		})
	}
	call(waiter{name: "holds"})
	for len(begun) == 0 {
		time.Sleep(time.Millisecond)
	}
	for i, w := range waiters {
		second.Store(int64(w.second))
		call(w)
		placed(p, i+1)
	}
	close(hold)
	calls.Wait()
	return strings.Join(passes[1:], " ")
}

// TestPoolPriorityLeaves: a waiting call that gives up is gone although it has moved to another turn.
func TestPoolPriorityLeaves(t *testing.T) {
	p, all, free, begun := heldPool(t, optimem.PoolOptions{Memory: 1 << 20})
	defer free()
	m := p.Member(all[0].name)
	var calls sync.WaitGroup
	calls.Go(func() { all[0].call(t, p) })
	<-begun
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := m.RunWith(ctx, all[0].in, optimem.CallOptions{Priority: optimem.LastPriority})
		left <- err
	}()
	placed(p, 1)
	const more = 33 // than go together
	for i := range more {
		calls.Go(func() {
			if _, err := m.RunWith(t.Context(), all[0].in, optimem.CallOptions{Priority: 1}); err != nil {
				t.Error(err)
			}
		})
		placed(p, i+2)
	}
	cancel()
	if err := <-left; err == nil {
		t.Error("who gave up has an answer")
	}
	placed(p, more)
	free()
	calls.Wait()
}
