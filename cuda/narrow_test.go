//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/optimem/optimem/cuda"
	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/device/devicetest"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// TestNarrow runs products whose factors are rounded, to bfloat16 or for TF32.
func TestNarrow(t *testing.T) {
	dev, _ := open(t, "order=lazy:4 memory=64M")
	compareNarrow(t, dev, "bf16", "tf32")
}

// TestNarrowPTX runs them from the PTX for GPUs without tensor cores for bfloat16; TestCommittedPTX does from the other.
func TestNarrowPTX(t *testing.T) {
	if testing.Short() {
		t.Skip("interprets every product, on one thread")
	}
	dev, lib := open(t, "order=lazy:4 memory=64M cc=70")
	in := lib.Interpret(t)
	compareNarrow(t, dev, "bf16")
	if ran, _ := in.Ran("om_tensor_narrow_64"); ran == 0 {
		t.Error("om_tensor_narrow_64 did not run")
	}
}

// TestNoTF32: a GPU without such products refuses them, and a precision that there is not is refused by all.
func TestNoTF32(t *testing.T) {
	for _, c := range []struct {
		capability, precision string
		fails                 bool
	}{{"75", "tf32", true}, {"75", "bf16", false}, {"80", "tf32", false}, {"80", "fp8", true}} {
		t.Run(c.capability+c.precision, func(t *testing.T) {
			dev, _ := openSimulated(t, "memory=64M cc="+c.capability)
			w := &written{&graph.Graph{}, t}
			w.op("linear", graph.Attrs{"precision": c.precision}, w.constant(false, 9, 8), w.constant(false, 5, 8))
			if _, err := dev.Lower(w.Graph); errors.Is(err, graph.ErrUnsupported) != c.fails {
				t.Error(err)
			}
		})
	}
}

// roundings are what factors are rounded to: bits of a float32, to nearest, what lies between to even or away from zero.
var roundings = map[string]func(bits uint32) uint32{
	"bf16": func(bits uint32) uint32 { return (bits + 0x7fff + bits>>16&1) &^ 0xffff },
	"tf32": func(bits uint32) uint32 { return (bits + 0x1000) &^ 0x1fff },
}

// compareNarrow compares products whose factors are rounded with those of factors that were: in one block and in several,
// aligned or not, with all that a product ends with.
func compareNarrow(t *testing.T, dev device.Device, precisions ...string) {
	for _, precision := range precisions {
		t.Run(precision, func(t *testing.T) { compareRounded(t, dev, precision) })
	}
}

func compareRounded(t *testing.T, dev device.Device, precision string) {
	const narrow, wide, exact = "narrow", "rounded before", "exact"
	for name, write := range map[string]func(w *written, factor func(shape ...int) graph.Operand, a graph.Attrs) graph.Operand{
		"linear": func(w *written, factor func(shape ...int) graph.Operand, a graph.Attrs) graph.Operand {
			a["act"] = "silu"
			return w.op("linear", a, factor(70, 100), factor(130, 100), w.constant(false, 130), w.constant(false, 70, 130))
		},
		"linear, not aligned": func(w *written, factor func(shape ...int) graph.Operand, a graph.Attrs) graph.Operand {
			return w.op("linear", a, factor(3, 45), factor(5, 45), w.constant(false, 5))
		},
		"linear of one row": func(w *written, factor func(shape ...int) graph.Operand, a graph.Attrs) graph.Operand {
			return w.op("linear", a, factor(1, 32), factor(66, 32))
		},
		"linear of nothing": func(w *written, factor func(shape ...int) graph.Operand, a graph.Attrs) graph.Operand {
			return w.op("linear", a, factor(2, 0), factor(5, 0), w.constant(false, 5))
		},
		"parts": func(w *written, factor func(shape ...int) graph.Operand, a graph.Attrs) graph.Operand {
			return w.op("linear", a, factor(3, 1100), factor(33, 1100), w.constant(false, 33))
		},
		"matmul, not aligned": func(w *written, factor func(shape ...int) graph.Operand, a graph.Attrs) graph.Operand {
			a["alpha"] = 1.0
			return w.op("matmul", a, turned(factor(2, 9, 3)), factor(2, 9, 7))
		},
		"matmul": func(w *written, factor func(shape ...int) graph.Operand, a graph.Attrs) graph.Operand {
			a["alpha"], a["beta"] = 0.5, 2.0
			return w.op("matmul", a, factor(2, 3, 20, 36), factor(2, 3, 36, 70), w.constant(false, 2, 3, 20, 70))
		},
	} {
		t.Run(name, func(t *testing.T) {
			results := make(map[string]*tensor.Tensor)
			for _, how := range []string{narrow, wide, exact} {
				w := &written{&graph.Graph{Modules: make(map[string]graph.Operand)}, t}
				a := make(graph.Attrs)
				if how == narrow {
					a["precision"] = precision
				}
				factor := func(shape ...int) graph.Operand {
					o := w.constant(false, shape...)
					data := w.Values[o.Value].Const
					for at := 0; how == wide && at < len(data); at += 4 {
						bits := binary.LittleEndian.Uint32(data[at:])
						binary.LittleEndian.PutUint32(data[at:], roundings[precision](bits))
					}
					return o
				}
				w.Outputs = []graph.Output{{Name: "y", Operand: write(w, factor, a)}}
				l, err := cuda.Lower(w.Graph)
				if err != nil {
					t.Fatal(err)
				}
				if kernel := l.Steps[0].Kernel; (how == narrow) != (kernel == string(w.Ops[0].Kind)+"_"+precision) {
					t.Errorf("%s: %s", how, kernel)
				}
				results[how] = w.result(dev, w.Graph)
			}
			if err := devicetest.Compare(results[narrow], results[wide], 1e-5); err != nil {
				t.Error(err)
			}
			if name != "linear of nothing" && devicetest.Compare(results[narrow], results[exact], 1e-5) == nil {
				t.Error("the factors were not rounded")
			}
		})
	}
}
