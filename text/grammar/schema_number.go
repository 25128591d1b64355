package grammar

import (
	"encoding/json"
	"math/big"
	"strings"
)

var (
	fraction  = sequence{literal("."), repeat{digit, 1, -1}}
	whole     = choice{literal("0"), sequence{one9, repeat{digit, 0, -1}}}
	anyNumber = sequence{repeat{literal("-"), 0, 1}, whole, repeat{fraction, 0, 1},
		repeat{
			sequence{class{{'E', 'E'}, {'e', 'e'}}, repeat{class{{'+', '+'}, {'-', '-'}}, 0, 1}, repeat{digit, 1, -1}},
			0, 1,
		}}
)

// A bound is a limit of a number. nil: there is none.
type bound struct {
	at        *big.Int
	exclusive bool
}

// boundOf reads minimum or maximum; the tighter of the inclusive and the exclusive one. sign is 1 for a lower bound.
func boundOf(s *members, inclusive, exclusive, where string, sign int) (*big.Rat, bool, error) {
	var at *big.Rat
	open := false
	for _, key := range []string{inclusive, exclusive} {
		v, ok := s.get(key)
		if !ok {
			continue
		}
		n, isNumber := v.(json.Number)
		r, ok := rational(n)
		if !isNumber || !ok {
			return nil, false, errorf(ErrSyntax, pointer(where, key), "must be a number of a sane size")
		}
		if at == nil || r.Cmp(at)*sign > 0 || r.Cmp(at) == 0 && key == exclusive {
			at, open = r, key == exclusive
		}
	}
	return at, open, nil
}

func numberType(integer bool, s *members, where string) (term, error) {
	lo, openLo, err := boundOf(s, "minimum", "exclusiveMinimum", where, 1)
	if err != nil {
		return nil, err
	}
	hi, openHi, err := boundOf(s, "maximum", "exclusiveMaximum", where, -1)
	if err != nil {
		return nil, err
	}
	if lo == nil && hi == nil {
		if integer {
			return sequence{repeat{literal("-"), 0, 1}, whole}, nil
		}
		return anyNumber, nil
	}
	var low, high *bound
	for _, b := range []struct {
		at   *big.Rat
		open bool
		to   **bound
		name string
		up   bool
	}{{lo, openLo, &low, "minimum", true}, {hi, openHi, &high, "maximum", false}} {
		if b.at == nil {
			continue
		}
		floor := new(big.Int).Div(b.at.Num(), b.at.Denom())
		switch {
		case b.at.IsInt():
			*b.to = &bound{floor, b.open}
		case !integer:
			return nil, errorf(ErrUnsupported, pointer(where, b.name), "a fraction, where the type is not integer")
		case b.up:
			*b.to = &bound{floor.Add(floor, big.NewInt(1)), false}
		default:
			*b.to = &bound{floor, false}
		}
	}
	if !integer {
		return numbers(low, high), nil
	}
	var from, to *big.Int
	if low != nil {
		from = new(big.Int).Set(low.at)
		if low.exclusive {
			from.Add(from, big.NewInt(1))
		}
	}
	if high != nil {
		to = new(big.Int).Set(high.at)
		if high.exclusive {
			to.Sub(to, big.NewInt(1))
		}
	}
	return integers(from, to), nil
}

// integers are those between two, which are included; nil is no bound. No zero has a sign.
func integers(lo, hi *big.Int) term {
	var all choice
	zero := new(big.Int)
	if hi == nil || hi.Sign() >= 0 {
		from := zero
		if lo != nil && lo.Sign() > 0 {
			from = lo
		}
		all = append(all, naturals(from, hi))
	}
	if lo == nil || lo.Sign() < 0 {
		from := big.NewInt(1)
		if hi != nil && hi.Sign() < 0 {
			from = new(big.Int).Neg(hi)
		}
		var to *big.Int
		if lo != nil {
			to = new(big.Int).Neg(lo)
		}
		all = append(all, sequence{literal("-"), naturals(from, to)})
	}
	return all
}

// naturals are those from lo, at least 0, to hi; nil is no bound.
func naturals(lo, hi *big.Int) term {
	a := lo.String()
	if hi == nil {
		// As many digits and not less, or more digits.
		top := strings.Repeat("9", len(a))
		return choice{between(a, top), sequence{one9, repeat{digit, len(a), -1}}}
	}
	if lo.Cmp(hi) > 0 {
		return choice{}
	}
	b := hi.String()
	var all choice
	for n := len(a); n <= len(b); n++ {
		from, to := "1"+strings.Repeat("0", n-1), strings.Repeat("9", n)
		if n == len(a) {
			from = a
		}
		if n == len(b) {
			to = b
		}
		all = append(all, between(from, to))
	}
	return all
}

// between are the digits between two runs of one length.
func between(a, b string) term {
	if a == "" {
		return literal("")
	}
	span := func(lo, hi byte) class { return class{{rune(lo), rune(hi)}} }
	free := times(digit, len(a)-1)
	if a[0] == b[0] {
		return sequence{span(a[0], a[0]), between(a[1:], b[1:])}
	}
	lo, hi := a[0], b[0]
	var all choice
	if strings.Trim(a[1:], "0") != "" {
		all = append(all, sequence{span(lo, lo), between(a[1:], strings.Repeat("9", len(a)-1))})
		lo++
	}
	if strings.Trim(b[1:], "9") != "" {
		all = append(all, sequence{span(hi, hi), between(strings.Repeat("0", len(b)-1), b[1:])})
		hi--
	}
	if lo <= hi {
		all = append(all, sequence{span(lo, hi), free})
	}
	return all
}

// numbers are those between integers, written without an exponent.
func numbers(lo, hi *bound) term {
	var all choice
	if hi == nil || hi.at.Sign() > 0 || hi.at.Sign() == 0 && !hi.exclusive {
		from := &bound{new(big.Int), false}
		if lo != nil && lo.at.Sign() >= 0 {
			from = lo
		}
		all = append(all, magnitudes(from, hi))
	}
	if lo == nil || lo.at.Sign() < 0 {
		from := &bound{new(big.Int), true}
		if hi != nil && hi.at.Sign() < 0 {
			from = &bound{new(big.Int).Neg(hi.at), hi.exclusive}
		}
		var to *bound
		if lo != nil {
			to = &bound{new(big.Int).Neg(lo.at), lo.exclusive}
		}
		all = append(all, sequence{literal("-"), magnitudes(from, to)})
	}
	return all
}

// magnitudes are the numbers from lo, at least 0, to hi.
func magnitudes(lo, hi *bound) term {
	var all choice
	one := big.NewInt(1)
	zeros := sequence{literal("."), repeat{literal("0"), 1, -1}}
	notZero := sequence{literal("."), repeat{literal("0"), 0, -1}, one9, repeat{digit, 0, -1}}
	var last *big.Int // of the whole parts after which any fraction may stand
	if hi != nil {
		last = new(big.Int).Sub(hi.at, one)
		if c := lo.at.Cmp(hi.at); !hi.exclusive && (c < 0 || c == 0 && !lo.exclusive) {
			all = append(all, sequence{literal(hi.at.String()), repeat{zeros, 0, 1}})
		}
		if lo.at.Cmp(last) > 0 {
			return all
		}
	}
	first := lo.at
	if lo.exclusive {
		all = append(all, sequence{literal(first.String()), notZero})
		first = new(big.Int).Add(first, one)
	}
	return append(all, sequence{naturals(first, last), repeat{fraction, 0, 1}})
}
