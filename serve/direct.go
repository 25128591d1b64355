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
	"time"

	"github.com/optimem/optimem/embed"
	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/serve/oip"
	"github.com/optimem/optimem/tensor"
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
	response, err := r.infer(ctx, v, model, request, nil) // the answer is the caller's
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

// A Writing is how a model writes.
type Writing struct {
	// Context is how many tokens a text has at most, KV the dtype of its keys and values.
	Context int
	KV      tensor.DType
	// Sequences is how many texts of a full context are written at once.
	Sequences int
	// Chat says that there is a chat template.
	Chat bool
	// Defaults are what the model's files say, whatever [Options.Defaults] makes of them.
	Defaults generate.Defaults
}

// Writing opens a model that writes and tells how it does.
func (r *Registry) Writing(ctx context.Context, model string) (w Writing, err error) {
	v, err := r.find(model, "")
	if err != nil {
		return w, err
	}
	i, release, err := v.use(ctx)
	if err != nil {
		return w, err
	}
	defer release()
	t, ok := i.runner.(*textRunner)
	if !ok {
		return w, refuse(http.StatusNotImplemented, "model %q does not write", model)
	}
	return Writing{Context: t.Context(), KV: t.kv, Sequences: t.sequences, Chat: t.HasChat(), Defaults: t.Defaults()}, nil
}

// Write has a model write, beside the texts that it writes already. The request says all: nothing of it is filled in.
// What is wrong is an [*Error]; a text is whole, or there is an error.
func (r *Registry) Write(ctx context.Context, model string, request generate.TextRequest) (*generate.TextResult, error) {
	var result *generate.TextResult
	err := direct(ctx, r, model, 1, "model %q does not write", func(t *textRunner, c *call, begin time.Time) (err error) {
		if _, err := t.Tokens(request); err != nil { // by the request alone: it would be so everywhere
			return &Error{Status: http.StatusBadRequest, Msg: err.Error(), Err: err}
		}
		if result, err = t.Pieces(ctx, request, func(generate.Piece) error { return nil }); err != nil {
			return err
		}
		if result.Finish == generate.FinishCancelled {
			return context.Canceled
		}
		c.queue = min(time.Duration(result.FirstTokenSeconds*float64(time.Second)), time.Since(begin))
		c.infer = time.Since(begin) - c.queue
		return nil
	})
	if err != nil {
		return nil, err
	}
	return result, nil
}

// Embed has a model make vectors of texts. What is wrong is an [*Error].
func (r *Registry) Embed(ctx context.Context, model string, request embed.Request) (*embed.Result, error) {
	var result *embed.Result
	rows := int64(len(request.Texts))
	err := direct(ctx, r, model, rows, "model %q makes no vectors", func(e *vectorRunner, c *call, begin time.Time) (err error) {
		c.queue = time.Since(begin)
		result, err = e.Embed(ctx, request)
		c.infer = time.Since(begin) - c.queue
		return err
	})
	if err != nil {
		return nil, err
	}
	return result, nil
}

// direct has the newest version of a model do what run says, in its place among what waits for it, and counts it. A
// model of another kind is refused with the text other. What is wrong is an [*Error], but for a model that is not
// there.
func direct[T runner](
	ctx context.Context, r *Registry, model string, rows int64, other string, run func(T, *call, time.Time) error,
) (err error) {
	v, err := r.find(model, "")
	if err != nil {
		return err
	}
	begin := time.Now()
	c := &call{name: model, version: v.number, rows: rows}
	defer func() { err = r.finish(ctx, v, c, begin, err) }()
	i, release, err := v.use(ctx)
	if err != nil {
		return err
	}
	defer release()
	t, ok := i.runner.(T)
	if !ok {
		return refuse(http.StatusNotImplemented, other, model)
	}
	done, err := r.admit(ctx, v, i, runtime.DefaultPriority)
	if err != nil {
		return err
	}
	defer done()
	return run(t, c, begin)
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
