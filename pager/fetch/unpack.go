package fetch

import (
	"errors"
	goruntime "runtime"

	"golang.org/x/sync/errgroup"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/internal/panicked"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/storage"
)

// checkedTogether is how many blocks one goroutine checks before it asks for others.
const checkedTogether = 16

// check compares the blocks of a visit that the device is to decode with their checksums, and sees that they decode. It does
// so once for those that stay in host memory.
func (s *Staged) check(v fed) error {
	if v.Blocks == nil || v.checked {
		return nil
	}
	group, ctx := errgroup.WithContext(s.ctx)
	group.SetLimit(goruntime.GOMAXPROCS(0))
	var some []plan.Unpacking
	begin := func() {
		list := some
		some = nil
		group.Go(func() (err error) {
			defer func() {
				if p := recover(); p != nil {
					err = panicked.By(p)
				}
			}()
			for i := range list {
				b := &list[i].Block
				if err := ctx.Err(); err != nil {
					return err
				}
				if err := list[i].Source.CheckBlock(*b, v.from[list[i].Staged:][:b.Stored]); err != nil {
					return &storage.ReadError{
						Extent: storage.Extent{Source: list[i].Source, Offset: b.Offset, Bytes: b.Bytes}, Err: err,
					}
				}
			}
			return nil
		})
	}
	last := int64(-1)
	for x := range v.Blocks {
		if x.Staged == last { // another part has something of it
			continue
		}
		last = x.Staged
		if some = append(some, x); len(some) == checkedTogether {
			begin()
		}
	}
	if len(some) > 0 {
		begin()
	}
	err := group.Wait()
	v.checked = err == nil && v.Group.Copied
	return err
}

// unpack has the device copy the blocks of a group, as many at a time as there is room for, and decode them to its slot.
func (s *Staged) unpack(v fed) error {
	unpacker, ok := s.stream.(device.Unpacker)
	if !ok {
		return errors.New("BUG: the plan has a device decode blocks that cannot")
	}
	slot := device.Region{Memory: s.ring, Offset: v.Group.SlotOffset, Bytes: v.Group.SlotBytes}
	var list []device.Unpacking
	var begin, end int64
	flush := func() error {
		if len(list) == 0 {
			return nil
		}
		if err := s.stream.CopyIn(v.Landing, v.from[begin:end]); err != nil {
			return err
		}
		err := unpacker.Unpack(s.ctx, slot, v.Landing, list)
		list = list[:0]
		return err
	}
	for x := range v.Blocks {
		high := x.Staged + x.Block.Stored
		if len(list) > 0 && (x.Staged < begin || high-begin > v.Landing.Bytes || x.Staged-end > mostBetween) {
			if err := flush(); err != nil {
				return err
			}
		}
		if len(list) == 0 {
			begin, end = x.Staged, high
		}
		end = max(end, high)
		list = append(list, device.Unpacking{
			From: x.Staged - begin, Bytes: x.Block.Bytes, Low: x.Low, High: x.High, To: x.Offset,
		})
	}
	return flush()
}

// mostBetween is how much may lie between blocks that are copied at once.
const mostBetween = 64 << 10
