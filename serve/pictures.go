package serve

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"

	"github.com/optimem/optimem/internal/preprocess"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/serve/oip"
	"github.com/optimem/optimem/tensor"
)

// A preparation is what model.json says of pictures: the input that takes them, and how they become its numbers.
type preparation struct {
	Input string `json:"input"`
	Spec  string `json:"spec"`

	spec preprocess.Spec
}

// A pictureInput makes rows of encoded pictures.
type pictureInput struct {
	preparation
	// batch says that the input has a dimension of rows.
	batch bool
	// mostBytes bounds the rows of a request, and what a picture takes while it is decoded, and while it is resized.
	mostBytes int64
	bodies    *bodies
	// turn is had by who decodes, which is one at a time.
	turn chan struct{}
}

// newPictures finds the input that takes pictures.
func (r *Registry) newPictures(p preparation, ports []models.Port) (*pictureInput, error) {
	for _, port := range ports {
		if port.Name != p.Input {
			continue
		}
		if rank := len(port.Shape); port.DType != tensor.Float32 || port.Number || port.Shape != nil && rank != 3 && rank != 4 {
			return nil, refuse(422, "preprocess: input %.100q takes no pictures: they are FP32 of 3 or 4 dimensions", p.Input)
		}
		return &pictureInput{p, len(port.Shape) != 3, r.opts.MaxBody, &r.bodies, r.decoding}, nil
	}
	return nil, refuse(422, "preprocess: the model has no input %.100q", p.Input)
}

// What a Hugging Face folder says of pictures, and the input that takes them.
const (
	folderSpec  = "preprocessor_config.json"
	folderInput = "pixel_values"
)

// prepares reports whether a folder says how pictures become numbers, as it is done here.
func (r *Registry) prepares(f found) bool {
	text, err := readSmall(r.root, path.Join(f.path, folderSpec))
	if err == nil {
		_, err = preprocess.ParseConfig(text)
	}
	return err == nil
}

// folderPictures has a model's input take pictures as its Hugging Face folder says, nil where it says nothing of them.
// A folder that says what is not done here is opened all the same: its input takes numbers.
func (r *Registry) folderPictures(f found, ports []models.Port) (*pictureInput, error) {
	if !slices.ContainsFunc(ports, func(p models.Port) bool { return p.Name == folderInput }) {
		return nil, nil
	}
	if info, err := r.root.Stat(f.path); err != nil || !info.IsDir() {
		return nil, nil
	}
	text, err := readSmall(r.root, path.Join(f.path, folderSpec))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var spec preprocess.Spec
	if err == nil {
		spec, err = preprocess.ParseConfig(text)
	}
	var p *pictureInput
	if err == nil {
		p, err = r.newPictures(preparation{Input: folderInput, Spec: folderSpec, spec: spec}, ports)
	}
	if err != nil {
		r.log.Warn("a model takes no pictures", "model", f.name, "error", err)
		return nil, err
	}
	return p, nil
}

// A pictureBatch is the rows that become of a request's pictures. Its held bytes are of the bodies of requests.
type pictureBatch struct {
	*pictureInput
	count, height, width int
	values               []float32
	held                 int64
}

// rows decodes the pictures of an input. What the result holds of the bodies of requests the caller gives back, also of
// an error.
func (p *pictureInput) rows(ctx context.Context, x *oip.Input) (_ *tensor.Tensor, held int64, err error) {
	n := len(x.Texts)
	switch {
	case len(x.Shape) > 2 || len(x.Shape) == 2 && x.Shape[1] != 1:
		return nil, 0, refuse(400, "input %q: pictures of shape %v: a picture is a row", x.Name, x.Shape)
	case n == 0, !p.batch && n > 1:
		return nil, 0, refuse(400, "input %q: %d pictures", x.Name, n)
	}
	b := &pictureBatch{pictureInput: p, count: n}
	for i, encoded := range x.Texts {
		if err := b.add(ctx, i, encoded); err != nil {
			return nil, b.held, badPicture(x.Name, i, err)
		}
	}
	shape := []int{n, 3, b.height, b.width}
	if !p.batch {
		shape = shape[1:]
	}
	return tensor.Of(b.values, shape...), b.held, nil
}

// add makes row i.
func (b *pictureBatch) add(ctx context.Context, i int, encoded []byte) error {
	select {
	case b.turn <- struct{}{}:
		defer func() { <-b.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if isBase64(encoded) {
		size := int64(base64.StdEncoding.DecodedLen(len(encoded)))
		if !b.bodies.take(size) {
			return crowded()
		}
		defer b.bodies.give(size)
		file := make([]byte, size)
		n, err := base64.StdEncoding.Decode(file, encoded)
		if err != nil {
			return refuse(400, "neither a picture nor base64 of one")
		}
		encoded = file[:n]
	}
	file := bytes.NewReader(encoded)
	reader := struct {
		io.Reader
		io.Seeker
	}{stopping{ctx, file}, file}
	picture, err := preprocess.Decode(reader, preprocess.Limits{MemoryBytes: b.mostBytes})
	if err != nil {
		return err
	}
	height, width, err := b.spec.Size(picture.Height, picture.Width)
	if err != nil {
		return err
	}
	if b.values == nil {
		if err := b.alloc(height, width); err != nil {
			return err
		}
	}
	if height != b.height || width != b.width {
		return refuse(400, "it becomes %d × %d, and row 0 %d × %d", height, width, b.height, b.width)
	}
	each := len(b.values) / b.count
	return b.spec.Apply(ctx, picture, b.values[i*each:][:each])
}

// alloc makes room for all rows, of the size of the first.
func (b *pictureBatch) alloc(height, width int) error {
	size, ok := int64(4*3*b.count), true
	for _, n := range []int{height, width} {
		if ok {
			size, ok = tensor.MulBytes(size, int64(n))
		}
	}
	if !ok || size > b.mostBytes {
		return refuse(400, "%d pictures of %d × %d take more bytes than a request may have", b.count, height, width)
	}
	if !b.bodies.take(size) {
		return crowded()
	}
	b.height, b.width, b.held = height, width, size
	b.values = make([]float32, size/4)
	return nil
}

// badPicture says which row an error is of, where it is the picture's.
func badPicture(input string, row int, err error) error {
	var told *Error
	switch {
	case errors.As(err, &told) && told.Status == 400,
		errors.Is(err, preprocess.ErrFormat), errors.Is(err, preprocess.ErrUnsupported),
		errors.Is(err, preprocess.ErrLimit), errors.Is(err, preprocess.ErrSize):
		e := refuse(400, "input %q: row %d: %v", input, row, err)
		e.Err = err
		return e
	}
	return err
}

// isBase64 reports whether a text has base64's characters alone, lines too. No picture has: each format begins with, or
// has soon, bytes that are none of them.
func isBase64(text []byte) bool {
	for _, c := range text {
		switch {
		case c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '+', c == '/', c == '=', c == '\n', c == '\r':
		default:
			return false
		}
	}
	return len(text) > 0
}
