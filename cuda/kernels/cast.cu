#include "om.h"

// Floats become integers as x86 converts them: what does not fit is the smallest integer of 32 bits (for the smaller ones, of
// which it is the low bits) or of 64.
OM_DEVICE om_i64 truncate32(double x) { return x > -2147483649.0 && x < 2147483648.0 ? (om_i64)x : -2147483648LL; }
OM_DEVICE om_i64 truncate64(double x) {
	return x >= -9223372036854775808.0 && x < 9223372036854775808.0 ? (om_i64)x : (om_i64)(1ULL << 63);
}
OM_DEVICE om_i64 truncate_unsigned(double x) {
	if (x >= 9223372036854775808.0)
		return truncate64(x - 9223372036854775808.0) ^ (om_i64)(1ULL << 63);
	return truncate64(x);
}

OM_DEVICE om_i64 truncated(double x, int to) {
	switch (to) {
	case OM_I8:
	case OM_I16:
	case OM_I32:
		return truncate32(x);
	case OM_U64:
		return truncate_unsigned(x);
	case OM_BOOL:
		return x != 0;
	}
	return truncate64(x);
}

// store_number stores a double, which doubles and floats are exactly.
OM_DEVICE void store_number(void *out, om_i64 i, int to, double x) {
	if (to <= OM_BF16)
		om_store_d(out, i, to, x);
	else
		om_store_i(out, i, to, truncated(x, to));
}

OM_DEVICE void store_integer(void *out, om_i64 i, int to, om_i64 x, bool is_u64) {
	if (to == OM_F64)
		((double *)out)[i] = is_u64 ? (double)(om_u64)x : (double)x;
	else if (to <= OM_BF16)
		om_store_f(out, i, to, is_u64 ? (float)(om_u64)x : (float)x);
	else
		om_store_i(out, i, to, to == OM_BOOL ? x != 0 : x);
}

OM_KERNEL(om_cast, void *out, int to, const void *in, int from, OM_GIVEN om_layout view, om_i64 n) {
	OM_EACH(i, n) {
		om_i64 at = om_at(view, i);
		if (from <= OM_BF16)
			store_number(out, i, to, om_load_d(in, at, from));
		else
			store_integer(out, i, to, om_load_i(in, at, from), from == OM_U64);
	}
}

// out[i] = start + i·step.
OM_KERNEL(om_arange_i, void *out, int to, om_i64 start, om_i64 step, om_i64 n) {
	OM_EACH(i, n) store_integer(out, i, to, start + i * step, false);
}
OM_KERNEL(om_arange_d, void *out, int to, double start, double step, om_i64 n) {
	OM_EACH(i, n) store_number(out, i, to, start + (double)i * step);
}

// out[i] = start + i·step in the first half and end − (n − 1 − i)·step in the second.
OM_KERNEL(om_linspace, void *out, int to, double start, double end, double step, om_i64 n) {
	OM_EACH(i, n) store_number(out, i, to, i < n / 2 || n == 1 ? start + step * (double)i : end - step * (double)(n - 1 - i));
}

// One where row and column are the same, else 0.
OM_KERNEL(om_eye, void *out, int to, om_i64 columns, om_i64 n) {
	OM_EACH(i, n) store_integer(out, i, to, i / columns == i % columns, false);
}
