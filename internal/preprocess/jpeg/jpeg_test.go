package jpeg

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// A recorded picture is what Pillow makes of a file; testdata/make_jpegs.py says how it is sampled.
type recorded struct {
	File          string
	Height, Width int
	SHA256        string
	Levels        []int
}

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func levels(m *Image) []byte {
	all := make([]byte, 3*m.Height*m.Width)
	for y := range m.Height {
		m.Row(y, all[3*m.Width*y:][:3*m.Width])
	}
	return all
}

// TestRecorded compares all levels with Pillow's: the same, however the file comes in.
func TestRecorded(t *testing.T) {
	var all []recorded
	if err := json.Unmarshal(readFile(t, "expected.json"), &all); err != nil {
		t.Fatal(err)
	}
	if len(all) < 50 {
		t.Fatalf("only %d recorded pictures", len(all))
	}
	for _, want := range all {
		t.Run(want.File, func(t *testing.T) {
			data := readFile(t, want.File)
			for _, r := range []io.Reader{bytes.NewReader(data), iotest.OneByteReader(bytes.NewReader(data))} {
				m, err := Decode(r, 1<<20)
				if err != nil {
					t.Fatal(err)
				}
				if m.Height != want.Height || m.Width != want.Width {
					t.Fatalf("%d × %d pixels, want %d × %d", m.Height, m.Width, want.Height, want.Width)
				}
				got := levels(m)
				sum := sha256.Sum256(got)
				if hex.EncodeToString(sum[:]) == want.SHA256 {
					continue
				}
				for i, level := range want.Levels {
					at := i * 2654435761 % len(got)
					if int(got[at]) != level {
						t.Errorf("level %d is %d, want %d", at, got[at], level)
					}
				}
				t.Error("levels differ from Pillow's")
			}
		})
	}
}

// TestTruncated: without its end a picture is an error, wherever it stops.
func TestTruncated(t *testing.T) {
	for _, name := range []string{
		"baseline_420_restarts.jpg", "progressive_422.jpg", "gray.jpg", "scans_440.jpg", "cmyk.jpg",
	} {
		data := readFile(t, name)
		step := 1
		if testing.Short() {
			step = 7
		}
		for n := 0; n < len(data); n += step {
			if _, err := Decode(bytes.NewReader(data[:n]), 1<<20); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%d of %d bytes of %s: %v, want %v", n, len(data), name, err, io.ErrUnexpectedEOF)
			}
		}
	}
}

var errDisk = errors.New("the disk is broken")

func TestReadError(t *testing.T) {
	data := readFile(t, "progressive_420.jpg")
	for _, n := range []int{1, 30, len(data) / 2, len(data) - 1} {
		r := io.MultiReader(bytes.NewReader(data[:n]), iotest.ErrReader(errDisk))
		if _, err := Decode(r, 1<<20); !errors.Is(err, errDisk) {
			t.Errorf("after %d bytes: %v, want %v", n, err, errDisk)
		}
	}
}

// changed returns a picture in which what follows the first mark is replaced, from an offset on.
func changed(data []byte, mark string, offset int, to string) []byte {
	data = slices.Clone(data)
	at := bytes.Index(data, []byte(mark))
	if at < 0 {
		panic("BUG: no such mark")
	}
	copy(data[at+offset:], to)
	return data
}

// without returns a picture without the first segment of a kind.
func without(data []byte, mark string) []byte {
	at := bytes.Index(data, []byte(mark))
	length := int(data[at+2])<<8 + int(data[at+3])
	return slices.Delete(slices.Clone(data), at, at+2+length)
}

// insert puts something before the first mark.
func insert(data []byte, mark, what string) []byte {
	return slices.Insert(slices.Clone(data), bytes.Index(data, []byte(mark)), []byte(what)...)
}

func TestDecodeRefuses(t *testing.T) {
	const (
		sof, sofProgressive = "\xff\xc0\x00\x11", "\xff\xc2\x00\x11"
		sos, dht, dqt, eoi  = "\xff\xda", "\xff\xc4", "\xff\xdb", "\xff\xd9"
	)
	plain, progressive := readFile(t, "baseline_444.jpg"), readFile(t, "progressive_444.jpg")
	restarts, scans := readFile(t, "baseline_444_restarts.jpg"), readFile(t, "scans_440.jpg")
	gray := readFile(t, "gray.jpg")
	first := bytes.Index(progressive, []byte(sos))
	second := first + 1 + bytes.Index(progressive[first+1:], []byte(sos))
	const format, unsupported, limit = "FormatError", "UnsupportedError", "LimitError"
	for _, c := range []struct {
		name string
		data []byte
		want string
	}{
		{"no JPEG", []byte("GIF89a"), format},
		{"no picture", []byte("\xff\xd8\xff\xd9"), format},
		{"no scan", insert(plain, sos, eoi), format},
		{"a second SOI", insert(plain, sos, "\xff\xd8"), format},
		{"no frame", without(plain, sof), format},
		{"two frames", insert(plain, sos, sof+"\x08\x00\x01\x00\x01\x03\x01\x11\x00\x02\x11\x00\x03\x11\x00"), format},
		{"no quantisation", without(without(plain, dqt), dqt), format},
		{"progressive without codes", without(without(progressive, dht), dht), format},
		{"a short segment", insert(plain, sos, "\xff\xe1\x00\x01"), format},
		{"a restart interval of one byte", insert(plain, sos, "\xff\xdd\x00\x03\x01"), format},
		{"a quantisation table of 24 bits", changed(plain, dqt, 4, "\x20"), format},
		{"half a quantisation table", insert(plain, sos, "\xff\xdb\x00\x05\x00\x01\x01"), format},
		{"a table of codes that are all ones", changed(plain, dht, 5, "\x02\x00"), format},
		{"a table of more symbols than there are", changed(plain, dht, 5, "\xff\xff"), format},
		{"a table of size 16", changed(plain, dht, 21, "\x10"), format},
		{"no columns", changed(plain, sof, 7, "\x00\x00"), format},
		{"no sampling", changed(plain, sof, 11, "\x10"), format},
		{"a sampling of five", changed(plain, sof, 11, "\x51"), format},
		{"a fourth component of three", changed(plain, sof, 9, "\x04"), format},
		{"a scan of another component", changed(plain, sos, 5, "\x09"), format},
		{"a scan of one component twice", changed(plain, sos, 7, "\x01"), format},
		{"a scan of another table", changed(plain, sos, 6, "\x33"), format},
		{"eleven blocks to interleave", changed(plain, sof, 11, "\x33"), format},
		{"two scans of a component", changed(scans, sos, 5, "\x02"), format},
		{"a missing scan", insert(scans, sos+"\x00\x08\x01\x03", eoi), format},
		{"data that end early", append(slices.Clone(plain[:len(plain)-100]), eoi...), format},
		{"data that begin otherwise", changed(plain, sos, 14, strings.Repeat("\xfe", 80)), format},
		{"another restart", changed(restarts, "\xff\xd1", 0, "\xff\xd5"), format},
		{"no restarts", changed(plain, "\xff\xe0", 0, "\xff\xdd\x00\x04\x00\x01\xff\xe5\x00\x0a"), format},
		{"progressive, both first and other coefficients", changed(progressive, sos, 12, "\x05"), format},
		{"progressive, a bit that is skipped", changed(progressive, sos, 13, "\x30"), format},
		{"progressive, no first coefficients", slices.Delete(slices.Clone(progressive), first, second), format},
		{"progressive, the first scan alone", append(slices.Clone(progressive[:second]), eoi...), unsupported},
		{"12 bits", changed(plain, sof, 4, "\x0c"), unsupported},
		{"the height comes later", changed(plain, sof, 5, "\x00\x00"), unsupported},
		{"lossless", changed(plain, sof, 0, "\xff\xc3"), unsupported},
		{"arithmetic coding", changed(plain, sof, 0, "\xff\xc9"), unsupported},
		{"two components", insert(without(gray, "\xff\xc0"), sos,
			"\xff\xc0\x00\x0e\x08\x00\x01\x00\x01\x02\x01\x11\x00\x02\x11\x00"), unsupported},
		{"samplings of 3 and 2", changed(plain, sof, 11, "\x31\x00\x02\x21"), unsupported},
		{"large", changed(plain, sof, 5, "\xff\xff\xff\xff"), limit},
		{"progressive, large with coefficients", changed(progressive, sofProgressive, 5, "\x01\x80\x02\x00"),
			limit},
		{"many scans", insert(progressive, eoi, strings.Repeat(string(progressive[first:second]), maxScans)), limit},
	} {
		_, err := Decode(bytes.NewReader(c.data), 1<<20)
		if class := strings.TrimPrefix(fmt.Sprintf("%T", err), "jpeg."); class != c.want {
			t.Errorf("%s: %v (%s), want a %s", c.name, err, class, c.want)
		}
	}
}

// TestLimit: what is allowed is what samples and coefficients take.
func TestLimit(t *testing.T) {
	// 37 × 51 pixels are 3 × 4 units of 16 × 16 pixels, each of them 4 + 1 + 1 blocks.
	const samples = 3 * 4 * 6 * 64
	for _, c := range []struct {
		name      string
		needBytes int64
	}{
		{"baseline_420.jpg", samples},
		{"progressive_420.jpg", samples + 2*samples},
	} {
		data := readFile(t, c.name)
		if _, err := Decode(bytes.NewReader(data), c.needBytes); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		var large LimitError
		if _, err := Decode(bytes.NewReader(data), c.needBytes-1); !errors.As(err, &large) {
			t.Errorf("%s: %v, want a LimitError", c.name, err)
		}
	}
}

// FuzzDecode: whatever the bytes, there is a picture or an error of a class.
func FuzzDecode(f *testing.F) {
	files, err := filepath.Glob("testdata/*.jpg")
	if err != nil || len(files) == 0 {
		f.Fatal(err, len(files))
	}
	for _, name := range files {
		f.Add(readFile(f, filepath.Base(name)))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Decode(bytes.NewReader(data), 1<<20)
		if err == nil {
			levels(m)
			return
		}
		var (
			format      FormatError
			unsupported UnsupportedError
			limit       LimitError
		)
		if !errors.As(err, &format) && !errors.As(err, &unsupported) && !errors.As(err, &limit) &&
			!errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("%v has no class", err)
		}
	})
}
