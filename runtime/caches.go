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
// now says, from the next pass on: until more are needed, more weights can stay. What passes name must lie in these. Caches do
// not become smaller; what they hold stays where it is, and of the weights those that go on staying are not read again. It
// waits for a pass that runs.
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
	if s.cacheBlocks.Of == blocks && now < s.cacheBlocks.Now && !s.opts.PlanOnly {
		return fmt.Errorf("size caches: %d blocks, and there are %d", now, s.cacheBlocks.Now)
	}
	s.cacheBlocks = search.CacheBlocks{Of: blocks, Now: now}
	if s.within = s.ran; s.stays != nil {
		s.within = s.stays
	}
	s.forget()
	return nil
}
