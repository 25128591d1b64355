package models_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
	"github.com/optimem/optimem/tensor/encoded"
)

// A heldTensor is one of a safetensors file.
type heldTensor struct {
	dtype string
	shape []int
	data  []byte
}

// saidOf is the dtype of what is no tensor, but said of the one of its name.
const saidOf = "said"

// writeFolder writes a Hugging Face folder.
func writeFolder(t *testing.T, config map[string]any, tensors map[string]heldTensor) string {
	t.Helper()
	folder := t.TempDir()
	header, data := make(map[string]any), []byte{}
	said := make(map[string]string)
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		x := tensors[name]
		if x.dtype == saidOf {
			said[name] = string(x.data)
			header["__metadata__"] = said
			continue
		}
		header[name] = map[string]any{"dtype": x.dtype, "shape": x.shape, "data_offsets": []int{len(data), len(data) + len(x.data)}}
		data = append(data, x.data...)
	}
	text, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	file := append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), append(text, data...)...)
	write := func(name string, data []byte) {
		if err := os.WriteFile(filepath.Join(folder, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("model.safetensors", file)
	text, err = json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	write("config.json", text)
	return folder
}

// tinyLlama is a configuration, and its tensors that are not quantised.
func tinyLlama() (map[string]any, map[string]heldTensor) {
	config := map[string]any{
		"architectures": []string{"LlamaForCausalLM"}, "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 1,
		"num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 32, "rms_norm_eps": 1e-5,
		"max_position_embeddings": 64, "tie_word_embeddings": false, "torch_dtype": "float16",
	}
	tensors := make(map[string]heldTensor)
	for i, name := range []string{
		"model.embed_tokens.weight", "lm_head.weight", "model.norm.weight", "model.layers.0.input_layernorm.weight",
		"model.layers.0.post_attention_layernorm.weight",
	} {
		shape := []int{64}
		if i < 2 {
			shape = []int{32, 64}
		}
		tensors[name] = heldTensor{"F16", shape, halvesOf(uint32(i), shape...)}
	}
	return config, tensors
}

// quantModules are the linears of tinyLlama, rows by columns.
var quantModules = map[string][2]int{
	"self_attn.q_proj": {64, 64}, "self_attn.k_proj": {32, 64}, "self_attn.v_proj": {32, 64}, "self_attn.o_proj": {64, 64},
	"mlp.gate_proj": {128, 64}, "mlp.up_proj": {128, 64}, "mlp.down_proj": {64, 128},
}

// noise returns pseudo-random bytes.
func noise(seed uint32, n int) []byte {
	data := make([]byte, n)
	for i := range data {
		seed = seed*1664525 + 1013904223
		data[i] = byte(seed >> 24)
	}
	return data
}

// halvesOf returns float16 between ½ and 1, as scales and norms may be; small ones where the seed is even.
func halvesOf(seed uint32, shape ...int) []byte {
	n := 1
	for _, d := range shape {
		n *= d
	}
	var data []byte
	for _, b := range noise(seed, n) {
		x := float32(b)/512 + 0.5
		if len(shape) > 1 {
			x = (float32(b) - 128) / 1024
		}
		data = binary.LittleEndian.AppendUint16(data, tensor.Float16FromFloat32(x))
	}
	return data
}

// A quantForm is a configuration of quantised folders, and the tensors of a module.
type quantForm struct {
	config  map[string]any
	tensors func(seed uint32, rows, columns int) map[string]heldTensor
	// encoded says that blocks are in memory.
	encoded bool
}

// quantForms are those that are read; affineForms are, too.
var quantForms = map[string]quantForm{
	"awq": {
		map[string]any{"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm", "zero_point": true},
		func(seed uint32, rows, columns int) map[string]heldTensor {
			return map[string]heldTensor{
				"qweight": {"I32", []int{columns, rows / 8}, noise(seed, columns*rows/2)},
				"qzeros":  {"I32", []int{columns / 32, rows / 8}, noise(seed+1, columns/32*rows/2)},
				"scales":  {"F16", []int{columns / 32, rows}, halvesOf(seed+2, columns/32, rows)},
			}
		}, true,
	},
	"gptq": {
		map[string]any{"quant_method": "gptq", "bits": 4, "group_size": 64, "desc_act": false, "checkpoint_format": "gptq"},
		func(seed uint32, rows, columns int) map[string]heldTensor {
			return gptqTensors(seed, rows, columns, false)
		}, true,
	},
	"gptq in the order of activations": {
		map[string]any{"quant_method": "gptq", "bits": 4, "group_size": 64, "desc_act": true, "checkpoint_format": "gptq_v2"},
		func(seed uint32, rows, columns int) map[string]heldTensor {
			return gptqTensors(seed, rows, columns, true)
		}, false,
	},
	"fp8": {
		map[string]any{"quant_method": "fp8", "weight_block_size": []int{32, 64}, "activation_scheme": "dynamic"},
		func(seed uint32, rows, columns int) map[string]heldTensor {
			codes := bytes.ReplaceAll(noise(seed, rows*columns), []byte{0x7f}, []byte{0})
			codes = bytes.ReplaceAll(codes, []byte{0xff}, []byte{0x80}) // else all is NaN
			return map[string]heldTensor{
				"weight":           {"F8_E4M3", []int{rows, columns}, codes},
				"weight_scale_inv": {"F32", []int{rows / 32, columns / 64}, singlesOf(seed+1, rows/32*columns/64)},
			}
		}, true,
	},
	"compressed-tensors": {
		map[string]any{"quant_method": "compressed-tensors", "format": "pack-quantized"},
		func(seed uint32, rows, columns int) map[string]heldTensor {
			shape := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(rows)), uint64(columns))
			return map[string]heldTensor{
				"weight_packed": {"I32", []int{rows, columns / 8}, noise(seed, rows*columns/2)},
				"weight_scale":  {"F16", []int{rows, columns / 32}, halvesOf(seed+1, rows, columns/32)},
				"weight_shape":  {"I64", []int{2}, shape},
			}
		}, true,
	},
	"bitsandbytes": {
		map[string]any{"quant_method": "bitsandbytes", "load_in_4bit": true, "bnb_4bit_quant_type": "nf4"},
		func(seed uint32, rows, columns int) map[string]heldTensor {
			state := fmt.Sprintf(`{"quant_type": "nf4", "blocksize": 64, "dtype": "float16", "shape": [%d, %d]}`, rows, columns)
			var table []byte
			values, _ := encoded.TableOf("NF4")
			for _, x := range values {
				table, _ = binary.Append(table, binary.LittleEndian, x)
			}
			return map[string]heldTensor{
				"weight":                               {"U8", []int{rows * columns / 2, 1}, noise(seed, rows*columns/2)},
				"weight.absmax":                        {"F32", []int{rows * columns / 64}, singlesOf(seed+1, rows*columns/64)},
				"weight.quant_map":                     {"F32", []int{16}, table},
				"weight.quant_state.bitsandbytes__nf4": {"U8", []int{len(state)}, []byte(state)},
			}
		}, true,
	},
	"torchao": {
		map[string]any{"quant_method": "torchao", "quant_type": map[string]any{"default": map[string]any{"_type": "Int8WeightOnlyConfig"}}},
		func(seed uint32, rows, columns int) map[string]heldTensor {
			return map[string]heldTensor{
				"_weight_qdata":      {"I8", []int{rows, columns}, noise(seed, rows*columns)},
				"_weight_scale":      {"F32", []int{rows, columns / 32}, singlesOf(seed+1, rows*columns/32)},
				"_weight_zero_point": {"I8", []int{rows, columns / 32}, make([]byte, rows*columns/32)},
			}
		}, true,
	},
	"torchao of float8": {
		map[string]any{"quant_method": "torchao", "quant_type": map[string]any{"default": map[string]any{"_type": "Float8WeightOnlyConfig"}}},
		func(seed uint32, rows, columns int) map[string]heldTensor {
			codes := bytes.ReplaceAll(noise(seed, rows*columns), []byte{0x7f}, []byte{0})
			return map[string]heldTensor{
				"_weight_qdata": {"F8_E4M3", []int{rows, columns}, bytes.ReplaceAll(codes, []byte{0xff}, []byte{0x80})},
				"_weight_scale": {"F32", []int{rows, 1}, singlesOf(seed+1, rows)},
			}
		}, true,
	},
	"bitsandbytes of bytes": {
		map[string]any{"quant_method": "bitsandbytes", "load_in_8bit": true},
		func(seed uint32, rows, columns int) map[string]heldTensor {
			return map[string]heldTensor{
				"weight":        {"I8", []int{rows, columns}, noise(seed, rows*columns)},
				"SCB":           {"F32", []int{rows}, singlesOf(seed+1, rows)},
				"weight_format": {"U8", []int{}, []byte{0}},
			}
		}, true,
	},
	"hqq": {
		map[string]any{"quant_method": "hqq", "quant_config": map[string]any{"weight_quant_params": map[string]any{"nbits": 4, "axis": 1}}},
		func(seed uint32, rows, columns int) map[string]heldTensor {
			return hqqTensors(seed, rows, columns, false)
		}, true,
	},
	"hqq across": {
		map[string]any{"quant_method": "hqq", "quant_config": map[string]any{"mlp.up_proj": map[string]any{}}},
		func(seed uint32, rows, columns int) map[string]heldTensor {
			return hqqTensors(seed, rows, columns, true)
		}, false,
	},
	"fbgemm_fp8": {
		map[string]any{"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0},
		func(seed uint32, rows, columns int) map[string]heldTensor {
			codes := bytes.ReplaceAll(noise(seed, rows*columns), []byte{0x7f}, []byte{0})
			return map[string]heldTensor{
				"weight":       {"F8_E4M3", []int{rows, columns}, bytes.ReplaceAll(codes, []byte{0xff}, []byte{0x80})},
				"weight_scale": {"F32", []int{rows, 1}, singlesOf(seed+1, rows)},
			}
		}, true,
	},
	"gptq of 3 bits": {
		map[string]any{"quant_method": "gptq", "bits": 3, "group_size": 64, "checkpoint_format": "gptq"},
		func(seed uint32, rows, columns int) map[string]heldTensor {
			return map[string]heldTensor{
				"qweight": {"I32", []int{columns / 32 * 3, rows}, noise(seed, columns/32*3*rows*4)},
				"qzeros":  {"I32", []int{columns / 64, rows / 32 * 3}, noise(seed+1, columns/64*rows/32*3*4)},
				"scales":  {"F16", []int{columns / 64, rows}, halvesOf(seed+2, columns/64, rows)},
			}
		}, true,
	},
	"compressed-tensors of bytes": {
		map[string]any{"quant_method": "compressed-tensors", "format": "int-quantized"},
		func(seed uint32, rows, columns int) map[string]heldTensor {
			return map[string]heldTensor{
				"weight":       {"I8", []int{rows, columns}, noise(seed, rows*columns)},
				"weight_scale": {"F16", []int{rows, 1}, halvesOf(seed+1, rows, 1)},
			}
		}, true,
	},
	"compressed-tensors nvfp4": {
		map[string]any{"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"},
		func(seed uint32, rows, columns int) map[string]heldTensor {
			return map[string]heldTensor{
				"weight_packed":       {"U8", []int{rows, columns / 2}, noise(seed, rows*columns/2)},
				"weight_scale":        {"F8_E4M3", []int{rows, columns / 16}, near(0x38, seed+1, rows*columns/16)},
				"weight_global_scale": {"F32", []int{1}, binary.LittleEndian.AppendUint32(nil, math.Float32bits(37.5))},
				"input_global_scale":  {"F32", []int{1}, make([]byte, 4)},
			}
		}, true,
	},
	"compressed-tensors mxfp4": {
		map[string]any{"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized"},
		func(seed uint32, rows, columns int) map[string]heldTensor {
			return map[string]heldTensor{
				"weight_packed": {"U8", []int{rows, columns / 2}, noise(seed, rows*columns/2)},
				"weight_scale":  {"U8", []int{rows, columns / 32}, near(122, seed+1, rows*columns/32)},
			}
		}, true,
	},
	"compressed-tensors mxfp8": {
		map[string]any{"quant_method": "compressed-tensors", "format": "mxfp8-quantized"},
		func(seed uint32, rows, columns int) map[string]heldTensor {
			return map[string]heldTensor{
				"weight":       {"F8_E4M3", []int{rows, columns}, near(0x30, seed, rows*columns)},
				"weight_scale": {"U8", []int{rows, columns / 32}, near(124, seed+1, rows*columns/32)},
			}
		}, true,
	},
}

// near are bytes from a number on, no more than seven further.
func near(first byte, seed uint32, n int) []byte {
	data := noise(seed, n)
	for i := range data {
		data[i] = first + data[i]&7
	}
	return data
}

func gptqTensors(seed uint32, rows, columns int, order bool) map[string]heldTensor {
	var index []byte
	for k := range columns {
		g := k / 64
		if order {
			g = k % ((columns + 63) / 64)
		}
		index = binary.LittleEndian.AppendUint32(index, uint32(g))
	}
	if order && columns == 64 { // one group: any order of columns is in order
		index = index[:0]
		for range columns {
			index = binary.LittleEndian.AppendUint32(index, 0)
		}
	}
	return map[string]heldTensor{
		"qweight": {"I32", []int{columns / 8, rows}, noise(seed, columns*rows/2)},
		"qzeros":  {"I32", []int{columns / 64, rows / 8}, noise(seed+1, columns/64*rows/2)},
		"scales":  {"F16", []int{columns / 64, rows}, halvesOf(seed+2, columns/64, rows)},
		"g_idx":   {"I32", []int{columns}, index},
	}
}

// hqqTensors are those of transformers' HqqConfig, whose modules say how they lie where across is true.
func hqqTensors(seed uint32, rows, columns int, across bool) map[string]heldTensor {
	groups := rows * columns / 64
	shape := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(rows)), uint64(columns))
	x := map[string]heldTensor{
		"W_q": {"U8", []int{groups / 2, 64}, noise(seed, rows*columns/2)}, "shape": {"I64", []int{2}, shape},
		"scale": {"F16", []int{groups, 1}, halvesOf(seed+1, groups, 1)}, "zero": {"F16", []int{groups, 1}, halvesOf(seed+2, groups)},
		"round_zero": {"U8", []int{}, []byte{0}},
	}
	if across {
		x["W_q"] = heldTensor{"F16", []int{16, groups}, noise(seed, rows*columns/2)} // bytes as halves
		x["axis"], x["nbits"] = heldTensor{"I32", []int{}, make([]byte, 4)}, heldTensor{"I32", []int{}, []byte{4, 0, 0, 0}}
		x["packing"] = heldTensor{"U8", []int{7}, []byte("4bit_u8")}
		x["compute_dtype"] = heldTensor{"U8", []int{13}, []byte("torch.float16")}
	}
	return x
}

// singlesOf returns small float32.
func singlesOf(seed uint32, n int) []byte {
	var data []byte
	for _, b := range noise(seed, n) {
		data, _ = binary.Append(data, binary.LittleEndian, (float32(b)+1)/65536)
	}
	return data
}

// quantFolder returns what a folder of a form has.
func quantFolder(name string) (map[string]any, map[string]heldTensor) {
	form := quantForms[name]
	config, tensors := tinyLlama()
	config["quantization_config"] = form.config
	seed := uint32(100)
	for _, module := range slices.Sorted(maps.Keys(quantModules)) {
		size := quantModules[module]
		for kind, x := range form.tensors(seed, size[0], size[1]) {
			tensors["model.layers.0."+module+"."+kind] = x
		}
		seed += 10
	}
	return config, tensors
}

// TestQuantizedFoldersRun: a folder of quantised weights computes, to the bit, what the folder of their numbers does, in memory and
// paged, and its weights are blocks in memory where they can be.
func TestQuantizedFoldersRun(t *testing.T) {
	for name, form := range quantForms {
		t.Run(name, func(t *testing.T) {
			config, tensors := quantFolder(name)
			model := openFolder(t, writeFolder(t, config, tensors))
			delete(config, "quantization_config")
			plain := make(map[string]heldTensor)
			for _, w := range model.Weights() {
				raw := make([]byte, w.Bytes())
				if err := w.Span().ReadAt(t.Context(), raw, 0); err != nil {
					t.Fatal(err)
				}
				dtype := map[tensor.DType]string{tensor.Float32: "F32", tensor.Float16: "F16", tensor.BFloat16: "BF16"}[w.DType]
				plain[w.Name] = heldTensor{dtype, w.Layout.Shape, raw}
			}
			reference := openFolder(t, writeFolder(t, config, plain))
			ids := tensor.Of([]int64{3, 1, 4, 1, 5, 9, 2, 6}, 1, 8)
			for _, page := range []bool{false, true} {
				got := ggufLogits(t, model, optimem.Values{"input_ids": ids}, page)
				want := ggufLogits(t, reference, optimem.Values{"input_ids": ids}, page)
				if !bytes.Equal(got.Data, want.Data) {
					t.Errorf("paged %v: other bits than those of the numbers", page)
				}
			}
			session, err := optimem.Resident(t.Context(), model, optimem.ResidentOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close()
			p, err := session.Plan(t.Context(), map[string]tensor.Shape{"input_ids": {1, 1}})
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for _, e := range p.Encodings() {
				n += e.Weights
			}
			if want := len(quantModules); form.encoded && n != want || !form.encoded && n >= want {
				t.Errorf("%d weights are blocks in memory: %+v", n, p.Encodings())
			}
		})
	}
}

// TestFormatsOfGPTQ: what stands for nothing is one more than the first format says, modulo 16, and what the second says.
func TestFormatsOfGPTQ(t *testing.T) {
	for format, more := range map[string]byte{"": 1, "gptq": 1, "gptq_v2": 0} {
		config, tensors := quantFolder("gptq")
		config["quantization_config"] = map[string]any{"quant_method": "gptq", "bits": 4, "group_size": 64, "checkpoint_format": format}
		model := openFolder(t, writeFolder(t, config, tensors))
		const module = "model.layers.0.mlp.up_proj."
		code, zero := tensors[module+"qweight"].data[0]&15, (tensors[module+"qzeros"].data[0]+more)&15
		scale := tensor.Float16ToFloat32(binary.LittleEndian.Uint16(tensors[module+"scales"].data))
		product := (float32(code) - float32(zero)) * scale
		want := tensor.Float16ToFloat32(tensor.Float16FromFloat32(product))
		found := false
		for _, w := range model.Weights() {
			if w.Name != module+"weight" {
				continue
			}
			found = true
			var raw [4]byte
			if err := w.Span().ReadAt(t.Context(), raw[:], 0); err != nil {
				t.Fatal(err)
			}
			if got := math.Float32frombits(binary.NativeEndian.Uint32(raw[:])); got != want {
				t.Errorf("%q: %v, want %v", format, got, want)
			}
		}
		if !found {
			t.Errorf("%q: there is no %sweight", format, module)
		}
	}
}

func openFolder(t *testing.T, folder string) *models.Model {
	t.Helper()
	ckpt, err := loader.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ckpt.Close() })
	model, err := models.Build(ckpt, models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return model
}

// TestQuantizedFoldersThatDoNotRun: methods that are not known are refused by name, and tensors that are missing, or of another
// size, are the file's fault, by name.
func TestQuantizedFoldersThatDoNotRun(t *testing.T) {
	const proj = "model.layers.0.mlp.up_proj."
	for _, c := range []struct {
		form, want string
		change     func(config map[string]any, tensors map[string]heldTensor)
	}{
		{"awq", `weights quantised by "aqlm"; those that are read are awq`, func(c map[string]any, _ map[string]heldTensor) {
			c["quantization_config"] = map[string]any{"quant_method": "aqlm"}
		}},
		{"hqq", proj + "zero is missing", func(_ map[string]any, x map[string]heldTensor) { delete(x, proj+"zero") }},
		{"hqq", proj + "W_q has 5 bytes, which 128 × 64 codes of 4 bits in groups of 64 do not", func(_ map[string]any, x map[string]heldTensor) {
			x[proj+"W_q"] = heldTensor{"U8", []int{5}, make([]byte, 5)}
		}},
		{"hqq", proj + "scale has 3 numbers", func(_ map[string]any, x map[string]heldTensor) {
			x[proj+"scale"] = heldTensor{"F16", []int{3}, make([]byte, 6)}
		}},
		{"hqq", proj + "shape is of float16", func(_ map[string]any, x map[string]heldTensor) {
			x[proj+"shape"] = heldTensor{"F16", []int{2}, make([]byte, 4)}
		}},
		{"hqq", proj + "scale has 128 numbers, and " + proj + "zero 128, for -1 × 64 weights", func(_ map[string]any, x map[string]heldTensor) {
			shape := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, ^uint64(0)), 64)
			x[proj+"shape"] = heldTensor{"I64", []int{2}, shape}
		}},
		{"hqq across", proj + `packing, which is "7bit__"`, func(_ map[string]any, x map[string]heldTensor) {
			x[proj+"packing"] = heldTensor{"U8", []int{6}, []byte("7bit__")}
		}},
		{"hqq across", proj + `compute_dtype, "torch.bfloat16", where`, func(_ map[string]any, x map[string]heldTensor) {
			x[proj+"compute_dtype"] = heldTensor{"U8", []int{14}, []byte("torch.bfloat16")}
		}},
		{"fbgemm_fp8", proj + "weight is of float16", func(_ map[string]any, x map[string]heldTensor) {
			x[proj+"weight"] = heldTensor{"F16", []int{128, 64}, make([]byte, 2*128*64)}
		}},
		{"bitsandbytes", `"bitsandbytes", neither in 8 bits nor in 4`, func(c map[string]any, _ map[string]heldTensor) {
			c["quantization_config"] = map[string]any{"quant_method": "bitsandbytes"}
		}},
		{"torchao", `"torchao", quant_type "UIntXWeightOnlyConfig"`, func(c map[string]any, _ map[string]heldTensor) {
			c["quantization_config"] = aoConfig("UIntXWeightOnlyConfig")
		}},
		{"torchao", `quant_type "\"int4_weight_only\""`, func(c map[string]any, _ map[string]heldTensor) {
			c["quantization_config"] = map[string]any{"quant_method": "torchao", "quant_type": "int4_weight_only"}
		}},
		{"torchao", proj + `_weight_act_pre_scale, by which inputs are multiplied`, func(_ map[string]any, x map[string]heldTensor) {
			x[proj+"_weight_act_pre_scale"] = heldTensor{"F16", []int{64}, make([]byte, 128)}
		}},
		{"torchao", proj + `_weight_qdata, a NVFP4Tensor`, func(_ map[string]any, x map[string]heldTensor) {
			x[proj+"weight"] = heldTensor{saidOf, nil, []byte(`{"_type": "NVFP4Tensor", "_data": {}}`)}
		}},
		{"torchao", "what is said of " + proj + "weight", func(_ map[string]any, x map[string]heldTensor) {
			x[proj+"weight"] = heldTensor{saidOf, nil, []byte(`{"_type": 3`)}
		}},
		{"torchao int4", "has the shape [3 128], where the weight is [128 64]", func(_ map[string]any, x map[string]heldTensor) {
			x[proj+"_weight_scale"] = heldTensor{"BF16", []int{3, 128}, make([]byte, 3*128*2)}
		}},
		{"torchao words", proj + "_weight_zero_point is missing", func(_ map[string]any, x map[string]heldTensor) {
			delete(x, proj+"_weight_zero_point")
		}},
		{"torchao tiles", `of the shape [16 8 32 2]`, func(_ map[string]any, x map[string]heldTensor) {
			x[proj+"_weight_qdata"] = heldTensor{"I32", []int{16, 8, 32, 2}, make([]byte, 16*8*32*2*4)}
		}},
		{"torchao tiles", "has tiles of [128 1024], where the weight is [129 64]", func(_ map[string]any, x map[string]heldTensor) {
			x[proj+"weight"] = heldTensor{saidOf, nil, []byte(`{"_type": "Int4TilePackedTo4dTensor", "_data": {"shape": [129, 64]}}`)}
		}},
		{"torchao tiles", "has the shape [32 127 2]", func(_ map[string]any, x map[string]heldTensor) {
			x[proj+"_weight_scale_and_zero"] = heldTensor{"BF16", []int{32, 127, 2}, make([]byte, 32*127*4)}
		}},
		{"torchao words", `int32 with zero points of float16`, func(_ map[string]any, x map[string]heldTensor) {
			x[proj+"_weight_zero_point"] = heldTensor{"F16", []int{2, 128}, make([]byte, 512)}
		}},
		{"metal", `"metal" with 3 bits`, func(c map[string]any, _ map[string]heldTensor) {
			c["quantization_config"] = map[string]any{"quant_method": "metal", "bits": 3, "group_size": 32}
		}},
		{"metal", proj + "qbiases is missing", func(_ map[string]any, x map[string]heldTensor) { delete(x, proj+"qbiases") }},
		{"metal", proj + "qbiases has the shape [1], where [128 2] fits", func(_ map[string]any, x map[string]heldTensor) {
			x[proj+"qbiases"] = heldTensor{"BF16", []int{1}, make([]byte, 2)}
		}},
		{"metal", "128 columns, no multiple of 48", func(c map[string]any, _ map[string]heldTensor) {
			c["quantization_config"] = map[string]any{"quant_method": "metal", "bits": 4, "group_size": 48}
		}},
		{"bitnet", `"bitnet", quantization_mode "online"`, func(c map[string]any, _ map[string]heldTensor) {
			c["quantization_config"] = map[string]any{"quant_method": "bitnet", "quantization_mode": "online"}
		}},
		{"bitnet", `"bitnet", use_rms_norm`, func(c map[string]any, _ map[string]heldTensor) {
			c["quantization_config"] = map[string]any{"quant_method": "bitnet", "use_rms_norm": true}
		}},
		{"bitnet", proj + "weight is of int8", func(_ map[string]any, x map[string]heldTensor) {
			x[proj+"weight"] = heldTensor{"I8", []int{32, 64}, make([]byte, 32*64)}
		}},
		{"bitnet", proj + "weight_scale has the shape [2]", func(_ map[string]any, x map[string]heldTensor) {
			x[proj+"weight_scale"] = heldTensor{"F32", []int{2}, make([]byte, 8)}
		}},
		{"torchao", proj + "_weight_scale is missing", func(_ map[string]any, x map[string]heldTensor) { delete(x, proj+"_weight_scale") }},
		{"torchao", proj + "_weight_zero_point has the shape [2]", func(_ map[string]any, x map[string]heldTensor) {
			x[proj+"_weight_zero_point"] = heldTensor{"I8", []int{2}, make([]byte, 2)}
		}},
		{"bitsandbytes of bytes", proj + "SCB has the shape [3], where [128] fits", func(_ map[string]any, x map[string]heldTensor) {
			x[proj+"SCB"] = heldTensor{"F32", []int{3}, make([]byte, 12)}
		}},
		{"gptq of 3 bits", proj + "qweight has 4 lines of words, no multiple of 3", func(_ map[string]any, x map[string]heldTensor) {
			x[proj+"qweight"] = heldTensor{"I32", []int{4, 128}, make([]byte, 2048)}
		}},
		{"bitsandbytes", proj + "weight.quant_state.bitsandbytes__nf4", func(_ map[string]any, x map[string]heldTensor) {
			state := []byte(`{"quant_type": "nf4", "blocksize": 48, "dtype": "float16", "shape": [128, 64]}`)
			x[proj+"weight.quant_state.bitsandbytes__nf4"] = heldTensor{"U8", []int{len(state)}, state}
		}},
		{"bitsandbytes", proj + "weight has 4096 bytes, where 128 × 9 numbers", func(_ map[string]any, x map[string]heldTensor) {
			state := []byte(`{"quant_type": "nf4", "blocksize": 64, "dtype": "float16", "shape": [128, 9]}`)
			x[proj+"weight.quant_state.bitsandbytes__nf4"] = heldTensor{"U8", []int{len(state)}, state}
		}},
		{"bitsandbytes", proj + "weight.absmax is missing", func(_ map[string]any, x map[string]heldTensor) {
			delete(x, proj+"weight.absmax")
		}},
		{"awq", `"awq", version "gemv"`, func(c map[string]any, _ map[string]heldTensor) {
			c["quantization_config"] = map[string]any{"quant_method": "awq", "bits": 4, "version": "gemv"}
		}},
		{"gptq", `"gptq" with 5 bits`, func(c map[string]any, _ map[string]heldTensor) {
			c["quantization_config"] = map[string]any{"quant_method": "gptq", "bits": 5}
		}},
		{"compressed-tensors", `format "mxfp6-pack-quantized"`, func(c map[string]any, _ map[string]heldTensor) {
			c["quantization_config"] = map[string]any{"quant_method": "compressed-tensors", "format": "mxfp6-pack-quantized"}
		}},
		{"compressed-tensors nvfp4", "has the shape [128 3], where [128 4] fits", func(_ map[string]any, x map[string]heldTensor) {
			x[proj+"weight_scale"] = heldTensor{"F8_E4M3", []int{128, 3}, make([]byte, 128*3)}
		}},
		{"compressed-tensors nvfp4", proj + "weight_global_scale is 0", func(_ map[string]any, x map[string]heldTensor) {
			x[proj+"weight_global_scale"] = heldTensor{"F32", []int{1}, make([]byte, 4)}
		}},
		{"compressed-tensors nvfp4", "weight_global_scale has 2 numbers", func(_ map[string]any, x map[string]heldTensor) {
			x[proj+"weight_global_scale"] = heldTensor{"F32", []int{2}, make([]byte, 8)}
		}},
		{"compressed-tensors mxfp4", proj + "weight_scale is missing", func(_ map[string]any, x map[string]heldTensor) {
			delete(x, proj+"weight_scale")
		}},
		{"compressed-tensors mxfp4", "has 34 columns, no multiple of 32", func(_ map[string]any, x map[string]heldTensor) {
			x[proj+"weight_packed"] = heldTensor{"U8", []int{128, 17}, make([]byte, 128*17)}
		}},
		{"compressed-tensors mxfp8", "has the shape [128 1], where [128 2] fits", func(_ map[string]any, x map[string]heldTensor) {
			x[proj+"weight_scale"] = heldTensor{"U8", []int{128, 1}, make([]byte, 128)}
		}},
		{"compressed-tensors mxfp8", proj + "weight is missing", func(_ map[string]any, x map[string]heldTensor) { delete(x, proj+"weight") }},
		{"awq", proj + "qzeros is missing", func(_ map[string]any, x map[string]heldTensor) { delete(x, proj+"qzeros") }},
		{"gptq", proj + "scales is missing", func(_ map[string]any, x map[string]heldTensor) { delete(x, proj+"scales") }},
		{"gptq", proj + "qzeros has the shape [1 8], where [1 16] fits", func(_ map[string]any, x map[string]heldTensor) {
			x[proj+"qzeros"] = heldTensor{"I32", []int{1, 8}, make([]byte, 32)}
		}},
		{"awq", proj + "qweight is of float16", func(_ map[string]any, x map[string]heldTensor) {
			x[proj+"qweight"] = heldTensor{"F16", []int{64, 16}, make([]byte, 2048)}
		}},
		{"awq", "a matrix is wanted", func(_ map[string]any, x map[string]heldTensor) {
			x[proj+"qweight"] = heldTensor{"I32", []int{1024}, make([]byte, 4096)}
		}},
		{"gptq", proj + "g_idx has the shape [3]", func(_ map[string]any, x map[string]heldTensor) {
			x[proj+"g_idx"] = heldTensor{"I32", []int{3}, make([]byte, 12)}
		}},
		{"gptq", proj + "g_idx has column 3 in group 7 of 1", func(_ map[string]any, x map[string]heldTensor) {
			index := make([]byte, 4*64)
			index[12] = 7
			x[proj+"g_idx"] = heldTensor{"I32", []int{64}, index}
		}},
		{"compressed-tensors", proj + "weight_shape says -5 columns", func(_ map[string]any, x map[string]heldTensor) {
			shape := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, 128), ^uint64(4))
			x[proj+"weight_shape"] = heldTensor{"I64", []int{2}, shape}
		}},
		{"compressed-tensors", "words of other than 4 or 8 bits", func(_ map[string]any, x map[string]heldTensor) {
			shape := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, 128), 640)
			x[proj+"weight_shape"] = heldTensor{"I64", []int{2}, shape}
		}},
		{"fp8", "weight_scale_inv has the shape [2 2], where [4 8] fits", func(c map[string]any, _ map[string]heldTensor) {
			c["quantization_config"] = map[string]any{"quant_method": "fp8", "weight_block_size": []int{16, 16}}
		}},
		{"awq", "quantization_config", func(c map[string]any, _ map[string]heldTensor) { c["quantization_config"] = []int{1} }},
		{"gptq", "up_proj.weight", func(_ map[string]any, x map[string]heldTensor) { // no part of it is there
			for _, kind := range []string{"qweight", "qzeros", "scales", "g_idx"} {
				delete(x, proj+kind)
			}
		}},
	} {
		config, tensors := quantFolder(c.form)
		c.change(config, tensors)
		ckpt, err := loader.Open(writeFolder(t, config, tensors))
		if err == nil {
			_, err = models.Build(ckpt, models.Options{})
			ckpt.Close()
		}
		if err == nil || !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("%s: want …%s…, got %v", c.form, c.want, err)
		}
		var unsupported *models.UnsupportedError
		byName := slices.ContainsFunc([]string{`"`, "words of", "are multiplied", "NVFP4", "[16 8 32 2]", "with zero points of"},
			func(part string) bool { return strings.Contains(c.want, part) })
		if byName != errors.As(err, &unsupported) {
			t.Errorf("%s: %v is of the wrong class", c.form, err)
		}
	}
}
