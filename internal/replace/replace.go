// Package replace writes small files so that who reads them finds the old one or the new one, whole. It does not know what is in
// them, and does not wait until they are on the disk.
//
//	err := replace.File("calibration.json", text)
package replace

import (
	"errors"
	"os"
	"path/filepath"
)

// File writes a file, in the place of the one before, into a folder that is there. Where it fails the one before is left. Its owner
// alone can read it.
func File(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
