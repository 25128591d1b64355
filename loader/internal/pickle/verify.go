package pickle

import (
	"errors"
	"io"

	"github.com/optimem/optimem/loader/internal/fault"
)

// A kind is what the verifier knows of a value: enough to decide whether an opcode may touch it.
type kind uint8

const (
	kindNone kind = iota + 1 // zero marks a memo slot that was never put
	kindBool
	kindInt
	kindFloat
	kindComplex
	kindString
	kindBytes
	kindByteArray
	kindTuple
	kindList
	kindDict
	kindSet
	kindFrozenSet
	kindGlobal
	kindObject  // an inert instance, which may be any kind of container
	kindMapping // an OrderedDict, defaultdict or Counter
	kindOpaque  // made by a hook
	kindClassID // a tuple that is the persistent id of a class
)

var kindNames = [...]string{
	"nothing", "None", "a bool", "an int", "a float", "a complex", "a str", "bytes", "a bytearray", "a tuple", "a list",
	"a dict", "a set", "a frozenset", "a global", "an object", "a mapping", "a rebuilt value",
	"a tuple",
}

func (k kind) String() string { return kindNames[k] }

// isTuple tells whether the value is a tuple, of whatever meaning.
func (k kind) isTuple() bool { return k == kindTuple || k == kindClassID }

// classIDItems is the length of a persistent id of a class.
const classIDItems = 4

// hashable tells whether Python would take the value as a dict key.
func (k kind) hashable() bool {
	switch k {
	case kindByteArray, kindList, kindDict, kindSet, kindMapping:
		return false
	}
	return true
}

// A slot stands for one value on the stack or in the memo.
type slot struct {
	kind kind
	// shared: something else than this slot may refer to the value.
	shared bool
	// depth is how deep the value is known to nest.
	depth uint16
	// n is a tuple's length, a global's index (also of the class in a kindClassID) or a string's length.
	n uint32
	// ref is where a string that may be a name lies in the arena, plus one; for a tuple, the bytes charged for it.
	ref uint32
}

// A segment is the part of the stack above a mark.
type segment struct {
	base int
	// room simulates the capacity of the machine's slice for the segment.
	room int
}

// A global is a distinct name and what is known of it.
type global struct {
	use     Use
	builtin *builtin
}

type bigPayload struct {
	left int64
	text bool
	utf8 utf8Check
}

// A verifier checks opcodes one at a time against a symbolic stack and memo. With emit it also writes what it checked
// to out in canonical form, and accounts for the values the machine makes of it; without, it collects problems.
type verifier struct {
	in   window
	opts Options

	opcode   byte  // the current one
	at       int64 // its offset
	ops      int64
	protocol int
	frameEnd int64 // −1 outside a frame
	done     bool

	stack []slot
	seg   segment   // the innermost segment
	marks []segment // those around it
	memo  []slot
	puts  int      // memo indexes in use, which is where MEMOIZE puts
	arena [][]byte // strings that STACK_GLOBAL may name, in chunks
	name  []byte   // scratch

	globals []global
	index   map[string]uint32

	problems    []*fault.Error
	known       map[problemKey]bool
	reportBytes int64

	// written holds the memo indexes that were put, fetched those that a GET reads. The scan finds the latter, so that
	// the machine's memo need hold nothing else.
	written, fetched bitSet

	emit      bool
	out       []byte
	big       bigPayload // a payload that goes to the machine after out, too large for the window
	memoIndex map[uint32]uint32
	transient int64 // what the current opcode takes only while it runs
	time      int64 // what opcodes cost, which is not given back
	indexes   int64 // what finding duplicate keys takes until the end

	taken  int64 // bytes taken from the meter
	credit int64 // bytes of them that are free again
	fixed  int64 // bytes for the verifier itself, which end with it
}

// What things cost on the Go heap, in bytes: measured, then rounded up so that the sum is never below the live heap.
const (
	opCost        = 3 // bounds time, not memory
	slowOpCost    = 10
	verifierCost  = 256 << 10
	slotCost      = 12
	segmentCost   = 32
	globalCost    = 512
	problemCost   = 512
	machineCost   = 64 // for a place on gopickle's stack, which grows by appending and leaves much garbage
	arrayCost     = 24 // for a place in a large array that was such a stack
	memoCost      = 144
	scalarCost    = 16
	headerCost    = 32
	tupleItemCost = 16
	listCost      = 96
	listItemCost  = 40
	dictCost      = 64
	dictItemCost  = 72
	setCost       = 64
	setItemCost   = 40
	indexCost     = 32 // for a dict or set, while it may grow
	indexItemCost = 64
	objectCost    = 64
	objectRest    = 112
	resultCost    = 32

	// Names may be as long as the file, and a scan leaves them to the collector while the load takes as much again.
	arenaChunk = 64 << 10
	arenaCost  = 2 * arenaChunk

	minSegmentRoom = 16 // gopickle makes each segment this large
)

// stringCost is the heap that a string or bytes of n bytes takes, boxed.
func stringCost(n int64) int64 { return headerCost + n + n/8 }

func newVerifier(r io.ReaderAt, off, size int64, o Options) *verifier {
	return &verifier{
		in:       window{r: r, base: off, end: off + max(size, 0), sparing: o.Sparing || o.Exact, exact: o.Exact},
		opts:     o,
		frameEnd: -1,
		index:    make(map[string]uint32),
		known:    make(map[problemKey]bool),
	}
}

// A problemKey tells problems apart before their message is made.
type problemKey struct {
	op   byte
	what byte
	n    uint32
}

// scan runs to STOP, or to what breaks the stream. Only a failure to read is an error.
func (v *verifier) scan() error {
	err := v.begin()
	for err == nil && !v.done {
		err = v.step()
	}
	if err == nil || errors.Is(err, errTooManyProblems) {
		return nil
	}
	var f *fault.Error
	if !errors.As(err, &f) {
		return err
	}
	v.problems = append(v.problems, f)
	return nil
}

var errTooManyProblems = errors.New("too many problems")

// begin takes what the verifier itself needs.
func (v *verifier) begin() error {
	v.fixed = verifierCost
	if err := v.charge(v.fixed); err != nil {
		return err
	}
	v.seg.room = minSegmentRoom
	if v.emit {
		v.out = prelude()
		return v.charge(int64(v.seg.room) * machineCost)
	}
	return nil
}

// complain notes a problem that does not break the stream. A scan goes on; a load ends.
func (v *verifier) complain(class error, op, what byte, n uint32, format string, args ...any) error {
	if v.emit {
		return fault.New(class, v.at, format, args...)
	}
	key := problemKey{op, what, n}
	if v.known[key] {
		return nil
	}
	v.known[key] = true
	if err := v.charge(problemCost); err != nil {
		return err
	}
	v.reportBytes += problemCost
	v.problems = append(v.problems, fault.New(class, v.at, format, args...))
	if len(v.problems) == maxProblems {
		return errTooManyProblems
	}
	return nil
}

// broken is the error for bytes that are not a pickle.
//
//go:noinline
func (v *verifier) broken(format string, args ...any) error {
	return fault.New(fault.ErrFormat, v.at, format, args...)
}

// charge takes n bytes, first from what was freed.
func (v *verifier) charge(n int64) error {
	v.credit -= n
	if v.credit >= 0 {
		return nil
	}
	more := max(-v.credit, 4096)
	if err := v.opts.Meter.Charge(more); err != nil {
		v.credit = 0
		var f *fault.Error
		if errors.As(err, &f) {
			return &fault.Error{Class: f.Class, Offset: v.at, Msg: f.Msg}
		}
		return err
	}
	v.taken += more
	v.credit += more
	return nil
}

// keepOnly gives back all but n bytes of what was taken.
func (v *verifier) keepOnly(n int64) {
	n = min(n, v.taken)
	v.opts.Meter.Release(v.taken - n)
	v.taken, v.credit = n, 0
}

// releaseWork gives back what the verifier and the machine needed to run, and keeps the charge for the values.
func (v *verifier) releaseWork() {
	v.credit += v.fixed + int64(cap(v.stack)+cap(v.memo))*slotCost + int64(cap(v.marks))*segmentCost
	v.credit += int64(len(v.arena))*arenaCost + v.indexes
	v.credit += int64(v.seg.room)*machineCost + int64(len(v.memoIndex))*memoCost + v.written.bytes()
	v.keepOnly(v.taken - v.credit)
}

// chargeKeys takes what n more keys of a dict or set cost, of which the index is given back at the end.
func (v *verifier) chargeKeys(n int, itemCost int64) error {
	index := int64(n)*indexItemCost + indexCost
	v.indexes += index
	return v.charge(index + int64(n)*itemCost)
}

// grow makes room for at least n more slots, charging for the new array before it frees the old one.
func (v *verifier) grow(s []slot, n int) ([]slot, error) {
	room := max(2*cap(s), len(s)+n, 64)
	if err := v.charge(int64(room) * slotCost); err != nil {
		return s, err
	}
	v.credit += int64(cap(s)) * slotCost
	return append(make([]slot, 0, room), s...), nil
}

func (v *verifier) push(s slot) error {
	if len(v.stack) == cap(v.stack) {
		var err error
		if v.stack, err = v.grow(v.stack, 1); err != nil {
			return err
		}
	}
	v.stack = append(v.stack, s)
	if len(v.stack)-v.seg.base > v.seg.room {
		if v.emit {
			if err := v.charge(int64(v.seg.room) * machineCost); err != nil {
				return err
			}
		}
		v.seg.room *= 2
	}
	return nil
}

// pushValue pushes a value without references that costs n bytes once the machine has made it.
func (v *verifier) pushValue(k kind, n int64) error {
	if v.emit {
		if err := v.charge(n); err != nil {
			return err
		}
	}
	return v.push(slot{kind: k})
}

// top returns the n topmost slots of the segment.
func (v *verifier) top(n int) ([]slot, error) {
	if len(v.stack)-v.seg.base < n {
		return nil, v.broken("stack underflow: %q needs %d values, %d are there", v.opcode, n, len(v.stack)-v.seg.base)
	}
	return v.stack[len(v.stack)-n:], nil
}

func (v *verifier) drop(n int) { v.stack = v.stack[:len(v.stack)-n] }

// mark opens a segment.
func (v *verifier) mark() error {
	if len(v.marks) >= v.opts.Depth {
		return fault.New(fault.ErrLimit, v.at, "nested deeper than %d", v.opts.Depth)
	}
	if len(v.marks) == cap(v.marks) {
		room := max(16, 2*cap(v.marks))
		if err := v.charge(int64(room) * segmentCost); err != nil {
			return err
		}
		v.credit += int64(cap(v.marks)) * segmentCost
		v.marks = append(make([]segment, 0, room), v.marks...)
	}
	if v.emit {
		if err := v.charge(minSegmentRoom * machineCost); err != nil {
			return err
		}
	}
	v.marks = append(v.marks, v.seg)
	v.seg = segment{base: len(v.stack), room: minSegmentRoom}
	return nil
}

// sinceMark returns the slots of the innermost segment.
func (v *verifier) sinceMark() ([]slot, error) {
	if len(v.marks) == 0 {
		return nil, v.broken("no MARK on the stack")
	}
	return v.stack[v.seg.base:], nil
}

// popMark drops the innermost segment. It returns how many values the machine's slice for it had room for.
func (v *verifier) popMark() int {
	v.stack = v.stack[:v.seg.base]
	room := v.seg.room
	if v.emit {
		v.credit += int64(room) * machineCost
	}
	v.seg = v.marks[len(v.marks)-1]
	v.marks = v.marks[:len(v.marks)-1]
	return room
}

// above returns one more than the deepest of the slots.
func (v *verifier) above(slots ...slot) (uint16, error) {
	deepest := uint16(0)
	for i := range slots {
		deepest = max(deepest, slots[i].depth)
	}
	if int(deepest) >= v.opts.Depth {
		return 0, fault.New(fault.ErrLimit, v.at, "nested deeper than %d", v.opts.Depth)
	}
	return deepest + 1, nil
}
