package command

import (
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/optimem/optimem/internal/ascii"
	"github.com/optimem/optimem/loader"
)

// SizeFlag is a flag such as --open-memory 1GiB.
type SizeFlag int64

// Set implements [pflag.Value].
func (s *SizeFlag) Set(text string) error {
	n, err := ascii.ParseSize(text)
	if err != nil {
		return err
	}
	*s = SizeFlag(n)
	return nil
}

// String implements [pflag.Value].
func (s *SizeFlag) String() string {
	if *s == 0 {
		return ""
	}
	return ascii.FormatSize(int64(*s))
}

// Type implements [pflag.Value].
func (s *SizeFlag) Type() string { return "SIZE" }

// A SwapFlag is how many bytes may wait, and whether they do so in the host's memory, as in "host:20GB", instead of in a file.
type SwapFlag struct {
	Bytes int64
	Host  bool
}

// Set implements [pflag.Value].
func (s *SwapFlag) Set(text string) error {
	size, host := strings.CutPrefix(text, "host:")
	n, err := ascii.ParseSize(size)
	if err != nil {
		return err
	}
	*s = SwapFlag{Bytes: n, Host: host}
	return nil
}

// String implements [pflag.Value].
func (s *SwapFlag) String() string {
	switch {
	case s.Bytes == 0:
		return ""
	case s.Host:
		return "host:" + ascii.FormatSize(s.Bytes)
	}
	return ascii.FormatSize(s.Bytes)
}

// Type implements [pflag.Value].
func (s *SwapFlag) Type() string { return "SIZE" }

// A BudgetFlag is a number of bytes, or a share of what there is.
type BudgetFlag struct {
	Bytes int64
	Share float64
}

// Set implements [pflag.Value].
func (b *BudgetFlag) Set(text string) error {
	percent, isShare := strings.CutSuffix(text, "%")
	if !isShare {
		n, err := ascii.ParseSize(text)
		if err != nil {
			return err
		}
		*b = BudgetFlag{Bytes: n}
		return nil
	}
	x, err := strconv.ParseFloat(percent, 64)
	if err != nil || !(x > 0 && x <= 100) {
		return fmt.Errorf("share %q: write shares as 50%%, more than 0 and 100 at most", text)
	}
	*b = BudgetFlag{Share: x / 100}
	return nil
}

// String implements [pflag.Value].
func (b *BudgetFlag) String() string {
	switch {
	case b.Share > 0:
		return strconv.FormatFloat(b.Share*100, 'f', -1, 64) + "%"
	case b.Bytes > 0:
		return ascii.FormatSize(b.Bytes)
	}
	return ""
}

// Type implements [pflag.Value].
func (b *BudgetFlag) Type() string { return "SIZE" }

// Given reports whether the user said anything.
func (b *BudgetFlag) Given() bool { return *b != BudgetFlag{} }

// BoundHeap keeps a process that opens files within what the loader's limits promise: the collector works harder once
// the process takes as much as they allow. Before that it may let garbage lie, since the process soon ends. A
// GOMEMLIMIT or GOGC that the user has set stays. Who goes on after opening has the heap be as before.
func BoundHeap(limits loader.Limits, paths ...string) (asBefore func()) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	limitBefore, percentBefore := debug.SetMemoryLimit(-1), -1
	if os.Getenv("GOGC") == "" {
		const lazily = 400
		percentBefore = debug.SetGCPercent(lazily)
	}
	const overheadBytes = 16 << 20 // stacks, the runtime's own memory, what is printed
	memoryBytes := int64(loader.DefaultMemoryBytes)
	for _, path := range paths {
		fileBytes := int64(math.MaxInt64) // a folder's files are not looked at
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			fileBytes = info.Size()
		}
		memoryBytes = max(memoryBytes, limits.MemoryFor(fileBytes))
	}
	if memoryBytes <= math.MaxInt64-overheadBytes {
		debug.SetMemoryLimit(memoryBytes + overheadBytes)
	}
	return func() {
		debug.SetMemoryLimit(limitBefore)
		if os.Getenv("GOGC") == "" {
			debug.SetGCPercent(percentBefore)
		}
	}
}

// DropGarbage gives back to the system what opening and planning models left in the heap: several times of what stays of it, which
// would lie there beside the weights until as much again is garbage.
func DropGarbage() { debug.FreeOSMemory() }
