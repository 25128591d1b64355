package hostmem

import (
	"errors"
	goruntime "runtime"
	"testing"
)

// TestNear: a function's thread prefers a node while it runs, and what it preferred before then, also where it fails or
// panics. A node that is not there changes nothing.
func TestNear(t *testing.T) {
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	var nodes nodeMask
	before, ok := policy(&nodes)
	if !ok || !setPolicy(before, &nodes) {
		t.Skip("the kernel does not say or let be changed where memory is taken")
	}
	mine := errors.New("mine")
	now := func() int {
		var n nodeMask
		mode, _ := policy(&n)
		return mode
	}
	const local = 4 // what some kernels make of a node that is not there: the one that the thread runs on
	for node, want := range map[int]int{-1: before, 0: policyPreferred, maxNode - 1: local, maxNode: before} {
		ran := false
		err := Near(node, func() error {
			ran = true
			if got := now(); got != want && (want != local || got != before) {
				t.Errorf("near %d the policy is %d, want %d", node, got, want)
			}
			return mine
		})
		if !ran || !errors.Is(err, mine) || now() != before {
			t.Errorf("near %d: ran %v, %v; then the policy is %d, was %d", node, ran, err, now(), before)
		}
	}
	func() {
		defer func() { _ = recover() }()
		_ = Near(0, func() error { panic("of the driver's") })
	}()
	if now() != before {
		t.Errorf("after a panic the policy is %d, was %d", now(), before)
	}
}
