// Package sysmem reports how much memory and how many processors a process may use: those of the host, within the
// limits of its cgroups.
//
// It reserves nothing. What an operating system does not report is zero, and marked as unknown.
//
//	info := sysmem.Read()
//	budgetBytes, ok := info.BudgetBytes()
package sysmem

import (
	"math"

	"github.com/optimem/optimem/internal/hostmem"
)

// Info is what a host has and what a process may use of it.
type Info struct {
	// TotalBytes is the host's memory, 0 where it is not known.
	TotalBytes int64
	// AvailableBytes is what can be had without swapping, page cache that can be given up included; 0 where it is not
	// known.
	AvailableBytes int64
	// LimitBytes is the smallest limit of the process and its cgroups, and LeftBytes the least that one of them leaves: its
	// limit less what is used in it, page cache that can be given up not counted. Both are [Unlimited] without a limit.
	LimitBytes, LeftBytes int64
	// CPUs is the smallest quota of processor time, in processors; 0 is none.
	CPUs float64
	// Model is the name of the processor, "" where it is not known.
	Model string
}

// Unlimited stands for no limit.
const Unlimited = math.MaxInt64

// reserveBytes is what [Info.BudgetBytes] leaves to the process itself and to others.
const reserveBytes = 128 << 20

// Read asks the operating system. What it does not tell stays zero, limits [Unlimited].
func Read() Info {
	i := readRoot("/")
	i.promised(hostmem.Unwritten())
	limitBytes, leftBytes := hostmem.Left()
	i.LimitBytes, i.LeftBytes = min(i.LimitBytes, limitBytes), min(i.LeftBytes, leftBytes)
	return i
}

// promised takes from what is left what the process has been promised, and the system believes to be free.
func (i *Info) promised(bytes int64) {
	i.AvailableBytes = max(i.AvailableBytes-bytes, min(i.AvailableBytes, 1))
	if i.LeftBytes != Unlimited {
		i.LeftBytes = max(i.LeftBytes-bytes, 0)
	}
}

// FreeBytes is what the process can still take: the smaller of what is available and what its cgroups leave. It is
// false where that is not known.
func (i Info) FreeBytes() (int64, bool) {
	free := i.LeftBytes
	if i.AvailableBytes > 0 {
		free = min(free, i.AvailableBytes)
	}
	return free, i.AvailableBytes > 0 || i.LeftBytes != Unlimited
}

// MostBytes is the memory that the process could have if nobody else took any: the smaller of the host's and its
// limits; 0 where it is not known.
func (i Info) MostBytes() int64 {
	if i.TotalBytes == 0 && i.LimitBytes == Unlimited {
		return 0
	}
	if i.TotalBytes == 0 {
		return i.LimitBytes
	}
	return min(i.TotalBytes, i.LimitBytes)
}

// BudgetBytes is what a program may plan with: what is free, less [reserveBytes]. Where only the total is known it is
// half of that. It is false where nothing is known.
func (i Info) BudgetBytes() (int64, bool) {
	free, ok := i.FreeBytes()
	switch {
	case ok:
		return max(free-reserveBytes, 0), true
	case i.TotalBytes > 0:
		return i.TotalBytes / 2, true
	}
	return 0, false
}
