package cuda

import (
	"fmt"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// attendKernels are attention over caches that the op itself adds to: kernels/attend.cu.
var attendKernels = map[graph.Kind]kernel{
	"attend": {supports: supportsAttend, work: attendWork, launch: launchAttend},
}

// The constants of kernels/attend.cu: the threads of a block, the positions of a span, and the widest heads.
const (
	attendThreads = 128
	attendSpan    = 256
	widestAttend  = 1024
)

// enoughAttending is how many heads of rows fill a GPU: fewer have a block for each span of their positions. Either way the bits
// are the same.
var enoughAttending int64 = 512

// supportsAttend takes single precision and halves, and caches of them and of int8.
func supportsAttend(in, _ []graph.Spec, _ graph.Attrs) error {
	for i, s := range []graph.Spec{in[0], in[3]} {
		if s.DType != tensor.Float32 && !isHalf(s.DType) && (i == 0 || s.DType != tensor.Int8) {
			return fmt.Errorf("it takes floats of 32 bits and halves, and caches of int8, not %v", s.DType)
		}
	}
	if widest := max(in[0].Shape[2], attendValues(in[4])); widest > widestAttend {
		return fmt.Errorf("heads are %d wide, it takes %d", widest, widestAttend)
	}
	return nil
}

// attendValues is how wide the values are that a cache holds.
func attendValues(cache graph.Spec) int { return graph.CacheElements(cache.DType, cache.Shape[2]) }

// attendParts returns into how many parts each head of a row is cut.
func attendParts(q, table tensor.Shape) int64 {
	spans := ceilDiv(int64(table[1])*graph.BlockRows, attendSpan)
	if int64(q[0])*int64(q[1]) >= enoughAttending {
		return 1
	}
	return max(spans, 1)
}

// attendFound is the memory for what parts find.
func attendFound(q tensor.Shape, values int, table tensor.Shape) int64 {
	parts := attendParts(q, table)
	if parts == 1 {
		return 0
	}
	return int64(q[0]) * int64(q[1]) * parts * int64(values+2) * 4
}

func attendWork(in, _ []graph.Spec, _ graph.Attrs) int64 {
	return ceilDiv(attendFound(in[0].Shape, attendValues(in[4]), in[6].Shape), alignBytes) * alignBytes
}

// launchAttend writes keys and values to their places, then has every row attend.
func launchAttend(l *launch) error {
	q, k, v, at, table := l.in[0], l.in[1], l.in[2], l.in[5], l.in[6]
	if q.shape()[0] == 0 {
		return nil
	}
	for i, x := range []operand{k, v} {
		if x.absent() { // nothing is written
			continue
		}
		if err := l.writeCache(l.in[3+i], x, table); err != nil {
			return err
		}
		if also := l.optional(9); !also.absent() {
			for j := range also.shape()[1] {
				if err := l.writeCache(l.in[3+i], x, oneBlock(also, j, table.shape()[1])); err != nil {
					return err
				}
			}
		}
	}
	if l.out[0].size() == 0 {
		return nil
	}
	keys, values := l.in[3].shape(), attendValues(specs(l.in)[4])
	sinks, bias, parts := l.optional(7), l.optional(8), attendParts(q.shape(), table.shape())
	bytes := attendFound(q.shape(), values, table.shape())
	if bytes > l.work.bytes { // rows of an op of more, which has none
		bytes, parts = 0, 1
	}
	found := l.work.slice(0, bytes)
	sinkStep := 0
	if !sinks.absent() {
		sinkStep = sinks.layout.Strides[0]
	}
	var lean [3]int // how the bias lies, and how many distances it has
	if !bias.absent() {
		lean = [3]int{bias.layout.Strides[0], bias.layout.Strides[1], bias.shape()[1]}
	}
	units := int64(q.shape()[0]) * int64(q.shape()[1])
	c := l.call("om_attend").write(l.out[0])
	c.scratch(found)
	c.read(q).read(l.in[3]).read(l.in[4]).read(at).read(table).read(sinks).read(bias)
	c.i32(dtypeCodes[q.dtype]).i32(dtypeCodes[l.in[3].dtype])
	c.ints(20, q.shape()[0], q.shape()[1], keys[1], q.shape()[2], values, table.shape()[1], keys[0]/graph.BlockRows,
		q.layout.Strides[0], q.layout.Strides[1], q.layout.Strides[2], at.layout.Strides[0], table.layout.Strides[0], table.layout.Strides[1],
		sinkStep, l.attrs.Int("window"), l.attrs.Int("chunk"), int(parts), lean[0], lean[1], lean[2])
	c.f32(float32(l.attrs.Float("scale"))).f32(float32(l.attrs.Float("softcap"))).status()
	if err := c.grid(dims{units * parts, 1, 1}, dims{attendThreads, 1, 1}, 0); err != nil || found.bytes == 0 {
		return err
	}
	c = l.call("om_attend_spans").write(l.out[0]).scratch(found).read(at).read(sinks).i32(dtypeCodes[q.dtype])
	c.i64(int64(q.shape()[1])).i64(int64(values)).i64(int64(at.layout.Strides[0])).i64(int64(sinkStep)).i64(parts)
	return c.grid(dims{units, 1, 1}, dims{attendThreads, 1, 1}, 0)
}

// oneBlock returns tables of so many blocks that are all the further block j of each row.
func oneBlock(also operand, j, blocks int) operand {
	rows, steps := also.layout.Shape[0], also.layout.Strides
	also.layout = tensor.Layout{
		Shape: tensor.Shape{rows, blocks}, Strides: []int{steps[0], 0}, Offset: also.layout.Offset + j*steps[1],
	}
	return also
}

// writeCache writes rows of keys or of values to their places in a cache, which tables say.
func (l *launch) writeCache(cache, x, table operand) error {
	if x.size() == 0 {
		return nil
	}
	at := l.in[5]
	c := l.call("om_attend_write").write(cache).read(x).read(at).read(table)
	c.i32(dtypeCodes[cache.dtype]).i32(dtypeCodes[x.dtype])
	for _, n := range []int{
		x.shape()[0], x.shape()[1], x.shape()[2], table.shape()[1], cache.shape()[0] / graph.BlockRows, x.layout.Strides[0],
		x.layout.Strides[1], x.layout.Strides[2], at.layout.Strides[0], table.layout.Strides[0], table.layout.Strides[1],
	} {
		c.i64(int64(n))
	}
	return c.status().grid(dims{int64(x.shape()[0]), 1, 1}, dims{attendThreads, 1, 1}, 0)
}
