package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/optimem/optimem/cmd/optimem/internal/newfile"
	"github.com/optimem/optimem/internal/ascii"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/storage/packed"
)

// The exit codes that scripts rely on.
const (
	ExitDone        = 0
	ExitFailed      = 1
	ExitUsage       = 2
	ExitUnsupported = 4
	ExitUnsafe      = 5
	ExitInterrupted = 130
)

// A Failure ends a command: what to print, what would help, and the exit code. A nil err prints nothing, for commands
// whose answer said it already.
type Failure struct {
	Err   error
	Code  int
	Hints []string
}

// Error implements [error].
func (f *Failure) Error() string {
	if f.Err == nil {
		return fmt.Sprintf("exit code %d", f.Code)
	}
	return f.Err.Error()
}

// Unwrap returns what went wrong.
func (f *Failure) Unwrap() error { return f.Err }

// UsageError is a failure to understand the command line; cmd, where not nil, is the command whose help would tell.
func UsageError(cmd *cobra.Command, err error, hints ...string) *Failure {
	var already *Failure
	if errors.As(err, &already) {
		return already
	}
	if len(hints) == 0 {
		hints = []string{"'optimem help' lists the commands"}
		if cmd != nil && cmd.HasParent() {
			hints = []string{fmt.Sprintf("'%s --help' shows how it is used", cmd.CommandPath())}
		}
	}
	return &Failure{Err: err, Code: ExitUsage, Hints: hints}
}

// Report prints err and its hints to standard error and returns the exit code.
func (c *Line) Report(ctx context.Context, err error) int {
	if err == nil {
		return ExitDone
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		c.Say("error", "interrupted")
		return ExitInterrupted
	}
	var f *Failure
	if !errors.As(err, &f) {
		f = &Failure{Err: err, Code: exitCode(err), Hints: hints(err)}
	}
	if f.Err != nil {
		c.Say("error", f.Error())
	}
	for _, h := range f.Hints {
		c.Say("hint", h)
	}
	return f.Code
}

// Say prints one line to standard error. Messages quote what files say, so they are made harmless to a terminal.
func (c *Line) Say(kind, message string) {
	// Where standard error is closed there is nobody to tell.
	_, _ = fmt.Fprintf(c.Stderr, "optimem: %s: %s\n", kind, ascii.Printable(message))
}

// exitCode maps the class of an error about a file. A file that exceeds the limits is refused like a corrupt one.
func exitCode(err error) int {
	switch loader.Class(err) {
	case loader.ErrUnsafe, loader.ErrFormat, loader.ErrLimit:
		return ExitUnsafe
	case loader.ErrUnsupported:
		return ExitUnsupported
	}
	return ExitFailed
}

// hints says what would help with an error about a file.
func hints(err error) []string {
	path := ""
	var placed *loader.Error
	if errors.As(err, &placed) {
		path = placed.Path
	}
	var missing *fs.PathError
	if errors.As(err, &missing) && errors.Is(err, fs.ErrNotExist) && strings.Contains(missing.Path, "://") {
		return []string{"optimem downloads nothing: fetch the file first, for instance with 'curl -LO'"}
	}
	var full *newfile.FullError
	if errors.As(err, &full) {
		return []string{fmt.Sprintf("the file takes %s and %s are free in %s",
			ascii.FormatSize(full.NeedBytes), ascii.FormatSize(full.FreeBytes), filepath.Dir(full.Path))}
	}
	var waits *storage.ScratchError
	if errors.As(err, &waits) {
		return []string{"--swap-folder names a folder on another disk; without --swap, or with --swap 0 for --batch, nothing waits in a file"}
	}
	var damaged *packed.CorruptError
	if errors.As(err, &damaged) {
		return []string{
			"bytes of this packed file are not those that were written: take its copy from elsewhere, or pack the original again",
			"'optimem unpack' reads every block and names the first that is damaged",
		}
	}
	switch loader.Class(err) {
	case loader.ErrUnsafe:
		return []string{
			"unpickling this file may run code: do not load it with torch.load(…, weights_only=False)",
			"'optimem scan' lists everything in it that is not allowed",
		}
	case loader.ErrLimit:
		if errors.Is(err, loader.ErrMemory) {
			return []string{MoreMemory(4 * loader.AllowedBytes(err))}
		}
	case loader.ErrUnsupported, loader.ErrFormat:
		return headHints(loader.Class(err), path)
	}
	return nil
}

// MoreMemory is the hint that opening a file may take so many bytes, or rather whole gibibytes.
func MoreMemory(bytes int64) string {
	const gib = 1 << 30
	return fmt.Sprintf("if you trust the file, allow more memory: --open-memory %dGiB", max(1, (bytes-1)/gib+1))
}

// headHints looks at the first bytes of a file that was refused: most such files are not checkpoints at all.
func headHints(class error, path string) []string {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return nil
	}
	head, err := readHead(path)
	if err != nil {
		return nil
	}
	text := bytes.ToLower(bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\xef\xbb\xbf")), " \t\r\n"))
	has := func(prefixes ...string) bool {
		for _, p := range prefixes {
			if bytes.HasPrefix(text, []byte(p)) {
				return true
			}
		}
		return false
	}
	name := filepath.Base(path)
	switch {
	case len(head) == 0:
		return []string{"the download or the copy did not finish: fetch the file again"}
	case has("version https://git-lfs"):
		return []string{"run 'git lfs pull' in the clone that it came from"}
	case has("<!doctype html", "<html", "<head", "<?xml"):
		return []string{"download the raw file: on huggingface.co the address has /resolve/, not /blob/"}
	case len(head) > 262 && string(head[257:262]) == "ustar":
		return []string{
			"save it anew with PyTorch, in a sandbox unless you trust it:",
			fmt.Sprintf(
				`python -c "import torch; torch.save(torch.load(%q, weights_only=False), %q)"`, name, "new-"+name,
			),
		}
	case bytes.HasPrefix(head, []byte("\x1f\x8b")): // no text, which lower case would change
		return []string{"unpack it with gunzip"}
	}
	if class == loader.ErrFormat {
		return []string{"a download that stopped early looks like this: compare the file's size with the original's"}
	}
	return nil
}

// readHead returns the first bytes of a file, enough to tell a tar file.
func readHead(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	head := make([]byte, 512)
	n, err := io.ReadFull(f, head)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return head[:n], err
}
