//go:build !files

package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"

	"github.com/optimem/optimem/cmd/optimem/internal/newfile"
	"github.com/optimem/optimem/generate"
)

// A journal keeps the answers of a batch that are finished, beside the file that all are to be in, so that a process
// which was killed need not give them again: an answer depends on the model and the request alone. A line is one
// answer, under a hash of both, with a checksum: what a kill or a full disk left of the last line is cut off.
type journal struct {
	path string
	mu   sync.Mutex
	file *os.File
	// answers are those that were there, by the hash of what they answer.
	answers map[string]*batchAnswer
	// added counts those of this run.
	added int
}

// A journalLine is a line of a journal.
type journalLine struct {
	Of     string          `json:"of"`
	Answer json.RawMessage `json:"answer"`
	Sum    string          `json:"sum"`
}

// journalSuffix is what a journal is called beside the name of its file.
const journalSuffix = ".unfinished"

// openJournal opens the journal of a file that is to be written, with what an earlier process left there.
func openJournal(output string) (*journal, error) {
	at, err := newfile.Path(output)
	if err != nil {
		return nil, err
	}
	j := &journal{path: at + journalSuffix, answers: make(map[string]*batchAnswer)}
	if info, err := os.Lstat(j.path); err == nil && !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "write", Path: j.path, Err: errors.New("not a regular file")}
	}
	if j.file, err = os.OpenFile(j.path, os.O_RDWR|os.O_CREATE, 0o666); err != nil {
		return nil, err
	}
	end, err := j.read()
	if err == nil {
		err = j.file.Truncate(end)
	}
	if err == nil {
		_, err = j.file.Seek(end, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, j.file.Close())
	}
	return j, nil
}

// read reads the answers that are whole, and returns where they end.
func (j *journal) read() (end int64, err error) {
	scan := bufio.NewReader(j.file)
	for len(j.answers) < maxBatchLines {
		text, err := readLine(scan, 2*maxBatchLine)
		if errors.Is(err, io.EOF) || errors.Is(err, errLongLine) { // what has no end is of no use
			return end, nil
		}
		if err != nil {
			return 0, fmt.Errorf("%s: %w", j.path, err)
		}
		var l journalLine
		var a batchAnswer
		if json.Unmarshal(text, &l) != nil || l.Sum != sumOf(l.Of, l.Answer) || json.Unmarshal(l.Answer, &a) != nil {
			return end, nil
		}
		j.answers[l.Of] = &a
		end += int64(len(text))
	}
	return end, nil
}

// errLongLine says that a line is longer than an answer can be.
var errLongLine = errors.New("a line is too long")

// readLine reads a line with its end, of most bytes.
func readLine(r *bufio.Reader, most int) ([]byte, error) {
	var line []byte
	for {
		piece, err := r.ReadSlice('\n')
		if line = append(line, piece...); len(line) > most {
			return nil, errLongLine
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// sumOf tells whether a line is whole.
func sumOf(of string, answer []byte) string {
	sum := sha256.Sum256(append([]byte(of+"\n"), answer...))
	return hex.EncodeToString(sum[:8])
}

// add keeps an answer, which is on the disk when add returns.
func (j *journal) add(of string, a *batchAnswer) error {
	answer, err := json.Marshal(a)
	if err != nil {
		return err
	}
	text, err := json.Marshal(journalLine{of, answer, sumOf(of, answer)})
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, err := j.file.Write(append(text, '\n')); err != nil {
		return err
	}
	j.added++
	return j.file.Sync()
}

// close ends the journal, which is removed where all answers are in their file, or where there is none in it.
func (j *journal) close(finished bool) error {
	info, err := j.file.Stat()
	err = errors.Join(err, j.file.Close())
	if finished || err == nil && info.Size() == 0 {
		err = errors.Join(err, os.Remove(j.path))
	}
	return err
}

// hashOf is what an answer depends on: the model, how much it sees, and the request.
func hashOf(model string, context int, tokens []int, r *generate.TextRequest) string {
	var text bytes.Buffer
	q := &r.Request
	_, _ = fmt.Fprintf(&text, "%s %d %v %d %v %#v %d %d %q\n", model, context, tokens, q.MaxTokens, q.End, q.Sampling, q.Seed, q.Logprobs, q.Adapter)
	_, _ = fmt.Fprintf(&text, "%q %v %q %q %q %s %q\n", r.Prompt, r.Messages, r.Language, r.Stop, r.Keep, r.Schema, r.Grammar)
	sum := sha256.Sum256(text.Bytes())
	return hex.EncodeToString(sum[:])
}
