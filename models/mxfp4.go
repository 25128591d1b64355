package models

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
	"github.com/optimem/optimem/tensor/encoded"
)

// The ends of the names of what weights of MXFP4 are in a folder.
const (
	mxfp4Blocks = "_blocks"
	mxfp4Scales = "_scales"
)

// apartWeights returns a folder whose weights of MXFP4, of which codes and scales are tensors of their own, are weights of
// float32 under the names of their codes; nil where the configuration does not say that it has any.
func apartWeights(ckpt *loader.Checkpoint) (*loader.Checkpoint, error) {
	fields := make(map[string]json.RawMessage)
	if json.Unmarshal(ckpt.Config, &fields) != nil {
		return nil, nil // whoever reads it says what is wrong
	}
	var how struct {
		Method string `json:"quant_method"`
	}
	if json.Unmarshal(fields["quantization_config"], &how) != nil || how.Method != "mxfp4" {
		return nil, nil
	}
	delete(fields, "quantization_config")
	config, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	var list []tensor.Weight
	for _, w := range ckpt.Weights {
		name, scaled := strings.CutSuffix(w.Name, mxfp4Scales)
		if scaled {
			if _, ok := ckpt.Weight(name + mxfp4Blocks); ok {
				continue
			}
		}
		if name, ok := strings.CutSuffix(w.Name, mxfp4Blocks); ok {
			scales, there := ckpt.Weight(name + mxfp4Scales)
			if !there {
				return nil, fmt.Errorf("%w: %s has no %s%s", loader.ErrFormat, w.Name, name, mxfp4Scales)
			}
			if w, err = apartWeight(w, scales); err != nil {
				return nil, fmt.Errorf("%w: %s: %w", loader.ErrFormat, w.Name, err)
			}
		}
		list = append(list, w)
	}
	made, err := loader.NewCheckpoint(ckpt.Path, list, nil)
	if err != nil {
		return nil, err
	}
	made.Format, made.Config = ckpt.Format, config
	return made, nil
}

// apartWeight returns the weight whose blocks of codes and whose scales are two.
func apartWeight(codes, scales tensor.Weight) (tensor.Weight, error) {
	shape, rank := codes.Layout.Shape, len(codes.Layout.Shape)
	e, ok := encoded.ByName("MXFP4")
	if !ok || codes.DType != tensor.UInt8 || scales.DType != tensor.UInt8 || rank < 3 ||
		int64(shape[rank-1]) != e.Elements/2 ||
		!shape[:rank-1].Equal(scales.Layout.Shape) || !codes.Layout.IsContiguous() || !scales.Layout.IsContiguous() {
		return codes, fmt.Errorf("%v %v with scales of %v %v", codes.DType, shape, scales.DType, scales.Layout.Shape)
	}
	raw, err := encoded.Apart(storageOf(codes), storageOf(scales))
	if err != nil {
		return codes, err
	}
	rows, err := shape[:rank-2].NumElements()
	if err != nil {
		return codes, err
	}
	width, ok := tensor.MulBytes(int64(shape[rank-2]), e.Elements)
	bytes, fits := tensor.MulBytes(rows*4, width)
	if !ok || !fits || rows == 0 {
		return codes, fmt.Errorf("a weight of %v is too large", shape)
	}
	source, at := encoded.New(raw, []encoded.Run{{Encoding: e, Rows: rows, RowElements: width}})
	w := codes
	w.DType = tensor.Float32
	w.Layout = tensor.Contiguous(append(slices.Clone(shape[:rank-2]), int(width))...)
	w.Extent = storage.Extent{Source: source, Offset: at[0], Bytes: bytes}
	return w, nil
}

// storageOf returns where a weight's own bytes lie, which are all in order.
func storageOf(w tensor.Weight) storage.Extent {
	e := w.Extent
	e.Offset += int64(w.Layout.Offset)
	e.Bytes = w.NumElements()
	return e
}
