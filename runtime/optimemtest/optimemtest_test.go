package optimemtest

import (
	"fmt"
	"testing"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// A record is a test that notes how it failed.
type record struct{ failures []string }

func (*record) Helper() {}

func (r *record) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

// A session's peak is held to the byte, and one that ran nothing is no success.
func TestMaxPeak(t *testing.T) {
	ckpt, err := loader.Open("../../examples/digits/digits.pt2")
	if err != nil {
		t.Fatal(err)
	}
	defer ckpt.Close()
	model, err := models.Build(ckpt, models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := optimem.Page(t.Context(), model, optimem.PageOptions{Device: "emu:memory=1GiB", Memory: 400 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	failures := func(check func(TB, *optimem.Session, int64), bytes int64) string {
		r := &record{}
		check(r, s, bytes)
		return fmt.Sprintf("%q", r.failures)
	}
	if got, want := failures(MaxPeak, 1<<40), `["the session ran nothing, so its peak says nothing"]`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if _, err := s.Run(t.Context(), optimem.Values{"input": tensor.Of(make([]float32, 64), 1, 1, 8, 8)}); err != nil {
		t.Fatal(err)
	}
	for of, c := range map[string]struct {
		check func(TB, *optimem.Session, int64)
		peak  int64
	}{"device": {MaxPeak, s.Metrics().PeakBytes}, "host": {MaxHostPeak, s.Metrics().HostPeakBytes}} {
		if c.peak <= 0 {
			t.Errorf("a peak of %d bytes of %s memory", c.peak, of)
		}
		if got := failures(c.check, c.peak); got != "[]" {
			t.Errorf("%s: %s", of, got)
		}
		want := fmt.Sprintf(`["the session held %d bytes of %s memory, 1 more than the %d of the test"]`, c.peak, of, c.peak-1)
		if got := failures(c.check, c.peak-1); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
