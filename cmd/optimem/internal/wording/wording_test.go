package wording

import (
	"testing"
	"time"
)

// Times are written to four digits, in the unit that suits.
func TestSeconds(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0 µs", 12345: "12.35 µs", 225826733: "225.8 ms", 1500 * time.Millisecond: "1.5 s",
		999 * time.Second: "999 s", 12345678 * time.Millisecond: "12346 s",
	} {
		if got := Seconds(d.Seconds()); got != want {
			t.Errorf("%d ns are %s, want %s", d, got, want)
		}
	}
}

// What takes nothing is not named, and one thing is no plural.
func TestPurposesAndCounts(t *testing.T) {
	if got, want := Purposes(For(1024, "slots"), For(0, "cache"), For(2048, "workspace")), "1.00 KiB slots, 2.00 KiB workspace"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := Purposes(For(0, "cache")); got != "none" {
		t.Errorf("got %q for nothing", got)
	}
	if got := Counted(1, "run") + ", " + Counted(0, "op"); got != "1 run, 0 ops" {
		t.Errorf("got %q", got)
	}
}
