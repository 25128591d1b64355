package work

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
)

// maxPath bounds the path of a shared file.
const maxPath = 1024

// isShared reports whether a path stays within a folder: with slashes, without "..", and of a length that can be.
func isShared(name string) bool {
	return fs.ValidPath(name) && name != "." && len(name) <= maxPath && !strings.ContainsAny(name, "\\:\x00")
}

// errNotShared says that a worker has no folder that it shares with submitters.
var errNotShared = errors.New("it lies in a folder that this worker does not share: --shared")

// openShared opens a regular file of a folder. Links are refused, wherever they lead: what is read is what lies there.
func openShared(shared *os.Root, name string) (*os.File, int64, error) {
	if shared == nil {
		return nil, 0, errNotShared
	}
	if !isShared(name) {
		return nil, 0, fmt.Errorf("%.100q is no path within a folder", name)
	}
	for at := name; at != "."; at = path.Dir(at) {
		info, err := shared.Lstat(at)
		if err != nil {
			return nil, 0, err
		}
		if at == name && !info.Mode().IsRegular() || at != name && !info.IsDir() {
			return nil, 0, fmt.Errorf("%.100q is a link, or no file", at)
		}
	}
	f, err := shared.Open(name)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat() // it may have become something else
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%.100q is no file", name)
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

// sharedInput is what a note has of a shared file.
func sharedInput(ctx context.Context, shared *os.Root, input, name string) (noteInput, error) {
	f, _, err := openShared(shared, name)
	if err != nil {
		return noteInput{}, err
	}
	defer f.Close()
	sum := sha256.New()
	n, err := io.Copy(sum, &stopping{ctx, f})
	return noteInput{Name: input, SHA256: hex.EncodeToString(sum.Sum(nil)), Bytes: n, Path: name}, err
}

// readShared reads an input from the folder, which has the bytes that the note says. Where it is not there, another
// worker may see it.
func readShared(ctx context.Context, shared *os.Root, in noteInput) ([]byte, error) {
	f, size, err := openShared(shared, in.Path)
	if err != nil {
		return nil, fmt.Errorf("input %.100q: %w", in.Name, err)
	}
	defer f.Close()
	if size != in.Bytes {
		return nil, poison("input %.100q: the file has %d bytes, and had %d", in.Name, size, in.Bytes)
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(&stopping{ctx, f}, data); err != nil {
		return nil, fmt.Errorf("input %.100q: %w", in.Name, err)
	}
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != in.SHA256 {
		return nil, poison("input %.100q: the file is not what it was", in.Name)
	}
	return data, nil
}

// A stopping reads until a context is done.
type stopping struct {
	ctx context.Context
	r   io.Reader
}

// Read implements [io.Reader].
func (s *stopping) Read(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	return s.r.Read(p)
}
