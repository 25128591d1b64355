package cuda

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
	"github.com/optimem/optimem/tensor/encoded"
)

// codesKernels make numbers of blocks of codes: kernels/codes.cu. Linears that read such blocks are there, too.
var codesKernels = map[graph.Kind]kernel{
	"decode": {supports: supportsDecode, launch: launchDecode},
}

// The constants of kernels/codes.cu: threads of a block, lines and rows of a block of few rows and of one of many.
const (
	codesThreads = 128
	codesLines   = 4
	codesRows    = 4
	// codesScaledLines are those of a block of few rows by scaled encodings.
	codesScaledLines = 2
	codesManyLines   = 8
	codesManyRows    = 8 * codesThreads / 32
)

// mostCodesRows is how many rows are computed codesRows at a time, each time from the blocks themselves. Beyond, numbers are made
// once for codesManyRows rows. The bits of a row are the same.
const mostCodesRows = 2 * codesRows

// mostCodesLines is how many outputs a linear of blocks has at most: as many blocks lie above each other in a grid.
const mostCodesLines = 65535 * codesManyLines

// The kinds of encodings: the enum of kernels/codes.h.
const (
	codesQ40 = iota
	codesQ41
	codesQ50
	codesQ51
	codesQ80
	codesIQ4NL
	codesMXFP4
	codesINT4
	codesINT8
	codesF8
	codesLLM8
	codesSINT8
	codesTable4
	codesHQQ
	codesQ2K
	codesQ3K
	codesQ4K
	codesQ5K
	codesQ6K
	codesIQ4XS
	codesTQ20
)

// A coding is an om_coding of kernels/codes.h.
type coding struct {
	kind int
	// head is where in a block the codes begin, half how many of them have the lower halves of bytes, 0 where a code has a byte.
	head, half int
	dtype      tensor.DType
	table      [16]float32
}

// codings are those of ggml's encodings.
var codings = map[string]coding{
	"Q4_0": {kind: codesQ40, head: 2, half: 16}, "Q4_1": {kind: codesQ41, head: 4, half: 16},
	"Q5_0": {kind: codesQ50, head: 6, half: 16}, "Q5_1": {kind: codesQ51, head: 8, half: 16},
	"Q8_0": {kind: codesQ80, head: 2}, "IQ4_NL": {kind: codesIQ4NL, head: 2, half: 16}, "MXFP4": {kind: codesMXFP4, head: 1, half: 16},
	"Q2_K": {kind: codesQ2K}, "Q3_K": {kind: codesQ3K}, "Q4_K": {kind: codesQ4K}, "Q5_K": {kind: codesQ5K}, "Q6_K": {kind: codesQ6K},
	"IQ4_XS": {kind: codesIQ4XS}, "TQ2_0": {kind: codesTQ20},
}

// An ownCoding is what blocks of an own make of package encoded are read by.
type ownCoding struct {
	kind int
	// wide says that codes have bytes. A block begins with scales numbers of the dtype, or of float32 where single, and with more
	// bytes.
	wide, single bool
	scales, more int
}

var ownCodings = map[string]ownCoding{
	"INT4": {kind: codesINT4, scales: 1, more: 1}, "INT8": {kind: codesINT8, wide: true, scales: 1, more: 1},
	"F8E4M3":  {kind: codesF8, wide: true, single: true, scales: 1},
	"LLMINT8": {kind: codesLLM8, wide: true, single: true, scales: 1},
	"SINT8":   {kind: codesSINT8, wide: true, single: true, scales: 1},
	"NF4":     {kind: codesTable4, single: true, scales: 1}, "FP4": {kind: codesTable4, single: true, scales: 1},
	"HQQ4": {kind: codesHQQ, scales: 2}, "HQQ8": {kind: codesHQQ, wide: true, scales: 2},
}

// ReadsCodes reports whether there are kernels for weights that lie as blocks of an encoding. Of others they want the numbers.
func ReadsCodes(encoding string) bool {
	_, _, ok := codingOf(encoding)
	return ok
}

// codingOf returns how blocks of an encoding are read, false where they are not.
func codingOf(name string) (*encoded.Encoding, coding, bool) {
	e, ok := encoded.ByName(name)
	if !ok {
		return nil, coding{}, false
	}
	if c, ok := codings[name]; ok {
		c.dtype = tensor.Float32
		switch c.kind {
		case codesIQ4NL, codesIQ4XS:
			c.table = tableOf("IQ4_NL", 0, 0x3c) // a scale of 1
		case codesMXFP4:
			c.table = tableOf("MXFP4", 128)
		}
		return e, c, true
	}
	kind, rest, _ := strings.Cut(name, "/")
	size, dtype, _ := strings.Cut(rest, " ")
	own, known := ownCodings[kind]
	n, err := strconv.Atoi(size)
	if !known || err != nil || int64(n) != e.Elements {
		return nil, coding{}, false
	}
	c := coding{kind: own.kind}
	for _, d := range []tensor.DType{tensor.Float32, tensor.Float16, tensor.BFloat16} {
		if d.String() == dtype {
			c.dtype = d
		}
	}
	if c.dtype == tensor.Invalid {
		return nil, coding{}, false
	}
	width := c.dtype.Size()
	if own.single {
		width = tensor.Float32.Size()
	}
	c.head = own.scales*width + own.more
	if !own.wide {
		c.half = n / 2
	}
	if table, ok := encoded.TableOf(kind); ok {
		c.table = table
	}
	return e, c, true
}

// tableOf returns the numbers that the sixteen codes of an encoding stand for in a block that begins with the given bytes.
func tableOf(name string, head ...byte) (table [16]float32) {
	e, _ := encoded.ByName(name)
	for code := range byte(16) {
		head = append(head, code)
	}
	numbers := make([]float32, e.Elements)
	e.Decode(numbers, head)
	return [16]float32(numbers)
}

// ints returns the coding as the kernels take it: an om_coding.
func (c *coding) ints(e *encoded.Encoding) []int {
	list := []int{c.kind, bits.TrailingZeros64(uint64(e.Elements)), int(e.Bytes), c.head, c.half,
		int(dtypeCodes[c.dtype])}
	for i := 0; i < len(c.table); i += 2 {
		var both [8]byte
		binary.LittleEndian.PutUint32(both[:], math.Float32bits(c.table[i]))
		binary.LittleEndian.PutUint32(both[4:], math.Float32bits(c.table[i+1]))
		list = append(list, int(binary.LittleEndian.Uint64(both[:])))
	}
	return list
}

// scaled reports whether blocks are a scale, maybe the code that stands for nothing, and codes: kernels of few rows know those.
func (c *coding) scaled() bool {
	return slices.Contains([]int{codesQ40, codesQ80, codesINT4, codesINT8, codesSINT8}, c.kind)
}

// codingInts is how many numbers an om_coding has.
const codingInts = 14

func supportsDecode(_, _ []graph.Spec, a graph.Attrs) error { return supportsEncoding(a) }

func supportsEncoding(a graph.Attrs) error {
	if name := a.String(graph.EncodingAttr); !ReadsCodes(name) {
		return fmt.Errorf("it does not read blocks of %s", name)
	}
	return nil
}

// orOfCodes is the kernel of linears, of which those that read blocks of codes are computed here.
func orOfCodes(k kernel) kernel {
	both := k
	both.supports = func(in, out []graph.Spec, a graph.Attrs) error {
		if graph.IsEncoded(a) {
			return supportsCodes(in, a)
		}
		return k.supports(in, out, a)
	}
	both.work = func(in, out []graph.Spec, a graph.Attrs) int64 {
		if graph.IsEncoded(a) {
			return 0
		}
		return k.work(in, out, a)
	}
	both.label = func(_, _ []graph.Spec, a graph.Attrs) string {
		if graph.IsEncoded(a) {
			return "linear_codes"
		}
		return "linear"
	}
	both.exact = func(in, out []graph.Spec, a graph.Attrs) bool { return graph.IsEncoded(a) || k.exact(in, out, a) }
	both.launch = func(l *launch) error {
		if graph.IsEncoded(l.attrs) {
			return launchCodes(l)
		}
		return k.launch(l)
	}
	return both
}

// supportsCodes takes float32 beside blocks. Sums are of float32, whatever they might be rounded to.
func supportsCodes(in []graph.Spec, a graph.Attrs) error {
	if n := in[1].Shape[0]; n > mostCodesLines {
		return fmt.Errorf("%d outputs of blocks, it takes %d", n, mostCodesLines)
	}
	for i, s := range in {
		if s.DType != tensor.Invalid && i != 1 && s.DType != tensor.Float32 && (i != 2 || !isHalf(s.DType)) {
			return fmt.Errorf("operand %d is %v beside blocks", i, s.DType)
		}
	}
	return supportsEncoding(a)
}

// launchCodes computes a linear whose weight lies as blocks.
func launchCodes(l *launch) error {
	x, w, out := l.in[0], l.in[1], l.out[0]
	if out.size() == 0 {
		return nil
	}
	e, code, _ := codingOf(l.attrs.String(graph.EncodingAttr))
	bias, added := l.optional(2), l.optional(3)
	n, last := int64(w.shape()[0]), len(x.shape())-1
	m, terms := out.size()/n, x.shape()[last]
	rows, even := evenRows(x)
	addedRows, addedEven := evenRows(added)
	if !even || !addedEven {
		return l.codesByRow(m)
	}
	name, grid := "om_codes_many", dims{ceilDiv(m, codesManyRows), ceilDiv(n, codesManyLines), 1}
	switch {
	case m == 1:
		name, grid = "om_codes_1", dims{ceilDiv(n, codesLines), 1, 1}
	case m <= mostCodesRows:
		name, grid = "om_codes_4", dims{ceilDiv(n, codesLines), ceilDiv(m, codesRows), 1}
	}
	wide, end := vectors(x, 4, lastStep(x), rows), int64(w.address)+w.bytes
	if m <= mostCodesRows && wide && code.scaled() && vectors(w, 4, 1) && end%4 == 0 &&
		max(terms, codesScaledLines*w.layout.Strides[0]) < math.MaxInt32/2 {
		name, grid[0] = "om_codes_scaled_4", ceilDiv(n, codesScaledLines)
		if m == 1 {
			name = "om_codes_scaled_1"
		}
	}
	c := l.call(name).write(out).read(x).read(w).read(bias).i32(dtypeCodes[bias.dtype]).read(added)
	c.ints(10, int(m), int(n), terms, rows, lastStep(x), w.layout.Strides[0], int(w.bytes)-w.layout.Offset, lastStep(bias),
		addedRows, lastStep(added))
	c.ints(codingInts, code.ints(e)...).i32(int32(flag(wide))).activation(l.attrs,
		tensor.Float32)
	return c.grid(grid, dims{codesThreads, 1, 1}, 0)
}

// codesByRow computes rows that do not lie evenly one at a time.
func (l *launch) codesByRow(m int64) error {
	one := *l
	for r := range m {
		one.in, one.out = slices.Clone(l.in), slices.Clone(l.out)
		one.in[0].layout, one.out[0].layout = rowOf(l.in[0].layout, r), rowOf(l.out[0].layout, r)
		if added := l.optional(3); !added.absent() {
			one.in[3].layout = rowOf(added.layout, r)
		}
		if err := launchCodes(&one); err != nil {
			return err
		}
	}
	return nil
}

// launchDecode makes numbers of blocks.
func launchDecode(l *launch) error {
	blocks, out := l.in[0], l.out[0]
	n := out.size() / 8
	if n == 0 {
		return nil
	}
	e, code, _ := codingOf(l.attrs.String(graph.EncodingAttr))
	columns := int64(out.shape()[len(out.shape())-1])
	c := l.call("om_decode").write(out).read(blocks).layout(blocks.layout.Leading(1)).
		i64(blocks.bytes - int64(blocks.layout.Offset))
	return c.ints(codingInts, code.ints(e)...).divisor(columns/8, n).i64(n).over(n)
}
