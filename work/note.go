package work

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/optimem/optimem/internal/npy"
	"github.com/optimem/optimem/tensor"
)

// Bounds of notes.
const (
	maxNoteBytes  = 64 << 10
	maxNoteInputs = 64
)

// A note is a message of the queue: the inputs of an item.
type note struct {
	Inputs []noteInput `json:"inputs"`
	// Item is what the submitter calls it, for whoever reads dead letters.
	Item string `json:"item,omitempty"`
}

// A noteInput is an input of a model: a file in the object store, whose name there is its SHA-256.
type noteInput struct {
	Name   string `json:"name"`
	SHA256 string `json:"sha256"`
	Bytes  int64  `json:"bytes"`
	// Path is where it lies in the folder that workers share, "" where it is in the object store.
	Path string `json:"path,omitempty"`
	// Preprocess is how a picture becomes numbers, "" for a .npy file.
	Preprocess string `json:"preprocess,omitempty"`
}

// A told is what workers tell of a model.
type told struct {
	// Class is whose outputs have the same bits: those of the same files on the same kind of device.
	Class string `json:"class"`
	// Files is the SHA-256 of the model's files, Device what it runs on.
	Files  string `json:"files"`
	Device string `json:"device"`
	// Inputs are those of the model.
	Inputs []Port `json:"inputs"`
	// Writes says that it is a model that writes: an item of it is a prompt.
	Writes bool `json:"writes,omitempty"`
	// Vectors says that it is a model that makes vectors: an item of it is texts.
	Vectors bool `json:"vectors,omitempty"`
	// Join is how many items share a pass.
	Join int `json:"join"`
}

// A Port is an input of a model, as workers tell it.
type Port struct {
	Name  string `json:"name"`
	DType string `json:"dtype"`
	// Shape has −1 where a dimension may vary; nil is any shape.
	Shape    []int `json:"shape"`
	Optional bool  `json:"optional,omitempty"`
}

// classOf names those who give the same bits.
func classOf(files, device string) string {
	return digest("optimem class 1\n", files, "\n", device, "\n")
}

// textClassOf names those who write the same texts.
func textClassOf(files, device string, context int, kv string) string {
	return digest("optimem text class 1\n", files, "\n", device, "\n", fmt.Sprintf("%d %s\n", context, kv))
}

// vectorClassOf names those who make the same vectors.
func vectorClassOf(files, device string) string {
	return digest("optimem vector class 1\n", files, "\n", device, "\n")
}

func digest(parts ...string) string {
	sum := sha256.New()
	for _, p := range parts {
		_, _ = io.WriteString(sum, p)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// key names the output of a note: by who computes it, and of what.
func (n *note) key(class string) string {
	inputs := slices.Clone(n.Inputs)
	slices.SortFunc(inputs, func(a, b noteInput) int { return cmp.Compare(a.Name, b.Name) })
	parts := []string{"optimem output 1\n", class, "\n"}
	for _, in := range inputs {
		parts = append(parts, fmt.Sprintf("%q %s\n", in.Name, in.SHA256))
		if in.Preprocess != "" {
			parts = append(parts, fmt.Sprintf("picture %q\n", in.Preprocess))
		}
	}
	return digest(parts...)
}

var hexDigest = regexp.MustCompile(`^[0-9a-f]{64}$`)

// parseNote reads a message, which anybody may have sent.
func parseNote(data []byte) (*note, error) {
	n := new(note)
	if err := json.Unmarshal(data, n); err != nil {
		return nil, fmt.Errorf("the message is no note of an item: %w", err)
	}
	if len(n.Inputs) == 0 || len(n.Inputs) > maxNoteInputs {
		return nil, fmt.Errorf("%d inputs", len(n.Inputs))
	}
	names := make(map[string]bool)
	for _, in := range n.Inputs {
		if !hexDigest.MatchString(in.SHA256) || in.Bytes < 0 || names[in.Name] {
			return nil, fmt.Errorf("input %.100q is given twice, or names no object", in.Name)
		}
		if in.Path != "" && !isShared(in.Path) {
			return nil, fmt.Errorf("input %.100q: %.100q is no path within a folder", in.Name, in.Path)
		}
		if len(in.Preprocess) > maxPreprocess {
			return nil, fmt.Errorf("input %.100q: a picture becomes numbers in %d bytes of words", in.Name,
				len(in.Preprocess))
		}
		names[in.Name] = true
	}
	return n, nil
}

// hasPictures reports whether an input is a picture.
func (n *note) hasPictures() bool {
	return slices.ContainsFunc(n.Inputs, func(in noteInput) bool { return in.Preprocess != "" })
}

// bytes is what the inputs take.
func (n *note) bytes() int64 {
	total := int64(0)
	for _, in := range n.Inputs {
		total += min(in.Bytes, 1<<62-total)
	}
	return total
}

// A poisonError is a fault of an item: it would be there wherever it ran.
type poisonError struct{ reason string }

func (e *poisonError) Error() string { return e.reason }

func poison(format string, args ...any) error { return &poisonError{fmt.Sprintf(format, args...)} }

// read reads an input. Its bytes were reserved.
func (s *station) read(ctx context.Context, in noteInput) (*tensor.Tensor, error) {
	data, err := s.readBytes(ctx, in)
	if err != nil {
		return nil, err
	}
	t, err := npy.Over(data)
	if err != nil {
		return nil, poison("input %.100q: %v", in.Name, err)
	}
	return t.Contiguous(), nil
}

// readBytes reads an input from where it lies.
func (s *station) readBytes(ctx context.Context, in noteInput) ([]byte, error) {
	if in.Path != "" {
		return readShared(ctx, s.opts.Shared, in)
	}
	return s.q.readBytes(ctx, in)
}

// readBytes reads the object of an input, which is what its name says: that is compared with what the store says of it,
// which is compared with what is read, so that the bytes are hashed once.
func (q *Queue) readBytes(ctx context.Context, in noteInput) ([]byte, error) {
	sum, err := hex.DecodeString(in.SHA256)
	if err != nil {
		return nil, err
	}
	data := make([]byte, 0, in.Bytes)
	err = q.in.getOf(ctx, in.SHA256, func(info *jetstream.ObjectInfo) (io.Writer, error) {
		switch {
		case info.Size != uint64(in.Bytes):
			return nil, poison("input %.100q has not the size that the note says", in.Name)
		case info.Digest != digestValue(sum):
			return nil, poison("input %.100q is not what its name says", in.Name)
		}
		data = data[:0]
		return &within{&data}, nil
	})
	var bad *poisonError
	switch {
	case errors.As(err, &bad):
		return nil, err
	case errors.Is(err, jetstream.ErrObjectNotFound): // or not yet: a replica that answers may be behind
		return nil, fmt.Errorf("input %.100q is not in the store", in.Name)
	case err != nil:
		return nil, fmt.Errorf("input %.100q: %w", in.Name, err)
	}
	return data, nil
}

// within writes to what a slice has room for.
type within struct{ data *[]byte }

func (w *within) Write(p []byte) (int, error) {
	if len(p) > cap(*w.data)-len(*w.data) {
		return 0, errors.New("it is larger than was said")
	}
	*w.data = append(*w.data, p...)
	return len(p), nil
}

// A letter is a message of the dead-letter stream.
type letter struct {
	Key    string          `json:"key"`
	Reason string          `json:"reason"`
	Class  string          `json:"class"`
	Item   string          `json:"item,omitempty"`
	Note   json.RawMessage `json:"note,omitempty"`
}
