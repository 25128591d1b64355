package ptx_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/optimem/optimem/cuda/sim/ptx"
	"github.com/optimem/optimem/tensor"
)

// quadPairs are the lanes of each of the four products of m8n8k4, by the ISA's table, of which the first four are its lower half.
var quadPairs = [4][8]int{
	{0, 1, 2, 3, 16, 17, 18, 19}, {4, 5, 6, 7, 20, 21, 22, 23}, {8, 9, 10, 11, 24, 25, 26, 27}, {12, 13, 14, 15, 28, 29, 30, 31},
}

// TestQuads multiplies four pairs of 8×4 and 4×8 halves in a warp, in each layout, as the ISA says that lanes have them. A lane has 16
// words of memory: four of factors, four that nobody uses, eight sums.
func TestQuads(t *testing.T) {
	half := func(p, i, j int) float32 { return float32((p*31+i*7+j*5)%17-8) / 4 }
	other := func(p, i, j int) float32 { return float32((p*13+i*11+j*3)%19-9) / 8 }
	for _, layouts := range []string{"row.row", "row.col", "col.row", "col.col"} {
		data := make([]byte, 32*64)
		put := func(lane, i int, x float32) {
			binary.LittleEndian.PutUint16(data[64*lane+2*i:], tensor.Float16FromFloat32(x))
		}
		for p, lanes := range quadPairs {
			for own, lane := range lanes {
				low, high := own%4, own/4*4
				for i := range 4 {
					if strings.HasPrefix(layouts, "row") {
						put(lane, i, half(p, low+high, i)) // a row of the left factor
					} else {
						put(lane, i, half(p, i+high, low)) // a column of it
					}
					if strings.HasSuffix(layouts, "col") {
						put(lane, 4+i, other(p, i, low+high))
					} else {
						put(lane, 4+i, other(p, low, i+high))
					}
				}
				for i := range 8 {
					binary.LittleEndian.PutUint32(data[64*lane+32+4*i:], math.Float32bits(float32(lane*8+i)))
				}
			}
		}
		body := `mul.wide.u32 %x4, %r0, 64; add.u64 %x4, %x0, %x4;
	ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%x4];
	ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%x4+32]; ld.global.v4.f32 {%f5, %f6, %f7, %f8}, [%x4+48];
	mma.sync.aligned.m8n8k4.` + layouts + `.f32.f16.f16.f32 {%f1, %f2, %f3, %f4, %f5, %f6, %f7, %f8}, {%r2, %r3}, {%r4, %r5},
		{%f1, %f2, %f3, %f4, %f5, %f6, %f7, %f8};
	st.global.v4.f32 [%x4+32], {%f1, %f2, %f3, %f4}; st.global.v4.f32 [%x4+48], {%f5, %f6, %f7, %f8};`
		if err := launch(t, entry(body), ptx.Launch{Block: [3]int{32, 1, 1}}, data); err != nil {
			t.Fatal(err)
		}
		for p, lanes := range quadPairs {
			for own, lane := range lanes {
				for i := range 8 {
					row, column := own&1+i&2+own/4*4, i&4+own&2+i&1
					want := float32(lane*8 + i)
					for k := range 4 {
						want += half(p, row, k) * other(p, k, column)
					}
					if got := math.Float32frombits(binary.LittleEndian.Uint32(data[64*lane+32+4*i:])); got != want {
						t.Fatalf("%s: lane %d, sum %d: %v, want %v", layouts, lane, i, got, want)
					}
				}
			}
		}
		if err := launch(t, entry(body), ptx.Launch{Block: [3]int{16, 1, 1}}, data); err == nil || !strings.Contains(err.Error(), "divergence") {
			t.Errorf("half a warp: %v", err)
		}
	}
}

// TestQuadsRefused: other forms than those that kernels use are no instructions.
func TestQuadsRefused(t *testing.T) {
	const sums = "{%f1, %f2, %f3, %f4, %f5, %f6, %f7, %f8}"
	for form, operands := range map[string]string{
		"sync.aligned.m8n8k4.row.col.f16.f16.f16.f16":   sums + ", {%r2, %r3}, {%r4, %r5}, " + sums,
		"sync.aligned.m8n8k4.row.col.f32.bf16.bf16.f32": sums + ", {%r2, %r3}, {%r4, %r5}, " + sums,
		"sync.aligned.m8n8k4.row.f32.f16.f16.f32":       sums + ", {%r2, %r3}, {%r4, %r5}, " + sums,
		"sync.m8n8k4.row.col.f32.f16.f16.f32":           sums + ", {%r2, %r3}, {%r4, %r5}, " + sums,
		"sync.aligned.m8n8k4.row.col.f32.f16.f16.f32":   "{%f1, %f2, %f3, %f4}, {%r2, %r3}, {%r4, %r5}, {%f1, %f2, %f3, %f4}",
	} {
		m, err := ptx.Parse([]byte(entry(fmt.Sprintf("mma.%s %s;", form, operands))))
		if err != nil {
			continue
		}
		if _, err := m.Kernel("k"); err == nil {
			t.Errorf("%s %s is taken", form, operands)
		}
	}
}
