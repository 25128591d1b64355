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
//	var elementwiseKernels = map[layers.Kind]kernel{"relu": {supports: reals(1), launch: launchUnary("relu")}}
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
// After a change of a .cu file or of om.h run "go generate ./cuda/kernels" (see there); a test compares.
package cuda
