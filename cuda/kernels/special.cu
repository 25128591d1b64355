#include "om.h"

// Functions that few networks use, in double whatever the elements are, and not inlined, since they are long.
#ifdef __CUDACC__
#define FUNCTION __device__ __noinline__ static
#else
#define FUNCTION static
#endif

// Which function: specials of op_elementwise.go.
enum {
	LGAMMA, DIGAMMA, TRIGAMMA, ERFINV, ENTR, ERFCX, LOG_NDTR, NDTRI, BESSEL_J0, BESSEL_J1, BESSEL_Y0, BESSEL_Y1, SPHERICAL_J0, I0, I0E,
	I1, I1E
};

#define PI 3.141592653589793
#define ROOT_HALF 0.7071067811865476

// B(2j) ÷ (2j)!.
OM_DEVICE double bernoulli(int j) {
	switch (j) {
	case 0:
		return 1.0 / 12;
	case 1:
		return -1.0 / 720;
	case 2:
		return 1.0 / 30240;
	case 3:
		return -1.0 / 1209600;
	case 4:
		return 1.0 / 47900160;
	case 5:
		return -691.0 / 1307674368000.0;
	case 6:
		return 1.0 / 74724249600.0;
	}
	return -3617.0 / 10670622842880000.0;
}

// zeta sums (q + k)^−s: ten terms, and the rest by Euler and Maclaurin's formula.
FUNCTION double zeta(double s, double q) {
	const double inf = (double)OM_INF;
	if (s == 1)
		return inf;
	if (!(s > 1) || q != q)
		return (double)OM_NAN;
	if (q <= 0 && q == floor(q))
		return inf;
	if (q <= 0 && s != floor(s))
		return (double)OM_NAN;
	if (q == inf)
		return 0;
	double sum = 0;
	for (int n = 0; n < 10 || q < 10; n++) {
		double term = pow(q, -s);
		sum += term;
		if ((q > 0 && fabs(term) < 1e-17 * fabs(sum)) || fabs(sum) == inf)
			return sum;
		if (n > 1 << 12) { // far below zero the terms before do not count
			q = fmod(q, 1.0) + 10;
			break;
		}
		q += 1;
	}
	double power = pow(q, -s);
	sum += power * q / (s - 1) + power / 2;
	double factor = s * power / q;
	for (int j = 0; j < 8; j++) {
		sum += bernoulli(j) * factor;
		double k = 2 * j + 1;
		factor *= (s + k) * (s + k + 1) / (q * q);
	}
	return sum;
}

FUNCTION double trigamma(double x) {
	if (x < 0.5) {
		double s = sin(PI * x);
		return PI * PI / (s * s) - zeta(2, 1 - x);
	}
	return zeta(2, x);
}

// digamma is ±∞ at ±0 and NaN at negative integers.
FUNCTION double digamma(double x) {
	if (x == 0)
		return copysign((double)OM_INF, -x);
	double result = 0;
	if (x < 0) {
		if (x == trunc(x))
			return (double)OM_NAN;
		result = -PI / tan(PI * (x - trunc(x)));
		x = 1 - x;
	}
	while (x < 10) {
		result -= 1 / x;
		x += 1;
	}
	if (x == 10)
		return result + 2.25175258906672110764;
	double y = 0;
	if (x < 1e17) {
		double z = 1 / (x * x);
		y = z * (1.0 / 12 - z * (1.0 / 120 - z * (1.0 / 252 - z * (1.0 / 240 - z * (1.0 / 132 - z * (691.0 / 32760 - z / 12))))));
	}
	return result + log(x) - 0.5 / x - y;
}

// erfinv makes a polynomial's value better by Halley's method.
FUNCTION double erfinv_of(double y) {
	double a = fabs(y);
	if (!(a <= 1))
		return (double)OM_NAN;
	if (a == 1)
		return copysign((double)OM_INF, y);
	double w = -log((1 - a) * (1 + a)), p;
	if (w < 5) {
		w -= 2.5;
		p = 2.81022636e-08;
		p = 3.43273939e-07 + p * w;
		p = -3.5233877e-06 + p * w;
		p = -4.39150654e-06 + p * w;
		p = 0.00021858087 + p * w;
		p = -0.00125372503 + p * w;
		p = -0.00417768164 + p * w;
		p = 0.246640727 + p * w;
		p = 1.50140941 + p * w;
	} else {
		w = sqrt(w) - 3;
		p = -0.000200214257;
		p = 0.000100950558 + p * w;
		p = 0.00134934322 + p * w;
		p = -0.00367342844 + p * w;
		p = 0.00573950773 + p * w;
		p = -0.0076224613 + p * w;
		p = 0.00943887047 + p * w;
		p = 1.00167406 + p * w;
		p = 2.83297682 + p * w;
	}
	double x = p * a;
	for (int i = 0; i < 2; i++) {
		double off = a < 0.5 ? erf(x) - a : (1 - a) - erfc(x);
		double step = off / (1.1283791670955126 * exp(-x * x));
		x -= step / (1 + x * step);
	}
	return copysign(x, y);
}

FUNCTION double erfcx_of(double x) {
	if (x < 25)
		return exp(x * x) * erfc(x);
	double s = 1 / (2 * x * x);
	return 1 / (x * sqrt(PI)) * (1 - s * (1 - s * (3 - s * 15)));
}

FUNCTION double log_ndtr(double x) {
	double t = x * ROOT_HALF;
	if (x < -1)
		return log(erfcx_of(-t) / 2) - t * t;
	return log1p(-erfc(t) / 2);
}

// ndtri solves log Φ(x) = log p by Newton's method, for the half below the median.
FUNCTION double ndtri(double p) {
	if (!(p >= 0 && p <= 1))
		return (double)OM_NAN;
	if (p == 0 || p == 1)
		return (2 * p - 1) * (double)OM_INF;
	bool above = p > 0.5;
	if (above)
		p = 1 - p;
	double goal = log(p), x = -sqrt(-2 * goal);
	if (p > 1e-3)
		x = 1.4142135623730951 * erfinv_of(2 * p - 1);
	for (int i = 0; i < 12; i++) {
		double step = (log_ndtr(x) - goal) * 1.2533141373155003 * erfcx_of(-x * ROOT_HALF);
		x -= step;
		if (fabs(step) <= 1e-16 * fabs(x))
			break;
	}
	return above ? -x : x;
}

FUNCTION double spherical_j0(double x) {
	if (fabs(x) == (double)OM_INF)
		return 0;
	double s = x * x;
	if (s < 0.25)
		return 1 - s / 6 * (1 - s / 20 * (1 - s / 42 * (1 - s / 72 * (1 - s / 110 * (1 - s / 156)))));
	return sin(x) / x;
}

// scaled_i is a modified Bessel function of order 0 or 1 times e^−|x|: its series, or for a large x the asymptotic one.
FUNCTION double scaled_i(double x, int order) {
	double a = fabs(x), sum = 1, term = 1;
	if (a == (double)OM_INF)
		return 0;
	if (a > 30) {
		for (int k = 1; k < 30; k++) {
			double odd = 2 * k - 1;
			term *= (odd * odd - 4 * order) / (8 * a * k);
			sum += term;
		}
		sum /= sqrt(2 * PI * a);
		return order ? copysign(sum, x) : sum;
	}
	for (int k = 1; term > 1e-17 * sum; k++) {
		term *= a * a / 4 / ((double)k * (k + order));
		sum += term;
	}
	return (order ? x / 2 : 1.0) * sum * exp(-a);
}

// unscaled is y·e^|x|, whose factor alone may be too large.
OM_DEVICE double unscaled(double x, double y) {
	if (fabs(x) == (double)OM_INF)
		return copysign((double)OM_INF, y * x * x);
	double half = exp(fabs(x) / 2);
	return y * half * half;
}

FUNCTION double special(int op, double x) {
	switch (op) {
	case LGAMMA:
		return lgamma(x);
	case DIGAMMA:
		return digamma(x);
	case TRIGAMMA:
		return trigamma(x);
	case ERFINV:
		return erfinv_of(x);
	case ENTR:
		return x == 0 ? 0.0 : x < 0 ? -(double)OM_INF : -x * log(x);
	case ERFCX:
		return erfcx_of(x);
	case LOG_NDTR:
		return log_ndtr(x);
	case NDTRI:
		return ndtri(x);
	case BESSEL_J0:
		return j0(x);
	case BESSEL_J1:
		return j1(x);
	case BESSEL_Y0:
		return y0(x);
	case BESSEL_Y1:
		return y1(x);
	case SPHERICAL_J0:
		return spherical_j0(x);
	case I0:
		return unscaled(x, scaled_i(x, 0));
	case I0E:
		return scaled_i(x, 0);
	case I1:
		return unscaled(x, scaled_i(x, 1));
	}
	return scaled_i(x, 1);
}

OM_KERNEL(om_special, void *out, const void *in, int type, OM_GIVEN om_layout view, om_i64 n, int op) {
	OM_EACH(i, n) om_store_d(out, i, type, special(op, om_load_d(in, om_at(view, i), type)));
}

OM_KERNEL(om_zeta, void *out, int out_type, const void *s, int s_type, OM_GIVEN om_layout s_view, const void *q, int q_type, OM_GIVEN om_layout q_view,
		  om_i64 n) {
	OM_EACH(i, n)
		om_store_d(out, i, out_type, zeta(om_load_d(s, om_at(s_view, i), s_type), om_load_d(q, om_at(q_view, i), q_type)));
}
