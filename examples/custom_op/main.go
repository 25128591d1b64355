// Command custom_op runs an exported model that calls an op unknown to optimem: mylib::double, registered in Python
// with torch.library.custom_op. The program registers the op's shape rule and a kernel in Go.
//
//	go run ./examples/custom_op examples/custom_op/double.pt2
//
// The kernel is for the CPU only. The script beside it exported the model.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// double is x doubled some times. A program calls torch.ops.mylib.double.default(x, times): tensors become operands in
// their order, other arguments attributes that are called arg and their position.
var double = graph.OpDef{
	Kind: "mylib::double",
	Shape: func(in []graph.Spec, _ graph.Attrs) ([]graph.Spec, error) {
		if len(in) != 1 || in[0].DType != tensor.Float32 {
			return nil, fmt.Errorf("takes one float32 tensor, not %v", in)
		}
		return in, nil
	},
	Reference: func(in, out []*tensor.Tensor, a graph.Attrs) error {
		x, err := tensor.Slice[float32](in[0])
		if err != nil {
			return err
		}
		y, err := tensor.Slice[float32](out[0])
		if err != nil {
			return err
		}
		factor := float32(int(1) << a.Int("arg1"))
		for i, v := range x {
			y[i] = v * factor
		}
		return nil
	},
}

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: custom_op MODEL")
	}
	if err := run(context.Background(), os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, path string) error {
	ops, err := graph.Standard().With(double)
	if err != nil {
		return err
	}
	ckpt, err := loader.Open(path)
	if err != nil {
		return err
	}
	defer ckpt.Close()
	model, err := models.Build(ckpt, models.Options{Ops: ops})
	if err != nil {
		return err
	}
	session, err := optimem.Resident(ctx, model, optimem.ResidentOptions{})
	if err != nil {
		return err
	}
	defer session.Close()
	out, err := session.Run(ctx, optimem.Values{"x": tensor.Of([]float32{1, 2, 3, 0, -1, 4}, 2, 3)})
	if err != nil {
		return err
	}
	for _, name := range model.Outputs() {
		y, err := tensor.Slice[float32](out[name])
		if err != nil {
			return err
		}
		fmt.Println(name, out[name].Layout.Shape, y)
	}
	return nil
}
