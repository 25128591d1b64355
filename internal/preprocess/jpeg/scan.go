package jpeg

import (
	"cmp"
	"fmt"
)

// A part is a component in a scan.
type part struct {
	*component
	first, others *table
	dc            int32 // the last block's first coefficient
}

// A scan is a pass over all blocks of some components.
type scan struct {
	*source
	parts []part

	// Of a progressive picture: which coefficients, from the bit high (or none) down to the bit low.
	from, to  int
	high, low uint
	// run is how many blocks have nothing but corrections.
	run int32
}

// scan reads a scan's header and data.
func (d *decoder) scan(data []byte) error {
	if d.image.components == nil {
		return FormatError("a scan before its frame")
	}
	if d.scans++; d.scans > maxScans {
		return LimitError(fmt.Sprintf("more than %d scans", maxScans))
	}
	if d.scans == 1 && !d.progressive {
		if err := d.addStandardTables(); err != nil {
			return err
		}
	}
	s, err := d.scanHeader(data)
	if err != nil {
		return err
	}
	if d.scans == 1 {
		whole := !d.progressive && len(s.parts) == len(d.image.components)
		if err := d.allocate(!whole); err != nil {
			return err
		}
		d.chooseColours()
	}
	d.in.align()
	decode := s.sequential
	if d.progressive {
		decode = s.progressive()
	}
	if err := d.blocks(s, decode); err != nil {
		return err
	}
	d.in.align()
	return nil
}

// scanHeader finds out which components a scan has, and which bits of which coefficients.
func (d *decoder) scanHeader(data []byte) (*scan, error) {
	if len(data) < 1 || len(data) != 4+2*int(data[0]) {
		return nil, FormatError("a scan header of a wrong length")
	}
	n := int(data[0])
	if n < 1 || n > len(d.image.components) {
		return nil, FormatError(fmt.Sprintf("a scan of %d components", n))
	}
	s := &scan{source: d.in, to: 63}
	if d.progressive {
		end := data[1+2*n:]
		s.from, s.to, s.high, s.low = int(end[0]), int(end[1]), uint(end[2]>>4), uint(end[2]&15)
		if s.from > s.to || s.to > 63 || s.from == 0 && s.to > 0 || s.from > 0 && n > 1 ||
			s.low > 13 || s.high > 0 && s.low != s.high-1 {
			return nil, FormatError("a scan of coefficients that no progressive scan may have")
		}
	}
	size := 0
	for i := range n {
		c := d.find(data[1+2*i], s.parts)
		if c == nil {
			return nil, FormatError("a scan of a component that there is not")
		}
		p := part{component: c}
		if err := d.prepare(&p, s, data[2+2*i]); err != nil {
			return nil, err
		}
		s.parts = append(s.parts, p)
		size += c.across * c.down
	}
	if n > 1 && size > 10 {
		return nil, FormatError("more than ten blocks to interleave")
	}
	return s, nil
}

// find returns the component with an id that is not yet in the scan.
func (d *decoder) find(id byte, parts []part) *component {
next:
	for i := range d.image.components {
		c := &d.image.components[i]
		if c.id != id {
			continue
		}
		for _, p := range parts {
			if p.component == c {
				continue next
			}
		}
		return c
	}
	return nil
}

// prepare finds the tables that a component needs, and notes what the scan has of it.
func (d *decoder) prepare(p *part, s *scan, tables byte) error {
	c := p.component
	if c.quant == nil {
		if c.quant = d.quants[c.table]; c.quant == nil {
			return FormatError("there is no quantisation table for a component")
		}
	} else if !d.progressive {
		return FormatError("two scans of a component")
	}
	for k := s.from; k <= s.to; k++ {
		c.exact[k] = int(s.low)
	}
	if tables>>4 > 3 || tables&15 > 3 {
		return FormatError("a Huffman table that there is not")
	}
	if s.from == 0 && s.high == 0 {
		if p.first = d.huffman[0][tables>>4]; p.first == nil {
			return FormatError("a Huffman table that there is not")
		}
		if err := p.first.prepare(true); err != nil {
			return err
		}
	}
	if s.to > 0 {
		if p.others = d.huffman[1][tables&15]; p.others == nil {
			return FormatError("a Huffman table that there is not")
		}
		return p.others.prepare(false)
	}
	return nil
}

// blocks goes through the blocks of a scan, MCU after MCU.
func (d *decoder) blocks(s *scan, decode func(*part, *block) (uint64, error)) error {
	across, down := d.mcusAcross, d.mcusDown
	alone := len(s.parts) == 1
	if alone {
		// A component by itself has no blocks that only fill an MCU.
		c := s.parts[0].component
		across, down = divideUp(c.width, 8), divideUp(c.height, 8)
	}
	left := d.restarts
	expected := byte(mRST0)
	var work block
	for y := range down {
		for x := range across {
			if d.restarts > 0 {
				if left == 0 {
					if err := d.restart(s, expected); err != nil {
						return err
					}
					expected = mRST0 + (expected-mRST0+1)%8
					left = d.restarts
				}
				left--
			}
			for i := range s.parts {
				p := &s.parts[i]
				h, v := p.across, p.down
				if alone {
					h, v = 1, 1
				}
				for j := range h * v {
					bx, by := x*h+j%h, y*v+j/h
					b := &work
					if p.coefs != nil {
						b = &p.coefs[by*p.blocks+bx]
					}
					mask, err := decode(p, b)
					if err != nil {
						// What was made up behind the end makes no sense either.
						return cmp.Or(s.exhausted(), err)
					}
					if p.coefs == nil {
						transform(b, mask, p.quant, p.at(bx, by), p.stride())
						if mask > 1 {
							work = block{}
						} else {
							work[0] = 0
						}
					}
				}
			}
			if err := s.exhausted(); err != nil {
				return err
			}
		}
	}
	return nil
}

// restart expects a restart marker.
func (d *decoder) restart(s *scan, expected byte) error {
	d.in.align()
	found, err := d.in.marker()
	if err != nil {
		return err
	}
	if found != expected {
		return FormatError(fmt.Sprintf("restart marker %#x instead of %#x", found, expected))
	}
	for i := range s.parts {
		s.parts[i].dc = 0
	}
	s.run = 0
	return nil
}

// sequential reads all coefficients of a block, and returns which are not zero.
func (s *scan) sequential(p *part, b *block) (mask uint64, err error) {
	size, err := s.symbol(p.first)
	if err != nil {
		return 0, err
	}
	p.dc += s.extended(uint(size))
	if b[0] = int16(p.dc); b[0] != 0 {
		mask = 1
	}
	// The window is kept in registers.
	t, window, count := p.others, s.window, s.count
	for k := 1; k < 64; {
		if count < 32 {
			s.window, s.count = window, count
			s.refill()
			window, count = s.window, s.count
		}
		next := window >> (64 - shortBits)
		if e := t.whole[next]; e != 0 {
			k += int(e >> 8 & 15)
			if k > 63 {
				s.window, s.count = window, count
				return 0, errCode
			}
			z := zigzag[k] & 63
			b[z] = int16(e >> 16)
			mask |= 1 << z
			window <<= uint(e & 0xff)
			count -= uint(e & 0xff)
			k++
			continue
		}
		e := t.short[next]
		symbol, length := byte(e>>8), uint(e&0xff)
		if e == 0 {
			if symbol, length = t.long(window); length == 0 {
				s.window, s.count = window, count
				return 0, errCode
			}
		}
		window <<= length
		count -= length
		run, size := int(symbol>>4), uint(symbol&15)
		if size == 0 {
			if run < 15 {
				break
			}
			k += 16
			continue
		}
		if k += run; k > 63 {
			s.window, s.count = window, count
			return 0, errCode
		}
		z := zigzag[k] & 63
		v := extend(int32(window>>(64-size)), size)
		window <<= size
		count -= size
		b[z] = int16(v)
		mask |= 1 << z
		k++
	}
	s.window, s.count = window, count
	return mask, nil
}
