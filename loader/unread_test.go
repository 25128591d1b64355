package loader

import (
	"context"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/optimem/optimem/storage"
)

// A watchedSource remembers which bytes were read.
type watchedSource struct {
	storage.Source
	mu    sync.Mutex
	reads []storage.Extent
}

func (s *watchedSource) ReadAt(ctx context.Context, p []byte, off int64) error {
	s.mu.Lock()
	s.reads = append(s.reads, storage.Extent{Source: s, Offset: off, Bytes: int64(len(p))})
	s.mu.Unlock()
	return s.Source.ReadAt(ctx, p, off)
}

// readOf returns how many bytes of an extent were read, those that were read twice counted twice.
func (s *watchedSource) readOf(e storage.Extent) int64 {
	total := int64(0)
	for _, r := range s.reads {
		from, to := max(r.Offset, e.Offset), min(r.Offset+r.Bytes, e.Offset+e.Bytes)
		total += max(to-from, 0)
	}
	return total
}

// TestOpenReadsNoWeight opens every valid fixture, shards by themselves, and compares what was read with where the
// weights lie.
func TestOpenReadsNoWeight(t *testing.T) {
	formats := make(map[Format]int)
	err := filepath.WalkDir(validFolder(), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(path, ".json") || strings.Contains(path, ".refused.") {
			return err
		}
		file, err := storage.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		watched := &watchedSource{Source: file}
		o := newOpener(t.Context(), path, Options{})
		o.findings.keepGoing = true
		ckpt := &Checkpoint{Path: path}
		if err := o.openSource(ckpt, watched); err != nil {
			return nil //nolint:nilerr // not a checkpoint: a tokenizer's file, or one that TestGolden expects to fail
		}
		weights := ckpt.Weights
		for _, w := range ckpt.Weights {
			if w.Quant != nil && w.Quant.Scales != nil {
				weights = append(weights, *w.Quant.Scales, *w.Quant.ZeroPoints)
			}
		}
		seen := make(map[storage.Extent]bool)
		read := int64(0)
		for _, w := range weights {
			if e := w.Extent; e.Source == watched && !seen[e] {
				seen[e] = true
				read += watched.readOf(e)
				formats[ckpt.Format]++
			}
		}
		if read > 0 {
			t.Errorf("%s: %d bytes of weights were read", path, read)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []Format{
		FormatTorchZip, FormatTorchLegacy, FormatTorchScript, FormatExported, FormatExportedOld, FormatSafetensors, FormatGGUF,
	} {
		if formats[f] < 3 {
			t.Errorf("only %d weights of format %s were looked at", formats[f], f)
		}
	}
}
