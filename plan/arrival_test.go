package plan

import "testing"

// TestEarly: a first pass begins before the weights that stay are there where it computes for a while and they take a
// while, on a device that files are read into.
func TestEarly(t *testing.T) {
	l := stack(t, 4, 300, 300, 300, 300)
	emu := Target{Name: "emu", AlignBytes: 256}
	for _, c := range []struct {
		name   string
		rates  Rates
		target Target
		early  bool
	}{
		{"both take long", Rates{FLOPs: 1e6, DiskBytes: 1e6}, CPU, true},
		{"reads take nothing", Rates{FLOPs: 1e6, DiskBytes: 1e12}, CPU, false},
		{"ops take nothing", Rates{FLOPs: 1e12, MemoryBytes: 1e12, DiskBytes: 1e6}, CPU, false},
		{"through host memory", Rates{FLOPs: 1e6, DiskBytes: 1e6}, emu, false},
	} {
		for _, mode := range []Mode{Resident, Page} {
			p := mustPlan(t, l, Options{Mode: mode, Once: true, Target: c.target, Rates: c.rates})
			if is := p.Early && p.FirstReads() != nil; is != (c.early && mode == Resident) {
				t.Errorf("%s, %s: early is %v\n%v", c.name, mode, is, p)
			}
		}
	}
}
