package blocked

import "unsafe"

// A fetcher walks over rows of memory that are wanted soon, a piece with each tile of products.
type fetcher struct {
	at                     uintptr // of the row
	rows, rowBytes, stride int
	done                   int // bytes of the row
}

// next returns where the next piece of so many bytes begins; the last of a row may reach over its end. At the end of all it
// stays where it is.
func (f *fetcher) next(bytes int) uintptr {
	at := f.at + uintptr(f.done)
	if f.done += bytes; f.done < f.rowBytes {
		return at
	}
	if f.done = 0; f.rows > 1 {
		f.at += uintptr(f.stride)
	}
	f.rows = max(f.rows-1, 0)
	return at
}

// pieces is how many pieces of so many bytes are left.
func (f *fetcher) pieces(bytes int) int { return f.rows * ceil(f.rowBytes, bytes) }

// follow returns the raw weights of some output channels, or of input channels [from, to) of them, for who packs them next.
// It has no rows where there are no such weights, where they do not lie as in a checkpoint, and where it does not pay.
func (c *Conv) follow(raw *Weight, first, outputs, from, to int) (f fetcher) {
	l, size, taps := raw.Layout, raw.DType.Size(), c.KernelH*c.KernelW
	outputs = min(outputs, l.Shape[0]-first)
	if !c.fetches || outputs <= 0 || c.Groups > 1 || !l.IsContiguous() {
		return f
	}
	f.rows, f.rowBytes, f.stride = outputs, (to-from)*taps*size, l.Strides[0]*size
	if f.rowBytes == f.stride {
		f.rows, f.rowBytes = 1, outputs*f.stride
	}
	f.at = uintptr(unsafe.Pointer(unsafe.SliceData(raw.Data))) + uintptr((l.Offset+first*l.Strides[0]+from*taps)*size)
	return f
}

// part returns the n-th of so many parts of a fetcher of one row.
func (f fetcher) part(n, parts int) fetcher {
	low, high := share(f.rowBytes, parts, n)
	if f.rows != 1 || low == high {
		return fetcher{}
	}
	return fetcher{at: f.at + uintptr(low), rows: 1, rowBytes: high - low}
}

// fetchedBytes is how much a tile of products fetches with each step of sixteen rows of weights: a line with each four.
const fetchedBytes = 4 * 64
