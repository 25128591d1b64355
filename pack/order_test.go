package pack

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/optimem/optimem/storage/packed"
)

// weightsFile writes a file of bfloat16 weights, in the order given, and returns where each begins, and its size.
func weightsFile(t *testing.T, path string, names []string, shapes map[string][]int) (begin map[string]int64, size int64) {
	t.Helper()
	head := make(map[string]any)
	at := 0
	begin = make(map[string]int64)
	for _, name := range names {
		n := 2
		for _, d := range shapes[name] {
			n *= d
		}
		head[name] = map[string]any{"dtype": "BF16", "shape": shapes[name], "data_offsets": []int{at, at + n}}
		begin[name], at = int64(at), at+n
	}
	text, err := json.Marshal(head)
	if err != nil {
		t.Fatal(err)
	}
	file := append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)
	for name := range begin {
		begin[name] += int64(len(file))
	}
	for i := range at / 2 {
		file = binary.LittleEndian.AppendUint16(file, 0x3C00|uint16(uint32(i)*2654435761>>16)&0x80FF)
	}
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	return begin, int64(len(file))
}

// TestOrder: the weights of a file lie in the order of a pass, the parts of each expert one behind the other, whether the
// original has a tensor for each expert or one for all; and the original comes back.
func TestOrder(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "model.safetensors")
	names := []string{
		"lm_head.weight", "model.embed_tokens.weight",
		"model.layers.10.input_layernorm.weight", "model.layers.10.self_attn.q_proj.weight",
		"model.layers.2.mlp.experts.down_proj", "model.layers.2.mlp.experts.gate_up_proj", "model.layers.2.mlp.gate.weight",
		"model.layers.2.self_attn.q_proj.weight",
		"model.layers.3.mlp.experts.0.w1.weight", "model.layers.3.mlp.experts.1.w1.weight",
		"model.layers.3.mlp.experts.0.w2.weight", "model.layers.3.mlp.experts.1.w2.weight", "model.norm.weight",
	}
	shapes := map[string][]int{
		"lm_head.weight": {700, 256}, "model.embed_tokens.weight": {700, 256}, "model.layers.10.input_layernorm.weight": {256},
		"model.layers.10.self_attn.q_proj.weight": {256, 300}, "model.layers.2.mlp.experts.down_proj": {3, 256, 100},
		"model.layers.2.mlp.experts.gate_up_proj": {3, 200, 256}, "model.layers.2.mlp.gate.weight": {3, 256},
		"model.layers.2.self_attn.q_proj.weight": {256, 300}, "model.layers.3.mlp.experts.0.w1.weight": {100, 256},
		"model.layers.3.mlp.experts.1.w1.weight": {100, 256}, "model.layers.3.mlp.experts.0.w2.weight": {256, 100},
		"model.layers.3.mlp.experts.1.w2.weight": {256, 100}, "model.norm.weight": {256},
	}
	begin, size := weightsFile(t, path, names, shapes)
	runs := runsOf(t.Context(), path, size)
	var sum int64
	place := func(name string, skip int64) int { // of the run that has a byte
		return slices.IndexFunc(runs, func(r packed.Run) bool {
			at := begin[name] + skip
			return at >= r.Offset && at < r.Offset+r.Bytes
		})
	}
	for _, r := range runs {
		sum += r.Bytes
	}
	if sum != size || runs[0].Offset != 0 {
		t.Fatalf("%d bytes in runs of %d: %v", sum, size, runs)
	}
	const down, gate = 2 * 256 * 100, 2 * 200 * 256
	last := -1
	for _, at := range []struct {
		name string
		skip int64
	}{
		{"model.embed_tokens.weight", 0}, {"model.layers.2.self_attn.q_proj.weight", 0},
		{"model.layers.2.mlp.experts.down_proj", 0}, {"model.layers.2.mlp.experts.gate_up_proj", 0},
		{"model.layers.2.mlp.experts.down_proj", down}, {"model.layers.2.mlp.experts.gate_up_proj", gate},
		{"model.layers.2.mlp.experts.down_proj", 2 * down}, {"model.layers.2.mlp.experts.gate_up_proj", 2 * gate},
		{"model.layers.3.mlp.experts.0.w1.weight", 0}, {"model.layers.3.mlp.experts.0.w2.weight", 0},
		{"model.layers.3.mlp.experts.1.w1.weight", 0}, {"model.layers.3.mlp.experts.1.w2.weight", 0},
		{"model.layers.10.self_attn.q_proj.weight", 0}, {"lm_head.weight", 0},
	} {
		k := place(at.name, at.skip)
		if k <= last {
			t.Errorf("%s from %d on is in run %d, behind %d", at.name, at.skip, k, last)
		}
		if of := begin[at.name] + at.skip; at.skip > 0 && runs[k].Offset != of {
			t.Errorf("the expert at %d begins within a run: %v", of, runs[k])
		}
		last = k
	}
	packedPath, again := filepath.Join(dir, "packed.safetensors"), filepath.Join(dir, "again.safetensors")
	if _, err := Write(t.Context(), path, packedPath, Options{}); err != nil {
		t.Fatal(err)
	}
	told := int64(0)
	report, err := Restore(t.Context(), packedPath, again, Options{Progress: func(n int64) { told += n }})
	if err != nil {
		t.Fatal(err)
	}
	a, _ := os.ReadFile(path)
	b, err := os.ReadFile(again)
	if err != nil || !bytes.Equal(a, b) {
		t.Errorf("another file came back: %v", err)
	}
	if most := report.AfterBytes; told > report.Files[0].PackedBytes || told < report.Files[0].PackedBytes*9/10 {
		t.Errorf("told of %d bytes, of %d in %d", told, report.Files[0].PackedBytes, most)
	}
	if runs := runsOf(t.Context(), filepath.Join(dir, "absent"), 5); runs != nil {
		t.Errorf("a file that is not there has runs: %v", runs)
	}
}
