// What convolutions are told, and how they end.
#pragma once

// A convolution over three dimensions, of which the first may have size one. inputs and outputs are the channels of one group;
// x and w are strides: x of image, channel, z, y, x; w of the first dimension, the second, and the taps'.
struct geometry {
	om_i64 batch, groups, inputs, outputs;
	om_i64 in[3], out[3], kernel[3], stride[3], padding[3], dilation[3];
	om_i64 x[5], w[5], transposed;
};

// How a convolution ends, after its bias: the batch norm of its channel, what is added, the activation. All may be absent.
struct norm_steps {
	om_i64 w, b, mean, var;
};
// A kernel has its layout as it is given, L is how functions take it.
#define ENDING(T, A) ENDING_AS(OM_GIVEN om_layout, T, A)
#define ENDING_AS(L, T, A)                                                                                                        \
	const T *norm_w, const T *norm_b, const T *mean, const T *var, norm_steps steps, A eps, const T *added, L added_view, \
		int act, A act_a, A act_b
#define END norm_w, norm_b, mean, var, steps, eps, added, added_view, act, act_a, act_b

// activation_of is om_activated, once for a type in a file.
template <class A> static __device__ __noinline__ A activation_of(int act, A x, A a, A b) { return om_activated(act, x, a, b); }

template <class T, class A> OM_DEVICE A ended(A x, om_i64 channel, om_i64 i, ENDING_AS(const om_layout &, T, A)) {
	if (mean) {
		x = (x - om_float(mean[channel * steps.mean])) / (A)sqrt(om_float(var[channel * steps.var]) + eps);
		x = x * om_float(norm_w[channel * steps.w]) + om_float(norm_b[channel * steps.b]);
	}
	if (added)
		x += om_float(added[om_at(added_view, i)]);
	return act == OM_NO_ACTIVATION ? x : activation_of(act, x, act_a, act_b);
}
