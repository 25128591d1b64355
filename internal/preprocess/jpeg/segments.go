package jpeg

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

const (
	mSOF0  = 0xc0 // baseline
	mSOF1  = 0xc1 // extended
	mSOF2  = 0xc2 // progressive
	mDHT   = 0xc4
	mSOF15 = 0xcf
	mRST0  = 0xd0
	mRST7  = 0xd7
	mSOI   = 0xd8
	mEOI   = 0xd9
	mSOS   = 0xda
	mDQT   = 0xdb
	mDRI   = 0xdd
	mAPP0  = 0xe0
	mAPP14 = 0xee
	mTEM   = 0x01
)

// segment reads what follows a marker.
func (d *decoder) segment(marker byte) error {
	switch {
	case marker == mTEM, marker >= mRST0 && marker <= mRST7:
		return nil
	case marker == mSOI:
		return FormatError("a second SOI marker")
	}
	data, err := d.in.segment(1 << 16)
	if err != nil {
		return err
	}
	switch {
	case marker == mSOF0, marker == mSOF1, marker == mSOF2:
		return d.frame(data, marker == mSOF2)
	case marker == mDHT:
		return d.huffmanTables(data)
	case marker == 0xc8, marker == 0xcc: // reserved, and the conditions of arithmetic coding
		return nil
	case marker > mSOF2 && marker <= mSOF15:
		return UnsupportedError(fmt.Sprintf("a frame of kind %d: lossless, hierarchical or arithmetic coding",
			marker-mSOF0))
	case marker == mDQT:
		return d.quantisation(data)
	case marker == mDRI:
		if len(data) != 2 {
			return FormatError("a restart interval of another length than 2")
		}
		d.restarts = int(binary.BigEndian.Uint16(data))
	case marker == mAPP0:
		d.jfif = d.jfif || len(data) >= 14 && bytes.HasPrefix(data, []byte("JFIF\x00"))
	case marker == mAPP14:
		if len(data) >= 12 && bytes.HasPrefix(data, []byte("Adobe")) {
			d.adobe, d.transform = true, data[11]
		}
	case marker == mSOS:
		return d.scan(data)
	}
	return nil
}

func (d *decoder) quantisation(data []byte) error {
	for len(data) > 0 {
		wide, index := int(data[0]>>4), data[0]&15
		if wide > 1 || index > 3 {
			return FormatError("a quantisation table of no known kind")
		}
		data = data[1:]
		if len(data) < 64<<wide {
			return FormatError("a quantisation table is too short")
		}
		// A component keeps the table that its first scan found, so that a table is never changed.
		q := new([64]uint16)
		for i, z := range zigzag {
			if wide == 1 {
				q[z] = binary.BigEndian.Uint16(data[2*i:])
			} else {
				q[z] = uint16(data[i])
			}
		}
		d.quants[index] = q
		data = data[64<<wide:]
	}
	return nil
}

func (d *decoder) huffmanTables(data []byte) error {
	for len(data) > 0 {
		class, index := data[0]>>4, data[0]&15
		if class > 1 || index > 3 {
			return FormatError("a Huffman table of no known kind")
		}
		t, rest, err := newTable(data[1:])
		if err != nil {
			return err
		}
		d.huffman[class][index] = t
		data = rest
	}
	return nil
}

// frame reads the size of the picture and its components.
func (d *decoder) frame(data []byte, progressive bool) error {
	m := &d.image
	if m.components != nil {
		return FormatError("more than one frame")
	}
	if len(data) < 6 || len(data) != 6+3*int(data[5]) {
		return FormatError("a frame header of a wrong length")
	}
	d.progressive = progressive
	m.Height, m.Width = int(binary.BigEndian.Uint16(data[1:])), int(binary.BigEndian.Uint16(data[3:]))
	n := int(data[5])
	switch {
	case data[0] != 8:
		return UnsupportedError(fmt.Sprintf("samples of %d bits", data[0]))
	case m.Height == 0 && m.Width > 0:
		return UnsupportedError("a picture that tells its height after the first scan")
	case m.Width == 0:
		return FormatError(fmt.Sprintf("a picture of %d × %d pixels", m.Height, m.Width))
	case n != 1 && n != 3 && n != 4:
		return UnsupportedError(fmt.Sprintf("%d components", n))
	}
	m.components = make([]component, n)
	maxAcross, maxDown := 1, 1
	for i := range m.components {
		in, c := data[6+3*i:], &m.components[i]
		c.id, c.across, c.down, c.table = in[0], int(in[1]>>4), int(in[1]&15), int(in[2])
		if c.across < 1 || c.across > 4 || c.down < 1 || c.down > 4 || c.table > 3 {
			return FormatError("a component's sampling or table is none")
		}
		maxAcross, maxDown = max(maxAcross, c.across), max(maxDown, c.down)
		for k := range c.exact {
			c.exact[k] = unseen
		}
	}
	d.mcusAcross, d.mcusDown = divideUp(m.Width, 8*maxAcross), divideUp(m.Height, 8*maxDown)
	need := int64(0)
	for i := range m.components {
		c := &m.components[i]
		c.width, c.height = divideUp(m.Width*c.across, maxAcross), divideUp(m.Height*c.down, maxDown)
		c.blocks, c.lines = d.mcusAcross*c.across, d.mcusDown*c.down
		if err := c.chooseUpsampling(maxAcross, maxDown); err != nil {
			return err
		}
		need += c.sampleBytes()
	}
	return d.allow(need)
}

func divideUp(a, b int) int { return (a + b - 1) / b }

func (c *component) sampleBytes() int64 { return int64(c.blocks) * int64(c.lines) * 64 }

// allow compares what will be allocated with the limit. Lines of a picture, and the buffers, are not counted.
func (d *decoder) allow(need int64) error {
	if need <= d.limitBytes {
		return nil
	}
	return LimitError(fmt.Sprintf("%d × %d pixels take %d bytes to decode, and %d are allowed",
		d.image.Height, d.image.Width, need, d.limitBytes))
}

// allocate makes room for samples, and for coefficients if one scan does not have them all.
func (d *decoder) allocate(scans bool) error {
	const coefficientBytes = 2
	need := int64(0)
	for i := range d.image.components {
		need += d.image.components[i].sampleBytes()
	}
	if scans {
		need += need * coefficientBytes
	}
	if err := d.allow(need); err != nil {
		return err
	}
	for i := range d.image.components {
		c := &d.image.components[i]
		c.samples = make([]byte, c.sampleBytes())
		if scans {
			c.coefs = make([]block, c.blocks*c.lines)
		}
	}
	return nil
}
