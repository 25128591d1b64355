package main

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
)

// The numbers are those that PyTorch gave when make_model.py exported the model.
func Example() {
	if err := run(context.Background(), "double.pt2"); err != nil {
		fmt.Println(err)
	}
	// Output: double [2 2] [50 4 26 24]
}

// Without the op the model is refused, and the op is named.
func TestUnknownOp(t *testing.T) {
	ckpt, err := loader.Open("double.pt2")
	if err != nil {
		t.Fatal(err)
	}
	defer ckpt.Close()
	_, err = models.Build(ckpt, models.Options{})
	var unsupported *models.UnsupportedError
	if !errors.As(err, &unsupported) || len(unsupported.Missing) != 1 ||
		unsupported.Missing[0].Name != "torch.ops.mylib.double.default" {
		t.Errorf("%v", err)
	}
}
