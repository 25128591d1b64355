package serve

import (
	"fmt"
	"math"

	"github.com/optimem/optimem/serve/internal/inference"
	"github.com/optimem/optimem/serve/oip"
	"github.com/optimem/optimem/tensor"
)

// Bounds of what a message may name; what REST has in oip.Limits.
const (
	maxTensors = 256
	maxRank    = 16
)

// grpcRequest makes a request of a message. Its tensors take tensorBytes at most.
func grpcRequest(q *inference.InferRequest, tensorBytes int64) (*oip.Request, error) {
	if len(q.Inputs) > maxTensors || len(q.Outputs) > maxTensors {
		return nil, refuse(400, "more than %d tensors", maxTensors)
	}
	if len(q.Raw) > 0 && len(q.Raw) != len(q.Inputs) {
		return nil, refuse(400, "%d raw contents for %d inputs", len(q.Raw), len(q.Inputs))
	}
	r := &oip.Request{ID: q.Id, Parameters: grpcParameters(q.Parameters)}
	for _, o := range q.Outputs {
		r.Outputs = append(r.Outputs, oip.Wanted{Name: o.GetName(), Parameters: grpcParameters(o.GetParameters())})
	}
	left := tensorBytes
	for i, x := range q.Inputs {
		where := fmt.Sprintf("inputs[%d]", i)
		in := oip.Input{Name: x.GetName(), Datatype: x.GetDatatype(), Parameters: grpcParameters(x.GetParameters())}
		if in.Datatype != oip.Bytes && oip.DType(in.Datatype) == tensor.Invalid {
			return nil, refuse(400, "%s: datatype %.40q is unknown", where, in.Datatype)
		}
		if len(x.GetShape()) > maxRank {
			return nil, refuse(400, "%s: more than %d dimensions", where, maxRank)
		}
		in.Shape = tensor.Shape{}
		for _, n := range x.GetShape() {
			if n < 0 || n > math.MaxInt32 {
				return nil, refuse(400, "%s: %d is no dimension", where, n)
			}
			in.Shape = append(in.Shape, int(n))
		}
		var raw []byte
		switch {
		case len(q.Raw) > 0 && x.GetContents() != nil:
			return nil, refuse(400, "%s: contents and raw contents are both given", where)
		case len(q.Raw) > 0:
			raw = q.Raw[i]
		case in.Datatype == oip.Bytes:
			in.Texts = x.GetContents().GetTexts()
			if n, err := in.Shape.NumElements(); err != nil || n != int64(len(in.Texts)) {
				return nil, refuse(400, "%s: %d elements for shape %v", where, len(in.Texts), in.Shape)
			}
			r.Inputs = append(r.Inputs, in)
			continue
		default:
			var err error
			if raw, err = contents(where, in.Datatype, x.GetContents()); err != nil {
				return nil, err
			}
		}
		if err := in.SetRaw(where, raw, &left); err != nil {
			return nil, err
		}
		r.Inputs = append(r.Inputs, in)
	}
	return r, nil
}

func grpcParameters(from map[string]*inference.Parameter) map[string]any {
	all := make(map[string]any, len(from))
	for key, p := range from {
		switch x := p.GetChoice().(type) {
		case *inference.Parameter_BoolParam:
			all[key] = x.BoolParam
		case *inference.Parameter_Int64Param:
			all[key] = x.Int64Param
		case *inference.Parameter_StringParam:
			all[key] = x.StringParam
		case *inference.Parameter_DoubleParam:
			all[key] = x.DoubleParam
		case *inference.Parameter_Uint64Param:
			if all[key] = x.Uint64Param; x.Uint64Param <= math.MaxInt64 { // a larger one is no number that is known
				all[key] = int64(x.Uint64Param)
			}
		}
	}
	return all
}

// contents are the bytes of elements that are given one by one.
func contents(where, datatype string, c *inference.Contents) ([]byte, error) {
	switch d := oip.DType(datatype); d {
	case tensor.Bool:
		return bytesOf(c.GetBools()), nil
	case tensor.Int8, tensor.Int16, tensor.Int32:
		return narrow(where, datatype, d.Size(), c.GetInts(), -1<<(8*d.Size()-1), 1<<(8*d.Size()-1)-1)
	case tensor.UInt8, tensor.UInt16, tensor.UInt32:
		return narrow(where, datatype, d.Size(), c.GetUints(), 0, 1<<(8*d.Size())-1)
	case tensor.Int64:
		return bytesOf(c.GetInt64S()), nil
	case tensor.UInt64:
		return bytesOf(c.GetUint64S()), nil
	case tensor.Float32:
		return bytesOf(c.GetFp32S()), nil
	case tensor.Float64:
		return bytesOf(c.GetFp64S()), nil
	}
	return nil, refuse(400, "%s: elements of %s are raw contents only", where, datatype)
}

func bytesOf[T tensor.Element](list []T) []byte { return tensor.Of(list, len(list)).Data }

// narrow writes the low bytes of integers, which must be enough.
func narrow[T int32 | uint32](where, datatype string, size int, list []T, least, most int64) ([]byte, error) {
	out := make([]byte, 0, size*len(list))
	for i, x := range list {
		if int64(x) < least || int64(x) > most {
			return nil, refuse(400, "%s: element %d, %d, is no %s", where, i, x, datatype)
		}
		for b := range size {
			out = append(out, byte(x>>(8*b)))
		}
	}
	return out, nil
}
