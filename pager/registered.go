package pager

import (
	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/storage"
)

// register has the device copy by itself from the memory of those sources of a plan's paged groups that lie in memory, as
// far as it can and the host memory that the pager may take is enough for what the plan takes besides.
func (g *Pager) register(p *plan.Plan) {
	to, ok := g.dev.(device.HostRegistrar)
	if !ok {
		return
	}
	for k := range p.Groups {
		if !p.Groups[k].Paged() || p.Groups[k].LandBytes > 0 {
			continue
		}
		for _, span := range p.Groups[k].Spans {
			from, ok := span.Extent.Source.(storage.MemorySource)
			if _, known := g.registered[span.Extent.Source]; !ok || known {
				continue
			}
			mem := from.Memory()
			if len(mem) == 0 ||
				g.opts.HostBytes > 0 && g.stats.RegisteredBytes+int64(len(mem))+p.HostBytes() > g.opts.HostBytes {
				continue
			}
			if g.registered == nil {
				g.registered = make(map[storage.Source]device.HostMemory)
			}
			if h, err := to.Register(mem); err == nil {
				g.registered[span.Extent.Source] = h
				g.stats.RegisteredBytes += int64(len(mem))
			} else {
				g.registered[span.Extent.Source] = nil // it is read then, as files are
			}
		}
	}
}

// inPlace returns the bytes of each part of a group where the device copies all of them by itself from memory of their
// sources, else nil.
func (g *Pager) inPlace(group *plan.Group) [][]byte {
	if group.LandBytes > 0 { // what the memory has is not what the slot is to have
		return nil
	}
	var all [][]byte
	for _, part := range group.Parts {
		bytes := g.partInPlace(group, part)
		if bytes == nil {
			return nil
		}
		all = append(all, bytes)
	}
	return all
}

// partInPlace returns the bytes of a part in the memory of its source, or nil.
func (g *Pager) partInPlace(group *plan.Group, part plan.Part) []byte {
	n := part.High - part.Low
	for _, span := range group.Spans {
		at := part.Staged - span.Offset
		if h := g.registered[span.Extent.Source]; h != nil && at >= 0 && at+n <= span.Extent.Bytes {
			return h.Bytes()[span.Extent.Offset+at:][:n]
		}
	}
	return nil
}

// unregister leaves all memory to whom it belongs. Nothing on the device may use it any more.
func (g *Pager) unregister() {
	for _, h := range g.registered {
		if h != nil {
			h.Free()
		}
	}
	g.registered = nil
	g.stats.RegisteredBytes = 0
}
