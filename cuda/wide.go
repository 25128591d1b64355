package cuda

import (
	"slices"

	"github.com/optimem/optimem/tensor"
)

// Elements that are only moved are moved up to sixteen bytes at a time: as larger elements, fewer of them.

// mostMoved is the size of the largest element that kernels move, in bytes.
const mostMoved = 16

// movers are dtypes of the sizes in which elements are moved.
var movers = map[int]tensor.DType{2: tensor.UInt16, 4: tensor.UInt32, 8: tensor.UInt64, mostMoved: tensor.Complex128}

// times returns an operand whose elements are n of o each, if the last dimension's lie side by side from a multiple of their
// size on.
func (o operand) times(n int) (operand, bool) {
	last, size := len(o.layout.Shape)-1, n*o.dtype.Size()
	to, ok := movers[size]
	if !ok || last < 0 || o.layout.Strides[last] != 1 || o.layout.Shape[last]%n != 0 || o.layout.Offset%n != 0 ||
		o.address%uint64(size) != 0 {
		return o, false
	}
	l := tensor.Layout{
		Shape: slices.Clone(o.layout.Shape), Strides: slices.Clone(o.layout.Strides), Offset: o.layout.Offset / n,
	}
	l.Shape[last] /= n
	for d := range last {
		if l.Strides[d]%n != 0 && l.Shape[d] != 1 {
			return o, false
		}
		l.Strides[d] /= n
	}
	o.dtype, o.layout = to, l
	return o, true
}

// wider returns operands of one dtype as ones of larger elements, as large as all of them can be; those that are absent
// stay so.
func wider(operands ...operand) []operand {
	for n := mostMoved / operands[0].dtype.Size(); n > 1; n /= 2 {
		list := slices.Clone(operands)
		all := true
		for i := range list {
			if !list[i].absent() && all {
				list[i], all = list[i].times(n)
			}
		}
		if all {
			return list
		}
	}
	return operands
}

// joined returns an operand with the dimensions put together that lie in order.
func (o operand) joined() operand {
	o.layout = o.layout.Joined()
	return o
}
