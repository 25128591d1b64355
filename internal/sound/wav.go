// Package sound reads recorded sounds and prepares them as models expect them: WAV files, and what the Python package
// transformers' WhisperFeatureExtractor and Wav2Vec2FeatureExtractor give. It does not know models, tensors or devices,
// and does not resample: a sound of another rate than the preparation's is refused, as there.
//
//	spec, err := sound.Parse(config)               // preprocessor_config.json
//	clip, err := sound.ReadWAV(file, spec.Samples)
//	features, err := spec.Features(clip)           // spec.Bins × spec.Frames()
package sound

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// A Clip is a sound of one channel.
type Clip struct {
	// Rate is how many samples a second has.
	Rate int
	// Samples are those from the beginning on, as many as were asked for at most, from −1 to 1.
	Samples []float32
	// Total is how many there are in all, by the file.
	Total int64
}

// Seconds is how long all of the sound is.
func (c *Clip) Seconds() float64 { return float64(c.Total) / float64(c.Rate) }

// The errors of files, in errors that say more.
var (
	// ErrFormat is a file that is not what it says.
	ErrFormat = errors.New("damaged sound")
	// ErrUnsupported is a sound of a kind that is not read.
	ErrUnsupported = errors.New("unsupported sound")
)

func wrong(kind error, format string, args ...any) error {
	return fmt.Errorf("%w: %s", kind, fmt.Sprintf(format, args...))
}

// The codes of formats.
const (
	codePCM        = 1
	codeFloat      = 3
	codeExtensible = 0xFFFE
)

// A format says how samples lie.
type format struct {
	float    bool
	channels int
	rate     int
	// bytes are those of a sample.
	bytes int
}

// ReadWAV reads a WAV file, no more than the first most samples of it: PCM of 8, 16, 24 or 32 bits or floats of 32 or
// 64, of one channel or the mean of two.
func ReadWAV(r io.Reader, most int) (*Clip, error) {
	var head [12]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, ended(err, "the head")
	}
	switch {
	case string(head[:4]) == "RF64" || string(head[:4]) == "RIFX":
		return nil, wrong(ErrUnsupported, "%s, and WAV of the form RIFF is read", head[:4])
	case string(head[:4]) != "RIFF" || string(head[8:]) != "WAVE":
		return nil, wrong(ErrUnsupported, "no WAV file")
	}
	var f *format
	for {
		var chunk [8]byte
		if _, err := io.ReadFull(r, chunk[:]); err != nil {
			return nil, ended(err, "what comes before the samples")
		}
		name, size := string(chunk[:4]), int64(binary.LittleEndian.Uint32(chunk[4:]))
		switch {
		case name == "fmt " && f == nil:
			if size < 16 || size > 1<<10 {
				return nil, wrong(ErrFormat, "a format of %d bytes", size)
			}
			text := make([]byte, size+size%2)
			if _, err := io.ReadFull(r, text); err != nil {
				return nil, ended(err, "the format")
			}
			var err error
			if f, err = readFormat(text[:size]); err != nil {
				return nil, err
			}
		case name == "data" && f == nil:
			return nil, wrong(ErrFormat, "samples before their format")
		case name == "data":
			return f.read(r, size, most)
		default:
			if _, err := io.CopyN(io.Discard, r, size+size%2); err != nil {
				return nil, ended(err, "a part of the file")
			}
		}
	}
}

// ended makes the end of a file an error of the file.
func ended(err error, what string) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return wrong(ErrFormat, "it ends in %s", what)
	}
	return err
}

func readFormat(text []byte) (*format, error) {
	short := func(at int) int { return int(binary.LittleEndian.Uint16(text[at:])) }
	code, bits := short(0), short(14)
	f := &format{channels: short(2), bytes: bits / 8}
	rate := binary.LittleEndian.Uint32(text[4:])
	if code == codeExtensible {
		if len(text) < 40 {
			return nil, wrong(ErrFormat, "an extended format of %d bytes", len(text))
		}
		if text[28] != 0 || text[29] != 0 || string(text[32:40]) != "\x80\x00\x00\xaa\x00\x38\x9b\x71" {
			return nil, wrong(ErrUnsupported, "samples of a form that is not PCM")
		}
		code = short(24)
	}
	f.float = code == codeFloat
	switch {
	case code != codePCM && code != codeFloat:
		return nil, wrong(ErrUnsupported, "samples of the form %d, and PCM (1) and floats (3) are read", code)
	case f.float && bits != 32 && bits != 64 || !f.float && (bits%8 != 0 || bits < 8 || bits > 32):
		return nil, wrong(ErrUnsupported, "samples of %d bits", bits)
	case f.channels < 1 || f.channels > 2:
		return nil, wrong(ErrUnsupported, "%d channels, and one or two are read", f.channels)
	case short(12) != f.channels*f.bytes:
		return nil, wrong(ErrFormat, "%d bytes for %d samples of %d", short(12), f.channels, f.bytes)
	case rate < 1 || rate > 1<<20:
		return nil, wrong(ErrFormat, "%d samples a second", rate)
	}
	f.rate = int(rate)
	return f, nil
}

// unknownSize is what a program writes that cannot go back: the samples go on to the end of the file.
const unknownSize = 1<<32 - 1

// read reads the samples, which take size bytes.
func (f *format) read(r io.Reader, size int64, most int) (*Clip, error) {
	frame := int64(f.channels * f.bytes)
	if size == unknownSize {
		size = math.MaxInt64 / 2
	} else if size%frame != 0 {
		return nil, wrong(ErrFormat, "%d bytes of samples, of which %d make one", size, frame)
	}
	c := &Clip{Rate: f.rate, Total: size / frame}
	const part = 1 << 12
	room := make([]byte, part*frame)
	for int64(len(c.Samples)) < min(c.Total, int64(most)) {
		n := min(part, c.Total-int64(len(c.Samples)), int64(most-len(c.Samples))) * frame
		got, err := io.ReadFull(r, room[:n])
		if err != nil && (size < unknownSize || !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF)) {
			return nil, ended(err, "the samples")
		}
		for k := int64(0); k+frame <= int64(got); k += frame {
			x := f.sample(room[k:])
			if f.channels == 2 {
				x = (x + f.sample(room[k+int64(f.bytes):])) / 2
			}
			if x != x || math.IsInf(float64(x), 0) {
				return nil, wrong(ErrFormat, "sample %d is no number", len(c.Samples))
			}
			c.Samples = append(c.Samples, x)
		}
		if err != nil {
			break
		}
	}
	if size > unknownSize { // what there is beyond what was asked for is counted
		rest, err := io.Copy(io.Discard, r)
		if err != nil {
			return nil, err
		}
		c.Total = int64(len(c.Samples)) + rest/frame
	}
	if len(c.Samples) == 0 {
		return nil, wrong(ErrFormat, "it has no samples")
	}
	return c, nil
}

// sample returns a number from −1 to 1.
func (f *format) sample(b []byte) float32 {
	switch {
	case f.float && f.bytes == 8:
		return float32(math.Float64frombits(binary.LittleEndian.Uint64(b)))
	case f.float:
		return math.Float32frombits(binary.LittleEndian.Uint32(b))
	}
	switch f.bytes {
	case 1: // the only one without a sign
		return (float32(b[0]) - 128) / 128
	case 2:
		return float32(int16(binary.LittleEndian.Uint16(b))) / (1 << 15)
	case 3:
		return float32(int32(uint32(b[0])<<8|uint32(b[1])<<16|uint32(b[2])<<24)>>8) / (1 << 23)
	}
	return float32(float64(int32(binary.LittleEndian.Uint32(b))) / (1 << 31))
}
