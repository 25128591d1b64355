// Package optimemtest checks the memory of sessions in the tests of programs that embed them.
//
// It does not run sessions: a test runs passes as its program does, and then states the memory they may have used.
//
//	out, err := session.Run(ctx, inputs)
//	…
//	optimemtest.MaxPeak(t, session, 300<<20)
package optimemtest

import optimem "github.com/optimem/optimem/runtime"

// A TB is what MaxPeak needs of a [testing.TB].
type TB interface {
	Helper()
	Errorf(format string, args ...any)
}

// MaxPeak fails a test whose session held more than so many bytes of device memory at once, or ran nothing. On the CPU that is
// all memory of the session but its plans; beside a device with memory of its own, MaxHostPeak is about the host's.
func MaxPeak(t TB, session *optimem.Session, maxBytes int64) {
	t.Helper()
	m := session.Metrics()
	check(t, m.Runs, "device memory", m.PeakBytes, maxBytes)
}

// MaxHostPeak is MaxPeak for the host's memory beside a device: staging, copies of weights, and what the CPU computes.
func MaxHostPeak(t TB, session *optimem.Session, maxBytes int64) {
	t.Helper()
	m := session.Metrics()
	check(t, m.Runs, "host memory", m.HostPeakBytes, maxBytes)
}

func check(t TB, runs int64, of string, peakBytes, maxBytes int64) {
	t.Helper()
	switch {
	case runs == 0:
		t.Errorf("the session ran nothing, so its peak says nothing")
	case peakBytes > maxBytes:
		t.Errorf("the session held %d bytes of %s, %d more than the %d of the test", peakBytes, of,
			peakBytes-maxBytes, maxBytes)
	}
}
