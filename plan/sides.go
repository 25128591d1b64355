package plan

import (
	"slices"

	"github.com/optimem/optimem/graph"
)

// Sides are a device and the host's processor, each with a plan for its part of the ops; or a device and those that
// follow it.
type Sides struct {
	Device, Host *Plan
	// Peer names the device that Host is the plan of where that is not the host's processor.
	Peer string
	// Whole maps each side's inputs and outputs to those of the whole graph: the device's side and the host's.
	Whole     [2]*graph.Side
	Crossings []graph.Crossing
	// CrossingBytes is the host memory that holds what crosses, for all instances.
	CrossingBytes int64
	// Segments are runs of groups on one side, in the order of execution.
	Segments []Segment
	// Overlaps says that micro-batches go through both sides one after the other, so that the first side computes one
	// while the second computes the one before it. It is so where each side has one segment, the device the first, and
	// none of its groups is brought: there is no reason then to have all micro-batches pass a group before the next.
	Overlaps bool
}

// A Segment is the groups [First, End) of one side's plan: of the device's, or where OnHost is set of the other.
type Segment struct {
	OnHost     bool
	First, End int
}

// Divided reports whether a pass goes from the device to the host's processor once, so that both can compute at the
// same time if several micro-batches go through it.
func (p *Plan) Divided() bool {
	return p.Sides != nil && len(p.Sides.Segments) == 2 && !p.Sides.Segments[0].OnHost && p.Sides.Device.stays() &&
		p.Sides.Host.stays()
}

// stays reports whether a pass brings nothing.
func (p *Plan) stays() bool {
	return (len(p.Gathers) == 0 || p.Target.Direct) &&
		!slices.ContainsFunc(p.Groups, func(g Group) bool { return g.Paged() })
}

// DeviceBytes returns the memory that the plan takes on each device, in order.
func (p *Plan) DeviceBytes() []int64 {
	if p.Sides == nil || p.Sides.Peer == "" {
		return []int64{p.PeakBytes()}
	}
	return append([]int64{p.Sides.Device.PeakBytes()}, p.Sides.Host.DeviceBytes()...)
}
