package cuda

import "github.com/optimem/optimem/cuda/kernels"

// LoadKernels loads every kernel, for which the driver compiles each family of them.
func (d *Device) LoadKernels() error {
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	for _, name := range kernels.Names() {
		if _, err := d.function(name); err != nil {
			return err
		}
	}
	return nil
}
