package pipeline

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/tensor"
)

// sampleBytes is how much is read of each end of a weight.
const sampleBytes = 64

// Identity hashes what a model is: its architecture and, of each weight, name, dtype, shape and some bytes of its
// beginning and its end. It reads no more of the files than that, and tells models apart that were trained further.
func Identity(ctx context.Context, m *models.Model) (string, error) {
	weights := slices.Clone(m.Weights())
	slices.SortFunc(weights, func(a, b tensor.Weight) int { return strings.Compare(a.Name, b.Name) })
	h := sha256.New()
	fmt.Fprintf(h, "optimem model 1\n%q\n", m.Arch())
	room := make([]byte, sampleBytes)
	for i := range weights {
		w := &weights[i]
		fmt.Fprintf(h, "%q %v %v %d\n", w.Name, w.DType, w.Layout, w.Extent.Bytes)
		n := min(w.Extent.Bytes, sampleBytes)
		for _, at := range []int64{0, w.Extent.Bytes - n} {
			if err := w.Extent.ReadAt(ctx, room[:n], at); err != nil {
				return "", fmt.Errorf("%s: %w", w.Name, err)
			}
			h.Write(room[:n])
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)), nil
}
