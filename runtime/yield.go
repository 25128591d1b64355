package runtime

import "context"

// Yield is [Session.GiveBack] that does not wait for the end of a pass: one that runs stops before its next group, as if it had
// not begun. Until [Session.Resume] no pass runs: calls that are there, and those that come, wait, each as long as its context
// lets it. Then the pass begins anew, with the same results; buffers that the program changes are as they were before it.
//
// Yield returns once the memory is free; where ctx is done before, the session goes on.
func (s *Session) Yield(ctx context.Context) error {
	s.mu.Lock()
	if !s.yielding.Load() {
		s.yielded, s.resumed, s.yieldErr = make(chan struct{}), make(chan struct{}), nil
		s.yielding.Store(true)
	}
	yielded := s.yielded
	s.mu.Unlock()
	select {
	case <-yielded:
	case <-s.turn: // nothing runs
		defer s.release()
		if s.closed {
			s.Resume()
			return ErrClosed
		}
		return s.giveBack(ctx)
	case <-ctx.Done():
		s.Resume()
		return waitError(ctx, "yield")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.yieldErr
}

// Resume ends what [Session.Yield] began. Without that it does nothing.
func (s *Session) Resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.yielding.Swap(false) {
		close(s.resumed)
	}
}

// stand stands aside while the session yields: it gives back what is held and waits. Calls of the pass whose contexts end
// meanwhile are answered.
func (s *Session) stand(ctx context.Context, io *passIO) error {
	for s.yielding.Load() {
		err := s.giveBack(ctx)
		s.mu.Lock()
		yielding, yielded, resumed := s.yielding.Load(), s.yielded, s.resumed
		if yielding {
			s.yieldErr = err
			select {
			case <-yielded:
			default:
				close(yielded)
			}
		}
		s.mu.Unlock()
		if !yielding {
			return nil
		}
		if err := io.rest(ctx, resumed); err != nil || io.answered() {
			return err
		}
	}
	return nil
}

// rest returns once the pass may go on, or none of its calls waits for it any more.
func (x *passIO) rest(ctx context.Context, resumed <-chan struct{}) error {
	left := make(chan struct{}, 1)
	for _, c := range x.calls {
		stop := context.AfterFunc(c.ctx, func() {
			select {
			case left <- struct{}{}:
			default:
			}
		})
		defer stop()
	}
	for {
		select {
		case <-resumed:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-left:
			for _, c := range x.calls {
				if err := c.ctx.Err(); err != nil {
					c.end(c.failed(err))
				}
			}
			if x.answered() {
				return nil
			}
		}
	}
}
