//go:build linux && (amd64 || arm64) && !nocuda

package sim

import (
	"bytes"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
)

// A Library is the opened driver. There is one in a process: tests that use it do not run at the same time.
type Library struct {
	// Path is what to open in the driver's stead.
	Path string

	configure, report, take, run uintptr
}

// New builds and opens the driver, and begins anew with settings, "key=value" with spaces between: memory, pinned (bytes,
// with K, M or G), devices, cc (80 for 8.0), driver (12040 for 12.4), compiler (0 where the driver's is not there), init (the code that initialising fails with), copy
// (bytes a second), latency, launch (ns on the driver's clock), order (threads, or lazy:SEED, the default), and any number
// of fault=CALL:N:CODE, where the N-th call fails, with late: before it once its work is done, with :+ behind it each call
// from then on.
func New(t testing.TB, settings string) *Library {
	t.Helper()
	return at(t, Path(t), settings)
}

// at is New for a driver that was built.
func at(t testing.TB, path, settings string) *Library {
	t.Helper()
	l := &Library{Path: path}
	handle, err := purego.Dlopen(l.Path, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range map[string]*uintptr{
		"simcuConfigure": &l.configure, "simcuReport": &l.report, "simcuTake": &l.take,
		"simcuRun": &l.run,
	} {
		if *p, err = purego.Dlsym(handle, name); err != nil {
			t.Fatal(err)
		}
	}
	if !l.set(settings) {
		t.Fatalf("the simulated driver does not know %q", settings)
	}
	return l
}

// set begins anew with settings, and reports whether they are known.
func (l *Library) set(settings string) bool {
	text := append([]byte(settings), 0)
	r, _, _ := purego.SyscallN(l.configure, uintptr(unsafe.Pointer(&text[0])))
	return int32(r) == 0
}

// Take says how much of a device's memory others use from now on.
func (l *Library) Take(device int, bytes int64) {
	purego.SyscallN(l.take, uintptr(device), uintptr(bytes))
}

// A Report is what the driver saw since it was configured.
type Report struct {
	// Races counts accesses that no event orders; FirstRace is one of them in words. Message is the last failure's.
	Races              int
	FirstRace, Message string
	// Misuses counts what a driver takes without a word and a GPU punishes: memory of the host that is filled, given
	// back or copied to while a copy of it may be under way, streams that end with work, events that are recorded again
	// before anybody knows that they were reached, modules that go while their kernels run. As with races, it is the
	// order that was asked for that is looked at. FirstMisuse is one of them in words.
	Misuses     int
	FirstMisuse string
	// Spins counts waits in which a processor of the host does nothing else, Timed records of events that are timed,
	// which take longer.
	Spins, Timed int
	// Unpinned counts copies from or to memory that is not page-locked.
	// Launches are those of kernels, each of a graph's too; GraphLaunches those of graphs, Products cuBLASLt's.
	Unpinned, Launches, GraphLaunches, Products, Copies int
	BytesIn, BytesOut                                   int64
	PeakBytes, PinnedPeakBytes                          int64
	// SpanNanoseconds is the driver's clock.
	SpanNanoseconds int64
	// Left counts what was not given back.
	Left map[string]int
}

// Report asks what was seen.
func (l *Library) Report() Report {
	buf := make([]byte, 4096)
	purego.SyscallN(l.report, uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)))
	r := Report{Left: make(map[string]int)}
	texts := map[string]*string{"first_race": &r.FirstRace, "first_misuse": &r.FirstMisuse, "message": &r.Message}
	counts := map[string]*int{
		"races": &r.Races, "misuses": &r.Misuses, "spins": &r.Spins, "timed": &r.Timed, "unpinned": &r.Unpinned, "launches": &r.Launches,
		"graph_launches": &r.GraphLaunches, "products": &r.Products, "copies": &r.Copies,
	}
	sizes := map[string]*int64{
		"bytes_in": &r.BytesIn, "bytes_out": &r.BytesOut, "peak": &r.PeakBytes, "pinned_peak": &r.PinnedPeakBytes, "span_ns": &r.SpanNanoseconds,
	}
	lines, _, _ := bytes.Cut(buf, []byte{0})
	for line := range strings.Lines(string(lines)) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		n, _ := strconv.ParseInt(value, 10, 64) // texts are not numbers
		if text := texts[key]; text != nil {
			*text = value
		} else if count := counts[key]; count != nil {
			*count = int(n)
		} else if size := sizes[key]; size != nil {
			*size = n
		} else if n != 0 {
			r.Left[key] = int(n)
		}
	}
	return r
}

// Check fails the test where there were races or misuses, or something was not given back.
func (l *Library) Check(t testing.TB) {
	t.Helper()
	r := l.Report()
	if r.Races > 0 {
		t.Errorf("%d races, the first: %s", r.Races, r.FirstRace)
	}
	if r.Misuses > 0 {
		t.Errorf("%d misuses, the first: %s", r.Misuses, r.FirstMisuse)
	}
	if len(r.Left) > 0 {
		t.Errorf("not given back: %v", r.Left)
	}
}
