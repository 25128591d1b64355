package kernel

import (
	"math"
	"unsafe"
)

// unitGo is the kernels in Go.
var unitGo = &UnitSet{
	Name: "go", Speed: 1, conv: unitConvGo, max: unitMaxGo, narrow: unitNarrowGo, widen: unitWidenGo,
	gather: unitGatherGo,
	weigh:  unitWeighGo, pairRows: unitPairRowsGo,
}

// halves returns n halves that begin a number of bytes behind a pointer.
func halves(p *uint16, bytes, n int) []uint16 { return unsafe.Slice(move16(p, bytes), n) }

// unitFloat returns a bfloat16 as a matrix unit reads it: denormals are zero.
func unitFloat(h uint16) float32 {
	if h&0x7f80 == 0 {
		h &= 0x8000
	}
	return math.Float32frombits(uint32(h) << 16)
}

// unitHalf rounds to bfloat16, to nearest with ties to even; denormals are zero.
func unitHalf(v float32) uint16 {
	b := math.Float32bits(v)
	switch {
	case v != v:
		return uint16(b>>16) | 0x40
	case b&0x7f800000 == 0:
		return uint16(b >> 16 & 0x8000)
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// fused is a·b + c, rounded once where that is what rounding twice gives, which is nearly everywhere.
func fused(a, b, c float32) float32 { return float32(float64(a)*float64(b) + float64(c)) }

func unitConvGo(t *UnitTile) {
	for block := range t.Blocks {
		for tile, rows := range t.rows {
			for p := range rows {
				t.pixel(block, tile, p)
			}
		}
	}
}

// pixel computes the channels of a pixel.
func (t *UnitTile) pixel(block, tile, p int) {
	var sums [UnitColumns]float32
	for step, offset := range unsafe.Slice(t.Offsets, t.Steps) {
		x := halves(t.X, offset+block*t.XBlock+tile*t.XSecond+p*t.XPixel, UnitDepth)
		w := halves(t.W, step*2*UnitDepth*UnitColumns, UnitDepth*UnitColumns)
		for o := range sums {
			var even, odd float32
			for k := 0; k < UnitDepth; k += 2 {
				even = fused(unitFloat(x[k]), unitFloat(w[k*UnitColumns+2*o]), even)
				odd = fused(unitFloat(x[k+1]), unitFloat(w[k*UnitColumns+2*o+1]), odd)
			}
			sums[o] += even + odd
		}
	}
	y := block*t.YBlock + tile*t.YSecond + 64*p
	scale, shift := at(t.Scale, 0, UnitColumns), at(t.Shift, 0, UnitColumns)
	if t.Wide != 0 && t.Keep == 0 {
		t.wide(sums[:], block*t.YBlock+tile*t.YSecond+p*t.YPixel)
		return
	}
	for o := range sums {
		sums[o] = fused(sums[o], scale[o], shift[o])
		if t.Residual != nil {
			sums[o] += math.Float32frombits(uint32(halves(t.Residual, y, UnitColumns)[o]) << 16)
		}
	}
	if t.Keep != 0 {
		copy(at(t.Sums, 4*(block*UnitSums+(tile*UnitPixels+p)*UnitColumns), UnitColumns), sums[:])
		return
	}
	for o, v := range sums {
		if v < t.Low {
			v = t.Low
		}
		if v > t.High {
			v = t.High
		}
		if t.Mask>>o&1 == 0 {
			v = 0
		}
		halves(t.Y, y, UnitColumns)[o] = unitHalf(v)
	}
}

// wide finishes the sums of a pixel as float32, which begins a number of bytes behind y.
func (t *UnitTile) wide(sums []float32, y int) {
	for o, v := range sums {
		if t.Mask>>o&1 == 0 {
			continue
		}
		v = fused(v, *at1(t.Scale, o), *at1(t.Shift, o))
		if t.Residual != nil {
			v += *(*float32)(unsafe.Pointer(move16(t.Residual, y+4*o)))
		}
		if v < t.Low {
			v = t.Low
		}
		if v > t.High {
			v = t.High
		}
		*(*float32)(unsafe.Pointer(move16(t.Y, y+4*o))) = v
	}
}

// at1 returns a float behind a pointer.
func at1(p *float32, i int) *float32 { return &at(p, 4*i, 1)[0] }

func unitMaxGo(r *UnitRow) {
	for p := range r.Pixels {
		var largest [UnitColumns]float32
		for o := range largest {
			largest[o] = float32(math.Inf(-1))
		}
		for _, offset := range unsafe.Slice(r.Offsets, r.Taps) {
			for o, h := range halves(r.X, offset+p*r.XPixel, UnitColumns) {
				if v := math.Float32frombits(uint32(h) << 16); v > largest[o] || v != v {
					largest[o] = v
				}
			}
		}
		for o, h := range largest {
			halves(r.Y, 64*p, UnitColumns)[o] = uint16(math.Float32bits(h) >> 16)
		}
	}
}

func unitNarrowGo(pixels int, low, high *float32, step int, y *uint16, mask uint32) {
	to := halves(y, 0, UnitColumns*pixels)
	for i := range to {
		from, lane := low, i%UnitColumns
		if lane >= 16 {
			from, lane = high, lane-16
		}
		to[i] = 0
		if mask>>(i%UnitColumns)&1 != 0 {
			to[i] = unitHalf(at(from, step*(i/UnitColumns)+4*lane, 1)[0])
		}
	}
}

func unitWidenGo(pixels int, x *uint16, y *float32) {
	for p := range pixels {
		to := at(y, 64*p, 16)
		for lane, h := range halves(x, 64*p, 16) {
			to[lane] = math.Float32frombits(uint32(h) << 16)
		}
	}
}

func unitGatherGo(lines int, x *uint16, step int, y *uint16) {
	for i := range lines {
		copy(halves(y, 64*i, UnitColumns), halves(x, step*i, UnitColumns))
	}
}
