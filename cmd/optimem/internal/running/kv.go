//go:build !files

package running

import (
	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/tensor"
)

// KVList are the names of [generate.KVTypes].
var KVList = []string{"fp32", "bf16", "fp16", "int8"}

// KVNames are the names of all of KVList, for people.
const KVNames = "fp32, bf16, fp16, int8"

// CheckKV looks at the type of keys and values that --kv names.
func (r *Run) CheckKV(name string) error {
	if _, ok := generate.KVTypes[name]; r.Cmd.Flags().Changed("kv") && !ok {
		return r.Usage("there is: "+KVNames, "unknown type of keys and values %q", name)
	}
	return nil
}

// KVType is the dtype of keys and values: what the user says, else that of most of the weights.
func KVType(name string, ckpt *loader.Checkpoint) tensor.DType {
	if d, ok := generate.KVTypes[name]; ok {
		return d
	}
	return generate.KVType(ckpt.Weights)
}
