package search

import (
	"cmp"
	"errors"
	"fmt"
	"math"

	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/plan"
)

// spread places the groups over the device and its peers, in order: each has a run of them, in a plan of its own. Runs
// are cut so that each device's share of the weights is that of its budget, or near there where that does not fit.
func (d *draft) spread() (*plan.Plan, error) {
	if d.o.Mode == plan.Chunk {
		return nil, errors.New("the chunk mode is for one device beside the host's processor, not for several")
	}
	if len(d.groups) < 2 {
		e := *d
		e.o.Peers = nil
		return e.make()
	}
	var least *plan.CapacityError
	for _, n := range d.cuts() {
		p, err := d.cutAt(n)
		if err == nil {
			return p, nil
		}
		var capacity *plan.CapacityError
		if !errors.As(err, &capacity) {
			return nil, err
		}
		if least == nil || capacity.MinBytes < least.MinBytes {
			least = capacity
		}
	}
	return nil, least
}

// mostCuts bounds how many cuts are planned for.
const mostCuts = 16

// cuts returns the numbers of groups that the device may have, those first of which its share of the weights is nearest
// to its share of the budgets.
func (d *draft) cuts() []int {
	own, all := float64(d.o.MemoryBytes), float64(d.o.MemoryBytes)
	limited := own > 0
	for _, p := range d.o.Peers {
		all += float64(p.MemoryBytes)
		limited = limited && p.MemoryBytes > 0
	}
	share := own / all
	if !limited {
		share = 1 / float64(len(d.o.Peers)+1)
	}
	var total, sum int64
	for i := range d.groups {
		total += d.groups[i].WeightBytes
	}
	best, nearest := 1, math.Inf(1)
	for n := 1; n < len(d.groups); n++ {
		sum += d.groups[n-1].WeightBytes
		if off := math.Abs(float64(sum) - share*float64(total)); off < nearest {
			best, nearest = n, off
		}
	}
	list := []int{best}
	for by := 1; len(list) < mostCuts && by < len(d.groups); by++ {
		for _, n := range []int{best - by, best + by} {
			if n >= 1 && n < len(d.groups) {
				list = append(list, n)
			}
		}
	}
	return list
}

// cutAt plans the first n groups for the device and the others for its peers.
func (d *draft) cutAt(n int) (*plan.Plan, error) {
	second := func(group int) bool { return group >= n }
	s, err := d.sides(second)
	if err != nil {
		return nil, err
	}
	s.Peer = cmp.Or(d.o.Peers[0].Name, "the next device")
	o := d.o
	o.HostLower, o.Like, o.asGiven = nil, nil, true
	if o.HostBytes > 0 { // each device has its share of host memory
		o.HostBytes = max((o.HostBytes-s.CrossingBytes)/int64(len(d.o.Peers)+1), 1)
	}
	own, rest := o, o
	own.Peers = nil
	rest.MemoryBytes, rest.Peers = d.o.Peers[0].MemoryBytes, d.o.Peers[1:]
	rest.HostBytes *= int64(len(d.o.Peers))
	first, err := d.side(s, 0, d.o.Lower, own, second)
	if err != nil {
		return nil, err
	}
	others, err := d.side(s, 1, d.o.Lower, rest, second)
	if err != nil {
		return nil, err
	}
	var failed error
	if s.Device, failed = first.make(); failed == nil {
		s.Host, failed = others.make()
	}
	var capacity *plan.CapacityError
	if errors.As(failed, &capacity) {
		whole := *capacity // the least budget is that with which every device has enough
		whole.MinBytes = max(capacity.MinBytes, first.minBytes())
		if len(rest.Peers) == 0 {
			whole.MinBytes = max(whole.MinBytes, others.minBytes())
		}
		return nil, &whole
	}
	if failed != nil {
		return nil, fmt.Errorf("%d groups on one device and the others on the next: %w", n, failed)
	}
	p := d.join(s, second)
	p.MinBytes = max(s.Device.MinBytes, s.Host.MinBytes)
	p.Fixed.WeightBytes += s.Host.Fixed.WeightBytes
	forecastPeers(p, d.o.Rates)
	return p, nil
}

// devicePlans returns the plans of all devices, in order.
func devicePlans(p *plan.Plan) []*plan.Plan {
	if p.Sides == nil || p.Sides.Peer == "" {
		return []*plan.Plan{p}
	}
	return append([]*plan.Plan{p.Sides.Device}, devicePlans(p.Sides.Host)...)
}

// forecastPeers expects of a pass that devices compute one after the other, while all of them load.
func forecastPeers(p *plan.Plan, r cost.Rates) {
	f := &p.Forecast
	f.ComputeSeconds, f.LoadSeconds, f.StallSeconds, f.Bound = 0, 0, 0, "compute"
	list := devicePlans(p)
	for _, q := range list {
		f.ComputeSeconds += q.Forecast.ComputeSeconds
	}
	for _, q := range list {
		stages := append(stagesOf(q, r), stage{compute: f.ComputeSeconds - q.Forecast.ComputeSeconds})
		_, stalls := new(simulation).run(stages)
		f.StallSeconds += stalls
		if q.Forecast.LoadSeconds > f.LoadSeconds {
			f.LoadSeconds = q.Forecast.LoadSeconds
			if f.LoadSeconds > f.ComputeSeconds {
				f.Bound = q.Forecast.Bound // it loads longer than it computes
			}
		}
	}
	f.Seconds = f.ComputeSeconds + f.StallSeconds
	if p.Sides.Overlaps {
		f.Seconds = overlapped(p)
	}
}
