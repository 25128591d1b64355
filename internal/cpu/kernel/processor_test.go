package kernel

import (
	"os"
	"regexp"
	"strconv"
	"testing"
)

// TestFamily reads what processors are known to say of themselves in leaf 1.
func TestFamily(t *testing.T) {
	for name, c := range map[string]struct {
		a    uint32
		want int
	}{"Zen 5": {0x00b00f21, 0x1a}, "Zen 4": {0x00a10f11, 0x19}, "Sapphire Rapids": {0x000806f8, 6}, "Cascade Lake": {0x00050657, 6}} {
		if got := familyOf(c.a); got != c.want {
			t.Errorf("%s: family %#x, want %#x", name, got, c.want)
		}
	}
}

// TestProcessor compares what this processor says with what the kernel says of it, where that can be read.
func TestProcessor(t *testing.T) {
	text, err := os.ReadFile("/proc/cpuinfo")
	vendor := regexp.MustCompile(`(?m)^vendor_id\s*: (.*)$`).FindSubmatch(text)
	family := regexp.MustCompile(`(?m)^cpu family\s*: (\d+)$`).FindSubmatch(text)
	p := identify()
	if err != nil || vendor == nil || family == nil || p == (processor{}) {
		t.Skip("nothing to compare with")
	}
	if n, _ := strconv.Atoi(string(family[1])); p.vendor != string(vendor[1]) || p.family != n {
		t.Errorf("%+v, and the kernel says %s of family %d", p, vendor[1], n)
	}
}
