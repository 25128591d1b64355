package jpeg

import (
	"encoding/binary"
	"io"
)

// A source reads bytes, and bits of a scan's data.
type source struct {
	r        io.Reader
	buf      []byte
	pos, end int
	err      error // of r, io.EOF among them, once it has come

	// window has the next bits, first bit on top; count is how many, of which the last missing ones are made up because
	// the data had come to an end. What was made up may be used too: then count is less than missing.
	window  uint64
	count   uint
	missing uint
}

func newSource(r io.Reader) *source { return &source{r: r, buf: make([]byte, 1<<16)} }

// more makes n bytes available, and reports whether there are as many.
func (s *source) more(n int) bool {
	if s.end-s.pos >= n {
		return true
	}
	copy(s.buf, s.buf[s.pos:s.end])
	s.pos, s.end = 0, s.end-s.pos
	for idle := 0; s.end < n && s.err == nil; {
		var k int
		k, s.err = s.r.Read(s.buf[s.end:])
		s.end += k
		if k > 0 {
			idle = 0
		} else if idle++; idle == 100 && s.err == nil {
			s.err = io.ErrNoProgress
		}
	}
	return s.end >= n
}

// ended is the error of a file that is too short.
func (s *source) ended() error {
	if s.err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return s.err
}

func (s *source) byte() (byte, error) {
	if !s.more(1) {
		return 0, s.ended()
	}
	b := s.buf[s.pos]
	s.pos++
	return b, nil
}

// marker looks for the next marker. What is before it is skipped, as other decoders do.
func (s *source) marker() (byte, error) {
	for {
		b, err := s.byte()
		if err != nil {
			return 0, err
		}
		if b != 0xff {
			continue
		}
		for b == 0xff {
			if b, err = s.byte(); err != nil {
				return 0, err
			}
		}
		if b != 0 {
			return b, nil
		}
	}
}

// segment reads the length of a segment, and as much of it as is asked for at most; the rest is skipped. What it
// returns is valid until the next read.
func (s *source) segment(most int) ([]byte, error) {
	if !s.more(2) {
		return nil, s.ended()
	}
	length := int(binary.BigEndian.Uint16(s.buf[s.pos:]))
	if length < 2 {
		return nil, FormatError("a segment has no length")
	}
	// No segment is longer than the buffer.
	if !s.more(length) {
		return nil, s.ended()
	}
	data := s.buf[s.pos+2 : s.pos+length]
	s.pos += length
	return data[:min(most, len(data))], nil
}

// refill puts more than 32 bits into the window, of which there are fewer.
func (s *source) refill() {
	if s.end-s.pos >= 8 {
		v := binary.BigEndian.Uint64(s.buf[s.pos:])
		// Without a byte of 0xff there is no marker and nothing to unstuff. Such a byte is what overflows with 1
		// added while its top bit is set.
		const ones, tops = 0x0101010101010101, 0x8080808080808080
		if v&tops&^(v+ones) == 0 {
			s.window |= v >> s.count
			s.pos += int(63-s.count) >> 3
			s.count |= 56
			return
		}
	}
	s.refillSlowly()
}

func (s *source) refillSlowly() {
	for s.count <= 56 {
		b, ok := s.dataByte()
		if !ok {
			s.missing += 8
		}
		// The fast way may have left bits of the next byte below those that count: they are the same ones.
		s.window |= uint64(b) << (56 - s.count)
		s.count += 8
	}
}

// dataByte returns the next byte of a scan's data, and stays before a marker.
func (s *source) dataByte() (byte, bool) {
	if !s.more(1) {
		return 0, false
	}
	b := s.buf[s.pos]
	if b != 0xff {
		s.pos++
		return b, true
	}
	for n := 1; ; n++ {
		if n == len(s.buf) {
			return 0, false
		}
		if !s.more(n + 1) {
			s.pos = s.end
			return 0, false
		}
		switch s.buf[s.pos+n] {
		case 0xff:
		case 0:
			s.pos += n + 1
			return b, true
		default:
			return 0, false
		}
	}
}

// exhausted returns an error if bits were used that there are not.
func (s *source) exhausted() error {
	if s.count >= s.missing {
		return nil
	}
	if s.err != nil && (s.err != io.EOF || s.pos == s.end) {
		return s.ended()
	}
	return FormatError("a scan ends too early")
}

// align drops what is left in the window, so that bytes and markers can be read.
func (s *source) align() { s.window, s.count, s.missing = 0, 0, 0 }

// bits takes n ≤ 16 bits.
func (s *source) bits(n uint) int32 {
	if s.count < 32 {
		s.refill()
	}
	v := s.window >> (64 - n)
	s.window <<= n
	s.count -= n
	return int32(v)
}

// extended takes a value of n ≤ 15 bits, whose first bit is 0 if it is negative.
func (s *source) extended(n uint) int32 { return extend(s.bits(n), n) }

func extend(v int32, n uint) int32 {
	if v < 1<<n>>1 {
		v -= 1<<n - 1
	}
	return v
}
