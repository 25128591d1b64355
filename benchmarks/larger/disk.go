package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
