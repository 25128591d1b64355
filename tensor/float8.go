package tensor

import "math"

// Float8ToFloat32 returns the value of an element of one of the float8 dtypes, exactly. For other dtypes it is NaN.
//
// E4M3FN and E5M2 are those of "FP8 Formats for Deep Learning" (Micikevicius et al., 2022): E5M2 has infinities, E4M3FN
// has none. In the FNUZ variants 0x80 is the only NaN and there is no negative zero. E8M0FNU, of the OCP Microscaling
// specification, is a bare power of two.
func Float8ToFloat32(d DType, bits byte) float32 {
	switch d {
	case Float8E4M3FN:
		return float8Tables[0][bits]
	case Float8E5M2:
		return float8Tables[1][bits]
	case Float8E4M3FNUZ:
		return float8Tables[2][bits]
	case Float8E5M2FNUZ:
		return float8Tables[3][bits]
	case Float8E8M0FNU:
		return float8Tables[4][bits]
	}
	return float32(math.NaN())
}

var float8Tables = func() (t [5][256]float32) {
	nan := float32(math.NaN())
	for i := range 256 {
		b := byte(i)
		t[0][i] = float8Value(b, 3, 7)
		t[1][i] = float8Value(b, 2, 15)
		t[2][i] = float8Value(b, 3, 8)
		t[3][i] = float8Value(b, 2, 16)
		t[4][i] = float32(math.Ldexp(1, i-127))
		if b&0x7f == 0x7f {
			t[0][i] = nan
		}
		switch magnitude := b & 0x7f; {
		case magnitude == 0x7c:
			t[1][i] = float32(math.Inf(1 - 2*int(b>>7)))
		case magnitude > 0x7c:
			t[1][i] = nan
		}
	}
	t[2][0x80], t[3][0x80], t[4][0xff] = nan, nan, nan
	return t
}()

// float8Value is the rule that all signed formats share, without their special values.
func float8Value(b byte, mantissaBits, bias int) float32 {
	exponent := int(b&0x7f) >> mantissaBits
	mantissa := float64(int(b) & (1<<mantissaBits - 1))
	scale := math.Ldexp(1, -mantissaBits)
	v := math.Ldexp(mantissa*scale, 1-bias)
	if exponent > 0 {
		v = math.Ldexp(1+mantissa*scale, exponent-bias)
	}
	return float32(math.Copysign(v, float64(int8(b|1))))
}
