package memory

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
	"github.com/optimem/optimem/tensor/encoded"
)

// Names are the weights of a checkpoint by where their bytes lie: all names that a storage has, and the shapes under them. An
// encoded weight has two places: its blocks', and that of the numbers that a source makes of them.
type Names map[storage.Extent][]*tensor.Weight

// NamesOf returns the names of weights.
func NamesOf(weights []tensor.Weight) Names {
	names := make(Names, len(weights))
	for i := range weights {
		at := weights[i].Extent
		names[at] = append(names[at], &weights[i])
		if source, ok := at.Source.(*encoded.Source); ok {
			if _, blocks, ok := source.Blocks(at.Offset); ok {
				names[blocks] = append(names[blocks], &weights[i])
			}
		}
	}
	return names
}

// Planned says what a pass takes where it takes most, on each device that its plan is for: at the op that finds most in use, or
// while weights are packed before the first pass, whichever is more. Nothing need have been allocated. The first device has the
// given name.
func Planned(p *plan.Plan, name string, names Names) *Report {
	r := &Report{Moment: "peak"}
	parts := partsOf(p)
	parts[0].name = name
	for _, part := range parts {
		d := Device{Name: part.name, Storages: []Storage{}, Rest: []Rest{}}
		q := part.plan
		d.fixed(q, names)
		if p.Sides == nil || len(parts) == 1 {
			r.Moment = peakOf(q)
		}
		d.caches(q)
		if packing := packingOf(q); packing > q.PassBytes() {
			d.HeldBytes = packing
			d.rest("raw weights while they are packed", q.Fixed.PackingBytes)
		} else {
			d.HeldBytes = q.PassBytes()
			d.constants(q)
			d.duringPeak(q, names)
		}
		if p.Target.Direct {
			d.HeldBytes += p.DecodeBytes + p.SourceBytes
			d.rest(decoding, p.DecodeBytes)
			d.rest(lengths, p.SourceBytes)
		}
		r.Devices = append(r.Devices, d)
	}
	if host, any := plannedHost(p); any {
		r.Devices = append(r.Devices, host)
	}
	if p.Sides == nil && p.Target.Direct {
		r.file(p.SwapBytes, p.CacheAwayBytes)
	}
	return r
}

// A partOf is the plan of one device.
type partOf struct {
	name string
	plan *plan.Plan
}

// partsOf returns the plans of all devices, in order.
func partsOf(p *plan.Plan) []partOf {
	if p.Sides == nil {
		return []partOf{{p.Target.Name, p}}
	}
	list := partsOf(p.Sides.Device)
	for _, part := range partsOf(p.Sides.Host) {
		if p.Sides.Peer != "" && part.plan == firstOf(p.Sides.Host) {
			part.name = p.Sides.Peer
		}
		list = append(list, part)
	}
	return list
}

func firstOf(p *plan.Plan) *plan.Plan {
	for p.Sides != nil {
		p = p.Sides.Device
	}
	return p
}

const (
	// Host is the name of the host's memory beside devices with memory of their own: that through which they are filled.
	Host = "host"
	// File is that of the files in which activations and caches wait that the CPU needs again much later.
	File = "file"
)

// file adds the files in which activations and caches wait, where there are any.
func (r *Report) file(activations, caches int64) {
	if bytes := activations + caches; bytes > 0 {
		d := Device{Name: File, HeldBytes: bytes, Storages: []Storage{}}
		d.rest(waiting, activations)
		d.rest(cachesWaiting, caches)
		r.Devices = append(r.Devices, d)
	}
}

// waiting is the purpose of bytes that hold what passes need again later.
const waiting = "activations that wait"

// cachesWaiting is the purpose of bytes that hold caches which no op has, with tables of their blocks on the way to a device.
const cachesWaiting = "caches that wait"

// cacheSlots is the purpose of bytes in which caches that wait lie while ops have them.
const cacheSlots = "slots of caches"

// decoding is the purpose of bytes through which packed files are read.
const decoding = "decoding of packed files"

// lengths is the purpose of bytes of sources that compute weights: those of adapters are the only ones.
const lengths = "row lengths of adapters"

// plannedHost is what passes take of it.
func plannedHost(p *plan.Plan) (Device, bool) {
	d := Device{Name: Host, Storages: []Storage{}}
	var staging, copies, wait, caches, rows, crossings, decode, computed int64
	for ; p != nil; p = hostSide(p) {
		staging, copies, rows = staging+p.StagingBytes+p.TransferBytes, copies+p.HostCopyBytes, rows+p.GatherBytes
		if !p.Target.Direct {
			wait += p.SwapBytes
			caches += p.WaitingBytes()
			decode += p.DecodeBytes
			computed += p.SourceBytes
		}
		if p.Sides != nil {
			crossings += p.Sides.CrossingBytes
		}
	}
	d.host(staging, copies, wait, caches, rows, crossings)
	d.rest(decoding, decode)
	d.rest(lengths, computed)
	d.HeldBytes = d.RestBytes()
	return d, len(d.Rest) > 0
}

func hostSide(p *plan.Plan) *plan.Plan {
	if p.Sides == nil {
		return nil
	}
	return p.Sides.Host
}

// host adds what a device takes of the host's memory.
func (d *Device) host(staging, copies, wait, caches, rows, crossings int64) {
	d.rest("staging", staging)
	d.rest("copies of weights", copies)
	d.rest(waiting, wait)
	d.rest(cachesWaiting, caches)
	d.rest("rows of embeddings", rows)
	d.rest("what crosses between devices", crossings)
}

// An extent is bytes of an arena that a storage takes.
type extent struct {
	Storage
	low, high int64
	at        storage.Extent
}

// fixed adds the weights that stay, and what is between them.
func (d *Device) fixed(p *plan.Plan, names Names) {
	g := p.Lowered.Graph
	list := weightsAt(g, p.Fixed.Parts, Weight)
	for i := range p.Fixed.Packed {
		c := &p.Fixed.Packed[i]
		x := extentOf(g, c.Operand.Value, Packed)
		x.UsedBytes = c.High - c.Low
		x.low, x.high = c.Offset, c.Offset+c.Pack.Bytes
		list = append(list, x)
	}
	covered := d.lay(list, names) + p.ExpertSlotBytes()
	d.rest("slots of experts", p.ExpertSlotBytes())
	stored, _ := p.Fixed.StoredBytes()
	d.rest("weights that stay compressed", stored)
	d.rest("alignment of weights that stay", p.Fixed.Bytes-covered-stored)
}

// weightsAt returns what parts of an arena the weights take that lie there. Those cut by rows have several.
func weightsAt(g *graph.Graph, parts []plan.Part, kind string) []extent {
	var list []extent
	for _, part := range parts {
		x := extentOf(g, part.Value, kind)
		x.low, x.high, x.UsedBytes = part.Offset, part.Offset+part.High-part.Low, part.High-part.Low
		list = append(list, x)
	}
	return list
}

func extentOf(g *graph.Graph, id graph.ValueID, kind string) extent {
	v := &g.Values[id]
	x := extent{Storage: Storage{
		Name: cmp.Or(v.Weight.Name, v.Name, fmt.Sprintf("value %d", id)), Kind: kind, Shape: v.Shape, DType: v.DType.String(),
	}, at: v.Weight.Extent}
	if v.Role == graph.State {
		x.Kind = State
	}
	if v.Encoding != nil {
		x.DType = v.Encoding.Name
	}
	return x
}

// lay adds storages in the order in which they lie in an arena, and returns how many bytes of it they cover. One that lies
// within another takes none by itself, and neither do other names of the same weight. Runs of one weight are one storage.
func (d *Device) lay(list []extent, names Names) int64 {
	slices.SortStableFunc(list, func(a, b extent) int { return cmp.Or(cmp.Compare(a.low, b.low), cmp.Compare(b.high, a.high)) })
	type key struct{ name, kind string }
	at := make(map[key]int)
	named := make(map[storage.Extent]bool)
	var covered, end int64
	var around string // whose bytes those up to end are
	for i := range list {
		x := &list[i]
		x.Bytes = max(x.high-max(x.low, end), 0)
		covered += x.Bytes
		if x.Bytes == 0 && x.high > x.low {
			x.SharedWith = around
		}
		if x.high > end {
			end, around = x.high, x.Name
		}
		if k, known := at[key{x.Name, x.Kind}]; known {
			s := &d.Storages[k]
			s.Bytes, s.UsedBytes = s.Bytes+x.Bytes, s.UsedBytes+x.UsedBytes
			if s.Bytes > 0 {
				s.SharedWith = ""
			}
			continue
		}
		at[key{x.Name, x.Kind}] = len(d.Storages)
		d.Storages = append(d.Storages, x.Storage)
		own := len(d.Storages) - 1
		others := !named[x.at]
		named[x.at] = true
		for _, w := range names[x.at] {
			if w.Name == x.Name {
				d.Storages[own].Shape = w.Layout.Shape // a storage itself has one dimension
			} else if others {
				other := x.Storage
				other.Name, other.Shape, other.Bytes, other.SharedWith = w.Name, w.Layout.Shape, 0, x.Name
				d.Storages = append(d.Storages, other)
			}
		}
	}
	return covered
}

// packingOf is what is taken while weights are packed: caches may be in use by then.
func packingOf(p *plan.Plan) int64 { return p.Fixed.Bytes + p.CacheBytes + p.Fixed.PackingBytes }

// caches adds those of a plan, each once whatever ops look at it.
func (d *Device) caches(p *plan.Plan) {
	for _, c := range cachesOf(p) {
		if !c.Away {
			d.cache(&p.Lowered.Graph.Values[c.Value], c.Bytes)
		}
	}
	d.rest(cacheSlots, int64(p.CacheSlots)*p.CacheSlotBytes)
}

func (d *Device) cache(v *graph.Value, bytes int64) {
	d.Storages = append(d.Storages, Storage{
		Name: v.Name, Kind: Cache, Shape: v.Shape, DType: v.DType.String(), Bytes: bytes, UsedBytes: min(v.Bytes(), bytes),
	})
}

// cachesOf lists the caches of a plan, one for each name.
func cachesOf(p *plan.Plan) []plan.Cache {
	var list []plan.Cache
	for _, c := range p.Caches {
		if !slices.ContainsFunc(list, func(x plan.Cache) bool { return x.Name == c.Name }) {
			list = append(list, c)
		}
	}
	return list
}

// constants adds those of a plan.
func (d *Device) constants(p *plan.Plan) {
	list := weightsAt(p.Lowered.Graph, p.Consts, Constant)
	d.rest("alignment of constants", p.ConstBytes-d.lay(list, nil))
}

// mostAt returns the op that finds most in use, −1 where there is none.
func mostAt(p *plan.Plan) int {
	op := -1
	var most int64
	for i, h := range p.Holdings() {
		if n := h.Total(); op < 0 || n > most {
			op, most = i, n
		}
	}
	return op
}

// peakOf says which op that is.
func peakOf(p *plan.Plan) string {
	i := mostAt(p)
	if packingOf(p) > p.PassBytes() || i < 0 {
		return "peak"
	}
	op := &p.Lowered.Graph.Ops[i]
	return fmt.Sprintf("peak, %s (%s)", cmp.Or(op.Path, "(program)"), op.Kind)
}

// duringPeak adds what passes have beside weights that stay, while the op runs that finds most in use.
func (d *Device) duringPeak(p *plan.Plan, names Names) {
	op := mostAt(p)
	g := p.Lowered.Graph
	var inSlots, alive int64
	for k := range p.Groups {
		if group := &p.Groups[k]; group.First <= op && op < group.End {
			list := weightsAt(g, group.Parts, Paged)
			inSlots = d.lay(list, names)
		}
	}
	d.rest("slots, filled ahead or free", p.RingBytes-inSlots)
	if op >= 0 {
		for _, h := range p.Holders(op) {
			s := extentOf(g, h.Value, Activation).Storage
			s.Path, s.Bytes, s.UsedBytes = h.Path, h.Bytes, g.Values[h.Value].Bytes()
			if p.Places[h.Value].Stride > 0 {
				s.UsedBytes *= int64(max(p.Instances, 1))
			}
			switch {
			case g.Values[h.Value].Role == graph.Input:
				s.Kind = Input
			case h.Name == "":
				s.Name = cmp.Or(h.Path, "(program)") + " " + string(h.Kind)
			}
			alive += h.Bytes
			d.Storages = append(d.Storages, s)
		}
	}
	d.rest("between activations", p.ActivationBytes-alive)
	d.rest("workspace", p.WorkBytes)
}
