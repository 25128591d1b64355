//go:build !files

package running

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/optimem/optimem/cmd/optimem/internal/arrays"
	"github.com/optimem/optimem/cmd/optimem/internal/command"
	"github.com/optimem/optimem/internal/preprocess"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/tensor"
)

// pictureSuffixes are those of pictures, whether they can be read or not: by them a file is known not to hold arrays.
var pictureSuffixes = []string{
	".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".heic", ".avif", ".jxl",
}

// IsPicture reports whether a file is a picture, by its name.
func IsPicture(path string) bool {
	return slices.Contains(pictureSuffixes, strings.ToLower(filepath.Ext(path)))
}

// PictureFiles splits "a.png,b.png", unless that is the name of a file.
func PictureFiles(text string) []string {
	files := strings.Split(text, ",")
	if _, err := os.Stat(text); err == nil || !slices.ContainsFunc(files[:len(files)-1], IsPicture) {
		return []string{text}
	}
	return files
}

// ReadPictures makes an input of a picture, or of several with commas between: a batch of them.
func (r *Run) ReadPictures(
	ctx context.Context, in *RunInputs, ports []models.Port, port *models.Port, text string,
) error {
	spec, err := r.PictureSpec(text)
	if err != nil {
		return err
	}
	if port == nil && len(ports) != 1 {
		return r.Usage("name it: --input NAME="+text+"; "+describePorts(ports), "%s: which input is it?", text)
	}
	if port == nil {
		port = &ports[0]
	}
	if _, twice := in.Values[port.Name]; twice {
		return r.Usage("", "input %s is given twice", port.Name)
	}
	files := PictureFiles(text)
	var t *tensor.Tensor
	for i, path := range files {
		p, err := r.Decode(ctx, path)
		if err != nil {
			return err
		}
		height, width, err := spec.Size(p.Height, p.Width)
		if err != nil {
			return r.PictureError(path, err)
		}
		if t == nil {
			if t, err = r.allocPictures(in, *port, len(files), height, width); err != nil {
				return err
			}
		}
		shape := t.Layout.Shape
		if n := len(shape); shape[n-2] != height || shape[n-1] != width {
			return r.Usage("resize and crop make pictures equal: "+preprocess.Options,
				"%s becomes %d × %d, and %s %d × %d", path, height, width, files[0], shape[n-2], shape[n-1])
		}
		values, err := tensor.Slice[float32](t)
		if err != nil {
			return err
		}
		each := len(values) / len(files)
		if err := spec.Apply(ctx, p, values[i*each:][:each]); err != nil {
			return r.PictureError(path, err)
		}
	}
	in.Values[port.Name] = t
	if len(ports) == 1 {
		in.rows = rowNames{}
		for _, path := range files {
			in.rows.files = append(in.rows.files, filepath.Base(path))
		}
	}
	return nil
}

// FolderSpec is the file in which a Hugging Face folder says how pictures become numbers.
const FolderSpec = "preprocessor_config.json"

// PictureSpec says how a picture becomes numbers: as --preprocess has it, or else the model's folder.
func (r *Run) PictureSpec(picture string) (preprocess.Spec, error) {
	if r.Preprocess != "" {
		return r.Spec, nil
	}
	const most = 1 << 20
	f, err := os.Open(filepath.Join(r.Model, FolderSpec))
	if r.Model == "" || err != nil {
		return preprocess.Spec{}, r.Usage("say how: --preprocess imagenet (there is: "+preprocess.Names+")",
			"%s: a picture becomes numbers only if told how", picture)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil {
		return preprocess.Spec{}, err
	}
	spec, err := preprocess.ParseConfig(text)
	if err != nil {
		return preprocess.Spec{}, &command.Failure{Err: err, Code: command.ExitUnsupported, Hints: []string{"--preprocess says it instead: " + preprocess.Names}}
	}
	return spec, nil
}

// allocPictures makes the tensor of n pictures; one picture may go without the dimension of the batch.
func (r *Run) allocPictures(in *RunInputs, p models.Port, n, height, width int) (*tensor.Tensor, error) {
	shape := tensor.Shape{n, 3, height, width}
	if len(p.Shape) == 3 && n == 1 {
		shape = shape[1:]
	}
	if p.DType != tensor.Float32 {
		return nil, r.Usage("pictures become float32", "input %s: pictures, where %s is wanted", p.Name, wantedSpec(p))
	}
	if err := r.Fits(p, tensor.Float32, shape); err != nil {
		return nil, err
	}
	elements, err := shape.NumElements()
	if err != nil {
		return nil, err
	}
	bytes, ok := tensor.MulBytes(elements, int64(tensor.Float32.Size()))
	if !ok {
		return nil, r.Usage("", "input %s: float32 %v takes more than 2^63 bytes", p.Name, shape)
	}
	data, err := in.alloc(bytes)
	if err != nil {
		return nil, err
	}
	return &tensor.Tensor{DType: tensor.Float32, Layout: tensor.Contiguous(shape...), Data: data}, nil
}

// Decode reads a picture. The limit that the user allows for opening files holds for it, too, where it is given. A few
// bytes may be a picture of a gigabyte, so that what the decoders read says little about how long they take.
func (r *Run) Decode(ctx context.Context, path string) (*preprocess.Picture, error) {
	f, _, err := OpenSized(path)
	if err != nil {
		return nil, err
	}
	reader := struct {
		io.Reader
		io.Seeker
	}{arrays.Reader(ctx, f), f}
	limits := preprocess.Limits{MemoryBytes: int64(r.MaxMemory)}
	p, err := unlessDone(ctx, func() (*preprocess.Picture, error) {
		defer f.Close()
		return preprocess.Decode(reader, limits)
	})
	if err != nil {
		return nil, r.PictureError(path, err)
	}
	return p, nil
}

// PictureError gives an error about a picture its exit code and hint.
func (r *Run) PictureError(path string, err error) error {
	err = fmt.Errorf("%s: %w", path, err)
	switch {
	case errors.Is(err, preprocess.ErrSize):
		return r.Usage("options of --preprocess: "+preprocess.Options, "%w", err)
	case errors.Is(err, preprocess.ErrUnsupported):
		return &command.Failure{Err: err, Code: command.ExitUnsupported, Hints: []string{"convert it to PNG"}}
	case errors.Is(err, preprocess.ErrLimit):
		needBytes := 4 * cmp.Or(int64(r.MaxMemory), 1<<30)
		var large *preprocess.MemoryError
		if errors.As(err, &large) {
			needBytes = large.NeedBytes
		}
		return &command.Failure{Err: err, Code: command.ExitUnsafe, Hints: []string{command.MoreMemory(needBytes)}}
	case errors.Is(err, preprocess.ErrFormat):
		return &command.Failure{Err: err, Code: command.ExitUnsafe}
	}
	return err
}
