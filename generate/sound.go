package generate

import (
	"errors"
	"fmt"
	"io"

	"github.com/optimem/optimem/internal/sound"
)

// A SoundError says why a sound cannot be read.
type SoundError struct {
	// Unsupported says that it may be whole, but of a form or rate that is not read.
	Unsupported bool
	err         error
}

// Error says it.
func (e *SoundError) Error() string { return e.err.Error() }

// Unwrap returns the error below.
func (e *SoundError) Unwrap() error { return e.err }

// A Heard says how much of a sound a source has.
type Heard struct {
	// Seconds is how long the sound is, Read how much of it the source has, from the beginning: no more than the model
	// reads at once.
	Seconds, Read float64
}

// Sound reads a WAV file as the source of a request, of a folder of a model that writes what was spoken: PCM of 8, 16,
// 24 or 32 bits or floats, of one channel or the mean of two, with as many samples a second as the model takes
// (16,000). The features are those of transformers' WhisperFeatureExtractor as the folder's preprocessor_config.json
// describes it. It reads no more of a file than the model does, and takes memory for that alone.
func (t *Text) Sound(r io.Reader) (*Source, Heard, error) {
	config, file, err := soundConfig(t.folder)
	if err != nil {
		return nil, Heard{}, err
	}
	spec, err := sound.Parse(config)
	if err != nil {
		return nil, Heard{}, &ConfigError{File: file, Msg: err.Error()}
	}
	clip, err := sound.ReadWAV(r, spec.Samples)
	if err != nil {
		return nil, Heard{}, soundError(err)
	}
	features, err := spec.Features(clip)
	if err != nil {
		return nil, Heard{}, soundError(err)
	}
	return &Source{Features: features}, heardOf(clip), nil
}

// heardOf says how much of a sound was read.
func heardOf(c *sound.Clip) Heard {
	return Heard{c.Seconds(), float64(len(c.Samples)) / float64(c.Rate)}
}

// soundConfig returns a folder's file that says how sounds are prepared, and its name.
func soundConfig(folder string) (config []byte, name string, err error) {
	for _, name := range []string{"preprocessor_config.json", "processor_config.json"} {
		if folder == "" {
			break
		}
		if config, err := readFile(folder, name, maxConfig); config != nil || err != nil {
			return config, name, err
		}
	}
	return nil, "", &ConfigError{File: "preprocessor_config.json", Msg: "is missing, which says how sounds are prepared"}
}

// soundError makes errors of files typed ones; others, of who reads, stay.
func soundError(err error) error {
	var rate *sound.RateError
	unsupported := errors.Is(err, sound.ErrUnsupported) || errors.As(err, &rate)
	if unsupported || errors.Is(err, sound.ErrFormat) {
		return &SoundError{unsupported, err}
	}
	return err
}

// task returns what stands behind the language with another task in the place of its own, "" for that.
func (s *Speech) task(behind []int, task string) ([]int, error) {
	if task == "" {
		return behind, nil
	}
	id, known := s.Tasks[task]
	if !known {
		return nil, &RequestError{"Task", fmt.Sprintf("is %.20q, which the model does not know", task)}
	}
	list := make([]int, 0, len(behind)+1)
	list = append(list, id)
	for _, x := range behind {
		if !s.isTask(x) {
			list = append(list, x)
		}
	}
	return list, nil
}

// isTask reports whether a token names a task.
func (s *Speech) isTask(id int) bool {
	for _, x := range s.Tasks {
		if x == id {
			return true
		}
	}
	return false
}
