//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/optimem/optimem/cuda"
	"github.com/optimem/optimem/device/devicetest"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/tensor"
)

// A movedCase is an op that looks for where its elements are, one by one or several at a time.
type movedCase struct {
	kind  graph.Kind
	attrs graph.Attrs
	in    []*tensor.Tensor
	bound float64
}

// movedCases have sizes of which threads take more than one result where they may.
func movedCases() map[string]movedCase {
	const f32, f16, f64 = tensor.Float32, tensor.Float16, tensor.Float64
	window := func(kernel, stride, padding, dilation int) graph.Attrs {
		return graph.Attrs{
			"kernel": []int{kernel, kernel}, "stride": []int{stride, stride}, "padding": []int{padding, padding},
			"dilation": []int{dilation, dilation}, "ceil_mode": false,
		}
	}
	average := func(kernel, stride, padding int, with bool) graph.Attrs {
		a := window(kernel, stride, padding, 1)
		delete(a, "dilation")
		a["count_include_pad"] = with
		return a
	}
	resize := func(mode string, size ...int) graph.Attrs { return graph.Attrs{"size": size, "mode": mode} }
	sample := func(mode, padding string) graph.Attrs {
		return graph.Attrs{"mode": mode, "padding_mode": padding, "align_corners": false}
	}
	holes := numbers(f32, 2, 3, 11, 9)
	for _, i := range []int{0, 40, 41, 200} {
		copy(holes.Data[4*i:], []byte{0, 0, 0xc0, 0x7f}) // NaN
	}
	equal := &tensor.Tensor{DType: f32, Layout: tensor.Contiguous(1, 2, 9, 8), Data: make([]byte, 4*2*9*8)}
	of := func(d tensor.DType, shape ...int) []*tensor.Tensor { return []*tensor.Tensor{numbers(d, shape...)} }
	index := func(list ...int64) *tensor.Tensor { return tensor.Of(list, len(list)) }
	indices := func(a graph.Attrs) graph.Attrs { a["indices"] = true; return a }
	return map[string]movedCase{
		"the largest":                     {"max_pool", indices(window(3, 2, 1, 1)), []*tensor.Tensor{holes}, 0},
		"the largest, line by line":       {"max_pool", indices(window(5, 1, 2, 1)), []*tensor.Tensor{holes}, 0},
		"the first of equals":             {"max_pool", indices(window(3, 1, 1, 1)), []*tensor.Tensor{equal}, 0},
		"the largest, far apart":          {"max_pool", indices(window(3, 1, 2, 2)), []*tensor.Tensor{holes}, 0},
		"the largest of halves":           {"max_pool", window(3, 2, 0, 1), of(f16, 1, 3, 14, 9), 0},
		"windows that share nothing":      {"max_pool", window(2, 2, 0, 1), of(f64, 2, 2, 9, 8), 0},
		"means":                           {"avg_pool", average(3, 1, 1, true), of(f32, 2, 3, 10, 7), 1e-6},
		"means without what is around":    {"avg_pool", average(3, 2, 1, false), of(f16, 2, 3, 11, 8), 1e-3},
		"means of doubles":                {"avg_pool", average(4, 1, 2, true), of(f64, 1, 2, 6, 7), 1e-14},
		"means of everything":             {"avg_pool", average(7, 7, 0, true), of(f32, 3, 5, 7, 7), 1e-6},
		"adaptive means of everything":    {"adaptive_avg_pool", graph.Attrs{"size": []int{1, 1}}, of(f32, 3, 5, 6, 9), 1e-6},
		"adaptive means of long channels": {"adaptive_avg_pool", graph.Attrs{"size": []int{1}}, of(f32, 1, 2, 9000), 1e-6},
		"adaptive means":                  {"adaptive_avg_pool", graph.Attrs{"size": []int{3, 4}}, of(f32, 2, 3, 7, 6), 1e-6},
		"nearest":                         {"interpolate", resize("nearest", 9, 7), of(f16, 2, 11, 4, 5), 0},
		"linear along two":                {"interpolate", resize("linear", 9, 7), of(f32, 2, 11, 4, 5), 1e-6},
		"linear along one":                {"interpolate", resize("linear", 9), of(f32, 2, 11, 4), 1e-6},
		"linear along three":              {"interpolate", resize("linear", 3, 5, 7), of(f32, 1, 9, 2, 4, 5), 1e-6},
		"cubic":                           {"interpolate", resize("cubic", 9, 7), of(f64, 1, 3, 4, 5), 1e-13},
		"points":                          {"grid_sample", sample("linear", "zeros"), append(of(f32, 2, 11, 5, 6), numbers(f32, 2, 3, 4, 2)), 1e-5},
		"points, cubic":                   {"grid_sample", sample("cubic", "border"), append(of(f32, 2, 3, 5, 6), numbers(f32, 2, 3, 4, 2)), 1e-5},
		"points, nearest":                 {"grid_sample", sample("nearest", "reflection"), append(of(f32, 1, 9, 5, 6), numbers(f32, 1, 3, 4, 2)), 0},
		"rows":                            {"embedding", nil, append(of(f32, 7, 12), index(3, 6, 0, 3)), 0},
		"odd rows":                        {"embedding", nil, append(of(f32, 7, 5), index(3, 6, 0, 3)), 0},
		"rows of halves":                  {"embedding", nil, append(of(f16, 7, 6), index(3, 6, 0, 3)), 0},
		"columns":                         {"index", graph.Attrs{"dim": 1, "wrap": true}, append(of(f32, 5, 6), index(-1, 2)), 0},
		"lines of planes":                 {"index", graph.Attrs{"dim": 1, "wrap": true}, append(of(f32, 3, 5, 2, 2), index(-1, 2)), 0},
		"side by side":                    {"cat", graph.Attrs{"dim": 1}, append(of(f32, 3, 4, 2), numbers(f32, 3, 6, 2)), 0},
		"side by side, odd":               {"cat", graph.Attrs{"dim": 1}, append(of(f16, 3, 4, 3), numbers(f16, 3, 5, 3)), 0},
		"around":                          {"pad", graph.Attrs{"before": []int{1, 2}, "after": []int{0, 1}, "mode": "reflect"}, append(of(f32, 5, 6), nil), 0},
	}
}

// TestMoved compares with the CPU, and where a thread has several results with where it has one.
func TestMoved(t *testing.T) {
	dev, _ := open(t, "order=lazy:4 memory=64M")
	compareMoved(t, dev)
}

func compareMoved(t *testing.T, dev *cuda.Device) {
	pool := cpu.NewPool(1)
	defer pool.Close()
	enough := dev.EnoughThreads(1)
	defer dev.EnoughThreads(enough)
	for name, c := range movedCases() {
		t.Run(name, func(t *testing.T) {
			l := loweredOp(t, graph.Op{Kind: c.kind, Attrs: c.attrs}, c.in)
			want, err := cpu.Interpret(t.Context(), pool, graph.Standard(), l.Graph, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			var alone map[string]*tensor.Tensor
			for _, n := range []int64{enough, 1, 40} {
				dev.EnoughThreads(n)
				got, err := interpret(t.Context(), dev, l, nil)
				if err != nil {
					t.Fatal(err)
				}
				for name := range want {
					if err := devicetest.Compare(got[name], want[name], c.bound); err != nil {
						t.Errorf("%s with %d threads: %v", name, n, err)
					}
					if alone != nil && !bytes.Equal(got[name].Data, alone[name].Data) {
						t.Errorf("%s differs in bits with %d threads", name, n)
					}
				}
				alone = got
			}
		})
	}
}

// TestMovedFar: views of as many elements as need more than 31 bits give what small ones do. What is far is said to the kernel by
// the launch, so small views that are said to be far run the other way.
func TestMovedFar(t *testing.T) {
	dev, _ := open(t, "order=lazy:4 memory=64M")
	defer dev.FarFrom(dev.FarFrom(1))
	for name, c := range movedCases() {
		t.Run(name, func(t *testing.T) {
			l := loweredOp(t, graph.Op{Kind: c.kind, Attrs: c.attrs}, c.in)
			var all []map[string]*tensor.Tensor
			for _, n := range []int64{1, 1 << 31} {
				dev.FarFrom(n)
				got, err := interpret(t.Context(), dev, l, nil)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, got)
			}
			for name, far := range all[0] {
				if !bytes.Equal(far.Data, all[1][name].Data) {
					t.Error(fmt.Errorf("%s differs", name))
				}
			}
		})
	}
}
