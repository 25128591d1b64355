#include "om.h"
#include "wide.h"

// Kernels of floats take four elements at a time, those that are given how their operands are read: OM_ONE, or else OM_FOUR and
// OM_SAME. What is computed is computed one by one, so that each function stands once.

// Which function a kernel computes: functionCodes of op_elementwise.go, in this order.
enum {
	ABS, NEG, RELU, SIGN, SQUARE, CEIL, FLOOR, ROUND, TRUNC, FRAC, EXP, EXP2, EXPM1, LOG, LOG2, LOG10, LOG1P, SIGMOID, LOGIT,
	LOG_SIGMOID, SQRT, RSQRT, RECIPROCAL, SIN, COS, TAN, ASIN, ACOS, ATAN, SINH, COSH, ASINH, ACOSH, ATANH, TANH, SINC, ERF, ERFC,
	NAN_TO_NUM, CLAMP, GELU, GELU_TANH, SILU, MISH, HARDSWISH, HARDSIGMOID, ELU, LEAKY_RELU, SOFTPLUS, HARDSHRINK, SOFTSHRINK,
	NDTR,
	// Of two.
	ADD, SUB, MUL, DIV, DIV_FLOOR, DIV_TRUNC, REMAINDER, FMOD, POW, MAXIMUM, MINIMUM, FMAX, FMIN, HEAVISIDE, ATAN2, HYPOT, COPYSIGN,
	NEXTAFTER, LOGADDEXP, LOGADDEXP2, XLOGY, XLOG1PY, PRELU, GLU, BITWISE_AND, BITWISE_OR, BITWISE_XOR, SHIFT_LEFT, SHIFT_RIGHT,
	GCD, LCM, EQ, NE, LT, LE, GT, GE,
	// Of three, and what is told apart by more than a number.
	ADDCMUL, ADDCDIV, LERP, WHERE, BITWISE_NOT
};

template <class A> OM_DEVICE A sigmoid(A x) { return (A)1 / ((A)1 + (A)exp(-x)); }

// gate is min(max(x + 3, 0), 6).
template <class A> OM_DEVICE A gate(A x) {
	A g = x + (A)3;
	return g < 0 ? (A)0 : g > 6 ? (A)6 : g;
}

template <class A> OM_DEVICE A gelu_inner(A x) { return (A)0.7978845608028654 * (x + (A)0.044715 * x * x * x); }

// unary is a function of one float; p, q and r are its attributes.
template <class A> OM_DEVICE A unary(int op, A x, A p, A q, A r) {
	switch (op) {
	case ABS:
		return fabs(x);
	case NEG:
		return -x;
	case RELU:
		return x < 0 ? (A)0 : x;
	case SIGN:
		return x > 0 ? (A)1 : x < 0 ? (A)-1 : (A)0;
	case SQUARE:
		return x * x;
	case CEIL:
		return ceil(x);
	case FLOOR:
		return floor(x);
	case ROUND:
		return rint(x);
	case TRUNC:
		return trunc(x);
	case FRAC:
		return x - (A)trunc(x);
	case EXP:
		return exp(x);
	case EXP2:
		return exp2(x);
	case EXPM1:
		return expm1(x);
	case LOG:
		return log(x);
	case LOG2:
		return log2(x);
	case LOG10:
		return log10(x);
	case LOG1P:
		return log1p(x);
	case SIGMOID:
		return sigmoid(x);
	case LOGIT: {
		A c = x < p ? p : x > 1 - p ? 1 - p : x;
		return log(c / (1 - c));
	}
	case LOG_SIGMOID:
		return (x < 0 ? x : x != x ? x : (A)0) - (A)log1p((A)exp(-(A)fabs(x)));
	case SQRT:
		return sqrt(x);
	case RSQRT:
		return (A)1 / (A)sqrt(x);
	case RECIPROCAL:
		return (A)1 / x;
	case SIN:
		return sin(x);
	case COS:
		return cos(x);
	case TAN:
		return tan(x);
	case ASIN:
		return asin(x);
	case ACOS:
		return acos(x);
	case ATAN:
		return atan(x);
	case SINH:
		return sinh(x);
	case COSH:
		return cosh(x);
	case ASINH:
		return asinh(x);
	case ACOSH:
		return acosh(x);
	case ATANH:
		return atanh(x);
	case TANH:
		return tanh(x);
	case SINC: {
		A t = (A)3.141592653589793 * x;
		return x == 0 ? (A)1 : (A)sin(t) / t;
	}
	case ERF:
		return erf(x);
	case ERFC:
		return erfc(x);
	case NDTR:
		return (A)0.5 * (A)erfc(-x * (A)0.7071067811865476);
	case NAN_TO_NUM:
		return x != x ? p : x == (A)OM_INF ? q : x == -(A)OM_INF ? r : x;
	case CLAMP:
		if (p != p || q != q)
			return p + q;
		x = x < p ? p : x;
		return x > q ? q : x;
	case GELU:
		return x * (A)0.5 * ((A)1 + (A)erf(x * (A)0.7071067811865476));
	case GELU_TANH:
		return (A)0.5 * x * ((A)1 + (A)tanh(gelu_inner(x)));
	case SILU:
		return x / ((A)1 + (A)exp(-x));
	case MISH:
		return x * (A)tanh(x > 40 ? x : (A)log1p((A)exp(x)));
	case HARDSWISH:
		return x * gate(x) / 6;
	case HARDSIGMOID:
		return gate(x) / 6;
	case ELU: // alpha, scale, input_scale
		return x > 0 ? q * x : q * p * (A)expm1(r * x);
	case LEAKY_RELU:
		return x > 0 ? x : x * p;
	case SOFTPLUS:
		return x * p > q ? x : (A)log1p((A)exp(x * p)) / p;
	case HARDSHRINK:
		return x >= -p && x <= p ? (A)0 : x;
	case SOFTSHRINK:
		return x > p ? x - p : x < -p ? x + p : x * 0;
	}
	return x;
}

// A function of one float of any dtype but double, and of doubles.
OM_KERNEL(om_unary_f, void *out, int out_type, const void *in, int type, OM_GIVEN om_layout view, om_i64 n, int op, float p, float q,
		  float r, int how) {
	int width = how == OM_ONE ? 1 : 4;
	OM_EACH(i, n / width) {
		float x[4];
		om_load_how(x, in, om_at(view, i * width), type, how);
#pragma unroll 1
		for (int l = 0; l < width; l++)
			om_put(x, l, unary<float>(op, om_pick(x, l), p, q, r));
		if (width == 4)
			om_store_4(out, i * 4, out_type, x);
		else
			om_store_f(out, i, out_type, x[0]);
	}
}
OM_KERNEL(om_unary_d, double *out, const double *in, OM_GIVEN om_layout view, om_i64 n, int op, double p, double q, double r) {
	OM_EACH(i, n) out[i] = unary<double>(op, in[om_at(view, i)], p, q, r);
}

OM_DEVICE bool is_unsigned(int type) { return type >= OM_U8; }

OM_KERNEL(om_unary_i, void *out, const void *in, int type, OM_GIVEN om_layout view, om_i64 n, int op) {
	OM_EACH(i, n) {
		om_i64 x = om_load_i(in, om_at(view, i), type);
		bool below = !is_unsigned(type) && x < 0;
		switch (op) {
		case ABS:
			x = below ? (om_i64)(0 - (om_u64)x) : x;
			break;
		case NEG:
			x = (om_i64)(0 - (om_u64)x);
			break;
		case RELU:
			x = below ? 0 : x;
			break;
		case SIGN:
			x = below ? -1 : x != 0;
			break;
		case SQUARE:
			x = (om_i64)((om_u64)x * (om_u64)x);
			break;
		case BITWISE_NOT:
			x = type == OM_BOOL ? x ^ 1 : ~x;
			break;
		}
		om_store_i(out, i, type, x);
	}
}

// Whether the sign is negative. Floats lie in size bytes, their sign in the last bit.
OM_KERNEL(om_signbit, om_u8 *out, const om_u8 *in, OM_GIVEN om_layout view, om_i64 n, om_i64 size, int is_unsigned_type) {
	OM_EACH(i, n) out[i] = !is_unsigned_type && (in[om_at(view, i) * size + size - 1] & 0x80) != 0;
}

template <class A> OM_DEVICE A remainder_of(A a, A b) {
	A r = fmod(a, b);
	return r != 0 && (b < 0) != (r < 0) ? r + b : r;
}

// floor_divide is Python's a // b: the floor of the exact quotient, not that of the rounded one.
template <class A> OM_DEVICE A floor_divide(A a, A b) {
	if (b == 0)
		return a / b;
	A r = fmod(a, b), q = (a - r) / b;
	if (r != 0 && (b < 0) != (r < 0))
		q = q - 1;
	if (q == 0)
		return copysign((A)0, a / b);
	A down = floor(q);
	return q - down > (A)0.5 ? down + 1 : down;
}

template <class A> OM_DEVICE A greater(A a, A b) { return a > b ? a : b; }

// binary is a function of two floats; alpha is that of add and sub.
template <class A> OM_DEVICE A binary(int op, A a, A b, A alpha) {
	switch (op) {
	case ADD:
		return alpha == 1 ? a + b : (A)fma(alpha, b, a);
	case SUB:
		return alpha == 1 ? a - b : (A)fma(-alpha, b, a);
	case MUL:
		return a * b;
	case DIV:
		return a / b;
	case DIV_FLOOR:
		return floor_divide(a, b);
	case DIV_TRUNC:
		return trunc(a / b);
	case REMAINDER:
		return remainder_of(a, b);
	case FMOD:
		return fmod(a, b);
	case POW:
		return b == 2 ? a * a : (A)pow(a, b);
	case MAXIMUM:
		return b > a || b != b ? b : a;
	case MINIMUM:
		return b < a || b != b ? b : a;
	case FMAX:
		return b > a || a != a ? b : a;
	case FMIN:
		return b < a || a != a ? b : a;
	case HEAVISIDE:
		return a == 0 ? b : a > 0 ? (A)1 : (A)0;
	case ATAN2:
		return atan2(a, b);
	case HYPOT:
		return hypot(a, b);
	case COPYSIGN:
		return copysign(a, b);
	case LOGADDEXP:
	case LOGADDEXP2: {
		if (a != a || b != b)
			return a + b;
		if (a == b && fabs(a) == (A)OM_INF)
			return a;
		A apart = -(A)fabs(a - b);
		if (op == LOGADDEXP)
			return greater(a, b) + (A)log1p((A)exp(apart));
		return greater(a, b) + (A)log1p((A)exp2(apart)) * (A)1.4426950408889634;
	}
	case XLOGY:
		return a == 0 && b == b ? (A)0 : a * (A)log(b);
	case XLOG1PY:
		return a == 0 && b == b ? (A)0 : a * (A)log1p(b);
	case PRELU:
		return a > 0 ? a : a * b;
	case GLU:
		return a * sigmoid(b);
	}
	return a;
}

// next_half is the next number of half precision after that of the bits a in the direction of b.
OM_DEVICE om_u16 next_half(om_u16 a, om_u16 b, float x, float y) {
	if (x == y)
		return b;
	if (x == 0)
		return (om_u16)(1 | (b & 0x8000));
	return (x < y) == (x > 0) ? a + 1 : a - 1;
}

OM_KERNEL(om_binary_f, void *out, int out_type, const void *a, int a_type, OM_GIVEN om_layout a_view, const void *b, int b_type,
		  OM_GIVEN om_layout b_view, om_i64 n, int op, float alpha, int a_how, int b_how) {
	int width = a_how == OM_ONE ? 1 : 4;
	OM_EACH(i, n / width) {
		om_i64 at = om_at(a_view, i * width), bt = om_at(b_view, i * width);
		float x[4], y[4];
		om_load_how(x, a, at, a_type, a_how);
		om_load_how(y, b, bt, b_type, b_how);
		if (op == NEXTAFTER) { // one by one
			if (x[0] == x[0] && y[0] == y[0] && a_type != OM_F32 && a_type == b_type)
				((om_u16 *)out)[i] = next_half(((const om_u16 *)a)[at], ((const om_u16 *)b)[bt], x[0], y[0]);
			else
				om_store_f(out, i, out_type, nextafterf(x[0], y[0]));
			continue;
		}
#pragma unroll 1
		for (int l = 0; l < width; l++)
			om_put(x, l, binary<float>(op, om_pick(x, l), om_pick(y, l), alpha));
		if (width == 4)
			om_store_4(out, i * 4, out_type, x);
		else
			om_store_f(out, i, out_type, x[0]);
	}
}
OM_KERNEL(om_binary_d, double *out, const double *a, OM_GIVEN om_layout a_view, const double *b, OM_GIVEN om_layout b_view, om_i64 n, int op,
		  double alpha) {
	OM_EACH(i, n) {
		double x = a[om_at(a_view, i)], y = b[om_at(b_view, i)];
		out[i] = op == NEXTAFTER ? nextafter(x, y) : binary<double>(op, x, y, alpha);
	}
}

OM_DEVICE om_i64 magnitude(om_i64 x) { return x < 0 ? (om_i64)(0 - (om_u64)x) : x; }

// remainder_i and quotient_i are C's, but wrap around where those are undefined. b is not zero.
OM_DEVICE om_i64 remainder_i(om_i64 a, om_i64 b) { return b == -1 ? 0 : a % b; }
OM_DEVICE om_i64 quotient_i(om_i64 a, om_i64 b) { return b == -1 ? (om_i64)(0 - (om_u64)a) : a / b; }

OM_DEVICE om_i64 gcd(om_i64 a, om_i64 b) {
	while (b != 0) {
		om_i64 r = remainder_i(a, b);
		a = b;
		b = r;
	}
	return magnitude(a);
}

OM_DEVICE om_i64 power(om_i64 a, om_i64 b, bool is_unsigned_type) {
	if (b < 0 && !is_unsigned_type)
		return a == 1 || (a == -1 && (b & 1) == 0) ? 1 : a == -1 ? -1 : 0;
	om_u64 result = 1, factor = (om_u64)a;
	for (om_u64 left = (om_u64)b; left != 0; left >>= 1) {
		if (left & 1)
			result *= factor;
		factor *= factor;
	}
	return (om_i64)result;
}

// Integers of width bits wrap around. alpha is 1 or −1.
OM_KERNEL(om_binary_i, void *out, const void *a, OM_GIVEN om_layout a_view, const void *b, OM_GIVEN om_layout b_view, int type, om_i64 n, int op,
		  int alpha, int width, int *status, int where) {
	OM_EACH(i, n) {
		om_i64 x = om_load_i(a, om_at(a_view, i), type), y = om_load_i(b, om_at(b_view, i), type), z = 0;
		bool u = is_unsigned(type);
		if (y == 0 && (op == DIV_FLOOR || op == DIV_TRUNC || op == REMAINDER || op == FMOD)) {
			om_fail(status, where, OM_DIVISOR_ZERO);
			y = 1;
		}
		bool above = u ? (om_u64)x > (om_u64)y : x > y;
		switch (op) {
		case ADD:
			z = (om_i64)((om_u64)x + (om_u64)(alpha * y));
			break;
		case SUB:
			z = (om_i64)((om_u64)x - (om_u64)(alpha * y));
			break;
		case MUL:
			z = (om_i64)((om_u64)x * (om_u64)y);
			break;
		case DIV_TRUNC:
			z = u ? (om_i64)((om_u64)x / (om_u64)y) : quotient_i(x, y);
			break;
		case DIV_FLOOR:
			z = u ? (om_i64)((om_u64)x / (om_u64)y) : quotient_i(x, y) - (remainder_i(x, y) != 0 && (x < 0) != (y < 0));
			break;
		case FMOD:
			z = u ? (om_i64)((om_u64)x % (om_u64)y) : remainder_i(x, y);
			break;
		case REMAINDER:
			z = u ? (om_i64)((om_u64)x % (om_u64)y) : remainder_i(x, y);
			if (!u && z != 0 && (z < 0) != (y < 0))
				z += y;
			break;
		case POW:
			z = power(x, y, u);
			break;
		case MAXIMUM:
		case FMAX:
			z = above ? x : y;
			break;
		case MINIMUM:
		case FMIN:
			z = above ? y : x;
			break;
		case HEAVISIDE:
			z = x == 0 ? y : u || x > 0;
			break;
		case BITWISE_AND:
			z = x & y;
			break;
		case BITWISE_OR:
			z = x | y;
			break;
		case BITWISE_XOR:
			z = x ^ y;
			break;
		case SHIFT_LEFT:
			z = (!u && y < 0) || (om_u64)y >= (om_u64)width ? 0 : (om_i64)((om_u64)x << y);
			break;
		case SHIFT_RIGHT:
			if ((!u && y < 0) || (om_u64)y >= (om_u64)width)
				z = u ? 0 : x >> 63;
			else
				z = u ? (om_i64)((om_u64)x >> y) : x >> y;
			break;
		case GCD:
			z = gcd(x, y);
			break;
		case LCM: {
			om_i64 g = gcd(x, y);
			z = g == 0 ? 0 : magnitude((om_i64)((om_u64)(x / g) * (om_u64)y));
			break;
		}
		}
		om_store_i(out, i, type, z);
	}
}

template <class T> OM_DEVICE bool compare(int op, T x, T y) {
	switch (op) {
	case EQ:
		return x == y;
	case NE:
		return x != y;
	case LT:
		return x < y;
	case LE:
		return x <= y;
	case GT:
		return x > y;
	}
	return x >= y;
}

OM_KERNEL(om_compare, om_u8 *out, const void *a, int a_type, OM_GIVEN om_layout a_view, const void *b, int b_type, OM_GIVEN om_layout b_view,
		  om_i64 n, int op) {
	OM_EACH(i, n) {
		om_i64 at = om_at(a_view, i), bt = om_at(b_view, i);
		if (a_type <= OM_BF16)
			out[i] = compare(op, om_load_d(a, at, a_type), om_load_d(b, bt, b_type));
		else if (a_type == OM_U64)
			out[i] = compare(op, (om_u64)om_load_i(a, at, a_type), (om_u64)om_load_i(b, bt, b_type));
		else
			out[i] = compare(op, om_load_i(a, at, a_type), om_load_i(b, bt, b_type));
	}
}

template <class A> OM_DEVICE A ternary(int op, A a, A b, A c, A value) {
	switch (op) {
	case ADDCMUL:
		return a + value * b * c;
	case ADDCDIV:
		return a + value * b / c;
	}
	return fabs(c) < (A)0.5 ? a + c * (b - a) : b - (b - a) * (1 - c); // lerp, from the end that is nearer
}

OM_KERNEL(om_ternary_f, void *out, int out_type, const void *a, int a_type, OM_GIVEN om_layout a_view, const void *b, int b_type,
		  OM_GIVEN om_layout b_view, const void *c, int c_type, OM_GIVEN om_layout c_view, om_i64 n, int op, float value, int a_how, int b_how,
		  int c_how) {
	int width = a_how == OM_ONE ? 1 : 4;
	OM_EACH(i, n / width) {
		float x[4], y[4], z[4];
		om_load_how(x, a, om_at(a_view, i * width), a_type, a_how);
		om_load_how(y, b, om_at(b_view, i * width), b_type, b_how);
		om_load_how(z, c, om_at(c_view, i * width), c_type, c_how);
#pragma unroll 1
		for (int l = 0; l < width; l++)
			om_put(x, l, ternary<float>(op, om_pick(x, l), om_pick(y, l), om_pick(z, l), value));
		if (width == 4)
			om_store_4(out, i * 4, out_type, x);
		else
			om_store_f(out, i, out_type, x[0]);
	}
}
OM_KERNEL(om_ternary_d, double *out, const double *a, OM_GIVEN om_layout a_view, const double *b, OM_GIVEN om_layout b_view, const double *c,
		  OM_GIVEN om_layout c_view, om_i64 n, int op, double value) {
	OM_EACH(i, n) out[i] = ternary<double>(op, a[om_at(a_view, i)], b[om_at(b_view, i)], c[om_at(c_view, i)], value);
}

// out = a where the condition holds, else b, of elements of any dtype.
#define WHERE_OF(size, T)                                                                                                   \
	OM_KERNEL(om_where_##size, T *out, const om_u8 *condition, OM_GIVEN om_layout view, const T *a, OM_GIVEN om_layout a_view, const T *b, \
			  OM_GIVEN om_layout b_view, om_i64 n) {                                                                             \
		OM_EACH(i, n) out[i] = condition[om_at(view, i)] ? a[om_at(a_view, i)] : b[om_at(b_view, i)];               \
	}
struct two {
	om_u64 low, high;
};
WHERE_OF(1, om_u8)
WHERE_OF(2, om_u16)
WHERE_OF(4, om_u32)
WHERE_OF(8, om_u64)
WHERE_OF(16, two)

// A chain's instruction: the function, and of which values. code is the function's place in the enum and, in the bytes above
// it, the places of what it takes: chain of op_chain.go.
struct instruction {
	om_i64 code;
	float p, q, r, none;
};
#define INSTRUCTIONS 32
#define OPERANDS 12
struct program {
	instruction of[INSTRUCTIONS];
};

#define ALL(M) M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7) M(8) M(9) M(10) M(11)
#define PARAMETER(k) const void *in##k, OM_GIVEN om_layout view##k,
#define LOAD(k)                                                                                                     \
	float x##k[4] = {};                                                                                             \
	if (k < operands)                                                                                               \
		om_load_how(x##k, in##k, om_at(view##k, i * width), bools >> k & 1 ? OM_BOOL : OM_F32, hows >> (2 * k) & 3);
#define PICK(k)       \
	if (k < operands) \
		values[k] = om_pick(x##k, l);

// Elementwise functions one after the other, each of operands or of results before it; the last one's is written. bools has a bit
// for each operand that is bool, hows two bits for how each is read; width is how many elements are at a time.
OM_KERNEL(om_chain, float *out, ALL(PARAMETER) int operands, int bools, int hows, int width, OM_GIVEN program run, int length, om_i64 n) {
	float values[OPERANDS + INSTRUCTIONS];
	OM_EACH(i, n / width) {
		ALL(LOAD)
		float results[4] = {};
#pragma unroll 1
		for (int l = 0; l < width; l++) {
			ALL(PICK)
			float y = 0;
#pragma unroll 1
			for (int j = 0; j < length; j++) {
				om_i64 code = run.of[j].code;
				int op = (int)(code & 255);
				float p = run.of[j].p, q = run.of[j].q, r = run.of[j].r;
				float a = values[code >> 8 & 255], b = values[code >> 16 & 255], c = values[code >> 24 & 255];
				if (op < ADD)
					y = unary<float>(op, a, p, q, r);
				else if (op < ADDCMUL)
					y = binary<float>(op, a, b, p);
				else if (op == WHERE)
					y = a != 0 ? b : c;
				else
					y = ternary<float>(op, a, b, c, p);
				values[operands + j] = y;
			}
			om_put(results, l, y);
		}
		if (width == 4)
			om_store_4(out, i * 4, OM_F32, results);
		else
			out[i] = results[0];
	}
}
