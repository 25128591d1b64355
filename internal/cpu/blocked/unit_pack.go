package blocked

import (
	"unsafe"

	"github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/internal/cpu/tasks"
	"github.com/optimem/optimem/tensor"
)

// Pack writes weights in the form that Run reads fastest. Weights of a whole number of panels are packed as these.
func (u *UnitConv) Pack(pool Pool, w Weight, packed []float32) {
	size := u.pieceFloats()
	panels := len(packed) / size
	tasks.Do(pool, panels, 1, packUnit{u: u, w: w, packed: packed})
}

// packUnit is packing panels of weights from one on.
type packUnit struct {
	u      *UnitConv
	w      Weight
	first  int
	packed []float32
}

// Run implements tasks.Task.
func (t *packUnit) Run(from, to int) {
	size := t.u.pieceFloats()
	t.u.pack(t.w, t.first+from, t.first+to, halvesOf(t.packed[from*size:to*size]))
}

// pack writes panels [from, to): dst[step][k/2][output channel][k%2], where k is an input channel of the step's block or, of
// planes, four channels of each of its taps.
func (u *UnitConv) pack(w Weight, from, to int, dst []uint16) {
	size := 2 * u.pieceFloats()
	taps := u.KernelH * u.KernelW
	shell := &Conv{Geometry: u.Geometry, set: &kernel.ConvSet{Vectors: u.set.Vectors}}
	s := newStaging(taps, UnitLanes)
	defer stagings.Put(s)
	for p := from; p < to; p++ {
		first := p * UnitLanes
		outputs := min(UnitLanes, w.Layout.Shape[0]-first)
		panel := dst[(p-from)*size:][:size]
		if u.Planar || u.In%UnitLanes != 0 {
			clear(panel)
		}
		// Weights come as [input channel][tap][output channel], sixteen channels at a time.
		for in := 0; in < u.In; in += Lanes {
			inputs := min(Lanes, u.In-in)
			s.load(shell, w, UnitLanes, first, outputs, in, inputs)
			if u.Planar {
				u.packPlanes(*s, panel)
				continue
			}
			if taps == 1 && u.set.Vectors != nil {
				u.set.Vectors.PairUp(Lanes, *s, words(panel[in*UnitLanes:][:Lanes*UnitLanes]))
				continue
			}
			for tap := range taps {
				to := panel[((in/UnitLanes*taps+tap)*UnitLanes+in%UnitLanes)*UnitLanes:]
				for i := 0; i < Lanes; i += 2 {
					var rows [2 * UnitLanes]float32
					copy(rows[:UnitLanes], (*s)[(i*taps+tap)*UnitLanes:])
					copy(rows[UnitLanes:], (*s)[((i+1)*taps+tap)*UnitLanes:][:UnitLanes])
					pairUp(u.set, rows[:], words(to[i*UnitLanes:][:2*UnitLanes]))
				}
			}
		}
	}
}

// packPlanes writes the weights of planes.
func (u *UnitConv) packPlanes(s staging, panel []uint16) {
	taps := u.KernelH * u.KernelW
	for c := range u.In {
		for tap := range taps {
			ky, kx := tap/u.KernelW, tap%u.KernelW
			k := kx%u.chunk*planarLanes + c
			to := panel[((ky*u.chunks+kx/u.chunk)*UnitLanes+k&^1)*UnitLanes:]
			for lane, v := range s[(c*taps+tap)*UnitLanes:][:UnitLanes] {
				to[2*lane+k&1] = tensor.BFloat16FromFloat32(v)
			}
		}
	}
}

// pairUp rounds two rows of 32 floats and puts their elements side by side.
func pairUp(set *kernel.UnitSet, rows []float32, dst []uint32) {
	if set.Vectors != nil {
		set.Vectors.PairUp(2, rows, dst)
		return
	}
	for i := range dst {
		low, high := tensor.BFloat16FromFloat32(rows[i]), tensor.BFloat16FromFloat32(rows[UnitLanes+i])
		dst[i] = uint32(high)<<16 | uint32(low)
	}
}

// words returns the memory of halves as pairs of them.
func words(x []uint16) []uint32 {
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(x))), len(x)/2)
}
