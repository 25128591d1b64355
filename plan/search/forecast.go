package search

import (
	"slices"

	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/plan"
)

// stagesOf returns the groups as a simulation sees them.
func stagesOf(p *plan.Plan, r cost.Rates) []stage {
	list := make([]stage, len(p.Groups))
	for i := range p.Groups {
		group := &p.Groups[i]
		list[i] = stage{
			paged: group.Paged() && !group.OnHost, after: group.After,
			load: group.LoadSeconds, compute: group.Seconds * float64(p.Instances),
			disks: group.DiskSeconds,
		}
		if list[i].paged {
			list[i].copy(cachedSeconds(r, p.Target, group))
		}
	}
	return list
}

// copy says that so much of the load is copied out of the host's memory, by the processors that the ops wait for.
func (s *stage) copy(seconds float64) {
	if s.disks != nil && s.load > 0 {
		left := max(s.load-seconds, 0) / s.load
		s.disks = slices.Clone(s.disks)
		for k := range s.disks {
			s.disks[k] *= left
		}
	}
	s.load = max(s.load-seconds, 0)
	s.compute += seconds
}

// overlapped is what a pass takes whose sides compute at the same time: the first micro-batch goes through both, and
// for each of the others the slowest side is waited for.
func overlapped(p *plan.Plan) float64 {
	sides := make(map[int]float64) // by the device's number, the host's processor as −1
	var sum, slowest float64
	for i := range p.Groups {
		group := &p.Groups[i]
		side := group.Device
		if group.OnHost {
			side = -1
		}
		sides[side] += group.Seconds
		sum += group.Seconds
		slowest = max(slowest, sides[side])
	}
	return sum + float64(p.Instances-1)*slowest
}

// forecastHost adds how long the host's processor, with such rates, waits for weights that do not stay in its memory:
// it reads them while the device computes, too.
func forecastHost(p *plan.Plan, r cost.Rates) {
	host, f := p.Sides.Host, &p.Forecast
	if host.MovedBytes == 0 {
		return
	}
	stages := append(stagesOf(host, r), stage{compute: f.Seconds - host.Forecast.ComputeSeconds})
	sim := simulation{fitful: host.Target.Direct, slower: farShare(host.Target, host.RingBytes)}
	_, host.Forecast.StallSeconds = sim.run(stages)
	f.StallSeconds += host.Forecast.StallSeconds
	f.Seconds += host.Forecast.StallSeconds
	if n := host.Forecast.LoadSeconds; n > f.LoadSeconds {
		f.LoadSeconds = n
		if n > f.ComputeSeconds {
			f.Bound = "disk"
		}
	}
}

func forecast(p *plan.Plan, r cost.Rates) {
	f := plan.Forecast{Bound: "compute", Measured: r.Measured}
	fromDisk, copied := false, 0.0
	var load lanes
	for i := range p.Groups {
		group := &p.Groups[i]
		f.ComputeSeconds += group.Seconds * float64(p.Instances)
		f.SwapSeconds += group.SwapSeconds * float64(p.Instances)
		f.AgainSeconds += group.AgainSeconds * float64(p.Instances)
		if group.Paged() && !group.OnHost {
			load.add(group.LoadSeconds, group.DiskSeconds)
			copied += cachedSeconds(r, p.Target, group)
			fromDisk = fromDisk || !group.Decoded && (p.Target.Direct || !group.Copied)
		}
	}
	slower := farShare(p.Target, p.RingBytes)
	f.LoadSeconds = load.most()
	f.LoadSeconds = copied + (f.LoadSeconds-copied)*(1+slower)
	sim := simulation{fitful: p.Target.Direct, slower: slower}
	f.Seconds, f.StallSeconds = sim.run(stagesOf(p, r))
	if p.Sides != nil && p.Sides.Overlaps {
		f.Seconds = overlapped(p)
	}
	f.LeastSeconds = max(f.ComputeSeconds+copied, f.LoadSeconds-copied)
	if f.LoadSeconds-copied > f.ComputeSeconds+copied {
		f.Bound = "transfer"
		if fromDisk {
			f.Bound = "disk"
		}
	}
	p.Forecast = f
	addReads(p)
}
