#include "om.h"

// One operand, any strides; the result is contiguous.
#define UNARY(kind, suffix, T, A, expression)                                                  \
	OM_KERNEL(om_##kind##_##suffix, T *out, const T *in, om_layout view, om_i64 n) {            \
		OM_EACH(i, n) {                                                                       \
			A x = om_float(in[om_at(view, i)]);                                               \
			om_round(&out[i], (A)(expression));                                               \
		}                                                                                     \
	}

#define RELU(suffix, T, A) UNARY(relu, suffix, T, A, x > 0 || x != x ? x : (A)0)
OM_REAL(RELU)
