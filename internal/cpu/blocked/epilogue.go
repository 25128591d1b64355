package blocked

import "math"

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
	// Residual is added where it is not nil. It has the layout of the output, of which it may be the memory.
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
