package loader

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/optimem/optimem/loader/internal/fault"
	"github.com/optimem/optimem/loader/internal/strictjson"
	"github.com/optimem/optimem/storage"
)

const (
	// shardsInFlight bounds the shards that are opened at once: enough to hide a disk's latency.
	shardsInFlight = 8
	// maxIndexBytes bounds an index file. That of a model with 100,000 tensors has 10 MB.
	maxIndexBytes = 100_000_000
	// Estimates, charged to the meter: of a name in the map from tensors to shards, of a tensor in the merged checkpoint
	// beside its shard's, and of an open shard.
	indexEntryCost  = 80
	mergedEntryCost = 192
	shardCost       = 2048
)

// A shardIndex is the contents of model.safetensors.index.json or pytorch_model.bin.index.json.
type shardIndex struct {
	files []string // in order of first mention
	// shards maps each tensor to the index of its file, or to its complement once the tensor was found there.
	shards map[string]int
	names  []string // of the tensors, in the index's order
	values []Value  // of its metadata
}

// openIndex reads an index and opens the shards that it names, which lie beside it.
func (o *opener) openIndex(ckpt *Checkpoint, src storage.Source) error {
	if o.isShard {
		return fault.New(fault.ErrFormat, -1, "JSON text, not a shard of a checkpoint")
	}
	ckpt.Format = FormatSharded
	index, err := o.readIndex(src)
	if err != nil {
		return err
	}
	ckpt.Values = append(ckpt.Values, index.values...)
	shards, err := o.openShards(ckpt, index)
	if err != nil {
		return err
	}
	return o.mergeShards(ckpt, index, shards)
}

func (o *opener) readIndex(src storage.Source) (*shardIndex, error) {
	if src.Size() > maxIndexBytes {
		return nil, fault.New(fault.ErrLimit, -1, "an index of %d bytes, more than %d", src.Size(), maxIndexBytes)
	}
	d := strictjson.NewDecoder(section(o.ctx, src, 0, src.Size()),
		strictjson.Options{Meter: o.meter, Depth: o.opts.Limits.Depth})
	x := &shardIndex{shards: make(map[string]int)}
	byFile := make(map[string]int)
	mapped := false
	err := d.Object(func(key string) error {
		switch key {
		case "metadata":
			return x.readMetadata(o, d)
		case "weight_map":
			mapped = true
			return d.Object(func(name string) error {
				file, err := d.String()
				if err != nil {
					return err
				}
				if err := checkShardName(d, file); err != nil {
					return err
				}
				if err := o.meter.Charge(indexEntryCost); err != nil {
					return err
				}
				i, known := byFile[file]
				if !known {
					if len(x.files) >= o.opts.Limits.Records {
						return d.Errorf(fault.ErrLimit, "more than %d shards", o.opts.Limits.Records)
					}
					if err := o.meter.Charge(shardCost); err != nil {
						return err
					}
					i = len(x.files)
					byFile[file] = i
					x.files = append(x.files, file)
				}
				x.names = append(x.names, name)
				x.shards[name] = i
				return nil
			})
		}
		return nil
	})
	if err == nil {
		err = d.End()
	}
	if err == nil && !mapped {
		err = fault.New(
			fault.ErrUnsupported, -1, "a JSON file without a weight_map: not the index of a sharded checkpoint",
		)
	}
	return x, err
}

// readMetadata keeps the numbers and strings of the index's metadata. total_size is among them and is not checked:
// tools disagree whether it counts tied tensors once.
func (x *shardIndex) readMetadata(o *opener, d *strictjson.Decoder) error {
	if null, err := d.IsNull(); null || err != nil {
		return err
	}
	return d.Object(func(key string) error {
		kind, err := d.Kind()
		if err != nil {
			return err
		}
		var text string
		switch kind {
		case strictjson.String:
			text, err = d.String()
		case strictjson.Number:
			text, err = d.Number()
		default:
			return nil
		}
		if err == nil && len(x.values) < maxValues {
			x.values = append(x.values, Value{Name: "metadata." + key, Text: text})
			err = o.meter.Charge(int64(len(key)) + 128)
		}
		return err
	})
}

// checkShardName accepts the name of a file in the index's own folder and nothing else, on any system.
func checkShardName(d *strictjson.Decoder, name string) error {
	if name == "" || strings.ContainsAny(name, "/\\:\x00") || !filepath.IsLocal(name) || name == "." {
		return d.Errorf(fault.ErrUnsafe, "the shard %.100q does not lie beside the index", name)
	}
	return nil
}

// openShards opens the files of an index, some at a time. All errors are looked at in the index's order, so that the
// one returned does not depend on timing. A shard whose problem was only noted, while scanning, is nil.
func (o *opener) openShards(ckpt *Checkpoint, x *shardIndex) ([]*Checkpoint, error) {
	folder := filepath.Dir(o.path)
	shards := make([]*Checkpoint, len(x.files))
	errs := make([]error, len(x.files))
	var group errgroup.Group
	group.SetLimit(shardsInFlight)
	for i, file := range x.files {
		group.Go(func() error {
			shards[i], errs[i] = o.openShard(o.ctx, folder, file)
			return nil
		})
	}
	_ = group.Wait() // the errors are in errs
	for _, s := range shards {
		if s != nil {
			ckpt.closers = append(ckpt.closers, s.closers...)
		}
	}
	for i, err := range errs {
		if err == nil {
			continue
		}
		shards[i] = nil
		if err := o.shard(o.ctx, filepath.Join(folder, x.files[i])).problem("", err); err != nil {
			return nil, err
		}
	}
	return shards, nil
}

func (o *opener) openShard(ctx context.Context, folder, file string) (*Checkpoint, error) {
	path := filepath.Join(folder, file)
	s := o.shard(ctx, path)
	s.isShard = true
	if err := checkInFolder(folder, path); err != nil {
		return nil, errorAt(path, "", err)
	}
	c, err := s.dispatch()
	switch {
	case err != nil:
		return c, errorAt(path, "", err)
	case c.Module != nil || c.Program != nil:
		return c, errorAt(
			path, "", fault.New(fault.ErrUnsupported, -1, "a shard that is a whole model, not a state dict"),
		)
	}
	return c, nil
}

// CheckInFolder returns an error of class [ErrUnsafe] for a file of a folder that is a symbolic link out of it, as openers of
// folders do: see [OpenWith].
func CheckInFolder(folder, path string) error { return errorAt(path, "", checkInFolder(folder, path)) }

// checkInFolder refuses a symbolic link that leads out of the folder: a checkpoint must not name files of the machine.
// One layout that does so is known and let pass, that of the Hugging Face cache, in which snapshots/REVISION/NAME is a
// link to blobs/HASH.
func checkInFolder(folder, path string) error {
	root, err := filepath.Abs(folder)
	if err != nil {
		return err
	}
	target, err := filepath.EvalSymlinks(filepath.Join(root, filepath.Base(path)))
	if err != nil {
		return err
	}
	if root, err = filepath.EvalSymlinks(root); err != nil {
		return err
	}
	if rel, err := filepath.Rel(root, target); err == nil && filepath.IsLocal(rel) {
		return nil
	}
	if snapshots := filepath.Dir(root); filepath.Base(snapshots) == "snapshots" &&
		filepath.Dir(target) == filepath.Join(filepath.Dir(snapshots), "blobs") {
		return nil
	}
	return fault.New(fault.ErrUnsafe, -1, "a symbolic link that leads out of its folder")
}

// mergeShards puts the shards' tensors into one checkpoint. Every tensor of the index must be where the index says. A
// tensor that the index does not mention is listed too, since PyTorch users' loaders take all that a shard holds; one
// that two shards hold is an error, since loaders differ in which they take.
func (o *opener) mergeShards(ckpt *Checkpoint, x *shardIndex, shards []*Checkpoint) error {
	var unmapped nameList
	said := make(map[Value]bool) // what every shard says need be kept once
	for i, s := range shards {
		if s == nil {
			continue
		}
		shardPath := filepath.Join(filepath.Dir(o.path), x.files[i])
		take := func(name string) error {
			if err := o.meter.Charge(mergedEntryCost); err != nil {
				return err
			}
			want, mapped := x.shards[name]
			if mapped && want < 0 {
				return errorAt(
					shardPath, name, fault.New(fault.ErrFormat, -1, "the shard %s holds it too", x.files[^want]),
				)
			}
			if !mapped {
				unmapped.add(name)
			} else if want != i {
				return errorAt(
					shardPath, name, fault.New(fault.ErrFormat, -1, "the index says that %s holds it", x.files[want]),
				)
			}
			x.shards[name] = ^i
			return nil
		}
		for _, w := range s.Weights {
			if err := take(w.Name); err != nil {
				return err
			}
			if err := ckpt.addWeight(w); err != nil {
				return errorAt(shardPath, w.Name, err)
			}
		}
		for _, e := range s.Unreadable {
			if err := take(e.Record); err != nil {
				return err
			}
		}
		ckpt.Unreadable = append(ckpt.Unreadable, s.Unreadable...)
		for _, v := range s.Values {
			if !said[v] && len(ckpt.Values) < maxValues {
				said[v] = true
				ckpt.Values = append(ckpt.Values, v)
			}
		}
	}
	var missing nameList
	for _, name := range x.names {
		if i := x.shards[name]; i >= 0 && shards[i] != nil {
			missing.add(name)
		}
	}
	if missing.n > 0 {
		return fault.New(fault.ErrFormat, -1, "the shards lack %v of the index", missing)
	}
	if unmapped.n > 0 {
		ckpt.Values = append(ckpt.Values, Value{Name: "index.unmapped", Text: unmapped.String()})
	}
	return o.addTied(ckpt, safetensorsMetadata+".", "metadata.")
}

// A nameList counts names and keeps the first ones for a message.
type nameList struct {
	n     int
	first []string
}

func (l *nameList) add(name string) {
	if l.n++; l.n <= 3 {
		l.first = append(l.first, fmt.Sprintf("%.100q", name))
	}
}

// String writes the number of names and the first ones.
func (l nameList) String() string {
	s := fmt.Sprintf("%d tensors: %s", l.n, strings.Join(l.first, ", "))
	if l.n > len(l.first) {
		s += ", …"
	}
	return s
}

// isFile reports whether path is there and no folder. What else it may be, opening it tells.
func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir()
}
