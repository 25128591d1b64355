package kernels

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"slices"
	"strings"
)

// maxImageBytes is the most that the PTX of a family may have, unpacked.
const maxImageBytes = 4 << 20

// Pack returns what an image is stored as: compressed, and before the PTX, which lies in columns, a line with its stamp
// and one with the names of its kernels, so that those are found without unpacking all of it. The same PTX gives the
// same bytes.
func Pack(stamp string, ptx []byte) ([]byte, error) {
	columns, err := split(ptx)
	if err != nil {
		return nil, err
	}
	var to bytes.Buffer
	w, err := gzip.NewWriterLevel(&to, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintf(w, "%s\n// %s\n%s", stamp, strings.Join(entries(ptx), " "), columns); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return to.Bytes(), nil
}

// Unpack returns an image as drivers take it.
func Unpack(packed []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	stored, err := io.ReadAll(io.LimitReader(r, maxImageBytes+1))
	if err != nil {
		return nil, err
	}
	if len(stored) > maxImageBytes {
		return nil, fmt.Errorf("the image has more than %d bytes", maxImageBytes)
	}
	// The stamp and the names are the image's first lines.
	head := 0
	for range 2 {
		head += bytes.IndexByte(stored[head:], '\n') + 1
	}
	ptx, err := join(stored[head:], maxImageBytes-head)
	if err != nil {
		return nil, err
	}
	return slices.Concat(stored[:head], ptx), nil
}

// Head returns an image's stamp and the names of its kernels.
func Head(packed []byte) (stamp string, names []string, err error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return "", nil, err
	}
	lines := bufio.NewScanner(io.LimitReader(r, maxImageBytes))
	lines.Buffer(nil, 1<<20)
	for i := range 2 {
		if !lines.Scan() {
			return "", nil, fmt.Errorf("the image ends before line %d: %w", i+1, io.ErrUnexpectedEOF)
		}
		if i == 0 {
			stamp = lines.Text()
		}
	}
	return stamp, strings.Fields(strings.TrimPrefix(lines.Text(), "//")), nil
}

// entryHead is what a kernel begins with in PTX.
const entryHead = ".visible .entry "

// entries returns the names of the kernels in PTX.
func entries(ptx []byte) []string {
	var names []string
	for line := range bytes.Lines(ptx) {
		if name, ok := bytes.CutPrefix(line, []byte(entryHead)); ok {
			name, _, _ = bytes.Cut(name, []byte("("))
			names = append(names, string(bytes.TrimSpace(name)))
		}
	}
	return names
}
