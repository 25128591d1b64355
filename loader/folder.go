package loader

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/optimem/optimem/loader/internal/fault"
)

// maxConfigBytes bounds config.json. One that lists the 21,000 classes of ImageNet-21k has 2 MB.
const maxConfigBytes = 16 << 20

// folderWeights are the files that hold a model's weights in a Hugging Face folder, in the order in which the
// transformers library prefers them.
var folderWeights = []string{
	"model.safetensors",
	"model.safetensors.index.json",
	"pytorch_model.bin",
	"pytorch_model.bin.index.json",
}

// trainerFiles have the extension of weights and hold what transformers' Trainer needs to go on.
var trainerFiles = []string{
	"training_args.bin", "optimizer.bin", "optimizer.pt", "scheduler.bin", "scheduler.pt", "scaler.pt",
}

// otherWeights are the endings of other files that may hold the weights, in groups of falling preference.
var otherWeights = [][]string{
	{".safetensors"},
	{".safetensors.index.json", ".bin.index.json"},
	{".bin", ".pt", ".pth"},
}

// openFolder opens the weights in a folder as the Hugging Face libraries lay it out.
func (o *opener) openFolder() (*Checkpoint, error) {
	if o.isShard {
		return nil, fault.New(fault.ErrFormat, -1, "a folder, not a shard of a checkpoint")
	}
	name, err := o.chooseWeights()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(o.path, name)
	if err := checkInFolder(o.path, path); err != nil {
		return nil, errorAt(path, "", err)
	}
	weights := o.shard(o.ctx, path)
	weights.isShard = !strings.HasSuffix(name, ".json")
	ckpt, err := weights.dispatch()
	if err != nil {
		return ckpt, errorAt(path, "", err)
	}
	ckpt.Path, ckpt.Format = o.path, FormatHuggingFace
	ckpt.Config, err = o.readConfig()
	return ckpt, err
}

// chooseWeights returns the name of the file to open: one of the usual ones, else the only one that it can be.
func (o *opener) chooseWeights() (string, error) {
	for _, name := range folderWeights {
		if isFile(filepath.Join(o.path, name)) {
			return name, nil
		}
	}
	names, err := o.listFolder()
	if err != nil {
		return "", err
	}
	for _, endings := range otherWeights {
		var fits []string
		for _, name := range names {
			ends := func(ending string) bool { return strings.HasSuffix(name, ending) }
			if slices.ContainsFunc(endings, ends) && !slices.Contains(trainerFiles, name) &&
				!strings.HasPrefix(name, "rng_state") && isFile(filepath.Join(o.path, name)) {
				fits = append(fits, name)
			}
		}
		if len(fits) == 1 {
			return fits[0], nil
		}
		if len(fits) > 1 {
			slices.Sort(fits)
			more := ""
			if len(fits) > 3 {
				fits, more = fits[:3], ", …"
			}
			return "", fault.New(fault.ErrUnsupported, -1,
				"a folder with several files that may be the weights (%s%s): "+
					"open one of them", strings.Join(fits, ", "), more)
		}
	}
	if slices.Contains(names, "model_index.json") {
		return "", fault.New(fault.ErrUnsupported, -1, "a diffusers pipeline, which is several models: "+
			"open one of its folders, such as unet, transformer, vae or text_encoder")
	}
	return "", fault.New(fault.ErrUnsupported, -1, "no weights in this folder: it has none of %s, nor a single other "+
		".safetensors, .bin, .pt or .pth file", strings.Join(folderWeights, ", "))
}

// listFolder returns the names in the folder.
func (o *opener) listFolder() ([]string, error) {
	f, err := os.Open(o.path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []string
	for {
		const some = 1000
		names, err := f.Readdirnames(some)
		for _, name := range names {
			if err := o.meter.Charge(int64(len(name)) + 32); err != nil {
				return nil, err
			}
		}
		all = append(all, names...)
		if err == io.EOF { //nolint:errorlint // Readdirnames returns it bare
			return all, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// adapterWeights are the files that hold an adapter's weights in a folder of Python's peft, in the order in which it prefers
// them; adapterConfig is what says what they are for.
var adapterWeights = []string{"adapter_model.safetensors", "adapter_model.bin"}

const adapterConfig = "adapter_config.json"

// OpenAdapter opens the weights of an adapter in a folder as Python's peft writes it. Config of the checkpoint is the text of
// its adapter_config.json, without which a folder is no adapter.
func OpenAdapter(ctx context.Context, folder string, opts Options) (*Checkpoint, error) {
	o := newOpener(ctx, folder, opts)
	return o.finish(o.openAdapter())
}

func (o *opener) openAdapter() (*Checkpoint, error) {
	if info, err := os.Stat(o.path); err != nil {
		return nil, err
	} else if !info.IsDir() {
		return nil, fault.New(fault.ErrUnsupported, -1, "an adapter is a folder with %s", adapterConfig)
	}
	config, err := o.readText(adapterConfig)
	switch {
	case err != nil:
		return nil, err
	case config == nil:
		return nil, fault.New(fault.ErrUnsupported, -1, "no adapter: it has no %s", adapterConfig)
	}
	i := slices.IndexFunc(adapterWeights, func(name string) bool { return isFile(filepath.Join(o.path, name)) })
	if i < 0 {
		return nil, fault.New(
			fault.ErrUnsupported, -1, "an adapter without weights: it has none of %s",
			strings.Join(adapterWeights, ", "),
		)
	}
	path := filepath.Join(o.path, adapterWeights[i])
	if err := checkInFolder(o.path, path); err != nil {
		return nil, errorAt(path, "", err)
	}
	weights := o.shard(o.ctx, path)
	weights.isShard = true
	ckpt, err := weights.dispatch()
	if err != nil {
		return ckpt, errorAt(path, "", err)
	}
	ckpt.Path, ckpt.Config = o.path, config
	return ckpt, nil
}

// readConfig returns the text of config.json, nil where there is none.
func (o *opener) readConfig() ([]byte, error) { return o.readText("config.json") }

// readText returns the text of a file of the folder, nil where there is none.
func (o *opener) readText(name string) ([]byte, error) {
	path := filepath.Join(o.path, name)
	if !isFile(path) {
		return nil, nil
	}
	if err := checkInFolder(o.path, path); err != nil {
		return nil, errorAt(path, "", err)
	}
	file, err := openFile(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if file.Size() > maxConfigBytes {
		return nil, errorAt(
			path, "", fault.New(fault.ErrLimit, -1, "%d bytes, more than %d", file.Size(), maxConfigBytes),
		)
	}
	if err := o.meter.Charge(file.Size()); err != nil {
		return nil, errorAt(path, "", err)
	}
	text := make([]byte, file.Size())
	return text, file.ReadAt(o.ctx, text, 0)
}
