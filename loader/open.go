package loader

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"sync/atomic"

	"github.com/optimem/optimem/loader/internal/fault"
	"github.com/optimem/optimem/loader/internal/limit"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/storage/packed"
)

// Options change how a file is opened. The zero value is right for untrusted files.
type Options struct {
	// Limits bound memory and nesting.
	Limits Limits
	// Strict refuses files that hold objects of named classes ([VerdictClasses]).
	Strict bool
	// Verify reads every record once and compares its checksum, where the format has one. By default only what is
	// read anyway (pickles, graphs, code) is checked.
	Verify bool
}

// Open opens the checkpoint at path with default options. Path is a file, a shard index or a Hugging Face folder.
func Open(path string) (*Checkpoint, error) {
	return OpenWith(context.Background(), path, Options{})
}

// OpenWith opens the checkpoint at path. It reads headers, pickles, graphs and code, never a weight. When ctx is done
// it returns ctx's error.
func OpenWith(ctx context.Context, path string, opts Options) (*Checkpoint, error) {
	o := newOpener(ctx, path, opts)
	ckpt, err := o.open()
	if err != nil {
		return nil, err
	}
	return ckpt, nil
}

// An opener holds what all readers of one file share.
type opener struct {
	ctx      context.Context
	path     string
	opts     Options
	meter    *limit.Meter
	findings *findings
	// rebuilt counts the tensors of the pickles so far.
	rebuilt int
	// opened counts the bytes of the files opened so far, with which the limit of memory grows; nil where the caller set it.
	opened *atomic.Int64
	// whole is what the first file of a GGUF model says, for all of them.
	whole map[string]any
	// isShard is set for the files that an index or a folder names, which cannot be one again.
	isShard bool
	// isPacked is set within a packed file.
	isPacked bool
}

func newOpener(ctx context.Context, path string, opts Options) *opener {
	var opened *atomic.Int64
	if opts.Limits.MemoryBytes <= 0 {
		opened = new(atomic.Int64)
	}
	opts.Limits = opts.Limits.withDefaults()
	return &opener{
		opened:   opened,
		ctx:      ctx,
		path:     path,
		opts:     opts,
		meter:    limit.New(opts.Limits.MemoryBytes),
		findings: &findings{},
	}
}

// shard returns an opener for another file of the same checkpoint: same limits, same findings.
func (o *opener) shard(ctx context.Context, path string) *opener {
	s := *o
	s.ctx, s.path, s.isPacked = ctx, path, false
	return &s
}

// problem notes something wrong in a record. It returns nil where reading should go on, to list the rest.
func (o *opener) problem(record string, err error) error {
	err = errorAt(o.path, record, err)
	var placed *Error
	if !errors.As(err, &placed) {
		return err // I/O or cancellation: not the file's fault
	}
	return o.findings.problem(placed)
}

// open opens o.path. An error that is the file's fault is among the findings too.
func (o *opener) open() (*Checkpoint, error) { return o.finish(o.dispatch()) }

// finish is the end of opening something.
func (o *opener) finish(ckpt *Checkpoint, err error) (*Checkpoint, error) {
	if err == nil && o.opts.Strict && len(o.findings.classes) > 0 {
		err = fault.New(fault.ErrUnsafe, -1, "refused: it holds objects of named classes: %s",
			strings.Join(o.findings.classNames(), ", "))
	}
	if err != nil {
		if perr := o.problem("", err); perr != nil {
			err = perr
		} else {
			err = o.findings.problems[0]
		}
		if ckpt != nil {
			ckpt.Close()
		}
		return nil, err
	}
	if len(o.findings.problems) > 0 {
		return ckpt, nil // only while scanning: the report tells
	}
	ckpt.Classes = o.findings.classNames()
	return ckpt, nil
}

// dispatch finds out what the file is and reads it.
func (o *opener) dispatch() (*Checkpoint, error) {
	if err := o.ctx.Err(); err != nil {
		return nil, err
	}
	info, err := os.Stat(o.path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return o.openFolder()
	}
	file, err := openFile(o.path)
	if err != nil {
		return nil, err
	}
	ckpt := &Checkpoint{Path: o.path, closers: []func() error{file.Close}}
	return ckpt, o.openSource(ckpt, file)
}

// openSource reads a file in any format.
func (o *opener) openSource(ckpt *Checkpoint, src storage.Source) error {
	if o.opened != nil {
		o.meter.Raise(Limits{}.MemoryFor(o.opened.Add(src.Size())))
	}
	kind, err := o.sniff(src)
	if Class(err) == nil && err != nil {
		return err
	}
	if err := o.refusePolyglot(src, kind, err != nil); err != nil {
		return err
	}
	if err != nil {
		return err
	}
	switch kind {
	case kindPickle:
		return o.openLegacy(ckpt, src)
	case kindSafetensors:
		return o.openSafetensors(ckpt, src)
	case kindJSON:
		return o.openIndex(ckpt, src)
	case kindGGUF:
		return o.openGGUF(ckpt, src)
	case kindPacked:
		return o.openPacked(ckpt, src)
	default:
		return o.openZip(ckpt, src)
	}
}

type fileKind int

const (
	kindZip fileKind = iota
	kindPickle
	kindSafetensors
	kindJSON
	kindGGUF
	kindPacked
)

// sniff tells the format from the first bytes; file names mean nothing. Files that users take for checkpoints get an
// error that says what they are.
func (o *opener) sniff(src storage.Source) (fileKind, error) {
	head := make([]byte, min(src.Size(), 9))
	if err := src.ReadAt(o.ctx, head, 0); err != nil {
		return 0, err
	}
	if !isSafetensors(head) && !bytes.HasPrefix(head, []byte("PK")) && !bytes.HasPrefix(head, []byte("\x80")) {
		// Not one of those whose weights may begin soon.
		head = make([]byte, min(src.Size(), 512))
		if err := src.ReadAt(o.ctx, head, 0); err != nil {
			return 0, err
		}
	}
	has := func(magic string) bool { return strings.HasPrefix(string(head), magic) }
	unsupported := func(format string, args ...any) (fileKind, error) {
		return 0, fault.New(fault.ErrUnsupported, -1, format, args...)
	}
	switch {
	case len(head) == 0:
		return 0, fault.New(fault.ErrFormat, -1, "the file is empty")
	case has("PK\x03\x04"), has("PK\x05\x06"):
		return kindZip, nil
	case isSafetensors(head):
		return kindSafetensors, nil
	case has("\x80"), looksLikeTextPickle(head):
		return kindPickle, nil
	case has("version https://git-lfs"):
		return unsupported("a Git LFS pointer, not the file itself: run `git lfs pull`")
	case has("<!DOCTYPE"), has("<!doctype"), has("<html"):
		return unsupported("a web page, not a checkpoint: the download went wrong")
	case has("\x1f\x8b"):
		return unsupported("gzip-compressed: decompress it first")
	case has("GGUF"):
		return kindGGUF, nil
	case has(packed.Magic):
		return kindPacked, nil
	case has("\x89HDF"):
		return unsupported("an HDF5 (Keras) model: only PyTorch's formats, safetensors and GGUF are read")
	case has("\x93NUMPY"):
		return unsupported("a NumPy array, not a checkpoint")
	case has("\x08") && strings.Contains(string(head), "pytorch"):
		return unsupported("an ONNX model: only PyTorch's formats, safetensors and GGUF are read")
	case has("{"):
		return kindJSON, nil
	}
	return unsupported("not a checkpoint in any format that is read here (it begins %.16q)", head[:min(len(head), 16)])
}

// isSafetensors reports whether the first bytes are a header's length and the brace of a JSON object. Text that begins
// with a brace has no zero byte.
func isSafetensors(head []byte) bool {
	return len(head) >= 9 && head[8] == '{' && (head[0] != '{' || head[7] == 0)
}

// looksLikeTextPickle recognises pickles of protocol 0, which have no magic: a checkpoint never is one, but scanning
// must see what they would call.
func looksLikeTextPickle(head []byte) bool {
	if len(head) < 3 {
		return false
	}
	switch head[0] {
	case '(', 'c', 'i', 'I', 'L', 'F', 'V', 'S', ']', '}', ')', 'd', 'l':
	default:
		return false
	}
	line, _, found := strings.Cut(string(head), "\n")
	return found && len(line) < 200 || strings.ContainsRune("(])}", rune(head[0]))
}
