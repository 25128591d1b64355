package search

import (
	"errors"
	"fmt"
	"iter"
	"testing"

	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/storage"
)

// unpackable is a packed file whose blocks a device may decode. They lie in another order than what they stand for: the last
// half of it first.
type unpackable struct {
	inBlocks
	file nowhere
}

const storedOfBlock = blockOf*7/10 + 3

func (s *unpackable) File() storage.Source { return &s.file }
func (s *unpackable) CheckBlock(storage.Block, []byte) error {
	return errors.New("read while planning")
}
func (s *unpackable) Blocks(off, n int64) iter.Seq[storage.Block] {
	return func(yield func(storage.Block) bool) {
		all := (s.bytes + blockOf - 1) / blockOf
		for i := off / blockOf; i*blockOf < min(off+n, s.bytes); i++ {
			at := (i + all - all/2) % all * storedOfBlock
			b := storage.Block{
				Number: int(i), Offset: i * blockOf, Bytes: min(blockOf, s.bytes-i*blockOf), At: at, Stored: storedOfBlock,
			}
			if !yield(b) {
				return
			}
		}
	}
}

// unpackables has a graph's weights lie in such files.
func unpackables(g *graph.Graph) {
	files := make(map[storage.Source]*unpackable)
	for i := range g.Values {
		if e := &g.Values[i].Weight.Extent; e.Source != nil {
			file, ok := files[e.Source]
			if !ok {
				n := e.Source.Size()
				file = &unpackable{inBlocks{nowhere{n}}, nowhere{(n/blockOf + 1) * storedOfBlock}}
				files[e.Source] = file
			}
			e.Source = file
		}
	}
}

// TestUnpacks: where the device decodes, groups are read as files have them, every byte of a slot comes from one block that
// is read, budgets hold what blocks go through, and where there is no room for that the host decodes.
func TestUnpacks(t *testing.T) {
	l := stack(t, 1, 512, 700, 512, 900, 512, 700, 20, 600, 512, 800, 512)
	unpackables(l.Graph)
	o := Options{
		Mode: plan.Auto, Target: plan.Target{Name: "gpu", AlignBytes: 256, Pins: true, Unpacks: true},
		Rates: cost.Rates{FLOPs: 1e12, MemoryBytes: 1e11, CopyBytes: 20e9, CopySeconds: 1e-5, DiskBytes: 2e9, DecodeBytes: 6e9},
	}
	host := o
	host.Target.Unpacks = false
	all, least := mustPlan(t, l, o).PeakBytes(), mustPlan(t, l, host).MinBytes
	unpacked, decoded := 0, 0
	for n := least; n < all; n += (all - least) / 9 {
		for _, hostBytes := range []int64{0, 5 << 20} {
			o.MemoryBytes, o.HostBytes = n, hostBytes
			p := mustPlan(t, l, o)
			if p.PeakBytes() > n || hostBytes > 0 && p.HostBytes() > hostBytes {
				t.Errorf("%d bytes, and %d of the host, of %d and %d", p.PeakBytes(), p.HostBytes(), n, hostBytes)
			}
			if !p.Target.Unpacks {
				decoded++
				continue
			}
			for i := range p.Groups {
				if group := &p.Groups[i]; group.Paged() {
					unpacked++
					if err := fills(group, p); err != nil {
						t.Errorf("%s: %v\n%v", group.Path, err, p)
					}
				}
			}
		}
	}
	if unpacked == 0 || decoded == 0 {
		t.Errorf("the device decodes %d groups, the host all of %d plans", unpacked, decoded)
	}
	if p := mustPlan(t, l, o); p.FileBytes() > p.MovedBytes*3/4 {
		t.Errorf("%d bytes are read for %d", p.FileBytes(), p.MovedBytes)
	}
}

// fills returns what is wrong with the blocks of a group.
func fills(group *plan.Group, p *plan.Plan) error {
	if group.LandBytes == 0 && group.SlotBytes > 4*blockOf || group.LandBytes > p.LandBytes || group.SlotOffset+group.SlotBytes > p.RingBytes-p.LandBytes {
		return fmt.Errorf("through %d of %d bytes, the slot ends at %d of %d", group.LandBytes, p.LandBytes,
			group.SlotOffset+group.SlotBytes, p.RingBytes)
	}
	if group.LandBytes == 0 { // what else is in its blocks is too much
		return nil
	}
	filled := make([]int64, group.SlotBytes) // one more than the byte of the original that is there
	for x := range group.Unpackings(p.Lowered.Graph) {
		read := false
		for _, s := range group.Spans {
			at := x.Staged - s.Offset
			read = read || at >= 0 && at+x.Block.Stored <= s.Extent.Bytes && s.Extent.Source == x.Source.File() &&
				s.Extent.Offset+at == x.Block.At
		}
		if !read {
			return fmt.Errorf("block %d is not read to %d", x.Block.Number, x.Staged)
		}
		for i := x.Low; i < x.High; i++ {
			to := &filled[x.Offset+i-x.Low]
			if *to != 0 {
				return fmt.Errorf("byte %d of the slot is filled twice", x.Offset+i-x.Low)
			}
			*to = x.Block.Offset + i + 1
		}
	}
	for _, part := range group.Parts {
		e := p.Lowered.Graph.Values[part.Value].Weight.Extent
		for i := range part.High - part.Low {
			if got, want := filled[part.Offset+i]-1, e.Offset+part.Low+i; got != want {
				return fmt.Errorf("value %d, byte %d: %d is there, not %d", part.Value, part.Low+i, got, want)
			}
		}
	}
	return nil
}
