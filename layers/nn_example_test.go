package layers_test

import (
	"fmt"

	"github.com/optimem/optimem/layers"
)

// A tree of modules has the state dict of the Python modules that it mirrors.
func ExampleModule_StateDict() {
	block := layers.Sequential(
		layers.Conv2d(3, 8, 3, layers.Padding(1), layers.NoBias),
		layers.BatchNorm2d(8),
		layers.ReLU(layers.InPlace),
		layers.AdaptiveAvgPool2d(1),
		layers.Flatten(),
		layers.Linear(8, 10),
	)
	for _, e := range block.StateDict() {
		fmt.Println(e.Name, e.DType, e.Shape)
	}
	// Output:
	// 0.weight float32 [8 3 3 3]
	// 1.weight float32 [8]
	// 1.bias float32 [8]
	// 1.running_mean float32 [8]
	// 1.running_var float32 [8]
	// 1.num_batches_tracked int64 []
	// 5.weight float32 [10 8]
	// 5.bias float32 [10]
}

// Refusal says why a class of PyTorch's is not run.
func ExampleRefusal() {
	fmt.Println(layers.Refusal("torch.nn.modules.pooling.FractionalMaxPool2d"))
	fmt.Println(layers.Refusal("torch.ao.nn.quantized.modules.linear.Linear"))
	// Output:
	// its windows are random
	// quantized modules are not run: save the model as it was before
}
