package transformers_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/models/internal/zoo"
	"github.com/optimem/optimem/plan"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// A spokenRecord is a model that hears, the files of its folder, and what transformers' pipeline writes of sounds.
type spokenRecord struct {
	Name, Config string
	Files        map[string]string
	State        map[string][]int
	Runs         []struct {
		Samples int
		Text    string
	}
}

// open returns the checkpoint and what its folder says of letters. Weights are those of make_families_speech.py's rule.
func (r *spokenRecord) open(t *testing.T) (*loader.Checkpoint, *generate.Letters) {
	t.Helper()
	filled := make(map[string]zoo.Filled)
	for name, shape := range r.State {
		f := zoo.Filled{DType: "float32", Shape: shape, Kind: "parameter"}
		size := 1
		for _, n := range shape[min(1, len(shape)):] {
			size *= n
		}
		offset, scale := json.Number("0"), json.Number("0.125")
		switch {
		case strings.HasSuffix(name, "bias"):
		case len(shape) == 1:
			offset, scale = "1", "0.25"
		case strings.HasSuffix(name, "original0"):
			offset, scale = "3", "0.5"
		default:
			scale = json.Number(strconv.FormatFloat(math.Sqrt(9/float64(size)), 'g', 3, 64))
		}
		f.Offset, f.Scale = &offset, &scale
		filled[name] = f
	}
	weights, err := zoo.Weights(filled)
	if err != nil {
		t.Fatal(err)
	}
	ckpt, err := loader.NewCheckpoint(r.Name, weights, nil)
	if err != nil {
		t.Fatal(err)
	}
	ckpt.Config = []byte(r.Config)
	folder := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("config.json", r.Config)
	for name, text := range r.Files {
		write(name, text)
	}
	letters, err := generate.OpenLetters(folder)
	if err != nil || letters == nil {
		t.Fatalf("%v, %v", letters, err)
	}
	return ckpt, letters
}

// spokenWAV is the script's sound as a file: samples of 16 bits.
func spokenWAV(n int) []byte {
	b := []byte("RIFF\x00\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\x80\x3e\x00\x00\x00\x7d\x00\x00\x02\x00\x10\x00data")
	b = binary.LittleEndian.AppendUint32(b, uint32(2*n))
	state := 1
	abs := func(x int) int { return max(x, -x) }
	down := func(x, by int) int { return int(math.Floor(float64(x) / float64(by))) } // Python's //
	for i := range n {
		state = (state*1103515245 + 12345) % (1 << 31)
		x := abs(i%64-32)*200 - 3200 + down((abs(i%500-250)*80-10000)*(n-i), n) + (state>>16)%201 - 100
		b = binary.LittleEndian.AppendUint16(b, uint16(int16(x)))
	}
	return b
}

// TestSpoken: of a WAV file a folder's letters and model give the text that transformers' pipeline writes, in any mode
// and with any number of threads.
func TestSpoken(t *testing.T) {
	var list []spokenRecord
	decode := func(r io.Reader) error { return json.NewDecoder(r).Decode(&list) }
	if err := zoo.Unzip(filepath.Join(configFolder, "speech.json.gz"), decode); err != nil {
		t.Fatal(err)
	}
	for _, r := range list {
		ckpt, letters := r.open(t)
		model, err := models.Build(ckpt, models.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, opts := range []optimem.Options{{Mode: plan.Resident, Threads: 2}, {Mode: plan.Page, Threads: 1}} {
			session, err := optimem.Start(t.Context(), model, opts)
			if err != nil {
				t.Fatal(err)
			}
			for _, run := range r.Runs {
				input, heard, err := letters.Sound(bytes.NewReader(spokenWAV(run.Samples)))
				if err != nil || heard.Seconds != float64(run.Samples)/16000 || heard.Read != heard.Seconds {
					t.Fatalf("%v: %v", heard, err)
				}
				out, err := session.Run(t.Context(), optimem.Values{letters.Input: input})
				if err != nil {
					t.Fatal(err)
				}
				if got, err := letters.Text(out[letters.Output]); err != nil || got != run.Text {
					t.Errorf("%s: %q, want %q: %v", r.Name, got, run.Text, err)
				}
			}
			if err := session.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := letters.Text(tensor.Of(make([]float32, 4), 2, 1, 2)); err == nil {
			t.Errorf("%s: letters of two sounds are one text", r.Name)
		}
	}
}
