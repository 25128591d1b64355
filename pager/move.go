package pager

import (
	"context"
	"errors"
	"time"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/storage"
)

// allocFixed takes the arena of what stays, where the device has such memory with room for whatever plans may want to
// stay: budgets grow, too.
func (g *Pager) allocFixed(p *plan.Plan) (device.Memory, error) {
	rooms, ok := g.dev.(device.RoomAllocator)
	if !ok || !p.Target.Direct {
		return g.dev.Alloc(p.Fixed.Bytes)
	}
	most := g.opts.MemoryBytes + p.Fixed.Bytes
	for i := range p.Lowered.Graph.Values {
		if v := &p.Lowered.Graph.Values[i]; v.Role == graph.Weight {
			most += v.Weight.Extent.Bytes
		}
	}
	return rooms.AllocRoom(p.Fixed.Bytes, most)
}

// move makes the arena of what stays that of another plan: what both have is moved within it, and only what is missing
// is read. It reports false where that cannot be or gains nothing: what is in the arena then is not known, and all is
// to be brought. After an error there is no arena.
func (g *Pager) move(ctx context.Context, from, to *plan.Plan) (moved bool, err error) {
	rooms, ok := g.dev.(device.RoomAllocator)
	if !ok || from == nil || g.fixed == nil || g.first != nil || !to.Target.Direct || to.Fixed.Bytes == 0 {
		return false, nil
	}
	host, ok := g.dev.(HostVisible)
	if !ok {
		return false, nil
	}
	keep := to.Keeps(from)
	if keep.Bytes == 0 {
		return false, nil
	}
	g.quiesce()
	before := g.fixed.Bytes()
	if grows := to.Fixed.Bytes > before; grows || len(keep.Packings) > 0 {
		// What takes memory meanwhile is instead of the other arenas.
		if err := errors.Join(g.drop(), free(&g.ring), free(&g.activations), free(&g.scratch)); err != nil {
			return false, errors.Join(err, free(&g.fixed))
		}
		if grows && !rooms.Resize(g.fixed, to.Fixed.Bytes) {
			return false, nil
		}
	}
	if !keep.Slots {
		g.slots = nil
	}
	arena := host.HostBytes(device.Region{Memory: g.fixed, Bytes: g.fixed.Bytes()})
	keep.Each(func(m plan.Move) { copy(arena[m.To:m.To+m.Bytes], arena[m.From:m.From+m.Bytes]) })
	if to.Fixed.Bytes < before && !rooms.Resize(g.fixed, to.Fixed.Bytes) {
		return false, nil
	}
	if err := g.bringMissing(ctx, to, &keep); err != nil {
		return false, errors.Join(err, g.drop(), free(&g.fixed))
	}
	g.stats.KeptBytes += keep.Bytes
	g.held = to
	return true, nil
}

// Keep makes what stays that of a plan, between passes, and frees all else but caches. It reports false where what is
// there cannot be kept: all is free then. It brings nothing where nothing is there.
func (g *Pager) Keep(ctx context.Context, p *plan.Plan) (bool, error) {
	if g.closed {
		return false, errClosed
	}
	held := g.held
	if held == nil || g.first != nil || p.Sides != nil {
		return false, g.GiveBack(ctx)
	}
	if err := g.Trim(); err != nil || plan.SameFixed(held, p) {
		return err == nil, err
	}
	if err := g.save(ctx); err != nil {
		return false, err
	}
	g.held = nil
	moved, err := g.move(ctx, held, p)
	if !moved {
		err = errors.Join(err, g.release(ctx))
	}
	return moved, err
}

// bringMissing brings what a plan does not find in the arena of what stays.
func (g *Pager) bringMissing(ctx context.Context, p *plan.Plan, keep *plan.Keeping) error {
	begin := time.Now()
	host, err := g.hostVisible()
	if err != nil {
		return err
	}
	requests, read := requestsOf(host, g.fixed, keep.Missing)
	err = storage.Read(ctx, g.opts.Readers, requests...)
	stored := make([]plan.Stored, len(keep.Stored))
	for i, k := range keep.Stored {
		stored[i] = p.Fixed.Stored[k]
	}
	if err == nil {
		var more int64
		more, err = g.readStored(ctx, stored)
		read += more
	}
	packings := make([]plan.Packing, len(keep.Packings))
	for i, k := range keep.Packings {
		packings[i] = p.Fixed.Packings[k]
	}
	if err == nil {
		var more int64
		more, err = g.packFixed(ctx, p, packings)
		read += more
	}
	if err = unchanged(keep.Missing, packings, stored, err); err != nil {
		return located(readError(p, err), "", "load")
	}
	g.stats.ReadBytes += read
	if err := g.stream.Sync(ctx); err != nil {
		return located(err, "", "load")
	}
	if read > 0 {
		g.brought(keep.WeightBytes, begin)
	}
	return nil
}
