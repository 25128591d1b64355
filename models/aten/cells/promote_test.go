package cells

import (
	"strings"
	"testing"

	"github.com/optimem/optimem/tensor"
)

// promotions is torch.promote_types: the dtype of each row with that of each column, "-" where PyTorch refuses.
const promotions = `
bool bool uint8 int8 int16 int32 int64 - - - float16 bfloat16 float32 float64 complex32 complex64 complex128 -
uint8 uint8 uint8 int16 int16 int32 int64 - - - float16 bfloat16 float32 float64 complex32 complex64 complex128 -
int8 int8 int16 int8 int16 int32 int64 - - - float16 bfloat16 float32 float64 complex32 complex64 complex128 -
int16 int16 int16 int16 int16 int32 int64 - - - float16 bfloat16 float32 float64 complex32 complex64 complex128 -
int32 int32 int32 int32 int32 int32 int64 - - - float16 bfloat16 float32 float64 complex32 complex64 complex128 -
int64 int64 int64 int64 int64 int64 int64 - - - float16 bfloat16 float32 float64 complex32 complex64 complex128 -
uint16 - - - - - - uint16 - - float16 bfloat16 float32 float64 - - - -
uint32 - - - - - - - uint32 - float16 bfloat16 float32 float64 - - - -
uint64 - - - - - - - - uint64 float16 bfloat16 float32 float64 - - - -
float16 float16 float16 float16 float16 float16 float16 float16 float16 float16 float16 float32 float32 float64 complex32 complex64 complex128 -
bfloat16 bfloat16 bfloat16 bfloat16 bfloat16 bfloat16 bfloat16 bfloat16 bfloat16 bfloat16 float32 bfloat16 float32 float64 complex64 complex64 complex128 -
float32 float32 float32 float32 float32 float32 float32 float32 float32 float32 float32 float32 float32 float64 complex64 complex64 complex128 -
float64 float64 float64 float64 float64 float64 float64 float64 float64 float64 float64 float64 float64 float64 complex128 complex128 complex128 -
complex32 complex32 complex32 complex32 complex32 complex32 complex32 - - - complex32 complex64 complex64 complex128 complex32 complex64 complex128 -
complex64 complex64 complex64 complex64 complex64 complex64 complex64 - - - complex64 complex64 complex64 complex128 complex64 complex64 complex128 -
complex128 complex128 complex128 complex128 complex128 complex128 complex128 - - - complex128 complex128 complex128 complex128 complex128 complex128 complex128 -
float8_e4m3fn - - - - - - - - - - - - - - - - float8_e4m3fn
`

func TestPromoteTypes(t *testing.T) {
	rows := strings.Split(strings.TrimSpace(promotions), "\n")
	names := make([]string, len(rows))
	for i, row := range rows {
		names[i] = strings.Fields(row)[0]
	}
	for i, row := range rows {
		for j, want := range strings.Fields(row)[1:] {
			a, _ := tensor.ParseDType(names[i])
			b, _ := tensor.ParseDType(names[j])
			got, ok := promoteTypes(a, b)
			text := "-"
			if ok {
				text = got.String()
			}
			if text != want {
				t.Errorf("%v and %v: %s, PyTorch gives %s", a, b, text, want)
			}
		}
	}
}
