package cpu

import (
	"fmt"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/tensor"
)

// A merger writes elements to places that indices name, combining them with what is there.
type merger interface {
	put(c *call, x *indexing)
	scatter(c *call, d int)
}

// merges merges elements of type T.
type merges[T any] struct {
	// with combines an element with another.
	with func(a, b T) T
	// divide divides a sum by how many there were; nil unless the mean is wanted.
	divide func(sum T, n int32) T
}

// onlyMerged refuses dtypes that no merger combines.
func onlyMerged(in, _ []layers.Spec, a layers.Attrs) error {
	reduce := a.String("reduce")
	if a.Bool("accumulate") {
		reduce = "sum"
	}
	switch d := in[0].DType; d {
	case tensor.UInt16, tensor.UInt32, tensor.UInt64:
		if reduce != "" {
			return fmt.Errorf("no %s of %v", reduce, d)
		}
	}
	return nil
}

// mergerOf returns the merger for a dtype and "reduce" of the op scatter.
func mergerOf(d tensor.DType, reduce string) merger {
	if reduce == "" {
		return replacer(d)
	}
	switch d {
	case tensor.Float32:
		return mergeNumbers[float32](reduce)
	case tensor.Float64:
		return mergeNumbers[float64](reduce)
	case tensor.Float16:
		return mergeHalves(reduce, tensor.Float16ToFloat32, tensor.Float16FromFloat32)
	case tensor.BFloat16:
		return mergeHalves(reduce, tensor.BFloat16ToFloat32, tensor.BFloat16FromFloat32)
	case tensor.Int64:
		return mergeNumbers[int64](reduce)
	case tensor.Int32:
		return mergeNumbers[int32](reduce)
	case tensor.Int16:
		return mergeNumbers[int16](reduce)
	case tensor.Int8:
		return mergeNumbers[int8](reduce)
	case tensor.UInt8:
		return mergeNumbers[uint8](reduce)
	case tensor.Bool:
		return mergeBools(reduce)
	}
	panic("BUG: " + reduce + " of " + d.String())
}

func replacer(d tensor.DType) merger {
	switch d.Size() {
	case 1:
		return replaces[uint8]()
	case 2:
		return replaces[uint16]()
	case 4:
		return replaces[uint32]()
	case 8:
		return replaces[uint64]()
	}
	return replaces[[2]uint64]()
}

func replaces[T any]() merger { return merges[T]{with: func(_, b T) T { return b }} }

// mergeNumbers: NaN is both larger and smaller than all; means of integers are rounded down.
func mergeNumbers[T real | integer](reduce string) merges[T] {
	m := merges[T]{with: func(a, b T) T { return a + b }}
	switch reduce {
	case "prod":
		m.with = func(a, b T) T { return a * b }
	case "amax":
		m.with = func(a, b T) T {
			if b > a || b != b {
				return b
			}
			return a
		}
	case "amin":
		m.with = func(a, b T) T {
			if b < a || b != b {
				return b
			}
			return a
		}
	case "mean":
		m.divide = func(sum T, n int32) T {
			if T(1)/2 != 0 { // not integers
				return sum / T(n)
			}
			q := int64(sum) / int64(n)
			if sum < 0 && int64(sum)%int64(n) != 0 {
				q--
			}
			return T(q)
		}
	}
	return m
}

func mergeHalves(reduce string, load func(uint16) float32, store func(float32) uint16) merger {
	wide := mergeNumbers[float32](reduce)
	m := merges[uint16]{with: func(a, b uint16) uint16 { return store(wide.with(load(a), load(b))) }}
	if wide.divide != nil {
		m.divide = func(sum uint16, n int32) uint16 { return store(wide.divide(load(sum), n)) }
	}
	return m
}

func mergeBools(reduce string) merger {
	m := merges[uint8]{with: func(a, b uint8) uint8 { return a | b }}
	switch reduce {
	case "prod", "amin":
		m.with = func(a, b uint8) uint8 { return a & b }
	case "mean":
		m.divide = func(sum uint8, _ int32) uint8 { return sum }
	}
	return m
}

// put merges the values into the result, block after block: of several for one element the last comes last.
func (m merges[T]) put(c *call, x *indexing) {
	values, size, n := c.in[1], x.inner.size, len(x.at)
	if size == 0 || n == 0 {
		return
	}
	src, dst := elements[T](values), elements[T](c.out[0])
	d := len(x.outer.Shape) + len(c.in[2].shape())
	blocks := values.layout.Leading(len(values.shape()) - d)
	inner := walkOf(tensor.Layout{Shape: values.shape()[d:], Strides: values.layout.Strides[d:]})
	c.pool.For(volume(x.outer.Shape), max(1, grain/(n*size)), func(from, to int) {
		var room [mostDims]int
		index := intsIn(room[:], inner.rank)
		for i := from * n; i < to*n; i++ {
			out := dst[offsetOf(x.outer, i/n)+x.at[i%n]:][:size]
			inner.lines(offsetOf(blocks, i), index, func(first int) {
				for k := range inner.n {
					out[k] = m.with(out[k], src[first+k*inner.stride])
				}
				out = out[inner.n:]
			})
		}
	})
}

// scatter merges line by line along dimension d: lines share no element.
func (m merges[T]) scatter(c *call, d int) {
	out, index, source := c.out[0], c.in[1], c.in[2]
	dst, src := elements[T](out), elements[T](source)
	var counts []int32
	if len(c.work) > 0 {
		counts = elements[int32](view{data: c.work})
		clear(counts)
		if c.attrs.Bool("include_self") {
			for i := range counts {
				counts[i] = 1
			}
		}
	}
	a := alongDim(index.layout, d)
	to, stride := others(out.layout, index.shape(), d), strideOf(out.layout, d)
	from, step := others(source.layout, index.shape(), d), strideOf(source.layout, d)
	a.each(c.pool, func(line, first int) {
		var buf [chunk]int64
		base, at := offsetOf(to, line), offsetOf(from, line)
		for k := 0; k < a.n; k += chunk {
			part := buf[:min(chunk, a.n-k)]
			loadInts(part, index, first+k*a.stride, a.stride)
			for i, v := range part {
				place, value := base+int(v)*stride, src[at+(k+i)*step]
				if counts != nil {
					counts[place]++
					if counts[place] == 1 {
						dst[place] = value
						continue
					}
				}
				dst[place] = m.with(dst[place], value)
			}
		}
	})
	if m.divide != nil {
		c.pool.For(out.size(), grain, func(from, to int) {
			for i := from; i < to; i++ {
				if counts[i] > 1 {
					dst[i] = m.divide(dst[i], counts[i])
				}
			}
		})
	}
}
