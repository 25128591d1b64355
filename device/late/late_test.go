package late

import (
	"context"
	"errors"
	"testing"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/device/emulated"
)

// TestNothingIsDoneBeforeItIsWaitedFor: among the orders are those in which a copy takes what its source is changed to, and
// one that waits for an event comes behind it in all of them.
func TestNothingIsDoneBeforeItIsWaitedFor(t *testing.T) {
	changed := 0
	for seed := range uint64(40) {
		d := New(emulated.New(emulated.Options{CheckOrder: true, Threads: 1}), Options{Seed: seed})
		m, err := d.Alloc(1)
		if err != nil {
			t.Fatal(err)
		}
		a, errA := d.NewStream()
		b, errB := d.NewStream()
		whole := device.Region{Memory: m, Bytes: 1}
		src, got := []byte{1}, []byte{0}
		err = errors.Join(errA, errB, a.CopyIn(whole, src))
		src[0] = 2
		b.Wait(a.Record())
		err = errors.Join(err, b.CopyOut(got, whole))
		if got[0] == 0 { // it is late
			changed++
		}
		if err = errors.Join(err, b.Sync(t.Context())); err != nil || got[0] == 0 {
			t.Fatalf("%v, %d", err, got[0])
		}
		if err := errors.Join(a.Sync(t.Context()), a.Close(), b.Close(), m.Free(), d.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if changed == 0 || changed == 40 {
		t.Errorf("%d of 40 copies are late", changed)
	}
}

// TestMisuseIsTold: a stream that is closed with work, and memory that is given back which a stream has work with, are errors.
func TestMisuseIsTold(t *testing.T) {
	for what := range 3 {
		for seed := range uint64(10) {
			d := New(emulated.New(emulated.Options{Threads: 1}), Options{Seed: seed})
			m, err := d.Alloc(1)
			host, errHost := d.AllocHost(1)
			s, errStream := d.NewStream()
			if err := errors.Join(err, errHost, errStream, s.CopyIn(device.Region{Memory: m, Bytes: 1}, host.Bytes())); err != nil {
				t.Fatal(err)
			}
			waits := len(s.(*stream).tasks) > 0
			switch what {
			case 0:
				err = s.Close()
			case 1:
				err = m.Free()
			case 2:
				host.Free()
			}
			_ = s.Sync(context.Background())
			if err = errors.Join(err, m.Free(), d.Close()); waits != (err != nil) {
				t.Errorf("case %d, seed %d: the copy waits: %v, and the error is %v", what, seed, waits, err)
			}
		}
	}
}

var errAsked = errors.New("as asked for")

// TestCallsFail: a call that is to fail does so at once, or, where it is to fail later, when its stream is waited for, once.
func TestCallsFail(t *testing.T) {
	for _, later := range []bool{false, true} {
		d := New(emulated.New(emulated.Options{Threads: 1}), Options{Later: later, Before: func(_ context.Context, c Call) error {
			if c.N == 2 && c.Kind == CopyIn {
				return errAsked
			}
			return nil
		}})
		m, err := d.Alloc(1)
		s, errStream := d.NewStream()
		copyIn := func() error { return s.CopyIn(device.Region{Memory: m, Bytes: 1}, []byte{1}) }
		if err := errors.Join(err, errStream, copyIn()); err != nil {
			t.Fatal(err)
		}
		atOnce, waited, again := copyIn(), s.Sync(t.Context()), s.Sync(t.Context())
		if errors.Is(atOnce, errAsked) == later || errors.Is(waited, errAsked) != later || again != nil || d.Calls() != 4 {
			t.Errorf("later %v: %v, %v, %v, %d calls", later, atOnce, waited, again, d.Calls())
		}
		if err := errors.Join(s.Close(), m.Free(), d.Close()); err != nil {
			t.Fatal(err)
		}
	}
}
