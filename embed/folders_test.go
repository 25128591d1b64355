package embed_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/optimem/optimem/embed"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// A recordedFolder is one of testdata/folders.json.gz, which testdata/record.py made.
type recordedFolder struct {
	Name     string
	Files    map[string]string
	Weights  map[string]map[string][2]json.RawMessage
	Requests []struct {
		Options map[string]any
		Dim     int
		Norms   []float64
		Samples [][]float64
	}
}

type recordedFolders struct {
	Texts   []string
	Folders []recordedFolder
}

var recorded = sync.OnceValues(func() (*recordedFolders, error) {
	packed, err := os.ReadFile("testdata/folders.json.gz")
	if err != nil {
		return nil, err
	}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	all := new(recordedFolders)
	return all, json.NewDecoder(r).Decode(all)
})

func folders(t testing.TB) *recordedFolders {
	t.Helper()
	all, err := recorded()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// named returns a recorded folder.
func named(t testing.TB, name string) *recordedFolder {
	t.Helper()
	all := folders(t).Folders
	i := slices.IndexFunc(all, func(r recordedFolder) bool { return r.Name == name })
	if i < 0 {
		t.Fatalf("no folder %s", name)
	}
	return &all[i]
}

// unpack writes the folder, and returns where.
func (r *recordedFolder) unpack(t testing.TB) string {
	t.Helper()
	folder := t.TempDir()
	for file, text := range r.Files {
		put(t, filepath.Join(folder, file), []byte(text))
	}
	for file, tensors := range r.Weights {
		var data []loader.TensorData
		for name, said := range tensors {
			var dtype string
			var shape []int
			if json.Unmarshal(said[0], &dtype) != nil || json.Unmarshal(said[1], &shape) != nil {
				t.Fatalf("%s: %s", file, name)
			}
			d, raw := tensor.Float32, floats(name, shape)
			if name == "mapping" {
				d, raw = tensor.Int64, nil
				for i := range shape[0] {
					raw = binary.NativeEndian.AppendUint64(raw, uint64(i*7%40))
				}
			} else if dtype != "F32" {
				t.Fatalf("%s: %s is %s", file, name, dtype)
			}
			data = append(data, loader.TensorData{
				Name: name, DType: d, Shape: shape,
				ReadAt: func(_ context.Context, p []byte, off int64) error { copy(p, raw[off:]); return nil },
			})
		}
		var b bytes.Buffer
		if err := loader.WriteSafetensors(t.Context(), &b, data, nil); err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(folder, file), b.Bytes())
	}
	return folder
}

func put(t testing.TB, path string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// floats are the elements that record.py gives a weight.
func floats(name string, shape []int) []byte {
	n := 1
	for _, d := range shape {
		n *= d
	}
	sum := sha256.Sum256([]byte(name))
	seed := binary.LittleEndian.Uint64(sum[:])
	var raw []byte
	for i := range n {
		x := seed + uint64(i+1)*0x9E3779B97F4A7C15
		x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
		x = (x ^ x>>27) * 0x94D049BB133111EB
		x ^= x >> 31
		v := float32(x>>40)/(1<<23) - 1
		switch {
		case len(shape) == 1 && strings.Contains(name, "weight"):
			v = 1 + v*0.25
		case len(shape) == 1:
			v *= 0.25
		default:
			v *= 0.5
		}
		raw = binary.NativeEndian.AppendUint32(raw, math.Float32bits(v))
	}
	return raw
}

// start returns an embedder of a folder that was unpacked.
func start(t testing.TB, folder string, opts embed.Options) (*embed.Folder, *embed.Embedder) {
	t.Helper()
	f, err := embed.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	e, err := startOpen(t, f, opts)
	if err != nil {
		t.Fatal(err)
	}
	return f, e
}

func startOpen(t testing.TB, f *embed.Folder, opts embed.Options) (*embed.Embedder, error) {
	t.Helper()
	var model *models.Model
	if path := f.Checkpoint(); path != "" {
		ckpt, err := loader.Open(path)
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { _ = ckpt.Close() })
		if model, err = models.Build(ckpt, models.Options{Arch: f.Class()}); err != nil {
			return nil, err
		}
	}
	e, err := embed.New(t.Context(), f, model, opts)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = e.Close() })
	return e, nil
}

func vectors(t testing.TB, e *embed.Embedder, prompt string, texts ...string) *embed.Result {
	t.Helper()
	r, err := e.Embed(t.Context(), embed.Request{Texts: texts, Prompt: prompt})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// prompt is what a recorded request asks to go before texts.
func prompt(t testing.TB, f *embed.Folder, options map[string]any) string {
	t.Helper()
	if text, ok := options["prompt"].(string); ok {
		return text
	}
	name, _ := options["prompt_name"].(string)
	text, err := f.Prompt(name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestVectors: the vectors of every folder are those that Python's library gives, for each recorded option.
func TestVectors(t *testing.T) {
	all := folders(t)
	for i := range all.Folders {
		r := &all.Folders[i]
		t.Run(r.Name, func(t *testing.T) {
			folder := r.unpack(t)
			for _, want := range r.Requests {
				opts := embed.Options{Session: runtime.Options{Threads: 1}}
				if dim, ok := want.Options["truncate_dim"].(float64); ok {
					opts.Dim = int(dim)
				}
				opts.Normalize, _ = want.Options["normalize_embeddings"].(bool)
				f, e := start(t, folder, opts)
				got := vectors(t, e, prompt(t, f, want.Options), all.Texts...)
				if got.Dim != want.Dim || e.Dim() != want.Dim {
					t.Fatalf("%v: %d and %d numbers, want %d", want.Options, got.Dim, e.Dim(), want.Dim)
				}
				for k := range all.Texts {
					near(t, got.Vector(k), want.Norms[k], want.Samples[k])
				}
			}
		})
	}
}

// near compares a vector with its recorded norm and samples, to a hundred thousandth of the norm.
func near(t *testing.T, got []float32, norm float64, samples []float64) {
	t.Helper()
	sum := 0.0
	for _, x := range got {
		sum += float64(x) * float64(x)
	}
	tolerance := 1e-5 * max(norm, 1)
	if !(math.Abs(math.Sqrt(sum)-norm) <= tolerance) {
		t.Errorf("the norm is %v, want %v", math.Sqrt(sum), norm)
	}
	for i, want := range samples {
		if at := i * len(got) / len(samples); !(math.Abs(float64(got[at])-want) <= tolerance) {
			t.Errorf("number %d is %v, want %v", at, got[at], want)
		}
	}
}

// TestSameBits: a text's vector is the same bits alone and beside others, in another order, in every mode, with a budget that
// has to be paged for, on a device with memory of its own, and with another number of threads.
func TestSameBits(t *testing.T) {
	all := folders(t)
	var texts []string
	rounds := 5
	if testing.Short() {
		rounds = 2
	}
	for i := range rounds {
		for k, text := range all.Texts {
			texts = append(texts, strings.Repeat(text+" ", 1+(i+k)%3))
		}
	}
	back := slices.Clone(texts)
	slices.Reverse(back)
	for i := range all.Folders {
		r := &all.Folders[i]
		t.Run(r.Name, func(t *testing.T) {
			folder := r.unpack(t)
			f, e := start(t, folder, embed.Options{Session: runtime.Options{Threads: 1}})
			p := prompt(t, f, nil)
			want := vectors(t, e, p, texts...)
			same := func(what string, e *embed.Embedder) {
				got := vectors(t, e, p, back...)
				for k := range texts {
					if !slices.Equal(got.Vector(len(texts)-1-k), want.Vector(k)) {
						t.Fatalf("%s: text %d: %v, want %v", what, k, got.Vector(len(texts) - 1 - k)[:3], want.Vector(k)[:3])
					}
				}
			}
			same("in another order", e)
			for k, text := range texts {
				if alone := vectors(t, e, p, text); !slices.Equal(alone.Data, want.Vector(k)) {
					t.Fatalf("text %d alone: %v, want %v", k, alone.Data[:3], want.Vector(k)[:3])
				}
			}
			if f.Checkpoint() == "" {
				return
			}
			for what, session := range map[string]runtime.Options{
				"resident, three threads":  {Mode: "resident", Threads: 3},
				"paged":                    {Mode: "page", Memory: 3 << 20, Threads: 1, MicroBatch: 3},
				"in chunks":                {Mode: "chunk", Device: "emu:memory=4MiB,bandwidth=12GB/s", Threads: 1},
				"on a device of little":    {Device: "emu:memory=3MiB,bandwidth=12GB/s", Threads: 2},
				"a row after the other":    {Threads: 1, MicroBatch: 1},
				"in micro-batches of five": {Threads: 2, MicroBatch: 5},
			} {
				if testing.Short() && session.Mode == "" {
					continue
				}
				_, e := start(t, folder, embed.Options{Session: session})
				same(what, e)
				if moved := e.Session().Metrics().MovedBytes; session.Mode == "page" && moved == 0 {
					t.Errorf("%s: nothing was brought", what)
				}
			}
		})
	}
}
