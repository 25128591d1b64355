package embed

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/tensor"
)

// A layer is what becomes of a vector after pooling.
type layer interface {
	// width is how many numbers come out for so many that go in, or says that it takes none such.
	width(in int) (int, error)
	run(x []float32) []float32
}

// normalize makes a vector's length 1.
type normalize struct{}

func (normalize) width(in int) (int, error) { return in, nil }

func (normalize) run(x []float32) []float32 {
	normalized(x)
	return x
}

// openNormalize checks that it is the vector of the text that is meant. Older folders have no file for it.
func (f *Folder) openNormalize(path string) (layer, error) {
	file := filepath.Join(path, "config.json")
	var c places
	if path != "" && path != "." { // there it would be the transformer's
		if _, err := f.readJSON(file, &c); err != nil {
			return nil, err
		}
	}
	return normalize{}, c.check(file)
}

// places say what a module reads and writes.
type places struct {
	In  *string `json:"module_input_name"`
	Out *string `json:"module_output_name"`
}

// sentence is the name of a text's vector among what modules read and write.
const sentence = "sentence_embedding"

func (p places) check(file string) error {
	for _, name := range []*string{p.In, p.Out} {
		if name != nil && *name != sentence {
			return unsupported(file, "a module of %q", *name)
		}
	}
	return nil
}

// A dense is a linear layer with what follows it.
type dense struct {
	file         string
	in, out      int
	weight, bias []float32
	// direct is added of the vector that went in, through the weights of residual where they are not nil.
	direct     bool
	residual   []float32
	activation func(float64) float64
}

// activations are the classes that may follow a linear layer.
var activations = map[string]func(float64) float64{
	"torch.nn.modules.linear.Identity":    nil,
	"torch.nn.modules.activation.Tanh":    math.Tanh,
	"torch.nn.modules.activation.ReLU":    func(x float64) float64 { return max(x, 0) },
	"torch.nn.modules.activation.GELU":    func(x float64) float64 { return x / 2 * (1 + math.Erf(x/math.Sqrt2)) },
	"torch.nn.modules.activation.SiLU":    func(x float64) float64 { return x / (1 + math.Exp(-x)) },
	"torch.nn.modules.activation.Sigmoid": func(x float64) float64 { return 1 / (1 + math.Exp(-x)) },
}

// maxWidth bounds the numbers of a vector.
const maxWidth = 1 << 20

func (f *Folder) openDense(ctx context.Context, path string) (layer, error) {
	file := filepath.Join(path, "config.json")
	c := struct {
		places
		In         int     `json:"in_features"`
		Out        int     `json:"out_features"`
		Bias       *bool   `json:"bias"`
		Activation *string `json:"activation_function"`
		Residual   bool    `json:"use_residual"`
	}{}
	if found, err := f.readJSON(file, &c); err != nil || !found {
		return nil, errors.Join(err, missing(file, found))
	}
	if c.In < 1 || c.Out < 1 || c.In > maxWidth || c.Out > maxWidth {
		return nil, wrong(file, "makes %d numbers of %d", c.Out, c.In)
	}
	if err := c.places.check(file); err != nil {
		return nil, err
	}
	d := &dense{file: file, in: c.In, out: c.Out, activation: math.Tanh, direct: c.Residual}
	if c.Activation != nil {
		act, ok := activations[*c.Activation]
		if !ok {
			return nil, unsupported(file, "the activation %q", *c.Activation)
		}
		d.activation = act
	}
	w, err := f.openWeights(ctx, path)
	if err != nil {
		return nil, err
	}
	defer w.close()
	d.weight = w.read("linear.weight", c.Out, c.In)
	if c.Bias == nil || *c.Bias {
		d.bias = w.read("linear.bias", c.Out)
	}
	if c.Residual && c.In != c.Out {
		d.residual = w.read("residual.weight", c.Out, c.In)
	}
	return d, w.err
}

func missing(file string, found bool) error {
	if found {
		return nil
	}
	return wrong(file, "is missing")
}

func (d *dense) width(in int) (int, error) {
	if in != d.in {
		return 0, wrong(d.file, "takes %d numbers, and there are %d", d.in, in)
	}
	return d.out, nil
}

func (d *dense) run(x []float32) []float32 {
	y := make([]float32, d.out)
	for i := range y {
		s := dot(d.weight[i*d.in:][:d.in], x)
		if d.bias != nil {
			s += float64(d.bias[i])
		}
		if d.activation != nil {
			s = d.activation(s)
		}
		switch {
		case !d.direct:
		case d.residual == nil:
			s += float64(x[i])
		default:
			s += dot(d.residual[i*d.in:][:d.in], x)
		}
		y[i] = float32(s)
	}
	return y
}

func dot(a, b []float32) float64 {
	s := 0.0
	for i, x := range a {
		s += float64(x) * float64(b[i])
	}
	return s
}

// A norm is torch.nn.LayerNorm.
type norm struct {
	file         string
	weight, bias []float32
}

func (f *Folder) openNorm(ctx context.Context, path string) (layer, error) {
	file := filepath.Join(path, "config.json")
	var c struct {
		Width int `json:"dimension"`
	}
	if found, err := f.readJSON(file, &c); err != nil || !found {
		return nil, errors.Join(err, missing(file, found))
	}
	if c.Width < 1 || c.Width > maxWidth {
		return nil, wrong(file, "dimension is %d", c.Width)
	}
	w, err := f.openWeights(ctx, path)
	if err != nil {
		return nil, err
	}
	defer w.close()
	return &norm{file, w.read("norm.weight", c.Width), w.read("norm.bias", c.Width)}, w.err
}

func (n *norm) width(in int) (int, error) {
	if in != len(n.weight) {
		return 0, wrong(n.file, "takes %d numbers, and there are %d", len(n.weight), in)
	}
	return in, nil
}

func (n *norm) run(x []float32) []float32 {
	const eps = 1e-5
	mean, spread := 0.0, 0.0
	for _, v := range x {
		mean += float64(v)
	}
	mean /= float64(len(x))
	for _, v := range x {
		spread += (float64(v) - mean) * (float64(v) - mean)
	}
	scale := 1 / math.Sqrt(spread/float64(len(x))+eps)
	for i, v := range x {
		x[i] = float32((float64(v)-mean)*scale*float64(n.weight[i]) + float64(n.bias[i]))
	}
	return x
}

// weights are those of a module. The first error is kept.
type weights struct {
	ctx  context.Context
	file string
	ckpt *loader.Checkpoint
	err  error
}

// openWeights opens the weights of a module.
func (f *Folder) openWeights(ctx context.Context, path string) (*weights, error) {
	for _, name := range []string{"model.safetensors", "pytorch_model.bin"} {
		file := filepath.Join(path, name)
		if _, err := os.Stat(filepath.Join(f.path, file)); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		ckpt, err := loader.OpenWith(ctx, filepath.Join(f.path, file), loader.Options{})
		if err != nil {
			return nil, err
		}
		return &weights{ctx: ctx, file: file, ckpt: ckpt}, nil
	}
	return nil, wrong(filepath.Join(path, "model.safetensors"), "is missing")
}

func (w *weights) close() { _ = w.ckpt.Close() } // it was only read

// find returns a weight of a shape, in which −1 stands for any size.
func (w *weights) find(name string, shape ...int) (tensor.Weight, bool) {
	found, ok := w.ckpt.Weight(name)
	if !ok {
		return found, false
	}
	fits := len(found.Layout.Shape) == len(shape)
	for i := 0; fits && i < len(shape); i++ {
		fits = found.Layout.Shape[i] == shape[i] || shape[i] < 0
	}
	if !fits && w.err == nil {
		w.err = wrong(w.file, "%s is %v, and %v is wanted", name, found.Layout.Shape, shape)
	}
	return found, fits
}

// read returns the elements of a weight, none after an error.
func (w *weights) read(name string, shape ...int) []float32 {
	found, ok := w.find(name, shape...)
	if !ok && w.err == nil {
		w.err = wrong(w.file, "has no %s", name)
	}
	if w.err != nil {
		return nil
	}
	t, err := found.Contents(w.ctx)
	if err != nil {
		w.err = fmt.Errorf("%s: %w", w.file, err)
		return nil
	}
	values := make([]float32, found.NumElements())
	if !widen(values, t.DType, t.Data) {
		w.err = unsupported(w.file, "%s of %v", name, t.DType)
		return nil
	}
	return values
}
