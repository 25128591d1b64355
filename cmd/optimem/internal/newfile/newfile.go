// Package newfile writes files that appear whole or not at all, and says beforehand whether a disk has room for one.
//
// It does not know what is in a file, nor how a command says that it failed.
//
//	err := newfile.Write(path, func(f *os.File) error { return encode(f) })
package newfile

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Write writes the file at path so that it appears whole or not at all: write fills a temporary file beside it,
// which takes its name once everything is on the disk. Whatever goes wrong, the temporary file is removed and a file
// that was there before is untouched.
func Write(path string, write func(f *os.File) error) error {
	f, err := New(path, write)
	if err != nil {
		return err
	}
	return f.Place()
}

// A File is on the disk under a temporary name. It has to be placed or dropped.
type File struct{ temporary, path string }

// New writes a file that is to be at path.
func New(path string, write func(f *os.File) error) (n *File, err error) {
	path, err = Path(path)
	if err != nil {
		return nil, err
	}
	dir, name := filepath.Split(path)
	const most = 100 // bytes of the name: a long one leaves no room for what is added
	short := strings.ToValidUTF8(name[:min(len(name), most)], "")
	temporary := filepath.Join(dir, fmt.Sprintf(".%s.%s.tmp", short, rand.Text()[:8]))
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, &fs.PathError{Op: "create", Path: path, Err: cause(err)}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, ignoreClosed(f.Close()), os.Remove(temporary))
		}
	}()
	if err := write(f); err != nil {
		return nil, err
	}
	if err := f.Sync(); err != nil {
		return nil, err
	}
	return &File{temporary, path}, f.Close()
}

// Place gives the file its name, and drops it where that fails.
func (n *File) Place() error {
	if err := os.Rename(n.temporary, n.path); err != nil {
		return errors.Join(err, n.Drop())
	}
	syncFolder(filepath.Dir(n.path))
	return nil
}

// Drop removes the file.
func (n *File) Drop() error { return os.Remove(n.temporary) }

// Path follows a link, so that the file it points to is replaced and not the link.
func Path(path string) (string, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return path, nil
	case err != nil:
		return "", err
	case !info.Mode().IsRegular():
		return "", &fs.PathError{Op: "write", Path: path, Err: errors.New("not a regular file")}
	}
	return filepath.EvalSymlinks(path)
}

// cause strips the temporary file's name from an error.
func cause(err error) error {
	var inner *fs.PathError
	if errors.As(err, &inner) {
		return inner.Err
	}
	return err
}

func ignoreClosed(err error) error {
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// syncFolder makes a rename durable where folders can be synced; the file itself is safe without.
func syncFolder(dir string) {
	if d, err := os.Open(dir); err == nil {
		_ = d.Sync()
		_ = d.Close()
	}
}
