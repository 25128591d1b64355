package plan_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/optimem/optimem/plan"
)

// TestRuns: neighbours that lie alike are one copy, and others are not.
func TestRuns(t *testing.T) {
	for name, c := range map[string]struct {
		parts []plan.Part
		want  []plan.Run
	}{
		"none": {},
		"neighbours": {
			[]plan.Part{{High: 512, Staged: 100}, {High: 256, Staged: 612, Offset: 512}}, []plan.Run{{0, 100, 0, 768}},
		},
		"the other way round": {
			[]plan.Part{{Low: 256, High: 512, Staged: 612, Offset: 512}, {High: 512, Staged: 100}}, []plan.Run{{1, 100, 0, 768}},
		},
		"a gap in both": {
			[]plan.Part{{High: 500, Staged: 100}, {High: 256, Staged: 612, Offset: 512}}, []plan.Run{{0, 100, 0, 768}},
		},
		"a gap on the device": {
			[]plan.Part{{High: 500, Staged: 100}, {High: 256, Staged: 600, Offset: 512}},
			[]plan.Run{{0, 100, 0, 500}, {1, 600, 512, 256}},
		},
		"a gap for something else": {
			[]plan.Part{{High: 512, Staged: 100}, {High: 256, Staged: 868, Offset: 768}},
			[]plan.Run{{0, 100, 0, 512}, {1, 868, 768, 256}},
		},
		"bytes in common": {
			[]plan.Part{{High: 512, Staged: 100}, {High: 512, Staged: 356, Offset: 512}},
			[]plan.Run{{0, 100, 0, 512}, {1, 356, 512, 512}},
		},
	} {
		if got := plan.Runs(c.parts, 256); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestRunsBringEveryByte makes the copies of drawn parts: each byte of a part comes to its place, and nothing comes to
// where another part lies.
func TestRunsBringEveryByte(t *testing.T) {
	const align = 16
	rapid.Check(t, func(t *rapid.T) {
		var parts []plan.Part
		var staged, offset int64
		for range rapid.IntRange(1, 12).Draw(t, "parts") {
			n := rapid.Int64Range(1, 70).Draw(t, "bytes")
			parts = append(parts, plan.Part{High: n, Staged: staged, Offset: offset})
			staged += n + rapid.SampledFrom([]int64{0, 0, -n & (align - 1), 40}).Draw(t, "gap")
			offset += plan.AlignUp(n, align) + align*rapid.Int64Range(0, 3).Draw(t, "room")
		}
		order := rapid.Permutation(parts).Draw(t, "order")
		host := make([]byte, staged+align)
		for i := range host {
			host[i] = byte(1 + i%250)
		}
		device := make([]byte, offset+align)
		runs := plan.Runs(order, align)
		for _, r := range runs {
			copy(device[r.Offset:][:r.Bytes], host[r.Staged:])
			if order[r.First].Staged != r.Staged || order[r.First].Offset != r.Offset {
				t.Fatalf("%+v begins with %+v", r, order[r.First])
			}
		}
		taken := make([]bool, len(device))
		for _, p := range parts {
			n := p.High - p.Low
			if !slices.Equal(device[p.Offset:][:n], host[p.Staged:][:n]) {
				t.Fatalf("%+v did not come by %+v", p, runs)
			}
			for i := range plan.AlignUp(n, align) {
				taken[p.Offset+i] = true
			}
		}
		for i, b := range device {
			if b != 0 && !taken[i] {
				t.Fatalf("byte %d, where no part lies, was written by %+v of %+v", i, runs, order)
			}
		}
	})
}
