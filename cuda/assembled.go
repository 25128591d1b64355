package cuda

import (
	"fmt"
	"path/filepath"
	"sync"

	"github.com/optimem/optimem/cuda/internal/driver"
	"github.com/optimem/optimem/cuda/kernels"
)

// module returns a module that has a kernel: that of its family if it was assembled before, or else one that has the kernel alone, so
// that the driver assembles what is launched and nothing beside it. The context is current.
func (d *Device) module(kernel, family string) (driver.Module, error) {
	// Unpacking takes milliseconds, which whoever finds a module that is there does without.
	image := sync.OnceValues(func() ([]byte, error) { return kernels.Image(family, d.info.Capability) })
	if d.cache != "" {
		m, err := d.modules.Once(family, func() (driver.Module, error) {
			text, err := image()
			if err != nil {
				return 0, err
			}
			return d.released(family, text)
		})
		if m != 0 || err != nil {
			return m, err
		}
	}
	return d.modules.Once(kernel, func() (driver.Module, error) {
		text, err := image()
		if err != nil {
			return 0, err
		}
		m, err := d.load(kernel, text)
		if err != nil {
			err = fmt.Errorf("kernel %s: %w", kernel, err)
		}
		return m, err
	})
}

// released loads a family that was assembled for any driver, none if that is not there. A GPU runs what was assembled for one of its
// major capability and a lower minor one.
func (d *Device) released(family string, image []byte) (driver.Module, error) {
	for _, capability := range []int{d.info.Capability, d.info.Capability / 10 * 10} {
		m, err := d.kept(kernels.AssembledName(family, capability, 0, image))
		if m != 0 || err != nil {
			return m, err
		}
	}
	return 0, nil
}

// kept loads a file of the folder of assembled kernels. What is damaged, or not for this driver, is as if it were not there.
func (d *Device) kept(name string) (driver.Module, error) {
	cubin, err := kernels.ReadAssembled(filepath.Join(d.cache, name))
	if err != nil {
		return 0, nil
	}
	m, err := d.lib.LoadModule(cubin)
	if err == nil {
		return m, nil
	}
	if err = d.failed(err); d.gone() {
		return 0, err
	}
	return 0, nil
}

// load has the driver load a kernel of a family: as it assembled it before, if that is found, or else from PTX.
func (d *Device) load(kernel string, image []byte) (driver.Module, error) {
	image, err := kernels.Alone(image, kernel)
	if err != nil {
		return 0, err
	}
	if d.cache != "" {
		own := kernels.AssembledName(kernel, d.info.Capability, d.release, image)
		if m, err := d.kept(own); m != 0 || err != nil {
			return m, err
		}
		if d.lib.Links() {
			cubin, err := d.lib.Assemble(image)
			if err == nil && len(cubin) <= kernels.MaxAssembledBytes {
				_ = kernels.KeepAssembled(d.cache, own, cubin) // a folder that cannot be written is one that nothing is kept in
				image = cubin
			}
			if err = d.failed(err); d.gone() {
				return 0, err
			}
		}
	}
	m, err := d.lib.LoadModule(image)
	return m, d.failed(err)
}
