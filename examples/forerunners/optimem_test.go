package forerunners

import (
	"context"
	"fmt"
	"log"
	"slices"

	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	optimem "github.com/optimem/optimem/runtime"
)

// The two modes of pytorch-optimem on the network of its README:
//
//	model = torchvision.models.resnet101()
//	model = optimem.page(model, device)                    # or
//	model = optimem.chunk(model, device, max_capacity=1e7)
//
// It wraps a model that is in memory. Here the weights stay in the file, 178 MB, and a pass takes less than a third of them.
func Example_pytorchOptimem() {
	arch, err := models.NewArchitecture("resnet101")
	if err != nil {
		log.Fatal(err)
	}
	model, done := network(arch)
	defer done()
	ctx := context.Background()
	picture := optimem.Values{model.Inputs()[0].Name: ramp(1, 3, 64, 64)}

	page, err := optimem.Page(ctx, model, optimem.PageOptions{Memory: 50e6})
	if err != nil {
		log.Fatal(err)
	}
	defer page.Close()
	paged, err := page.Run(ctx, picture)
	if err != nil {
		log.Fatal(err)
	}
	m := page.Metrics()
	fmt.Println("page: within 50 MB:", m.PeakBytes <= 50e6, "- moved the model once:", m.MovedBytes > 170e6 && m.MovedBytes < 190e6)

	chunk, err := optimem.Chunk(ctx, model, optimem.ChunkOptions{Capacity: plan.Limit{N: 1e7, Unit: plan.Params}})
	if err != nil {
		log.Fatal(err)
	}
	defer chunk.Close()
	chunked, err := chunk.Run(ctx, picture)
	if err != nil {
		log.Fatal(err)
	}
	m = chunk.Metrics()
	fmt.Println("chunk: ten million parameters stay:", m.WeightBytes > 30e6 && m.WeightBytes <= 50e6)
	for name := range paged {
		fmt.Println("same bits:", slices.Equal(paged[name].Data, chunked[name].Data))
	}
	// Output:
	// page: within 50 MB: true - moved the model once: true
	// chunk: ten million parameters stay: true
	// same bits: true
}
