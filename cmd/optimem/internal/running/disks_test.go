//go:build !files

package running

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/optimem/optimem/cmd/optimem/internal/command"
	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/internal/calibrate"
	"github.com/optimem/optimem/internal/sysmem"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/storage"
)

// TestDisksAreTold: with --verbose the rate at which a disk was read is told beside the calibrated one, and the calibration is
// corrected, which is said, where much was read, far from it, and it was the disk that was slow.
func TestDisksAreTold(t *testing.T) {
	const disk = storage.Disk(7<<32 | 1)
	for name, c := range map[string]struct {
		bytes           int64
		seconds         int
		waited, verbose bool
		want            string
		rate            float64
	}{
		"slower":             {2 << 30, 4, true, true, "the calibration says now that disk 7:1 gives 512.00 MiB/s, as it was read; it said 1.00 GiB/s", 512 << 20},
		"slower, said alone": {2 << 30, 4, true, false, "the calibration says now", 512 << 20},
		"busy otherwise":     {2 << 30, 4, false, true, "disk 7:1 was read at 512.00 MiB/s, 2.00 GiB of it; the calibration says 1.00 GiB/s", 1 << 30},
		"faster":             {4 << 30, 2, false, true, "the calibration says now", 2 << 30},
		"about the same":     {9 << 30, 10, true, true, "the calibration says 1.00 GiB/s", 1 << 30},
		"too little":         {1 << 29, 4, true, true, "the calibration says 1.00 GiB/s", 1 << 30},
		"nothing":            {0, 4, true, true, "", 1 << 30},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "c.json")
			var said bytes.Buffer
			r := &Run{Line: &command.Line{Stderr: &said}, ModelFlags: ModelFlags{Threads: 2}}
			r.Verbose = c.verbose
			host := calibrate.Host{CPU: HostName(sysmem.Read()), Threads: 2}
			read := runtime.DiskRead{Bytes: c.bytes, Busy: time.Duration(c.seconds) * time.Second}
			r.tellDisk(path, disk, read, c.waited)
			if c.bytes > 0 && c.verbose && !strings.Contains(said.String(), "it was not calibrated") {
				t.Errorf("of nothing: %s", said.String())
			}
			said.Reset()
			if err := calibrate.Save(path, host, cost.Rates{FLOPs: 1, DiskBytes: 1 << 30}); err != nil {
				t.Fatal(err)
			}
			r.tellDisk(path, disk, read, c.waited)
			rates, _, err := calibrate.Load(path, host)
			if err != nil || rates.On(disk).DiskBytes != c.rate {
				t.Errorf("%v bytes a second, want %v: %v", rates.On(disk).DiskBytes, c.rate, err)
			}
			if !strings.Contains(said.String(), c.want) || c.want == "" && said.Len() > 0 {
				t.Errorf("said %q, want %q", said.String(), c.want)
			}
		})
	}
}
