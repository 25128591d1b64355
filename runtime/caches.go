package runtime

import (
	"context"
	"errors"
	"fmt"

	"github.com/optimem/optimem/internal/hostmem"
	"github.com/optimem/optimem/plan/search"
)

// CachesGrow reports whether [Session.SizeCaches] can be called: on a CPU whose system gives memory that is written to first,
// where caches do not wait in a file.
func (s *Session) CachesGrow() bool {
	return hostmem.CanResize && s.machine.Device().Target.Direct && !s.opts.CachesAway
}

// SizeCaches has those caches of attention that have so many blocks in all be given memory for the first ones of them, as many as
// now says, from the next pass on: until more are needed, more weights can stay. What passes name must lie in these. What caches
// hold there stays where it is; with fewer blocks than before what lies behind them is gone at once. Of the weights those that go
// on staying are not read again. It waits for a pass that runs.
func (s *Session) SizeCaches(ctx context.Context, blocks, now int) error {
	if now < 1 || now > blocks {
		return fmt.Errorf("size caches: %d of %d blocks", now, blocks)
	}
	if !s.CachesGrow() {
		return errors.New("size caches: these have the size that they have")
	}
	if err := s.wait(ctx, "size caches"); err != nil {
		return err
	}
	defer s.release()
	to := search.CacheBlocks{Of: blocks, Now: now}
	var ahead *foresight
	if f := s.foreseen; f != nil && f.to == to && s.holds(f) {
		ahead = f
	}
	if before := s.cacheBlocks; before.Of == blocks && now < before.Now && !s.opts.PlanOnly {
		if err := s.machine.ShrinkCaches(blocks, now); err != nil {
			return fmt.Errorf("size caches: %w", err)
		}
		s.noteHeld()
	}
	s.within, s.cacheBlocks = s.giving(to), to
	s.forget()
	err := s.foretold(ctx, ahead)
	s.dropForesight()
	return err
}
