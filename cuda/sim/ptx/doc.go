// Package ptx runs kernels as they ship: it reads PTX and executes launches of its entries, thread by thread, over memory
// that it is given. It is for tests, and for speed it does nothing; what it is for is to say what a GPU would not.
//
// A launch ends with a [Fault] where a thread touches memory that is not its launch's or not aligned, reads shared memory
// that nobody wrote or that is still being copied to, touches a byte that another thread touches with no barrier in
// between, one of them writing (two blocks are never ordered), or waits for threads that do not come.
//
// Only the instructions that package cuda's kernels and those for tensor cores use are known; any other is a [SyntaxError].
// The .rn, .rz and fused operations round exactly. Where the ISA gives a bound and not a value, the result is that of 64-bit
// arithmetic, rounded: ex2, lg2, sin, cos, rcp, rsqrt, sqrt and div with .approx, and mma, whose sums are rounded once.
// The gross approximations of 64 bits have the 20 bits of a fraction that the ISA promises and no more. Not modelled
// are: what caches and the order of memory operations show without barriers, time, and partial barriers.
//
//	m, err := ptx.Parse(text)
//	k, err := m.Kernel("om_gather_4")
//	err = k.Run(ctx, ptx.Launch{Grid: [3]int{8, 1, 1}, Block: [3]int{256, 1, 1}, Parameters: packed, Memory: regions})
package ptx
