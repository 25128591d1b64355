package kernel

import (
	"math"
	"unsafe"
)

// A WinogradTile is a run of tiles to transform for F(m×m, 3×3): of an input (m+2)×(m+2) pixels of 16 channels become as
// many numbers for each channel; of their products with weights become m×m pixels, which Flags finish as those of a
// ConvTile. Distances are in bytes.
type WinogradTile struct {
	In            *float32
	InRow, InStep int // from row to row and from column to column of a tile
	Out           *float32
	OutRow        int
	OutStep       int
	// InNext and OutNext are the distances of tiles, Count is their number.
	InNext, OutNext, Count int
	// Scratch is 36 vectors of 16 floats.
	Scratch  *float32
	Flags    ConvFlags
	Scale    *float32
	Shift    *float32
	Mask     *uint32
	Residual *float32
	Low      float32
	_        uint32
	High     float32
	_        uint32
}

// WinogradIn transforms inputs: Bᵀ·d·B. m is 2 or 4.
func (s *ConvSet) WinogradIn(m int, t *WinogradTile) { s.winogradIn[m/4].run(unsafe.Pointer(t)) }

// WinogradOut transforms products: Aᵀ·p·A.
func (s *ConvSet) WinogradOut(m int, t *WinogradTile) { s.winogradOut[m/4].run(unsafe.Pointer(t)) }

// WinogradWeights transforms weights, G·g·Gᵀ: of 3×3 numbers for each of 16 channels become (m+2)×(m+2).
func (s *ConvSet) WinogradWeights(m int, t *WinogradTile) {
	s.winogradWeights[m/4].run(unsafe.Pointer(t))
}

// HasWinogradLine reports whether there is a WinogradLine.
func (s *ConvSet) HasWinogradLine() bool { return s.winogradLine[0] != nil }

// WinogradLine transforms weights in one dimension, G·g: of 3 numbers for each of 16 channels, InStep apart, become m+2,
// OutStep apart. Down the columns first and then along the rows it gives the bits of WinogradWeights.
func (s *ConvSet) WinogradLine(m int, t *WinogradTile) { s.winogradLine[m/4].run(unsafe.Pointer(t)) }

// root is √½. The points of F(4×4) are 0, ±root, ±2·root and ∞.
const root = math.Sqrt2 / 2

// winogradWeights is the transform of weights in one dimension.
func winogradWeights(m int, g *[6]float32) (o [6]float32) {
	if m == 2 {
		a, b := (g[0]+g[2])/2, g[1]/2
		return [6]float32{g[0], a + b, a - b, g[2]}
	}
	a, b, c := g[0]*(-2./3)-g[2]/3, g[0]/6+g[2]/3, g[1]*(root/3)
	return [6]float32{g[0], a - 2*c, a + 2*c, b + c, b - c, g[2]}
}

// winogradInput is the transform of the input in one dimension.
func winogradInput(m int, d *[6]float32) (o [6]float32) {
	if m == 2 {
		return [6]float32{d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]}
	}
	a, b, c, e := d[4]-2*d[2], root*(d[3]-2*d[1]), d[4]-d[2]/2, 2*root*(d[3]-d[1]/2)
	return [6]float32{d[0] + d[4] - 2.5*d[2], a + b, a - b, c + e, c - e, d[1] + d[5] - 2.5*d[3]}
}

// winogradOutput is the transform of products in one dimension.
func winogradOutput(m int, p *[6]float32) (o [6]float32) {
	if m == 2 {
		return [6]float32{p[0] + p[1] + p[2], p[1] - p[2] - p[3]}
	}
	s1, d1, s2, d2 := p[1]+p[2], p[1]-p[2], p[3]+p[4], p[3]-p[4]
	return [6]float32{p[0] + s1 + s2, root * (d1 + 2*d2), s1/2 + 2*s2, p[5] + root*(d1/2+4*d2)}
}

// winogradLines transforms lines of weights in Go.
func winogradLines(m int, t *WinogradTile) {
	for n := range t.Count {
		for lane := range 16 {
			var g [6]float32
			for i := range 3 {
				g[i] = at(t.In, n*t.InNext+i*t.InStep+4*lane, 1)[0]
			}
			o := winogradWeights(m, &g)
			for i := range m + 2 {
				at(t.Out, n*t.OutNext+i*t.OutStep+4*lane, 1)[0] = o[i]
			}
		}
	}
}

// winogradTiles transforms tiles in Go.
func winogradTiles(in, out int, line func(int, *[6]float32) [6]float32, finish bool, t *WinogradTile) {
	m := 4
	if min(in, out) == 2 || max(in, out) == 4 {
		m = 2
	}
	move := func(p *float32, bytes int) *float32 { return (*float32)(unsafe.Add(unsafe.Pointer(p), bytes)) }
	for n := range t.Count {
		var result [6][6][16]float32
		for lane := range 16 {
			var middle [6][6]float32
			for j := range in {
				var d [6]float32
				for i := range in {
					d[i] = *move(t.In, n*t.InNext+i*t.InRow+j*t.InStep+4*lane)
				}
				o := line(m, &d)
				for i := range out {
					middle[i][j] = o[i]
				}
			}
			for i := range out {
				o := line(m, &middle[i])
				for j := range out {
					result[i][j][lane] = o[j]
				}
			}
		}
		for i := range out {
			for j := range out {
				to := n*t.OutNext + i*t.OutRow + j*t.OutStep
				if finish {
					tile := ConvTile{
						Flags: t.Flags, Scale: t.Scale, Shift: t.Shift, Mask: t.Mask, Low: t.Low, High: t.High,
					}
					if t.Flags&ConvResidual != 0 {
						tile.Residual = move(t.Residual, to)
					}
					tile.finish(0, &result[i][j])
				}
				copy(at(t.Out, to, 16), result[i][j][:])
			}
		}
	}
}
