package search

import (
	"errors"
	"fmt"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
)

// sides divides the graph: the groups for which second is true are the second side's. Neither side is planned yet.
func (d *draft) sides(second func(group int) bool) (*plan.Sides, error) {
	if d.o.Lower == nil {
		return nil, errors.New("BUG: no way to lower a part of the graph")
	}
	sideOf := onHostOps(d.groups, len(d.l.Graph.Ops), second)
	if err := cachesApart(d.l.Graph, sideOf); err != nil {
		return nil, err
	}
	s := &plan.Sides{}
	s.Whole, s.Crossings = graph.Divide(d.l.Graph, func(op int) bool { return sideOf[op] })
	for _, c := range s.Crossings {
		s.CrossingBytes += s.Whole[1-c.From].Graph.Values[c.Input].Bytes() * int64(d.o.Instances)
	}
	return s, nil
}

// cachesApart returns an error where ops of both sides have a cache in common, which only one side can have.
func cachesApart(g *graph.Graph, sideOf []bool) error {
	side := make(map[string]bool)
	for i := range g.Ops {
		for k, o := range g.Ops[i].In {
			if !g.Ops[i].Kind.Writes(k) || o.Value == graph.NoValue {
				continue
			}
			name := g.Values[o.Value].Name
			if other, known := side[name]; known && other != sideOf[i] {
				return fmt.Errorf("%s: %w: cache %s is in the memory of one device, and ops of two have it in common",
					g.Ops[i].Path, graph.ErrUnsupported, name)
			}
			side[name] = sideOf[i]
		}
	}
	return nil
}

// divided plans the groups for which onHost is true for the host's processor, within the budget of host memory, and the
// others for the device, in the given mode, or as make does.
func (d *draft) divided(
	mode plan.Mode, make func(*draft, *plan.Sides) *plan.Plan, onHost func(group int) bool,
) (*plan.Plan, error) {
	s, err := d.sides(onHost)
	if err != nil {
		return nil, err
	}
	o := d.o
	o.asGiven = true
	o.Mode, o.Target, o.Rates, o.HostLower, o.Like, o.HostOps = plan.Auto, plan.CPU, d.o.HostRates, nil, nil, nil
	o.MemoryBytes, o.HostBytes, o.SwapBytes, o.CachesAway = 0, 0, 0, false
	if d.o.HostBytes > 0 {
		o.MemoryBytes = max(d.o.HostBytes-s.CrossingBytes-d.base.WaitingBytes()-leastStagingBytes, 1)
	}
	host, err := d.side(s, 1, d.o.HostLower, o, onHost)
	if err == nil {
		s.Host, err = host.make()
	}
	if err != nil {
		return nil, fmt.Errorf("the part that the host computes: %w", err)
	}
	o = d.o
	o.asGiven = true
	o.Mode, o.HostLower, o.Like, o.HostOps = mode, nil, nil, nil
	if o.HostBytes > 0 {
		o.HostBytes = max(o.HostBytes-s.CrossingBytes-s.Host.PeakBytes(), 1)
	}
	device, err := d.side(s, 0, d.o.Lower, o, onHost)
	if err != nil {
		return nil, err
	}
	if make != nil {
		s.Device = make(device, s)
	} else {
		s.Device, err = device.make()
	}
	if err != nil || s.Device == nil {
		return nil, err
	}
	return d.join(s, onHost), nil
}

func onHostOps(groups []plan.Group, ops int, onHost func(int) bool) []bool {
	sideOf := make([]bool, ops)
	for k := range groups {
		for i := groups[k].First; i < groups[k].End; i++ {
			sideOf[i] = onHost(k)
		}
	}
	return sideOf
}

// side drafts one side of a plan. Its groups are those of the whole.
func (d *draft) side(
	s *plan.Sides, side int, lower func(*graph.Graph) (*graph.Lowered, error), o Options, onHost func(int) bool,
) (*draft, error) {
	o.tables = d.tablesOf(s.Whole[side])
	lowered, err := lowerWith(lower, s.Whole[side].Graph, o.tables)
	if err != nil {
		return nil, err
	}
	e := newDraft(lowered, d.groupsOf(s.Whole[side], side == 1, onHost), o, nil)
	e.whole = true
	return e, nil
}

// groupsOf returns the groups of one side over its own ops.
func (d *draft) groupsOf(side *graph.Side, host bool, onHost func(int) bool) []plan.Group {
	var groups []plan.Group
	at := 0
	for k := range d.groups {
		if onHost(k) != host {
			continue
		}
		group := sameModule(&d.groups[k], at, at+d.groups[k].End-d.groups[k].First)
		group.FirstRow, group.EndRow, group.Joined = d.groups[k].FirstRow, d.groups[k].EndRow, slices.Clone(d.groups[k].Joined)
		for i := group.First; i < group.End; i++ {
			group.Parts = append(group.Parts, plan.OpParts(side.Graph, &side.Graph.Ops[i])...)
		}
		at = group.End
		groups = append(groups, group)
	}
	if groups == nil {
		groups = []plan.Group{{}}
	}
	count(side.Graph, groups)
	return groups
}

// join makes one plan of two, for reports, and the segments in which they take turns.
func (d *draft) join(s *plan.Sides, onHost func(int) bool) *plan.Plan {
	p := *s.Device
	p.Mode, p.Lowered, p.SplitBytes, p.Cuts, p.Sides, p.Groups = d.o.Mode, d.l, d.base.SplitBytes, d.base.Cuts, s, nil
	var at [2]int
	for k := range d.groups {
		side, from := 0, s.Device
		if onHost(k) {
			side, from = 1, s.Host
		}
		group := from.Groups[at[side]]
		group.First, group.End, group.OnHost = d.groups[k].First, d.groups[k].End, side == 1
		if s.Peer != "" {
			group.OnHost, group.Device = false, group.Device+side
		}
		p.Groups = append(p.Groups, group)
		if n := len(s.Segments); n > 0 && s.Segments[n-1].OnHost == (side == 1) {
			s.Segments[n-1].End++
		} else {
			s.Segments = append(s.Segments, plan.Segment{OnHost: side == 1, First: at[side], End: at[side] + 1})
		}
		at[side]++
	}
	p.Tied = nil
	for _, t := range d.tied {
		for _, own := range s.Device.Tied {
			if own.Value == s.Whole[0].Values[t.Value] {
				t.Moves = own.Moves
			}
		}
		p.Tied = append(p.Tied, t)
	}
	p.MovedBytes = s.Device.MovedBytes + s.Host.MovedBytes
	s.Overlaps = d.o.Instances > 1 && p.Divided()
	forecast(&p, d.o.Rates)
	if s.Peer == "" {
		forecastHost(&p, d.o.HostRates)
	}
	return &p
}
