package quantize

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"testing"

	"github.com/optimem/optimem/tensor"
)

// made are numbers from a counter: multiples of 2⁻¹⁵ from −1 to 1.
func made(seed uint32, n int) []float64 {
	numbers := make([]float64, n)
	for i := range numbers {
		seed = seed*1664525 + 1013904223
		numbers[i] = float64(int32(seed)>>16) / (1 << 15)
	}
	return numbers
}

const madeRows, madeColumns, madeTokens = 8, 96, 160

// madeSums are the second moments of inputs that depend on each other.
func madeSums() []float64 {
	x := made(2, madeTokens*madeColumns)
	sums := make([]float64, madeColumns*madeColumns)
	for ; len(x) > 0; x = x[madeColumns:] {
		row := x[:madeColumns]
		for j := 1; j < madeColumns; j++ {
			row[j] += row[j-1] / 2
		}
		for j := range row {
			row[j] *= 1 + float64(7*j%13)/4
		}
		for i := range row {
			addTimes(sums[i*madeColumns:][:madeColumns], row, row[i])
		}
	}
	return sums
}

// madeChunk is a weight, as a chunk.
func madeChunk(s Scheme, dtype tensor.DType) *chunk {
	weight := tensor.Weight{DType: dtype, Layout: tensor.Contiguous(madeRows, madeColumns)}
	c := newChunk(s, &item{weight: weight, rows: madeRows, columns: madeColumns}, madeRows)
	for i, x := range made(1, madeRows*madeColumns) {
		v := float32(x)
		store(c.raw[i*dtype.Size():], v*v*v, dtype)
	}
	return c
}

// TestGPTQ: codes, scales and errors are those of GPTQ's own loop in Python, and the error of what is computed is less
// than that of codes that were chosen for themselves.
func TestGPTQ(t *testing.T) {
	text, err := os.ReadFile("testdata/gptq.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Cases []struct {
			DType       string
			Bits, Group int64
			Minimum     bool
			ByUse       bool `json:"by_use"`
			Codes       []string
			Scales      [][]float64
			Zeros       [][]int
			Error       float64
			OutputError float64 `json:"output_error"`
			Plain       float64 `json:"plain_output_error"`
		}
	}
	if err := json.Unmarshal(text, &golden); err != nil || len(golden.Cases) != 6 {
		t.Fatalf("%d cases: %v", len(golden.Cases), err)
	}
	for _, g := range golden.Cases {
		s := Scheme{Kind: map[int64]string{4: "int4", 8: "int8"}[g.Bits], Group: g.Group, Minimum: g.Minimum}
		dtype, _ := tensor.ParseDType(g.DType)
		c := madeChunk(s, dtype)
		h := newHessian(madeSums(), madeColumns, g.ByUse)
		if err := h.invert(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := c.encodeCalibrated(t.Context(), madeRows, h); err != nil {
			t.Fatal(err)
		}
		var errs, squares, outErrs, outSquares float64
		for r := range int64(madeRows) {
			if got := codesOf(c, r); got != g.Codes[r] {
				t.Errorf("%v %+v, by use %v: row %d has codes\n%s, want\n%s", dtype, s, g.ByUse, r, got, g.Codes[r])
			}
			scales := make([]float32, c.groups)
			decode(scales, c.scales[r*c.groups*int64(dtype.Size()):], dtype)
			for i, x := range scales {
				if x != float32(g.Scales[r][i]) || c.zeros != nil && c.zeros[r*c.groups+int64(i)] != byte(g.Zeros[r][i]) {
					t.Errorf("%v %+v, by use %v: row %d, group %d has scale %v, want %v", dtype, s, g.ByUse, r, i, x, g.Scales[r][i])
				}
			}
			errs, squares = errs+c.errors[r], squares+c.squares[r]
			outErrs, outSquares = outErrs+c.outErrors[r], outSquares+c.outSquares[r]
		}
		near := func(a, b float64) bool { return math.Abs(a-b) < 1e-9*b }
		if e, o := relative(errs, squares), relative(outErrs, outSquares); !near(e, g.Error) || !near(o, g.OutputError) || o >= g.Plain {
			t.Errorf("%v %+v, by use %v: errors %v and %v, want %v and %v, less than %v", dtype, s, g.ByUse, e, o, g.Error, g.OutputError, g.Plain)
		}
	}
}

// codesOf are a row's codes in hexadecimal digits.
func codesOf(c *chunk, r int64) string {
	const digits = "0123456789abcdef"
	var text []byte
	for _, b := range c.codes[r*c.codeBytes():][:c.codeBytes()] {
		first, second := digits[b&15], digits[b>>4]
		if c.scheme.bits() == 8 {
			first, second = second, first
		}
		text = append(text, first, second)
	}
	return string(text)
}

// TestHessian: U is what it says, for sizes around that of a strip, and H stays below the diagonal.
func TestHessian(t *testing.T) {
	for _, n := range []int{1, 2, 31, 32, 33, 70} {
		all := madeSums()
		sums := make([]float64, n*n)
		for i := range n {
			copy(sums[i*n:][:n], all[i*madeColumns:])
		}
		h := newHessian(append([]float64{}, sums...), n, false)
		if err := h.invert(t.Context()); err != nil {
			t.Fatal(err)
		}
		mean := 0.0
		for i := range n {
			mean += sums[i*n+i] / float64(n)
		}
		// H·Uᵀ·U is the unit matrix.
		for i := range n {
			for j := range n {
				sum := 0.0
				for k := range n {
					row := sums[i*n+k]
					if i == k {
						row += damping * mean
					}
					inverse := 0.0
					for m := 0; m <= min(k, j); m++ {
						inverse += h.upper[m*n+k] * h.upper[m*n+j]
					}
					sum += row * inverse
				}
				want := 0.0
				if i == j {
					want = 1
				}
				if math.Abs(sum-want) > 1e-9 {
					t.Fatalf("%d columns: H·H⁻¹ has %v at %d, %d", n, sum, i, j)
				}
				if j < i && h.upper[i*n+j] != sums[i*n+j] {
					t.Fatalf("%d columns: H is gone at %d, %d", n, i, j)
				}
			}
		}
		d, got, want := made(5, n), []float64{0}, 0.0
		h.weigh([][]float64{d}, got)
		for i := range n {
			for j := range n {
				want += d[i] * sums[i*n+j] * d[j]
			}
		}
		if math.Abs(got[0]-want) > 1e-9*math.Abs(want) {
			t.Errorf("%d columns: d·H·dᵀ is %v, want %v", n, got[0], want)
		}
	}
}

// TestStrangeInputs: inputs that are always nothing, or always the same, are rounded for themselves or damped until
// there is an inverse; what is no number is an error.
func TestStrangeInputs(t *testing.T) {
	s := Scheme{Kind: "int4", Group: 32}
	plain := madeChunk(s, tensor.Float32)
	if err := plain.encode(t.Context(), madeRows); err != nil {
		t.Fatal(err)
	}
	nothing := newHessian(make([]float64, madeColumns*madeColumns), madeColumns, true)
	same := make([]float64, madeColumns*madeColumns)
	for i := range same {
		same[i] = 3
	}
	one := newHessian(same, madeColumns, true)
	for name, h := range map[string]*hessian{"nothing": nothing, "the same": one} {
		c := madeChunk(s, tensor.Float32)
		if err := h.invert(t.Context()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := c.encodeCalibrated(t.Context(), madeRows, h); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for r := range int64(madeRows) {
			if name == "nothing" && codesOf(c, r) != codesOf(plain, r) {
				t.Errorf("row %d has other codes than without a calibration", r)
			}
			if name == "the same" && c.outErrors[r] > 3*0.1*0.1 { // the sum of the errors is about what the last one could not make good
				t.Errorf("row %d: an error of %v", r, c.outErrors[r])
			}
		}
	}
	for _, bad := range []float64{math.NaN(), math.Inf(1)} {
		sums := madeSums()
		sums[0] = bad
		if err := newHessian(sums, madeColumns, true).invert(t.Context()); !errors.Is(err, errNotFinite) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

// TestFeedbackBlocks: blocks of columns have whole groups.
func TestFeedbackBlocks(t *testing.T) {
	for size, want := range map[int64]int{8: 128, 24: 144, 32: 128, 48: 144, 120: 240, 128: 128, 160: 160, 256: 128, 0: 128} {
		columns := int64(2 * 3 * 5 * 256)
		s := Scheme{Kind: "int4", Group: size}
		f := newFeedback(&hessian{n: int(columns)}, s, &chunk{columns: columns, groups: s.groups(columns)})
		if f.block != want {
			t.Errorf("groups of %d: blocks of %d, want %d", size, f.block, want)
		}
	}
}
