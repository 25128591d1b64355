// Package heard reads features of sounds that commands are given, and says what came of a sound.
//
// It does not know models, nor how a command says that it failed.
//
//	features, err := heard.Features(file)
package heard

import (
	"fmt"
	"io"
	"os"

	"github.com/optimem/optimem/cmd/optimem/internal/jsonout"
	"github.com/optimem/optimem/cmd/optimem/internal/wording"
	"github.com/optimem/optimem/internal/ascii"
	"github.com/optimem/optimem/internal/npy"
	"github.com/optimem/optimem/tensor"
)

// maxFeatures bounds the features of a sound.
const maxFeatures = 16 << 20

// A KindError says that an array is no features of a sound.
type KindError struct{ what string }

// Error says it.
func (e *KindError) Error() string { return e.what }

// npyMagic begins files of NumPy's.
const npyMagic = "\x93NUMPY"

// IsFeatures reports whether a file is one of NumPy's, which has features.
func IsFeatures(f io.ReaderAt) bool {
	head := make([]byte, len(npyMagic))
	n, err := f.ReadAt(head, 0)
	return err == nil && string(head[:n]) == npyMagic
}

// Features reads those of a sound. An array of another kind is a [*KindError].
func Features(f *os.File) ([]float32, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	a, err := npy.Open(f, info.Size())
	if err != nil {
		return nil, err
	}
	n, err := a.Layout.Shape.NumElements()
	if a.DType != tensor.Float32 || err != nil || n > maxFeatures {
		return nil, &KindError{fmt.Sprintf("is %v %v", a.DType, a.Layout.Shape)}
	}
	x, err := a.Read()
	if err != nil {
		return nil, err
	}
	return tensor.Slice[float32](x.Contiguous())
}

// Facts are what came of a sound.
type Facts struct {
	// Text is what is spoken.
	Text string
	// Sound is how many seconds the sound has, Read how many of them were read.
	Sound, Read float64
	// Seconds, Peak and Moved are what the run took: seconds, and bytes.
	Seconds     float64
	Peak, Moved int64
}

// String is the line that ends a run.
func (f Facts) String() string {
	line := fmt.Sprintf("a sound of %.1f s in %s, peak %s", f.Read, wording.Seconds(f.Seconds), ascii.FormatSize(f.Peak))
	if f.Moved > 0 {
		line += ", moved " + ascii.FormatSize(f.Moved)
	}
	return line
}

// Print writes the facts as a JSON object.
func (f Facts) Print(w io.Writer) error {
	o := jsonout.New(w)
	o.Set("text", f.Text)
	o.Set("sound_seconds", f.Sound)
	o.Set("read_seconds", f.Read)
	o.Set("seconds", f.Seconds)
	o.Set("peak_device_bytes", f.Peak)
	o.Set("bytes_moved", f.Moved)
	return o.Close()
}
