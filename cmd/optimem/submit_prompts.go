//go:build !noserve && !files

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"

	"github.com/optimem/optimem/cmd/optimem/internal/newfile"
	"github.com/optimem/optimem/work"
)

// answersName is the file with the answers to prompts.
const answersName = "answers.jsonl"

// promptFiles are .jsonl files of which each line is an item. They stay open: lines are read as they are wanted.
type promptFiles struct {
	files []*os.File
	lines []promptLine
	// answers has the answers in the order in which they came.
	answers *os.File
	end     int64
}

// A promptLine is where a line is, and its answer, which is −1 where there is none.
type promptLine struct {
	file       int
	at, answer int64
	size, long int
	number     int
}

// openPrompts looks for the lines of the files, where those are .jsonl.
func (s *submitting) openPrompts() (err error) {
	n := 0
	for _, name := range s.files {
		if filepath.Ext(name) == ".jsonl" {
			n++
		}
	}
	switch {
	case n == 0:
		return nil
	case n < len(s.files):
		return s.Usage(
			"prompts are for a model that writes, and other files for one that takes tensors",
			"there are .jsonl files beside others",
		)
	}
	p := new(promptFiles)
	defer func() {
		if err != nil {
			_ = p.close()
		}
	}()
	for _, name := range s.files {
		if err := p.add(name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if len(p.lines) == 0 {
		return s.Usage("", "there is no prompt")
	}
	for _, l := range p.lines {
		s.lines = append(s.lines, submitLine{File: p.name(l)})
	}
	s.prompts = p
	return nil
}

func (p *promptFiles) name(l promptLine) string {
	return fmt.Sprintf("%s:%d", p.files[l.file].Name(), l.number)
}

// add looks for the lines of a file.
func (p *promptFiles) add(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	p.files = append(p.files, f)
	scan := bufio.NewScanner(f)
	scan.Buffer(nil, maxBatchLine)
	var at, next int64
	scan.Split(func(data []byte, end bool) (int, []byte, error) {
		n, line, err := bufio.ScanLines(data, end)
		at = next
		next += int64(n)
		return n, line, err
	})
	for number := 1; scan.Scan(); number++ {
		if len(bytes.TrimSpace(scan.Bytes())) == 0 {
			continue
		}
		if len(p.lines) == maxBatchLines {
			return fmt.Errorf("more than %d prompts", maxBatchLines)
		}
		p.lines = append(
			p.lines, promptLine{file: len(p.files) - 1, at: at, size: len(scan.Bytes()), number: number, answer: -1},
		)
	}
	return scan.Err()
}

func (p *promptFiles) read(l promptLine) ([]byte, error) {
	text := make([]byte, l.size)
	_, err := p.files[l.file].ReadAt(text, l.at)
	if errors.Is(err, io.EOF) {
		err = errors.New("the file changed")
	}
	return text, err
}

// items reads the lines, one after another.
func (p *promptFiles) items() iter.Seq[work.Item] {
	return func(yield func(work.Item) bool) {
		for _, l := range p.lines {
			text, err := p.read(l)
			if !yield(work.Item{Name: p.name(l), Prompt: text, Err: err}) {
				return
			}
		}
	}
}

// begin makes room for answers.
func (p *promptFiles) begin(folder string) (err error) {
	p.answers, err = os.CreateTemp(folder, "."+answersName+".*.tmp")
	return err
}

// keep takes up the answer to a prompt, which answer writes to what begin gives it.
func (p *promptFiles) keep(index int, answer func(begin func() (io.Writer, error)) error) error {
	var to *io.OffsetWriter
	err := answer(func() (io.Writer, error) {
		to = io.NewOffsetWriter(p.answers, p.end)
		return to, nil
	})
	if err != nil {
		return err
	}
	n, err := to.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	l := &p.lines[index]
	l.answer, l.long = p.end, int(n)
	p.end += n
	return nil
}

// write writes the answers in the order of the prompts, with why there is none.
func (p *promptFiles) write(path string, results []submitLine) error {
	return newfile.Write(path, func(f *os.File) error {
		w := bufio.NewWriter(f)
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		for i, l := range p.lines {
			text, err := p.read(l)
			if err != nil {
				return err
			}
			line := answerLine{ID: lineID(text), Error: results[i].Error}
			if l.answer >= 0 {
				data := make([]byte, l.long)
				if _, err := p.answers.ReadAt(data, l.answer); err != nil {
					return err
				}
				if err := json.Unmarshal(data, &line.Answer); err != nil {
					return fmt.Errorf("%s: the answer is damaged: %w", results[i].File, err)
				}
			} else if line.Error == "" {
				line.Error = noResult
			}
			if err := e.Encode(line); err != nil {
				return err
			}
		}
		return w.Flush()
	})
}

// An answerLine is a line of answers.jsonl.
type answerLine struct {
	ID json.RawMessage `json:"id"`
	*work.Answer
	Error string `json:"error,omitempty"`
}

// lineID is the id of a prompt, null where it has none or is none.
func lineID(text []byte) json.RawMessage {
	var l struct {
		ID json.RawMessage `json:"id"`
	}
	if json.Unmarshal(text, &l) != nil || l.ID == nil {
		return json.RawMessage("null")
	}
	return l.ID
}

// close closes the files, and drops what was gathered.
func (p *promptFiles) close() error {
	if p == nil {
		return nil
	}
	var errs []error
	for _, f := range p.files {
		errs = append(errs, f.Close())
	}
	if p.answers != nil {
		errs = append(errs, p.answers.Close(), os.Remove(p.answers.Name()))
	}
	return errors.Join(errs...)
}
