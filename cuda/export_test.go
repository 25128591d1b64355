package cuda

import (
	"slices"

	"github.com/optimem/optimem/cuda/internal/arrange"
	"github.com/optimem/optimem/cuda/kernels"
	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/sysmem"
)

// OnHost has GPUs be at the NUMA nodes of another host, and calls took with the node that page-locked memory is taken
// of, until it is undone.
func OnHost(t sysmem.Topology, took func(node int)) (undo func()) {
	host, before := topology, near
	topology = func() sysmem.Topology { return t }
	near = func(node int, f func() error) error {
		took(node)
		return before(node, f)
	}
	return func() { topology, near = host, before }
}

// Prepared is [Device.Prepare] that returns when everything is loaded.
func (d *Device) Prepared(l *graph.Lowered) {
	d.Prepare(l)
	d.preparing.Wait()
}

// LoadKernel loads a kernel.
func (d *Device) LoadKernel(name string) error {
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	_, err := d.function(name)
	return err
}

// LoadKernels loads every kernel, for which the driver compiles each family of them.
func (d *Device) LoadKernels() error {
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	for _, name := range kernels.Names() {
		if _, err := d.function(name); err != nil {
			return err
		}
	}
	return nil
}

// EnoughThreads sets how many threads have work before one takes more of it, and returns how many it were.
func (d *Device) EnoughThreads(n int64) int64 {
	before := d.enough
	d.enough = n
	return before
}

// FarFrom sets from which number on quotients are divisions, and returns from which on they were.
func (d *Device) FarFrom(n int64) int64 {
	before := d.far
	d.far = n
	return before
}

// OnlyConvBlocks leaves one of the sizes of blocks that convolutions on tensor cores have, until it is undone.
func OnlyConvBlocks(i int) (undo func()) {
	all := convBlocks
	convBlocks = all[i : i+1]
	return func() { convBlocks = all }
}

// OnlyTensorBlocks leaves one of the sizes of blocks that products on tensor cores have, until it is undone.
func OnlyTensorBlocks(i int) (undo func()) {
	all := tensorBlocks
	tensorBlocks = all[i : i+1]
	return func() { tensorBlocks = all }
}

// OnlyFloatBlocks leaves one of the sizes of blocks that exact products of float32 have, until it is undone.
func OnlyFloatBlocks(i int) (undo func()) {
	all := floatBlocks
	floatBlocks = all[i : i+1]
	return func() { floatBlocks = all }
}

// OnlyWeightBlocks leaves one of the sizes of blocks of those whose weight is narrow, until it is undone.
func OnlyWeightBlocks(i int) (undo func()) {
	all := weightBlocks
	weightBlocks = all[i : i+1]
	return func() { weightBlocks = all }
}

// AnyChannels has tensor cores compute convolutions of groups with however few outputs, until it is undone.
func AnyChannels() (undo func()) {
	before := leastTensorChannels
	leastTensorChannels = 1
	return func() { leastTensorChannels = before }
}

// Blocks launches a kernel by so many blocks.
func Blocks(to device.Stream, x, y, z int64) error {
	s := to.(*stream)
	l := launch{s: s}
	return s.start(l.call("om_gather_1"), dims{x, y, z}, dims{1, 1, 1}, 0)
}

// ArrangeAll is Arrange that takes every region.
func ArrangeAll(g *graph.Graph) *graph.Graph { return arrange.Graph(g, arranging, true) }

// AttendingFrom sets from how many heads of rows on attention over caches has one block for each, until it is undone.
func AttendingFrom(n int64) (undo func()) {
	before := enoughAttending
	enoughAttending = n
	return func() { enoughAttending = before }
}

// BLASFrom has cuBLASLt compute products on tensor cores of as many multiplications, rows and columns, on the GPUs for which it does so
// without being asked, until it is undone.
func BLASFrom(from, side int64) (undo func()) {
	before := blasRows
	blasRows = slices.Clone(before)
	for i := range blasRows {
		blasRows[i].from, blasRows[i].side = from, side
	}
	return func() { blasRows = before }
}

// FamiliesEach returns the families of the kernels that each op of a graph launches.
func (d *Device) FamiliesEach(l *graph.Lowered) [][]string {
	var each [][]string
	for i := range l.Graph.Ops {
		one := *l.Graph
		one.Ops = l.Graph.Ops[i : i+1]
		each = append(each, d.familiesOf(&graph.Lowered{Graph: &one, Steps: l.Steps[i : i+1]}))
	}
	return each
}

// MostLoading is how many families are loaded at the same time, at most.
const MostLoading = mostLoading

// ExpertsFloats sets how much experts give at a time, until it is undone.
func ExpertsFloats(n int) (undo func()) {
	before := expertsFloats
	expertsFloats = n
	return func() { expertsFloats = before }
}

// HopperFrom has GPUs that have wgmma compute linears by it from as many rows on, and where rows are alone from as many columns on,
// until it is undone.
func HopperFrom(rows, alone int64) (undo func()) {
	r, c, a := leastHopperRows, leastHopperColumns, leastHopperAlone
	leastHopperRows, leastHopperColumns, leastHopperAlone = rows, 1, alone
	return func() { leastHopperRows, leastHopperColumns, leastHopperAlone = r, c, a }
}

// HopperConvsFrom has GPUs that have wgmma compute convolutions by it from as many outputs and pixels on, until it is undone.
func HopperConvsFrom(outputs, pixels int64) (undo func()) {
	o, p := leastHopperOutputs, leastHopperPixels
	leastHopperOutputs, leastHopperPixels = outputs, pixels
	return func() { leastHopperOutputs, leastHopperPixels = o, p }
}

// HopperConvKernel is what reports call convolutions that are computed by wgmma.
const HopperConvKernel = hopperConvKernel

// HopperKernel is what reports call linears that are computed by wgmma.
const HopperKernel = hopperKernel

// OnlyHopperBlocks leaves one of the sizes of blocks that linears by wgmma have, until it is undone.
func OnlyHopperBlocks(i int) (undo func()) {
	all := hopperBlocks
	hopperBlocks = all[i : i+1]
	return func() { hopperBlocks = all }
}
