//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"

	"github.com/optimem/optimem/cuda"
	"github.com/optimem/optimem/cuda/sim"
	"github.com/optimem/optimem/device/devicetest"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// changed runs a graph from PTX that was changed within one kernel, and returns what went wrong in it.
func changed(t *testing.T, g *graph.Graph, kernel string, change func(body string) string) (*tensor.Tensor, error) {
	t.Helper()
	lib := sim.New(t, "order=lazy:1 memory=64M")
	in := lib.Interpret(t)
	in.Mutate = func(text []byte) []byte {
		begin := bytes.Index(text, []byte(".visible .entry "+kernel+"("))
		if begin < 0 {
			return text
		}
		end := len(text)
		if n := bytes.Index(text[begin+1:], []byte("\n.visible")); n >= 0 {
			end = begin + 1 + n
		}
		return append(append(bytes.Clone(text[:begin]), change(string(text[begin:end]))...), text[end:]...)
	}
	dev, err := cuda.New(cuda.Options{Library: lib.Path})
	if err != nil {
		t.Fatal(err)
	}
	l, err := cuda.Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	out, err := interpret(t.Context(), dev, l, nil)
	if n, _ := in.Ran(kernel); n == 0 {
		t.Fatalf("%s was not launched: %v", kernel, err)
	}
	if err == nil {
		err = dev.Close()
	} else {
		err = errors.Join(err, errors.New(lib.Report().Message), dev.Close())
	}
	return out["y"], err
}

// tensorConv writes a convolution of rounded factors: a block with several parts of terms.
func tensorConv(w *written) graph.Operand {
	a := graph.Attrs{"stride": []int{1, 1}, "padding": []int{1, 1}, "dilation": []int{1, 1}, "groups": 1, "precision": "bf16"}
	return w.op("conv", a, w.constant(false, 2, 9, 6, 7), w.constant(false, 20, 9, 3, 3), w.constant(false, 20))
}

// nth changes the n-th of what a pattern finds, and reports whether there are so many.
func nth(body, pattern string, n int, to string) (string, bool) {
	all := regexp.MustCompile(pattern).FindAllStringIndex(body, -1)
	if n >= len(all) {
		return body, false
	}
	return body[:all[n][0]] + to + body[all[n][1]:], true
}

// TestEveryBarrierIsNeeded leaves out each barrier of kernels in turn. Each time the interpreter misses it.
func TestEveryBarrierIsNeeded(t *testing.T) {
	if testing.Short() {
		t.Skip("long under the race detector")
	}
	one := func(write func(w *written) graph.Operand) *graph.Graph {
		w := &written{&graph.Graph{Modules: make(map[string]graph.Operand)}, t}
		w.Outputs = []graph.Output{{Name: "y", Operand: write(w)}}
		return w.Graph
	}
	attends := func(a graph.Attrs, queries, keys, width, values int) *graph.Graph {
		return one(func(w *written) graph.Operand {
			a["scale"] = 0.2
			return w.op("scaled_dot_product_attention", a, w.constant(false, 1, 1, queries, width),
				w.constant(false, 1, 1, keys, width), w.constant(false, 1, 1, keys, values))
		})
	}
	attention := func(queries, keys, width, values int) *graph.Graph {
		return attends(graph.Attrs{}, queries, keys, width, values)
	}
	defer cuda.AttendingFrom(1)() // a block has several spans
	caches := func(rows []place, values int) *graph.Graph {
		c, before := attendCase{heads: 1, groups: 1, width: 16, values: values}.filled()
		return loweredOp(t, graph.Op{Kind: "attend", Attrs: c.attrs()}, c.in(rows, before)).Graph
	}
	for kernel, graphs := range map[string][]*graph.Graph{
		"om_product_f32_16": {one(func(w *written) graph.Operand {
			return w.op("linear", nil, w.constant(false, 15, 40), w.constant(false, 70, 40), w.constant(false, 70))
		})},
		"om_tensor_narrow_64": {one(func(w *written) graph.Operand {
			return w.op("linear", graph.Attrs{"precision": "bf16"}, w.constant(false, 20, 100), w.constant(false, 70, 100))
		})},
		"om_tensor_narrow_256": {one(func(w *written) graph.Operand {
			return w.op("linear", graph.Attrs{"precision": "bf16"}, w.constant(false, 20, 140), w.constant(false, 70, 140))
		}), one(func(w *written) graph.Operand {
			return w.op("matmul", graph.Attrs{"precision": "bf16", "alpha": 1.0}, w.constant(false, 20, 140), w.constant(false, 140, 72))
		})},
		"om_tensor_tf32_64": {one(func(w *written) graph.Operand {
			return w.op("linear", graph.Attrs{"precision": "tf32"}, w.constant(false, 20, 100), w.constant(false, 70, 100))
		})},
		"om_tensor_f16_64": {one(func(w *written) graph.Operand {
			half := func(shape ...int) graph.Operand { return w.Whole(w.AddConst(numbers(tensor.Float16, shape...))) }
			return w.op("matmul", graph.Attrs{"alpha": 1.0}, half(20, 200), half(200, 72))
		})},
		"om_weights_f16_32": {one(func(w *written) graph.Operand {
			half := func(shape ...int) graph.Operand { return w.Whole(w.AddConst(numbers(tensor.Float16, shape...))) }
			bytes := &tensor.Tensor{DType: tensor.Int8, Layout: tensor.Contiguous(20, 200), Data: make([]byte, 20*200)}
			return w.op("linear", nil, half(33, 200), w.Whole(w.AddConst(bytes)), graph.Absent, graph.Absent, half(20))
		})},
		"om_weights_f32_16": {one(func(w *written) graph.Operand {
			bytes := &tensor.Tensor{DType: tensor.Int8, Layout: tensor.Contiguous(20, 40), Data: make([]byte, 20*40)}
			return w.op("linear", nil, w.constant(false, 33, 40), w.Whole(w.AddConst(bytes)), graph.Absent, graph.Absent, w.constant(false, 20))
		})},
		"om_conv_f32_16": {one(func(w *written) graph.Operand {
			a := graph.Attrs{"stride": []int{1, 1}, "padding": []int{1, 1}, "dilation": []int{1, 1}, "groups": 1}
			return w.op("conv", a, w.constant(false, 2, 5, 6, 5), w.constant(false, 20, 5, 3, 3), w.constant(false, 20))
		})},
		"om_conv_tensor_narrow_64":  {one(tensorConv)},
		"om_conv_tensor_narrow_256": {one(tensorConv)},
		"om_conv_last_4":            {one(tensorConv)},
		"om_gemv_8": {one(func(w *written) graph.Operand {
			return w.op("linear", nil, w.constant(false, 3, 1032), w.constant(false, 10, 1032))
		})},
		"om_gemv_across": {one(func(w *written) graph.Operand {
			weight := turned(w.Whole(w.AddConst(numbers(tensor.Float16, 70, 40))))
			return w.op("linear", nil, w.constant(false, 2, 70), weight)
		})},
		// Where queries have no width, one barrier is all that parts a round from the next.
		"om_attention_f32":     {attention(40, 70, 257, 33), attention(4, 70, 0, 8)},
		"om_flash_64":          {attention(20, 70, 40, 33)},
		"om_flash_256":         {attention(20, 40, 140, 136)},
		"om_attention_split_8": {attention(3, 8300, 8, 8)},
		"om_attend":            {caches([]place{{0, 530}}, 16), caches([]place{{0, 530}}, 100)},
		"om_codes_4":           {codedLinear{e: blocksOf("MXFP4"), rows: 3, lines: 5, terms: 544}.graph(t, 0, 3)},
		"om_codes_many":        {codedLinear{e: blocksOf("MXFP4"), rows: 40, lines: 9, terms: 544}.graph(t, 0, 40)},
		"om_attend_write":      {caches([]place{{0, 20}, {0, 20}}, 16)},
		"om_flash_bf16_64":     {attends(graph.Attrs{"precision": "bf16"}, 20, 130, 32, 64)},
	} {
		t.Run(kernel, func(t *testing.T) {
			if strings.HasSuffix(kernel, "narrow_256") {
				defer cuda.OnlyTensorBlocks(0)()
				defer cuda.OnlyConvBlocks(0)()
				defer cuda.RoundedSpeed(math.Inf(1))()
			}
			for _, g := range graphs {
				if _, err := changed(t, g, kernel, func(body string) string { return body }); err != nil {
					t.Fatal(err)
				}
			}
			more := true
			for n := 0; more; n++ {
				missed := false
				for _, g := range graphs {
					_, err := changed(t, g, kernel, func(body string) string {
						body, more = nth(body, `bar\.sync\s+0;`, n, "")
						return body
					})
					if err != nil && !strings.Contains(err.Error(), "race: byte") &&
						!strings.Contains(err.Error(), "was not written by anyone") &&
						!strings.Contains(err.Error(), "is still being copied to") {
						t.Error(err)
					}
					missed = missed || err != nil
				}
				if more && !missed {
					t.Errorf("nobody misses barrier %d", n)
				}
				if !more && n == 0 {
					t.Error("there are no barriers")
				}
			}
		})
	}
}

// TestChangedPTX: PTX with a mistake gives another result or is stopped, with the kernel and the line.
func TestChangedPTX(t *testing.T) {
	w := &written{&graph.Graph{Modules: make(map[string]graph.Operand)}, t}
	y := w.op("linear", nil, w.constant(false, 5, 7), w.constant(false, 9, 7), w.constant(false, 9))
	w.Outputs = []graph.Output{{Name: "y", Operand: y}}
	const kernel = "om_product_f32_16"
	want, err := changed(t, w.Graph, kernel, func(body string) string { return body })
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ pattern, to, want string }{
		"a sum that is a difference":                {`\tadd\.f32 `, "\tsub.f32 ", "result"},
		"a product of another sign":                 {`fma\.rn\.f32 (\s*)(%f\d+),\s*(%f\d+),\s*(%f\d+),\s*%f\d+`, "mul.f32 $1$2, $3, $4", "result"},
		"a write behind the result":                 {`st\.global\.f32 (\s*)\[(%rd\d+)\]`, "st.global.f32 $1[$2+4096]", "out of bounds"},
		"a write beside an element":                 {`st\.global\.f32 (\s*)\[(%rd\d+)\]`, "st.global.f32 $1[$2+2]", "misaligned"},
		"a write to an operand":                     {`ld\.global\.f32 (\s*)(%f\d+),\s*(\[%rd\d+\])`, "st.global.f32 $1$3, $2", "write to an operand"},
		"a read of shared memory that nobody wrote": {`cp\.async\.c[ag]\..*;`, "", "uninitialised shared memory"},
		"a read before shared memory":               {`ld\.shared\.v4\.f32 (\s*)(\{.*\}),\s*\[(%rd\d+)\]`, "ld.shared.v4.f32 $1$2, [$3-65536]", "out of bounds"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := changed(t, w.Graph, kernel, func(body string) string {
				return regexp.MustCompile(c.pattern).ReplaceAllString(body, c.to)
			})
			if c.want == "result" {
				if err != nil {
					t.Fatal(err)
				}
				if devicetest.Compare(got, want, 1e-3) == nil {
					t.Error("the result is the same")
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, not %q", err, c.want)
			} else if place := fmt.Sprint(kernel, ": line "); !strings.Contains(err.Error(), place) {
				t.Errorf("%v does not say where", err)
			}
		})
	}
}

// TestUnawaitedCopy: what is still being copied to shared memory is not read.
func TestUnawaitedCopy(t *testing.T) {
	for kernel, write := range map[string]func(w *written) graph.Operand{
		"om_tensor_narrow_64": func(w *written) graph.Operand {
			return w.op("linear", graph.Attrs{"precision": "bf16"}, w.constant(false, 20, 100), w.constant(false, 70, 100))
		},
		"om_conv_tensor_narrow_64": tensorConv,
	} {
		w := &written{&graph.Graph{Modules: make(map[string]graph.Operand)}, t}
		w.Outputs = []graph.Output{{Name: "y", Operand: write(w)}}
		_, err := changed(t, w.Graph, kernel, func(body string) string {
			return strings.ReplaceAll(body, "cp.async.wait_group 1;", "cp.async.wait_group 2;")
		})
		if err == nil || !strings.Contains(err.Error(), "still being copied to") {
			t.Error(kernel, err)
		}
	}
}
