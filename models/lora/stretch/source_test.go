package stretch

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/optimem/optimem/internal/hostmem"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// held is a source of bytes that counts what is read of it, and may fail.
type held struct {
	data  []byte
	bytes atomic.Int64
	most  atomic.Int64
	fail  atomic.Pointer[error]
}

func (h *held) Size() int64 { return int64(len(h.data)) }

func (h *held) ReadAt(ctx context.Context, p []byte, off int64) error {
	if err := h.fail.Load(); err != nil {
		return *err
	}
	h.bytes.Add(int64(len(p)))
	for n := hostmem.InUse(hostmem.Workspace); ; {
		if most := h.most.Load(); n <= most || h.most.CompareAndSwap(most, n) {
			break
		}
	}
	copy(p, h.data[off:])
	return ctx.Err()
}

// bulk is held for reads of aligned bytes.
type bulk struct{ *held }

func (b bulk) ReadBulk(ctx context.Context, p []byte, off int64) error {
	if off%storage.AlignBytes != 0 || len(p)%storage.AlignBytes != 0 {
		return fmt.Errorf("%d bytes at %d", len(p), off)
	}
	return b.ReadAt(ctx, p[:min(len(p), len(b.data)-int(off))], off)
}

// matrix returns a weight of some numbers at an odd offset of a source, and the numbers as it has them.
func matrix(r *rand.Rand, name string, dtype tensor.DType, in func(*held) storage.Source, shape ...int) (tensor.Weight, []float64, *held) {
	const skip = 4099
	n := 1
	for _, size := range shape {
		n *= size
	}
	h, values := &held{data: make([]byte, skip)}, make([]float64, n)
	for i := range values {
		v := float32(r.NormFloat64())
		if name == "strength" {
			v = max(v, -v)
		}
		switch dtype {
		case tensor.Float32:
			h.data = binary.LittleEndian.AppendUint32(h.data, math.Float32bits(v))
		case tensor.Float16:
			bits := tensor.Float16FromFloat32(v)
			h.data, v = binary.LittleEndian.AppendUint16(h.data, bits), tensor.Float16ToFloat32(bits)
		default:
			bits := tensor.BFloat16FromFloat32(v)
			h.data, v = binary.LittleEndian.AppendUint16(h.data, bits), tensor.BFloat16ToFloat32(bits)
		}
		values[i] = float64(v)
	}
	return tensor.Weight{
		Name: name, DType: dtype, Layout: tensor.Contiguous(shape...),
		Extent: storage.Extent{Source: in(h), Offset: skip, Bytes: int64(len(h.data) - skip)},
	}, values, h
}

// A sample has the parts of a module, what its factors are, and the sources of the parts.
type sample struct {
	Parts
	want    []float64
	sources []*held
}

func newSample(seed uint64, dtype tensor.DType, turned, past bool, outputs, inputs, rank int) *sample {
	r := rand.New(rand.NewPCG(seed, 1))
	in := func(h *held) storage.Source {
		if past {
			return bulk{h}
		}
		return h
	}
	s := &sample{Parts: Parts{Turned: turned, Scale: 0.75}, want: make([]float64, outputs)}
	add := func(name string, shape ...int) (tensor.Weight, []float64) {
		w, values, h := matrix(r, name, dtype, in, shape...)
		s.sources = append(s.sources, h)
		return w, values
	}
	var w, a, b, m []float64
	at := func(o, i int) float64 { return w[o*inputs+i] }
	if s.Weight, w = add("weight", outputs, inputs); turned {
		s.Weight.Layout = tensor.Contiguous(inputs, outputs)
		at = func(o, i int) float64 { return w[i*outputs+o] }
	}
	s.Down, a = add("down", rank, inputs)
	s.Up, b = add("up", outputs, rank)
	s.Strength, m = add("strength", outputs)
	for o := range outputs {
		square := 0.0
		for i := range inputs {
			v := at(o, i)
			for k := range rank {
				v += s.Scale * b[o*rank+k] * a[k*inputs+i]
			}
			square += v * v
		}
		s.want[o] = m[o] / math.Sqrt(square)
	}
	return s
}

func (s *sample) added(t *testing.T, store *Store) *Source {
	t.Helper()
	source, ok := store.Add(s.Parts)
	if !ok {
		t.Fatal("not taken")
	}
	return source
}

// read returns all factors of a source.
func read(t *testing.T, s *Source) []float32 {
	t.Helper()
	raw := make([]byte, s.Size())
	if err := s.ReadAt(t.Context(), raw, 0); err != nil {
		t.Fatal(err)
	}
	factors := make([]float32, len(raw)/4)
	for i := range factors {
		factors[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return factors
}

// TestFactors: the factors are those of W + scale·B·A computed in float64, of all dtypes and both ways round, for sizes
// that no vector divides and for rows that take several reads.
func TestFactors(t *testing.T) {
	for _, size := range [][3]int{{53, 37, 5}, {8, 64, 4}, {1, 1, 1}, {3, 5, 9}, {70, 4000, 17}, {600, 300, 2}, {2, 90000, 1}} {
		for _, dtype := range []tensor.DType{tensor.Float32, tensor.Float16, tensor.BFloat16} {
			for _, turned := range []bool{false, true} {
				for _, past := range []bool{false, true} {
					s := newSample(uint64(size[0]), dtype, turned, past, size[0], size[1], size[2])
					for i, got := range read(t, s.added(t, NewStore())) {
						if far := math.Abs(float64(got)-s.want[i]) / s.want[i]; !(far < 2e-5) {
							t.Fatalf("%v %v, turned %t, past %t: factor %d is %v, want %v", size, dtype, turned, past, i, got, s.want[i])
						}
					}
				}
			}
		}
	}
}

// TestComputedOnce: however many read, and whichever parts, every byte of a weight is read once, and all get the same
// bits.
func TestComputedOnce(t *testing.T) { synctest.Test(t, computedOnce) }

func computedOnce(t *testing.T) {
	s := newSample(1, tensor.BFloat16, false, false, 60, 3000, 4)
	source := s.added(t, NewStore())
	var wait sync.WaitGroup
	var all [8][]float32
	source.store.token <- struct{}{} // until all of them wait
	for i := range all {
		wait.Go(func() { all[i] = read(t, source) })
	}
	synctest.Wait()
	<-source.store.token
	wait.Wait()
	part := make([]byte, 8)
	if err := source.ReadAt(t.Context(), part, 20); err != nil {
		t.Fatal(err)
	}
	for i := range all {
		for k := range all[i] {
			if all[i][k] != all[0][k] {
				t.Fatalf("reader %d got %v, reader 0 %v", i, all[i][k], all[0][k])
			}
		}
	}
	if got := binary.LittleEndian.Uint32(part); got != math.Float32bits(all[0][5]) {
		t.Errorf("a part has %x, want %x", got, math.Float32bits(all[0][5]))
	}
	for i, h := range s.sources {
		if n := h.bytes.Load(); n != h.Size()-4099 {
			t.Errorf("source %d: %d bytes were read, of %d", i, n, h.Size()-4099)
		}
	}
	if err := source.ReadAt(t.Context(), make([]byte, 8), source.Size()-4); err == nil {
		t.Error("bytes behind the end were read")
	}
}

// TestBytes: computing takes what the store says to the byte, one source at a time, and nothing stays but the factors.
func TestBytes(t *testing.T) {
	store, before := NewStore(), hostmem.InUse(hostmem.Workspace)
	var sources []*Source
	var samples []*sample
	kept, most := int64(0), int64(0)
	for i, size := range [][3]int{{53, 37, 5}, {70, 4000, 17}, {31, 20, 1}} {
		s := newSample(uint64(i), tensor.Float32, i == 2, true, size[0], size[1], size[2])
		samples, sources = append(samples, s), append(sources, s.added(t, store))
		kept += 4 * int64(size[0])
	}
	var wait sync.WaitGroup
	for _, s := range sources {
		wait.Go(func() { read(t, s) })
	}
	wait.Wait()
	for _, s := range samples {
		for _, h := range s.sources {
			most = max(most, h.most.Load())
		}
	}
	if got := kept + most - before; got != store.Bytes() {
		t.Errorf("%d bytes were taken, %d said", got, store.Bytes())
	}
	if after := hostmem.InUse(hostmem.Workspace); after != before {
		t.Errorf("%d bytes stay", after-before)
	}
}

// TestFails: a read that fails or is cancelled leaves the computing to the next one.
func TestFails(t *testing.T) {
	for part := range 4 {
		s := newSample(3, tensor.Float16, false, true, 20, 40, 3)
		source := s.added(t, NewStore())
		broken := errors.New("broken")
		s.sources[part].fail.Store(&broken)
		p := make([]byte, source.Size())
		if err := source.ReadAt(t.Context(), p, 0); !errors.Is(err, broken) {
			t.Errorf("part %d: %v", part, err)
		}
		s.sources[part].fail.Store(nil)
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		if err := source.ReadAt(cancelled, p, 0); !errors.Is(err, context.Canceled) {
			t.Errorf("part %d: %v", part, err)
		}
		if got := read(t, source)[7]; math.Abs(float64(got)-s.want[7]) > 1e-5*s.want[7] {
			t.Errorf("part %d: %v, want %v", part, got, s.want[7])
		}
	}
}

// TestNotTaken: what does not lie as a matrix of floats is left to who has other means.
func TestNotTaken(t *testing.T) {
	for name, change := range map[string]func(p *Parts){
		"another shape":   func(p *Parts) { p.Weight.Layout = tensor.Contiguous(40, 20) },
		"turned":          func(p *Parts) { p.Turned = true },
		"doubles":         func(p *Parts) { p.Up.DType = tensor.Float64 },
		"codes":           func(p *Parts) { p.Weight.DType = tensor.UInt8 },
		"strided":         func(p *Parts) { p.Weight.Layout.Strides = []int{1, 20} },
		"other bytes":     func(p *Parts) { p.Down.BigEndian = true },
		"negative":        func(p *Parts) { p.Strength.Neg = true },
		"not a vector":    func(p *Parts) { p.Strength.Layout = tensor.Contiguous(20, 1) },
		"another rank":    func(p *Parts) { p.Down.Layout = tensor.Contiguous(4, 30) },
		"not two numbers": func(p *Parts) { p.Up.Layout = tensor.Contiguous(60) },
	} {
		s, store := newSample(5, tensor.Float32, false, false, 20, 40, 3), NewStore()
		change(&s.Parts)
		if _, ok := store.Add(s.Parts); ok || store.Bytes() != 0 {
			t.Errorf("%s: taken, %d bytes", name, store.Bytes())
		}
	}
	if s := newSample(5, tensor.Float32, false, false, 2, 2, mostRank+1); true {
		if _, ok := NewStore().Add(s.Parts); ok {
			t.Error("a high rank is taken")
		}
	}
}

// changed is a source that has changed.
type changed struct{ *held }

var errChanged = errors.New("has changed")

func (changed) Unchanged() error { return errChanged }

// TestUnchanged: factors are no longer right where anything that they are computed of has changed.
func TestUnchanged(t *testing.T) {
	for part := range 5 {
		s := newSample(5, tensor.Float32, false, false, 20, 40, 3)
		if part < 4 {
			w := []*tensor.Weight{&s.Weight, &s.Down, &s.Up, &s.Strength}[part]
			w.Extent.Source = changed{s.sources[part]}
		}
		if err := s.added(t, NewStore()).Unchanged(); errors.Is(err, errChanged) != (part < 4) {
			t.Errorf("part %d: %v", part, err)
		}
	}
}

// BenchmarkFactors is of a matrix of a language model of some 8 billion parameters.
func BenchmarkFactors(b *testing.B) {
	s := newSample(5, tensor.BFloat16, false, false, 1024, 4096, 16)
	b.SetBytes(s.Weight.Bytes())
	for b.Loop() {
		source, _ := NewStore().Add(s.Parts)
		if err := source.ReadAt(b.Context(), make([]byte, source.Size()), 0); err != nil {
			b.Fatal(err)
		}
	}
}
