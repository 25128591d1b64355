// Included first by every .cu file. The same sources are compiled to PTX and, for the simulated driver, by a C++
// compiler for the host: keep to what both take. No headers of CUDA, no <<<>>>, no templates of kernels, no globals; what
// only a GPU has (inline PTX, asynchronous copies, tensor cores) stands under #ifdef __CUDA_ARCH__ beside a plain way.
#pragma once

#ifdef __CUDACC__

#define OM_DEVICE __device__ __forceinline__
// A kernel. Its name begins with om_, since names such as div clash with the host's. Pointers are parameters of their own,
// never members of a struct, and const where they are only read: the simulated driver looks for races by that.
#define OM_KERNEL(name, ...) extern "C" __global__ void name(__VA_ARGS__)
// Before a kernel's parameter that is a struct: it is read where it lies. Without this, a struct with an array of which an
// element is read whose number is known late, as those of om_layout are, is copied to each thread's own memory first.
#define OM_GIVEN const __grid_constant__
// The launch's dynamic shared memory as T *name.
#define OM_DYNAMIC(T, name)                                            \
	extern __shared__ __align__(16) unsigned char om_dynamic_bytes[]; \
	T *name = (T *)om_dynamic_bytes

#else

#include "simt.h" // of the simulated driver: OM_KERNEL, OM_GIVEN, OM_DEVICE, OM_DYNAMIC, threadIdx, __shared__, __syncthreads, …

#endif

typedef long long om_i64;
typedef unsigned long long om_u64;
typedef signed char om_i8;
typedef unsigned char om_u8;
typedef unsigned short om_u16;
typedef unsigned int om_u32;

// Eight is the most dimensions that an operand has.
#define OM_DIMS 8

// A number that others are divided by, none of them 2³¹ or more where shift is below 32: their quotients are then a
// multiplication and a shift, by what the launch computed (call.divisor).
struct om_divisor {
	om_i64 by;
	om_u32 factor, shift;
};

OM_DEVICE om_u32 om_quotient(om_u32 i, om_u32 factor, om_u32 shift) {
	return ((om_u32)((om_u64)i * factor >> 32) + i) >> shift;
}

// om_over is i / d.by.
OM_DEVICE om_i64 om_over(om_i64 i, const om_divisor &d) {
	return d.shift < 32 ? (om_i64)om_quotient((om_u32)i, d.factor, d.shift) : i / d.by;
}

// om_take returns i % d.by and makes of i what is left, i / d.by.
OM_DEVICE om_i64 om_take(om_i64 *i, const om_divisor &d) {
	om_i64 all = *i;
	*i = om_over(all, d);
	return all - *i * d.by;
}

// A strided view: dimensions and strides in elements. Its offset is in the pointer beside it. The launch joins dimensions
// that lie in order, so that a contiguous view has one, of stride 1. Where there are less than 2³¹ elements it is small, and
// has what quotients by its dimensions are computed with: see om_divisor.
struct om_layout {
	int rank, small;
	om_i64 shape[OM_DIMS];
	om_i64 stride[OM_DIMS];
	om_u32 factor[OM_DIMS];
	om_u8 shift[OM_DIMS];
};

// om_along is om_take for dimension d of a view.
OM_DEVICE om_i64 om_along(om_i64 *i, const om_layout &l, int d) {
	om_i64 all = *i;
	*i = l.small ? (om_i64)om_quotient((om_u32)all, l.factor[d], l.shift[d]) : all / l.shape[d];
	return all - *i * l.shape[d];
}

// om_at is where element i, counted in row-major order, lies.
OM_DEVICE om_i64 om_at(const om_layout &l, om_i64 i) {
	om_i64 at = 0;
	if (l.small) {
		om_u32 left = (om_u32)i;
#pragma unroll 1
		for (int d = l.rank - 1; d > 0; d--) {
			om_u32 next = om_quotient(left, l.factor[d], l.shift[d]);
			at += (om_i64)(left - next * (om_u32)l.shape[d]) * l.stride[d];
			left = next;
		}
		return at + (om_i64)left * l.stride[0];
	}
#pragma unroll 1
	for (int d = l.rank - 1; d > 0; d--) {
		om_i64 next = i / l.shape[d];
		at += (i - next * l.shape[d]) * l.stride[d];
		i = next;
	}
	return at + i * l.stride[0];
}

// OM_EACH walks i over [0, n), spread over all threads of a launch of one dimension (call.over).
#define OM_EACH(i, n)                                                                    \
	for (om_i64 i = (om_i64)blockIdx.x * blockDim.x + threadIdx.x, om_step = (om_i64)blockDim.x * gridDim.x; i < (n); \
		 i += om_step)

// Half floats are bits; they are computed with as float and rounded once.
struct om_f16 {
	om_u16 bits;
};
struct om_bf16 {
	om_u16 bits;
};

OM_DEVICE float om_bits_float(om_u32 bits) {
#ifdef __CUDACC__
	return __uint_as_float(bits);
#else
	float f;
	__builtin_memcpy(&f, &bits, 4);
	return f;
#endif
}

OM_DEVICE om_u32 om_float_bits(float f) {
#ifdef __CUDACC__
	return __float_as_uint(f);
#else
	om_u32 bits;
	__builtin_memcpy(&bits, &f, 4);
	return bits;
#endif
}

#define OM_INF om_bits_float(0x7f800000u)
#define OM_NAN om_bits_float(0x7fc00000u)

// om_float widens: to float, but double stays what it is.
OM_DEVICE double om_float(double x) { return x; }
OM_DEVICE float om_float(float x) { return x; }
OM_DEVICE float om_float(om_bf16 x) { return om_bits_float((om_u32)x.bits << 16); }
OM_DEVICE float om_float(om_f16 x) {
#ifdef __CUDACC__
	float f;
	asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(x.bits));
	return f;
#else
	om_u32 sign = (om_u32)(x.bits & 0x8000) << 16, rest = x.bits & 0x7fff;
	if (rest >= 0x7c00)
		return om_bits_float(sign | 0x7f800000u | (rest & 0x3ff) << 13);
	if (rest >= 0x400)
		return om_bits_float(sign | (rest << 13) + (112u << 23));
	float small = (float)rest * 5.9604644775390625e-08f; // 2⁻²⁴
	return om_bits_float(sign | om_float_bits(small));
#endif
}

// om_round sets an element to a float, rounded to nearest even.
OM_DEVICE void om_round(double *to, double x) { *to = x; }
OM_DEVICE void om_round(float *to, float x) { *to = x; }
OM_DEVICE void om_round(om_bf16 *to, float x) {
	om_u32 b = om_float_bits(x);
	to->bits = x != x ? (om_u16)0x7fc0 : (om_u16)((b + 0x7fff + ((b >> 16) & 1)) >> 16);
}
OM_DEVICE void om_round(om_f16 *to, float x) {
#ifdef __CUDACC__
	om_u16 bits;
	asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
	to->bits = bits;
#else
	om_u32 b = om_float_bits(x), sign = b >> 16 & 0x8000, rest = b & 0x7fffffff;
	if (rest > 0x7f800000)
		to->bits = (om_u16)(sign | 0x7e00);
	else if (rest >= 0x477ff000)
		to->bits = (om_u16)(sign | 0x7c00);
	else if (rest >= 0x38800000)
		to->bits = (om_u16)(sign | (rest - (112u << 23) + 0xfff + (rest >> 13 & 1)) >> 13);
	else // a multiple of 2⁻²⁴: adding ½ leaves exactly those bits
		to->bits = (om_u16)(sign | (om_float_bits(om_bits_float(rest) + 0.5f) - 0x3f000000u));
#endif
}

// OM_REAL instantiates a macro M(suffix, T, A) for the float dtypes: T is the element, A what it is computed in.
#define OM_REAL(M)         \
	M(f32, float, float)   \
	M(f16, om_f16, float)  \
	M(bf16, om_bf16, float) \
	M(f64, double, double)

// What a kernel can fail with while it runs: the codes of cuda/status.go.
#define OM_DIVISOR_ZERO 1
#define OM_OUT_OF_RANGE 2
#define OM_BAD_GROUPS 3

// om_fail notes the first failure; status and where are the parameters that call.status passes.
OM_DEVICE void om_fail(int *status, int where, int code) {
	if (atomicCAS(status, 0, code) == 0)
		status[1] = where;
}

// The dtypes of elements that are told apart while a kernel runs: dtypeCodes of the launches.
enum { OM_F32, OM_F64, OM_F16, OM_BF16, OM_I8, OM_I16, OM_I32, OM_I64, OM_U8, OM_U16, OM_U32, OM_U64, OM_BOOL };

// om_load_f, om_load_d and om_load_i read element i as float (not of doubles or integers), as double (not of integers) and as
// an integer (not of floats), of which 64 unsigned bits are read as those of an om_i64.
OM_DEVICE float om_load_f(const void *p, om_i64 i, int dtype) {
	switch (dtype) {
	case OM_F16:
		return om_float(((const om_f16 *)p)[i]);
	case OM_BF16:
		return om_float(((const om_bf16 *)p)[i]);
	}
	return ((const float *)p)[i];
}
OM_DEVICE double om_load_d(const void *p, om_i64 i, int dtype) {
	return dtype == OM_F64 ? ((const double *)p)[i] : (double)om_load_f(p, i, dtype);
}
OM_DEVICE om_i64 om_load_i(const void *p, om_i64 i, int dtype) {
	switch (dtype) {
	case OM_I8:
		return ((const om_i8 *)p)[i];
	case OM_I16:
		return ((const short *)p)[i];
	case OM_I32:
		return ((const int *)p)[i];
	case OM_U8:
	case OM_BOOL:
		return ((const om_u8 *)p)[i];
	case OM_U16:
		return ((const om_u16 *)p)[i];
	case OM_U32:
		return ((const om_u32 *)p)[i];
	}
	return ((const om_i64 *)p)[i];
}

// om_store_f, om_store_d and om_store_i write element i: floats rounded, integers cut to the low bits.
OM_DEVICE void om_store_f(void *p, om_i64 i, int dtype, float x) {
	switch (dtype) {
	case OM_F16:
		om_round(&((om_f16 *)p)[i], x);
		break;
	case OM_BF16:
		om_round(&((om_bf16 *)p)[i], x);
		break;
	default:
		((float *)p)[i] = x;
	}
}
OM_DEVICE void om_store_d(void *p, om_i64 i, int dtype, double x) {
	if (dtype == OM_F64)
		((double *)p)[i] = x;
	else
		om_store_f(p, i, dtype, (float)x);
}
OM_DEVICE void om_store_i(void *p, om_i64 i, int dtype, om_i64 x) {
	switch (dtype) {
	case OM_I8:
	case OM_U8:
	case OM_BOOL:
		((om_u8 *)p)[i] = (om_u8)x;
		break;
	case OM_I16:
	case OM_U16:
		((om_u16 *)p)[i] = (om_u16)x;
		break;
	case OM_I32:
	case OM_U32:
		((om_u32 *)p)[i] = (om_u32)x;
		break;
	default:
		((om_i64 *)p)[i] = x;
	}
}

// om_load and om_store are the same by the type that is computed in.
OM_DEVICE void om_load(float *x, const void *p, om_i64 i, int dtype) { *x = om_load_f(p, i, dtype); }
OM_DEVICE void om_load(double *x, const void *p, om_i64 i, int dtype) { *x = om_load_d(p, i, dtype); }
OM_DEVICE void om_load(om_i64 *x, const void *p, om_i64 i, int dtype) { *x = om_load_i(p, i, dtype); }
OM_DEVICE void om_store(void *p, om_i64 i, int dtype, float x) { om_store_f(p, i, dtype, x); }
OM_DEVICE void om_store(void *p, om_i64 i, int dtype, double x) { om_store_d(p, i, dtype, x); }
OM_DEVICE void om_store(void *p, om_i64 i, int dtype, om_i64 x) { om_store_i(p, i, dtype, x); }

// om_times is a product that is rounded by itself: never one rounding for it and a sum.
OM_DEVICE float om_times(float a, float b) {
#ifdef __CUDA_ARCH__
	return __fmul_rn(a, b);
#else
	return a * b;
#endif
}
OM_DEVICE double om_times(double a, double b) {
#ifdef __CUDA_ARCH__
	return __dmul_rn(a, b);
#else
	return a * b;
#endif
}

// What an op was told to make, and what its data makes, differ: the code of cuda/status.go.
#define OM_BAD_COUNTS 4

// A range that is not finite.
#define OM_BAD_RANGE 5

// What a product ends with before it is written: activationCodes of op_linear.go.
enum {
	OM_NO_ACTIVATION, OM_RELU, OM_RELU6, OM_HARDTANH, OM_SILU, OM_HARDSWISH, OM_HARDSIGMOID, OM_SIGMOID, OM_TANH, OM_GELU,
	OM_GELU_TANH, OM_LEAKY_RELU, OM_ELU
};

// om_activated is an activation of x; a and b are its numbers.
template <class A> OM_DEVICE A om_activated(int act, A x, A a, A b) {
	A gate = x + 3;
	switch (act) {
	case OM_RELU:
		return x < 0 ? (A)0 : x;
	case OM_RELU6:
		a = 0;
		b = 6;
		// fall through
	case OM_HARDTANH:
		x = x < a ? a : x;
		return x > b ? b : x;
	case OM_SILU:
		return x / ((A)1 + (A)exp(-x));
	case OM_HARDSWISH:
		return x * (gate < 0 ? (A)0 : gate > 6 ? (A)6 : gate) / 6;
	case OM_HARDSIGMOID:
		return (gate < 0 ? (A)0 : gate > 6 ? (A)6 : gate) / 6;
	case OM_SIGMOID:
		return (A)1 / ((A)1 + (A)exp(-x));
	case OM_TANH:
		return tanh(x);
	case OM_GELU:
		return x * (A)0.5 * ((A)1 + (A)erf(x * (A)0.7071067811865476));
	case OM_GELU_TANH:
		return (A)0.5 * x * ((A)1 + (A)tanh((A)0.7978845608028654 * (x + (A)0.044715 * x * x * x)));
	case OM_LEAKY_RELU:
		return x > 0 ? x : x * a;
	case OM_ELU:
		return x > 0 ? x : a * (A)expm1(x);
	}
	return x;
}
