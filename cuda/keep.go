package cuda

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/optimem/optimem/cuda/internal/driver"
	"github.com/optimem/optimem/device"
)

// kept is a graph of launches, as the driver calls it.
type kept struct {
	d     *Device
	graph driver.Kept
	// ops is how many it is of, notes whether one of them may note a failure.
	ops   int
	notes bool
	freed atomic.Bool
}

var _ device.Keeper = (*stream)(nil)

// BeginKeeping has Run keep ops instead of computing them. The error wraps errors.ErrUnsupported where the
// driver is too old for it.
func (s *stream) BeginKeeping() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.d.lib.Keeps() {
		return fmt.Errorf("%w: the driver keeps no work", errors.ErrUnsupported)
	}
	if err := s.begin(); err != nil {
		return err
	}
	defer s.d.leave()
	if err := s.d.failed(s.d.lib.BeginKeeping(s.handle)); err != nil {
		return err
	}
	s.keeping = &kept{d: s.d}
	return nil
}

// EndKeeping returns what was kept.
func (s *stream) EndKeeping() (device.Kept, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.keeping
	s.keeping = nil
	if err := s.d.enter(); err != nil {
		return nil, err
	}
	defer s.d.leave()
	var err error
	if k.graph, err = s.d.lib.EndKeeping(s.handle); err != nil {
		return nil, s.d.failed(err)
	}
	return k, nil
}

// RunKept gives ops that were kept to the GPU at once.
func (s *stream) RunKept(ctx context.Context, ops device.Kept) error {
	k := ops.(*kept)
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.pace(ctx, k.ops); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.begin(); err != nil {
		return err
	}
	defer s.d.leave()
	s.notes.pending = s.notes.pending || k.notes
	return s.d.failed(s.d.lib.LaunchKept(k.graph, s.handle))
}

// Free gives the graph back.
func (k *kept) Free() error {
	if k.freed.Swap(true) || k.d.gone() {
		return nil // the context took it along
	}
	if err := k.d.enter(); err != nil {
		return err
	}
	defer k.d.leave()
	return k.d.failed(k.d.lib.DropKept(k.graph))
}
