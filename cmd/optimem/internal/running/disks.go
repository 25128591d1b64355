//go:build !files

package running

import (
	"fmt"
	"maps"
	"slices"

	"github.com/optimem/optimem/internal/ascii"
	"github.com/optimem/optimem/internal/calibrate"
	"github.com/optimem/optimem/internal/sysmem"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/storage"
)

// Rates of disks are believed when so much was read of one, or a slower one when passes waited for weights for so much of their
// time: else it was not the disk that was slow.
const (
	believedBytes = 1 << 30
	believedStall = 1.0 / 3
)

// TellDisks says how fast disks were read in a session, and corrects the calibration where that is far from what it says.
func (r *Run) TellDisks(s *runtime.Session) {
	if s == nil {
		return
	}
	read := s.DisksRead()
	if len(read) == 0 {
		return
	}
	path, err := CalibrationPath()
	if err != nil {
		return // a user without a home has calibrated nothing
	}
	m := s.Metrics()
	for _, disk := range slices.Sorted(maps.Keys(read)) {
		r.tellDisk(path, disk, read[disk], m.Stall.Seconds() >= believedStall*m.Passing.Seconds())
	}
}

// tellDisk says what TellDisks says of one disk. Waited says that passes waited for weights.
func (r *Run) tellDisk(path string, disk storage.Disk, read runtime.DiskRead, waited bool) {
	if read.Busy <= 0 || read.Bytes == 0 || disk == 0 {
		return
	}
	rate := float64(read.Bytes) / read.Busy.Seconds()
	host := calibrate.Host{CPU: HostName(sysmem.Read()), Threads: r.Threads}
	rates, known, err := calibrate.Load(path, host)
	said := fmt.Sprintf("disk %s was read at %s/s, %s of it", disk, ascii.FormatSize(int64(rate)),
		ascii.FormatSize(read.Bytes))
	if err != nil || !known {
		r.Note("%s; it was not calibrated", said)
		return
	}
	before := rates.On(disk).DiskBytes
	r.Note("%s; the calibration says %s/s", said, ascii.FormatSize(int64(before)))
	if read.Bytes < believedBytes || rate < before && !waited {
		return
	}
	before, changed, err := calibrate.Correct(path, host, disk, rate)
	switch {
	case r.Quiet:
	case err != nil:
		r.Say("warning", fmt.Sprintf("the calibration was not corrected: %v", err))
	case changed:
		r.Say("note", fmt.Sprintf("the calibration says now that disk %s gives %s/s, as it was read; it said %s/s",
			disk,
			ascii.FormatSize(int64(rate)), ascii.FormatSize(int64(before))))
	}
}
