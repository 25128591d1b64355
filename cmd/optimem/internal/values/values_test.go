package values

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/optimem/optimem/tensor"
)

// TestSummaries: least, largest, mean and elements of every dtype, as text and as JSON.
func TestSummaries(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, tt := range []struct {
		tensor         *tensor.Tensor
		min, mean, max string
		nan            int
		first          string
		json           string
	}{
		{tensor.Of([]float32{0.1, -2, 4}, 3), "-2", "0.7", "4", 0, "0.1 -2 4", "0.1 -2 4"},
		{tensor.Of([]float64{nan, 1, inf, -inf}, 4), "-Inf", "NaN", "+Inf", 1, "NaN 1 +Inf -Inf",
			`"NaN" 1 "Infinity" "-Infinity"`},
		{tensor.Of([]float64{nan}), "", "", "", 1, "NaN", `"NaN"`},
		{tensor.Of([]float32{}, 0), "", "", "", 0, "", ""},
		{tensor.Of([]int64{math.MaxInt64, math.MaxInt64 - 1}, 2), "9223372036854775806", "9.2234e+18",
			"9223372036854775807", 0,
			"9223372036854775807 9223372036854775806", "9223372036854775807 9223372036854775806"},
		{tensor.Of([]uint64{math.MaxUint64}), "18446744073709551615", "1.8447e+19", "18446744073709551615", 0,
			"18446744073709551615", "18446744073709551615"},
		{tensor.Of([]bool{true, false, true, true}, 4), "false", "0.75", "true", 0, "true false true true",
			"true false true true"},
		{tensor.Of([]int8{-128, 127}, 2), "-128", "-0.5", "127", 0, "-128 127", "-128 127"},
		{tensor.Of([]int16{-2, 300}, 2), "-2", "149", "300", 0, "-2 300", "-2 300"},
		{tensor.Of([]int32{-2, 1 << 20}, 2), "-2", "524287", "1048576", 0, "-2 1048576", "-2 1048576"},
		{tensor.Of([]uint16{65535}), "65535", "65535", "65535", 0, "65535", "65535"},
		{tensor.Of([]uint32{math.MaxUint32}), "4294967295", "4.295e+09", "4294967295", 0, "4294967295", "4294967295"},
		{tensor.Of([]complex64{1 - 2i, complex64(complex(nan, 0))}, 2), "", "", "", 1,
			"1-2i NaN+0i", `"1-2i" "NaN+0i"`},
		{&tensor.Tensor{DType: tensor.BFloat16, Layout: tensor.Contiguous(1), Data: []byte{0xc0, 0x3f}},
			"1.5", "1.5", "1.5", 0, "1.5", "1.5"},
		{&tensor.Tensor{DType: tensor.Float16, Layout: tensor.Contiguous(1), Data: []byte{0x00, 0x3e}},
			"1.5", "1.5", "1.5", 0, "1.5", "1.5"},
		{&tensor.Tensor{DType: tensor.Float8E5M2, Layout: tensor.Contiguous(1), Data: []byte{0x3e}},
			"1.5", "1.5", "1.5", 0, "1.5", "1.5"},
	} {
		s := Summarize("", tt.tensor)
		mean := ""
		if s.Min != "" {
			mean = Short(fmt.Sprint(s.Mean))
		}
		var inJSON []string
		for i := range s.N {
			inJSON = append(inJSON, s.All.JSON(i))
		}
		if Short(s.Min) != tt.min || mean != tt.mean || Short(s.Max) != tt.max || s.NaN != tt.nan ||
			strings.Join(s.First, " ") != tt.first || strings.Join(inJSON, " ") != tt.json {
			t.Errorf("%v %v: min %s, mean %s, max %s, %d NaN, first %v, JSON %v",
				tt.tensor.DType, tt.first, s.Min, mean, s.Max, s.NaN, s.First, inJSON)
		}
		if !json.Valid([]byte("[" + strings.Join(inJSON, ",") + "]")) {
			t.Errorf("%v is no JSON", inJSON)
		}
	}
}
