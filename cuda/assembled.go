package cuda

import (
	"fmt"
	"path/filepath"

	"github.com/optimem/optimem/cuda/internal/driver"
	"github.com/optimem/optimem/cuda/kernels"
)

// A loading is a family of kernels that is being loaded, or was.
type loading struct {
	done   chan struct{}
	module driver.Module
	err    error
}

// family returns a family's module: the one loaded, or that of whoever loads it just now, or loads it. Several families load at the
// same time, each on a thread of its own. The context is current.
func (d *Device) family(family string) (driver.Module, error) {
	d.mu.Lock()
	l, ok := d.modules[family]
	if !ok {
		l = &loading{done: make(chan struct{})}
		d.modules[family] = l
	}
	d.mu.Unlock()
	if !ok {
		l.module, l.err = d.load(family)
		close(l.done)
	}
	<-l.done
	if l.err == nil {
		return l.module, nil
	}
	// Who asks next tries again.
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.modules[family] == l {
		delete(d.modules, family)
	}
	return 0, l.err
}

// load has the driver load a family: as it was assembled before, if that is found, or else from PTX, which the driver assembles.
func (d *Device) load(family string) (driver.Module, error) {
	image, err := kernels.Image(family, d.info.Capability)
	if err != nil {
		return 0, err
	}
	own := kernels.AssembledName(family, d.info.Capability, d.release, image)
	if d.cache != "" {
		// What is damaged, or not for this driver, is as if it were not there.
		released := func(capability int) string { return kernels.AssembledName(family, capability, 0, image) }
		// A GPU runs what was assembled for one of its major capability and a lower minor one.
		for _, name := range []string{own, released(d.info.Capability), released(d.info.Capability / 10 * 10)} {
			cubin, err := kernels.ReadAssembled(filepath.Join(d.cache, name))
			if err != nil {
				continue
			}
			m, err := d.lib.LoadModule(cubin)
			if err == nil {
				return m, nil
			}
			if d.failed(err); d.gone() {
				return 0, d.failed(err)
			}
		}
		if d.lib.Links() {
			cubin, err := d.lib.Assemble(image)
			if err == nil && len(cubin) <= kernels.MaxAssembledBytes {
				_ = kernels.KeepAssembled(d.cache, own, cubin) // a folder that cannot be written is one that nothing is kept in
				image = cubin
			}
			if d.failed(err); d.gone() {
				return 0, d.failed(err)
			}
		}
	}
	m, err := d.lib.LoadModule(image)
	if d.failed(err) != nil {
		return 0, fmt.Errorf("kernels of %s: %w", family, d.failed(err))
	}
	return m, nil
}
