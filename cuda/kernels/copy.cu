#include "om.h"

// The elements of a strided view, contiguous: launch.contiguous. Elements are copied by size, whatever they are.
#define GATHER(size, T)                                                              \
	OM_KERNEL(om_gather_##size, T *out, const T *in, OM_GIVEN om_layout view, om_i64 n) {      \
		OM_EACH(i, n) out[i] = in[om_at(view, i)];                                   \
	}

struct alignas(16) om_bytes16 {
	om_u64 low, high;
};

GATHER(1, om_u8)
GATHER(2, om_u16)
GATHER(4, om_u32)
GATHER(8, om_u64)
GATHER(16, om_bytes16)

// The elements of one view written where another one says: copy, cat, write_view.
#define SCATTER(size, T)                                                                                       \
	OM_KERNEL(om_scatter_##size, T *out, OM_GIVEN om_layout to, const T *in, OM_GIVEN om_layout from, om_i64 n) {                 \
		OM_EACH(i, n) out[om_at(to, i)] = in[om_at(from, i)];                                                  \
	}

SCATTER(1, om_u8)
SCATTER(2, om_u16)
SCATTER(4, om_u32)
SCATTER(8, om_u64)
SCATTER(16, om_bytes16)

// out[…][i][j] = in[…][i][j] where j − i ≤ diagonal, or with upper ≥, else 0.
#define TRIANGLE(size, T)                                                                                             \
	OM_KERNEL(om_triangle_##size, T *out, const T *in, OM_GIVEN om_layout view, om_divisor rows, om_divisor columns, om_i64 diagonal, \
			  int upper, om_i64 n) {                                                                              \
		OM_EACH(i, n) {                                                                                            \
			om_i64 line = i, column = om_take(&line, columns), apart = column - om_take(&line, rows);              \
			out[i] = (upper ? apart >= diagonal : apart <= diagonal) ? in[om_at(view, i)] : zero((T *)0);          \
		}                                                                                                          \
	}
template <class T> OM_DEVICE T zero(T *) { return 0; }
OM_DEVICE om_bytes16 zero(om_bytes16 *) {
	om_bytes16 none = {0, 0};
	return none;
}

TRIANGLE(1, om_u8)
TRIANGLE(2, om_u16)
TRIANGLE(4, om_u32)
TRIANGLE(8, om_u64)
TRIANGLE(16, om_bytes16)
