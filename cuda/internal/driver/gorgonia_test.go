//go:build gorgonia && linux && (amd64 || arm64) && !nocuda

package driver

import (
	"debug/elf"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gorgonia.org/cu"

	"github.com/optimem/optimem/cuda/sim"
)

// early is what a call says before a driver was opened.
var _, early = cu.NumDevices()

// TestStartsWithoutDriver: the program neither needs a driver to start nor reaches one before it is opened.
func TestStartsWithoutDriver(t *testing.T) {
	if code(early) != Code(cu.NotInitialized) || early.Error() != "NotInitialized" {
		t.Errorf("before a driver was opened: %v", early)
	}
	program, err := elf.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	needed, err := program.ImportedLibraries()
	if err != nil || len(needed) == 0 {
		t.Fatalf("needs %v: %v", needed, err)
	}
	for _, name := range needed {
		if strings.Contains(name, "cuda") {
			t.Errorf("the program does not start without %s", name)
		}
	}
}

// TestOneDriver: handles of one driver must not reach another.
func TestOneDriver(t *testing.T) {
	first := sim.New(t, "")
	for range 2 {
		if _, err := Open(first.Path); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(first.Path)
	if err != nil {
		t.Fatal(err)
	}
	second := filepath.Join(t.TempDir(), "libcuda.so.1")
	if err := os.WriteFile(second, text, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(second); err == nil || !strings.Contains(err.Error(), first.Path) || errors.Is(err, ErrAbsent) {
		t.Errorf("a second driver: %v", err)
	}
}

// TestCodes: errors of gorgonia.org/cu are numbers, those that it has no name for too.
func TestCodes(t *testing.T) {
	s := sim.New(t, "fault=cuDeviceGet:1:803 fault=cuDeviceGet:2:12345")
	l, err := Open(s.Path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []Code{DriverMismatch, 12345} {
		if _, err := l.Device(0); !errors.Is(err, want) {
			t.Errorf("%v, want %d", err, want)
		}
	}
	if c := code(nil); c != 0 {
		t.Errorf("no error is %d", c)
	}
	if c := code(os.ErrClosed); c != Code(cu.Unknown) {
		t.Errorf("an error of another package is %d", c)
	}
}
