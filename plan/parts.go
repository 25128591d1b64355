package plan

import (
	"cmp"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/storage"
)

// A Part is a run of bytes of a weight's storage, and where it lies on the device.
type Part struct {
	Value graph.ValueID
	// Low and High delimit the part within the value.
	Low, High int64
	// Offset is that of byte Low in the arena that holds it, or within the slot.
	Offset int64
	// Staged is the offset of byte Low within the group's bytes in host memory, where the target is not Direct.
	Staged int64
}

// OpParts lists the bytes of weights that an op reads, but for experts that are lent to it.
func OpParts(g *graph.Graph, op *graph.Op) []Part {
	var parts []Part
	for i, o := range op.In {
		if o.Value == graph.NoValue || g.Values[o.Value].Role != graph.Weight || op.Lent(i) {
			continue
		}
		if p, ok := OperandPart(g, o); ok {
			parts = append(parts, p)
		}
	}
	return parts
}

// OperandPart returns the bytes of a value that an operand views.
func OperandPart(g *graph.Graph, o graph.Operand) (Part, bool) {
	first, end, err := o.Layout.Span()
	if err != nil {
		panic("BUG: operand of " + g.Values[o.Value].Name + ": " + err.Error())
	}
	size := int64(g.Values[o.Value].DType.Size())
	return Part{Value: o.Value, Low: first * size, High: end * size}, end > first
}

// Covering returns the part of a union that a part is within.
func Covering(held []Part, part Part) (Part, bool) {
	i, _ := slices.BinarySearchFunc(held, part, func(h, p Part) int {
		if h.Value != p.Value {
			return cmp.Compare(h.Value, p.Value)
		}
		if h.High < p.High {
			return -1
		}
		return 1
	})
	if i == len(held) || held[i].Value != part.Value || part.Low < held[i].Low || held[i].High < part.High {
		return Part{}, false
	}
	return held[i], true
}

// A Span is one read: a run of bytes of a source, and where they go within a slot or an arena (or, where the target is
// not Direct, within the group's bytes in host memory).
type Span struct {
	Extent storage.Extent
	Offset int64
}

// A Run is parts that lie alike in host memory and on a device that is not Direct, and that are therefore copied at
// once.
type Run struct {
	// First is the index of the part that comes first.
	First int
	// Staged and Offset are where the run begins in host memory and on the device.
	Staged, Offset, Bytes int64
}

// Runs lists the copies that bring parts to a device whose offsets are multiples of alignBytes, in the order of host
// memory. What lies between two parts of a run is less than such a multiple: nothing else has a place there, and it is
// copied along.
func Runs(parts []Part, alignBytes int64) []Run {
	order := make([]int, len(parts))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(parts[i].Staged, parts[j].Staged) })
	var runs []Run
	for _, i := range order {
		p := &parts[i]
		if n := len(runs); n > 0 {
			r := &runs[n-1]
			gap := p.Staged - r.Staged - r.Bytes
			if gap >= 0 && gap < alignBytes && p.Offset-r.Offset == p.Staged-r.Staged {
				r.Bytes += gap + p.High - p.Low
				continue
			}
		}
		runs = append(runs, Run{i, p.Staged, p.Offset, p.High - p.Low})
	}
	return runs
}

// SpanBytes returns the sum of reads.
func SpanBytes(list []Span) int64 {
	var n int64
	for _, s := range list {
		n += s.Extent.Bytes
	}
	return n
}

// FileBytes returns how many bytes of files the reads of a pass take that fill the ring: MovedBytes, or less where weights are
// encoded there. Reading past the page cache takes up to [storage.AlignBytes] more before and behind what is encoded.
func (p *Plan) FileBytes() int64 {
	if p.Sides != nil {
		return p.Sides.Device.FileBytes() + p.Sides.Host.FileBytes()
	}
	var n int64
	for i := range p.Groups {
		if !p.Groups[i].Paged() || p.Groups[i].Decoded {
			continue
		}
		for _, s := range p.Groups[i].Spans {
			n += s.Extent.StoredBytes()
		}
	}
	return n
}

// AlignUp returns the least multiple of align that is no less than n.
func AlignUp(n, align int64) int64 { return (n + align - 1) / align * align }

// StagingSlots is how many groups may be in host memory on their way to a device that is not Direct: one is read while
// the one before is copied. The pager makes as many.
const StagingSlots = 2
