package kernel

import "unsafe"

// A UnitTile is a part of a convolution over activations in blocks of 32 channels of bfloat16, [N, C/32, H, W, 32]: blocks
// of pixels of the output by 32 channels. A block is up to two tiles of up to sixteen pixels each, which lie side by side.
// For a pixel p of a tile and an output channel o
//
//	sum = Σ_step Σ_k x[Offsets[step] + p·XPixel + k]·w[step][k/2][o][k%2]   for k < 32
//	y   = limit(sum·Scale[o] + Shift[o] + residual)
//
// Sums are float32, as a matrix unit makes them: for each step the products of even k and those of odd k are added up by
// themselves, then both are added to the sum. Denormals count as zero in x, w and y. Distances are in bytes. Every pointer
// is to memory that reaches as far as the pixels do; nothing is read or written beyond.
type UnitTile struct {
	X *uint16
	// XPixel is the distance of pixels, XSecond that of the second tile, XBlock that of the next block.
	XPixel, XSecond, XBlock int
	Offsets                 *int
	// Steps is at least 1.
	Steps int
	W     *uint16
	// Sums is scratch memory of two blocks, UnitSums floats each, or of Blocks of them where they are kept.
	Sums   *float32
	Blocks int
	// Keep is 1 where the sums stay in Sums, scaled, shifted and with the residual, and no result is written: a pixel's are
	// 32 floats, and the second tile begins with the seventeenth pixel's.
	Keep int
	// The result's pixels lie 64 bytes apart.
	Y               *uint16
	YSecond, YBlock int
	// Residual has the distances of y; nil is none.
	Residual     *uint16
	Scale, Shift *float32
	// Mask has a bit for each channel that is not cleared.
	Mask      uint32
	Low, High float32
	_         uint32
	// Ahead is an address from which on AheadLines lines of 256 bytes a step of a block of two tiles are fetched into the
	// second cache; 0 is one. It need not be anyone's.
	Ahead uintptr
	// rows are the pixels of each tile, perStep how many are finished with a step of the next block's; config says of the
	// matrix unit's tiles how many rows they have.
	rows    [2]int
	perStep int
	config  [64]byte

	AheadLines int
	// Wide is 1 where results and residual are float32 in the memory of Y and Residual, YPixel bytes from pixel to pixel:
	// only those that Mask has a bit for are read and written.
	Wide, YPixel int
}

// UnitSums is the floats that the sums of a block take, UnitPixels the pixels of a tile.
const (
	UnitSums   = 2 * UnitPixels * UnitColumns
	UnitPixels = 16
)

// SetRows says how many pixels the tiles of a block have; the second may have none. Steps are set already.
func (t *UnitTile) SetRows(first, second int) {
	t.AheadLines = max(t.AheadLines, 1)
	t.rows = [2]int{first, second}
	t.perStep = (first + second + t.Steps - 1) / t.Steps
	t.config = [64]byte{0: 1}
	for tile, rows := range [8]int{first, first, second, second, first, second, UnitDepth / 2, UnitDepth / 2} {
		if rows > 0 {
			t.config[16+2*tile], t.config[48+tile] = 64, byte(rows)
		}
	}
}

// A UnitRow is a row of pixels of a block whose results are the largest of what their windows hold: of
// x[Offsets[tap] + p·XPixel + k] for each channel k, NaN where one is. Pixels of the result lie one behind the other.
type UnitRow struct {
	X       *uint16
	XPixel  int
	Offsets *int
	Taps    int
	Y       *uint16
	Pixels  int
}

// A UnitSet is the kernels over bfloat16 in blocks of 32 of a kind of processor. There is always one, in Go, for tests.
type UnitSet struct {
	// Name is UnitTiles, UnitDots or "go".
	Name string
	// Speed is how many products the set makes while vectors of float32 make one, roughly.
	Speed int
	// Vectors are the other kernels of the same processor, nil for Go.
	Vectors *Set

	conv   func(t *UnitTile)
	max    func(r *UnitRow)
	narrow func(pixels int, low, high *float32, step int, y *uint16, mask uint32)
	widen  func(pixels int, x *uint16, y *float32)
	gather func(lines int, x *uint16, step int, y *uint16)

	weigh    func(t *UnitScores)
	pairRows func(pairs int, x *uint16, step int, y *uint16)
}

// Conv computes a tile.
func (s *UnitSet) Conv(t *UnitTile) { s.conv(t) }

// Max computes a row.
func (s *UnitSet) Max(r *UnitRow) { s.max(r) }

// Narrow rounds two planes of sixteen channels to one of 32, of which those that mask leaves out are cleared.
func (s *UnitSet) Narrow(low, high []float32, y []uint16, mask uint32) {
	for n := len(y) / UnitColumns; n > 0; n = len(y) / UnitColumns {
		n = min(n, 4096) // a call ends soon, so that the goroutine can be stopped
		_, _ = low[16*n-1], high[16*n-1]
		s.narrow(n, &low[0], &high[0], 4*16, &y[0], mask)
		low, high, y = low[16*n:], high[16*n:], y[UnitColumns*n:]
	}
}

// NarrowRows rounds at most 32 floats of each of some rows, which lie pitch floats apart, to pixels one behind the other.
func (s *UnitSet) NarrowRows(x []float32, pitch, channels int, y []uint16) {
	mask := uint32(1)<<min(channels, UnitColumns) - 1
	for n := len(y) / UnitColumns; n > 0; n = len(y) / UnitColumns {
		n = min(n, 1024)
		_ = x[(n-1)*pitch+min(channels, UnitColumns)-1]
		high := (*float32)(unsafe.Add(unsafe.Pointer(&x[0]), 4*16))
		s.narrow(n, &x[0], high, 4*pitch, &y[0], mask)
		x, y = x[min(n*pitch, len(x)):], y[UnitColumns*n:]
	}
}

// Widen writes sixteen channels of a plane of 32 from the first or, where upper is set, the seventeenth on.
func (s *UnitSet) Widen(x []uint16, upper bool, y []float32) {
	from := 0
	if upper {
		from = 16
	}
	for n := len(y) / 16; n > 0; n = len(y) / 16 {
		n = min(n, 4096)
		_ = x[UnitColumns*n-1]
		s.widen(n, &x[from], &y[0])
		x, y = x[UnitColumns*n:], y[16*n:]
	}
}

// Gather copies pixels of 32 channels that lie a number of bytes apart in x to one behind the other in y.
func (s *UnitSet) Gather(x []uint16, step int, y []uint16) {
	n := len(y) / UnitColumns
	if n == 0 {
		return
	}
	_ = x[(n-1)*step/2+UnitColumns-1]
	s.gather(n, &x[0], step, &y[0])
}

// UnitSets returns the sets that the processor can run, the fastest first. The one in Go is the last.
func UnitSets() []*UnitSet { return append(fastUnitSets(), unitGo) }

// move16 returns the pointer a number of bytes behind p.
func move16(p *uint16, bytes int) *uint16 { return (*uint16)(unsafe.Add(unsafe.Pointer(p), bytes)) }
