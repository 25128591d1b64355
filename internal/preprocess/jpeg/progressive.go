package jpeg

// progressive returns what reads a block's share of the scan.
func (s *scan) progressive() func(*part, *block) (uint64, error) {
	switch {
	case s.from == 0 && s.high == 0:
		return s.firstOfFirst
	case s.from == 0:
		return s.nextOfFirst
	case s.high == 0:
		return s.firstOfOthers
	}
	return s.nextOfOthers
}

// firstOfFirst reads the upper bits of the first coefficient.
func (s *scan) firstOfFirst(p *part, b *block) (uint64, error) {
	size, err := s.symbol(p.first)
	if err != nil {
		return 0, err
	}
	p.dc += s.extended(uint(size))
	b[0] = int16(p.dc << s.low)
	return 0, nil
}

// nextOfFirst reads one more bit of the first coefficient.
func (s *scan) nextOfFirst(_ *part, b *block) (uint64, error) {
	b[0] |= int16(s.bits(1) << s.low)
	return 0, nil
}

// firstOfOthers reads the upper bits of other coefficients.
func (s *scan) firstOfOthers(p *part, b *block) (uint64, error) {
	if s.run > 0 {
		s.run--
		return 0, nil
	}
	for k := s.from; k <= s.to; k++ {
		symbol, err := s.symbol(p.others)
		if err != nil {
			return 0, err
		}
		zeros, size := int(symbol>>4), uint(symbol&15)
		switch {
		case size > 0:
			if k += zeros; k > s.to {
				return 0, errCode
			}
			b[zigzag[k]] = int16(s.extended(size) << s.low)
		case zeros < 15:
			s.run = s.blocks(zeros) - 1
			return 0, nil
		default:
			k += 15
		}
	}
	return 0, nil
}

// blocks reads how many blocks have no more coefficients.
func (s *scan) blocks(size int) int32 { return 1<<size + s.bits(uint(size)) }

// nextOfOthers reads one more bit of the coefficients that were not zero, and those that become so.
func (s *scan) nextOfOthers(p *part, b *block) (uint64, error) {
	k := s.from
	for s.run == 0 && k <= s.to {
		symbol, err := s.symbol(p.others)
		if err != nil {
			return 0, err
		}
		zeros, fresh := int(symbol>>4), int16(0)
		switch size := symbol & 15; {
		case size > 1:
			return 0, errCode
		case size == 1:
			fresh = s.signed(s.bits(1) != 0)
		case zeros < 15:
			s.run = s.blocks(zeros)
			continue
		}
		k = s.correct(b, k, zeros)
		if fresh != 0 {
			if k > s.to {
				return 0, errCode
			}
			b[zigzag[k]] = fresh
		}
		k++
	}
	if s.run > 0 {
		s.correct(b, k, 64)
		s.run--
	}
	return 0, nil
}

// signed is one in the scan's bit.
func (s *scan) signed(positive bool) int16 {
	if positive {
		return 1 << s.low
	}
	return -1 << s.low
}

// correct reads the bits of coefficients that are not zero, from the k-th on, up to the one that comes after so many
// zeros, and returns which that is.
func (s *scan) correct(b *block, k, zeros int) int {
	for ; k <= s.to; k++ {
		c := &b[zigzag[k]]
		switch {
		case *c != 0:
			if s.bits(1) != 0 && *c&(1<<s.low) == 0 {
				*c += s.signed(*c > 0)
			}
		case zeros == 0:
			return k
		default:
			zeros--
		}
	}
	return k
}
