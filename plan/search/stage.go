package search

import (
	"cmp"
	"slices"

	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/storage"
)

const (
	// stagingBytes is the host memory through which weights that stay are brought to a device, leastStagingBytes what it
	// is where host memory is scarce.
	stagingBytes      = 32 << 20
	leastStagingBytes = 64 << 10
)

// staged finds the reads that bring parts into host memory, on the way to a device that cannot be read into, gives each
// part its place there and on the device, and returns how many bytes these take. On the device parts lie in the order
// of files, so that neighbours are often copied at once.
func staged(g *graph.Graph, parts []plan.Part, alignBytes int64) (list []plan.Span, deviceBytes int64) {
	list, _ = spans(g, parts, maxGapBytes)
	order := make([]*plan.Part, len(parts))
	for i := range parts {
		parts[i].Staged, order[i] = parts[i].Offset, &parts[i]
	}
	slices.SortStableFunc(order, func(a, b *plan.Part) int { return cmp.Compare(a.Staged, b.Staged) })
	for _, p := range order {
		p.Offset = deviceBytes
		deviceBytes += plan.AlignUp(p.High-p.Low, alignBytes)
	}
	return list, deviceBytes
}

// keepCopies decides which paged groups keep a copy in host memory: as many as there is room for, spread over the pass,
// so that the disk has time for the others.
func keepCopies(p *plan.Plan, o Options) {
	var total, largest int64
	for i := range p.Groups {
		if group := &p.Groups[i]; group.Paged() {
			total += plan.SpanBytes(group.Spans)
		}
	}
	if fixedBytes := plan.SpanBytes(p.Fixed.Spans); fixedBytes > 0 {
		p.StagingBytes = min(stagingBytes, fixedBytes)
		if o.HostBytes > 0 {
			p.StagingBytes = min(p.StagingBytes, max(o.HostBytes/4, leastStagingBytes))
		}
	}
	room := o.HostBytes - p.SwapBytes - p.GatherBytes - p.WaitingBytes()
	if o.HostBytes == 0 {
		room = total + p.StagingBytes
	}
	if total <= room-p.StagingBytes {
		for i := range p.Groups {
			keepCopy(&p.Groups[i], p)
		}
		return
	}
	for i := range p.Groups {
		if p.Groups[i].Paged() {
			largest = max(largest, plan.SpanBytes(p.Groups[i].Spans))
		}
	}
	p.StagingBytes = max(p.StagingBytes, plan.StagingSlots*largest)
	share := float64(max(room-p.StagingBytes, 0)) / float64(total)
	var due float64
	for i := range p.Groups {
		group := &p.Groups[i]
		if !group.Paged() {
			continue
		}
		n := plan.SpanBytes(group.Spans)
		if due += float64(n) * share; due >= float64(n) && p.HostCopyBytes+n <= room-p.StagingBytes {
			due -= float64(n)
			keepCopy(group, p)
			continue
		}
		load, each := reading(o.Rates, o.disks, group.Spans)
		if load > group.LoadSeconds { // as fast as the disks give
			group.LoadSeconds, group.DiskSeconds = load, each
		}
	}
}

// keepCopy gives a paged group a place in host memory.
func keepCopy(g *plan.Group, p *plan.Plan) {
	if g.Paged() {
		g.Copied, g.CopyOffset = true, p.HostCopyBytes
		p.HostCopyBytes += plan.SpanBytes(g.Spans)
	}
}

// readSeconds returns what reads take.
func readSeconds(r cost.Rates, list []plan.Span) float64 {
	plain, stored, decoded := packedBytes(list)
	if decoded == 0 {
		return r.Reading(plain, len(list))
	}
	return r.ReadingPacked(plain+stored, decoded, len(list))
}

// packedBytes returns how many bytes reads take of files that lie there as they are, how many of packed ones, and how
// many these stand for.
func packedBytes(list []plan.Span) (plain, stored, decoded int64) {
	for _, s := range list {
		if _, ok := storage.Packed(s.Extent.Source); ok {
			stored, decoded = stored+s.Extent.StoredBytes(), decoded+s.Extent.Bytes
		} else {
			plain += s.Extent.Bytes
		}
	}
	return plain, stored, decoded
}

// decodeBytes returns the memory that reads of the weights of a graph take where they lie in packed files.
func decodeBytes(g *graph.Graph) (most int64) {
	for i := range g.Values {
		if p, ok := storage.Packed(g.Values[i].Weight.Extent.Source); ok {
			most = max(most, p.BufferBytes())
		}
	}
	return most
}

// cachedSeconds returns which part of a load is copying out of the page cache at the cost of ops, where that is the
// work of the processors that compute them.
func cachedSeconds(r cost.Rates, t plan.Target, g *plan.Group) float64 {
	if !t.Direct {
		return 0
	}
	plain, stored, decoded := packedBytes(g.Spans)
	if g.Decoded {
		plain, stored = 0, 0
	}
	return r.OutOfCache(plain+stored) + cost.CopiedShare*r.Decoding(decoded)
}

// copySeconds returns what copying parts to a device takes.
func copySeconds(r cost.Rates, parts []plan.Part, alignBytes int64) float64 {
	var n int64
	runs := plan.Runs(parts, alignBytes)
	for i := range runs {
		n += runs[i].Bytes
	}
	return r.Copying(n, len(runs))
}

// mostTransferBytes bounds the host memory through which inputs and outputs pass. Copies of more take so long that the
// host may as well wait for them.
const mostTransferBytes = 16 << 20

// transferBytes returns the host memory through which inputs and outputs of a pass go, as far as there is room for it.
func transferBytes(p *plan.Plan, o Options) (n int64) {
	if !o.Target.Pins || p.Sides != nil {
		return 0
	}
	g := p.Lowered.Graph
	for _, id := range g.Inputs {
		n += plan.AlignUp(g.Values[id].Bytes(), o.Target.AlignBytes)
	}
	for i := range g.Outputs {
		n += plan.AlignUp(g.Values[g.Outputs[i].Operand.Value].Bytes(), o.Target.AlignBytes)
	}
	if n = min(n*int64(p.Instances), mostTransferBytes); o.HostBytes > 0 {
		n = min(n, max(o.HostBytes-p.HostBytes(), 0))
	}
	return n
}
