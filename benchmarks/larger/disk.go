package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/optimem/optimem/internal/calibrate"
	"github.com/optimem/optimem/storage"
)

// diskRate is how many bytes of a folder's largest file the disk gives in a second, as they lie there and as a pager
// asks for them. It is 0 where the time is.
func diskRate(ctx context.Context, folder string, limit time.Duration) (rate float64, err error) {
	if limit <= 0 {
		return 0, nil
	}
	path, err := largestFile(folder)
	if err != nil {
		return 0, err
	}
	f, err := storage.Open(path)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size := f.Size()
	return calibrate.ReadRate(ctx, []storage.Extent{{Source: f, Bytes: size}}, limit)
}

// largestFile returns the path of a folder's largest file, or of the file itself.
func largestFile(folder string) (string, error) {
	best, most := "", int64(-1)
	err := filepath.WalkDir(folder, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Size() > most {
			best, most = path, info.Size()
		}
		return err
	})
	if err == nil && best == "" {
		err = fmt.Errorf("%s: no file", folder)
	}
	return best, err
}

// systemRead is what Linux says that this process had read from disks, 0 elsewhere.
func systemRead() int64 {
	text, err := os.ReadFile("/proc/self/io")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "read_bytes: "); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(value), 10, 64) // of what is not a number, nothing is known
			return n
		}
	}
	return 0
}
