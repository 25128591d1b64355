package blocked

import (
	"sync"
	"unsafe"

	"github.com/optimem/optimem/internal/cpu/tasks"
)

// slots hands pieces of scratch memory to the parts of a region that run at the same time.
type slots struct {
	mu   sync.Mutex
	free [][]float32
}

// newSlots cuts memory into one piece for each thread; end ends the use of the slots.
func newSlots(work []float32, size, threads int) *slots {
	s := tasks.Take[slots]()
	for i := range threads {
		s.free = append(s.free, work[i*size:(i+1)*size:(i+1)*size])
	}
	return s
}

func (s *slots) end() {
	clear(s.free)
	s.free = s.free[:0]
	tasks.Give(s)
}

func (s *slots) take() []float32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := len(s.free) - 1
	slot := s.free[last]
	s.free = s.free[:last]
	return slot
}

func (s *slots) give(slot []float32) {
	s.mu.Lock()
	s.free = append(s.free, slot)
	s.mu.Unlock()
}

// ownSlots are slots with packed weights: who takes one gets that with the weights it needs, if it can.
type ownSlots struct {
	mu   sync.Mutex
	free []ownSlot
}

// An ownSlot has the weights of the panels from holds on, −1 none.
type ownSlot struct {
	memory []float32
	holds  int
}

// newOwnSlots cuts memory into one piece for each thread; end ends the use of the slots.
func newOwnSlots(work []float32, size, threads int) *ownSlots {
	s := tasks.Take[ownSlots]()
	for i := range threads {
		s.free = append(s.free, ownSlot{work[i*size : (i+1)*size : (i+1)*size], -1})
	}
	return s
}

func (s *ownSlots) end() {
	clear(s.free)
	s.free = s.free[:0]
	tasks.Give(s)
}

func (s *ownSlots) take(panel int) ownSlot {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := len(s.free) - 1
	for i := range s.free {
		if s.free[i].holds == panel {
			s.free[i], s.free[last] = s.free[last], s.free[i]
			break
		}
	}
	slot := s.free[last]
	s.free = s.free[:last]
	return slot
}

func (s *ownSlots) give(memory []float32, panel int) {
	s.mu.Lock()
	s.free = append(s.free, ownSlot{memory, panel})
	s.mu.Unlock()
}

// address returns a pointer to an element, for kernels; the slice may end there.
func address(x []float32, i int) *float32 {
	return (*float32)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(x)), 4*i))
}

// move returns the pointer a number of bytes behind p, within the same memory.
func move(p *float32, bytes int) *float32 { return (*float32)(unsafe.Add(unsafe.Pointer(p), bytes)) }

// share returns the range of the i-th of n parts of size elements that differ by one at most.
func share(size, n, i int) (from, to int) { return size * i / n, size * (i + 1) / n }

// ceil returns ⌈a/b⌉.
func ceil(a, b int) int { return (a + b - 1) / b }
