package driver

import (
	goruntime "runtime"
	"unsafe"
)

// A Module is loaded PTX.
type Module uintptr

// A Function is a kernel in a module.
type Function uintptr

// logBytes is how much of what the driver's compiler says is kept.
const logBytes = 4096

// LoadModule compiles PTX for the GPU of the context. The error has what the driver's compiler says.
func (l *Library) LoadModule(ptx []byte) (Module, error) {
	text := append(append(make([]byte, 0, len(ptx)+1), ptx...), 0)
	log := make([]byte, logBytes)
	var pin goruntime.Pinner // the driver gets the log's address in a list
	pin.Pin(&log[0])
	defer pin.Unpin()
	const errorLog, errorLogBytes = 5, 6
	options := [2]int32{errorLog, errorLogBytes}
	values := [2]uintptr{uintptr(unsafe.Pointer(&log[0])), logBytes}
	var m Module
	code := l.call(fnModuleLoadDataEx, uintptr(unsafe.Pointer(&m)), uintptr(unsafe.Pointer(&text[0])), uintptr(len(options)),
		uintptr(unsafe.Pointer(&options[0])), uintptr(unsafe.Pointer(&values[0])))
	err := l.check(fnModuleLoadDataEx, code)
	if said := goString(&log[0]); err != nil && said != "" {
		err.(*Error).Text += ": " + said
	}
	return m, err
}

// UnloadModule gives a module back.
func (l *Library) UnloadModule(m Module) error {
	return l.check(fnModuleUnload, l.call(fnModuleUnload, uintptr(m)))
}

// Function returns a kernel of a module.
func (l *Library) Function(m Module, name string) (Function, error) {
	text := append([]byte(name), 0)
	var f Function
	err := l.check(fnModuleGetFunction,
		l.call(fnModuleGetFunction, uintptr(unsafe.Pointer(&f)), uintptr(m), uintptr(unsafe.Pointer(&text[0]))))
	return f, err
}

// SharedLimit allows a kernel more dynamic shared memory than the 48 KiB that all have.
func (l *Library) SharedLimit(f Function, bytes int) error {
	const maxDynamicShared = 8
	return l.check(fnFuncSetAttribute, l.call(fnFuncSetAttribute, uintptr(f), maxDynamicShared, uintptr(bytes)))
}

// A Grid is the size of a launch.
type Grid struct {
	Blocks, Threads [3]uint32
	// SharedBytes is the dynamic shared memory of a block.
	SharedBytes uint32
}

// Parameters are those of a launch, packed as the compiler lays them out. They can be used again once it was given out.
type Parameters struct {
	Packed []byte
	// Offsets are where the parameters begin. Spans, address and bytes in turn, are what the pointers among them stand for.
	// Both are for the simulated driver.
	Offsets []int32
	Spans   []uint64

	size  uintptr
	extra [5]uintptr
}

// Launch gives a kernel to a stream.
func (l *Library) Launch(f Function, g Grid, p *Parameters, s Stream) error {
	if l.has(fnSimSubAlloc) {
		l.tell(p)
	}
	const bufferPointer, bufferSize, end = 1, 2, 0
	p.size = uintptr(len(p.Packed))
	// The buffers are on the heap, which does not move.
	p.extra = [5]uintptr{
		bufferPointer, uintptr(unsafe.Pointer(unsafe.SliceData(p.Packed))), bufferSize, uintptr(unsafe.Pointer(&p.size)), end,
	}
	code := l.call(fnLaunchKernel, uintptr(f),
		uintptr(g.Blocks[0]), uintptr(g.Blocks[1]), uintptr(g.Blocks[2]),
		uintptr(g.Threads[0]), uintptr(g.Threads[1]), uintptr(g.Threads[2]),
		uintptr(g.SharedBytes), uintptr(s), 0, uintptr(unsafe.Pointer(&p.extra[0])))
	goruntime.KeepAlive(p)
	return l.check(fnLaunchKernel, code)
}

// tell gives the simulated driver what a launch's pointers stand for and where its parameters are.
func (l *Library) tell(p *Parameters) {
	for i := 0; i+1 < len(p.Spans); i += 2 {
		l.call(fnSimSubAlloc, uintptr(p.Spans[i]), uintptr(p.Spans[i+1]))
	}
	if len(p.Offsets) > 0 {
		l.call(fnSimOffsets, uintptr(unsafe.Pointer(&p.Offsets[0])), uintptr(len(p.Offsets)))
	}
}
