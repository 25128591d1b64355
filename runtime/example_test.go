package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"slices"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// three is a picture of a handwritten three.
var three = []float32{
	0, 0, 8, 13, 12, 3, 0, 0,
	0, 6, 15, 7, 9, 12, 0, 0,
	0, 0, 0, 0, 7, 11, 0, 0,
	0, 0, 0, 4, 15, 3, 0, 0,
	0, 0, 0, 10, 16, 9, 0, 0,
	0, 0, 0, 0, 4, 15, 7, 0,
	0, 0, 11, 2, 1, 15, 7, 0,
	0, 0, 8, 16, 16, 12, 0, 0,
}

// threes returns so many pictures of the three, as the digits' network takes them: grey from 0 to 1.
func threes(n int) optimem.Values {
	var pixels []float32
	for range n {
		for _, grey := range three {
			pixels = append(pixels, grey/16)
		}
	}
	return optimem.Values{"input": tensor.Of(pixels, n, 1, 8, 8)}
}

// digits opens the digits' network.
func digits() (*models.Model, func()) {
	ckpt, err := loader.Open("../examples/digits/digits.pt2")
	if err != nil {
		log.Fatal(err)
	}
	model, err := models.Build(ckpt, models.Options{})
	if err != nil {
		log.Fatal(err)
	}
	return model, func() { _ = ckpt.Close() }
}

// best returns the class with the largest score in each row.
func best(scores *tensor.Tensor) []int {
	values, err := tensor.Slice[float32](scores)
	if err != nil {
		log.Fatal(err)
	}
	var classes []int
	for row := range slices.Chunk(values, scores.Layout.Shape[1]) {
		classes = append(classes, slices.Index(row, slices.Max(row)))
	}
	return classes
}

// A model of 220 KiB of weights runs in 216 KiB, activations and scratch memory included.
func Example() {
	ckpt, err := loader.Open("../examples/digits/digits.pt2")
	if err != nil {
		log.Fatal(err)
	}
	defer ckpt.Close()
	model, err := models.Build(ckpt, models.Options{})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	session, err := optimem.Page(ctx, model, optimem.PageOptions{Memory: 216 << 10})
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	out, err := session.Run(ctx, threes(1))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("digit", best(out["linear_1"])[0])
	fmt.Println("within the budget:", session.Metrics().PeakBytes <= 216<<10)
	// Output:
	// digit 3
	// within the budget: true
}

// What a run takes is known before any of it is taken, and without a run.
func ExampleSession_Plan() {
	model, done := digits()
	defer done()
	ctx := context.Background()
	session, err := optimem.Auto(ctx, model, optimem.AutoOptions{Memory: 216 << 10, PlanOnly: true})
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	p, err := session.Plan(ctx, map[string]tensor.Shape{"input": {1, 1, 8, 8}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("fits:", p.PeakBytes() <= 216<<10)
	fmt.Println("some weights are brought for each pass:", p.MovedBytes > 0)
	// Output:
	// fits: true
	// some weights are brought for each pass: true
}

// A budget that is too small says which one works.
func ExampleAuto_tooLittleMemory() {
	model, done := digits()
	defer done()
	ctx := context.Background()
	run := func(memory int64) error {
		session, err := optimem.Auto(ctx, model, optimem.AutoOptions{Memory: memory})
		if err != nil {
			return err
		}
		defer session.Close()
		_, err = session.Run(ctx, threes(1))
		return err
	}
	err := run(1000)
	var capacity *plan.CapacityError
	fmt.Println("with 1000 bytes it does not fit:", errors.As(err, &capacity))
	fmt.Println("with what the error says:", run(capacity.MinBytes))
	// Output:
	// with 1000 bytes it does not fit: true
	// with what the error says: <nil>
}

// Many rows go through one pass over the weights, a few at a time.
func ExampleSession_RunBatch() {
	model, done := digits()
	defer done()
	ctx := context.Background()
	session, err := optimem.Page(ctx, model, optimem.PageOptions{MicroBatch: 2})
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	out, err := session.RunBatch(ctx, threes(6))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(best(out["linear_1"]), "in", session.Metrics().Runs, "pass")
	// Output:
	// [3 3 3 3 3 3] in 1 pass
}

// Memory can be given back between passes, for a device that others use too; the next pass takes it again.
func ExampleSession_GiveBack() {
	model, done := digits()
	defer done()
	ctx := context.Background()
	session, err := optimem.Resident(ctx, model, optimem.ResidentOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	run := func() {
		if _, err := session.Run(ctx, threes(1)); err != nil {
			log.Fatal(err)
		}
		fmt.Println("holds weights:", session.Metrics().WeightBytes > 0)
	}
	run()
	if err := session.GiveBack(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("holds weights:", session.Metrics().WeightBytes > 0)
	run()
	// Output:
	// holds weights: true
	// holds weights: false
	// holds weights: true
}

// An observer is told of each group of layers as it is done.
func ExampleOptions_observe() {
	model, done := digits()
	defer done()
	ctx := context.Background()
	var loaded int64
	var last string
	session, err := optimem.Page(ctx, model, optimem.PageOptions{
		Observe: func(e optimem.Event) {
			if e.Kind == optimem.GroupDone {
				loaded += e.LoadedBytes
				last = e.Path
			}
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	if _, err := session.Run(ctx, threes(1)); err != nil {
		log.Fatal(err)
	}
	fmt.Println("all weights were brought:", loaded >= 220<<10)
	fmt.Println("the last group was", last)
	// Output:
	// all weights were brought: true
	// the last group was classify
}
