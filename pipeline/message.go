package pipeline

import (
	"errors"
	"fmt"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// An ask is what a head wants of a stage, one field of it.
type ask struct {
	// Forecast asks what a range would take there, Open that the stage gets ready to compute one, Shapes how inputs of
	// these shapes go through the range that is open. None asks who is there.
	Forecast *rangeAsk               `json:"forecast,omitempty"`
	Open     *openAsk                `json:"open,omitempty"`
	Shapes   map[string]tensor.Shape `json:"shapes,omitempty"`
}

// A rangeAsk is a range of the model for inputs of these shapes.
type rangeAsk struct {
	From   string                  `json:"from,omitempty"`
	To     string                  `json:"to,omitempty"`
	Shapes map[string]tensor.Shape `json:"shapes"`
	Steps  *steps                  `json:"steps,omitempty"`
	// Window is how many passes are under way at once.
	Window int `json:"window"`
}

// maxWindow bounds how many passes are under way at once.
const maxWindow = 64

// An openAsk has a stage compute a range.
type openAsk struct {
	rangeAsk
	// Run names the run for the stage before, which says so when it connects.
	Run string `json:"run"`
	// Files is what the head has of the model.
	Files string `json:"files"`
	// First says that no stage is before, Next where the next one is, "" for none.
	First bool   `json:"first,omitempty"`
	Next  string `json:"next,omitempty"`
}

// steps are models.StepOptions.
type steps struct {
	Blocks  int    `json:"blocks"`
	Context int    `json:"context"`
	States  int    `json:"states,omitempty"`
	Windows int    `json:"window_blocks,omitempty"`
	KV      string `json:"kv,omitempty"`
}

// model returns the model that a run is of.
func (s *steps) model(m *models.Model) (*models.Model, error) {
	if s == nil {
		return m, nil
	}
	if s.Blocks < 1 || s.Blocks > 1<<24 || s.Context < 1 || s.Context > 1<<28 || s.States < 0 || s.States > 1<<20 ||
		s.Windows < 0 || s.Windows > 1<<24 {
		return nil, &ProtocolError{"steps of a size that cannot be"}
	}
	if m.Source() > 0 {
		return nil, fmt.Errorf("%w: stages of a model that reads before it writes", graph.ErrUnsupported)
	}
	o := models.StepOptions{Blocks: s.Blocks, Context: s.Context, States: s.States, WindowBlocks: s.Windows}
	if s.KV != "" {
		known := false
		if o.DType, known = tensor.ParseDType(s.KV); !known {
			return nil, &ProtocolError{"unknown dtype of keys and values"}
		}
	}
	return m.Steps(o)
}

// An answer is what a stage says.
type answer struct {
	Error *failure `json:"error,omitempty"`
	// Files, Device, BudgetBytes and Busy are who is there.
	Files       string `json:"files,omitempty"`
	Device      string `json:"device,omitempty"`
	BudgetBytes int64  `json:"budget_bytes,omitempty"`
	Busy        bool   `json:"busy,omitempty"`
	// Forecast is what a range would take, or takes.
	Forecast *Forecast `json:"forecast,omitempty"`
	// Seams are where the model may be divided, and WeightBytes what it has of weights, asked of the whole.
	Seams       []graph.Seam `json:"seams,omitempty"`
	WeightBytes int64        `json:"weight_bytes,omitempty"`
	// Layout says how inputs of some shapes go through a range.
	Layout *layout `json:"layout,omitempty"`
}

// A Forecast is what a range of the model takes on a machine.
type Forecast struct {
	// WeightBytes stay there, MovedBytes are brought for each pass, PeakBytes is the most memory that is taken, and
	// BufferBytes what passes under way take beside it.
	WeightBytes int64 `json:"weight_bytes"`
	MovedBytes  int64 `json:"moved_bytes"`
	PeakBytes   int64 `json:"peak_bytes"`
	BufferBytes int64 `json:"buffer_bytes"`
	// Seconds is how long a pass is expected to take.
	Seconds float64 `json:"seconds"`
	// Groups is how many groups the range has.
	Groups int `json:"groups"`
	// AfterBytes is what goes to the next stage in a pass.
	AfterBytes int64 `json:"after_bytes"`
	// InputBytes are the model's inputs that it is given for a pass, OutputBytes the model's outputs that it gives.
	InputBytes  int64 `json:"input_bytes"`
	OutputBytes int64 `json:"output_bytes"`
}

// forecastOf is that of a plan.
func forecastOf(p *plan.Plan) *Forecast {
	return &Forecast{
		WeightBytes: p.Fixed.WeightBytes, MovedBytes: p.MovedBytes, PeakBytes: p.PeakBytes(),
		Seconds: p.Forecast.Seconds,
		Groups:  len(p.Groups),
	}
}

// A layout says what a stage takes and gives in a pass.
type layout struct {
	// Digest is that of the whole graph.
	Digest string `json:"digest"`
	// Inputs are the model's that the stage is given, Outputs those of the model that it gives.
	Inputs  []spec `json:"inputs"`
	Outputs []spec `json:"outputs"`
	// Before crosses its beginning, After its end.
	Before []spec `json:"before"`
	After  []spec `json:"after"`
}

// A spec is a tensor.
type spec struct {
	Name  string       `json:"name"`
	DType string       `json:"dtype"`
	Shape tensor.Shape `json:"shape"`
	// own says, of what crosses the beginning, that the stage reads it; of what crosses its end, that it computes it.
	own bool
}

// bytes returns the size of a tensor, and an error where it cannot have that shape.
func (s *spec) bytes() (int64, error) {
	d, ok := tensor.ParseDType(s.DType)
	if !ok {
		return 0, &ProtocolError{fmt.Sprintf("%s: an unknown dtype", s.Name)}
	}
	for _, n := range s.Shape {
		if n < 0 {
			return 0, &ProtocolError{fmt.Sprintf("%s: a shape of %v", s.Name, s.Shape)}
		}
	}
	n, err := s.Shape.NumElements()
	if err != nil {
		return 0, &ProtocolError{fmt.Sprintf("%s: %v", s.Name, err)}
	}
	size, ok := tensor.MulBytes(n, int64(d.Size()))
	if !ok {
		return 0, &ProtocolError{fmt.Sprintf("%s: a shape of %v", s.Name, s.Shape)}
	}
	return size, nil
}

// bytesOf returns what tensors take together.
func bytesOf(list []spec) (int64, error) {
	var sum int64
	for i := range list {
		n, err := list[i].bytes()
		if err != nil {
			return 0, err
		}
		if sum += n; sum < 0 || sum > 1<<60 {
			return 0, &ProtocolError{"tensors of more bytes than there are"}
		}
	}
	return sum, nil
}

// over returns the tensors over bytes that hold them one after another.
func over(list []spec, data []byte) (runtime.Values, error) {
	values := make(runtime.Values, len(list))
	for i := range list {
		n, err := list[i].bytes()
		if err != nil {
			return nil, err
		}
		d, _ := tensor.ParseDType(list[i].DType)
		values[list[i].Name] = &tensor.Tensor{DType: d, Layout: tensor.Contiguous(list[i].Shape...), Data: data[:n:n]}
		data = data[n:]
	}
	return values, nil
}

// specOf describes a value of a graph.
func specOf(name string, d tensor.DType, shape tensor.Shape) spec {
	return spec{Name: name, DType: d.String(), Shape: shape}
}

// layoutOf describes a section.
func layoutOf(s *graph.Section) *layout {
	l := &layout{Digest: fmt.Sprintf("%x", s.Digest)}
	crosses := make(map[string]bool)
	for _, h := range s.Before {
		one := specOf(h.Name, h.DType, h.Shape)
		one.own = h.Used
		l.Before = append(l.Before, one)
		crosses[h.Name] = true
	}
	for _, h := range s.After {
		one := specOf(h.Name, h.DType, h.Shape)
		one.own = h.Made
		l.After = append(l.After, one)
		crosses[h.Name] = true
	}
	for _, id := range s.Graph.Inputs {
		if v := &s.Graph.Values[id]; !crosses[v.Name] {
			l.Inputs = append(l.Inputs, specOf(v.Name, v.DType, v.Shape))
		}
	}
	for _, o := range s.Graph.Outputs {
		if !crosses[o.Name] {
			l.Outputs = append(l.Outputs, specOf(o.Name, s.Graph.Values[o.Operand.Value].DType, o.Operand.Layout.Shape))
		}
	}
	return l
}

// A failure is an error on its way to the head.
type failure struct {
	// Code is "input", "capacity", "busy", "unsupported", "model" or "".
	Code     string `json:"code,omitempty"`
	Msg      string `json:"msg"`
	Input    string `json:"input,omitempty"`
	MinBytes int64  `json:"min_bytes,omitempty"`
	Need     int64  `json:"need_bytes,omitempty"`
	Have     int64  `json:"have_bytes,omitempty"`
}

// Errors of stages.
var (
	// ErrBusy says that a stage computes for another head.
	ErrBusy = errors.New("the stage computes for another head")
	// ErrModel says that a stage has other files of the model, or computes them in another way: another release of
	// optimem, another kind of processor or device.
	ErrModel = errors.New("the stage has another model")
	// ErrStuck says that a stage made no progress.
	ErrStuck = errors.New("no progress")
	// ErrClosed is returned by runs of a pipeline that was closed.
	ErrClosed = errors.New("pipeline is closed")
)

func failureOf(err error) *failure {
	f := &failure{Msg: err.Error()}
	var (
		input    *runtime.InputError
		capacity *runtime.CapacityError
	)
	switch {
	case errors.As(err, &input):
		f.Code, f.Input, f.Msg = "input", input.Input, input.Msg
	case errors.As(err, &capacity):
		f.Code, f.MinBytes, f.Need, f.Have = "capacity", capacity.MinBytes, capacity.NeedBytes, capacity.HaveBytes
	case errors.Is(err, ErrBusy):
		f.Code = "busy"
	case errors.Is(err, ErrModel):
		f.Code = "model"
	case errors.Is(err, graph.ErrUnsupported):
		f.Code = "unsupported"
	}
	if len(f.Msg) > 4096 {
		f.Msg = f.Msg[:4096]
	}
	return f
}

// A remoteError is what went wrong at a stage.
type remoteError struct {
	msg string
	is  error
}

func (e *remoteError) Error() string { return e.msg }
func (e *remoteError) Unwrap() error { return e.is }

// err is the error that a failure was.
func (f *failure) err() error {
	switch f.Code {
	case "input":
		return &runtime.InputError{Input: f.Input, Msg: f.Msg}
	case "capacity":
		return &runtime.CapacityError{NeedBytes: f.Need, HaveBytes: f.Have, MinBytes: f.MinBytes}
	case "busy":
		return ErrBusy
	case "model":
		return &remoteError{f.Msg, ErrModel}
	case "unsupported":
		return &remoteError{f.Msg, graph.ErrUnsupported}
	}
	return &remoteError{f.Msg, nil}
}
