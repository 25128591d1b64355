package loader

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"

	"github.com/optimem/optimem/loader/internal/pickle"
)

// maxTextBytes bounds the text of one value.
const maxTextBytes = 200

// plainText writes a value as Python prints it, containers and long texts cut short.
func plainText(v any) string { return cut(textOf(unwrap(v), 2)) }

func cut(s string) string {
	if len(s) <= maxTextBytes {
		return s
	}
	return strings.ToValidUTF8(s[:maxTextBytes], "") + "…"
}

func textOf(v any, depth int) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		if v {
			return "True"
		}
		return "False"
	case string:
		return cut(v)
	case float64:
		return floatText(v)
	case complex128:
		return strings.Replace(fmt.Sprint(v), "i", "j", 1)
	case *big.Int:
		if v.BitLen() > 512 {
			return fmt.Sprintf("an integer of %d bits", v.BitLen())
		}
		return v.String()
	case layoutValue:
		return string(v)
	case *ndarray:
		return v.String()
	case *plainCall:
		return v.callee.String() + itemsText(v.args, "(", ")", depth)
	case *tensorValue:
		return "torch.Tensor"
	case *torchStorage:
		return fmt.Sprintf("storage of %d bytes", v.bytes)
	}
	if n, ok := pickle.Int(v); ok {
		return strconv.FormatInt(n, 10)
	}
	if b, ok := pickle.Bytes(v); ok {
		return fmt.Sprintf("%d bytes", len(b))
	}
	if g, ok := pickle.AsGlobal(v); ok {
		return g.String()
	}
	if items, ok := pickle.Tuple(v); ok {
		return itemsText(items, "(", ")", depth)
	}
	if items, ok := pickle.List(v); ok {
		return itemsText(items, "[", "]", depth)
	}
	if items, ok := pickle.Set(v); ok {
		return itemsText(items, "{", "}", depth)
	}
	if obj, ok := pickle.AsObject(v); ok {
		return obj.Class().String()
	}
	return "…"
}

// itemsText writes the first few items of a sequence.
func itemsText(items []any, left, right string, depth int) string {
	var b strings.Builder
	b.WriteString(left)
	for i, item := range items {
		if i > 0 {
			b.WriteString(", ")
		}
		if depth == 0 || i == 8 {
			b.WriteString("…")
			break
		}
		b.WriteString(textOf(unwrap(item), depth-1))
	}
	b.WriteString(right)
	return b.String()
}

// floatText writes a number as Python's repr does.
func floatText(x float64) string {
	switch {
	case math.IsInf(x, 1):
		return "inf"
	case math.IsInf(x, -1):
		return "-inf"
	case math.IsNaN(x):
		return "nan"
	}
	s := strconv.FormatFloat(x, 'g', -1, 64)
	if abs := math.Abs(x); x == 0 || abs >= 1e-4 && abs < 1e16 {
		s = strconv.FormatFloat(x, 'f', -1, 64)
	}
	if !strings.ContainsAny(s, ".e") {
		s += ".0"
	}
	return s
}
