//go:build !files

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/optimem/optimem/internal/ascii"
)

// An inputText is a text whose vector is wanted, with the id that a line of JSON gave it.
type inputText struct {
	id   json.RawMessage
	text string
}

// maxTexts and maxTextBytes bound the texts of one run: their number, and the bytes of all.
const (
	maxTexts     = 1 << 22
	maxTextBytes = 1 << 30
)

// readTexts returns the texts of the arguments, else of a file or standard input.
func (e *embedding) readTexts() ([]inputText, error) {
	var texts []inputText
	for _, arg := range e.args {
		texts = append(texts, inputText{text: arg})
	}
	if len(texts) > 0 {
		return texts, nil
	}
	from, name := os.Stdin, "standard input"
	if e.input != "" && e.input != "-" {
		f, err := os.Open(e.input)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		from, name = f, e.input
	}
	texts, err := e.readLines(from, name, isJSONLines(e.input))
	if err == nil && len(texts) == 0 {
		err = e.Usage("", "%s has no text", name)
	}
	return texts, err
}

// readLines reads a text from each line. A line of JSON without anything in it is none; one of plain text is a text.
func (e *embedding) readLines(from io.Reader, name string, asJSON bool) ([]inputText, error) {
	scan := bufio.NewScanner(from)
	scan.Buffer(nil, maxPrompt)
	var texts []inputText
	total := 0
	for number := 1; scan.Scan(); number++ {
		if asJSON && len(bytes.TrimSpace(scan.Bytes())) == 0 {
			continue
		}
		t := inputText{text: scan.Text()}
		if asJSON {
			if err := t.parse(scan.Bytes()); err != nil {
				return nil, e.Usage(`a line is "text" or {"id": 1, "text": "…"}`, "%s:%d: %v", name, number, err)
			}
		}
		texts = append(texts, t)
		if total += len(t.text) + len(t.id); len(texts) > maxTexts || total > maxTextBytes {
			return nil, e.Usage(
				"", "%s has more than %d texts or than %s", name, maxTexts, ascii.FormatSize(maxTextBytes),
			)
		}
	}
	if err := scan.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return texts, nil
}

// parse reads a line of JSON.
func (t *inputText) parse(line []byte) error {
	if line = bytes.TrimSpace(line); line[0] == '"' {
		return json.Unmarshal(line, &t.text)
	}
	var l struct {
		ID   json.RawMessage `json:"id"`
		Text *string         `json:"text"`
	}
	if err := json.Unmarshal(line, &l); err != nil {
		return err
	}
	if l.Text == nil {
		return errors.New("it has no text")
	}
	t.id, t.text = l.ID, *l.Text
	return nil
}

// line writes a vector as a line of JSON.
func (t *inputText) line(to io.Writer, tokens int, vector []float32) error {
	id := t.id
	if id == nil {
		id = json.RawMessage("null")
	}
	return json.NewEncoder(to).Encode(struct {
		ID        json.RawMessage `json:"id"`
		Tokens    int             `json:"tokens"`
		Embedding vectorJSON      `json:"embedding"`
	}{id, tokens, vector})
}
