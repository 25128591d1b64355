package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/ascii"
	"github.com/optimem/optimem/storage"
)

// Placement says where a group computes and how its weights get there: "resident", "paged" or "cpu"; "decoded"
// where they stay as a packed file has them; "rows" for
// embeddings of which a pass reads only the rows that it needs, "experts" where it does so with experts.
func (g *Group) Placement() string {
	if g.OnHost {
		return "cpu"
	}
	if g.Decoded {
		return "decoded"
	}
	if g.Paged() {
		return "paged"
	}
	if g.Lent {
		return "experts"
	}
	if g.Rows && g.WeightBytes > 0 {
		return "rows"
	}
	return "resident"
}

// cachesText says what caches take, in the middle of a line.
func (p *Plan) cachesText() string {
	switch {
	case p.CacheBytes == 0:
		return ""
	case p.CacheSlots == 0:
		return fmt.Sprintf("caches %d, ", p.CacheBytes)
	}
	some, where := "", "the host's memory"
	if p.Target.Direct {
		where = "a file"
	}
	if p.CacheSlotBlocks > 0 {
		some = fmt.Sprintf(" with %d blocks", p.CacheSlotBlocks)
	}
	return fmt.Sprintf("caches %d, %d slots of %d%s among them for %d in %s, ", p.CacheBytes, p.CacheSlots,
		p.CacheSlotBytes, some, p.CacheAwayBytes, where)
}

// String writes the plan for people: a line for each group, then the sums.
func (p *Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s on %s", p.Mode, p.Target.Name)
	if p.Instances > 1 {
		fmt.Fprintf(&b, ", %d micro-batches", p.Instances)
	}
	b.WriteString("\n")
	for i := range p.Groups {
		g := &p.Groups[i]
		fmt.Fprintf(&b, "%4d  %-40s ops %d-%d  weights %s", i, g.Title(), g.First, g.End-1, ascii.FormatSize(g.WeightBytes))
		if g.Device > 0 {
			fmt.Fprintf(&b, "  device %d", g.Device)
		}
		if g.Paged() && !g.OnHost {
			fmt.Fprintf(&b, "  %s, slot %d+%d", g.Placement(), g.SlotOffset, g.SlotBytes)
			if g.After > 0 {
				fmt.Fprintf(&b, " after %d", g.After)
			}
			for _, s := range g.Spans {
				fmt.Fprintf(&b, "; %d at %d", s.Extent.Bytes, s.Extent.Offset)
			}
		} else if g.WeightBytes > 0 || g.OnHost {
			b.WriteString("  " + g.Placement())
		}
		for _, s := range g.SwapIn {
			fmt.Fprintf(&b, "  value %d in from host %d", s.Value, s.Offset)
		}
		for _, s := range g.SwapOut {
			fmt.Fprintf(&b, "  value %d out to host %d", s.Value, s.Offset)
		}
		for _, a := range g.Again {
			fmt.Fprintf(&b, "  value %d anew by op %d", a.Value, a.Op)
		}
		b.WriteString("\n")
	}
	for _, t := range p.Tied {
		fmt.Fprintf(&b, "tied  %-40s read by %d groups: %s\n", p.Lowered.Graph.Values[t.Value].Name, t.Readers, t.Decision())
	}
	if p.Sides != nil && p.Sides.Peer != "" {
		fmt.Fprintf(&b, "devices: peaks %v; the first of them:\n", p.DeviceBytes())
	}
	fmt.Fprintf(&b, "fixed %d, constants %d, ", p.Fixed.Bytes, p.ConstBytes)
	b.WriteString(p.cachesText())
	fmt.Fprintf(&b, "ring %d, activations %d, workspace %d: peak %d\n",
		p.RingBytes, p.ActivationBytes, p.WorkBytes, p.PeakBytes())
	if f := &p.Fixed; len(f.Packed) > 0 {
		var bytes, raw int64
		for i := range f.Packed {
			bytes, raw = bytes+f.Packed[i].Pack.Bytes, raw+f.Packed[i].High-f.Packed[i].Low
		}
		fmt.Fprintf(&b, "packed %d weights: %d bytes for %d, made through %d\n", len(f.Packed), bytes, raw, f.PackingBytes)
	}
	if n := len(p.Fixed.Stored); n > 0 {
		bytes, decoded := p.Fixed.StoredBytes()
		fmt.Fprintf(&b, "stored %d runs of packed files: %d bytes for %d\n", n, bytes, decoded)
	}
	for i := range p.Experts {
		e := &p.Experts[i]
		set := &p.Fixed.Slots[e.Set]
		fmt.Fprintf(&b, "experts of %s: %d, through %d slots of %d at %d\n", orRoot(e.Path), len(e.Each), set.Slots, set.SlotBytes, set.Offset)
	}
	if p.LandBytes > 0 {
		fmt.Fprintf(&b, "decoded by the device, through %d of the ring\n", p.LandBytes)
	}
	if p.DecodeBytes > 0 {
		fmt.Fprintf(&b, "decoding packed files %d, of which a pass reads %d\n", p.DecodeBytes, p.FileBytes())
	}
	if p.SourceBytes > 0 {
		fmt.Fprintf(&b, "sources that compute weights %d\n", p.SourceBytes)
	}
	if n := p.HostBytes(); n > 0 {
		fmt.Fprintf(&b, "host: staging %d, copies %d, activations %d: %d in all\n",
			p.StagingBytes+p.GatherBytes+p.TransferBytes, p.HostCopyBytes, p.SwapBytes, n)
	}
	if p.Sides != nil && p.Sides.Overlaps {
		b.WriteString("both sides compute at the same time, on neighbouring micro-batches\n")
	}
	b.WriteString(p.movedText())
	return b.String()
}

// movedText says what a pass moves, and the least budget.
func (p *Plan) movedText() string {
	past := ""
	if p.PastCache {
		past = "read past the page cache\n"
	}
	return past + fmt.Sprintf("moved per pass %d, least budget %d\n", p.MovedBytes, p.MinBytes)
}

// Name names the group by its module, or by the first and the last of several; it is made anew with each call.
func (g *Group) Name() string {
	if n := len(g.Joined); n > 0 && g.Joined[0].Path != g.Joined[n-1].Path {
		return g.Joined[0].Path + " to " + g.Joined[n-1].Path
	}
	return g.Path
}

// A Share says which part of a module a group is: number Part of Parts, from 1 on. The zero value is a whole module.
type Share struct{ Part, Parts int }

// Shares returns, for each group, which part of an op that is computed by rows it is.
func (p *Plan) Shares() []Share {
	shares := make([]Share, len(p.Groups))
	for first := 0; first < len(p.Groups); {
		end := first + 1
		for end < len(p.Groups) && p.Groups[end].continues(&p.Groups[end-1]) {
			end++
		}
		for i := first; i < end && end-first > 1; i++ {
			shares[i] = Share{i - first + 1, end - first}
		}
		first = end
	}
	return shares
}

// An Encoded says how many weights are blocks of codes in memory, of which encoding, and what they take.
type Encoded struct {
	Name    string
	Weights int
	Bytes   int64
}

// Encodings lists the encodings of the weights that a pass reads, the one with most bytes first.
func (p *Plan) Encodings() []Encoded {
	seen := make(map[storage.Extent]bool)
	all := p.encodings(nil, seen)
	slices.SortFunc(all, func(a, b Encoded) int { return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Name, b.Name)) })
	return all
}

func (p *Plan) encodings(all []Encoded, seen map[storage.Extent]bool) []Encoded {
	if p.Sides != nil {
		return p.Sides.Host.encodings(p.Sides.Device.encodings(all, seen), seen)
	}
	g := p.Lowered.Graph
	read := make(map[graph.ValueID]bool)
	for i := range g.Ops {
		for _, o := range g.Ops[i].In {
			if o.Value != graph.NoValue {
				read[o.Value] = true
			}
		}
	}
	for id := range g.Values {
		v := &g.Values[id]
		if v.Encoding == nil || !read[graph.ValueID(id)] || seen[v.Weight.Extent] {
			continue
		}
		seen[v.Weight.Extent] = true
		i := slices.IndexFunc(all, func(e Encoded) bool { return e.Name == v.Encoding.Name })
		if i < 0 {
			i, all = len(all), append(all, Encoded{Name: v.Encoding.Name})
		}
		all[i].Weights++
		all[i].Bytes += v.Bytes()
	}
	return all
}

// continues reports whether a group computes the rows behind those of the one before it.
func (g *Group) continues(before *Group) bool {
	return g.EndRow > 0 && before.EndRow > 0 && g.Path == before.Path && g.FirstRow == before.EndRow
}

// Title names the group: its module, and which rows of its weight it computes where that is not all.
func (g *Group) Title() string {
	if g.EndRow == 0 {
		return orRoot(g.Name())
	}
	return fmt.Sprintf("%s[%d:%d]", orRoot(g.Name()), g.FirstRow, g.EndRow)
}

// Decision says what becomes of the weight: "stays", "moved once", "moved 3 times".
func (t Tied) Decision() string {
	switch t.Moves {
	case 0:
		return "stays"
	case 1:
		return "moved once"
	}
	return fmt.Sprintf("moved %d times", t.Moves)
}

func orRoot(path string) string {
	if path == "" {
		return "(root)"
	}
	return path
}
