package cuda

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/optimem/optimem/device"
)

var _ device.Unpacker = (*stream)(nil)

// The constants of kernels/unpack.cu: blocks of threads for a block of a file, and blocks of files in a launch.
const (
	unpackThreads = 256
	unpackSlices  = 4
	unpackJobs    = 120
)

// mostUnpacked is what a block stands for at most.
const mostUnpacked = 1 << 31

// Unpack implements device.Unpacker.
func (s *stream) Unpack(ctx context.Context, dst, src device.Region, list []device.Unpacking) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	to, err := s.d.span(dst)
	if err != nil {
		return err
	}
	from, err := s.d.span(src)
	if err != nil {
		return err
	}
	for i := range list {
		x := &list[i]
		if x.From < 0 || x.From >= from.bytes || x.Low < 0 || x.Low > x.High || x.High > x.Bytes ||
			x.Bytes >= mostUnpacked ||
			x.To < 0 || x.High-x.Low > to.bytes-x.To {
			return fmt.Errorf("BUG: a block is to be decoded from %d of %d to %d of %d bytes: %+v", x.From,
				from.bytes, x.To,
				to.bytes, *x)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.begin(); err != nil {
		return err
	}
	defer s.d.leave()
	l := &launch{s: s}
	for len(list) > 0 {
		some := list[:min(len(list), unpackJobs)]
		list = list[len(some):]
		c := l.call("om_unpack").scratch(to).scratch(from).unpackings(some)
		if err := c.grid(dims{int64(len(some)), unpackSlices, 1}, dims{unpackThreads, 1, 1}, 0); err != nil {
			return err
		}
	}
	return nil
}

// unpackings passes an om_unpackings.
func (c *call) unpackings(list []device.Unpacking) *call {
	c.align(8)
	for i := range unpackJobs {
		var x device.Unpacking
		if i < len(list) {
			x = list[i]
		}
		c.p.Packed = binary.LittleEndian.AppendUint64(c.p.Packed, uint64(x.To))
		c.p.Packed = binary.LittleEndian.AppendUint64(c.p.Packed, uint64(x.From))
		for _, n := range [...]int64{x.Bytes, x.Low, x.High, 0} {
			c.p.Packed = binary.LittleEndian.AppendUint32(c.p.Packed, uint32(n))
		}
	}
	return c
}
