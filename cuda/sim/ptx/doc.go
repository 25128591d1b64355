// Package ptx interprets the kernels as they ship: it parses PTX and executes launches thread by thread over given
// memory. It is slow; it is for tests, which it tells of mistakes that a GPU would not report.
//
// A launch ends with a [Fault] when a thread accesses memory outside its launch's ranges or misaligned, reads shared
// memory that is uninitialised or still being copied to, races with another thread (two accesses to a byte, one of them
// a write, without a barrier in between; blocks are never ordered), or waits at a barrier for threads that never
// arrive.
//
// Kernels of GPUs of compute capability 9.0 do much asynchronously: boxes of tensors are copied to shared memory
// as late as may be (or by [Launch.Seed]), and mbarriers count who arrived and what was copied. Such kernels are
// watched by what each thread knows of others, so that a missing wait or arrival, a copy onto what is still read,
// and a missing fence between what threads wrote and what is read asynchronously are found; a wait that cannot end
// names its mbarrier. Registers and shared memory of a warpgroup's products (wgmma) must be left alone from
// wgmma.fence until they were waited for. Clusters of blocks, multicast, bulk copies from shared memory and
// reductions are not known.
//
// It knows only the instructions that package cuda's kernels use; any other is a [SyntaxError]. The .rn, .rz and
// fused operations round exactly. Where the ISA gives an error bound instead of a value (ex2, lg2, sin, cos, rcp,
// rsqrt, sqrt and div with .approx, and mma and wgmma, whose sums are rounded once), the result is that of 64-bit
// arithmetic, rounded. The gross 64-bit approximations have exactly the 20 bits of mantissa that the ISA promises.
// Caches, weak memory ordering, time and partial barriers are not modelled.
//
//	m, err := ptx.Parse(text)
//	k, err := m.Kernel("om_gather_4")
//	err = k.Run(ctx, ptx.Launch{Grid: [3]int{8, 1, 1}, Block: [3]int{256, 1, 1}, Parameters: packed, Memory: regions})
package ptx
