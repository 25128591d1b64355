package main

import (
	"math"
	"os"
	"runtime/debug"

	"github.com/optimem/optimem/internal/ascii"
	"github.com/optimem/optimem/loader"
)

// sizeFlag is a flag such as --open-memory 1GiB.
type sizeFlag int64

func (s *sizeFlag) Set(text string) error {
	n, err := ascii.ParseSize(text)
	if err != nil {
		return err
	}
	*s = sizeFlag(n)
	return nil
}

func (s *sizeFlag) String() string {
	if *s == 0 {
		return ""
	}
	return ascii.FormatSize(int64(*s))
}

func (s *sizeFlag) Type() string { return "SIZE" }

// boundHeap keeps a process that opens files within what the loader's limits promise: the collector works harder once
// the process takes as much as they allow. Before that it may let garbage lie, since the process soon ends. A
// GOMEMLIMIT or GOGC that the user has set stays.
func boundHeap(limits loader.Limits, paths ...string) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	if os.Getenv("GOGC") == "" {
		const lazily = 400
		debug.SetGCPercent(lazily)
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
}
