package search

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/optimem/optimem/storage"
)

// TestSoonest: each slot lies where the last of the slots that it overlaps, of those before it in the pass, is as long
// ago as it can be, and begins at a multiple of what all slots are multiples of.
func TestSoonest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const unit = 256
		l := layout{bytes: rapid.Int64Range(storage.AlignBytes, 60*unit).Draw(t, "ring"), depth: soonest}
		end := l.bytes / storage.AlignBytes * storage.AlignBytes
		visits := make([]visit, rapid.IntRange(1, 20).Draw(t, "visits"))
		for k := range visits {
			visits[k].bytes = unit * rapid.Int64Range(1, end/unit).Draw(t, "slot")
		}
		if !l.place(visits) {
			t.Fatal("slots that fit were not placed")
		}
		for k := range visits {
			latest := func(at int64) int {
				for j := k - 1; j >= 0; j-- {
					if o := &visits[j]; at < o.offset+o.bytes && o.offset < at+visits[k].bytes {
						return j
					}
				}
				return -1
			}
			v := &visits[k]
			if v.offset < 0 || v.offset+v.bytes > end || v.offset%unit != 0 {
				t.Fatalf("slot %d lies at %d+%d of %d", k, v.offset, v.bytes, l.bytes)
			}
			for at := int64(0); at <= end-v.bytes; at += unit {
				if latest(at) < latest(v.offset) {
					t.Fatalf("slot %d lies at %d and waits for %d, at %d it waits for %d", k, v.offset, latest(v.offset), at, latest(at))
				}
			}
			if j := latest(v.offset); j >= 0 && v.after != k-j {
				t.Fatalf("slot %d waits for the one %d before, and overlaps that %d before", k, v.after, k-j)
			}
		}
	})
}
