package loader

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/optimem/optimem/tensor"
)

// safetensorsDTypes lists the dtypes of safetensors in the order in which the reference library writes their tensors,
// which aligns them: the widest first.
var safetensorsDTypes = []struct {
	dtype tensor.DType
	name  string
}{
	{tensor.UInt64, "U64"}, {tensor.Int64, "I64"}, {tensor.Float64, "F64"}, {tensor.Complex64, "C64"},
	{tensor.Float32, "F32"}, {tensor.UInt32, "U32"}, {tensor.Int32, "I32"},
	{tensor.BFloat16, "BF16"}, {tensor.Float16, "F16"}, {tensor.UInt16, "U16"}, {tensor.Int16, "I16"},
	{tensor.Float8E5M2FNUZ, "F8_E5M2FNUZ"}, {tensor.Float8E4M3FNUZ, "F8_E4M3FNUZ"}, {tensor.Float8E8M0FNU, "F8_E8M0"},
	{tensor.Float8E4M3FN, "F8_E4M3"}, {tensor.Float8E5M2, "F8_E5M2"},
	{tensor.Int8, "I8"}, {tensor.UInt8, "U8"}, {tensor.Bool, "BOOL"},
}

// WriteSafetensors writes the tensors in the safetensors format, as the reference library would: ordered by dtype, the
// widest first, then by name. Metadata is what the file says about itself; the transformers library wants
// {"format": "pt"}. The tensors' bytes pass through a buffer of 1 MiB. The same tensors give the same file.
func WriteSafetensors(ctx context.Context, w io.Writer, tensors []TensorData, metadata map[string]string) error {
	sorted, header, err := layOut(tensors, metadata)
	if err != nil {
		return err
	}
	if _, err := w.Write(header); err != nil {
		return err
	}
	most := int64(0)
	for _, t := range sorted {
		size, err := t.bytes()
		if err != nil {
			return err
		}
		most = max(most, size)
	}
	buf := make([]byte, min(most, copyBytes)) // of many small files each would else take a large one
	for _, t := range sorted {
		size, err := t.bytes()
		if err != nil {
			return err
		}
		if err := t.copyTo(ctx, w, size, buf); err != nil {
			return err
		}
	}
	return nil
}

// LayOutSafetensors returns what the file that [WriteSafetensors] would write begins with, and where in the file the bytes of each
// tensor are, for those who write them in another order. The tensors' ReadAt are not called.
func LayOutSafetensors(tensors []TensorData, metadata map[string]string) (head []byte, offsets []int64, err error) {
	sorted, head, err := layOut(tensors, metadata)
	if err != nil {
		return nil, nil, err
	}
	at, off := make(map[string]int64, len(sorted)), int64(len(head))
	for _, t := range sorted {
		size, err := t.bytes()
		if err != nil {
			return nil, nil, err
		}
		at[t.Name] = off
		off += size
	}
	offsets = make([]int64, len(tensors))
	for i, t := range tensors {
		offsets[i] = at[t.Name]
	}
	return head, offsets, nil
}

// layOut returns the tensors in the order in which they are written, and what the file begins with.
func layOut(tensors []TensorData, metadata map[string]string) (sorted []TensorData, header []byte, err error) {
	rank := make(map[tensor.DType]int, len(safetensorsDTypes))
	for i, d := range safetensorsDTypes {
		rank[d.dtype] = i
	}
	sorted = slices.Clone(tensors)
	for i, t := range sorted {
		if _, ok := rank[t.DType]; !ok {
			return nil, nil, fmt.Errorf("%s: %w: safetensors has no dtype %v", t.Name, ErrUnsupported, t.DType)
		}
		if !utf8.ValidString(t.Name) || t.Name == safetensorsMetadata {
			return nil, nil, fmt.Errorf("%q cannot be the name of a tensor in a safetensors file", t.Name)
		}
		if t.Shape == nil {
			sorted[i].Shape = tensor.Shape{}
		}
	}
	slices.SortFunc(sorted, func(s, t TensorData) int {
		return cmp.Or(cmp.Compare(rank[s.DType], rank[t.DType]), cmp.Compare(s.Name, t.Name))
	})
	header, err = safetensorsHeader(sorted, rank, metadata)
	return sorted, header, err
}

const safetensorsMetadata = "__metadata__"

// safetensorsHeader returns everything before the first tensor's bytes: the length, the JSON text and the spaces that
// make it a multiple of 8.
func safetensorsHeader(sorted []TensorData, rank map[tensor.DType]int, metadata map[string]string) ([]byte, error) {
	var b bytes.Buffer
	b.Write(make([]byte, 8))
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	encode := func(v any) error {
		if err := enc.Encode(v); err != nil {
			return err
		}
		b.Truncate(b.Len() - 1) // the encoder's line feed
		return nil
	}
	pair := func(first *bool, key string, v any) error {
		if !*first {
			b.WriteByte(',')
		}
		*first = false
		if err := encode(key); err != nil {
			return err
		}
		b.WriteByte(':')
		return encode(v)
	}
	first := true
	b.WriteByte('{')
	if len(metadata) > 0 {
		for _, k := range slices.Sorted(maps.Keys(metadata)) {
			if !utf8.ValidString(k) || !utf8.ValidString(metadata[k]) {
				return nil, fmt.Errorf("metadata %q is not UTF-8", k)
			}
		}
		if err := pair(&first, safetensorsMetadata, metadata); err != nil {
			return nil, err
		}
	}
	seen := make(map[string]bool, len(sorted))
	off := int64(0)
	for _, t := range sorted {
		if seen[t.Name] {
			return nil, fmt.Errorf("two tensors are named %q", t.Name)
		}
		seen[t.Name] = true
		size, err := t.bytes()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.Name, err)
		}
		end := off + size
		if end < off {
			return nil, fmt.Errorf("%s: %w: the file would take more than 2^63 bytes", t.Name, tensor.ErrLayout)
		}
		entry := struct {
			DType   string       `json:"dtype"`
			Shape   tensor.Shape `json:"shape"`
			Offsets [2]int64     `json:"data_offsets"`
		}{safetensorsDTypes[rank[t.DType]].name, t.Shape, [2]int64{off, end}}
		if err := pair(&first, t.Name, entry); err != nil {
			return nil, err
		}
		off = end
	}
	b.WriteByte('}')
	for b.Len()%8 != 0 {
		b.WriteByte(' ')
	}
	p := b.Bytes()
	binary.LittleEndian.PutUint64(p, uint64(len(p)-8))
	return p, nil
}
