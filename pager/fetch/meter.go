package fetch

import (
	"sync"
	"time"

	"github.com/optimem/optimem/storage"
)

// A Meter notes how fast disks are read while they are: what was read of each, and for how long anything was under way
// there. What comes out of the page cache is left out as far as sources can tell. A nil one notes nothing and looks at no
// clock. It may be used from several goroutines.
type Meter struct {
	mu    sync.Mutex
	disks map[storage.Disk]*metered
}

// metered is what is known of a disk: of goroutines' reads how many are under way, since when, and what has ended since.
type metered struct {
	bytes    int64
	busy     time.Duration
	underWay int
	since    time.Time
}

// meteredBytes is how much has to be read of a disk for a rate.
const meteredBytes = 64 << 20

// Rates returns the bytes of a second by disk, of those that enough was read of.
func (m *Meter) Rates() map[storage.Disk]float64 {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var out map[storage.Disk]float64
	for disk, d := range m.disks {
		if d.bytes >= meteredBytes && d.busy > 0 {
			if out == nil {
				out = make(map[storage.Disk]float64)
			}
			out[disk] = float64(d.bytes) / d.busy.Seconds()
		}
	}
	return out
}

// Read returns how many bytes were read of a disk, and for how long something was under way there.
func (m *Meter) Read() map[storage.Disk]Metered {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make(map[storage.Disk]Metered)
	for disk, d := range m.disks {
		out[disk] = Metered{d.bytes, d.busy}
	}
	return out
}

// Metered is what was read of a disk, and how long that took.
type Metered struct {
	Bytes int64
	Busy  time.Duration
}

// of returns what is known of a disk, while the meter is locked.
func (m *Meter) of(disk storage.Disk) *metered {
	d := m.disks[disk]
	if d == nil {
		if m.disks == nil {
			m.disks = make(map[storage.Disk]*metered)
		}
		d = &metered{}
		m.disks[disk] = d
	}
	return d
}

// note adds what a disk gave in a time.
func (m *Meter) note(disk storage.Disk, bytes int64, busy time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.of(disk)
	d.bytes, d.busy = d.bytes+bytes, d.busy+busy
}

// Reading notes that a read begins of a source, with as many bytes of a file, and with what it returns that it has ended, and whether all was read.
func (m *Meter) Reading(e storage.Extent, storedBytes int64) (ended func(whole bool)) {
	if m == nil {
		return nothing
	}
	if s, ok := e.Source.(storage.CachedSource); ok {
		if n, ok := s.CachedBytes(e.Offset, e.Bytes); !ok || n > 0 {
			return nothing
		}
	}
	if _, ok := e.Source.(storage.MemorySource); ok {
		return nothing
	}
	disk := storage.DiskOf(e.Source)
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.of(disk)
	if d.underWay == 0 {
		d.since = time.Now()
	}
	d.underWay++
	return func(whole bool) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if whole {
			d.bytes += storedBytes
		}
		if d.underWay--; d.underWay == 0 {
			d.busy += time.Since(d.since)
		}
	}
}

func nothing(bool) {}
