// Package fetch prefetches weights: while the ops of one group run, it brings the weights of the next groups to their
// slots. A [Direct] fetcher reads files straight into the device's memory, a [Staged] one into host memory, and copies
// from there to a device with memory of its own.
//
// It knows groups, spans, slots and sources. It does not know ops, states, policy or which weights are resident: the
// plan says what is read, to where, and after what. The fetcher itself only decides how to keep the disk busy, by the
// constants of tuning.go.
//
//	f := fetch.NewDirect(p, to, nil, fetch.Options{Readers: 4, Read: &counter})
//	for range passes {
//		f.Begin()
//		for k := range p.Groups {
//			if f.Brings(k) {
//				err := f.Ready(ctx, k)
//			}
//			// … give the ops of group k to the device, with f.Tick between them …
//			if f.Brings(k) {
//				f.Done(k)
//			}
//		}
//	}
//	err := f.Close()
package fetch

import (
	"context"
	"sync/atomic"
)

// A Fetcher brings the paged groups of one plan into the ring, pass after pass, in order and as early as the plan
// allows: the first groups of the next pass while the last of this one run.
//
// # Who calls what
//
// One goroutine, the one that runs the pass, calls all methods. For each pass it calls Begin, and then, for each group
// that brings something and in the order of the plan, Ready, Tick as often as it likes, and Done. After an error, or
// where a pass is not ended for another reason, it calls Reset; then the next pass begins anew. Begin after a pass that
// was ended goes on with what is under way.
//
// # Who owns what
//
// The slots belong to the fetcher from Done of the group that used them last (as After of its [plan.Group] says) until
// Ready returns, and to the pass from then until Done. Memory belongs to who made the fetcher: it frees none, and none
// may be freed before Reset or Close has returned, since reads may be on their way into it. Queues, goroutines and
// streams that a fetcher makes are its own, are there from Begin to Reset or Close, and are given back by these.
//
// # What is checked
//
// A source that can tell whether it changed is asked after each group was read, so that Ready fails instead of handing
// out a mixture. A read that a queue did not complete is made again, to learn why. Panics of a source become errors.
// Errors are [*Error], and come up at the Ready that waits for them or, if nobody waits yet, at the next; those of
// giving queues back come up at Close. A group that a plan wants before its slot can be free is a bug and panics.
type Fetcher interface {
	// Begin is called before a pass.
	Begin()
	// Ready returns once group k of this pass is in its slot for ops that are given to the device from now on, or with why
	// it will not be. Where ctx is done it returns its error; what is under way stays so until Reset.
	Ready(ctx context.Context, k int) error
	// Tick looks whether something can be begun. It is called now and then while a group's ops run, between ops and within
	// long ones, and does not wait.
	Tick()
	// Done says that the ops of group k were given to the device.
	Done(k int)
	// Reset forgets what was brought, and returns once nothing is under way. What is kept in host memory stays.
	Reset()
	// Close is Reset, and gives back what the fetcher holds. A second one returns nil.
	Close() error
}

// Options say how a fetcher reads.
type Options struct {
	// Readers is how many goroutines read at once what no queue takes.
	Readers int
	// Copiers is how many goroutines copy at once what the host holds in memory, for a Staged fetcher, since that is
	// work for processors and none for a disk; 0 is as many as there are processors.
	Copiers int
	// Read counts the bytes that were read.
	Read *atomic.Int64
	// Loads notes when groups were brought, nil where nobody wants to know. On a device with memory of its own the copies
	// of one group are then waited for before those of the next are given to it.
	Loads *Loads
	// Meter notes how fast disks are read, nil where nobody wants to know.
	Meter *Meter
	// PieceBytes is how much a read of a Direct fetcher takes at most, QueuesPay how much has to be read for a single pass
	// to have queues; 0 is what suits disks.
	PieceBytes, QueuesPay int64
	// AlignBytes is what offsets in slots of a Staged fetcher are multiples of.
	AlignBytes int64
}

// An Error says which group could not be brought.
type Error struct {
	// Path is the group's name.
	Path string
	Err  error
}

// Error reads outside-in.
func (e *Error) Error() string { return e.Path + ": load: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
