//go:build linux && (amd64 || arm64) && !nocuda

package sim

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/optimem/optimem/cuda/sim/ptx"
)

// An Interpreter runs the launches of a driver from the PTX that the driver was given, by [ptx.Kernel.Run]: what is
// computed is what ships. A launch may touch what its pointers stand for and nothing else.
type Interpreter struct {
	// Mutate, if not nil, changes PTX before it is read.
	Mutate func(text []byte) []byte
	// Seed is that of the launches: see [ptx.Launch].
	Seed uint64

	mu     sync.Mutex
	images []loaded
	ran    map[string][]bool
}

// A loaded is PTX that was read.
type loaded struct {
	text   []byte
	module *ptx.Module
}

// foreignLaunch is foreign_launch of world.h.
type foreignLaunch struct {
	text        *byte
	textBytes   uintptr
	name        *byte
	packed      *byte
	packedBytes uintptr
	grid, size  [3]uint32
	sharedBytes uintptr
	regions     *uint64
	count       uintptr
	error       *byte
	errorBytes  uintptr
}

// runner is what the driver calls. There is one in a process, as there is one driver; current is who it asks.
var runner struct {
	once    sync.Once
	call    uintptr
	mu      sync.Mutex
	current *Interpreter
}

// Interpret makes the driver's launches the interpreter's until the test ends.
func (l *Library) Interpret(t testing.TB) *Interpreter {
	t.Helper()
	in := &Interpreter{ran: make(map[string][]bool)}
	set := func(to *Interpreter) {
		runner.mu.Lock()
		defer runner.mu.Unlock()
		runner.current = to
	}
	runner.once.Do(func() {
		runner.call = purego.NewCallback(func(l *foreignLaunch) uintptr {
			runner.mu.Lock()
			in := runner.current
			runner.mu.Unlock()
			if err := in.run(l); err != nil {
				to := unsafe.Slice(l.error, l.errorBytes)
				to[copy(to[:len(to)-1], err.Error())] = 0
			}
			return 0
		})
	})
	set(in)
	purego.SyscallN(l.run, runner.call)
	t.Cleanup(func() {
		purego.SyscallN(l.run, 0)
		set(nil)
	})
	return in
}

// module reads PTX, unless that was done before.
func (in *Interpreter) module(text []byte) (*ptx.Module, error) {
	for _, i := range in.images {
		if bytes.Equal(i.text, text) {
			return i.module, nil
		}
	}
	read := slices.Clone(text)
	if in.Mutate != nil {
		read = in.Mutate(read)
	}
	m, err := ptx.Parse(read)
	if err != nil {
		return nil, err
	}
	in.images = append(in.images, loaded{slices.Clone(text), m})
	return m, nil
}

// run computes a launch.
func (in *Interpreter) run(l *foreignLaunch) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	m, err := in.module(unsafe.Slice(l.text, l.textBytes))
	if err != nil {
		return err
	}
	k, err := m.Kernel(goString(l.name))
	if err != nil {
		return err
	}
	if in.ran[k.Name] == nil {
		in.ran[k.Name] = make([]bool, k.Len())
	}
	launch := ptx.Launch{
		SharedBytes: int(l.sharedBytes), Parameters: unsafe.Slice(l.packed, l.packedBytes), Ran: in.ran[k.Name],
		Seed: in.Seed,
	}
	for d := range 3 {
		launch.Grid[d], launch.Block[d] = int(l.grid[d]), int(l.size[d])
	}
	regions := unsafe.Slice(l.regions, 3*l.count)
	for i := 0; i < len(regions); i += 3 {
		address, n, writes := regions[i], regions[i+1], regions[i+2] != 0
		same := slices.IndexFunc(launch.Memory, func(r ptx.Region) bool {
			return r.Address == address && uint64(len(r.Data)) == n
		})
		if same >= 0 {
			launch.Memory[same].Writes = launch.Memory[same].Writes || writes
			continue
		}
		// The driver's memory is the host's, not Go's.
		data := unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&address))), n)
		launch.Memory = append(launch.Memory, ptx.Region{Address: address, Data: data, Writes: writes})
	}
	return k.Run(context.Background(), launch)
}

// Ran returns how many of a kernel's instructions were run, of how many. A kernel that was not launched has none.
func (in *Interpreter) Ran(kernel string) (ran, all int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, r := range in.ran[kernel] {
		if r {
			ran++
		}
	}
	return ran, len(in.ran[kernel])
}

// goString copies a C string.
func goString(p *byte) string {
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(p, n))
}
