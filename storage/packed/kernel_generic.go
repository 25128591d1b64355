//go:build !amd64 || noasm

package packed

// haveKernels says that the processor has what the kernels take.
var haveKernels = false

func (b *parts) fast(p []byte) (used int, ok bool) { return b.plain(p) }

func (b *parts) fastJoin(p, halves []byte) { b.join(p, halves) }
