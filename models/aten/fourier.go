package aten

import (
	"fmt"
	"math"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// fourierTargets are torch.fft, and torch.stft and torch.istft, which transform windows of a signal.
var fourierTargets = func() []atenOp {
	var all []atenOp
	for name, kind := range map[string]fourierKind{
		"fft": {}, "ifft": {inverse: true}, "rfft": {from: realNumbers, to: halfNumbers},
		"irfft": {from: halfNumbers, to: realNumbers, inverse: true}, "hfft": {from: halfNumbers, to: realNumbers},
		"ihfft": {from: realNumbers, to: halfNumbers, inverse: true},
	} {
		all = append(all, op("aten::fft_"+name+"(Tensor self, SymInt? n=None, int dim=-1, str? norm=None) -> Tensor",
			func(c *call) (*Ref, error) {
				var sizes []int
				if c.has("n") {
					sizes = []int{c.int("n")}
				}
				return c.fourierOver(kind, sizes, []int{c.int("dim")})
			}))
		over := func(c *call) (*Ref, error) {
			dims := c.ints("dim")
			if !c.has("dim") && c.has("s") { // the last ones
				for i := range c.ints("s") {
					dims = append(dims, i-len(c.ints("s")))
				}
			} else if !c.has("dim") {
				dims = allDims(c.tensor("self").rank())
			}
			return c.fourierOver(kind, c.ints("s"), dims)
		}
		all = append(all,
			op(
				"aten::fft_"+name+"2(Tensor self, SymInt[1]? s=None, int[1] dim=[-2,-1], str? norm=None) -> Tensor",
				over,
			),
			op("aten::fft_"+name+"n(Tensor self, SymInt[1]? s=None, int[1]? dim=None, str? norm=None) -> Tensor", over))
	}
	const (
		factory = "ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor"
		window  = "(Tensor self, int n_fft, int? hop_length=None, int? win_length=None, Tensor? window=None, "
		options = "bool normalized=False, bool? onesided=None, "
	)
	return append(all,
		op("aten::_fft_c2c(Tensor self, SymInt[] dim, int normalization, bool forward) -> Tensor", func(c *call) (*Ref, error) {
			return c.fourierPlain(fourierKind{inverse: !c.bool("forward")}, 0)
		}),
		op("aten::_fft_r2c(Tensor self, int[] dim, int normalization, bool onesided) -> Tensor", func(c *call) (*Ref, error) {
			kind := fourierKind{from: realNumbers}
			if c.bool("onesided") {
				kind.to = halfNumbers
			}
			return c.fourierPlain(kind, 0)
		}),
		op("aten::_fft_c2r(Tensor self, int[] dim, int normalization, SymInt last_dim_size) -> Tensor",
			func(c *call) (*Ref, error) {
				return c.fourierPlain(
					fourierKind{from: halfNumbers, to: realNumbers, inverse: true}, c.int("last_dim_size"),
				)
			}),
		op("aten::fft_fftfreq(int n, float d=1.0, *, "+factory, func(c *call) (*Ref, error) {
			return c.frequencies(c.int("n"))
		}),
		op("aten::fft_rfftfreq(int n, float d=1.0, *, "+factory, func(c *call) (*Ref, error) {
			return c.frequencies(c.int("n")/2 + 1)
		}),
		op("aten::fft_fftshift(Tensor self, int[1]? dim=None) -> Tensor", func(c *call) (*Ref, error) {
			return c.shifted(func(n int) int { return n - n/2 })
		}),
		op("aten::fft_ifftshift(Tensor self, int[1]? dim=None) -> Tensor", func(c *call) (*Ref, error) {
			return c.shifted(func(n int) int { return n / 2 })
		}),
		op("aten::stft"+window+options+"bool? return_complex=None, bool? align_to_window=None) -> Tensor", stft),
		op("aten::stft.center"+window+"bool center=True, str pad_mode=\"reflect\", "+options+
			"bool? return_complex=None, bool? align_to_window=None) -> Tensor", stft),
		op(
			"aten::istft"+window+"bool center=True, "+options+"int? length=None, bool return_complex=False) -> Tensor",
			istft,
		),
	)
}()

// A fourierKind is a transform without its length.
type fourierKind struct {
	from, to fourierCount
	inverse  bool
}

// scale returns the factor for transforms of n numbers in all, by the name of a norm.
func (k fourierKind) scale(norm string, n float64) (float64, error) {
	switch {
	case norm == "ortho":
		return 1 / math.Sqrt(n), nil
	case norm != "" && norm != "backward" && norm != "forward":
		return 0, fmt.Errorf("norm %q", norm)
	case (norm == "forward") != k.inverse:
		return 1 / n, nil
	}
	return 1, nil
}

// fourierOver transforms "self" over dimensions, of which sizes, where it is not nil, says how many numbers: of the
// others over all complex numbers, of the last as the kind says.
func (c *call) fourierOver(kind fourierKind, sizes, dims []int) (*Ref, error) {
	x := c.tensor("self")
	dims = slices.Clone(dims)
	for i, d := range dims {
		dims[i] = c.wrapDim(d, x.rank())
	}
	if c.err != nil {
		return nil, c.err
	}
	if len(dims) == 0 || sizes != nil && len(sizes) != len(dims) || x.rank() == 0 {
		return nil, fmt.Errorf("sizes %v of dimensions %v of %v", sizes, dims, x.shape())
	}
	last := len(dims) - 1
	steps := make([]fourier, len(dims))
	for i, d := range dims {
		steps[i] = fourier{n: x.shape()[d], inverse: kind.inverse}
		if i == last {
			steps[i].from, steps[i].to = kind.from, kind.to
			if kind.from == halfNumbers {
				steps[i].n = 2 * (steps[i].n - 1)
			}
		}
		if sizes != nil && sizes[i] != -1 {
			steps[i].n = sizes[i]
		}
		var err error
		if steps[i].scale, err = kind.scale(c.str("norm"), float64(steps[i].n)); err != nil {
			return nil, err
		}
	}
	return c.fourierSteps(x, steps, dims)
}

// fourierPlain is the meaning of the ops that the functions of torch.fft are made of. The last dimension has n numbers
// where n is not 0.
func (c *call) fourierPlain(kind fourierKind, n int) (*Ref, error) {
	c.args["norm"] = []any{"backward", "ortho", "forward"}[min(max(c.int("normalization"), 0), 2)]
	if kind.inverse { // "forward" divides by n where the transform is not the inverse
		c.args["norm"] = []any{"forward", "ortho", "backward"}[min(max(c.int("normalization"), 0), 2)]
	}
	dims := c.ints("dim")
	var sizes []int
	if n > 0 {
		sizes = slices.Repeat([]int{-1}, len(dims))
		sizes[len(sizes)-1] = n
	}
	return c.fourierOver(kind, sizes, dims)
}

// fourierSteps transforms x over one dimension after the other: over the last one first, unless that gives real numbers.
func (b *Builder) fourierSteps(x *Ref, steps []fourier, dims []int) (*Ref, error) {
	order := allDims(len(dims))
	if steps[len(steps)-1].to != realNumbers {
		slices.Reverse(order)
	}
	for _, i := range order {
		f := steps[i]
		if f.from == complexNumbers && !IsComplex(x.dtype) {
			f.from = realNumbers
		}
		var err error
		if x, err = b.fourierAlong(x, dims[i], f); err != nil {
			return nil, err
		}
	}
	return x, nil
}

// frequencies returns the first of the frequencies of a transform of "n" numbers at distances "d".
func (c *call) frequencies(count int) (*Ref, error) {
	n, d := c.int("n"), c.float("d")
	if c.err != nil || n < 1 || count > maxFourier {
		return nil, fmt.Errorf("frequencies of %d numbers", n)
	}
	dtype := c.dtype("dtype", defaultFloat)
	if err := c.charge(count, dtype); err != nil {
		return nil, err
	}
	values := make([]float64, count)
	for k := range values {
		values[k] = float64(k) / (float64(n) * d)
		if count == n && 2*k >= n+n%2 {
			values[k] = float64(k-n) / (float64(n) * d)
		}
	}
	return c.constants(values, dtype, count)
}

// shifted returns "self" turned round along dimensions, so that it begins at number at(n) of n.
func (c *call) shifted(at func(n int) int) (*Ref, error) {
	x := c.tensor("self")
	dims := allDims(x.rank())
	if c.has("dim") {
		dims = c.wrapDims(x, c.ints("dim"))
	}
	for _, d := range dims {
		if c.err != nil || x.rank() == 0 {
			return nil, c.err
		}
		n := x.shape()[d]
		var err error
		if x, err = c.joinAlong(d, c.slice(x, d, at(n), n, 1), c.slice(x, d, 0, at(n), 1)); err != nil {
			return nil, err
		}
	}
	return x, c.err
}

// A shortTime is what stft and istft have in common.
type shortTime struct {
	// n is the length of the transforms and of the window, hop the distance between them.
	n, hop int
	window *Ref
	// half says that of the transforms there is the first half.
	half  bool
	scale float64
}

// shortTime reads the arguments of stft or istft of a signal of a dtype.
func (c *call) shortTime(d tensor.DType) (*shortTime, error) {
	s := &shortTime{n: c.int("n_fft"), half: true, scale: 1}
	if c.has("onesided") {
		s.half = c.bool("onesided")
	}
	s.hop = c.optInt("hop_length", s.n/4)
	width := c.optInt("win_length", s.n)
	if c.err != nil || s.n < 1 || s.hop < 1 || width < 1 || width > s.n {
		return nil, fmt.Errorf("windows of %d in transforms of %d at distances %d", width, s.n, s.hop)
	}
	if c.bool("align_to_window") {
		return nil, c.Unsupported("align_to_window")
	}
	if c.bool("normalized") {
		s.scale = 1 / math.Sqrt(float64(s.n))
	}
	s.window = c.optTensor("window")
	var err error
	if s.window == nil {
		if s.window, err = c.full(1, d, tensor.Shape{width}); err != nil {
			return nil, err
		}
	}
	switch {
	case IsComplex(s.window.dtype):
		return nil, c.Unsupported("a window of %v", s.window.dtype)
	case s.window.rank() != 1 || s.window.shape()[0] != width:
		return nil, fmt.Errorf("a window of %v %v", s.window.dtype, s.window.shape())
	}
	left := (s.n - width) / 2
	s.window, err = c.padded(s.window, left, s.n-width-left, "constant")
	return s, err
}

// padded returns x with more elements before and after in the last dimension.
func (b *Builder) padded(x *Ref, before, after int, mode string) (*Ref, error) {
	if before == 0 && after == 0 {
		return x, nil
	}
	var filler *Ref
	if mode == "constant" {
		var err error
		if filler, err = b.Scalar(0, x.dtype); err != nil {
			return nil, err
		}
	}
	amounts := func(n int) []int {
		all := make([]int, x.rank())
		all[x.rank()-1] = n
		return all
	}
	attrs := graph.Attrs{"before": amounts(before), "after": amounts(after), "mode": mode}
	return b.Emit1("pad", attrs, b.Read(x), b.Read(filler))
}

func stft(c *call) (*Ref, error) {
	x := c.tensor("self")
	if c.err != nil || x.rank() < 1 || x.rank() > 2 || IsComplex(x.dtype) {
		return nil, c.Unsupported("a signal of %v %v", x.dtype, x.shape())
	}
	s, err := c.shortTime(x.dtype)
	if err != nil {
		return nil, err
	}
	rank := x.rank()
	if rank == 1 {
		x = c.unsqueeze(x, 0)
	}
	if c.bool("center") {
		mode := c.str("pad_mode")
		if x, err = c.padded(x, s.n/2, s.n/2, mode); err != nil {
			return nil, err
		}
	}
	length := x.shape()[1]
	if length < s.n {
		return nil, fmt.Errorf("windows of %d numbers of %d", s.n, length)
	}
	frames := c.view(x, tensor.Layout{
		Shape:   tensor.Shape{x.shape()[0], 1 + (length-s.n)/s.hop, s.n},
		Strides: []int{x.layout.Strides[0], x.layout.Strides[1] * s.hop, x.layout.Strides[1]}, Offset: x.layout.Offset,
	})
	if frames, err = c.combine("mul", nil, frames, s.window); err != nil {
		return nil, err
	}
	f := fourier{n: s.n, from: realNumbers, scale: s.scale}
	if s.half {
		f.to = halfNumbers
	}
	z, err := c.fourierAlong(frames, 2, f)
	if err != nil {
		return nil, err
	}
	z = c.transpose(z, 1, 2)
	if rank == 1 {
		z = c.selectAt(z, 0, 0)
	}
	if !c.bool("return_complex") {
		return c.pairs(z), nil
	}
	return z, nil
}

// istft adds up the windows' signals, each times the window, and divides by the sum of the windows' squares.
func istft(c *call) (*Ref, error) {
	z := c.tensor("self")
	if c.err != nil || z.rank() < 2 || z.rank() > 3 || !IsComplex(z.dtype) || c.bool("return_complex") {
		return nil, c.Unsupported("the inverse of %v %v", z.dtype, z.shape())
	}
	s, err := c.shortTime(PartOf(z.dtype))
	if err != nil {
		return nil, err
	}
	rank := z.rank()
	if rank == 2 {
		z = c.unsqueeze(z, 0)
	}
	// Where there are all numbers, the second half does not count.
	f := fourier{n: s.n, from: halfNumbers, to: realNumbers, inverse: true, scale: 1 / (s.scale * float64(s.n))}
	frames, err := c.fourierAlong(c.transpose(z, 1, 2), 2, f)
	if err != nil {
		return nil, err
	}
	if frames, err = c.combine("mul", nil, frames, s.window); err != nil {
		return nil, err
	}
	sum, err := c.overlapped(frames, s)
	if err != nil {
		return nil, err
	}
	squares, err := c.combine("mul", nil, s.window, s.window)
	if err != nil {
		return nil, err
	}
	if squares, err = c.expand(squares, tensor.Shape{1, frames.shape()[1], s.n}); err != nil {
		return nil, err
	}
	if squares, err = c.overlapped(squares, s); err != nil {
		return nil, err
	}
	have, start := sum.shape()[1], 0
	end := have
	if c.bool("center") {
		start = s.n / 2
		end -= start
	}
	if c.has("length") {
		end = start + c.int("length")
	}
	cut := func(r *Ref) *Ref { return c.slice(r, 1, min(start, have), max(min(end, have), min(start, have)), 1) }
	y, err := c.combine("div", nil, cut(sum), cut(squares))
	if err != nil {
		return nil, err
	}
	if y, err = c.padded(y, 0, max(end-have, 0), "constant"); err != nil {
		return nil, err
	}
	if rank == 2 {
		y = c.selectAt(y, 0, 0)
	}
	return y, c.err
}

// overlapped returns the sums of frames [B, count, n] that begin at distances.
func (b *Builder) overlapped(frames *Ref, s *shortTime) (*Ref, error) {
	batch, count := frames.shape()[0], frames.shape()[1]
	length := s.n + s.hop*(count-1)
	columns, err := b.copy(b.transpose(frames, 1, 2))
	if err != nil {
		return nil, err
	}
	image, err := b.Emit1("col2im", graph.Attrs{
		"size": []int{1, length}, "kernel": []int{1, s.n}, "stride": []int{1, s.hop}, "dilation": []int{1, 1},
		"padding": []int{0, 0},
	}, b.Read(columns))
	if err != nil {
		return nil, err
	}
	return b.Reshape(image, tensor.Shape{batch, length})
}
