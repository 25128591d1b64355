//go:build linux && (amd64 || arm64) && !nocuda

package machine_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/optimem/optimem/cuda/sim"
	"github.com/optimem/optimem/device/devicetest"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/machine"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/tensor"
)

// TestRowsAreAloneOnGPU: on the simulated GPU, too, a token's scores are the same bits in a pass by itself and among others,
// whether weights stay or are paged, with nothing racing; and near those of the CPU.
func TestRowsAreAloneOnGPU(t *testing.T) {
	const length = 40
	for i := range decoders {
		d := decoders[i].filled()
		t.Run(d.name, func(t *testing.T) {
			if testing.Short() && i != 0 && i != 3 {
				t.Skip("some are enough")
			}
			var want [3][][]byte
			t.Run("alone", func(t *testing.T) { want = d.openSimulated(t, plan.Resident, "order=lazy:1").alone(length) })
			bound := map[tensor.DType]float64{tensor.Float32: 1e-4, tensor.Float16: 2e-2, tensor.BFloat16: 1e-1}[d.activations]
			if d.cache != d.activations { // near numbers are rounded to different ones
				bound = 1e-2
			}
			if d.precision == "" {
				for q, rows := range d.open(t, "cpu", 1, plan.Resident, 0).alone(length) {
					for p := range rows {
						if err := devicetest.Compare(d.scores(want[q][p]), d.scores(rows[p]), bound); err != nil {
							t.Fatalf("token %d of sequence %d: %v", p, q, err)
						}
					}
				}
			}
			for mode, settings := range map[plan.Mode]string{plan.Resident: "order=lazy:2", plan.Page: "order=threads"} {
				t.Run(string(mode), func(t *testing.T) {
					s, r := d.openSimulated(t, mode, settings), rand.New(rand.NewPCG(uint64(i), 3))
					for done := [3]int{}; done != [3]int{length, length, length}; {
						var tokens []token
						for q := range done {
							n := min(length-done[q], 1+r.IntN(25))
							tokens = append(tokens, tokensOf(q, done[q], done[q]+n)...)
							done[q] += n
						}
						tokens = append(tokens, token{0, -1, r.IntN(71)})
						r.Shuffle(len(tokens), func(i, j int) { tokens[i], tokens[j] = tokens[j], tokens[i] })
						for k, got := range s.mustRun(tokens) {
							if x := tokens[k]; x.position >= 0 && !bytes.Equal(got, want[x.sequence][x.position]) {
								t.Fatalf("token %d of %d, at %d of sequence %d: other bits", k, len(tokens), x.position, x.sequence)
							}
						}
					}
				})
			}
		})
	}
}

// openSimulated is open for a simulated GPU, on which nothing is to race.
func (d *decoder) openSimulated(t *testing.T, mode plan.Mode, settings string) *session {
	t.Helper()
	lib := sim.New(t, "memory=64M "+settings)
	t.Cleanup(func() { lib.Check(t) }) // after the machine is closed
	return d.openWith(t, mode, machine.Options{
		Device: "cuda", Threads: 1, Ops: graph.Standard(), MemoryBytes: 32 << 20, CUDALibrary: lib.Path,
	})
}

// scores are those of a token.
func (d *decoder) scores(data []byte) *tensor.Tensor {
	return &tensor.Tensor{DType: d.activations, Layout: tensor.Contiguous(d.words), Data: data}
}
