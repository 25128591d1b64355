package preprocess

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// A recorded case is what torchvision and Pillow make of a picture; testdata/make_images.py says how it is sampled.
type recorded struct {
	File, Spec    string
	Height, Width int
	CRC           uint32
	Levels        []byte
	Values        []float32
}

func (r *recorded) UnmarshalJSON(data []byte) error {
	type plain recorded
	wide := struct {
		*plain
		Levels []int
	}{plain: (*plain)(r)}
	if err := json.Unmarshal(data, &wide); err != nil {
		return err
	}
	for _, v := range wide.Levels {
		r.Levels = append(r.Levels, byte(v))
	}
	return nil
}

func readRecorded(t *testing.T) []recorded {
	t.Helper()
	f, err := os.Open("testdata/expected.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var all []recorded
	if err := json.NewDecoder(text).Decode(&all); err != nil {
		t.Fatal(err)
	}
	if len(all) < 200 {
		t.Fatalf("only %d recorded cases", len(all))
	}
	return all
}

func sample(i, n int) int { return int(uint64(i) * 2654435761 % uint64(n)) }

func decodeFile(t *testing.T, name string) *Picture {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p, err := Decode(f, Limits{})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return p
}

func differing(levels []byte, want recorded) (n int) {
	for i, w := range want.Levels {
		if levels[sample(i, len(levels))] != w {
			n++
		}
	}
	return n
}

// TestRecorded compares grey levels and values with torchvision's: the same bits.
func TestRecorded(t *testing.T) {
	for _, want := range readRecorded(t) {
		t.Run(want.File+" "+want.Spec, func(t *testing.T) {
			p := decodeFile(t, want.File)
			spec, err := Parse(want.Spec)
			if err != nil {
				t.Fatal(err)
			}
			height, width, err := spec.Size(p.Height, p.Width)
			if err != nil || height != want.Height || width != want.Width {
				t.Fatalf("size %d × %d, %v, want %d × %d", height, width, err, want.Height, want.Width)
			}
			g, err := spec.geometry(p.Height, p.Width)
			if err != nil {
				t.Fatal(err)
			}
			levels, err := spec.levels(context.Background(), p, g)
			if err != nil {
				t.Fatal(err)
			}
			if crc := crc32.ChecksumIEEE(levels); crc != want.CRC {
				t.Errorf("levels differ from Pillow's: %d of %d samples", differing(levels, want), len(want.Levels))
			}
			values := make([]float32, 3*height*width)
			if err := spec.Apply(context.Background(), p, values); err != nil {
				t.Fatal(err)
			}
			for i, w := range want.Values {
				if v := values[sample(i, len(values))]; math.Float32bits(v) != math.Float32bits(w) {
					t.Errorf("value %d is %v, want %v", sample(i, len(values)), v, w)
				}
			}
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	read := func(name string) []byte {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	png, jpg, web := read("odd.png"), read("420.jpg"), read("lossy.webp")
	vast := slices.Clone(png)
	copy(vast[16:24], "\x00\x00\xff\xff\x00\x00\xff\xff")
	binary.BigEndian.PutUint32(vast[29:], crc32.ChecksumIEEE(vast[12:29]))
	long := slices.Clone(png)
	copy(long[16:24], "\x7f\xff\xff\xff\x00\x00\x00\x01")
	binary.BigEndian.PutUint32(long[29:], crc32.ChecksumIEEE(long[12:29]))
	changed := slices.Clone(png)
	changed[len(changed)/2] ^= 4
	frame := bytes.Index(jpg, []byte("\xff\xc0\x00\x11"))
	vastJPEG, deepJPEG := slices.Clone(jpg), slices.Clone(jpg)
	copy(vastJPEG[frame+5:], "\xff\xff\xff\xff")
	deepJPEG[frame+4] = 12
	extended := append([]byte("RIFF\x1e\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x00\x00\x00\x00"),
		"\xff\xff\xff\xff\xff\xff"...)
	for _, c := range []struct {
		name   string
		data   []byte
		limits Limits
		want   error
	}{
		{"empty", nil, Limits{}, ErrFormat},
		{"text", []byte("this is no picture at all"), Limits{}, ErrFormat},
		{"the mark of a PNG alone", png[:8], Limits{}, ErrFormat},
		{"half a PNG", png[:len(png)/2], Limits{}, ErrFormat},
		{"half a JPEG", jpg[:len(jpg)/2], Limits{}, ErrFormat},
		{"the mark of a JPEG alone", jpg[:3], Limits{}, ErrFormat},
		{"half a WebP", web[:len(web)/2], Limits{}, ErrFormat},
		{"a PNG with a wrong checksum", changed, Limits{}, ErrFormat},
		{"a PNG of 4 G pixels", vast, Limits{}, ErrLimit},
		{"a PNG of 2 G columns", long, Limits{}, ErrLimit},
		{"a WebP of 2⁴⁸ pixels", extended, Limits{}, ErrFormat},
		{"a PNG larger than allowed", png, Limits{MemoryBytes: 47*63*8 - 1}, ErrLimit},
		{"a JPEG of 4 G pixels", vastJPEG, Limits{}, ErrLimit},
		{"a JPEG of 12 bits", deepJPEG, Limits{}, ErrUnsupported},
		{"a PNG as large as allowed", png, Limits{MemoryBytes: 47 * 63 * 8}, nil},
		{"an animation", read("animated.webp"), Limits{}, ErrUnsupported},
		{"a GIF", []byte("GIF89a\x01\x00\x01\x00"), Limits{}, ErrUnsupported},
		{"an AVIF", []byte("\x00\x00\x00\x1cftypavif"), Limits{}, ErrUnsupported},
	} {
		if _, err := Decode(bytes.NewReader(c.data), c.limits); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

// TestMemoryError: what a picture may take is what allows it.
func TestMemoryError(t *testing.T) {
	png, err := os.ReadFile("testdata/odd.png")
	if err != nil {
		t.Fatal(err)
	}
	var large *MemoryError
	if _, err = Decode(bytes.NewReader(png), Limits{MemoryBytes: 1}); !errors.As(err, &large) || large.AllowedBytes != 1 {
		t.Fatal(err)
	}
	if _, err = Decode(bytes.NewReader(png), Limits{MemoryBytes: large.NeedBytes}); err != nil {
		t.Error(err)
	}
}

type brokenDisk struct{ *bytes.Reader }

var errDisk = errors.New("the disk is broken")

func (d brokenDisk) Read(p []byte) (int, error) {
	if d.Len() < int(d.Size())/2 {
		return 0, errDisk
	}
	return d.Reader.Read(p[:min(len(p), 100)])
}

// A disk that fails is not the picture's fault.
func TestDecodeReadError(t *testing.T) {
	for _, name := range []string{"odd.png", "420.jpg", "lossy.webp"} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Decode(brokenDisk{bytes.NewReader(data)}, Limits{}); !errors.Is(err, errDisk) || errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v, want %v", name, err, errDisk)
		}
	}
}

func TestParse(t *testing.T) {
	imagenet, _ := named("imagenet")
	other := imagenet
	other.side, other.crop = 232, 0
	half := Spec{scaled: true, mean: [3]float32{0.5, 0.5, 0.5}, deviation: [3]float32{1, 1, 1}}
	for _, c := range []struct {
		text string
		want Spec
	}{
		{"imagenet", imagenet},
		{"imagenet:resize=256", imagenet},
		{"imagenet:resize=232,crop=none", other},
		{"none", Spec{}},
		{"none:mean=0.5", half},
		{"none:resize=30x40,filter=bicubic", Spec{height: 30, width: 40, filter: bicubic}},
		{"vit:resize=none,crop=8", Spec{
			crop: 8, scaled: true, mean: half.mean, deviation: half.mean,
		}},
	} {
		if got, err := Parse(c.text); err != nil || got != c.want {
			t.Errorf("%s: %+v, %v, want %+v", c.text, got, err, c.want)
		}
	}
	for _, text := range []string{
		"", "cifar", "imagenet:resize", "imagenet:resize=0", "imagenet:resize=-1", "imagenet:resize=1e3",
		"imagenet:resize=99999999", "imagenet:resize=3x", "imagenet:crop=257", "imagenet:size=3", "imagenet:filter=box",
		"imagenet:mean=0.1/0.2", "imagenet:mean=x", "imagenet:mean=nan", "imagenet:std=0", "imagenet:std=1/0/1",
		"imagenet:,", "none:resize=10x300,crop=11",
	} {
		if s, err := Parse(text); err == nil {
			t.Errorf("%q is understood: %+v", text, s)
		}
	}
}

func TestSizeRefuses(t *testing.T) {
	for _, c := range []struct {
		spec          string
		height, width int
		want          error
	}{
		{"none:crop=9", 8, 10, ErrSize},
		{"none:crop=9", 9, 9, nil},
		{"imagenet:resize=65536", 1, 65536, ErrLimit},
		{"imagenet", 1, 65536, nil},
	} {
		spec, err := Parse(c.spec)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := spec.Size(c.height, c.width); !errors.Is(err, c.want) {
			t.Errorf("%s of %d × %d: %v, want %v", c.spec, c.height, c.width, err, c.want)
		}
	}
}

// A line of pixels would be 256 × 16,777,216 once resized; only what the crop keeps of it is made.
func TestApplyLine(t *testing.T) {
	const width = 1 << 16
	p := &Picture{Height: 1, Width: width, row: func(_ int, dst []byte) {
		for i := range dst {
			dst[i] = byte(i / 3 / 256)
		}
	}}
	spec, err := Parse("imagenet:mean=0,std=1")
	if err != nil {
		t.Fatal(err)
	}
	values := make([]float32, 3*224*224)
	if err := spec.Apply(context.Background(), p, values); err != nil {
		t.Fatal(err)
	}
	// The middle is where pixel 32767, of level 127, ends and the next, of level 128, begins.
	for i, v := range values {
		if want := float32(127+i%224/112) / 255; v != want {
			t.Fatalf("value %d is %v, want %v", i, v, want)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := spec.Apply(ctx, p, values); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	p.limits.MemoryBytes = 1 << 19
	if err := spec.Apply(context.Background(), p, values); !errors.Is(err, ErrLimit) {
		t.Errorf("half a mebibyte: %v, want %v", err, ErrLimit)
	}
}

// FuzzDecode: whatever the bytes, there is a picture or an error of a class.
func FuzzDecode(f *testing.F) {
	files, err := filepath.Glob("testdata/*.*")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range files {
		if ext := filepath.Ext(name); ext == ".json" || ext == ".py" || ext == ".pt2" {
			continue
		}
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
		f.Add(data[:len(data)*2/3])
	}
	spec, err := Parse("imagenet:resize=12,crop=9")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Decode(bytes.NewReader(data), Limits{MemoryBytes: 1 << 20})
		if err != nil {
			if !errors.Is(err, ErrFormat) && !errors.Is(err, ErrUnsupported) && !errors.Is(err, ErrLimit) {
				t.Fatalf("%v has no class", err)
			}
			return
		}
		err = spec.Apply(context.Background(), p, make([]float32, 3*9*9))
		if err != nil && !errors.Is(err, ErrLimit) {
			t.Fatal(err)
		}
	})
}
