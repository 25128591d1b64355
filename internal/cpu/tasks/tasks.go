// Package tasks reuses the memory of parallel tasks, so that kernels do not allocate after their first run. It knows no
// kernels and no threads.
//
// A kernel puts the operands of its parts into a struct with a method Run, and passes it to [Do] by value:
//
//	tasks.Do(pool, rows, 64, scaleRows{x: x, y: y, by: by})
//
// A closure with the same captures would allocate at every call, since goroutines share it.
package tasks

import (
	"reflect"
	"sync"
)

// A Task is work of which a pool does parts.
type Task interface {
	// Run does the part [from, to) of the work. Parts run at the same time.
	Run(from, to int)
}

// A Pool does tasks.
type Pool interface {
	// Do calls the task for consecutive ranges [from, to) that cover [0, n), each of at most grain indices, in parallel. It
	// returns when all calls have.
	Do(n, grain int, task Task)
}

// Do does a task on a pool. The task that runs is a copy in memory that is kept for later tasks of the type. It belongs to
// this call alone, and nothing that it refers to is kept.
func Do[T any, P interface {
	*T
	Task
}](pool Pool, n, grain int, task T) {
	kept := Take[T]()
	*kept = task
	pool.Do(n, grain, P(kept))
	*kept = *new(T)
	Give(kept)
}

// Take returns a T that was given back, as it was then, or a new one.
func Take[T any]() *T {
	if x := listOf(reflect.TypeOf((*T)(nil))).take(); x != nil {
		return x.(*T)
	}
	return new(T)
}

// Give keeps x for a later Take. The caller clears what should not be kept alive with it.
func Give[T any](x *T) { listOf(reflect.TypeOf(x)).give(x) }

// A list is pointers of one type to values that nobody uses. It is as long as there were ever users at the same time, and
// unlike a sync.Pool it does not depend on which processor asks, and when memory was last collected.
//
// It is not generic: the kernels have hundreds of types of tasks, and a list's code for each of them took a seventh of the
// time to compile them.
type list struct {
	mu   sync.Mutex
	free []any
}

// lists has the list of each type of pointer.
var lists sync.Map

func listOf(t reflect.Type) *list {
	l, ok := lists.Load(t)
	if !ok {
		l, _ = lists.LoadOrStore(t, new(list))
	}
	return l.(*list)
}

// take returns nil if there is none.
func (l *list) take() any {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := len(l.free) - 1
	if last < 0 {
		return nil
	}
	x := l.free[last]
	l.free[last] = nil
	l.free = l.free[:last]
	return x
}

func (l *list) give(x any) {
	l.mu.Lock()
	l.free = append(l.free, x)
	l.mu.Unlock()
}
