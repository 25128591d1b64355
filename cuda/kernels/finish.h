// How a result of a convolution ends, in float. Needs conv.h and tile.h.
#pragma once

// A channel_end is what the results of a channel end with: their bias, which may be none, and the batch norm, where there is one.
struct channel_end {
	float bias, mean, root, w, b;

	template <class T>
	__device__ __forceinline__ void begin(om_i64 channel, const T *biases, om_i64 bias_step, const T *norm_w, const T *norm_b, const T *means,
										  const T *vars, const norm_steps &steps, float eps) {
		bias = biases ? om_float(biases[channel * bias_step]) : -0.0f; // which added changes nothing
		if (means) {
			mean = om_float(means[channel * steps.mean]), root = sqrtf(om_float(vars[channel * steps.var]) + eps);
			w = om_float(norm_w[channel * steps.w]), b = om_float(norm_b[channel * steps.b]);
		}
	}

	// ended is what a result ends as that is element i of all.
	template <class T>
	__device__ __forceinline__ float ended(float x, bool normed, om_i64 i, const T *added, const om_layout &added_view, int act, float act_a,
										   float act_b) const {
		x += bias;
		if (normed)
			x = (x - mean) / root * w + b;
		if (added)
			x += om_float(added[place_at(added_view, i)]);
		return activated(act, x, act_a, act_b);
	}
};

// finish_one ends a result of a channel, which is element i.
template <class T>
OM_DEVICE float finish_one(float x, om_i64 channel, om_i64 i, const T *bias, om_i64 bias_step, ENDING_AS(const om_layout &, T, float)) {
	channel_end own;
	own.begin(channel, bias, bias_step, norm_w, norm_b, mean, var, steps, eps);
	return own.ended(x, mean != 0, i, added, added_view, act, act_a, act_b);
}
