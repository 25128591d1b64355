package blocked

import (
	"sync"
	"unsafe"

	"github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/tensor"
)

// A staging is a block of input channels of a panel's weights, with output channels innermost:
// [input channel][tap][output channel].
type staging []float32

// stagings keeps the memory of packing.
var stagings = sync.Pool{New: func() any { return new(staging) }}

// newStaging returns a staging for kernels of a number of taps.
func newStaging(taps, columns int) *staging {
	s := stagings.Get().(*staging)
	if n := Lanes * taps * columns; cap(*s) < n {
		*s = make(staging, n)
	} else {
		*s = (*s)[:n]
	}
	return s
}

// load reads output channels [first, first+outputs) of input channels [from, from+inputs); lanes and channels beyond
// them are zero.
func (s staging) load(c *Conv, w Weight, columns, first, outputs, from, inputs int) {
	l := w.Layout
	taps := c.KernelH * c.KernelW
	if outputs < columns || inputs*taps*columns < len(s) {
		clear(s)
	}
	if taps == 1 && l.Strides[0] == 1 && w.DType == tensor.Float32 { // the output channels of an input channel side by side
		data := unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(w.Data))), len(w.Data)/4)
		for i := range inputs {
			copy(s[i*columns:][:outputs], data[l.Offset+first+(from+i)*l.Strides[1]:])
		}
		return
	}
	done := 0
	whole := inputs * taps &^ 7
	dense := l.Strides[3] == 1 && l.Strides[2] == c.KernelW && l.Strides[1] == taps || taps == 1 && l.Strides[1] == 1
	if c.set.Vectors != nil && w.DType == tensor.Float32 && dense {
		data := unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(w.Data))), len(w.Data)/4)
		following := 0 // input channels behind these
		if kernel.FetchingPays() {
			following = min(inputs, c.In/c.Groups-from-inputs)
		}
		for ; done+8 <= outputs; done += 8 {
			at := l.Offset + (first+done)*l.Strides[0] + from*taps
			if following > 0 {
				kernel.FetchRows(8, uintptr(unsafe.Pointer(&data[at+inputs*taps])), 4*l.Strides[0], 4*following*taps)
			}
			c.set.Vectors.Transpose(whole/8, data[at:], l.Strides[0], s[done:], columns)
			for lane := done; lane < done+8; lane++ {
				for k := whole; k < inputs*taps; k++ {
					s[k*columns+lane] = data[at+(lane-done)*l.Strides[0]+k]
				}
			}
		}
	}
	for lane := done; lane < outputs; lane++ {
		at := l.Offset + (first+lane)*l.Strides[0] + from*l.Strides[1]
		for k := range inputs * taps {
			i, tap := k/taps, k%taps
			s[k*columns+lane] = w.at(at + i*l.Strides[1] + tap/c.KernelW*l.Strides[2] + tap%c.KernelW*l.Strides[3])
		}
	}
}
