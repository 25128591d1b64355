#include "om.h"

// The elements of a strided view, contiguous: launch.contiguous. Elements are copied by size, whatever they are.
#define GATHER(size, T)                                                              \
	OM_KERNEL(om_gather_##size, T *out, const T *in, om_layout view, om_i64 n) {      \
		OM_EACH(i, n) out[i] = in[om_at(view, i)];                                   \
	}

struct om_bytes16 {
	om_u64 low, high;
};

GATHER(1, om_u8)
GATHER(2, om_u16)
GATHER(4, om_u32)
GATHER(8, om_u64)
GATHER(16, om_bytes16)
