// Package cuda implements package device for NVIDIA GPUs: memory, streams and events of the driver, and a kernel for
// each op. The driver is loaded when the first device is opened, not before.
//
// It knows ops and buffers. It does not know models, plans or files.
//
//	dev, err := cuda.New(cuda.Options{})
//	var absent *cuda.UnavailableError
//	if errors.As(err, &absent) {
//		// … no GPU here: run on the CPU
//	}
//
// [Lower] needs no GPU, so plans can be made on any machine.
//
// # How an op gets a kernel
//
// The kernels are in kernels/<family>.cu, their launches in op_<family>.go, and kernel.go lists each family in one
// line. A [kernel] says which operands it supports and how much scratch memory it needs, and launches:
//
//	var elementwiseKernels = map[graph.Kind]kernel{"relu": {supports: reals(1), launch: launchUnary("relu")}}
//
//	func launchRelu(l *launch) error {
//		x, out := l.in[0], l.out[0]
//		c := l.call("om_relu_" + suffix(x.dtype))
//		c.write(out).read(x).layout(x.layout).i64(out.size())
//		return c.over(out.size())
//	}
//
// Arguments are passed in the order of the kernel's parameters, each by the method of its type: the simulated driver
// refuses a launch whose parameter sizes differ from the kernel's. Pointers are passed by read, write or scratch, which
// also record the range of bytes. Operands are strided views of up to eight dimensions (more are refused): a kernel
// either takes the layout, or the operand is first copied to scratch memory. Results are contiguous. Errors that depend
// on data (a zero divisor, an index out of range) are recorded on the device by om_fail and returned by Sync
// (call.status).
//
// # Which kernel
//
// An op's sizes, dtypes and operand layouts choose its kernel, never the GPU (except for whether it has bfloat16 tensor
// cores, or wgmma), so that sums have the same order on every GPU.
//
// Attention: a block holds 32 or 64 queries with their sums in registers and loops over tiles of keys and values
// (online softmax), skipping tiles that are masked for causal queries. flash.cu is exact float32, up to 256 columns;
// flash_half.cu, and flash_half_wide.cu for heads of more than 128 columns, use tensor cores for half floats and for
// float32 that may be rounded; decode.cu is for up to sixteen queries over many keys: the keys are split among blocks
// and a second launch combines the parts. attention.cu takes the rest.
//
// Attention over caches (attend.cu): one launch writes the keys of all rows to their places, one the values, then a block
// attends for each head of each row, in spans of 256 positions that are put together in order. Where that makes few blocks,
// each span has its own, and another launch puts them together: the bits are the same. In programs with caches
// ([graph.RowsAlone]) products are computed by blocks for any number of rows, their terms split as for one row, so that a
// row's bits depend on no other row.
//
// Rows: softmax and norms keep a row of up to 8192 elements in registers of a warp or a block and read it once.
// Reductions over strided elements read neighbouring outputs together; a few long rows are split, with a second launch.
//
// Elementwise ops compute four results at a time if each operand has four contiguous elements, or one for all four. A
// chain of ops is one pass, and so is a rotary embedding. Index arithmetic divides by multiplying with reciprocals that
// the launch computes, for views of less than 2³¹ elements. Copies move up to sixteen bytes at a time.
//
// Products of few rows: a block reads four rows of the weight, each warp a part of the terms. Half floats and scaled
// int8 are widened in registers. For more than 32 rows, tensor_weights.cu widens them on the way to shared memory for
// tensor cores, and weights_f32.cu for exact float32. LSTM, GRU and RNN take a launch per step, a warp per unit of the
// state.
//
// # Products and convolutions
//
// Float32 products (gemm.cu) and convolutions (conv_f32.cu) share the tiles of tile.h: 128 × 128, 64 × 64 or 16 × 128
// results, 8 terms a step, with four stages in shared memory on GPUs that copy asynchronously (8.0 on), else two.
// Convolutions are implicit products: windows are gathered while they are copied. [divide] chooses the tile from sizes
// alone, and whether the terms are split among blocks whose sums a second kernel adds in order. Large 3×3 convolutions
// use Winograd's F(4×4, 3×3) in four launches (winograd.cu) unless Exact.
//
// From 8.0 on, products of half floats, and of float32 under precision bfloat16 or TF32, use tensor cores (product.h,
// tensor.h): 128 × 128, 64 × 64 or 32 × 128 results, 64 bytes of each row a step, three stages in shared memory,
// swizzled so that ldmatrix has no bank conflicts. Floats are rounded to nearest in registers; sums are float32. With u
// = 2⁻¹¹ for TF32 and 2⁻⁸ for bfloat16, rounding adds at most (2u + u²)·Σ|a·b| to the error of a float32 sum. The
// layout of the factors changes how they are copied, never a bit. GPUs before, which have no asynchronous copies, compute products
// and convolutions of float16 so, too: the next part waits in registers, and two are in shared memory. On 7.5 sixteen terms are two
// products of eight; on 7.0 and 7.2 each quarter of a warp multiplies 8 × 4 by 4 × 8, and nothing is read by ldmatrix (pieces.h).
// Attention of float16 in heads of up to 128 columns goes by tensor cores there, too (flash_half.h); int8 weights beside float16
// are widened on the way to them on 7.5; on 7.0 in memory, before. There is no bfloat16 before 8.0: what is of it, or rounded to it, is
// computed in float32 without tensor cores, and there is no TF32.
//
// On 9.0, and no other GPU, linears of half floats whose factors lie in sixteens of bytes are computed by wgmma (hopper.h): 128 × 256 or
// 64 × 256 results of warpgroups, both factors brought as boxes by TMA, 64 terms of each line at a time, four such lots in shared memory.
// [LowerFor] decides which, from sizes and layouts; where rows are alone not from how many there are: their terms are cut in as many
// parts for one row as for many. Each result is summed by the same instruction, in the same order, whatever the block; that order is not
// mma.sync's, so that last bits differ from other GPUs'. Where the driver refuses the kernels, as before CUDA 12.0, the others compute.
// So are convolutions of half floats from some outputs, pixels and terms on (hopper_conv.h): 128 × 256 or 64 × 256 results, outputs by
// pixels. The weight comes as boxes, what windows read is copied by a warpgroup, sixteen bytes of channels at a time, and is told to the
// proxy that wgmma reads by. A batch norm divides once for each channel there, so that its last bits, too, differ from other kernels'.
// Float32, attention and other products than linears do without.
//
// Convolutions in those precisions are implicit products of windows (a row per pixel) and weights (a row per output
// channel; convolve.h). Terms are ordered by tap, then channel, so that sixteen bytes of channels are copied at a time.
// Other layouts are transposed to scratch memory first; resident weights are packed once ([convPacks]). The order of
// sums is the same either way. Groups with fewer than 16 outputs have their own kernels (conv_groups.cu).
//
// # Channels-last regions
//
// [Arrange], between rewrite.Optimise and [Lower], avoids those transpositions. It adds no ops and no kinds: the values
// of a region are N×space×C, and operands' layouts describe them, so an op that knows nothing of regions reads a view.
// A region is used if it saves its convolutions more bytes of transposition than other ops then read with strides.
// Outputs, states and values that cannot be read as views of the new order keep theirs. Regions need tensor cores: half
// floats, or float32 that may be rounded.
//
// After changing a .cu file or om.h, run "go generate ./cuda/kernels" (see there); a test compares.
package cuda
