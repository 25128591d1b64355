#include "om.h"
#include "tile.h"

// The parts of sums, one after the other, and what a linear with a narrow weight ends with; out and added are of a dtype.
OM_KERNEL(om_weights_sum, void *out, int out_type, const float *parts, const void *scales, int scales_type, om_i64 scale_step,
		  const void *bias, int bias_type, om_i64 bias_step, const void *added, OM_GIVEN om_layout added_rows, om_i64 added_step, int act,
		  float act_a, float act_b, om_i64 n, om_i64 total, int count) {
	OM_EACH(i, total) {
		float sum = 0;
		for (int p = 0; p < count; p++)
			sum += parts[p * total + i];
		om_i64 r = i / n, c = i - r * n;
		if (scales)
			sum *= om_load_f(scales, c * scale_step, scales_type);
		if (bias)
			sum += om_load_f(bias, c * bias_step, bias_type);
		sum = activated(act, sum, act_a, act_b);
		if (added)
			sum += om_load_f(added, place_at(added_rows, r) + c * added_step, out_type);
		om_store_f(out, i, out_type, sum);
	}
}
