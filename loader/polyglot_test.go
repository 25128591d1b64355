package loader

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
)

// A touchedSource counts how often each byte is read.
type touchedSource struct {
	bytesSource
	reads []int
}

func (s *touchedSource) ReadAt(ctx context.Context, p []byte, off int64) error {
	for i := range p {
		s.reads[off+int64(i)]++
	}
	return s.bytesSource.ReadAt(ctx, p, off)
}

// TestPolyglotReadsNoWeight opens safetensors files whose header's length begins with every byte, so that the length
// reads as every kind of opcode, and holds it to reading the header alone.
func TestPolyglotReadsNoWeight(t *testing.T) {
	for first := range 256 {
		if strings.ContainsRune("FILPSVcgip", rune(first)) {
			continue // the argument is a line, whose end is looked for
		}
		size := 0x300 + first
		text := fmt.Sprintf(`{"weight":{"dtype":"U8","shape":[9000],"data_offsets":[0,9000]}%s}`, "%s")
		text = fmt.Sprintf(text, strings.Repeat(" ", size-len(text)+2))
		file := binary.LittleEndian.AppendUint64(nil, uint64(len(text)))
		file = append(append(file, text...), bytes.Repeat([]byte{'N'}, 9000)...)
		src := &touchedSource{bytesSource: file, reads: make([]int, len(file))}
		o := newOpener(t.Context(), "x", Options{})
		if err := o.openSource(&Checkpoint{}, src); err != nil {
			t.Fatalf("header of %#x bytes: %v", size, err)
		}
		for i, n := range src.reads[8+size:] {
			if n > 0 {
				t.Fatalf("header of %#x bytes: byte %d of the weights was read", size, i)
			}
		}
	}
}

// TestPolyglotSkips runs on over a string that is larger than what the meter would allow.
func TestPolyglotSkips(t *testing.T) {
	const skipped = 5 << 20
	file := binary.LittleEndian.AppendUint32([]byte("T"), skipped)
	file = append(file, make([]byte, skipped)...)
	begin := len(file)
	file = append(file, "cos\nsystem\n0N."...)
	src := &touchedSource{bytesSource: file, reads: make([]int, len(file))}
	err := newOpener(t.Context(), "x", Options{}).openSource(&Checkpoint{}, src)
	want := fmt.Sprintf("the file is a pickle as well: refused global os.system (at byte %d)", begin)
	if err == nil || !strings.Contains(err.Error(), want) || Class(err) != ErrUnsafe {
		t.Errorf("got %v; want %s", err, want)
	}
	for i, n := range src.reads[1024:begin] {
		if n > 0 {
			t.Fatalf("byte %d of the string was read", i+1024)
		}
	}
}

// TestPolyglotLimits: what goes on as a pickle beyond the limits has not shown that it is none.
func TestPolyglotLimits(t *testing.T) {
	deep := "K\x010" + strings.Repeat("(", 300)
	err := newOpener(t.Context(), "x", Options{}).openSource(&Checkpoint{}, bytesSource(deep))
	if Class(err) != ErrUnsafe || !strings.Contains(err.Error(), "nested deeper than 200") {
		t.Error(err)
	}
}
