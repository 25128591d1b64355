package models_test

import (
	"testing"

	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/models/internal/zoo"
	"github.com/optimem/optimem/tensor"
)

// BenchmarkGraph takes an opened checkpoint to a graph. The metric ops is how many the graph has; the goal is 50 ms for a
// thousand.
func BenchmarkGraph(b *testing.B) {
	for _, name := range []string{"tv/resnet101", "hf/gpt2", "tv/swin_t", "tv/densenet201", "tv/efficientnet_b7", "tv/maxvit_t"} {
		for _, form := range []string{"aten", "core"} {
			b.Run(name+"/"+form, func(b *testing.B) {
				ckpt, ref, err := zoo.Load(zooFolder, name, form)
				if err != nil {
					b.Fatal(err)
				}
				defer ckpt.Close()
				shapes := make(map[string]tensor.Shape)
				for input, f := range ref.Cases[0].Inputs {
					shapes[input] = f.Shape
				}
				ops := 0
				b.ReportAllocs()
				for b.Loop() {
					model, err := models.Build(ckpt, models.Options{})
					if err != nil {
						b.Fatal(err)
					}
					g, err := model.Graph(shapes)
					if err != nil {
						b.Fatal(err)
					}
					ops = len(g.Ops)
				}
				b.ReportMetric(float64(ops), "ops")
			})
		}
	}
}
