//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/pager"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/search"
	"github.com/optimem/optimem/storage/packed"
	"github.com/optimem/optimem/tensor"
)

func (m *memorySource) WriteAt(p []byte, off int64) (int, error) {
	if need := int(off) + len(p); need > len(m.data) {
		m.data = append(m.data, make([]byte, need-len(m.data))...)
	}
	return copy(m.data[off:], p), nil
}

// packedOf returns a packed file of some bytes, of which blocks stand for no more than each.
func packedOf(t testing.TB, data []byte, each int64) (*packed.Source, *memorySource) {
	t.Helper()
	file, o := &memorySource{}, packed.Options{Threads: 1}
	for at := int64(0); at < int64(len(data)); at += each {
		o.Runs = append(o.Runs, packed.Run{Offset: at, Bytes: min(each, int64(len(data))-at)})
	}
	if _, err := packed.Write(t.Context(), &memorySource{data}, file, o); err != nil {
		t.Fatal(err)
	}
	s, err := packed.Open(t.Context(), file, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s, file
}

// numbersOf returns n bytes of numbers whose exponents are few, but for some.
func numbersOf(seed uint64, n int, dtype tensor.DType) []byte {
	rng, size := rand.New(rand.NewPCG(seed, 7)), dtype.Size()
	data := make([]byte, n)
	for i := 0; i+size <= n; i += size {
		x := float32(rng.NormFloat64() * 0.02)
		if rng.IntN(50) == 0 {
			x *= float32(math.Ldexp(1, rng.IntN(20)-4))
		}
		put(data[i:], dtype, x)
	}
	return data
}

// unpackCases are bytes that are packed in every way.
func unpackCases() map[string][]byte {
	cases := map[string][]byte{
		"bf16": numbersOf(1, 40000, tensor.BFloat16), "f16": numbersOf(2, 40002, tensor.Float16),
		"f32": numbersOf(3, 33333, tensor.Float32), "one": {7}, "few": numbersOf(4, 254, tensor.BFloat16),
		"zeros": make([]byte, 20000),
	}
	short := numbersOf(5, 20000, tensor.Float32)
	for i := 0; i < len(short); i += 4 { // those that bfloat16 has, and those with one byte more
		short[i] = 0
		if i > 8192 {
			short[i+1] = 0
		}
	}
	noise := make([]byte, 5003)
	for i := range noise {
		noise[i] = byte(rand.New(rand.NewPCG(6, uint64(i))).Uint32())
	}
	cases["f32 of fewer bytes"], cases["noise"] = short, noise
	return cases
}

// TestUnpack: blocks that the device decodes become what they were made of, wherever they go and whatever of them is
// wanted, and nothing else is written.
func TestUnpack(t *testing.T) {
	dev, _ := open(t, "order=lazy:9 memory=64M")
	compareUnpacked(t, dev)
}

// TestUnpackPTX does so from the PTX.
func TestUnpackPTX(t *testing.T) {
	interpreted(t, "order=lazy:9 memory=64M", compareUnpacked, "om_unpack")
}

func compareUnpacked(t *testing.T, dev device.Device) {
	ways := make(map[byte]bool)
	for name, data := range unpackCases() {
		t.Run(name, func(t *testing.T) {
			s, file := packedOf(t, data, 13008)
			n := int64(len(data))
			for _, c := range []struct{ low, high, to int64 }{{0, n, 0}, {1, n, 0}, {0, n - 1, 3}, {n / 3, n/3 + min(n/2, 700), 2}} {
				if c.low >= c.high {
					continue
				}
				var list []device.Unpacking
				for b := range s.Blocks(c.low, c.high-c.low) {
					ways[file.data[b.At]] = true
					low := max(c.low, b.Offset)
					list = append(list, device.Unpacking{
						From: b.At, Bytes: b.Bytes, Low: low - b.Offset, High: min(c.high-b.Offset, b.Bytes), To: c.to + low - c.low,
					})
					if err := s.CheckBlock(b, file.data[b.At:][:b.Stored]); err != nil {
						t.Fatal(err)
					}
				}
				got := unpackedBy(t, dev, file.data, list, c.to+c.high-c.low+5)
				want := bytes.Repeat([]byte{0xA5}, len(got))
				copy(want[c.to:], data[c.low:c.high])
				if !bytes.Equal(got, want) {
					t.Errorf("bytes %d to %d, to %d: other bytes", c.low, c.high, c.to)
				}
			}
		})
	}
	if len(ways) != 4 {
		t.Errorf("blocks are written in the ways %v", ways)
	}
}

// unpackedBy returns n bytes of memory to which blocks of a file were decoded.
func unpackedBy(t *testing.T, dev device.Device, file []byte, list []device.Unpacking, n int64) []byte {
	t.Helper()
	stream, err := dev.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	var memory [2]device.Memory
	for i, bytes := range []int64{int64(len(file)), n} {
		if memory[i], err = dev.Alloc(bytes); err != nil {
			t.Fatal(err)
		}
	}
	from, to := device.Region{Memory: memory[0], Bytes: int64(len(file))}, device.Region{Memory: memory[1], Bytes: n}
	out := bytes.Repeat([]byte{0xA5}, int(n))
	if err := errors.Join(
		stream.CopyIn(from, file), stream.CopyIn(to, out), stream.(device.Unpacker).Unpack(t.Context(), to, from, list),
		stream.CopyOut(out, to), stream.Sync(t.Context()), stream.Close(), memory[0].Free(), memory[1].Free(),
	); err != nil {
		t.Fatal(err)
	}
	return out
}

// inPacked has the weights of a graph lie in a packed file, as numbers that bfloat16 has.
func inPacked(t testing.TB, g *graph.Graph) (*packed.Source, *memorySource) {
	t.Helper()
	var s *packed.Source
	var file *memorySource
	for i := range g.Values {
		e := &g.Values[i].Weight.Extent
		if e.Source == nil {
			continue
		}
		if s == nil {
			data := slices.Clone(e.Source.(*memorySource).data)
			for k := 0; k < len(data); k += 4 {
				binary.LittleEndian.PutUint16(data[k:], 0)
			}
			s, file = packedOf(t, data, 16<<10)
		}
		e.Source = s
	}
	return s, file
}

// TestPackedPages: packed weights cross the bus as files have them, and give the bits that they give where the host decodes,
// whether they stay in host memory or pass through staging, and however little goes through the device at once.
func TestPackedPages(t *testing.T) {
	g := network(t, 3, 64, 500, 40, 700, 64)
	s, _ := inPacked(t, g)
	l := lower(t, g)
	dev, lib := openSimulated(t, "order=lazy:3 memory=64M")
	want, _, err := passes(t.Context(), dev, planned(t, l, search.Options{Mode: plan.Resident}), 1)
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range pagedPlans(t, l) {
		if p.LandBytes == 0 || p.FileBytes() > p.MovedBytes*3/4 {
			t.Fatalf("%s: the host decodes, or %d bytes are read for %d\n%v", name, p.FileBytes(), p.MovedBytes, p)
		}
		for _, land := range []int64{p.LandBytes, min(p.LandBytes, 18<<10)} {
			q := *p
			q.LandBytes = land
			before := lib.Report().BytesIn
			const times = 3
			got, _, err := passes(t.Context(), dev, &q, times)
			if err != nil || !bytes.Equal(got, want) {
				t.Fatalf("%s, through %d bytes: %v, or other bits", name, land, err)
			}
			crossed := lib.Report().BytesIn - before - times*g.Values[g.Inputs[0]].Bytes() - p.Fixed.Bytes
			if most := times*p.FileBytes() + s.Size()/50; crossed > most {
				t.Errorf("%s, through %d bytes: %d cross the bus, of files %d", name, land, crossed, most)
			}
		}
	}
	if misses := lib.Report(); misses.Races+misses.Misuses > 0 {
		t.Errorf("%+v", misses)
	}
}

// TestPackedPagesFail: a block that is damaged ends the pass, whether its checksum tells or it does not decode, and the next
// pass is right once it is whole.
func TestPackedPagesFail(t *testing.T) {
	g := network(t, 3, 64, 500, 40, 700, 64)
	s, file := inPacked(t, g)
	l := lower(t, g)
	s.Explain = func(e *packed.CorruptError) error { return fmt.Errorf("the weight there: %w", e) }
	whole := planned(t, l, search.Options{Mode: plan.Page, Slots: 2})
	dev, _ := openSimulated(t, "order=lazy:5 memory=64M")
	want, _, err := passes(t.Context(), dev, whole, 1)
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range map[string]*plan.Plan{"copies": whole, "staging": stagedPlan(t, l)} {
		pg, err := pager.New(dev, pager.Options{})
		if err != nil {
			t.Fatal(err)
		}
		at := len(file.data) / 2
		for range 2 { // the second time copies are there
			file.data[at] ^= 1
			var bad *packed.CorruptError
			var where *pager.GroupError
			err := pg.Pass(t.Context(), p, newTransfer(g))
			if !errors.As(err, &bad) || bad.Bytes == 0 || !errors.As(err, &where) || where.Path == "" {
				t.Fatalf("%s: got %v, want the block and its group", name, err)
			}
			file.data[at] ^= 1
			if name == "staging" {
				break
			}
			if err := pg.GiveBack(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		x := newTransfer(g)
		if err := pg.Pass(t.Context(), p, x); err != nil || !bytes.Equal(x.out, want) {
			t.Errorf("%s: %v, or other bits", name, err)
		}
		if err := pg.Close(); err != nil {
			t.Error(err)
		}
	}
}
