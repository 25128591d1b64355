package listing

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// unread is a source that fails the test's promise that nothing is read.
type unread struct{ sizeBytes int64 }

func (*unread) ReadAt(context.Context, []byte, int64) error { return errors.New("a weight was read") }
func (u *unread) Size() int64                               { return u.sizeBytes }

// in places a weight in a storage of the given number of bytes at offset at of the file.
func in(file *unread, at, storageBytes int64, name string, dtype tensor.DType, l tensor.Layout) tensor.Weight {
	return tensor.Weight{
		Name: name, DType: dtype, Layout: l,
		Extent: storage.Extent{Source: file, Offset: at, Bytes: storageBytes},
	}
}

func layout(offset int, shape, strides []int) tensor.Layout {
	return tensor.Layout{Shape: shape, Strides: strides, Offset: offset}
}

func TestTally(t *testing.T) {
	file := &unread{1 << 20}
	f32 := tensor.Float32
	vector := tensor.Contiguous(10)
	tests := []struct {
		name    string
		weights []tensor.Weight
		total   count
		shares  []int32
	}{
		{name: "nothing"},
		{
			name: "two storages",
			weights: []tensor.Weight{
				in(file, 0, 40, "a", f32, vector),
				in(file, 64, 80, "b", tensor.Int64, vector),
			},
			total:  count{20, 120},
			shares: []int32{-1, -1},
		}, {
			name: "tied",
			weights: []tensor.Weight{
				in(file, 0, 40, "a", f32, vector),
				in(file, 64, 40, "b", f32, vector),
				in(file, 0, 40, "c", f32, tensor.Contiguous(2, 5)),
				in(file, 0, 40, "d", f32, vector),
			},
			total:  count{20, 80},
			shares: []int32{-1, -1, 0, 0},
		}, {
			name: "overlapping slices",
			weights: []tensor.Weight{
				in(file, 0, 4000, "a", f32, layout(5, []int{10}, []int{1})),
				in(file, 0, 4000, "b", f32, layout(0, []int{10}, []int{1})),
				in(file, 0, 4000, "c", f32, layout(100, []int{10}, []int{1})),
			},
			total:  count{25, 100},
			shares: []int32{-1, 0, 0},
		}, {
			name: "interleaved",
			weights: []tensor.Weight{
				in(file, 0, 40, "even", f32, layout(0, []int{5}, []int{2})),
				in(file, 0, 40, "odd", f32, layout(1, []int{5}, []int{2})),
			},
			total:  count{10, 40},
			shares: []int32{-1, 0},
		}, {
			name: "the same strided view twice",
			weights: []tensor.Weight{
				in(file, 0, 40, "even", f32, layout(0, []int{5}, []int{2})),
				in(file, 0, 40, "again", f32, layout(0, []int{5}, []int{2})),
			},
			total:  count{5, 20},
			shares: []int32{-1, 0},
		}, {
			name:    "expanded",
			weights: []tensor.Weight{in(file, 0, 12, "a", f32, layout(0, []int{1000, 3}, []int{0, 1}))},
			total:   count{3, 12},
			shares:  []int32{-1},
		}, {
			name: "empty storages share nothing",
			weights: []tensor.Weight{
				in(file, 64, 0, "a", f32, tensor.Contiguous(0)),
				in(file, 64, 0, "b", f32, tensor.Contiguous(3, 0)),
			},
			shares: []int32{-1, -1},
		}, {
			name: "an empty view of a storage",
			weights: []tensor.Weight{
				in(file, 0, 40, "none", f32, layout(7, []int{0}, []int{1})),
				in(file, 0, 40, "all", f32, vector),
			},
			total:  count{10, 40},
			shares: []int32{-1, 0},
		}, {
			name: "a storage inside another",
			weights: []tensor.Weight{
				in(file, 8, 8, "part", f32, tensor.Contiguous(2)),
				in(file, 0, 40, "all", f32, vector),
				in(file, 8, 8, "again", f32, tensor.Contiguous(2)),
				in(file, 32, 8, "other part", f32, tensor.Contiguous(2)),
				in(file, 40, 8, "next", f32, tensor.Contiguous(2)),
				in(&unread{100}, 0, 40, "elsewhere", f32, vector),
			},
			total:  count{22, 88},
			shares: []int32{-1, 0, 0, 1, -1, -1},
		}, {
			name: "one storage as two dtypes",
			weights: []tensor.Weight{
				in(file, 0, 40, "floats", f32, vector),
				in(file, 0, 40, "bytes", tensor.UInt8, tensor.Contiguous(40)),
			},
			total:  count{10, 40},
			shares: []int32{-1, 0},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, w := range tt.weights {
				if err := w.Check(); err != nil {
					t.Fatal(err)
				}
			}
			got := newTally(tt.weights)
			if got.total != tt.total {
				t.Errorf("total %+v, want %+v", got.total, tt.total)
			}
			if diff := cmp.Diff(append([]int32{}, tt.shares...), got.sharesWith); diff != "" {
				t.Error(diff)
			}
			var fresh count
			seen := make(map[int32]bool)
			for _, i := range got.order {
				seen[i] = true
				fresh = fresh.plus(got.fresh[i])
			}
			if len(seen) != len(tt.weights) || fresh != tt.total {
				t.Errorf("order %v visits %+v", got.order, fresh)
			}
		})
	}
}
