package plan

import (
	"errors"
	"fmt"

	"github.com/optimem/optimem/layers"
)

// Sides are a device and the host's processor, each with a plan for its part of the ops.
type Sides struct {
	Device, Host *Plan
	// Whole maps each side's inputs and outputs to those of the whole graph: the device's side and the host's.
	Whole     [2]*layers.Side
	Crossings []layers.Crossing
	// CrossingBytes is the host memory that holds what crosses, for all instances.
	CrossingBytes int64
	// Segments are runs of groups on one side, in the order of execution.
	Segments []Segment
}

// A Segment is the groups [First, End) of one side's plan.
type Segment struct {
	OnHost     bool
	First, End int
}

// divided plans the groups for which onHost is true for the host's processor, within the budget of host memory, and the
// others for the device in the given mode.
func (d *draft) divided(mode Mode, onHost func(group int) bool) (*Plan, error) {
	sideOf := make([]bool, len(d.l.Graph.Ops))
	for k := range d.groups {
		for i := d.groups[k].First; i < d.groups[k].End; i++ {
			sideOf[i] = onHost(k)
		}
	}
	s := &Sides{}
	s.Whole, s.Crossings = layers.Divide(d.l.Graph, func(op int) bool { return sideOf[op] })
	var plans [2]*Plan
	for side, lower := range []func(*layers.Graph) (*layers.Lowered, error){d.o.Lower, d.o.HostLower} {
		if lower == nil {
			return nil, errors.New("BUG: no way to lower a part of the graph")
		}
		o := d.o
		o.Mode, o.HostLower, o.Like = mode, nil, nil
		if side == 1 {
			o.Mode, o.Target, o.Rates, o.MemoryBytes, o.Lower = Auto, CPU, d.o.HostRates, d.o.HostBytes, nil
		}
		lowered, err := lower(s.Whole[side].Graph)
		if err != nil {
			return nil, err
		}
		if plans[side], err = newDraft(lowered, d.groupsOf(s.Whole[side], side == 1, onHost), o).make(); err != nil {
			if side == 1 {
				err = fmt.Errorf("the part that the host computes: %w", err)
			}
			return nil, err
		}
	}
	s.Device, s.Host = plans[0], plans[1]
	return d.join(s, onHost), nil
}

// groupsOf returns the groups of one side over its own ops.
func (d *draft) groupsOf(side *layers.Side, host bool, onHost func(int) bool) []Group {
	var groups []Group
	at := 0
	for k := range d.groups {
		if onHost(k) != host {
			continue
		}
		group := Group{Path: d.groups[k].Path, First: at, End: at + d.groups[k].End - d.groups[k].First}
		for i := group.First; i < group.End; i++ {
			group.Parts = append(group.Parts, opParts(side.Graph, &side.Graph.Ops[i])...)
		}
		at = group.End
		groups = append(groups, group)
	}
	if groups == nil {
		groups = []Group{{}}
	}
	count(side.Graph, groups)
	return groups
}

// join makes one plan of two, for reports, and the segments in which they take turns.
func (d *draft) join(s *Sides, onHost func(int) bool) *Plan {
	p := *s.Device
	p.Mode, p.Lowered, p.Sides, p.Groups = d.o.Mode, d.l, s, nil
	var at [2]int
	for k := range d.groups {
		side, from := 0, s.Device
		if onHost(k) {
			side, from = 1, s.Host
		}
		group := from.Groups[at[side]]
		group.First, group.End, group.OnHost = d.groups[k].First, d.groups[k].End, side == 1
		p.Groups = append(p.Groups, group)
		if n := len(s.Segments); n > 0 && s.Segments[n-1].OnHost == group.OnHost {
			s.Segments[n-1].End++
		} else {
			s.Segments = append(s.Segments, Segment{OnHost: group.OnHost, First: at[side], End: at[side] + 1})
		}
		at[side]++
	}
	for _, c := range s.Crossings {
		s.CrossingBytes += s.Whole[1-c.From].Graph.Values[c.Input].Bytes() * int64(p.Instances)
	}
	p.crossingSeconds(d.o.Rates)
	p.forecast(d.o.Rates)
	return &p
}

// crossingSeconds adds to each segment's first group what bringing its inputs from the other side takes.
func (p *Plan) crossingSeconds(r Rates) {
	s := p.Sides
	at := 0
	for _, segment := range s.Segments {
		side, from := 0, s.Device
		if segment.OnHost {
			side, from = 1, s.Host
		}
		crosses := make(map[layers.ValueID]bool)
		for _, c := range s.Crossings {
			if c.From != side {
				crosses[c.Input] = true
			}
		}
		for k := segment.First; k < segment.End; k++ {
			for _, id := range from.Groups[k].Inputs {
				if crosses[id] {
					bytes := from.Lowered.Graph.Values[id].Bytes()
					p.Groups[at].Seconds += float64(bytes)/r.CopyBytes + r.CopySeconds
				}
			}
			at++
		}
	}
}
