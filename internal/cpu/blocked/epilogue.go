package blocked

import (
	"math"

	"github.com/optimem/optimem/internal/cpu/kernel"
)

// An Act is an activation. A and B of an [Epilogue] are its parameters.
type Act uint8

// The activations, as PyTorch defines them.
const (
	// None is the identity.
	None Act = iota
	ReLU
	ReLU6
	// HardTanh limits to [A, B].
	HardTanh
	SiLU
	HardSwish
	HardSigmoid
	Sigmoid
	Tanh
	// GELU is x·Φ(x), GELUTanh its approximation by tanh.
	GELU
	GELUTanh
	// LeakyReLU has slope A below zero.
	LeakyReLU
	// ELU is A·(eˣ−1) below zero.
	ELU
	numActs
)

var acts = [numActs]string{
	"", "relu", "relu6", "hardtanh", "silu", "hardswish", "hardsigmoid", "sigmoid", "tanh", "gelu", "gelu_tanh",
	"leaky_relu", "elu",
}

// String returns the name, "" of None.
func (a Act) String() string { return acts[a] }

// ActOf returns the activation of a name that String returns.
func ActOf(name string) (Act, bool) {
	for i, s := range acts {
		if s == name {
			return Act(i), true
		}
	}
	return None, false
}

// An Epilogue is what becomes of a convolution's sums:
//
//	y = act(sum·Scale[channel] + Shift[channel] + residual)
//
// The zero Epilogue leaves them as they are. A bias is a Shift; batch normalisation is a Scale w/√(var+ε) and a Shift
// b − mean·w/√(var+ε), to which a bias adds itself times the scale.
type Epilogue struct {
	// Scale and Shift have an entry for each output channel; nil is one and zero.
	Scale, Shift []float32
	// Residual is added where it is not nil. It has the layout of the output, and may be its memory where
	// [Conv.ResidualInPlace] says so.
	Residual []float32
	Act      Act
	A, B     float32
}

// of computes an activation of one number.
func (a Act) of(v, p, q float32) float32 {
	x := float64(v)
	switch a {
	case ReLU:
		return limit(v, 0, float32(math.Inf(1)))
	case ReLU6:
		return limit(v, 0, 6)
	case HardTanh:
		return limit(v, p, q)
	case SiLU:
		return float32(x / (1 + math.Exp(-x)))
	case HardSwish:
		return v * limit(v+3, 0, 6) / 6
	case HardSigmoid:
		return limit(v+3, 0, 6) / 6
	case Sigmoid:
		return float32(1 / (1 + math.Exp(-x)))
	case Tanh:
		return float32(math.Tanh(x))
	case GELU:
		return float32(x * 0.5 * (1 + math.Erf(x*math.Sqrt2/2)))
	case GELUTanh:
		return float32(0.5 * x * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x))))
	case LeakyReLU:
		if v < 0 {
			return v * p
		}
	case ELU:
		if v < 0 {
			return float32(float64(p) * math.Expm1(x))
		}
	}
	return v
}

// limit returns v within [low, high], and NaN of NaN.
func limit(v, low, high float32) float32 {
	if v < low {
		v = low
	}
	if v > high {
		v = high
	}
	return v
}

// A finish is an epilogue as kernels take it: scale, shift and mask for whole panels of channels, and what they do
// themselves.
type finish struct {
	scale, shift, mask []float32
	flags              kernel.ConvFlags
	low, high          float32
	// residual is like the output, nil for none.
	residual []float32
	// after is the activation that is computed behind the kernels.
	after Act
	a, b  float32
	// clear says that lanes beyond the channels must be cleared after it.
	clear    bool
	channels int
	set      *kernel.ConvSet
}

// finishChannels is the channels of a finish's arrays.
func finishChannels(out int) int { return (out + 31) / 32 * 32 }

// finishFloats is the memory of a finish.
func finishFloats(out int) int { return 3 * finishChannels(out) }

// of makes f the finish of a convolution's epilogue; work has finishFloats.
func (f *finish) of(c *Conv, a *Args, work []float32) {
	n := finishChannels(c.Out)
	*f = finish{
		scale: work[:n], shift: work[n : 2*n], mask: work[2*n : 3*n], flags: kernel.ConvFinish,
		residual: a.Residual, a: a.A, b: a.B, channels: c.Out, set: c.set,
	}
	if a.Scale == nil {
		for i := range f.scale {
			f.scale[i] = 1
		}
	} else {
		clear(f.scale[copy(f.scale, a.Scale[:c.Out]):])
	}
	used := 0
	if a.Shift != nil {
		used = copy(f.shift, a.Shift[:c.Out])
	}
	clear(f.shift[used:])
	if f.residual != nil {
		f.flags |= kernel.ConvResidual
	}
	if c.Out%Lanes != 0 {
		f.flags |= kernel.ConvClear
		for i := range f.mask {
			if f.mask[i] = 0; i < c.Out {
				f.mask[i] = math.Float32frombits(1<<32 - 1)
			}
		}
	}
	var limits bool
	if f.low, f.high, limits = a.Act.limits(a.A, a.B); limits {
		f.flags |= kernel.ConvLimit
	} else if _, ok := c.how.(*direct); ok && a.Act == HardSwish && c.set.HasHardSwish() {
		f.flags |= kernel.ConvHardSwish
	} else if a.Act != None {
		f.after = a.Act
		f.clear = c.Out%Lanes != 0 && a.Act.of(0, a.A, a.B) != 0
	}
}

// apply computes the activation that kernels leave out over pixels of a block of channels.
func (f *finish) apply(y []float32, block int) {
	if f.after == None {
		return
	}
	f.after.all(f.set, y, f.a, f.b)
	if used := f.channels - block*Lanes; f.clear && used < Lanes {
		for i := 0; i < len(y); i += Lanes {
			clear(y[i+used : i+Lanes])
		}
	}
}

// maps has the kernels of activations that are no limits.
var maps = [numActs]kernel.Map{
	SiLU: kernel.MapSilu, HardSwish: kernel.MapHardSwish, HardSigmoid: kernel.MapHardSigmoid,
	Sigmoid: kernel.MapSigmoid,
	Tanh:    kernel.MapTanh, GELU: kernel.MapGelu, GELUTanh: kernel.MapGeluTanh, LeakyReLU: kernel.MapLeakyRelu,
	ELU: kernel.MapElu,
}

// all replaces numbers by their activation.
func (a Act) all(set *kernel.ConvSet, y []float32, p, q float32) {
	if a == SiLU && set.SiLU(y) {
		return
	}
	a.over(set.Vectors, y, p, q)
}

// over is all with given kernels, or none.
func (a Act) over(vectors *kernel.Set, y []float32, p, q float32) {
	if vectors == nil || a < SiLU {
		for i, v := range y {
			y[i] = a.of(v, p, q)
		}
		return
	}
	vectors.Map(maps[a], y, y, nil, nil, p, 1, 1)
}

// limits returns what an activation limits numbers to, if that is all it does.
func (a Act) limits(p, q float32) (low, high float32, ok bool) {
	switch a {
	case ReLU:
		return 0, float32(math.Inf(1)), true
	case ReLU6:
		return 0, 6, true
	case HardTanh:
		return p, q, true
	}
	return 0, 0, false
}
