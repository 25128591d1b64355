// How a result of a convolution ends, in float. Needs conv.h and tile.h.
#pragma once

// finish_one ends a result of a channel, which is element i.
template <class T>
OM_DEVICE float finish_one(float x, om_i64 channel, om_i64 i, const T *bias, om_i64 bias_step, ENDING_AS(const om_layout &, T, float)) {
	if (bias)
		x += om_float(bias[channel * bias_step]);
	if (mean) {
		x = (x - om_float(mean[channel * steps.mean])) / sqrtf(om_float(var[channel * steps.var]) + eps);
		x = x * om_float(norm_w[channel * steps.w]) + om_float(norm_b[channel * steps.b]);
	}
	if (added)
		x += om_float(added[place_at(added_view, i)]);
	return activated(act, x, act_a, act_b);
}
