package forerunners

import (
	"context"
	"fmt"
	"log"

	"github.com/optimem/optimem/layers"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// The network of Koila's README, and a batch that is too large for the memory at hand:
//
//	(input, label) = lazy(input, label, batch=0)
//	output = model(input)
//
// Koila counts 2,678,824 bytes of parameters and 14,504 bytes for each row. In memory in which it has room for 64 rows, more
// fit into a pass, since what is no longer needed is written over.
func Example_koila() {
	model, done := network(of("koila", layers.Sequential(
		layers.Flatten(),
		layers.Linear(28*28, 512), layers.ReLU(),
		layers.Linear(512, 512), layers.ReLU(),
		layers.Linear(512, 10), layers.ReLU(),
	), 28, 28))
	defer done()
	const memory = 2_678_824 + 64*14_504
	ctx := context.Background()
	session, err := optimem.Fit(ctx, model, memory)
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	largest, err := session.BestBatch(ctx, map[string]tensor.Shape{"input": {1, 28, 28}}, optimem.BatchGoal{Largest: true})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("more than 64 rows fit:", largest.Rows > 64)

	out, err := session.RunBatch(ctx, optimem.Values{"input": ramp(1000, 28, 28)})
	if err != nil {
		log.Fatal(err)
	}
	for _, scores := range out {
		fmt.Println("scores of all rows:", scores.Layout.Shape)
	}
	fmt.Println("within the memory:", session.Metrics().PeakBytes <= memory)
	// Output:
	// more than 64 rows fit: true
	// scores of all rows: [1000 10]
	// within the memory: true
}
