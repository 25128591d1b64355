// Package pack makes packed copies of files and folders of weights, from which every bit comes back, and the originals
// of packed copies. A packed file opens as what it was made of, under the same name: a packed folder runs wherever the
// folder does.
//
// It knows files and folders, which of their files hold weights, from names in which order a pass is expected to want
// these, and how to write so that nothing half done is left. It does not know formats or models; how bytes become fewer is package storage/packed's.
//
//	report, err := pack.Write(ctx, "Qwen3-4B", "Qwen3-4B-packed", pack.Options{})
//	report, err = pack.Restore(ctx, "Qwen3-4B-packed", "Qwen3-4B-again", pack.Options{})
package pack

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/storage/packed"
)

// Options say how copies are made. The zero value is right.
type Options struct {
	// Threads is how many goroutines encode, or restore; 0 is one for each processor. The files are the same for any
	// number.
	Threads int
	// Progress, where it is not nil, is told of the bytes of files of weights as they are done, [Bytes] in all.
	Progress func(nBytes int64)
	// Resume has [Write] go on where an earlier one with it ended, or was ended, and leave what it has done where it ends
	// early: in "."+NAME+".partial" beside NAME. Only one may write there at a time.
	Resume bool
}

// A File is what became of a file.
type File struct {
	// Name is relative to the folder, with slashes; the file's own where there is no folder.
	Name string
	packed.Stats
	// Packed says that the copy is packed; else it is as the original is, since it would gain nothing.
	Packed bool
}

// A Report says what became of all files.
type Report struct {
	// Files are those of weights; Copied counts the others.
	Files  []File
	Copied int
	// Bytes and AfterBytes are those of the files of weights.
	Bytes, AfterBytes int64
}

// ErrNothing says that no file of a folder is one of weights.
var ErrNothing = errors.New("no file of weights")

// endings are those of files that hold weights.
var endings = []string{".safetensors", ".gguf", ".bin", ".pt", ".pth", ".pt2", ".ckpt"}

// IsWeights reports whether a file of that name in a folder is taken for one of weights.
func IsWeights(name string) bool {
	return slices.ContainsFunc(endings, func(e string) bool { return strings.HasSuffix(strings.ToLower(name), e) })
}

// A file is one to be copied.
type file struct {
	path, name string
	bytes      int64
	weights    bool
}

// mostFiles bounds the files of a folder: models have some hundred.
const mostFiles = 100_000

// list returns the files of a folder, or the one that a path is. Hidden ones are left out, and so are folders that are
// links.
func list(path string) (files []file, isFolder bool, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, false, err
	}
	if !info.IsDir() {
		if !info.Mode().IsRegular() {
			return nil, false, fmt.Errorf("%s: %w: no regular file", path, loader.ErrUnsupported)
		}
		return []file{{path, filepath.Base(path), info.Size(), true}}, false, nil
	}
	err = filepath.WalkDir(path, func(at string, d fs.DirEntry, err error) error {
		if err != nil || at == path {
			return err
		}
		if strings.HasPrefix(d.Name(), ".") {
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		if d.IsDir() {
			return nil
		}
		info, err := os.Stat(at) // of a link, what it leads to
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return nil
		}
		if err := loader.CheckInFolder(filepath.Dir(at), at); err != nil {
			return err
		}
		name, err := filepath.Rel(path, at)
		if err != nil {
			return err
		}
		if len(files) == mostFiles {
			return fmt.Errorf("%s: %w: more than %d files", path, loader.ErrLimit, mostFiles)
		}
		files = append(files, file{at, filepath.ToSlash(name), info.Size(), IsWeights(d.Name())})
		return nil
	})
	return files, true, err
}

// Bytes returns how many bytes the files of weights have that [Write] packs: what its progress is told in all.
func Bytes(path string) (int64, error) {
	files, _, err := list(path)
	var n int64
	for _, f := range files {
		if f.weights {
			n += f.bytes
		}
	}
	return n, err
}

// Write makes a packed copy of a file, or of a folder with all that is in it. to must not exist; it is written under
// another name beside it and renamed once all is on the disk: when Write fails or ctx is done, nothing is left, unless
// [Options.Resume] says so. Each block is read back from what was encoded and compared with the original.
func Write(ctx context.Context, from, to string, o Options) (*Report, error) {
	return copyAll(
		ctx, from, to, o,
		func(ctx context.Context, f *file, to *os.File) (File, error) { return packFile(ctx, f, to, o) },
	)
}

// Restore makes the original of a packed file or folder, in the same way. Files that are not packed are copied.
func Restore(ctx context.Context, from, to string, o Options) (*Report, error) {
	o.Resume = false
	return copyAll(
		ctx, from, to, o,
		func(ctx context.Context, f *file, to *os.File) (File, error) { return restoreFile(ctx, f, to, o) },
	)
}

// CheckNew refuses what exists, with an [fs.ErrExist].
func CheckNew(path string) error {
	_, err := os.Lstat(path)
	switch {
	case err == nil:
		return &fs.PathError{Op: "write", Path: path, Err: fs.ErrExist}
	case errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return err
}

// copyAll writes copies of all files, those of weights by a function.
func copyAll(
	ctx context.Context, from, to string, o Options, weights func(context.Context, *file, *os.File) (File, error),
) (report *Report, err error) {
	if o.Progress == nil {
		o.Progress = func(int64) {}
	}
	to = filepath.Clean(to)
	if err := CheckNew(to); err != nil {
		return nil, err
	}
	files, isFolder, err := list(from)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(files, func(f file) bool { return f.weights }) {
		return nil, fmt.Errorf("%s: %w: %w", from, loader.ErrUnsupported, ErrNothing)
	}
	parent, name := filepath.Split(to)
	const most = 100 // bytes of the name: a long one leaves no room for what is added
	short := strings.ToValidUTF8(name[:min(len(name), most)], "")
	temporary := filepath.Join(parent, fmt.Sprintf(".%s.%s.tmp", short, rand.Text()[:8]))
	if o.Resume {
		temporary = filepath.Join(parent, fmt.Sprintf(".%s.partial", short))
	}
	defer func() {
		if err == nil {
			return
		}
		if report = nil; !o.Resume {
			err = errors.Join(err, os.RemoveAll(temporary))
		}
	}()
	if isFolder {
		if err := os.Mkdir(temporary, 0o777); err != nil && !(o.Resume && errors.Is(err, fs.ErrExist)) {
			return nil, err
		}
	}
	report = &Report{}
	for i := range files {
		f, into := &files[i], temporary
		if isFolder {
			into = filepath.Join(temporary, filepath.FromSlash(f.name))
			if err := os.MkdirAll(filepath.Dir(into), 0o777); err != nil {
				return nil, err
			}
		}
		if err := report.add(ctx, f, into, o, weights); err != nil {
			return nil, err
		}
	}
	if o.Resume && isFolder {
		if err := removeOthers(temporary, files); err != nil {
			return nil, err
		}
	}
	if err := mayFinish(ctx, to); err != nil {
		return nil, err
	}
	syncFolder(temporary)
	if err := os.Rename(temporary, to); err != nil {
		return nil, err
	}
	syncFolder(filepath.Dir(to))
	return report, nil
}

// mayFinish looks once more whether there is a reason not to finish.
func mayFinish(ctx context.Context, to string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return CheckNew(to)
}

// removeOthers removes what an earlier Write left of files that are not there any more.
func removeOthers(folder string, files []file) error {
	return filepath.WalkDir(folder, func(at string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(folder, at)
		if err != nil || slices.ContainsFunc(files, func(f file) bool { return f.name == filepath.ToSlash(name) }) {
			return err
		}
		return os.Remove(at)
	})
}

// create opens a new file, or one that an earlier Write left.
func create(name string, resume bool) (*os.File, error) {
	info, err := os.Lstat(name)
	if !resume || err != nil {
		return os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: %w: no regular file", name, loader.ErrUnsupported)
	}
	return os.OpenFile(name, os.O_RDWR, 0o666)
}

// syncFolder brings a folder's names to the disk, where the system does so.
func syncFolder(name string) {
	if folder, err := os.Open(name); err == nil {
		_ = folder.Sync() // folders cannot be synced everywhere; their files have been
		_ = folder.Close()
	}
}

// add writes the copy of a file.
func (r *Report) add(
	ctx context.Context, f *file, into string, o Options, weights func(context.Context, *file, *os.File) (File, error),
) (err error) {
	out, err := create(into, o.Resume)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if !f.weights {
		r.Copied++
		if err := out.Truncate(0); err != nil {
			return err
		}
		if err := copyFile(ctx, f.path, out, nil); err != nil {
			return err
		}
		return out.Sync()
	}
	made, err := weights(ctx, f, out)
	var placed *loader.Error
	switch {
	case errors.As(err, &placed):
		return err // it names the file
	case err != nil:
		return fmt.Errorf("%s: %w", f.path, err)
	}
	r.Files = append(r.Files, made)
	r.Bytes, r.AfterBytes = r.Bytes+made.Bytes, r.AfterBytes+made.PackedBytes
	return out.Sync()
}

// packFile writes a packed copy, or one as it is where that gains nothing.
func packFile(ctx context.Context, f *file, to *os.File, o Options) (File, error) {
	made := File{Name: f.name}
	source, err := storage.Open(f.path)
	if err != nil {
		return made, err
	}
	defer source.Close()
	is, err := isPacked(ctx, source)
	if err != nil {
		return made, err
	}
	if is {
		made.Stats = packed.Stats{Bytes: source.Size(), PackedBytes: source.Size(), AsIsBytes: source.Size()}
		if err := to.Truncate(0); err != nil {
			return made, err
		}
		return made, copyFile(ctx, f.path, to, o.Progress)
	}
	options := packed.Options{Threads: o.Threads, Progress: o.Progress, Runs: runsOf(ctx, f.path, source.Size())}
	if o.Resume {
		options.Begun = to
	}
	if made.Stats, err = packed.Write(ctx, source, to, options); err != nil {
		return made, err
	}
	if err := source.Unchanged(); err != nil {
		return made, err
	}
	if made.Packed = made.Gains(); made.Packed {
		return made, to.Truncate(made.PackedBytes)
	}
	made.PackedBytes, made.AsIsBytes = made.Bytes, made.Bytes
	made.BFloat16Bytes, made.Float16Bytes, made.Float32Bytes = 0, 0, 0
	if err := to.Truncate(0); err != nil {
		return made, err
	}
	return made, copyFile(ctx, f.path, to, nil)
}

// isPacked reports whether a file is packed already.
func isPacked(ctx context.Context, source storage.Source) (bool, error) {
	head := make([]byte, min(source.Size(), int64(len(packed.Magic))))
	err := source.ReadAt(ctx, head, 0)
	return packed.IsPacked(head), err
}

// restoreFile writes the original of a file.
func restoreFile(ctx context.Context, f *file, to *os.File, o Options) (File, error) {
	made := File{Name: f.name}
	source, err := storage.Open(f.path)
	if err != nil {
		return made, err
	}
	defer source.Close()
	made.Stats = packed.Stats{Bytes: source.Size(), PackedBytes: source.Size()}
	is, err := isPacked(ctx, source)
	if err != nil {
		return made, err
	}
	if !is {
		return made, copyFile(ctx, f.path, to, o.Progress)
	}
	original, err := packed.Open(ctx, source, nil)
	if err != nil {
		return made, corruptFile(f.path, err)
	}
	made.Packed, made.Bytes = true, original.Size()
	return made, restoreAll(ctx, f.path, original, to, o)
}

// restoreAll writes the whole of an original, parts of it side by side. Of several errors it returns the one that comes
// first in the file.
func restoreAll(ctx context.Context, path string, original *packed.Source, to *os.File, o Options) error {
	parts := (original.Size() + readBytes - 1) / readBytes
	workers := min(int64(cmp.Or(o.Threads, goruntime.GOMAXPROCS(0))), parts)
	var next atomic.Int64
	var told, wait = sync.Mutex{}, sync.WaitGroup{}
	errs := make([]error, workers)
	failed := make([]int64, workers)
	for w := range workers {
		wait.Go(func() {
			buf := storage.AlignedBytes(readBytes)
			for part := next.Add(1) - 1; part < parts; part = next.Add(1) - 1 {
				off := part * readBytes
				p := buf[:min(readBytes, original.Size()-off)]
				err := original.ReadAt(ctx, p, off)
				if err != nil {
					err = corruptFile(path, err)
				} else {
					_, err = to.WriteAt(p, off)
				}
				if err != nil {
					errs[w], failed[w] = err, part
					next.Store(parts) // what was begun comes to its end, nothing else begins
					return
				}
				if o.Progress != nil {
					told.Lock()
					o.Progress(begun(original, off, int64(len(p))))
					told.Unlock()
				}
			}
		})
	}
	wait.Wait()
	first := int64(-1)
	for w, err := range errs {
		if err != nil && (first < 0 || failed[w] < failed[first]) {
			first = int64(w)
		}
	}
	if first >= 0 {
		return errs[first]
	}
	return nil
}

// begun is what the blocks take that begin within a part of an original.
func begun(original *packed.Source, off, n int64) int64 {
	bytes := original.StoredBytes(off, n)
	if before := original.StoredBytes(off-1, 1); off > 0 && original.StoredBytes(off-1, 2) == before {
		bytes -= before
	}
	return bytes
}

// readBytes are restored at a time.
const readBytes = 1 << 20

// corruptFile gives an error about a packed file the class that the loader has for it.
func corruptFile(path string, err error) error {
	var bad *packed.CorruptError
	switch {
	case errors.As(err, &bad):
		return &loader.Error{Path: path, Offset: -1, Err: fmt.Errorf("%w: packed: %w", loader.ErrFormat, err)}
	case errors.Is(err, packed.ErrVersion):
		return &loader.Error{Path: path, Offset: -1, Err: fmt.Errorf("%w: %w", loader.ErrUnsupported, err)}
	}
	return err
}

// copyFile copies a file as it is.
func copyFile(ctx context.Context, path string, to *os.File, progress func(int64)) error {
	from, err := os.Open(path)
	if err != nil {
		return err
	}
	defer from.Close()
	if _, err := to.Seek(0, io.SeekStart); err != nil {
		return err
	}
	for {
		n, err := io.CopyN(to, from, readBytes)
		if progress != nil {
			progress(n)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}
