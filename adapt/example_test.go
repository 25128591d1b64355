package adapt_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"slices"

	"github.com/optimem/optimem/adapt"
	"github.com/optimem/optimem/tensor"
)

// A library of somebody else's, whose calls need memory by the row: it has room for 100 rows, and answers with a status.
type library struct{}

const outOfMemory = 2

func (library) run(rows int) (status int) {
	if rows > 100 {
		return outOfMemory
	}
	return 0
}

// call makes an error of a status.
func (l library) call(rows int) error {
	switch status := l.run(rows); status {
	case 0:
		return nil
	case outOfMemory:
		return adapt.OutOfMemory(fmt.Errorf("the library has no memory for %d rows", rows))
	default:
		return fmt.Errorf("the library failed with status %d", status)
	}
}

// What toma.batch does: the whole is begun anew with half the batch size until it works, and the size is remembered.
//
//	@toma.batch(initial_batchsize=512)
//	def run_inference(batchsize, model, dataset): ...
func ExampleBatch() {
	var site adapt.Site
	runInference := func(ctx context.Context, batchSize int) error {
		fmt.Println("with", batchSize)
		return library{}.call(batchSize)
	}
	for range 2 {
		if err := adapt.Batch(context.Background(), &site, 512, runInference); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// with 512
	// with 256
	// with 128
	// with 64
	// with 64
}

// What toma.range does: the step is lowered on the way, and what is done stays done.
//
//	@toma.range(initial_step=128)
//	def reduce_data(start, end, out, data): ...
//
//	reduce_data(0, 300, result, data)
func ExampleRange() {
	var site adapt.Site
	data, result := make([]int, 300), 0
	for i := range data {
		data[i] = i
	}
	err := adapt.Range(context.Background(), &site, 0, len(data), 128, func(_ context.Context, lo, hi int) error {
		if err := (library{}).call(hi - lo); err != nil {
			fmt.Println(err)
			return err
		}
		for _, v := range data[lo:hi] {
			result += v
		}
		fmt.Println(lo, "to", hi)
		return nil
	})
	fmt.Println(result, err)
	// Output:
	// the library has no memory for 128 rows
	// 0 to 64
	// 64 to 128
	// 128 to 192
	// 192 to 256
	// 256 to 300
	// 44850 <nil>
}

// What toma.chunked does: a tensor is cut along a dimension, and the function writes to the parts.
//
//	@toma.chunked(initial_step=128)
//	def compute_result(out, start, end): ...
//
//	compute_result(torch.empty((200, 2)))
func ExampleChunks() {
	var site adapt.Site
	result := tensor.Of(make([]float32, 400), 200, 2)
	err := adapt.Chunks(context.Background(), &site, result, 0, 128,
		func(_ context.Context, part *tensor.Tensor, lo, hi int) error {
			if err := (library{}).call(hi - lo); err != nil {
				return err
			}
			out, err := tensor.Slice[float32](part)
			for i := range out {
				out[i] = float32(lo)
			}
			fmt.Println(part.Layout.Shape)
			return err
		})
	all, _ := tensor.Slice[float32](result)
	fmt.Println(slices.Compact(all), err)
	// Output:
	// [64 2]
	// [64 2]
	// [64 2]
	// [8 2]
	// [0 64 128 192] <nil>
}

// A size that was lowered is tried again twice as large once it has worked 8 times.
func ExampleNewSite() {
	site := adapt.NewSite(adapt.Options{Remember: adapt.Always, Grow: true})
	room := 100
	call := func(_ context.Context, rows int) error {
		if rows > room {
			return adapt.OutOfMemory(errors.New("no memory"))
		}
		return nil
	}
	for _, room = range []int{100, 512} {
		for range 20 {
			if err := adapt.Batch(context.Background(), site, 512, call); err != nil {
				log.Fatal(err)
			}
		}
		fmt.Println(site.Size(512), "rows where there is memory for", room)
	}
	// Output:
	// 64 rows where there is memory for 100
	// 256 rows where there is memory for 512
}

// A process that may take 2 GiB for tensors and in its heap together: sessions that are given no budget plan with what the
// limit leaves, and what would exceed it is an error that adapts.
func ExampleLimitProcess() {
	before := adapt.LimitProcess(2 << 30)
	fmt.Println("limited, before", before)
	fmt.Println("lifted, before", adapt.LimitProcess(before))
	// Output:
	// limited, before 0
	// lifted, before 2147483648
}
