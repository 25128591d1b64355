package pager

import (
	"context"
	"slices"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/internal/hostmem"
	"github.com/optimem/optimem/pager/fetch"
	"github.com/optimem/optimem/plan"
)

// copied reports whether a pager keeps a copy of a group's bytes in host memory.
func (g *Pager) copied(group *plan.Group) bool { return group.Copied && g.inPlace(group) == nil }

// fit reports whether a pager's copies are those that a plan keeps.
func (g *Pager) fit(p *plan.Plan) bool {
	c, n := g.copies, 0
	for k := range p.Groups {
		group := &p.Groups[k]
		if !g.copied(group) {
			continue
		}
		if n == len(c.groups) || c.groups[n].offset != group.CopyOffset ||
			!slices.Equal(c.groups[n].spans, group.Spans) {
			return false
		}
		n++
	}
	return n == len(c.groups)
}

// slotBytes is what a staging slot has to hold for a plan.
func (g *Pager) slotBytes(p *plan.Plan) int64 {
	var n int64
	for k := range p.Groups {
		if group := &p.Groups[k]; group.Paged() && !group.Copied && g.inPlace(group) == nil {
			n = max(n, plan.SpanBytes(group.Spans))
		}
	}
	return n
}

// growHost takes the host memory that a plan wants. What plans before had there and this one does not is given back.
func (g *Pager) growHost(p *plan.Plan) (err error) {
	if p.Target.Direct {
		return g.sizeFile(p)
	}
	g.register(p)
	if g.copies != nil && !g.fit(p) {
		g.dropCopies()
	}
	if err := g.sizeHost(&g.staging, plan.StagingSlots*g.slotBytes(p), hostmem.Staging); err != nil {
		return err
	}
	if err := g.sizeHost(&g.swaps, p.SwapBytes, hostmem.Activations); err != nil {
		return err
	}
	if err := g.sizeHost(&g.rowsMemory, p.GatherBytes, hostmem.Staging); err != nil {
		return err
	}
	if err := g.growTransfers(p); err != nil {
		return err
	}
	if err := g.sizeTables(p); err != nil {
		return err
	}
	if g.copies != nil {
		return nil
	}
	g.copies = g.newCopies(p)
	return nil
}

// sizeHost makes host memory large enough, or gives it back where none is wanted.
func (g *Pager) sizeHost(buf *device.HostMemory, bytes int64, purpose hostmem.Purpose) (err error) {
	if *buf != nil && bytes > 0 && int64(len((*buf).Bytes())) >= bytes {
		return nil
	}
	dropHost(buf)
	if bytes > 0 {
		*buf, err = g.AllocHost(bytes, purpose)
	}
	return err
}

// AllocHost takes host memory that the device copies from and to, page-locked where the device gives such memory out
// and has some. The caller frees it before the device is closed.
func (g *Pager) AllocHost(bytes int64, purpose hostmem.Purpose) (device.HostMemory, error) {
	if from, ok := g.dev.(device.HostAllocator); ok && bytes > 0 {
		mem, err := from.AllocHost(bytes)
		if err == nil {
			return mem, nil
		}
		g.stats.pageableBytes.Add(bytes)
	}
	mem, err := hostmem.Alloc(bytes, purpose)
	if err != nil {
		return nil, err
	}
	return mem, nil
}

func dropHost(buf *device.HostMemory) {
	if *buf != nil {
		(*buf).Free()
		*buf = nil
	}
}

// newStaged returns what reads ahead through host memory. Each group's bytes are in the memory of their sources, are
// kept in host memory, or pass through a staging slot.
func (g *Pager) newStaged(p *plan.Plan) (*fetch.Staged, error) {
	slot, kept := g.slotBytes(p), 0
	var groups []fetch.StagedGroup
	for k := range p.Groups {
		group := &p.Groups[k]
		if !group.Paged() {
			continue
		}
		from := fetch.StagedGroup{Group: group, Number: k, InPlace: g.inPlace(group)}
		n := plan.SpanBytes(group.Spans)
		if group.LandBytes > 0 {
			from.Blocks = group.Unpackings(p.Lowered.Graph)
			from.Landing = device.Region{Memory: g.ring, Offset: p.RingBytes - p.LandBytes, Bytes: p.LandBytes}
		}
		switch {
		case from.InPlace != nil:
		case group.Copied:
			from.Take, from.Held = g.copies.groups[kept].take, &g.copies.groups[kept].held
			kept++
		default:
			for i := range from.Slots {
				from.Slots[i] = g.staging.Bytes()[int64(i)*slot:][:n]
			}
		}
		groups = append(groups, from)
	}
	o := g.fetching()
	o.AlignBytes = p.Target.AlignBytes
	return fetch.NewStaged(g.dev, g.stream, g.ring, groups, o)
}

// stageFixed brings the weights that stay through a little host memory, and returns how many bytes were read.
func (g *Pager) stageFixed(ctx context.Context, p *plan.Plan) (read int64, err error) {
	total := plan.SpanBytes(p.Fixed.Spans)
	if total == 0 {
		return 0, nil
	}
	buf, err := g.AllocHost(min(total, p.StagingBytes), hostmem.Staging)
	if err != nil {
		return 0, err
	}
	defer buf.Free()
	defer func() {
		if err != nil {
			g.quiesce() // it may still be copied from
		}
	}()
	return g.stageParts(ctx, p, p.Fixed.Spans, p.Fixed.Parts, g.fixed, buf.Bytes())
}
