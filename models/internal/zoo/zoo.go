// Package zoo reads the exported programs of public architectures in models/testdata/zoo, for tests and benchmarks.
// Their weights are not stored: they are a hash of name and index (models/testdata/README.md), which this package
// computes like the script that recorded PyTorch's results. It also reads the recorded classes of torch.nn.
package zoo

import (
	"archive/zip"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/loader/exported"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// A Reference is what PyTorch computed for a model.
type Reference struct {
	Torch       string
	Weights     map[string]Filled
	Cases       []Case
	Unsupported string
	Stats       struct {
		FLOPs       []int64
		WeightBytes int64 `json:"weight_bytes"`
	}
}

// A Filled is a tensor described by how it is filled.
type Filled struct {
	DType  string
	Shape  []int
	Kind   string
	Offset *json.Number
	Scale  *json.Number
	Low    int64
	High   int64
	TiedTo string `json:"tied_to"`
	Data   *string
	Gzip   *string
}

// A Case is one run.
type Case struct {
	Inputs    map[string]Filled
	Outputs   []Output
	State     []Output
	Err64     *float64
	Continues bool
}

// An Output is what a run gave: a sample of its values.
type Output struct {
	Name     string
	CoreName string `json:"core_name"`
	DType    string
	Shape    []int
	MaxAbs   float64 `json:"max_abs"`
	Values   []Number
	Value    any
}

// A Number is a JSON number, or the name of one that JSON lacks.
type Number float64

// UnmarshalJSON reads numbers, "NaN" and the infinities.
func (n *Number) UnmarshalJSON(p []byte) error {
	switch s := strings.Trim(string(p), "\""); s {
	case "NaN":
		*n = Number(math.NaN())
	case "Infinity":
		*n = Number(math.Inf(1))
	case "-Infinity":
		*n = Number(math.Inf(-1))
	default:
		var x float64
		if err := json.Unmarshal(p, &x); err != nil {
			return err
		}
		*n = Number(x)
	}
	return nil
}

// Names returns the models under a folder, "family/name", that have a reference.
func Names(folder string) ([]string, error) {
	archives, err := filepath.Glob(filepath.Join(folder, "*.zip"))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, archive := range archives {
		family := strings.TrimSuffix(filepath.Base(archive), ".zip")
		err := inArchive(archive, func(_ *zip.Reader, c contents) error {
			for _, members := range c {
				for _, m := range members {
					if name, ok := strings.CutSuffix(m.name, ".ref.json"); ok {
						names = append(names, family+"/"+name)
					}
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(names)
	return names, nil
}

// Has reports whether the exporter could make a form of a model: the index says why where it could not.
func Has(folder, name, form string) bool {
	family, file := path.Split(name + "." + form + ".json")
	found := false
	err := inArchive(filepath.Join(folder, path.Clean(family)+".zip"), func(_ *zip.Reader, c contents) error {
		_, _, _, found = c.find(file)
		return nil
	})
	return err == nil && found
}

// contents say which files each record of an archive holds, one after the other.
type contents map[string][]member

// A member is a file in a record.
type member struct {
	name string
	size int64
}

// UnmarshalJSON reads a pair of a name and a size.
func (m *member) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&m.name, &m.size})
}

// find returns the record that holds a file, and where it begins and ends there.
func (c contents) find(file string) (record string, begin, end int64, found bool) {
	for record, members := range c {
		at := int64(0)
		for _, m := range members {
			if m.name == file {
				return record, at, at + m.size, true
			}
			at += m.size
		}
	}
	return "", 0, 0, false
}

// inArchive opens a family's archive. The files of models that are named alike are in one record, compressed with
// Zstandard: testdata/zoo_archive.py says why.
func inArchive(archive string, use func(*zip.Reader, contents) error) error {
	z, err := zip.OpenReader(archive)
	if err != nil {
		return err
	}
	defer z.Close()
	f, err := z.Open("contents.json")
	if err != nil {
		return fmt.Errorf("%s: %w", archive, err)
	}
	defer f.Close()
	var c contents
	if err := json.NewDecoder(f).Decode(&c); err != nil {
		return fmt.Errorf("%s: contents.json: %w", archive, err)
	}
	return use(&z.Reader, c)
}

// record reads "family/NAME.form" from the archive of the family.
func record(folder, name string, read func(io.Reader) error) error {
	family, file := path.Split(name + ".json")
	return inArchive(filepath.Join(folder, path.Clean(family)+".zip"), func(z *zip.Reader, c contents) error {
		in, begin, end, found := c.find(file)
		if !found {
			return fmt.Errorf("%s: %w", name, fs.ErrNotExist)
		}
		f, err := z.Open(in)
		if err != nil {
			return err
		}
		defer f.Close()
		r, err := zstd.NewReader(f, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
		if err != nil {
			return err
		}
		defer r.Close()
		if _, err := io.CopyN(io.Discard, r, begin); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := read(io.LimitReader(r, end-begin)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	})
}

// Load reads a model in one of its forms, "aten" or "core".
func Load(folder, name, form string) (*loader.Checkpoint, *Reference, error) {
	ref := &Reference{}
	if err := record(folder, name+".ref", func(r io.Reader) error {
		return json.NewDecoder(r).Decode(ref)
	}); err != nil {
		return nil, nil, err
	}
	var program *exported.Program
	if err := record(folder, name+"."+form, func(r io.Reader) (err error) {
		program, err = exported.Decode(r, exported.Options{})
		return err
	}); err != nil {
		return nil, nil, err
	}
	weights, err := Weights(ref.Weights)
	if err != nil {
		return nil, nil, err
	}
	ckpt, err := loader.NewCheckpoint(name+"."+form, weights, &loader.Program{Exported: program})
	return ckpt, ref, err
}

// Weights returns tensors that are filled as described, by their paths and in their order. Tied ones share an extent.
func Weights(filled map[string]Filled) ([]tensor.Weight, error) {
	weights := make([]tensor.Weight, 0, len(filled))
	sources := make(map[string]storage.Extent)
	for _, path := range slices.Sorted(maps.Keys(filled)) {
		f := filled[path]
		owner, of := path, f
		for of.TiedTo != "" {
			owner = of.TiedTo
			of = filled[owner]
		}
		dtype, ok := tensor.ParseDType(f.DType)
		if !ok {
			return nil, fmt.Errorf("%s: dtype %q", path, f.DType)
		}
		e, known := sources[owner]
		if !known {
			src, err := of.source(owner)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			e = storage.Extent{Source: src, Bytes: src.Size()}
			sources[owner] = e
		}
		weights = append(weights, tensor.Weight{Name: path, DType: dtype, Layout: tensor.Contiguous(f.Shape...),
			Extent: e})
	}
	return weights, nil
}

// Unzip reads a file that is compressed with gzip.
func Unzip(path string, read func(io.Reader) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	r, err := gzip.NewReader(f)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := read(r); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// Tensor returns the contents of an input.
func (f Filled) Tensor(name string) (*tensor.Tensor, error) {
	dtype, ok := tensor.ParseDType(f.DType)
	if !ok {
		return nil, fmt.Errorf("dtype %q", f.DType)
	}
	src, err := f.source("input:" + name)
	if err != nil {
		return nil, err
	}
	data := make([]byte, src.Size())
	if err := src.ReadAt(context.Background(), data, 0); err != nil {
		return nil, err
	}
	return &tensor.Tensor{DType: dtype, Layout: tensor.Contiguous(f.Shape...), Data: data}, nil
}

// source returns the bytes of a tensor filled under the given name.
func (f Filled) source(name string) (storage.Source, error) {
	dtype, ok := tensor.ParseDType(f.DType)
	if !ok {
		return nil, fmt.Errorf("dtype %q", f.DType)
	}
	if f.Data != nil || f.Gzip != nil {
		return f.literal()
	}
	n, err := tensor.Shape(f.Shape).NumElements()
	if err != nil {
		return nil, err
	}
	h := &hashed{dtype: dtype, n: n, key: Key(name), low: f.Low, high: f.High}
	for _, p := range []struct {
		from *json.Number
		to   *float32
	}{{f.Offset, &h.offset}, {f.Scale, &h.scale}} {
		if p.from == nil {
			continue
		}
		x, err := p.from.Float64()
		if err != nil {
			return nil, err
		}
		*p.to = float32(x)
	}
	return h, nil
}

func (f Filled) literal() (storage.Source, error) {
	text := f.Data
	if text == nil {
		text = f.Gzip
	}
	p, err := base64.StdEncoding.DecodeString(*text)
	if err != nil || f.Gzip == nil {
		return &bytesSource{p}, err
	}
	r, err := gzip.NewReader(strings.NewReader(string(p)))
	if err != nil {
		return nil, err
	}
	p, err = io.ReadAll(r)
	return &bytesSource{p}, err
}

// A bytesSource is a pointer so that extents over it can be compared.
type bytesSource struct{ data []byte }

func (s *bytesSource) Size() int64 { return int64(len(s.data)) }

func (s *bytesSource) ReadAt(_ context.Context, p []byte, off int64) error {
	if copy(p, s.data[off:]) < len(p) {
		return io.ErrUnexpectedEOF
	}
	return nil
}

// Key is FNV-1a of a name.
func Key(name string) uint64 {
	h := fnv.New64a()
	io.WriteString(h, name)
	return h.Sum64()
}

// hash is the number of an element.
func hash(key uint64, i int64) uint64 {
	z := key + uint64(i+1)*0x9E3779B97F4A7C15
	z ^= z >> 30
	z *= 0xBF58476D1CE4E5B9
	z ^= z >> 27
	z *= 0x94D049BB133111EB
	return z ^ z>>31
}

// A hashed source holds numbers that come from a hash.
type hashed struct {
	dtype         tensor.DType
	n             int64
	key           uint64
	offset, scale float32
	low, high     int64
}

func (h *hashed) Size() int64 { return h.n * int64(h.dtype.Size()) }

// ReadAt computes whole elements: reads of weights begin and end at one.
func (h *hashed) ReadAt(_ context.Context, p []byte, off int64) error {
	size := int64(h.dtype.Size())
	if off%size != 0 || int64(len(p))%size != 0 || off+int64(len(p)) > h.Size() {
		return io.ErrUnexpectedEOF
	}
	for i := range int64(len(p)) / size {
		h.put(p[i*size:], off/size+i)
	}
	return nil
}

func (h *hashed) put(p []byte, i int64) {
	bits := hash(h.key, i)
	le := binary.LittleEndian
	u := (float64(bits>>40) - 1<<23) / (1 << 23)
	x := float64(h.offset) + u*float64(h.scale)
	n := h.low + int64(((bits>>32)*uint64(h.high-h.low))>>32)
	switch h.dtype {
	case tensor.Float32:
		le.PutUint32(p, math.Float32bits(float32(x)))
	case tensor.Float64:
		le.PutUint64(p, math.Float64bits(x))
	case tensor.Float16:
		le.PutUint16(p, tensor.Float16FromFloat32(float32(x)))
	case tensor.BFloat16:
		le.PutUint16(p, tensor.BFloat16FromFloat32(float32(x)))
	default:
		for k := range h.dtype.Size() {
			p[k] = byte(n >> (8 * k))
		}
	}
}
