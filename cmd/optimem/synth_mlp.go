//go:build !files

package main

import (
	"errors"
	"math"
	"strconv"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/tensor"
)

// maxSynthLayers bounds a mistyped number: names and shapes of all layers are in memory while a file is written.
const maxSynthLayers = 100_000

// mlp lists the tensors of torch.nn.Sequential(Linear, ReLU, Linear, …, Linear). Weights are spread as
// torch.nn.init.kaiming_uniform_ does it for layers with a ReLU, biases as torch.nn.Linear does it by default.
func (s *synth) mlp(dtype tensor.DType) ([]loader.TensorData, error) {
	if s.layers < 1 || s.layers > maxSynthLayers {
		return nil, errors.New("--layers takes a number from 1 to 100000")
	}
	if s.width < 1 || s.inFeatures < 0 || s.outFeatures < 0 {
		return nil, errors.New("a layer has at least one feature")
	}
	var tensors []loader.TensorData
	var totalBytes int64
	for i := range s.layers {
		in, out := s.width, s.width
		if i == 0 && s.inFeatures > 0 {
			in = s.inFeatures
		}
		if i == s.layers-1 && s.outFeatures > 0 {
			out = s.outFeatures
		}
		name := strconv.Itoa(2 * i)
		for _, t := range []struct {
			name  string
			shape tensor.Shape
			scale float64
		}{
			{name + ".weight", tensor.Shape{out, in}, math.Sqrt(6 / float64(in))},
			{name + ".bias", tensor.Shape{out}, math.Sqrt(1 / float64(in))},
		} {
			n, err := t.shape.NumElements()
			if err != nil || n > (math.MaxInt64/2-totalBytes)/int64(dtype.Size()) {
				return nil, errors.New("no file can be that large")
			}
			totalBytes += n * int64(dtype.Size())
			data := loader.Random{Seed: s.seed, Tensor: uint64(len(tensors)), DType: dtype, Scale: t.scale}
			tensors = append(
				tensors, loader.TensorData{Name: t.name, DType: dtype, Shape: t.shape, ReadAt: data.ReadAt},
			)
		}
	}
	return tensors, nil
}
