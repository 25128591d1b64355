//go:build unix

package sysmem

import (
	"os"
	"os/exec"
	goruntime "runtime"
	"strconv"
	"testing"
)

// What was touched counts, and does not go away.
func TestPeakRSS(t *testing.T) {
	before := PeakRSS()
	const bytes = 64 << 20
	touched := make([]byte, bytes)
	for i := 0; i < bytes; i += 4096 {
		touched[i] = 1
	}
	after := PeakRSS()
	if before <= 0 || after < bytes || after < before {
		t.Errorf("%d bytes before %d were touched, %d after", before, len(touched), after)
	}
}

// A program that a large process starts does not begin with that one's peak.
func TestPeakRSSIsOwn(t *testing.T) {
	if os.Getenv("OPTIMEM_TEST_PEAK") != "" {
		os.Stdout.WriteString(strconv.FormatInt(PeakRSS(), 10))
		os.Exit(0)
	}
	if goruntime.GOOS != "linux" {
		t.Skip("only Linux tells")
	}
	const bytes = 256 << 20
	touched := make([]byte, bytes)
	for i := 0; i < bytes; i += 4096 {
		touched[i] = 1
	}
	child := exec.Command(os.Args[0], "-test.run=^TestPeakRSSIsOwn$")
	child.Env = append(os.Environ(), "OPTIMEM_TEST_PEAK=1")
	out, err := child.Output()
	if err != nil {
		t.Fatal(err)
	}
	if n, err := strconv.ParseInt(string(out), 10, 64); err != nil || n <= 0 || n >= bytes {
		t.Errorf("a child of a process of %d bytes has a peak of %s (%v)", len(touched), out, err)
	}
}
