package cuda

import (
	"errors"
	"fmt"
	goruntime "runtime"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/optimem/optimem/cuda/internal/driver"
	"github.com/optimem/optimem/cuda/kernels"
	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/graph"
)

// Options say which GPU. The zero value is the first one of the system's driver.
type Options struct {
	// Ordinal is the number of the GPU among those that the process may use.
	Ordinal int
	// Library is the path of the driver, such as that of the simulated one; "" is the system's.
	Library string
	// CUBLASLt is the path of cuBLASLt, "auto" for the first one found, which then computes the products of matrices that
	// it can; New fails where there is none. "" is that on GPUs for which a table says so, of products that are as large as that
	// says, and if the library is found; "none" is the kernels here alone. Some columns of a product are computed as the library
	// computes the whole one, so that a linear that is cut has the same bits, if it takes that way for them.
	CUBLASLt string
	// Environment returns variables of the environment: those that say where Python environments and toolkits are, in which cuBLASLt
	// may be, and OPTIMEM_WGMMA, of which "none" is that no kernel of wgmma computes. It is os.Getenv; nil is none.
	Environment func(name string) string
	// Cache is a folder with kernels that were assembled before, which then need not be compiled: those of a release, and those
	// that drivers compiled, which are added if the folder can be written. Files that are damaged, or of other kernels,
	// GPUs or drivers, are as if they were not there. "" is none: the driver compiles, and may have a cache of its own.
	Cache string
}

// An UnavailableError says why there is no GPU to compute on.
type UnavailableError struct {
	// Reason is for people.
	Reason string
	// None says that there is no driver or no GPU at all, rather than one that cannot be used.
	None bool
	Err  error
}

// Error gives the reason.
func (e *UnavailableError) Error() string {
	if e.Err == nil {
		return e.Reason
	}
	return e.Reason + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *UnavailableError) Unwrap() error { return e.Err }

// A LostError says that the device failed in a way after which nothing can be done on it. A new one may work.
type LostError struct{ Err error }

// Error gives the first failure.
func (e *LostError) Error() string { return "the GPU is lost: " + e.Err.Error() }

// Unwrap returns the first failure.
func (e *LostError) Unwrap() error { return e.Err }

// A Device is a GPU: the primary context that a process has on it.
type Device struct {
	lib        *driver.Library
	id         driver.DeviceID
	name       string
	info       Info
	ctx        driver.Context
	blas       blasState
	mu         sync.Mutex
	functions  map[string]driver.Function
	modules    driver.Modules // of families that were assembled before, and of other kernels
	cache      string         // where assembled kernels are found and kept, "" for nowhere
	release    int            // of CUDA, that the driver is of
	preparing  sync.WaitGroup // loads kernels before they are asked for
	used, peak int64
	pinned     int64
	lost       error
	closed     bool
	// away says that the context was given back until it is needed again, which waking guards.
	away   bool
	waking sync.Mutex
	// noHopper says that the driver did not take kernels of wgmma, or that they are unwanted.
	noHopper atomic.Bool
	unwanted bool
	// enough is how many threads have work before one takes more of it, far the first number that quotients are not computed of
	// by multiplying. They are enoughThreads and leastFar, but in tests.
	enough, far int64
}

var _ device.Device = (*Device)(nil)

// New opens a GPU. The error is an *UnavailableError where there is none to use.
func New(opts Options) (*Device, error) {
	lib, err := open(opts.Library)
	if err != nil {
		return nil, err
	}
	info, id, err := describe(lib, opts.Ordinal)
	if err != nil {
		return nil, unavailable(err)
	}
	if info.Capability < kernels.LowestCapability {
		return nil, &UnavailableError{Reason: fmt.Sprintf("%s has compute capability %d.%d, the kernels need %d.%d",
			info.Name, info.Capability/10, info.Capability%10, kernels.LowestCapability/10, kernels.LowestCapability%10)}
	}
	d := &Device{
		lib: lib, id: id, info: info, name: fmt.Sprintf("cuda:%d", opts.Ordinal),
		functions: make(map[string]driver.Function), cache: opts.Cache, enough: enoughThreads, far: leastFar,
	}
	if d.ctx, err = lib.RetainPrimary(id); err != nil {
		return nil, unavailable(err)
	}
	if err := d.try(opts); err != nil {
		return nil, errors.Join(unavailable(err), d.Close())
	}
	return d, nil
}

// try loads one module, so that a driver that is too old is known before anything was planned, and opens cuBLASLt.
func (d *Device) try(opts Options) error {
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	d.unwanted = opts.Environment != nil && opts.Environment("OPTIMEM_WGMMA") == "none"
	d.noHopper.Store(d.unwanted)
	var err error
	if d.release, err = d.lib.Version(); err != nil {
		return err
	}
	if _, err := d.function("om_gather_1"); err != nil {
		return err
	}
	return d.openBLAS(opts)
}

// open opens the driver.
func open(path string) (*driver.Library, error) {
	lib, err := driver.Open(path)
	if err != nil {
		return nil, unavailable(err)
	}
	return lib, nil
}

// unavailable says in words why a GPU cannot be used.
func unavailable(err error) error {
	var known *UnavailableError
	var failed *driver.Error
	if errors.As(err, &known) {
		return known
	}
	if errors.Is(err, driver.ErrAbsent) {
		return &UnavailableError{Err: err, Reason: "no CUDA", None: true}
	}
	if !errors.As(err, &failed) {
		return &UnavailableError{Err: err, Reason: "the driver cannot be used"}
	}
	reason := "the driver cannot be used"
	switch failed.Code {
	case driver.NoDevice:
		reason = "the driver sees no GPU (CUDA_VISIBLE_DEVICES can hide them)"
	case driver.InvalidDevice:
		reason = "there is no GPU of that number"
	case driver.UnsupportedPTX:
		reason = fmt.Sprintf("the driver is too old for the kernels: it must be of CUDA %s or later (on Linux %s or later)",
			kernels.DriverRelease, kernels.DriverLinux)
	case driver.NoCompiler:
		reason = "the driver's compiler is not there (on Linux libnvidia-ptxjitcompiler.so.1, which containers need besides libcuda.so.1) and the " +
			"kernels are not assembled for this GPU: a folder that has them is named by OPTIMEM_CUDA_CACHE"
	case driver.NotPermitted, driver.OperatingSystem:
		reason = "the process may not use the GPU"
	case driver.DriverMismatch:
		reason = "the driver's library and its kernel module are of different versions"
	case driver.Unavailable:
		reason = "the GPU is busy or was lost"
	case driver.OutOfMemory:
		reason = "the GPU has no memory left for a process more"
	}
	return &UnavailableError{Reason: reason, None: failed.Code == driver.NoDevice, Err: err}
}

// enter locks the goroutine to its thread and makes the context that thread's. The caller must leave.
func (d *Device) enter() error {
	if err := d.wake(); err != nil {
		return err
	}
	d.mu.Lock()
	lost := d.lost
	d.mu.Unlock()
	if lost != nil {
		return lost
	}
	return d.enterAwake()
}

// enterAwake enters a device that is neither away nor lost.
func (d *Device) enterAwake() error {
	goruntime.LockOSThread()
	if err := d.failed(d.lib.Enter(d.ctx)); err != nil {
		goruntime.UnlockOSThread()
		return err
	}
	return nil
}

// leave undoes enter. The context stays the thread's, unless somebody else in the process calls the driver: whoever
// enters sets it.
func (d *Device) leave() {
	d.lib.Leave()
	goruntime.UnlockOSThread()
}

// failed keeps the first error after which nothing can be done, and returns the error.
func (d *Device) failed(err error) error {
	var e *driver.Error
	if err == nil || !errors.As(err, &e) || !e.Code.Sticky() {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lost == nil {
		d.lost = &LostError{err}
	}
	return d.lost
}

// gone reports whether the device is lost, and with it all that it held.
func (d *Device) gone() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lost != nil
}

// Name returns "cuda:" and the number of the GPU.
func (d *Device) Name() string { return d.name }

// Info describes the GPU.
func (d *Device) Info() Info { return d.info }

// Memory returns the total and the free bytes of the GPU's memory, with what other processes use.
// While the context is given back it asks nobody: free is 0.
func (d *Device) Memory() (totalBytes, freeBytes int64) {
	if d.Resting() || d.enter() != nil {
		return d.info.MemoryBytes, 0
	}
	defer d.leave()
	free, total, err := d.lib.MemInfo()
	if d.failed(err) != nil {
		return d.info.MemoryBytes, 0
	}
	return total, free
}

// Allocated returns the bytes that are allocated.
func (d *Device) Allocated() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.used
}

// PeakBytes returns the most that was allocated at once.
func (d *Device) PeakBytes() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.peak
}

// Supports returns nil when there is a kernel that takes the operands.
func (d *Device) Supports(op graph.Op, in, out []graph.Spec) error {
	return Supports(op, in, out)
}

// function returns a kernel, which is compiled by the driver when it is first asked for. The context is current.
func (d *Device) function(name string) (driver.Function, error) {
	d.mu.Lock()
	f, ok := d.functions[name]
	d.mu.Unlock()
	if ok {
		return f, nil
	}
	family, err := kernels.Family(name)
	if err != nil {
		return 0, err
	}
	m, err := d.module(name, family)
	if err != nil {
		return 0, err
	}
	if f, err = d.lib.Function(m, name); d.failed(err) != nil {
		return 0, fmt.Errorf("kernel %s: %w", name, d.failed(err))
	}
	if bytes := d.mostShared(name, family); bytes > 0 {
		if err := d.failed(d.lib.SharedLimit(f, int(bytes))); err != nil {
			return 0, fmt.Errorf("kernel %s: %w", name, err)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.functions[name] = f
	return f, nil
}

// mostShared is the most dynamic shared memory that a kernel is launched with, where that is more than all may have, or 0.
func (d *Device) mostShared(name, family string) int64 {
	if strings.HasPrefix(family, kernels.Hopper) && d.info.Capability == kernels.HopperCapability {
		for _, b := range hopperBlocks {
			if strings.HasSuffix(name, b.suffix) {
				return hopperSharedBytes(b.rows)
			}
		}
	}
	if size, rows := int64(0), int64(0); d.info.Capability >= asyncCapability {
		if n, _ := fmt.Sscanf(name, fewKernel, &size, &rows); n == 2 {
			return fewSharedBytes(size, rows, fewParts, d.info.Capability)
		}
	}
	return 0
}

// Close gives the context back. It fails where memory was forgotten.
func (d *Device) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	d.mu.Unlock()
	d.preparing.Wait()
	d.mu.Lock()
	used, pinned, lost, away := d.used, d.pinned, d.lost, d.away
	d.mu.Unlock()
	if away {
		return nil
	}
	var errs []error
	if lost == nil {
		if used != 0 || pinned != 0 {
			errs = append(errs, unfreed(used, pinned))
		}
		errs = append(errs, d.unload())
	}
	if err := d.lib.ReleasePrimary(d.id); lost == nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func unfreed(used, pinned int64) error {
	return fmt.Errorf("%d bytes of the device and %d of page-locked memory were not freed", used, pinned)
}
