//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/optimem/optimem/cuda"
	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/device/devicetest"
	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/tensor"
)

// TestNarrow runs products whose factors may be rounded to bfloat16.
func TestNarrow(t *testing.T) {
	dev, _ := open(t, "order=lazy:4 memory=64M")
	compareNarrow(t, dev)
}

// TestNarrowPTX runs them from the PTX for GPUs with tensor cores for bfloat16 and from that for others.
func TestNarrowPTX(t *testing.T) {
	for _, capability := range []string{"70", "80"} {
		t.Run(capability, func(t *testing.T) {
			dev, lib := open(t, "order=lazy:4 memory=64M cc="+capability)
			in := lib.Interpret(t)
			compareNarrow(t, dev)
			if ran, _ := in.Ran("om_product_narrow"); ran == 0 {
				t.Error("the kernel did not run")
			}
		})
	}
}

// compareNarrow compares products whose factors may be rounded with those of factors that were: in one block and in several,
// aligned or not, with all that a product ends with.
func compareNarrow(t *testing.T, dev device.Device) {
	const narrow, wide, exact = "narrow", "rounded before", "exact"
	for name, write := range map[string]func(w *written, factor func(shape ...int) layers.Operand, a layers.Attrs) layers.Operand{
		"linear": func(w *written, factor func(shape ...int) layers.Operand, a layers.Attrs) layers.Operand {
			a["act"] = "silu"
			return w.op("linear", a, factor(70, 100), factor(130, 100), w.constant(false, 130), w.constant(false, 70, 130))
		},
		"linear, not aligned": func(w *written, factor func(shape ...int) layers.Operand, a layers.Attrs) layers.Operand {
			return w.op("linear", a, factor(3, 45), factor(5, 45), w.constant(false, 5))
		},
		"linear of one row": func(w *written, factor func(shape ...int) layers.Operand, a layers.Attrs) layers.Operand {
			return w.op("linear", a, factor(1, 32), factor(66, 32))
		},
		"linear of nothing": func(w *written, factor func(shape ...int) layers.Operand, a layers.Attrs) layers.Operand {
			return w.op("linear", a, factor(2, 0), factor(5, 0), w.constant(false, 5))
		},
		"matmul": func(w *written, factor func(shape ...int) layers.Operand, a layers.Attrs) layers.Operand {
			a["alpha"], a["beta"] = 0.5, 2.0
			return w.op("matmul", a, factor(2, 3, 20, 36), factor(2, 3, 36, 70), w.constant(false, 2, 3, 20, 70))
		},
	} {
		t.Run(name, func(t *testing.T) {
			results := make(map[string]*tensor.Tensor)
			for _, how := range []string{narrow, wide, exact} {
				w := &written{&layers.Graph{Modules: make(map[string]layers.Operand)}, t}
				a := make(layers.Attrs)
				if how == narrow {
					a["precision"] = "bf16"
				}
				factor := func(shape ...int) layers.Operand {
					o := w.constant(false, shape...)
					data := w.Values[o.Value].Const
					for at := 0; how == wide && at < len(data); at += 4 {
						x := math.Float32frombits(binary.LittleEndian.Uint32(data[at:]))
						bits := math.Float32bits(x)
						binary.LittleEndian.PutUint32(data[at:], (bits+0x7fff+bits>>16&1)&^0xffff)
					}
					return o
				}
				w.Outputs = []layers.Output{{Name: "y", Operand: write(w, factor, a)}}
				l, err := cuda.Lower(w.Graph)
				if err != nil {
					t.Fatal(err)
				}
				if kernel := l.Steps[0].Kernel; (how == narrow) != (kernel == string(w.Ops[0].Kind)+"_bf16") {
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
