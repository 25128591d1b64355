//go:build !files

package running

import (
	"context"
	"errors"
	"testing"

	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/tensor"
)

// One picture goes without the dimension of the batch where the input has none; several do not.
func TestPictureWithoutBatch(t *testing.T) {
	var r Run
	in := &RunInputs{}
	defer in.Free()
	p := models.Port{Name: "x", DType: tensor.Float32, Shape: tensor.Shape{3, 4, 5}, Dims: []string{"", "", ""}}
	if x, err := r.allocPictures(in, p, 1, 4, 5); err != nil || !x.Layout.Shape.Equal(p.Shape) {
		t.Errorf("a picture is %v, %v, want %v", x, err, p.Shape)
	}
	if x, err := r.allocPictures(in, p, 2, 4, 5); err == nil {
		t.Errorf("two pictures are %v", x.Layout.Shape)
	}
}

// TestUnlessDone: work that does not look at its context is not waited for once that is done.
func TestUnlessDone(t *testing.T) {
	if n, err := unlessDone(t.Context(), func() (int, error) { return 7, nil }); n != 7 || err != nil {
		t.Errorf("work that ends gives %d, %v", n, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	goOn := make(chan bool)
	defer close(goOn)
	n, err := unlessDone(ctx, func() (int, error) {
		cancel()
		<-goOn
		return 7, nil
	})
	if n != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("work that was not waited for gives %d, %v", n, err)
	}
}
