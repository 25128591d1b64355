package quantize

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/optimem/optimem/tensor"
)

// A Scheme says what numbers are kept as.
type Scheme struct {
	// Kind is "int4", "int8" or "fp8".
	Kind string
	// Group is how many numbers of a row share a scale; 0 is the whole row, as fp8 always has it.
	Group int64
	// Minimum gives each group a zero point beside its scale, so that its codes span from the least number to the greatest:
	// integers only.
	Minimum bool
}

// int4Group is how many numbers share a scale where int4 comes without a number, as most published models have it.
const int4Group = 128

// mostGroup bounds a group.
const mostGroup = 1 << 20

// ErrScheme is the class of errors of [ParseScheme].
var ErrScheme = errors.New("no such scheme")

// ParseScheme reads "int8", "int4", either with ":" and a group's size behind it, or "fp8".
func ParseScheme(text string) (Scheme, error) {
	kind, size, sized := strings.Cut(text, ":")
	s := Scheme{Kind: kind}
	switch {
	case kind != "int4" && kind != "int8" && kind != "fp8", sized && kind == "fp8":
		return s, fmt.Errorf("%w: %.40q; there are int8, int4, both with a group's size such as int4:32, and fp8", ErrScheme, text)
	case sized:
		n, err := strconv.ParseInt(size, 10, 64)
		if err != nil || n < 8 || n%8 != 0 || n > mostGroup {
			return s, fmt.Errorf("%w: %.40q: a group's size is a multiple of 8", ErrScheme, text)
		}
		s.Group = n
	case kind == "int4":
		s.Group = int4Group
	}
	return s, nil
}

// bits are those of a code.
func (s Scheme) bits() int64 {
	if s.Kind == "int4" {
		return 4
	}
	return 8
}

// isFloat reports whether codes are numbers of their own.
func (s Scheme) isFloat() bool { return s.Kind == "fp8" }

// format is compressed-tensors' name of how codes lie.
func (s Scheme) format() string {
	if s.isFloat() {
		return "float-quantized"
	}
	return "pack-quantized"
}

// refuses says why a matrix of some columns cannot be kept so, "" where it can.
func (s Scheme) refuses(columns int64) string {
	switch {
	case s.Group > 0 && columns%s.Group != 0:
		return fmt.Sprintf("%d columns are no multiple of %d", columns, s.Group)
	case !s.isFloat() && columns*s.bits()%32 != 0:
		return fmt.Sprintf("%d columns fill no words of 32 bits", columns)
	}
	return ""
}

// groups is how many scales a row has.
func (s Scheme) groups(columns int64) int64 {
	if s.Group == 0 {
		return 1
	}
	return columns / s.Group
}

// A part is a tensor that a quantised weight is made of.
type part struct {
	kind  string // what its name ends in
	dtype tensor.DType
	shape tensor.Shape
}

// The parts of a weight, in the order of [Scheme.parts].
const (
	codesPart = iota
	scalesPart
	shapePart
	zerosPart
)

// parts lists what a weight becomes.
func (s Scheme) parts(rows, columns int64, scales tensor.DType) []part {
	codes := part{"weight", tensor.Float8E4M3FN, tensor.Shape{int(rows), int(columns)}}
	scale := part{"weight_scale", scales, tensor.Shape{int(rows), int(s.groups(columns))}}
	if s.isFloat() {
		return []part{codes, scale}
	}
	codes = part{"weight_packed", tensor.Int32, tensor.Shape{int(rows), int(columns * s.bits() / 32)}}
	parts := []part{codes, scale, {"weight_shape", tensor.Int64, tensor.Shape{2}}}
	if s.Minimum {
		each := 32 / s.bits()
		parts = append(parts, part{"weight_zero_point", tensor.Int32, tensor.Shape{int((rows + each - 1) / each), int(s.groups(columns))}})
	}
	return parts
}

// configuration is what config.json says of the folder's weights, with the modules that stay as they are.
func (s Scheme) configuration(ignored []string) map[string]any {
	strategy, group, kind := "channel", any(nil), "int"
	if s.Group > 0 {
		strategy, group = "group", s.Group
	}
	if s.isFloat() {
		kind = "float"
	}
	weights := map[string]any{
		"num_bits": s.bits(), "type": kind, "symmetric": !s.Minimum, "strategy": strategy, "group_size": group,
		"dynamic": false, "actorder": nil, "block_structure": nil, "observer": "minmax", "observer_kwargs": map[string]any{},
	}
	return map[string]any{
		"quant_method": "compressed-tensors", "format": s.format(), "quantization_status": "compressed",
		"global_compression_ratio": nil, "kv_cache_scheme": nil, "ignore": ignored,
		"config_groups": map[string]any{"group_0": map[string]any{
			"targets": []string{"Linear"}, "weights": weights, "input_activations": nil, "output_activations": nil,
		}},
	}
}
