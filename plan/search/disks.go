package search

import (
	"slices"

	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/storage"
)

// disksOf lists the disks that the weights of a graph lie on.
func disksOf(g *graph.Graph) (list []storage.Disk) {
	for i := range g.Values {
		if v := &g.Values[i]; v.Role == graph.Weight || v.Role == graph.State {
			if disk := storage.DiskOf(v.Weight.Extent.Source); !slices.Contains(list, disk) {
				list = append(list, disk)
			}
		}
	}
	slices.Sort(list)
	return list
}

// onDisks returns the options for a graph: with the rates of the disk that its weights lie on or, where these are
// several, with all of them.
func (o Options) onDisks(g *graph.Graph) Options {
	o.disks = disksOf(g)
	if len(o.disks) == 1 {
		o.Rates, o.HostRates = o.Rates.On(o.disks[0]), o.HostRates.On(o.disks[0])
	}
	if len(o.disks) < 2 {
		o.disks = nil
	}
	return o
}

// reading returns what reads take, which go on at the same time on several disks, and what they take of each of these.
func reading(r cost.Rates, disks []storage.Disk, list []plan.Span) (most float64, each []float64) {
	if len(disks) < 2 {
		return readSeconds(r, list), nil
	}
	each = make([]float64, len(disks))
	var mine []plan.Span
	for k, disk := range disks {
		mine = mine[:0]
		for _, s := range list {
			if storage.DiskOf(s.Extent.Source) == disk {
				mine = append(mine, s)
			}
		}
		if len(mine) > 0 {
			each[k] = readSeconds(r.On(disk), mine)
		}
		most = max(most, each[k])
	}
	return most, each
}

// lentSeconds returns what reading an expert takes on average, where those of a layer that lie on different disks are read at
// the same time.
func (d *draft) lentSeconds(x *lent) float64 {
	if len(d.o.disks) < 2 {
		return d.o.Rates.Reading(x.meanBytes, 1)
	}
	sums := make([]float64, len(d.o.disks))
	for e := range x.each {
		_, each := reading(d.o.Rates, d.o.disks, x.each[e].Spans)
		for k, s := range each {
			sums[k] += s
		}
	}
	return slices.Max(sums) / float64(len(x.each))
}

// A lanes sums loads, each after the one before on the same disk.
type lanes struct {
	all    float64
	byDisk []float64
}

// add adds the load of a group.
func (l *lanes) add(seconds float64, disks []float64) {
	if disks == nil {
		l.all += seconds
		return
	}
	for len(l.byDisk) < len(disks) {
		l.byDisk = append(l.byDisk, 0)
	}
	for k, s := range disks {
		l.byDisk[k] += s
	}
}

// most is what the disk takes that takes longest.
func (l *lanes) most() float64 {
	most := l.all
	for _, s := range l.byDisk {
		most = max(most, s)
	}
	return most
}
