package sound

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"testing"
	"testing/iotest"
)

// recorded is what testdata/make_features.py records.
type recorded struct {
	Config       json.RawMessage
	Samples      int
	Shape        [2]int
	NumPy, Torch []float64
	Sum, Apart   float64
}

func records(t *testing.T) []recorded {
	t.Helper()
	f, err := os.Open("testdata/features.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var list []recorded
	if err := json.NewDecoder(z).Decode(&list); err != nil {
		t.Fatal(err)
	}
	return list
}

// wave is the script's sound: samples of 16 bits.
func wave(n int) []int16 {
	x, state := make([]int16, n), 1
	down := func(x, by int) int { return int(math.Floor(float64(x) / float64(by))) } // Python's //
	abs := func(x int) int { return max(x, -x) }
	for i := range x {
		state = (state*1103515245 + 12345) % (1 << 31)
		x[i] = int16(abs(i%64-32)*200 - 3200 + down((abs(i%500-250)*80-10000)*(n-i), n) + (state>>16)%201 - 100)
	}
	return x
}

// wav is a file: what comes before the samples, then these.
func wav(code, channels, rate, bits int, samples []byte) []byte {
	b := []byte("RIFF\x00\x00\x00\x00WAVE")
	b = append(b, "LIST\x03\x00\x00\x00odd\x00fmt \x10\x00\x00\x00"...)
	for _, x := range []any{
		uint16(code), uint16(channels), uint32(rate), uint32(rate * channels * bits / 8), uint16(channels * bits / 8), uint16(bits),
	} {
		b, _ = binary.Append(b, binary.LittleEndian, x)
	}
	return append(binary.LittleEndian.AppendUint32(append(b, "data"...), uint32(len(samples))), samples...)
}

// TestFeatures: the features of a WAV file are those that transformers computes, in NumPy's double precision to six
// digits, in PyTorch's single precision as near as that is to NumPy's.
func TestFeatures(t *testing.T) {
	for i, r := range records(t) {
		samples, _ := binary.Append(nil, binary.LittleEndian, wave(r.Samples))
		if r.Samples == 0 {
			samples = make([]byte, 2)
		}
		spec, err := Parse(r.Config)
		if err != nil {
			t.Fatal(err)
		}
		clip, err := ReadWAV(iotest.HalfReader(bytes.NewReader(wav(1, 1, 16000, 16, samples))), spec.Samples)
		if err != nil {
			t.Fatal(err)
		}
		if clip.Total != int64(len(samples)/2) || len(clip.Samples) != min(len(samples)/2, spec.Samples) {
			t.Errorf("case %d: %d samples of %d", i, len(clip.Samples), clip.Total)
		}
		got, err := spec.Features(clip)
		if err != nil || spec.Bins != r.Shape[0] || spec.Frames() != r.Shape[1] || len(got) != r.Shape[0]*r.Shape[1] {
			t.Fatalf("case %d: %d × %d, %d numbers: %v", i, spec.Bins, spec.Frames(), len(got), err)
		}
		at := func(k int) int {
			switch k - 120 {
			case 0:
				return 0
			case 1:
				return (r.Shape[0] - 1) * r.Shape[1]
			case 2:
				return r.Shape[1] - 1
			}
			return (37*k)%r.Shape[0]*r.Shape[1] + (k*k*7+3*k)%r.Shape[1]
		}
		for k, want := range r.NumPy {
			x := float64(got[at(k)])
			if math.Abs(x-want) > 2e-6 || math.Abs(x-r.Torch[k]) > r.Apart+3e-6 {
				t.Errorf("case %d: place %d is %v, want %v or %v", i, k, x, want, r.Torch[k])
			}
		}
		sum := 0.0
		for _, x := range got {
			sum += float64(x)
		}
		if math.Abs(sum-r.Sum) > 1e-6*float64(len(got)) {
			t.Errorf("case %d: the sum is %v, want %v", i, sum, r.Sum)
		}
	}
}

// TestWAV: samples of every kind that is read are the same numbers; two channels are their mean.
func TestWAV(t *testing.T) {
	want := []float32{0, 0.5, -1, -0.25, 0.9921875}
	put := func(f func(b []byte, x float32) []byte, channels ...float32) (b []byte) {
		for _, x := range want {
			for _, c := range channels {
				b = f(b, x*c)
			}
		}
		return b
	}
	u8 := func(b []byte, x float32) []byte { return append(b, byte(x*128+128)) }
	s16 := func(b []byte, x float32) []byte { return binary.LittleEndian.AppendUint16(b, uint16(int16(x*(1<<15)))) }
	s24 := func(b []byte, x float32) []byte {
		n := uint32(int32(x * (1 << 23)))
		return append(b, byte(n), byte(n>>8), byte(n>>16))
	}
	s32 := func(b []byte, x float32) []byte { return binary.LittleEndian.AppendUint32(b, uint32(int32(x*(1<<31)))) }
	f32 := func(b []byte, x float32) []byte { return binary.LittleEndian.AppendUint32(b, math.Float32bits(x)) }
	f64 := func(b []byte, x float32) []byte {
		return binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(x)))
	}
	extensible := func(code byte, bits int, samples []byte) []byte { // the format in 40 bytes
		plain := wav(codeExtensible, 1, 8000, bits, samples)
		plain[28] = 40
		tail := append([]byte{22, 0, byte(bits), 0, 4, 0, 0, 0, code, 0, 0, 0, 0, 0, 0x10, 0}, "\x80\x00\x00\xaa\x00\x38\x9b\x71"...)
		return append(append(append([]byte{}, plain[:48]...), tail...), plain[48:]...)
	}
	endless := wav(1, 1, 8000, 16, put(s16, 1))
	binary.LittleEndian.PutUint32(endless[52:], unknownSize)
	for name, file := range map[string][]byte{
		"8 bits": wav(1, 1, 8000, 8, put(u8, 1)), "16 bits": wav(1, 1, 8000, 16, put(s16, 1)), "24 bits": wav(1, 1, 8000, 24, put(s24, 1)),
		"32 bits": wav(1, 1, 8000, 32, put(s32, 1)), "floats": wav(3, 1, 8000, 32, put(f32, 1)), "doubles": wav(3, 1, 8000, 64, put(f64, 1)),
		"two channels": wav(3, 2, 8000, 32, put(f32, 1.5, 0.5)), "two of 16 bits": wav(1, 2, 8000, 16, put(s16, 1, 1)),
		"an extended format": extensible(1, 24, put(s24, 1)), "an extended one of floats": extensible(3, 32, put(f32, 1)),
		"no size": endless, "more behind it": append(wav(1, 1, 8000, 16, put(s16, 1)), "LIST"...),
	} {
		if name == "24 bits" || name == "an extended format" { // 5 samples of 3 bytes and a filler
			file = append(file, 0)
		}
		for _, most := range []int{100, 5, 3} {
			c, err := ReadWAV(iotest.OneByteReader(bytes.NewReader(file)), most)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if c.Rate != 8000 || c.Total != 5 || c.Seconds() != 5.0/8000 || len(c.Samples) != min(5, most) {
				t.Errorf("%s: %d of %d samples at %d", name, len(c.Samples), c.Total, c.Rate)
			}
			for i, x := range c.Samples {
				if x != want[i] {
					t.Errorf("%s: sample %d is %v, want %v", name, i, x, want[i])
				}
			}
		}
	}
}

// TestWAVRefused: what is no sound of a kind that is read is an error of its class, wherever a file ends.
func TestWAVRefused(t *testing.T) {
	good := wav(1, 1, 16000, 16, make([]byte, 64))
	for n := range good {
		if _, err := ReadWAV(bytes.NewReader(good[:n]), 100); !errors.Is(err, ErrFormat) {
			t.Errorf("the first %d bytes: %v", n, err)
		}
	}
	changed := func(at int, b string) []byte {
		file := bytes.Clone(good)
		copy(file[at:], b)
		return file
	}
	for name, c := range map[string]struct {
		file []byte
		want error
	}{
		"an MP3":          {append([]byte("ID3\x04"), good...), ErrUnsupported},
		"RF64":            {changed(0, "RF64"), ErrUnsupported},
		"A-law":           {changed(32, "\x06"), ErrUnsupported},
		"12 bits":         {changed(46, "\x0c"), ErrUnsupported},
		"64 bits":         {wav(1, 1, 16000, 64, make([]byte, 64)), ErrUnsupported},
		"half floats":     {wav(3, 1, 16000, 16, make([]byte, 64)), ErrUnsupported},
		"six channels":    {wav(1, 6, 16000, 16, make([]byte, 60)), ErrUnsupported},
		"no channel":      {wav(1, 0, 16000, 16, make([]byte, 60)), ErrUnsupported},
		"no rate":         {wav(1, 1, 0, 16, make([]byte, 64)), ErrFormat},
		"a format apart":  {changed(44, "\x03"), ErrFormat},
		"a half sample":   {wav(1, 1, 16000, 16, make([]byte, 63)), ErrFormat},
		"no samples":      {wav(1, 1, 16000, 16, nil), ErrFormat},
		"a short format":  {changed(28, "\x04"), ErrFormat},
		"a long format":   {changed(28, "\x00\x00\x00\xff"), ErrFormat},
		"samples first":   {changed(24, "data"), ErrFormat},
		"not a number":    {wav(3, 1, 16000, 32, []byte{0, 0, 0xc0, 0x7f}), ErrFormat},
		"an extended one": {changed(32, "\xfe\xff"), ErrFormat},
	} {
		if _, err := ReadWAV(bytes.NewReader(c.file), 100); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	broken := errors.New("broken disk")
	if _, err := ReadWAV(io.MultiReader(bytes.NewReader(good[:60]), iotest.ErrReader(broken)), 100); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

// TestParse: what a configuration leaves out is the extractor's default; one inside a processor's is read; what would
// take more memory than any model wants, and what is computed otherwise, is refused.
func TestParse(t *testing.T) {
	const kind = `"feature_extractor_type": "WhisperFeatureExtractor"`
	for text, want := range map[string]Spec{
		"{" + kind + "}": {Rate: 16000, Samples: 480000, Bins: 80, window: 400, hop: 160},
		`{"feature_extractor": {"feature_size": 128, "do_normalize": true, ` + kind + "}}": {
			Rate: 16000, Samples: 480000, Bins: 128, window: 400, hop: 160, normalize: true,
		},
	} {
		if s, err := Parse([]byte(text)); err != nil || *s != want {
			t.Errorf("%s: %+v, %v", text, s, err)
		}
	}
	for text, want := range map[string]error{
		"":                              ErrFormat,
		"[]":                            ErrFormat,
		"{}":                            ErrUnsupported,
		`{"dither": 0.1, ` + kind + "}": ErrUnsupported,
		`{"feature_extractor_type": "Wav2Vec2FeatureExtractor"}`:  ErrUnsupported,
		`{"n_fft": 0, ` + kind + "}":                              ErrFormat,
		`{"n_fft": 401, ` + kind + "}":                            ErrFormat,
		`{"n_fft": 1000000, ` + kind + "}":                        ErrFormat,
		`{"hop_length": 0, ` + kind + "}":                         ErrFormat,
		`{"hop_length": 1, "feature_size": 1000, ` + kind + "}":   ErrFormat,
		`{"feature_size": 0, ` + kind + "}":                       ErrFormat,
		`{"feature_size": 5000, ` + kind + "}":                    ErrFormat,
		`{"chunk_length": 100000000, ` + kind + "}":               ErrFormat,
		`{"chunk_length": -1, ` + kind + "}":                      ErrFormat,
		`{"sampling_rate": 0, ` + kind + "}":                      ErrFormat,
		`{"sampling_rate": 100, "chunk_length": 1, ` + kind + "}": ErrFormat,
	} {
		if s, err := Parse([]byte(text)); !errors.Is(err, want) {
			t.Errorf("%s: %+v, %v, want %v", text, s, err, want)
		}
	}
	s, err := Parse([]byte("{" + kind + "}"))
	if err != nil {
		t.Fatal(err)
	}
	var rate *RateError
	if _, err := s.Features(&Clip{Rate: 44100, Samples: make([]float32, 5), Total: 5}); !errors.As(err, &rate) || rate.Rate != 44100 {
		t.Errorf("another rate: %v", err)
	}
}

// FuzzWAV: whatever a file has, it is an error or numbers from −1 to 1 where they are whole, and no more than were
// asked for.
func FuzzWAV(f *testing.F) {
	f.Add(wav(1, 2, 16000, 16, make([]byte, 64)))
	f.Add(wav(3, 1, 16000, 32, make([]byte, 64)))
	f.Add(wav(codeExtensible, 1, 8000, 24, make([]byte, 66)))
	f.Fuzz(func(t *testing.T, file []byte) {
		c, err := ReadWAV(bytes.NewReader(file), 50)
		if err != nil {
			if !errors.Is(err, ErrFormat) && !errors.Is(err, ErrUnsupported) {
				t.Errorf("an error of no class: %v", err)
			}
			return
		}
		if len(c.Samples) == 0 || len(c.Samples) > 50 || c.Rate < 1 {
			t.Errorf("%d samples at %d", len(c.Samples), c.Rate)
		}
	})
}
