package forerunners

import (
	"context"
	"log"
	"os"
	"path/filepath"
	"slices"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/tensor"
)

// network writes the state dict of an architecture, with random weights, where torch.save would have written it, and opens it
// with the architecture as its code. The caller ends with done.
func network(a *layers.Architecture) (model *models.Model, done func()) {
	weights, err := models.Synthesize(a, 1, tensor.Float32)
	if err != nil {
		log.Fatal(err)
	}
	weights = slices.DeleteFunc(weights, func(w loader.TensorData) bool { return a.Weights[w.Name] != "" }) // tied: kept once
	folder, err := os.MkdirTemp("", "forerunners")
	if err != nil {
		log.Fatal(err)
	}
	path := filepath.Join(folder, a.Name+".pt")
	file, err := os.Create(path)
	if err != nil {
		log.Fatal(err)
	}
	if err := loader.WriteTorchZip(context.Background(), file, a.Name, weights); err != nil {
		log.Fatal(err)
	}
	if err := file.Close(); err != nil {
		log.Fatal(err)
	}
	ckpt, err := loader.Open(path)
	if err != nil {
		log.Fatal(err)
	}
	model, err = models.Build(ckpt, models.Options{Architecture: a})
	if err != nil {
		log.Fatal(err)
	}
	return model, func() {
		if err := ckpt.Close(); err != nil {
			log.Print(err)
		}
		if err := os.RemoveAll(folder); err != nil {
			log.Print(err)
		}
	}
}

// of is an architecture of torch.nn's modules with one input, rows of a batch of the given shape.
func of(name string, root *layers.Module, shape ...int) *layers.Architecture {
	dims := make([]string, 1+len(shape))
	dims[0] = "batch"
	return &layers.Architecture{
		Name: name, Root: root, Classes: layers.NN(),
		Inputs: []layers.Port{{
			Name: "input", DType: tensor.Float32, Shape: append(tensor.Shape{-1}, shape...), Dims: dims,
		}},
	}
}

// ramp is a tensor of values from 0 to 1.
func ramp(shape ...int) *tensor.Tensor {
	n := 1
	for _, d := range shape {
		n *= d
	}
	values := make([]float32, n)
	for i := range values {
		values[i] = float32(i%101) / 100
	}
	return tensor.Of(values, shape...)
}
