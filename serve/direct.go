package serve

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"

	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/serve/oip"
)

// Infer asks a model for tensors, as a request by a protocol does: it is admitted, waits, and shares a pass. What is wrong is an
// [*Error].
func (r *Registry) Infer(ctx context.Context, model string, in runtime.Values) (runtime.Values, error) {
	v, err := r.find(model, "")
	if err != nil {
		return nil, err
	}
	request := &oip.Request{}
	for name, x := range in {
		request.Inputs = append(request.Inputs, oip.Input{Name: name, Datatype: oip.Datatype(x.DType), Shape: x.Layout.Shape, Tensor: x})
	}
	response, err := r.infer(ctx, v, model, request)
	if err != nil {
		return nil, err
	}
	out := make(runtime.Values)
	for _, o := range response.Outputs {
		out[o.Name] = o.Tensor
	}
	return out, nil
}

// Inputs opens a model that takes tensors and tells its inputs, and how many requests share a pass at most.
func (r *Registry) Inputs(ctx context.Context, model string) (inputs []models.Port, join int, err error) {
	v, err := r.find(model, "")
	if err != nil {
		return nil, 0, err
	}
	i, release, err := v.use(ctx)
	if err != nil {
		return nil, 0, err
	}
	defer release()
	m, ok := i.runner.(*tensorRunner)
	if !ok {
		return nil, 0, refuse(http.StatusNotImplemented, "model %q takes no tensors", model)
	}
	return m.model.Inputs(), m.join, nil
}

// Digest is the SHA-256, in hexadecimal, of all files of the newest version of a model, and of the architecture and code that
// model.json names. It reads them once, whole. What a model is called in the directory, and how it is run, makes no difference.
func (r *Registry) Digest(ctx context.Context, model string) (string, error) {
	v, err := r.find(model, "")
	if err != nil {
		return "", err
	}
	if v.given != nil || r.root == nil {
		return "", fmt.Errorf("serve: model %q has no files", model)
	}
	f := v.what()
	sum := sha256.New()
	_, _ = fmt.Fprintf(sum, "%q %q\n", f.settings.Arch, f.settings.Code)
	add := func(file, name string) error {
		in, err := r.root.Open(file)
		if err != nil {
			return outside(err)
		}
		defer in.Close()
		info, err := in.Stat()
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(sum, "%q %d\n", name, info.Size())
		n, err := io.Copy(sum, stopping{ctx, in})
		if err == nil && n != info.Size() {
			err = fmt.Errorf("%s changed while it was read", name)
		}
		return err
	}
	// A file alone is one, or the model among others of its folder, which may be its shards.
	folder := path.Dir(f.path)
	if info, err := r.root.Stat(f.path); err != nil {
		return "", outside(err)
	} else if info.IsDir() {
		folder = f.path
	}
	if folder == "." {
		err := add(f.path, path.Ext(f.path))
		return hex.EncodeToString(sum.Sum(nil)), err
	}
	var names []string
	if _, err := measure(r.root, folder, func(name string) { names = append(names, name) }); err != nil {
		return "", err
	}
	slices.Sort(names)
	for _, name := range names {
		if name == "model.json" {
			continue
		}
		if err := add(path.Join(folder, name), name); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// A stopping reader stops once its context is done.
type stopping struct {
	ctx context.Context
	r   io.Reader
}

func (s stopping) Read(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	return s.r.Read(p)
}
