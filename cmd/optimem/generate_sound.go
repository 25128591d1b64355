package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"os"

	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/internal/npy"
	"github.com/optimem/optimem/tensor"
)

// hear looks at what is asked of a sound: for a model that writes what was spoken the prompt is the file of one.
func (g *generating) hear() error {
	if len(g.args) > 0 && g.text.Defaults().Speech != nil {
		if _, err := os.Stat(g.args[0]); err != nil {
			return g.usage("give a WAV file, or with --sound the features of one", "the model reads a sound, and %.80q is no file", g.args[0])
		}
		g.sound, g.args = g.args[0], nil
	}
	if g.sound == "" && (g.language != "" || g.task != "") {
		return g.usage("", "--language and --task are for sounds")
	}
	return nil
}

// npyMagic begins files of NumPy's.
const npyMagic = "\x93NUMPY"

// source reads a sound: a WAV file, or features in a file of NumPy's.
func (g *generating) source() (_ *generate.Source, err error) {
	f, err := os.Open(g.sound)
	if err != nil {
		return nil, err
	}
	defer func() { err = cmp.Or(err, f.Close()) }()
	head := make([]byte, len(npyMagic))
	if n, err := f.ReadAt(head, 0); err == nil && string(head[:n]) == npyMagic {
		features, err := g.features(f)
		return &generate.Source{Features: features}, err
	}
	source, heard, err := g.text.Sound(bufio.NewReader(f))
	if err != nil {
		return nil, soundError(g.sound, err)
	}
	if heard.Read < heard.Seconds {
		g.say("note", fmt.Sprintf("the sound has %.1f s, and the model reads the first %.1f: what comes after is left out", heard.Seconds, heard.Read))
	}
	return source, nil
}

// soundError gives an error about a sound its exit code and hint.
func soundError(path string, err error) error {
	var wrong *generate.SoundError
	var config *generate.ConfigError
	switch {
	case errors.As(err, &wrong) && wrong.Unsupported:
		return &failure{err: fmt.Errorf("%s: %w", path, err), code: exitUnsupported, hints: []string{
			"ffmpeg -i FILE -ar 16000 -ac 1 speech.wav makes a file that is read",
		}}
	case errors.As(err, &wrong):
		return &failure{err: fmt.Errorf("%s: %w", path, err), code: exitUnsafe}
	case errors.As(err, &config):
		return textError(err)
	}
	return err
}

// features reads those of a sound.
func (g *generating) features(f *os.File) ([]float32, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	a, err := npy.Open(f, info.Size())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", g.sound, err)
	}
	n, err := a.Layout.Shape.NumElements()
	if a.DType != tensor.Float32 || err != nil || n > maxFeatures {
		return nil, g.usage("features are float32 [bins, times], as WhisperFeatureExtractor gives them", "%s is %v %v", g.sound, a.DType, a.Layout.Shape)
	}
	x, err := a.Read()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", g.sound, err)
	}
	return tensor.Slice[float32](x.Contiguous())
}

// maxFeatures bounds the features of a sound.
const maxFeatures = 16 << 20
