package signals

import (
	"fmt"
	"math"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models/aten/call"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/tensor"
)

// FourierTargets are torch.fft, and torch.stft and torch.istft, which transform windows of a signal.
var FourierTargets = func() []call.Overload {
	var all []call.Overload
	for name, kind := range map[string]fourierKind{
		"fft": {}, "ifft": {inverse: true}, "rfft": {from: realNumbers, to: halfNumbers},
		"irfft": {from: halfNumbers, to: realNumbers, inverse: true}, "hfft": {from: halfNumbers, to: realNumbers},
		"ihfft": {from: realNumbers, to: halfNumbers, inverse: true},
	} {
		all = append(all, call.One("aten::fft_"+name+
			"(Tensor self, SymInt? n=None, int dim=-1, str? norm=None) -> Tensor",
			func(c *call.Call) (*cells.Ref, error) {
				var sizes []int
				if c.Has("n") {
					sizes = []int{c.Int("n")}
				}
				return fourierOver(c, kind, sizes, []int{c.Int("dim")})
			}))
		over := func(c *call.Call) (*cells.Ref, error) {
			dims := c.Ints("dim")
			if !c.Has("dim") && c.Has("s") { // the last ones
				for i := range c.Ints("s") {
					dims = append(dims, i-len(c.Ints("s")))
				}
			} else if !c.Has("dim") {
				dims = cells.AllDims(c.Tensor("self").Rank())
			}
			return fourierOver(c, kind, c.Ints("s"), dims)
		}
		all = append(all,
			call.One(
				"aten::fft_"+name+"2(Tensor self, SymInt[1]? s=None, int[1] dim=[-2,-1], str? norm=None) -> Tensor",
				over,
			),
			call.One("aten::fft_"+name+"n(Tensor self, SymInt[1]? s=None, int[1]? dim=None, str? norm=None) -> Tensor", over))
	}
	const (
		factory = "ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor"
		window  = "(Tensor self, int n_fft, int? hop_length=None, int? win_length=None, Tensor? window=None, "
		options = "bool normalized=False, bool? onesided=None, "
	)
	return append(all,
		call.One("aten::_fft_c2c(Tensor self, SymInt[] dim, int normalization, bool forward) -> Tensor",
			func(c *call.Call) (*cells.Ref, error) {
				return fourierPlain(c, fourierKind{inverse: !c.Bool("forward")}, 0)
			}),
		call.One("aten::_fft_r2c(Tensor self, int[] dim, int normalization, bool onesided) -> Tensor",
			func(c *call.Call) (*cells.Ref, error) {
				kind := fourierKind{from: realNumbers}
				if c.Bool("onesided") {
					kind.to = halfNumbers
				}
				return fourierPlain(c, kind, 0)
			}),
		call.One("aten::_fft_c2r(Tensor self, int[] dim, int normalization, SymInt last_dim_size) -> Tensor",
			func(c *call.Call) (*cells.Ref, error) {
				return fourierPlain(c,
					fourierKind{from: halfNumbers, to: realNumbers, inverse: true}, c.Int("last_dim_size"),
				)
			}),
		call.One("aten::fft_fftfreq(int n, float d=1.0, *, "+factory, func(c *call.Call) (*cells.Ref, error) {
			return frequencies(c, c.Int("n"))
		}),
		call.One("aten::fft_rfftfreq(int n, float d=1.0, *, "+factory, func(c *call.Call) (*cells.Ref, error) {
			return frequencies(c, c.Int("n")/2+1)
		}),
		call.One("aten::fft_fftshift(Tensor self, int[1]? dim=None) -> Tensor", func(c *call.Call) (*cells.Ref, error) {
			return shifted(c, func(n int) int { return n - n/2 })
		}),
		call.One("aten::fft_ifftshift(Tensor self, int[1]? dim=None) -> Tensor",
			func(c *call.Call) (*cells.Ref, error) {
				return shifted(c, func(n int) int { return n / 2 })
			}),
		call.One("aten::stft"+window+options+"bool? return_complex=None, bool? align_to_window=None) -> Tensor", stft),
		call.One("aten::stft.center"+window+"bool center=True, str pad_mode=\"reflect\", "+options+
			"bool? return_complex=None, bool? align_to_window=None) -> Tensor", stft),
		call.One(
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
func fourierOver(c *call.Call, kind fourierKind, sizes, dims []int) (*cells.Ref, error) {
	x := c.Tensor("self")
	dims = slices.Clone(dims)
	for i, d := range dims {
		dims[i] = c.WrapDim(d, x.Rank())
	}
	if c.Err != nil {
		return nil, c.Err
	}
	if len(dims) == 0 || sizes != nil && len(sizes) != len(dims) || x.Rank() == 0 {
		return nil, fmt.Errorf("sizes %v of dimensions %v of %v", sizes, dims, x.Shape())
	}
	last := len(dims) - 1
	steps := make([]fourier, len(dims))
	for i, d := range dims {
		steps[i] = fourier{n: x.Shape()[d], inverse: kind.inverse}
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
		if steps[i].scale, err = kind.scale(c.Text("norm"), float64(steps[i].n)); err != nil {
			return nil, err
		}
	}
	return fourierSteps(c.Builder, x, steps, dims)
}

// fourierPlain is the meaning of the ops that the functions of torch.fft are made of. The last dimension has n numbers
// where n is not 0.
func fourierPlain(c *call.Call, kind fourierKind, n int) (*cells.Ref, error) {
	c.Args["norm"] = []any{"backward", "ortho", "forward"}[min(max(c.Int("normalization"), 0), 2)]
	if kind.inverse { // "forward" divides by n where the transform is not the inverse
		c.Args["norm"] = []any{"forward", "ortho", "backward"}[min(max(c.Int("normalization"), 0), 2)]
	}
	dims := c.Ints("dim")
	var sizes []int
	if n > 0 {
		sizes = slices.Repeat([]int{-1}, len(dims))
		sizes[len(sizes)-1] = n
	}
	return fourierOver(c, kind, sizes, dims)
}

// fourierSteps transforms x over one dimension after the other: over the last one first, unless that gives real
// numbers.
func fourierSteps(b *cells.Builder, x *cells.Ref, steps []fourier, dims []int) (*cells.Ref, error) {
	order := cells.AllDims(len(dims))
	if steps[len(steps)-1].to != realNumbers {
		slices.Reverse(order)
	}
	for _, i := range order {
		f := steps[i]
		if f.from == complexNumbers && !cells.IsComplex(x.DType()) {
			f.from = realNumbers
		}
		var err error
		if x, err = fourierAlong(b, x, dims[i], f); err != nil {
			return nil, err
		}
	}
	return x, nil
}

// frequencies returns the first of the frequencies of a transform of "n" numbers at distances "d".
func frequencies(c *call.Call, count int) (*cells.Ref, error) {
	n, d := c.Int("n"), c.Float("d")
	if c.Err != nil || n < 1 || count > maxFourier {
		return nil, fmt.Errorf("frequencies of %d numbers", n)
	}
	dtype := c.DType("dtype", cells.DefaultFloat)
	if err := c.Charge(count, dtype); err != nil {
		return nil, err
	}
	values := make([]float64, count)
	for k := range values {
		values[k] = float64(k) / (float64(n) * d)
		if count == n && 2*k >= n+n%2 {
			values[k] = float64(k-n) / (float64(n) * d)
		}
	}
	return c.Constants(values, dtype, count)
}

// shifted returns "self" turned round along dimensions, so that it begins at number at(n) of n.
func shifted(c *call.Call, at func(n int) int) (*cells.Ref, error) {
	x := c.Tensor("self")
	dims := cells.AllDims(x.Rank())
	if c.Has("dim") {
		dims = c.WrapDims(x, c.Ints("dim"))
	}
	for _, d := range dims {
		if c.Err != nil || x.Rank() == 0 {
			return nil, c.Err
		}
		n := x.Shape()[d]
		var err error
		if x, err = c.JoinAlong(d, c.Slice(x, d, at(n), n, 1), c.Slice(x, d, 0, at(n), 1)); err != nil {
			return nil, err
		}
	}
	return x, c.Err
}

// A shortTime is what stft and istft have in common.
type shortTime struct {
	// n is the length of the transforms and of the window, hop the distance between them.
	n, hop int
	window *cells.Ref
	// half says that of the transforms there is the first half.
	half  bool
	scale float64
}

// shortTimeOf reads the arguments of stft or istft of a signal of a dtype.
func shortTimeOf(c *call.Call, d tensor.DType) (*shortTime, error) {
	s := &shortTime{n: c.Int("n_fft"), half: true, scale: 1}
	if c.Has("onesided") {
		s.half = c.Bool("onesided")
	}
	s.hop = c.OptInt("hop_length", s.n/4)
	width := c.OptInt("win_length", s.n)
	if c.Err != nil || s.n < 1 || s.hop < 1 || width < 1 || width > s.n {
		return nil, fmt.Errorf("windows of %d in transforms of %d at distances %d", width, s.n, s.hop)
	}
	if c.Bool("align_to_window") {
		return nil, c.Unsupported("align_to_window")
	}
	if c.Bool("normalized") {
		s.scale = 1 / math.Sqrt(float64(s.n))
	}
	s.window = c.OptTensor("window")
	var err error
	if s.window == nil {
		if s.window, err = c.Full(1, d, tensor.Shape{width}); err != nil {
			return nil, err
		}
	}
	switch {
	case cells.IsComplex(s.window.DType()):
		return nil, c.Unsupported("a window of %v", s.window.DType())
	case s.window.Rank() != 1 || s.window.Shape()[0] != width:
		return nil, fmt.Errorf("a window of %v %v", s.window.DType(), s.window.Shape())
	}
	left := (s.n - width) / 2
	s.window, err = padded(c.Builder, s.window, left, s.n-width-left, "constant")
	return s, err
}

// padded returns x with more elements before and after in the last dimension.
func padded(b *cells.Builder, x *cells.Ref, before, after int, mode string) (*cells.Ref, error) {
	if before == 0 && after == 0 {
		return x, nil
	}
	var filler *cells.Ref
	if mode == "constant" {
		var err error
		if filler, err = b.Scalar(0, x.DType()); err != nil {
			return nil, err
		}
	}
	amounts := func(n int) []int {
		all := make([]int, x.Rank())
		all[x.Rank()-1] = n
		return all
	}
	attrs := graph.Attrs{"before": amounts(before), "after": amounts(after), "mode": mode}
	return b.Emit1("pad", attrs, b.Read(x), b.Read(filler))
}

func stft(c *call.Call) (*cells.Ref, error) {
	x := c.Tensor("self")
	if c.Err != nil || x.Rank() < 1 || x.Rank() > 2 || cells.IsComplex(x.DType()) {
		return nil, c.Unsupported("a signal of %v %v", x.DType(), x.Shape())
	}
	s, err := shortTimeOf(c, x.DType())
	if err != nil {
		return nil, err
	}
	rank := x.Rank()
	if rank == 1 {
		x = c.Unsqueeze(x, 0)
	}
	if c.Bool("center") {
		mode := c.Text("pad_mode")
		if x, err = padded(c.Builder, x, s.n/2, s.n/2, mode); err != nil {
			return nil, err
		}
	}
	length := x.Shape()[1]
	if length < s.n {
		return nil, fmt.Errorf("windows of %d numbers of %d", s.n, length)
	}
	frames := c.View(x, tensor.Layout{
		Shape:   tensor.Shape{x.Shape()[0], 1 + (length-s.n)/s.hop, s.n},
		Strides: []int{x.Layout().Strides[0], x.Layout().Strides[1] * s.hop, x.Layout().Strides[1]},
		Offset:  x.Layout().Offset,
	})
	if frames, err = c.Combine("mul", nil, frames, s.window); err != nil {
		return nil, err
	}
	f := fourier{n: s.n, from: realNumbers, scale: s.scale}
	if s.half {
		f.to = halfNumbers
	}
	z, err := fourierAlong(c.Builder, frames, 2, f)
	if err != nil {
		return nil, err
	}
	z = c.Transpose(z, 1, 2)
	if rank == 1 {
		z = c.SelectAt(z, 0, 0)
	}
	if !c.Bool("return_complex") {
		return c.Pairs(z), nil
	}
	return z, nil
}

// istft adds up the windows' signals, each times the window, and divides by the sum of the windows' squares.
func istft(c *call.Call) (*cells.Ref, error) {
	z := c.Tensor("self")
	if c.Err != nil || z.Rank() < 2 || z.Rank() > 3 || !cells.IsComplex(z.DType()) || c.Bool("return_complex") {
		return nil, c.Unsupported("the inverse of %v %v", z.DType(), z.Shape())
	}
	s, err := shortTimeOf(c, cells.PartOf(z.DType()))
	if err != nil {
		return nil, err
	}
	rank := z.Rank()
	if rank == 2 {
		z = c.Unsqueeze(z, 0)
	}
	// Where there are all numbers, the second half does not count.
	f := fourier{n: s.n, from: halfNumbers, to: realNumbers, inverse: true, scale: 1 / (s.scale * float64(s.n))}
	frames, err := fourierAlong(c.Builder, c.Transpose(z, 1, 2), 2, f)
	if err != nil {
		return nil, err
	}
	if frames, err = c.Combine("mul", nil, frames, s.window); err != nil {
		return nil, err
	}
	sum, err := overlapped(c.Builder, frames, s)
	if err != nil {
		return nil, err
	}
	squares, err := c.Combine("mul", nil, s.window, s.window)
	if err != nil {
		return nil, err
	}
	if squares, err = c.Expand(squares, tensor.Shape{1, frames.Shape()[1], s.n}); err != nil {
		return nil, err
	}
	if squares, err = overlapped(c.Builder, squares, s); err != nil {
		return nil, err
	}
	have, start := sum.Shape()[1], 0
	end := have
	if c.Bool("center") {
		start = s.n / 2
		end -= start
	}
	if c.Has("length") {
		end = start + c.Int("length")
	}
	cut := func(r *cells.Ref) *cells.Ref {
		return c.Slice(r, 1, min(start, have), max(min(end, have), min(start, have)), 1)
	}
	y, err := c.Combine("div", nil, cut(sum), cut(squares))
	if err != nil {
		return nil, err
	}
	if y, err = padded(c.Builder, y, 0, max(end-have, 0), "constant"); err != nil {
		return nil, err
	}
	if rank == 2 {
		y = c.SelectAt(y, 0, 0)
	}
	return y, c.Err
}

// overlapped returns the sums of frames [B, count, n] that begin at distances.
func overlapped(b *cells.Builder, frames *cells.Ref, s *shortTime) (*cells.Ref, error) {
	batch, count := frames.Shape()[0], frames.Shape()[1]
	length := s.n + s.hop*(count-1)
	columns, err := b.Copy(b.Transpose(frames, 1, 2))
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
