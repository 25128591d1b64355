package ptx

import (
	"context"
	"fmt"
)

const (
	warpThreads = 32
	// sliceSteps is how many instructions a thread runs before others have their turn.
	sliceSteps = 1 << 20
	// maxThreads bounds a launch, so that races can name threads.
	maxThreads = 1 << 29
	// maxHeldBytes bounds the registers and the local memory of a block.
	maxHeldBytes = 512 << 20
	// defaultSteps is the number of instructions after which a launch without a limit of its own is given up.
	defaultSteps = 20e9
)

// A Launch is what a kernel is to compute, and where.
type Launch struct {
	Grid, Block [3]int
	// SharedBytes is the dynamic shared memory of a block.
	SharedBytes int
	// Parameters are packed as the compiler lays them out.
	Parameters []byte
	// Memory is the global memory that the launch may touch.
	Memory []Region
	// MaxSteps is the number of instructions after which the launch is given up; 0 is very many.
	MaxSteps int64
	// Seed decides when and in which order bulk copies are made; 0 is as late as may be, in their order.
	Seed uint64
	// Ran, if not nil, has one element for each of the kernel's instructions, which is set where that was run.
	Ran []bool
}

// A Region is a run of global memory.
type Region struct {
	Address uint64
	Data    []byte
	// Writes says that the kernel may write to it.
	Writes bool
}

// A FaultKind says what went wrong in a launch.
type FaultKind int

// The kinds of faults.
const (
	BadLaunch FaultKind = iota + 1
	OutOfBounds
	Misaligned
	ReadOnly
	Uninitialised
	Race
	Divergence
	Trap
	TooLong
	// BadBarrier is an mbarrier that is used as it must not be, or waited at for ever; BadMap a tensor map that
	// cannot be used.
	BadBarrier
	BadMap
)

var faultNames = map[FaultKind]string{
	BadLaunch: "bad launch", OutOfBounds: "out of bounds", Misaligned: "misaligned", ReadOnly: "write to an operand",
	Uninitialised: "uninitialised shared memory", Race: "race", Divergence: "divergence", Trap: "trap",
	TooLong: "too long", BadBarrier: "barrier", BadMap: "tensor map",
}

// String names the kind.
func (k FaultKind) String() string { return faultNames[k] }

// A Fault is what a thread of a launch did that it must not.
type Fault struct {
	Kind   FaultKind
	Kernel string
	// Line is that of the PTX, 0 where there is none.
	Line          int
	Block, Thread [3]int
	Text          string
}

// Error says what was done where by whom.
func (f *Fault) Error() string {
	if f.Line == 0 {
		return fmt.Sprintf("%s: %v: %s", f.Kernel, f.Kind, f.Text)
	}
	return fmt.Sprintf("%s: line %d: block %v thread %v: %v: %s", f.Kernel, f.Line, f.Block, f.Thread, f.Kind, f.Text)
}

// The states of a thread.
const (
	running = iota
	atBarrier
	atExchange
	atWait  // at an mbarrier
	yielded // until the next round
	exited
	faulted
)

// A thread is one of a block's.
type thread struct {
	r     []uint64
	b     *block
	pc    int
	state int
	carry uint64
	at    [3]int
	id    int
	// epoch counts what ordered the thread's accesses among its block's: see history.
	epoch   uint32
	frame   []byte
	local   []byte
	returns []int
	// What the thread waits for.
	meets  *exchange
	mask   uint32
	brings shuffled
	gets   func(x uint32, ok bool)
	copies copies
	// What kernels with an asynchrony need besides: see view.
	view  view
	tick  uint32
	tried try
	rests *mbarrier
	// groups and marks are of products of warpgroups.
	groups groups
	marks  []mark
}

// A block is one of the launch's, while it runs.
type block struct {
	*run
	at      [3]int
	number  int
	threads []*thread
	shared  window
	// dynamicAt is where the dynamic shared memory begins.
	dynamicAt int
	// async is nil where threads do nothing asynchronously.
	async *asynchrony
}

// A run is a launch while it runs.
type run struct {
	k       *Kernel
	l       *Launch
	regions []*window
	last    *window
	left    int64
	size    int // threads of a block
	fault   *Fault
}

// fault ends the launch.
func (t *thread) fault(kind FaultKind, format string, args ...any) {
	t.state = faulted
	if t.b.fault != nil {
		return
	}
	t.b.fault = &Fault{
		Kind: kind, Kernel: t.b.k.Name, Block: t.b.at, Thread: t.at, Text: fmt.Sprintf(format, args...), Line: t.line(),
	}
}

// line is that of the instruction that the thread is at.
func (t *thread) line() int {
	return int(t.b.k.code[max(t.pc-1, 0)].line)
}

// Len returns the number of instructions.
func (k *Kernel) Len() int { return len(k.code) }

// ParameterBytes returns the size of the packed parameters.
func (k *Kernel) ParameterBytes() int { return k.parameterBytes }

// refuse returns what is wrong with a launch.
func (k *Kernel) refuse(l *Launch) string {
	threads, blocks := 1, 1
	for d := range 3 {
		if l.Grid[d] < 1 || l.Block[d] < 1 || l.Block[d] > 1024 || l.Grid[d] > maxThreads {
			return fmt.Sprintf("a grid of %v blocks of %v threads", l.Grid, l.Block)
		}
		threads *= l.Block[d]
		blocks *= l.Grid[d]
		if threads > 1024 || blocks > maxThreads || blocks*threads > maxThreads {
			return fmt.Sprintf("a grid of %v blocks of %v threads", l.Grid, l.Block)
		}
	}
	if len(l.Parameters) != k.parameterBytes {
		return fmt.Sprintf("%d bytes of parameters, the kernel takes %d", len(l.Parameters), k.parameterBytes)
	}
	if l.SharedBytes < 0 || l.SharedBytes > maxSharedBytes || k.sharedBytes+l.SharedBytes > maxSharedBytes {
		return fmt.Sprintf("%d bytes of shared memory", k.sharedBytes+l.SharedBytes)
	}
	if held := threads * (8*k.slots + k.localBytes + k.frameBytes); held > maxHeldBytes {
		return fmt.Sprintf("%d bytes of registers and local memory", held)
	}
	if l.Ran != nil && len(l.Ran) != len(k.code) {
		return fmt.Sprintf("%d places for %d instructions", len(l.Ran), len(k.code))
	}
	return ""
}

// Run computes a launch, a block after the other. What goes wrong in it is a *[Fault], the first one; memory then holds
// what was written so far.
func (k *Kernel) Run(ctx context.Context, l Launch) error {
	if why := k.refuse(&l); why != "" {
		return &Fault{Kind: BadLaunch, Kernel: k.Name, Text: why}
	}
	r := &run{k: k, l: &l, left: l.MaxSteps, size: l.Block[0] * l.Block[1] * l.Block[2]}
	if r.left <= 0 {
		r.left = defaultSteps
	}
	for _, region := range l.Memory {
		r.regions = append(r.regions, newWindow(region.Address, region.Data, region.Writes, nil))
	}
	r.regions = append(r.regions, newWindow(constantBase, k.m.constants, false, nil))
	b := &block{run: r, dynamicAt: rounded(k.sharedBytes, 16)}
	b.shared = *newWindow(0, make([]byte, b.dynamicAt+l.SharedBytes), true, make([]byte, b.dynamicAt+l.SharedBytes))
	b.hire()
	for b.at[2] = 0; b.at[2] < l.Grid[2]; b.at[2]++ {
		for b.at[1] = 0; b.at[1] < l.Grid[1]; b.at[1]++ {
			for b.at[0] = 0; b.at[0] < l.Grid[0]; b.at[0]++ {
				if err := ctx.Err(); err != nil {
					return err
				}
				b.compute(ctx)
				if r.fault != nil {
					return r.fault
				}
				b.number++
			}
		}
	}
	return ctx.Err()
}

// hire makes the threads, which all blocks use one after the other. Where none waits for another, one set of registers
// does for all.
func (b *block) hire() {
	k, held := b.k, b.size
	if !k.waits {
		held = 1
	}
	registers := make([]uint64, held*k.slots)
	for i := range b.size {
		at := i % held
		x, y := b.l.Block[0], b.l.Block[1]
		b.threads = append(b.threads, &thread{
			r: registers[at*k.slots:][:k.slots:k.slots], b: b, id: i, at: [3]int{i % x, i / x % y, i / x / y},
		})
	}
}

// start readies a thread for its block.
func (t *thread) start() {
	k := t.b.k
	t.pc, t.state, t.carry, t.epoch, t.returns = 0, running, 0, 0, t.returns[:0]
	t.copies = copies{}
	t.view.forget()
	t.tick, t.tried, t.rests = 1, try{}, nil
	t.groups = groups{}
	if k.marks > 0 && t.marks == nil {
		t.marks = make([]mark, k.marks)
	}
	clear(t.marks)
	clear(t.r)
	for _, i := range k.initial {
		t.r[i.slot] = i.value
	}
	for _, s := range k.special {
		t.r[s.slot] = s.of(t)
	}
	if t.frame == nil && k.frameBytes > 0 {
		t.frame = make([]byte, k.frameBytes)
	}
	if t.local == nil && k.localBytes > 0 {
		t.local = make([]byte, k.localBytes)
	}
	for i := range t.local {
		t.local[i] = 0xcd // what a thread has not written is nothing to rely on
	}
}

// compute runs a block.
func (b *block) compute(ctx context.Context) {
	b.shared.forget()
	if b.k.async {
		b.begin()
	}
	if !b.k.waits {
		for _, t := range b.threads {
			t.start()
			for t.state == running && b.fault == nil {
				t.turn()
				if ctx.Err() != nil {
					return
				}
			}
		}
		return
	}
	for _, t := range b.threads {
		t.start()
	}
	for b.fault == nil && ctx.Err() == nil {
		ready := false
		for _, t := range b.threads {
			if t.state == running {
				t.turn()
				ready = ready || t.state == running
			}
			if b.fault != nil {
				return
			}
		}
		if b.async != nil && b.l.Seed != 0 && b.async.next()&3 == 0 && b.landOne() && b.fault != nil {
			return
		}
		if !ready && !b.meet() {
			b.ended()
			return
		}
	}
}

// turn runs a thread until it waits, ends or has had its turn.
func (t *thread) turn() {
	code, ran, b := t.b.k.code, t.b.l.Ran, t.b
	for range sliceSteps {
		if b.left--; b.left < 0 {
			t.fault(TooLong, "the launch runs more instructions than it may")
			return
		}
		in := &code[t.pc]
		if ran != nil {
			ran[t.pc] = true
		}
		t.pc++
		if in.guard >= 0 && (t.r[in.guard] != 0) == in.negate {
			continue
		}
		if in.touch != nil && !t.touches(in.touch) {
			return
		}
		in.do(t)
		if t.state != running {
			return
		}
	}
}

// meet lets threads go on that wait for each other, and reports whether there are any left.
func (b *block) meet() bool {
	went, left := false, false
	for first := 0; first < len(b.threads); first += warpThreads {
		warp := b.threads[first:min(first+warpThreads, len(b.threads))]
		for _, t := range warp {
			left = left || t.state != exited
			if t.state == atExchange {
				went = b.exchange(warp, t) || went
			}
			if b.fault != nil {
				return false
			}
		}
	}
	if !left || went {
		return went
	}
	if b.async != nil && b.rest() {
		return b.fault == nil
	}
	var one *thread
	for _, t := range b.threads {
		if t.state == atExchange {
			t.fault(Divergence, "%s waits for threads %#x of its warp, which wait elsewhere", t.meets.name, t.mask)
			return false
		}
		if t.state != atBarrier {
			continue
		}
		if one == nil {
			one = t
		} else if t.pc != one.pc {
			t.fault(Divergence, "the thread waits here, thread %v at the barrier of line %d", one.at, one.line())
			return false
		}
	}
	if b.async != nil {
		meetViews(b.threads)
		b.async.syncs++
	}
	for _, t := range b.threads {
		if t.state == atBarrier {
			t.state = running
			t.epoch = (t.epoch>>warpEpochBits + 1) << warpEpochBits
		}
	}
	return true
}

// exchange lets the threads go on that a thread of a warp waits for, if they are all there.
func (b *block) exchange(warp []*thread, t *thread) bool {
	if t.meets.group {
		return b.exchangeGroup(t)
	}
	var list []*thread
	for lane, other := range warp {
		if t.mask>>lane&1 == 0 || other.state == exited {
			if t.meets.aligned && other.state == exited {
				t.fault(Divergence, "%s takes all of a warp, and thread %v has ended", t.meets.name, other.at)
				return false
			}
			continue
		}
		if other.state != atExchange || other.meets.name != t.meets.name || other.mask != t.mask ||
			t.meets.aligned && other.pc != t.pc {
			return false
		}
		list = append(list, other)
	}
	if t.meets.aligned && len(list) != warpThreads {
		t.fault(Divergence, "%s takes all of a warp, which has %d threads", t.meets.name, len(list))
		return false
	}
	t.meets.run(list)
	ordered := t.meets.orders
	if ordered && b.async != nil {
		meetViews(list)
	}
	for _, other := range list {
		if other.state == atExchange {
			other.state = running
		}
		if ordered {
			other.epoch++
		}
	}
	return true
}

// name says which thread has a number.
func (r *run) name(number uint32) string {
	b, i := r.block(number), int(number-1)%r.size
	g, x := r.l.Grid, r.l.Block
	return fmt.Sprintf("thread %v of block %v", [3]int{i % x[0], i / x[0] % x[1], i / x[0] / x[1]},
		[3]int{b % g[0], b / g[0] % g[1], b / g[0] / g[1]})
}
