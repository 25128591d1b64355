package encoded

import (
	"context"
	"encoding/binary"
)

// Codes of words that become blocks are turned eight or more at a time: a weight that is paged is made anew for each pass.

// spread returns the eight half bytes of a word as bytes, the lowest first.
func spread(word uint32) uint64 {
	x := uint64(word)
	x = (x | x<<16) & 0x0000ffff0000ffff
	x = (x | x<<8) & 0x00ff00ff00ff00ff
	return (x | x<<4) & 0x0f0f0f0f0f0f0f0f
}

// spreadTwo and spreadThree return eight codes of 2 and of 3 bits as bytes, the lowest first.
func spreadTwo(word uint16) uint64 {
	x := uint64(word)
	x = (x | x<<24) & 0x000000ff000000ff
	x = (x | x<<12) & 0x000f000f000f000f
	return (x | x<<6) & 0x0303030303030303
}

func spreadThree(x uint64) uint64 {
	x &= 0xffffff
	x = (x | x<<20) & 0x00000fff00000fff
	x = (x | x<<10) & 0x003f003f003f003f
	return (x | x<<5) & 0x0707070707070707
}

// halves puts codes into half bytes, the low ones first. There are a multiple of 16.
func halves(to []byte, codes []uint8) {
	low, high := codes[:len(codes)/2], codes[len(codes)/2:]
	for i := 0; i < len(low); i += 8 {
		x := binary.LittleEndian.Uint64(low[i:]) | binary.LittleEndian.Uint64(high[i:])<<4
		binary.LittleEndian.PutUint64(to[i:], x)
	}
}

// flip changes bits of every code.
func flip(codes []uint8, bits uint8) {
	for ; len(codes) >= 8; codes = codes[8:] {
		x := binary.LittleEndian.Uint64(codes) ^ uint64(bits)*0x0101010101010101
		binary.LittleEndian.PutUint64(codes, x)
	}
	for i := range codes {
		codes[i] ^= bits
	}
}

// turns reports whether codes become blocks many at a time: those of 4 and 8 bits.
func (w *words) turns() bool { return w.encoding != nil && (w.Bits == 4 || w.Bits == 8) }

// head is how many bytes of a block come before its codes.
func (w *words) head() int64 { return int64(w.DType.Size()) + 1 }

// turnRow makes the blocks of a row of words, or bytes, that follow each other.
func (w *words) turnRow(row, codes []byte) {
	e := w.encoding
	for at := w.head(); len(codes) > 0; at += e.Bytes {
		to := row[at:]
		switch {
		case w.Order == SignedBytes:
			for i := int64(0); i < e.Elements; i += 8 {
				binary.LittleEndian.PutUint64(to[i:], binary.LittleEndian.Uint64(codes[i:])^0x8080808080808080)
			}
			codes = codes[e.Elements:]
		case w.Bits == 8:
			codes = codes[copy(to[:e.Elements], codes):]
		default:
			low, high := codes[:e.Elements/4], codes[e.Elements/4:e.Elements/2]
			for i := 0; i < len(low); i += 4 {
				binary.LittleEndian.PutUint64(to[2*i:], spread(binary.LittleEndian.Uint32(low[i:]))|
					spread(binary.LittleEndian.Uint32(high[i:]))<<4)
			}
			codes = codes[e.Elements/2:]
		}
	}
}

// turnLines is acrossLines for blocks.
func (w *words) turnLines(ctx context.Context, s *slab, first, n int64, p []byte) error {
	each, block := int64(32/w.Bits), w.encoding.Elements
	if w.Order == AlongColumns {
		block /= each
	}
	return w.eachLines(ctx, s, first, n, block, func(line, from, end int64, words strided32) {
		to := p[line/block*w.encoding.Bytes+w.head():]
		for i := range end - from {
			own := strided32{words.bytes[4*i:], words.apart}
			if w.Order == AcrossRows {
				w.turnSquares(own, (from+i)*each-first, n, to)
			} else {
				w.turnLine(own, to[i*w.rowBytes:])
			}
		}
	})
}

// A strided32 has words that lie so many bytes apart.
type strided32 struct {
	bytes []byte
	apart int64
}

func (x strided32) at(i int64) uint32 { return binary.LittleEndian.Uint32(x.bytes[i*x.apart:]) }

// codes returns the codes of words as bytes: those of whole words, or of three words where they have 3 bits.
func (x strided32) codes(bits int, to []uint8) {
	i := int64(0)
	switch bits {
	case 8:
		for ; len(to) >= 4; to, i = to[4:], i+1 {
			binary.LittleEndian.PutUint32(to, x.at(i))
		}
	case 4:
		for ; len(to) >= 8; to, i = to[8:], i+1 {
			binary.LittleEndian.PutUint64(to, spread(x.at(i)))
		}
	case 3:
		for ; len(to) >= 32; to, i = to[32:], i+3 {
			low, high := uint64(x.at(i))|uint64(x.at(i+1))<<32, uint64(x.at(i+2))
			binary.LittleEndian.PutUint64(to, spreadThree(low))
			binary.LittleEndian.PutUint64(to[8:], spreadThree(low>>24))
			binary.LittleEndian.PutUint64(to[16:], spreadThree(low>>48|high<<16))
			binary.LittleEndian.PutUint64(to[24:], spreadThree(high>>8))
		}
	case 2:
		for ; len(to) >= 16; to, i = to[16:], i+1 {
			word := x.at(i)
			binary.LittleEndian.PutUint64(to, spreadTwo(uint16(word)))
			binary.LittleEndian.PutUint64(to[8:], spreadTwo(uint16(word>>16)))
		}
	}
}

// turnLine makes the codes of a block of the words of a row.
func (w *words) turnLine(from strided32, to []byte) {
	if w.Bits == 8 {
		for i := range w.encoding.Elements / 4 {
			binary.LittleEndian.PutUint32(to[4*i:], from.at(i))
		}
		return
	}
	half := w.encoding.Elements / 16
	for i := range half {
		binary.LittleEndian.PutUint64(to[8*i:], spread(from.at(i))|spread(from.at(half+i))<<4)
	}
}

// turnSquares makes the codes of a block of eight rows, from row r of the slab on, which may begin before it and end
// behind its n: of each column there is a word.
func (w *words) turnSquares(from strided32, r, n int64, p []byte) {
	half := w.encoding.Elements / 2
	for k := int64(0); k < half; k += 8 {
		var low, high [8]uint64
		for j := range int64(8) {
			low[j], high[j] = spread(from.at(k+j)), spread(from.at(half+k+j))
		}
		turn(&low)
		turn(&high)
		for c := max(0, -r); c < min(8, n-r); c++ {
			i := turnedAWQ[c]
			binary.LittleEndian.PutUint64(p[(r+c)*w.rowBytes+k:], low[i]|high[i]<<4)
		}
	}
}

// turn makes byte i of word j byte j of word i.
func turn(x *[8]uint64) {
	for j := range 4 {
		t := (x[j]>>32 ^ x[j+4]) & 0xffffffff
		x[j], x[j+4] = x[j]^t<<32, x[j+4]^t
	}
	for _, j := range [4]int{0, 1, 4, 5} {
		t := (x[j]>>16 ^ x[j+2]) & 0x0000ffff0000ffff
		x[j], x[j+2] = x[j]^t<<16, x[j+2]^t
	}
	for j := 0; j < 8; j += 2 {
		t := (x[j]>>8 ^ x[j+1]) & 0x00ff00ff00ff00ff
		x[j], x[j+1] = x[j]^t<<8, x[j+1]^t
	}
}
