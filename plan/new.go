package plan

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/tensor"
)

// New plans a pass over a graph. It fails with a [*CapacityError] where the budget is too small.
func New(l *layers.Lowered, o Options) (*Plan, error) {
	if o.Ops == nil {
		o.Ops = layers.Standard()
	}
	o.Rates, o.HostRates = o.Rates.withGuesses(), o.HostRates.withGuesses()
	o.Instances = max(o.Instances, 1)
	o.Slots = max(o.Slots, 0)
	if o.Slots == 0 {
		o.Slots = 4
	}
	if o.Target.AlignBytes == 0 {
		o.Target = CPU
	}
	if o.Instances > 1 && len(l.Graph.Updates) > 0 {
		return nil, fmt.Errorf("a program that changes buffers takes its inputs one after the other, not %d at once", o.Instances)
	}
	if err := check(l.Graph); err != nil {
		return nil, err
	}
	d := newDraft(l, cut(l.Graph, o.MaxGroup), o)
	if p := d.like(); p != nil {
		return p, nil
	}
	return d.make()
}

// make plans in the mode asked for.
func (d *draft) make() (*Plan, error) {
	switch d.o.Mode {
	case Resident:
		return d.resident()
	case Page:
		return d.page()
	case Chunk:
		return d.chunk()
	case Auto, "":
		return d.auto()
	}
	return nil, fmt.Errorf("no mode is called %q", d.o.Mode)
}

// check returns an error for a graph whose bytes cannot be counted.
func check(g *layers.Graph) error {
	var sum int64
	for _, v := range g.Values {
		n, err := v.Shape.NumElements()
		if err != nil {
			return fmt.Errorf("value %s: %w", v.Name, err)
		}
		bytes, ok := tensor.MulBytes(n, int64(v.DType.Size()))
		if sum += bytes; !ok || sum < 0 || sum > 1<<60 {
			return fmt.Errorf("value %s: %v of %v takes more bytes than can be", v.Name, v.Shape, v.DType)
		}
	}
	return nil
}

// A draft is a plan being made.
type draft struct {
	o      Options
	l      *layers.Lowered
	groups []Group
	// always are the parts that stay in every mode: states, constants, weights that go out as they are.
	always []Part
	// base is a plan with nothing decided about weights: its activations and scratch memory do not depend on that.
	base Plan
	// alwaysBytes is what they take.
	alwaysBytes int64
	// slots are the bytes that each group takes in a ring.
	slots []int64
}

func alignedBytes(parts []Part, align int64) int64 {
	var n int64
	for _, p := range parts {
		n += alignUp(p.High-p.Low, align)
	}
	return n
}

// newDraft places what does not depend on where weights are.
func newDraft(l *layers.Lowered, groups []Group, o Options) *draft {
	d := &draft{o: o, l: l, groups: groups}
	g := d.l.Graph
	d.base = Plan{Mode: d.o.Mode, Target: d.o.Target, Lowered: d.l, Instances: d.o.Instances}
	d.base.Groups = d.groups
	d.base.ActivationBytes = d.base.activations()
	for _, s := range d.l.Steps {
		d.base.WorkBytes = max(d.base.WorkBytes, alignUp(s.WorkBytes, d.o.Target.AlignBytes))
	}
	seconds := d.o.Rates.graphSeconds(g, d.o.Ops)
	for i := range d.groups {
		group := &d.groups[i]
		for _, s := range seconds[group.First:group.End] {
			group.Seconds += s
		}
	}
	wanted := make(map[layers.ValueID]bool)
	for _, o := range g.Outputs {
		wanted[o.Operand.Value] = true
	}
	for _, u := range g.Updates {
		wanted[u.Operand.Value] = true
	}
	for id, v := range g.Values {
		if v.Role == layers.State || v.Role == layers.Weight && wanted[layers.ValueID(id)] {
			if n := v.Bytes(); n > 0 {
				d.always = append(d.always, Part{Value: layers.ValueID(id), High: n})
			}
		}
	}
	d.alwaysBytes = d.fixedBytes(func(int) bool { return false })
	d.slots = make([]int64, len(d.groups))
	for i := range d.groups {
		d.slots[i] = d.slotBytes(slices.Clone(d.groups[i].Parts))
	}
	return d
}

// slotBytes returns what parts take in a slot, and gives them their offsets there.
func (d *draft) slotBytes(parts []Part) int64 {
	if d.o.Target.Direct {
		_, n := spans(d.l.Graph, parts, 0)
		return n
	}
	return alignedBytes(parts, d.o.Target.AlignBytes)
}

// plan completes a plan in which the given groups' weights are fixed and the others go through a ring of the given size,
// with slots that do not overlap those of the depth groups before. It returns nil where a slot is larger than the ring.
func (d *draft) plan(fixed func(group int) bool, ringBytes int64, depth int) *Plan {
	g := d.l.Graph
	p := d.base
	p.Groups = slices.Clone(d.groups)
	held := d.held(p.Groups, fixed)
	p.fix(g, held)
	var visits []visit
	for i := range p.Groups {
		group := &p.Groups[i]
		group.Parts = slices.DeleteFunc(slices.Clone(group.Parts), func(part Part) bool {
			h, ok := held[part.Value]
			return ok && h.Low <= part.Low && part.High <= h.High
		})
		if !group.Paged() {
			continue
		}
		p.slot(group, d.o.Rates)
		visits = append(visits, visit{bytes: group.SlotBytes, group: i})
	}
	if len(visits) > 0 {
		if !ring(visits, ringBytes, depth) {
			return nil
		}
		p.RingBytes = 0
		for _, v := range visits {
			group := &p.Groups[v.group]
			group.SlotOffset, group.After = v.offset, v.after
			p.RingBytes = max(p.RingBytes, v.offset+v.bytes)
			p.MovedBytes += v.bytes
		}
	}
	if !p.Target.Direct {
		p.stage(d.o)
	}
	p.forecast(d.o.Rates)
	return &p
}

// held returns what stays when the given groups do.
func (d *draft) held(groups []Group, fixed func(group int) bool) map[layers.ValueID]Part {
	held := make(map[layers.ValueID]Part)
	for i := range groups {
		if !fixed(i) {
			continue
		}
		for _, part := range groups[i].Parts {
			if h, ok := held[part.Value]; ok {
				part.Low, part.High = min(part.Low, h.Low), max(part.High, h.High)
			}
			held[part.Value] = part
		}
	}
	for _, part := range d.always {
		held[part.Value] = part
	}
	return held
}

// fix lays out the weights that stay, and the constants.
func (p *Plan) fix(g *layers.Graph, held map[layers.ValueID]Part) {
	var parts []Part
	p.Consts, p.ConstBytes = nil, 0
	for id, v := range g.Values {
		if v.Role == layers.Const && len(v.Const) > 0 {
			n := int64(len(v.Const))
			p.Consts = append(p.Consts, Part{Value: layers.ValueID(id), High: n, Offset: p.ConstBytes})
			p.ConstBytes += alignUp(n, p.Target.AlignBytes)
		}
		part, ok := held[layers.ValueID(id)]
		if !ok {
			continue
		}
		parts = append(parts, part)
		p.Fixed.WeightBytes += part.High - part.Low
		p.Fixed.Params += (part.High - part.Low) / int64(g.Values[id].DType.Size())
	}
	if p.Target.Direct {
		p.Fixed.Spans, p.Fixed.Bytes = spans(g, parts, 0)
	} else {
		p.Fixed.Spans, _ = staged(g, parts)
		for i := range parts {
			parts[i].Offset = p.Fixed.Bytes
			p.Fixed.Bytes += alignUp(parts[i].High-parts[i].Low, p.Target.AlignBytes)
		}
	}
	p.Fixed.Parts = parts
}

// staged finds the reads that bring parts into host memory, on the way to a device that cannot be read into, and gives
// each part its place there.
func staged(g *layers.Graph, parts []Part) ([]Span, int64) {
	shadow := slices.Clone(parts)
	list, n := spans(g, shadow, 0)
	for i := range parts {
		parts[i].Staged = shadow[i].Offset
	}
	return list, n
}

// slot lays out a group in its slot.
func (p *Plan) slot(group *Group, r Rates) {
	g := p.Lowered.Graph
	if p.Target.Direct {
		group.Spans, group.SlotBytes = spans(g, group.Parts, 0)
		group.LoadSeconds = float64(group.SlotBytes)/r.DiskBytes + float64(len(group.Spans))*r.ReadSeconds
		return
	}
	group.Spans, _ = staged(g, group.Parts)
	group.SlotBytes = 0
	for i := range group.Parts {
		group.Parts[i].Offset = group.SlotBytes
		group.SlotBytes += alignUp(group.Parts[i].High-group.Parts[i].Low, p.Target.AlignBytes)
	}
	group.LoadSeconds = float64(group.SlotBytes)/r.CopyBytes + float64(len(group.Parts))*r.CopySeconds
}

// stagedBytes returns what a group's spans take in host memory.
func (g *Group) stagedBytes() int64 { return spanBytes(g.Spans) }

func spanBytes(list []Span) int64 {
	var n int64
	for _, s := range list {
		n += s.Extent.Bytes
	}
	return n
}

const (
	// stagingBytes is the least host memory through which weights that stay are brought to a device.
	stagingBytes = 16 << 20
	// stagingSlots is how many groups may be in host memory on their way.
	stagingSlots = 2
)

// stage decides which paged groups keep a copy in host memory: as many as there is room for, spread over the pass, so
// that the disk has time for the others.
func (p *Plan) stage(o Options) {
	var total, largest int64
	for i := range p.Groups {
		if group := &p.Groups[i]; group.Paged() {
			total += group.stagedBytes()
		}
	}
	room := o.HostBytes
	if room == 0 {
		room = total + stagingBytes
	}
	if fixedBytes := spanBytes(p.Fixed.Spans); fixedBytes > 0 {
		p.StagingBytes = min(stagingBytes, fixedBytes)
	}
	if total <= room-p.StagingBytes {
		for i := range p.Groups {
			p.Groups[i].keepCopy(p)
		}
		return
	}
	for i := range p.Groups {
		largest = max(largest, p.Groups[i].stagedBytes())
	}
	p.StagingBytes = max(p.StagingBytes, stagingSlots*largest)
	share := float64(max(room-p.StagingBytes, 0)) / float64(total)
	var due float64
	for i := range p.Groups {
		group := &p.Groups[i]
		if !group.Paged() {
			continue
		}
		n := group.stagedBytes()
		if due += float64(n) * share; due >= float64(n) && p.HostCopyBytes+n <= room-p.StagingBytes {
			due -= float64(n)
			group.keepCopy(p)
			continue
		}
		group.LoadSeconds = max(group.LoadSeconds,
			float64(n)/o.Rates.DiskBytes+float64(len(group.Spans))*o.Rates.ReadSeconds)
	}
}

// keepCopy gives a paged group a place in host memory.
func (g *Group) keepCopy(p *Plan) {
	if g.Paged() {
		g.Copied, g.CopyOffset = true, p.HostCopyBytes
		p.HostCopyBytes += g.stagedBytes()
	}
}
