// Package cuda is NVIDIA's GPUs as a device: memory, streams and events of the driver, which is opened when the first
// device is and never before, and kernels for the ops.
//
// It knows ops and buffers. It does not know models, plans or files.
//
//	dev, err := cuda.New(cuda.Options{})
//	var absent *cuda.UnavailableError
//	if errors.As(err, &absent) {
//		// … no GPU here: run on the CPU
//	}
//
// [Lower] needs no GPU, so that plans can be made anywhere.
//
// # How an op gets a kernel
//
// kernels/<family>.cu has the kernels, op_<family>.go says how they are launched, and one line in the table of
// kernel.go lists the family. A [kernel] says which operands it takes, what scratch memory it wants, and launches:
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
// The arguments are given in the order of the kernel's parameters, and each with the method of its type: the simulated
// driver refuses a launch whose sizes are not the kernel's. A pointer goes in by read, write or scratch, which also tell
// which bytes it stands for. Operands are strided views of up to eight dimensions (more are refused): a kernel takes their
// layout, or a kernel makes a copy of it in the scratch memory first. Results are contiguous. What fails on data (a
// divisor of zero, an index out of range) is noted on the device by om_fail, and Sync returns it: call.status.
//
// # Which kernel
//
// Which kernel computes an op follows from its sizes, its dtypes and how its operands lie, never from the GPU (except whether it
// has tensor cores for bfloat16), so that a sum has the same order wherever it is computed.
//
// Attention: a block has 32 or 64 queries whose sums stay in registers, and goes over keys and values tile by tile, keeping the
// largest score and the sum of weights and leaving out tiles that causal queries do not see. flash.cu is exact float32, up to
// 256 columns; flash_half.cu, and flash_half_wide.cu for heads of more than 128 columns, use tensor cores, for half floats and
// for float32 that may be rounded; decode.cu is for up to sixteen queries over many keys, which blocks share and a second launch
// puts together. attention.cu takes the rest.
//
// Rows: softmax and norms keep a row of up to 8192 elements in the registers of a warp or a block and read it once. Reductions
// read neighbouring outputs together where a row's elements are far apart; few long rows are cut into parts for a second launch.
//
// Elementwise ops compute four results at a time where every operand has four elements side by side, or one for all four. A
// chain is one pass, and so is a rotary embedding. Where an element of a view lies takes quotients, which are multiplications by
// what the launch computed for views of less than 2³¹ elements. What is only moved goes up to sixteen bytes at a time.
//
// Products of few rows: a block reads four lines of the weight, its warps a part of the terms each. Half floats and int8 with
// scales stay narrow until they are in registers. For more than 32 rows tensor_weights.cu widens them on the way to shared memory
// where tensor cores multiply, and weights_f32.cu for exact float32. LSTM, GRU and RNN have a launch for each step, a warp for
// each unit of the state.
//
// # Products and convolutions
//
// Float32 products (gemm.cu) and convolutions (conv_f32.cu) share the blocks of tile.h: 128 × 128, 64 × 64 or 16 × 128 results,
// 8 terms at a time, four parts of them in shared memory where the GPU copies asynchronously (8.0 on), else two. A convolution's
// windows are looked up as they are copied and never written. [divide] chooses the block, and whether terms are split among blocks
// whose sums a second kernel adds in order, from sizes alone. Large 3×3 convolutions use F(4×4, 3×3) in four launches
// (winograd.cu) unless Exact.
//
// From 8.0 on, products of half floats, and of float32 where bfloat16 or TF32 is asked for, use tensor cores (product.h, tensor.h):
// 128 × 128, 64 × 64 or 32 × 128 results, 64 bytes of each line at a time, three parts of them in shared memory, swizzled so that
// ldmatrix meets no bank twice. Floats are rounded to nearest in registers; sums are float32. With u = 2⁻¹¹ for TF32 and 2⁻⁸ for
// bfloat16, a sum is off by at most (2u + u²)·Σ|a·b| besides what float32 is. How factors lie changes how they are copied, never a
// bit. Older GPUs have the same in bfloat16 without tensor cores, and no TF32. There is no wgmma and no TMA.
//
// Convolutions of such factors are products of the windows, a line for each pixel, and the weight, a line for each output
// (convolve.h). Terms are in the order of taps, then of channels, so that sixteen bytes of channels are copied at a time. What does
// not lie so is turned into scratch memory first; weights that stay are packed once ([convPacks]). Sums have the same order either
// way. Groups with fewer than 16 outputs have kernels of their own (conv_groups.cu).
//
// # Channels-last regions
//
// [Arrange], after rewrite.Optimise and before [Lower], leaves that turning out. No op turns and there is no new kind: values of a
// region are N×space×C, and the layouts of operands say where elements lie, so an op that knows nothing of regions reads a view. A
// region is taken where the bytes that its convolutions need not turn are more than those that other ops then read far apart.
// Outputs, states and what is read as no view of the new order stay. Regions need tensor cores: half floats, or float32 that may
// be rounded.
//
// After a change of a .cu file or of om.h run "go generate ./cuda/kernels" (see there); a test compares.
package cuda
