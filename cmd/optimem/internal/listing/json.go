package listing

import (
	"io"
	"iter"
	"math"
	"slices"
	"strconv"

	"github.com/optimem/optimem/cmd/optimem/internal/jsonout"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/tensor"
)

// The JSON of inspect. Scripts rely on the keys: they may be added to, never renamed.
type (
	tensorJSON struct {
		Name   string `json:"name"`
		DType  string `json:"dtype"`
		Shape  []int  `json:"shape"`
		Stride []int  `json:"stride"`
		Offset int    `json:"offset"`
		Bytes  int64  `json:"bytes"`
		// SharesWith is the first tensor in the same storage, null for that tensor and for those alone in theirs.
		SharesWith *string    `json:"shares_with"`
		BigEndian  bool       `json:"big_endian,omitempty"`
		Conj       bool       `json:"conj,omitempty"`
		Neg        bool       `json:"neg,omitempty"`
		Quant      *quantJSON `json:"quant,omitempty"`
		// Encoded says how the file holds a tensor whose numbers are decoded from it.
		Encoded *encodedJSON `json:"encoded,omitempty"`
	}
	encodedJSON struct {
		Encoding   string `json:"encoding"`
		FileOffset int64  `json:"file_offset"`
		FileBytes  int64  `json:"file_bytes"`
	}
	encodingJSON struct {
		Encoding  string `json:"encoding"`
		Tensors   int    `json:"tensors"`
		FileBytes int64  `json:"file_bytes"`
	}
	quantJSON struct {
		Scheme    string   `json:"scheme"`
		Scale     *float64 `json:"scale,omitempty"`
		ZeroPoint *int64   `json:"zero_point,omitempty"`
		Axis      *int     `json:"axis,omitempty"`
	}
	moduleJSON struct {
		Path   string `json:"path"`
		Class  string `json:"class,omitempty"`
		Params int64  `json:"params"`
		Bytes  int64  `json:"bytes"`
	}
	portJSON struct {
		Name  string `json:"name"`
		Type  string `json:"type"`
		DType string `json:"dtype"`
		// Shape has numbers, and strings for symbolic sizes; null where the program does not tell.
		Shape    []any `json:"shape"`
		Optional bool  `json:"optional,omitempty"`
	}
	dtypeJSON struct {
		DType   string `json:"dtype"`
		Tensors int    `json:"tensors"`
		Params  int64  `json:"params"`
		Bytes   int64  `json:"bytes"`
	}
	stateDictJSON struct {
		Path    string `json:"path"`
		Prefix  string `json:"prefix"`
		Tensors int    `json:"tensors"`
	}
	valueJSON struct {
		Name string `json:"name"`
		Text string `json:"text"`
	}
	unreadableJSON struct {
		Name  string `json:"name"`
		Error string `json:"error"`
	}
)

// WriteJSON writes one object with everything.
func (in *Listing) WriteJSON(w io.Writer) error {
	o := jsonout.New(w)
	o.Set("path", in.Path)
	o.Set("format", in.Format)
	o.Set("file_bytes", in.fileBytes)
	if n, _ := packedBytes(in.Checkpoint); n > 0 {
		o.Set("packed_bytes", n)
	}
	o.Set("total_params", in.tally.total.params)
	o.Set("total_bytes", in.tally.total.bytes)
	jsonout.Array(o, "dtypes", each(in.dtypes(), func(_ int, d dtypeCount) dtypeJSON {
		return dtypeJSON{d.dtype.String(), d.tensors, d.count.params, d.count.bytes}
	}))
	if all := in.encodings(); len(all) > 0 {
		jsonout.Array(o, "encodings", slices.Values(all))
	}
	jsonout.Array(o, "state_dicts", each(in.dicts, func(_ int, d loader.StateDict) stateDictJSON {
		return stateDictJSON{d.Path, d.Prefix, len(d.Weights)}
	}))
	o.Set("torch_version", in.torchVersion())
	jsonout.Array(o, "inputs", each(in.inputs(), toPortJSON))
	jsonout.Array(o, "outputs", each(in.outputs(), toPortJSON))
	jsonout.Array(o, "ranges", slices.Values(in.ranges()))
	jsonout.Array(o, "modules", in.moduleSeq())
	jsonout.Array(o, "tensors", each(in.Weights, in.toTensorJSON))
	jsonout.Array(o, "unreadable", each(in.Unreadable, func(_ int, e *loader.Error) unreadableJSON {
		return unreadableJSON{e.Record, e.Err.Error()}
	}))
	jsonout.Array(o, "values", each(in.Values, func(_ int, v loader.Value) valueJSON { return valueJSON(v) }))
	jsonout.Array(o, "classes", slices.Values(in.Classes))
	return o.Close()
}

// each yields the elements of list, converted one at a time.
func each[T, J any](list []T, convert func(i int, v T) J) iter.Seq[J] {
	return func(yield func(J) bool) {
		for i, v := range list {
			if !yield(convert(i, v)) {
				return
			}
		}
	}
}

func (in *Listing) toTensorJSON(i int, w tensor.Weight) tensorJSON {
	j := tensorJSON{
		Name: w.Name, DType: w.DType.String(), Shape: append([]int{}, w.Layout.Shape...),
		Stride: append([]int{}, w.Layout.Strides...), Offset: w.Layout.Offset, Bytes: w.Bytes(),
		BigEndian: w.BigEndian, Conj: w.Conj, Neg: w.Neg,
	}
	j.Encoded = encodingOf(w)
	if first := in.tally.sharesWith[i]; first >= 0 {
		j.SharesWith = &in.Weights[first].Name
	}
	if q := w.Quant; q != nil {
		j.Quant = &quantJSON{Scheme: q.Scheme}
		if q.Scales != nil {
			j.Quant.Axis = &q.Axis
		} else {
			j.Quant.ZeroPoint = &q.ZeroPoint
			if !math.IsNaN(q.Scale) && !math.IsInf(q.Scale, 0) { // JSON has no such numbers
				j.Quant.Scale = &q.Scale
			}
		}
	}
	return j
}

func (in *Listing) moduleSeq() iter.Seq[moduleJSON] {
	return func(yield func(moduleJSON) bool) {
		more := true
		in.tree.Walk(0, func(i int32, _ int) {
			if m := &in.tree.modules[i]; more {
				more = yield(moduleJSON{m.path, m.class, m.count.params, m.count.bytes})
			}
		})
	}
}

func toPortJSON(_ int, p port) portJSON {
	j := portJSON{Name: p.Name, Type: p.Type, DType: p.DType, Optional: p.optional}
	if p.Shape != nil {
		j.Shape = []any{}
	}
	for _, d := range p.Shape {
		if n, err := strconv.ParseInt(d, 10, 64); err == nil {
			j.Shape = append(j.Shape, n)
		} else {
			j.Shape = append(j.Shape, d)
		}
	}
	return j
}
