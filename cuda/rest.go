package cuda

import (
	"errors"

	"github.com/optimem/optimem/cuda/internal/driver"
)

// Rest gives back the context, and with it what the driver has on the GPU for the process beside what was allocated: compiled
// kernels, cuBLASLt's handle and the driver's own memory, some hundred MB. It stays there if somebody else in the process has the
// context, too. Nothing may be allocated, no stream be open and nobody use the device meanwhile. What needs the GPU next takes
// the context again.
func (d *Device) Rest() error {
	d.mu.Lock()
	used, pinned, lost, none := d.used, d.pinned, d.lost, d.closed || d.away
	d.mu.Unlock()
	switch {
	case lost != nil:
		return lost
	case none:
		return nil
	case used != 0 || pinned != 0:
		return unfreed(used, pinned)
	}
	d.preparing.Wait()
	err := errors.Join(d.unload(), d.lib.ReleasePrimary(d.id))
	d.mu.Lock()
	defer d.mu.Unlock()
	d.away, d.ctx = true, 0
	d.blas.handle.Store(nil)
	d.functions, d.modules = make(map[string]driver.Function), driver.Modules{}
	return err
}

// Resting reports whether the context is given back.
func (d *Device) Resting() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.away
}

// wake takes the context again, if it was given back.
func (d *Device) wake() error {
	if !d.Resting() {
		return nil
	}
	d.waking.Lock()
	defer d.waking.Unlock()
	if !d.Resting() { // by now
		return nil
	}
	ctx, err := d.lib.RetainPrimary(d.id)
	if err != nil {
		return unavailable(err)
	}
	d.ctx = ctx
	if err = d.enterAwake(); err == nil {
		if d.blas.products.Load() {
			err = d.reopenBLAS()
		}
		d.leave()
	}
	if err != nil {
		return errors.Join(err, d.lib.ReleasePrimary(d.id))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.away = false
	return nil
}

// unload gives back what is in the context, and makes it no thread's.
func (d *Device) unload() error {
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	var errs []error
	if h := d.blas.handle.Load(); h != nil {
		errs = append(errs, h.Close())
	}
	return errors.Join(append(errs, d.modules.Unload(d.lib.UnloadModule), d.lib.SetCurrent(0))...)
}
