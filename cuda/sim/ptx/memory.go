package ptx

// Where the spaces other than global memory begin among generic addresses. Addresses of hosts and GPUs lie below.
const (
	sharedBase   = 1 << 56
	localBase    = 2 << 56
	constantBase = 3 << 56
	// Parameters that a kernel reads where they lie.
	parameterBase = 4 << 56
	windowMask    = 1<<56 - 1
	// frameBase is where the operands of calls begin in the space of parameters.
	frameBase = 1 << 20
)

// The states of a byte of shared memory.
const (
	nothing = iota
	written
	coming   // copied to, and nobody waited for it yet
	counting // of an mbarrier
)

// A window is memory with what is known of it.
type window struct {
	base   uint64
	data   []byte
	writes bool
	// states are of shared memory only.
	states []byte
	pages  []*[pageBytes]history
}

const pageBytes = 512

func newWindow(base uint64, data []byte, writes bool, states []byte) *window {
	return &window{
		base: base, data: data, writes: writes, states: states,
		pages: make([]*[pageBytes]history, (len(data)+pageBytes-1)/pageBytes),
	}
}

// history returns who touched a byte last.
func (w *window) history(i int) *history {
	page := w.pages[i/pageBytes]
	if page == nil {
		page = new([pageBytes]history)
		w.pages[i/pageBytes] = page
	}
	return &page[i%pageBytes]
}

// forget readies shared memory for the next block.
func (w *window) forget() {
	clear(w.states)
	for _, p := range w.pages {
		if p != nil {
			clear(p[:])
		}
	}
	for i := range w.data {
		w.data[i] = 0xcd
	}
}

type purpose uint8

const (
	toRead purpose = iota
	toWrite
	toUpdate // atomically
)

// bytes returns memory that a thread may touch, or nil after a fault.
func (t *thread) bytes(in space, address uint64, n int, why purpose) []byte {
	if address&uint64(n-1) != 0 {
		t.fault(Misaligned, "%d bytes at %#x", n, address)
		return nil
	}
	if in == inGeneric {
		switch address &^ uint64(windowMask) {
		case sharedBase:
			in = inShared
			address &= windowMask
		case localBase:
			in = inLocal
			address &= windowMask
		case parameterBase:
			in = inParameter
			address &= windowMask
		default:
			in = inGlobal
		}
	}
	switch in {
	case inGlobal:
		w := t.b.last
		if w == nil || !w.holds(address, n) || why != toRead && !w.writes {
			if w = t.b.find(address, n, why != toRead); w == nil {
				t.outside(address, n, why)
				return nil
			}
			t.b.last = w
		}
		at := int(address - w.base)
		if w.writes && !t.note(w, at, n, why) {
			return nil
		}
		return w.data[at : at+n]
	case inShared:
		w := &t.b.shared
		if !w.holds(address, n) {
			t.fault(OutOfBounds, "%d bytes at %d of %d bytes of shared memory", n, address, len(w.data))
			return nil
		}
		at := int(address)
		if !t.note(w, at, n, why) {
			return nil
		}
		for i := at; i < at+n; i++ {
			switch {
			case w.states[i] == counting:
				t.fault(BadBarrier, "byte %d of shared memory is an mbarrier's", i)
				return nil
			case w.states[i] == coming:
				t.fault(Race, "byte %d of shared memory is still being copied to", i)
				return nil
			case why != toWrite && w.states[i] == nothing:
				t.fault(Uninitialised, "byte %d was not written by anyone", i)
				return nil
			}
			w.states[i] = written
		}
		return w.data[at : at+n]
	case inLocal:
		return t.part(t.local, "local memory", address, n)
	}
	if address < frameBase {
		if why != toRead {
			t.fault(ReadOnly, "a parameter of the kernel")
			return nil
		}
		return t.part(t.b.l.Parameters, "parameters", address, n)
	}
	return t.part(t.frame, "operands of calls", address-frameBase, n)
}

// part returns memory of a thread's own.
func (t *thread) part(of []byte, what string, at uint64, n int) []byte {
	if at > uint64(len(of)) || len(of)-int(at) < n {
		t.fault(OutOfBounds, "%d bytes at %d of %d bytes of %s", n, int64(at), len(of), what)
		return nil
	}
	return of[at : int(at)+n]
}

func (w *window) holds(address uint64, n int) bool {
	at := address - w.base
	return at < uint64(len(w.data)) && len(w.data)-int(at) >= n
}

// find returns the region that holds bytes, or nil.
func (r *run) find(address uint64, n int, writes bool) *window {
	for _, w := range r.regions {
		if w.holds(address, n) && (w.writes || !writes) {
			return w
		}
	}
	return nil
}

// outside says what is wrong with an address in no region.
func (t *thread) outside(address uint64, n int, why purpose) {
	if t.b.find(address, n, false) != nil {
		t.fault(ReadOnly, "%d bytes at %#x", n, address)
		return
	}
	near, distance := "the launch has no global memory", uint64(1)<<63
	for _, w := range t.b.regions {
		end := w.base + uint64(len(w.data))
		if d := address - end; address >= end && d < distance {
			near, distance = "behind an operand's end", d
		}
		if d := w.base - address; address < w.base && d < distance {
			near, distance = "before an operand's begin", d
		}
	}
	t.fault(OutOfBounds, "%d bytes at %#x, %d bytes %s", n, address, distance, near)
}
