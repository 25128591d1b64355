// Command larger makes language models with random weights and runs passes of them in less memory than they take, for
// benchmarks/larger_than_memory.sh: how many bytes are read for a token, and how that compares with what the disk and
// the plan say.
//
// It chooses no tokens: a pass takes rows of some sequences, as writing does, and how many of a sequence's rows count
// as written is given, since guesses of random weights are never right. It does not know who it is compared with.
//
//	larger make -layers 15 -hidden 4096 -inner 11008 dense
//	larger run -memory 1610612736 -passes 8 dense
//	larger run -memory 1610612736 -passes 8 -rows 8 -accepted 3.5 dense
//	larger run -memory 4000000000 -walk -choices c.json experts
//	larger tokens -count 512                                 # the text that -walk takes, for other programs
//	larger turns < rows.jsonl                                # medians, and ratios within each round
package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/tensor"
)

func main() {
	err := errors.New("larger make [flags] FOLDER, larger run [flags] FOLDER, larger tokens or larger turns < ROWS")
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "make":
			err = makeFolder(os.Args[2:])
		case "tokens":
			err = writeTokens(os.Args[2:])
		case "turns":
			err = turns()
		case "run":
			err = run(os.Args[2:])
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "larger:", err)
		os.Exit(1)
	}
}

// sizes are those of a model.
type sizes struct {
	layers, hidden, inner, heads, keyHeads, vocabulary int
	// experts are in each layer, of which a token goes through named; none in a dense model.
	experts, named int
	// int4 says that linear layers have codes of 4 bits in groups, as compressed-tensors packs them.
	int4 bool
}

// makeFolder writes a folder of a Llama or, with experts, of a Qwen3-MoE.
func makeFolder(args []string) error {
	flags := flag.NewFlagSet("make", flag.ContinueOnError)
	var s sizes
	flags.IntVar(&s.layers, "layers", 2, "layers")
	flags.IntVar(&s.hidden, "hidden", 1024, "width")
	flags.IntVar(&s.inner, "inner", 2816, "width of an MLP, or of an expert")
	flags.IntVar(&s.heads, "heads", 16, "heads of 64 or more each")
	flags.IntVar(&s.keyHeads, "key-heads", 4, "heads of keys")
	flags.IntVar(&s.vocabulary, "vocabulary", 32000, "tokens")
	flags.IntVar(&s.experts, "experts", 0, "experts of a layer")
	flags.IntVar(&s.named, "named", 8, "experts that a token goes through")
	flags.BoolVar(&s.int4, "int4", false, "linear layers in codes of 4 bits, the last one not")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return errors.New("make: one folder")
	}
	folder := flags.Arg(0)
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return err
	}
	kind, class := "llama", "LlamaForCausalLM"
	if s.experts > 0 {
		kind, class = "qwen3_moe", "Qwen3MoeForCausalLM"
	}
	fields := map[string]any{
		"architectures": []string{class}, "model_type": kind, "hidden_size": s.hidden, "num_hidden_layers": s.layers,
		"num_attention_heads": s.heads, "num_key_value_heads": s.keyHeads, "head_dim": s.hidden / s.heads,
		"intermediate_size": s.inner, "moe_intermediate_size": s.inner, "num_experts": s.experts,
		"num_experts_per_tok": s.named,
		"norm_topk_prob":      true, "vocab_size": s.vocabulary, "max_position_embeddings": 4096, "rms_norm_eps": 1e-6,
		"tie_word_embeddings": false, "dtype": "bfloat16",
	}
	if s.int4 {
		fields["quantization_config"] = s.quantization()
	}
	config, err := json.MarshalIndent(fields, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "config.json"), config, 0o666); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(folder, "model.safetensors"))
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 4<<20)
	err = loader.WriteSafetensors(context.Background(), w, s.tensors(), map[string]string{"format": "pt"})
	return errors.Join(err, w.Flush(), f.Close())
}

// tensors lists the weights.
func (s *sizes) tensors() []loader.TensorData {
	var list []loader.TensorData
	add := func(name string, middle, scale float64, first func(row int) float64, shape ...int) {
		if s.int4 && first == nil && strings.HasSuffix(name, "_proj.weight") {
			list = append(list, s.packed(name, uint64(len(list)), scale, shape)...)
			return
		}
		from := loader.Random{Seed: 1, Tensor: uint64(len(list)), DType: tensor.BFloat16, Offset: middle, Scale: scale}
		list = append(
			list,
			loader.TensorData{Name: name, DType: tensor.BFloat16, Shape: shape, ReadAt: withFirst(from, shape, first)},
		)
	}
	scaled := func(in int) float64 { return math.Sqrt(3/float64(in)) / 2 }
	add("model.embed_tokens.weight", 0, 1, func(int) float64 { return steady }, s.vocabulary, s.hidden)
	each := s.hidden / s.heads
	for l := range s.layers {
		at := fmt.Sprintf("model.layers.%d.", l)
		add(at+"input_layernorm.weight", 1, 0.1, nil, s.hidden)
		add(at+"post_attention_layernorm.weight", 1, 0.1, nil, s.hidden)
		add(at+"self_attn.q_proj.weight", 0, scaled(s.hidden), nil, s.heads*each, s.hidden)
		add(at+"self_attn.k_proj.weight", 0, scaled(s.hidden), nil, s.keyHeads*each, s.hidden)
		add(at+"self_attn.v_proj.weight", 0, scaled(s.hidden), nil, s.keyHeads*each, s.hidden)
		add(at+"self_attn.o_proj.weight", 0, scaled(s.heads*each), nil, s.hidden, s.heads*each)
		mlp := func(at string) {
			add(at+"gate_proj.weight", 0, scaled(s.hidden), nil, s.inner, s.hidden)
			add(at+"up_proj.weight", 0, scaled(s.hidden), nil, s.inner, s.hidden)
			add(at+"down_proj.weight", 0, scaled(s.inner), nil, s.hidden, s.inner)
		}
		if s.experts == 0 {
			mlp(at + "mlp.")
			continue
		}
		add(at+"self_attn.q_norm.weight", 1, 0.1, nil, each)
		add(at+"self_attn.k_norm.weight", 1, 0.1, nil, each)
		rank := rand.New(rand.NewPCG(uint64(l), 9)).Perm(s.experts)
		add(
			at+"mlp.gate.weight", 0, 4*scaled(s.hidden),
			func(e int) float64 { return -skew * math.Log(float64(rank[e]+2)) }, s.experts, s.hidden,
		)
		for e := range s.experts {
			mlp(fmt.Sprintf("%smlp.experts.%d.", at, e))
		}
	}
	add("model.norm.weight", 1, 0.1, nil, s.hidden)
	add("lm_head.weight", 0, scaled(s.hidden), nil, s.vocabulary, s.hidden)
	return list
}

// Routers of random weights send rows anywhere. So the first number of every embedding is the same, steady, and the
// first weight of each expert in a router falls with the logarithm of a rank: experts are needed about as often as
// words are (Zipf), and neighbouring tokens, which see much of the same text, are sent to much the same ones.
const (
	steady = 4
	skew   = 0.3
)

// withFirst reads random numbers of which the first of each row is another; nil is that none is.
func withFirst(
	from loader.Random, shape []int, first func(row int) float64,
) func(context.Context, []byte, int64) error {
	if first == nil || len(shape) != 2 {
		return from.ReadAt
	}
	return func(ctx context.Context, p []byte, off int64) error {
		if err := from.ReadAt(ctx, p, off); err != nil {
			return err
		}
		rowBytes := int64(2 * shape[1])
		for row := (off + rowBytes - 1) / rowBytes; row*rowBytes+2 <= off+int64(len(p)); row++ {
			binary.LittleEndian.PutUint16(p[row*rowBytes-off:], uint16(math.Float32bits(float32(first(int(row))))>>16))
		}
		return nil
	}
}

// mostGroup is how many codes have a scale in common, if the width of a model is a multiple of that.
const mostGroup = 128

// group is that of a model.
func (s *sizes) group() int {
	if s.hidden%mostGroup != 0 || s.inner%mostGroup != 0 {
		return mostGroup / 4
	}
	return mostGroup
}

// quantization is what the configuration says of codes.
func (s *sizes) quantization() map[string]any {
	weights := map[string]any{
		"num_bits": 4, "type": "int", "symmetric": true, "strategy": "group", "group_size": s.group(), "dynamic": false,
	}
	return map[string]any{
		"quant_method": "compressed-tensors", "format": "pack-quantized", "quantization_status": "compressed",
		"ignore": []string{"lm_head"}, "config_groups": map[string]any{
			"group_0": map[string]any{"targets": []string{"Linear"}, "weights": weights},
		},
	}
}

// packed lists what a weight is as codes: random ones, of which no number is larger than scale.
func (s *sizes) packed(name string, seed uint64, scale float64, shape []int) []loader.TensorData {
	rows, columns := shape[0], shape[1]
	codes := func(_ context.Context, p []byte, off int64) error {
		for i := range p {
			at := uint64(off) + uint64(i)
			x := (at/8 + seed<<40 + 1) * 0x9e3779b97f4a7c15
			x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
			x = (x ^ x>>27) * 0x94d049bb133111eb
			p[i] = byte((x ^ x>>31) >> (at % 8 * 8))
		}
		return nil
	}
	scales := func(_ context.Context, p []byte, off int64) error {
		bits := uint16(math.Float32bits(float32(scale/8)) >> 16)
		for i := range p {
			p[i] = byte(bits >> ((off + int64(i)) % 2 * 8))
		}
		return nil
	}
	sizes := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(rows)), uint64(columns))
	return []loader.TensorData{
		{Name: name + "_packed", DType: tensor.Int32, Shape: []int{rows, columns / 8}, ReadAt: codes},
		{Name: name + "_scale", DType: tensor.BFloat16, Shape: []int{rows, columns / s.group()}, ReadAt: scales},
		{Name: name + "_shape", DType: tensor.Int64, Shape: []int{2}, ReadAt: func(_ context.Context, p []byte, off int64) error {
			copy(p, sizes[off:])
			return nil
		}},
	}
}
