package models_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

func init() { maps.Copy(quantForms, affineForms) }

func aoConfig(kind string) map[string]any {
	return map[string]any{"quant_method": "torchao", "quant_type": map[string]any{"default": map[string]any{"_type": kind}}}
}

// roundsOf returns small bfloat16.
func roundsOf(seed uint32, n int) []byte {
	var data []byte
	for _, b := range noise(seed, n) {
		data = binary.LittleEndian.AppendUint16(data, tensor.BFloat16FromFloat32((float32(b)-128)/8192))
	}
	return data
}

// aoGroup is how many columns a scale is for.
const aoGroup = 32

// affineForms are folders of torchao, of MLX's codes and of bitnet.
var affineForms = map[string]quantForm{
	"torchao intx": {aoConfig("IntxWeightOnlyConfig"), func(seed uint32, rows, columns int) map[string]heldTensor {
		n := rows * columns / aoGroup
		return map[string]heldTensor{
			"_weight_qdata":      {"I8", []int{rows, columns}, noise(seed, rows*columns)},
			"_weight_scale":      {"F16", []int{rows, columns / aoGroup}, halvesOf(seed+1, rows, columns/aoGroup)},
			"_weight_zero_point": {"I8", []int{rows, columns / aoGroup}, near(0xfd, seed+2, n)},
			"weight":             {saidOf, nil, []byte(`{"_type": "IntxUnpackedToInt8Tensor", "_data": {}}`)},
		}
	}, true},
	"torchao int8 whole": {aoConfig("Int8WeightOnlyConfig"), func(seed uint32, rows, columns int) map[string]heldTensor {
		return map[string]heldTensor{
			"_weight_qdata":      {"I8", []int{rows, columns}, noise(seed, rows*columns)},
			"_weight_scale":      {"F32", []int{1, 1}, singlesOf(seed+1, 1)},
			"_weight_zero_point": {"I8", []int{1, 1}, make([]byte, 1)},
		}
	}, true},
	"torchao int4": {aoConfig("Int4WeightOnlyConfig"), func(seed uint32, rows, columns int) map[string]heldTensor {
		n := rows * columns / aoGroup
		return map[string]heldTensor{
			"_weight_qdata":      {"I8", []int{rows, columns / 2}, noise(seed, rows*columns/2)},
			"_weight_scale":      {"BF16", []int{columns / aoGroup, rows}, roundsOf(seed+1, n)},
			"_weight_zero_point": {"BF16", []int{columns / aoGroup, rows}, roundsOf(seed+2, n)},
		}
	}, true},
	"torchao words": {aoConfig("Int4WeightOnlyConfig"), func(seed uint32, rows, columns int) map[string]heldTensor {
		return map[string]heldTensor{
			"_weight_qdata":      {"I32", []int{rows, columns / 8}, noise(seed, rows*columns/2)},
			"_weight_scale":      {"F16", []int{columns / aoGroup, rows}, halvesOf(seed+1, columns/aoGroup, rows)},
			"_weight_zero_point": {"I8", []int{columns / aoGroup, rows}, near(3, seed+2, rows*columns/aoGroup)},
		}
	}, true},
	"torchao tiles": {aoConfig("FqnToConfig"), func(seed uint32, rows, columns int) map[string]heldTensor {
		high, wide := (rows+7)/8*8, (columns+1023)/1024*1024
		said := fmt.Sprintf(`{"_type": "Int4TilePackedTo4dTensor", "_data": {"block_size": [1, %d], "shape": [%d, %d]}}`, aoGroup, rows, columns)
		return map[string]heldTensor{
			"_weight_qdata":          {"I32", []int{high / 8, wide / 128, 32, 4}, noise(seed, high*wide/2)},
			"_weight_scale_and_zero": {"BF16", []int{wide / aoGroup, high, 2}, roundsOf(seed+1, wide/aoGroup*high*2)},
			"weight":                 {saidOf, nil, []byte(said)},
		}
	}, true},
	"metal": {
		map[string]any{"quant_method": "metal", "bits": 4, "group_size": aoGroup},
		func(seed uint32, rows, columns int) map[string]heldTensor {
			n := rows * columns / aoGroup
			return map[string]heldTensor{
				"weight":  {"U32", []int{rows, columns / 8}, noise(seed, rows*columns/2)},
				"scales":  {"BF16", []int{rows, columns / aoGroup}, roundsOf(seed+1, n)},
				"qbiases": {"BF16", []int{rows, columns / aoGroup}, roundsOf(seed+2, n)},
			}
		}, true,
	},
	"bitnet": {map[string]any{"quant_method": "bitnet"}, bitnetTensors, true},
	"bitnet auto": {
		map[string]any{"quant_method": "bitnet", "linear_class": "autobitlinear", "quantization_mode": "offline"}, bitnetTensors, true,
	},
}

func bitnetTensors(seed uint32, rows, columns int) map[string]heldTensor {
	codes := noise(seed, rows/4*columns)
	for i, c := range codes {
		codes[i] = c &^ (c >> 1 & 0x55) // no 3
	}
	return map[string]heldTensor{
		"weight":       {"U8", []int{rows / 4, columns}, codes},
		"weight_scale": {"BF16", []int{1}, binary.LittleEndian.AppendUint16(nil, tensor.BFloat16FromFloat32(2.5))},
	}
}

// TestFormsOfTorchAO: the tensors of the folders that are tried are those that torchao writes.
func TestFormsOfTorchAO(t *testing.T) {
	var recorded struct {
		Written map[string]struct {
			Tensors  map[string][]any
			Metadata string
		}
	}
	text, err := os.ReadFile("../tensor/encoded/testdata/torchao.json")
	if err == nil {
		err = json.Unmarshal(text, &recorded)
	}
	if err != nil {
		t.Fatal(err)
	}
	dtypes := map[string]string{"I8": "int8", "I32": "int32", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F8_E4M3": "float8_e4m3fn"}
	for form, name := range map[string]string{
		"torchao intx": "intx 4 32 zeros", "torchao int8 whole": "int8 whole", "torchao words": "int4 words half", "torchao of float8": "float8",
		"torchao tiles": "tiles", "torchao int4": "int4",
	} {
		want, seen := recorded.Written[name], 0
		for kind, x := range quantForms[form].tensors(1, 24, 256) {
			if x.dtype == saidOf {
				continue
			}
			seen++
			w := want.Tensors["m."+kind]
			if len(w) != 2 || w[0] != dtypes[x.dtype] || len(w[1].([]any)) != len(x.shape) {
				t.Errorf("%s: %s is %s%v, recorded %v", form, kind, x.dtype, x.shape, w)
			}
		}
		if seen != len(want.Tensors) {
			t.Errorf("%s: %d tensors, recorded %v", form, seen, want.Tensors)
		}
		if !bytes.Contains([]byte(want.Metadata), []byte(`"_type"`)) {
			t.Errorf("%s: recorded %q", form, want.Metadata)
		}
	}
}

// TestTorchAOSaved: what torch.save wrote of torchao's weights has their numbers, and runs.
func TestTorchAOSaved(t *testing.T) {
	packed, err := os.Open("testdata/torchao.bin.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	r, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	file, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	config, _ := tinyLlama()
	maps.Copy(config, map[string]any{
		"hidden_size": 32, "intermediate_size": 32, "num_key_value_heads": 4, "torch_dtype": "bfloat16",
		"quantization_config": aoConfig("Int8WeightOnlyConfig"),
	})
	folder := t.TempDir()
	text, err := json.Marshal(config)
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, "config.json"), text, 0o600)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, "pytorch_model.bin"), file, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	model := openFolder(t, folder)
	seen := 0
	for _, w := range model.Weights() {
		if !strings.HasSuffix(w.Name, "_proj.weight") {
			continue
		}
		seen++
		raw := make([]byte, w.Bytes())
		if err := w.Span().ReadAt(t.Context(), raw, 0); err != nil {
			t.Fatal(err)
		}
		for i := range 32 * 32 {
			r, c := i/32, i%32
			want := rounded16(float32((r*7+c*3)%251-125) * float32(r+1) / 1024)
			if got := math.Float32frombits(binary.NativeEndian.Uint32(raw[4*i:])); got != want {
				t.Fatalf("%s: [%d %d] is %v, want %v", w.Name, r, c, got, want)
			}
		}
	}
	if seen != len(quantModules) {
		t.Errorf("%d weights", seen)
	}
	ggufLogits(t, model, optimem.Values{"input_ids": tensor.Of([]int64{3, 1, 4}, 1, 3)}, false)
}

func rounded16(x float32) float32 { return tensor.BFloat16ToFloat32(tensor.BFloat16FromFloat32(x)) }
