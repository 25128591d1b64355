package packed

import (
	"context"
	"encoding/binary"
	"hash/crc32"
	"time"
)

// DecodeRate measures how many bytes of bfloat16, counted as they are when decoded, one goroutine makes of blocks in a
// second, with their checksums. It takes about as long as it is given, or returns ctx's error.
func DecodeRate(ctx context.Context, limit time.Duration) (bytesPerSecond float64, err error) {
	p := make([]byte, DefaultBlockBytes)
	state := uint32(1)
	for i := 0; i < len(p); i += 2 { // exponents half as frequent each, as of numbers around zero
		state = state*1664525 + 1013904223
		e := uint16(125)
		for bit := uint32(1) << 31; e > 100 && state&bit != 0; bit >>= 1 {
			e--
		}
		binary.LittleEndian.PutUint16(p[i:], e<<7|uint16(state>>8)&0x807F)
	}
	stored, _ := encode(nil, p)
	best := time.Duration(1<<63 - 1)
	sum := uint32(0)
	for begin := time.Now(); ; {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		start := time.Now()
		const turns = 8 // together longer than clocks are coarse
		for range turns {
			sum ^= crc32.Checksum(stored, castagnoli)
			if err := decode(p, stored, nil); err != nil {
				return 0, err
			}
		}
		if took := time.Since(start) / turns; took > 0 {
			best = min(best, took)
		}
		if time.Since(begin) >= limit {
			break
		}
	}
	_ = sum
	return float64(len(p)) / best.Seconds(), nil
}
