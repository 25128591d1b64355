//go:build !files

package main

import (
	"context"

	"github.com/optimem/optimem/generate"
)

// look has the model opened as one that sees, where --image is given.
func (w *writing) look() error {
	if len(w.images) == 0 {
		return nil
	}
	sees := w.text.Defaults().Sees
	switch {
	case sees == nil:
		return w.Usage("LLaVA's folders do", "--image: the model sees no pictures")
	case w.draft != "":
		return w.Usage("", "--draft guesses for texts without pictures")
	case w.Arch == "":
		w.Arch = sees.Class
	}
	return nil
}

// places is how many tokens the pictures take beside those that are in the prompt.
func (w *writing) places() int {
	if sees := w.text.Defaults().Sees; sees != nil {
		return len(w.images) * (sees.Places - 1)
	}
	return 0
}

// pictures reads what --image names as the folder's preprocessor_config.json says, nil where there is none.
func (w *writing) pictures(ctx context.Context) (*generate.Source, error) {
	if len(w.images) == 0 {
		return nil, nil
	}
	all := &generate.Source{}
	for _, path := range w.images {
		values, err := w.pixels(ctx, path)
		if err != nil {
			return nil, err
		}
		all.Features = append(all.Features, values...)
	}
	return all, nil
}

// pixels reads a picture as the folder's preprocessor_config.json says.
func (w *writing) pixels(ctx context.Context, path string) ([]float32, error) {
	spec, err := w.PictureSpec(path)
	if err != nil {
		return nil, err
	}
	p, err := w.Decode(ctx, path)
	if err != nil {
		return nil, err
	}
	height, width, err := spec.Size(p.Height, p.Width)
	if err != nil {
		return nil, w.PictureError(path, err)
	}
	values := make([]float32, 3*height*width)
	if err := spec.Apply(ctx, p, values); err != nil {
		return nil, w.PictureError(path, err)
	}
	return values, nil
}
