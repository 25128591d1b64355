package loader

import (
	"fmt"
	"math"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"

	"github.com/optimem/optimem/loader/internal/fault"
	"github.com/optimem/optimem/loader/internal/gguf"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
	"github.com/optimem/optimem/tensor/encoded"
)

// ggufKeyCost is charged to the meter for a value's text, besides its length.
const ggufKeyCost = 128

// openGGUF reads the head of a GGUF file and, where it is the first of several, opens the others.
func (o *opener) openGGUF(ckpt *Checkpoint, src storage.Source) error {
	ckpt.Format = FormatGGUF
	f, err := gguf.Read(section(o.ctx, src, 0, src.Size()), src.Size(), gguf.Options{
		Meter: o.meter, Depth: o.opts.Limits.Depth,
	})
	if err != nil {
		return err
	}
	if ckpt.Metadata = f.Meta; o.whole == nil {
		o.whole = f.Meta
	}
	if err := o.ggufValues(ckpt, f); err != nil {
		return err
	}
	if err := o.ggufWeights(ckpt, src, f); err != nil || o.isShard {
		return err
	}
	return o.openSplit(ckpt)
}

// ggufValues lists what the file says of itself as text; arrays by their length.
func (o *opener) ggufValues(ckpt *Checkpoint, f *gguf.File) error {
	for _, key := range f.Keys[:min(len(f.Keys), maxValues)] {
		text := ""
		switch v := reflect.ValueOf(f.Meta[key]); {
		case v.Kind() != reflect.Slice:
			text = fmt.Sprint(v)
		case v.Len() <= 4 && v.Type().Elem().Kind() != reflect.Interface:
			text = fmt.Sprint(v)
		default:
			text = fmt.Sprintf("[%d × %v]", v.Len(), v.Type().Elem())
		}
		if err := o.meter.Charge(int64(len(text)) + ggufKeyCost); err != nil {
			return err
		}
		ckpt.Values = append(ckpt.Values, Value{Name: key, Text: text})
	}
	return nil
}

// ggufWeights lists the tensors. Those that lie in the file as they are have their extents in it, the others in a source that
// decodes them.
func (o *opener) ggufWeights(ckpt *Checkpoint, src storage.Source, f *gguf.File) error {
	ckpt.grow(len(f.Tensors))
	var runs []encoded.Run
	var decoded []int // their tensors
	for i, t := range f.Tensors {
		run := encoded.Run{Encoding: t.Encoding, Offset: t.Offset, RowElements: 1}
		if n := len(t.Shape); n > 1 {
			run.RowElements = int64(t.Shape[n-1])
		} else if t.Encoding.Elements > 1 {
			run.RowElements = t.Encoding.Elements
		}
		elements, err := t.Shape.NumElements()
		if err != nil {
			return fault.New(fault.ErrFormat, -1, "%.100q: %v", t.Name, err)
		}
		run.Rows = elements / max(run.RowElements, 1)
		arrangeGGUF(o.whole, t.Name, &run)
		switch {
		case !t.Encoding.Readable():
		case t.Encoding.DType == tensor.Invalid || run.Heads != 0 || run.Plus != 0:
			runs, decoded = append(runs, run), append(decoded, i)
		}
	}
	source, offsets := encoded.New(src, runs)
	for i, t := range f.Tensors {
		if !t.Encoding.Readable() {
			ckpt.Unreadable = append(ckpt.Unreadable, &Error{
				Path: o.path, Record: t.Name, Offset: -1,
				Err: fault.New(fault.ErrUnsupported, -1, "a tensor of the type %s", t.Encoding.Name),
			})
			continue
		}
		w := tensor.Weight{
			Name: t.Name, DType: t.Encoding.DType, Layout: tensor.Contiguous(t.Shape...),
			Extent: storage.Extent{Source: src, Offset: t.Offset, Bytes: t.Bytes},
		}
		if len(decoded) > 0 && decoded[0] == i {
			w.DType = runs[0].DType()
			w.Extent = storage.Extent{Source: source, Offset: offsets[0]}
			w.Extent.Bytes = w.Bytes()
			decoded, runs, offsets = decoded[1:], runs[1:], offsets[1:]
		}
		if err := ckpt.addWeight(w); err != nil {
			return errorAt(o.path, t.Name, err)
		}
	}
	return nil
}

// attention matches the projections that make queries and keys.
var attention = regexp.MustCompile(`^blk\.[0-9]+\.attn_([qk])\.(weight|bias)$`)

// interleaved are the architectures for which llama.cpp's converter interleaves the halves of heads, because it turns
// neighbours by one angle where transformers turns halves.
var interleaved = []string{"llama", "granite", "granitemoe", "smollm3", "arcee"}

// plusOne are the architectures whose norms have 1 + weight in the file, where transformers has the weight.
var plusOne = []string{"gemma", "gemma2", "gemma3", "nemotron"}

// arrangeGGUF says how the numbers of a tensor are to be had as transformers has them, where converters change them.
func arrangeGGUF(meta map[string]any, name string, run *encoded.Run) {
	arch, _ := meta["general.architecture"].(string)
	for _, a := range interleaved {
		m := attention.FindStringSubmatch(name)
		if a != arch || m == nil {
			continue
		}
		heads, _ := GGUFInteger(meta, arch+".attention.head_count")
		if m[1] == "k" {
			if keys, ok := GGUFInteger(meta, arch+".attention.head_count_kv"); ok {
				heads = keys
			}
		}
		if heads > 0 && run.Rows > 0 && run.Rows%heads == 0 && run.Rows/heads%2 == 0 {
			run.Heads = heads
		}
	}
	for _, a := range plusOne {
		if a == arch && strings.HasSuffix(name, "norm.weight") && run.Encoding.Name == "F32" {
			run.Plus = -1
		}
	}
}

// GGUFInteger returns an integer of a GGUF file's metadata, of whatever size.
func GGUFInteger(meta map[string]any, key string) (int64, bool) {
	v := reflect.ValueOf(meta[key])
	switch {
	case !v.IsValid():
	case v.CanInt():
		return v.Int(), true
	case v.CanUint() && v.Uint() <= math.MaxInt64:
		return int64(v.Uint()), true
	}
	return 0, false
}

// splitName is how llama.cpp names the files of a model in several.
var splitName = regexp.MustCompile(`^(.*)-([0-9]{5})-of-([0-9]{5})\.gguf$`)

// openSplit opens the other files of a model in several.
func (o *opener) openSplit(ckpt *Checkpoint) error {
	count, ok := GGUFInteger(ckpt.Metadata, "split.count")
	if !ok || count == 1 {
		return nil
	}
	number, _ := GGUFInteger(ckpt.Metadata, "split.no")
	m := splitName.FindStringSubmatch(filepath.Base(o.path))
	switch {
	case count < 1 || count > int64(o.opts.Limits.Records) || number < 0 || number >= count:
		return fault.New(fault.ErrFormat, -1, "number %d of a model in %d files", number, count)
	case number > 0:
		return fault.New(
			fault.ErrUnsupported, -1, "number %d of the %d files of a model: open the first", number+1, count,
		)
	case m == nil || m[2] != "00001" || m[3] != fmt.Sprintf("%05d", count):
		return fault.New(fault.ErrUnsupported, -1,
			"the first of the %d files of a model, whose name must end in -00001-of-%05d.gguf to find the others",
			count, count)
	}
	index := &shardIndex{}
	for i := int64(2); i <= count; i++ {
		if err := o.meter.Charge(shardCost); err != nil {
			return err
		}
		index.files = append(index.files, m[1]+"-"+fmt.Sprintf("%05d", i)+"-of-"+m[3]+".gguf")
	}
	shards, err := o.openShards(ckpt, index)
	if err != nil {
		return err
	}
	for i, s := range shards {
		if s == nil { // its problem is noted, while scanning
			continue
		}
		path := filepath.Join(filepath.Dir(o.path), index.files[i])
		no, _ := GGUFInteger(s.Metadata, "split.no")
		if n, _ := GGUFInteger(s.Metadata, "split.count"); s.Format != FormatGGUF || n != count || no != int64(i+1) {
			return errorAt(
				path, "", fault.New(fault.ErrFormat, -1, "it is not number %d of the %d files of a model", i+2, count),
			)
		}
		for _, w := range s.Weights {
			if err := o.meter.Charge(mergedEntryCost); err != nil {
				return err
			}
			if _, twice := ckpt.Weight(w.Name); twice {
				return errorAt(path, w.Name, fault.New(fault.ErrFormat, -1, "another of the files holds it too"))
			}
			if err := ckpt.addWeight(w); err != nil {
				return errorAt(path, w.Name, err)
			}
		}
		ckpt.Unreadable = append(ckpt.Unreadable, s.Unreadable...)
	}
	if want, ok := GGUFInteger(ckpt.Metadata, "split.tensors.count"); ok &&
		want != int64(len(ckpt.Weights)+len(ckpt.Unreadable)) && len(o.findings.problems) == 0 {
		return fault.New(fault.ErrFormat, -1, "%d tensors in all files, and the first says %d",
			len(ckpt.Weights)+len(ckpt.Unreadable), want)
	}
	return nil
}
