package fetch

import (
	"context"
	"iter"
	goruntime "runtime"
	"slices"
	"time"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/storage"
)

// A Staged fetcher brings groups to a device that files cannot be read into: through host memory, over a stream of its
// own. Groups whose bytes the plan keeps in host memory are read from files once, and those whose sources lie in memory
// that the device can copy from never.
type Staged struct {
	reader
	readers, copiers int
	// stream copies to the ring, compute runs the ops.
	stream, compute device.Stream
	ring            device.Memory
	order           []*stagedVisit
	running         bool
	// computed has the event of each visit that the ops have been given to the device for, free the event after which a
	// staging slot may be filled again, and arrived those visits that the compute stream can wait for.
	computed, arrived chan device.Event
	free              chan device.Event
	// read has each visit whose bytes are in host memory.
	read chan fed
	// underWay has the visits whose reads were asked for, in order, where there are several disks; on says for each disk
	// when the last visit is there that reads from it.
	underWay chan feeding
	on       map[storage.Disk]chan struct{}
}

// A feeding is a visit whose bytes are on their way to host memory.
type feeding struct {
	fed
	reads bool
	there chan struct{}
}

// A StagedGroup is a paged group and where its bytes are in host memory, on their way to the device.
type StagedGroup struct {
	Group *plan.Group
	// Number is the group's in its plan.
	Number int
	// InPlace are the bytes of each part in the memory of their sources, from where the device copies by itself, else
	// nil. The capacity of each is that of the source's memory from there on.
	InPlace [][]byte
	// Copy is where the bytes of a group stay whose copy is kept in host memory. They are there once Held says so, which
	// the fetcher sets and whoever takes the memory may have set before.
	Copy []byte
	Held *bool
	// Take returns what Copy is to be, where that is nil: it is asked when the group is first brought.
	Take func() ([]byte, error)
	// Blocks are those of packed files that the device decodes, nil where host memory has what the slot is to have. They go
	// through Landing.
	Blocks  iter.Seq[plan.Unpacking]
	Landing device.Region
	// Slots are the staging slots that the bytes of the others pass through. All groups have the same two.
	Slots [plan.StagingSlots][]byte
}

// A fed visit is one whose bytes lie in host memory, from where they are copied. The next time, for a later pass, they
// may be brought to another place meanwhile.
type fed struct {
	*stagedVisit
	from []byte
	// began and ended are when its reads were, where somebody wants to know and there were any.
	began, ended time.Time
}

// A stagedVisit is a paged group as a Staged fetcher sees it.
type stagedVisit struct {
	visit
	StagedGroup
	// slots are the reads into each staging slot, for groups that pass through these.
	slots [plan.StagingSlots][]piece
	// copies are those that take the group's parts to its slot.
	copies []slotCopy
	// disks are those that it is read from.
	disks []storage.Disk
	// checked says that the blocks of a copy that stays in host memory are as they should be.
	checked bool
}

// A slotCopy is a copy to the ring: of bytes where sources lie in memory, else of those at an offset in host memory.
type slotCopy struct {
	from  []byte
	run   plan.Run
	bytes int64
}

// copiesOf lists the copies of a group: of parts that lie alike in host memory and in the slot one together.
func copiesOf(v *StagedGroup, alignBytes int64) (list []slotCopy) {
	if v.InPlace == nil {
		for _, run := range plan.Runs(v.Group.Parts, alignBytes) {
			list = append(list, slotCopy{run: run, bytes: run.Bytes})
		}
		return list
	}
	for _, run := range plan.Runs(v.Group.Parts, alignBytes) {
		if v.together(run) {
			list = append(list, slotCopy{v.InPlace[run.First][:run.Bytes], run, run.Bytes})
			continue
		}
		for i := range v.Group.Parts {
			if p := &v.Group.Parts[i]; p.Staged >= run.Staged && p.Staged < run.Staged+run.Bytes {
				list = append(list, slotCopy{v.InPlace[i], plan.Run{First: i, Offset: p.Offset}, p.High - p.Low})
			}
		}
	}
	return list
}

// together reports whether the parts of a run lie in the memory of sources as they would in host memory.
func (v *StagedGroup) together(run plan.Run) bool {
	first := v.InPlace[run.First]
	if int64(cap(first)) < run.Bytes {
		return false
	}
	first = first[:run.Bytes]
	for i := range v.Group.Parts {
		at := v.Group.Parts[i].Staged - run.Staged
		if at >= 0 && at < run.Bytes && &v.InPlace[i][0] != &first[at] {
			return false
		}
	}
	return true
}

// passing reports whether the bytes pass through a staging slot.
func (v *stagedVisit) passing() bool { return v.InPlace == nil && !v.Group.Copied }

// NewStaged returns a fetcher of paged groups, in the order in which a pass runs them, into the ring of a device whose
// stream compute runs the ops.
func NewStaged(
	dev device.Device, compute device.Stream, ring device.Memory, groups []StagedGroup, o Options,
) (_ *Staged, err error) {
	s := &Staged{readers: o.Readers, copiers: o.Copiers, compute: compute, ring: ring}
	s.bytes, s.loads, s.meter = o.Read, o.Loads, o.Meter
	if s.stream, err = dev.NewStream(); err != nil {
		return nil, err
	}
	for _, group := range groups {
		v := &stagedVisit{visit: newVisit(group.Number, group.Group), StagedGroup: group}
		if v.Blocks == nil {
			v.copies = copiesOf(&group, o.AlignBytes)
		}
		switch {
		case v.InPlace != nil:
		case v.Group.Copied && v.Copy == nil: // it takes the memory later
		case v.Group.Copied:
			v.pieces = pieces(v.Group.Spans, v.Copy, pieceBytes, &v.visit)
		default:
			for i, into := range v.Slots {
				v.slots[i] = pieces(v.Group.Spans, into, pieceBytes, &v.visit)
			}
		}
		if v.InPlace == nil {
			for e := range extents(v.Group.Spans) {
				if disk := storage.DiskOf(e.Source); !slices.Contains(v.disks, disk) {
					v.disks = append(v.disks, disk)
				}
			}
		}
		s.order = append(s.order, v)
	}
	return s, nil
}

// Begin starts the readers and the copies where they do not run.
func (s *Staged) Begin() {
	if s.running || len(s.order) == 0 {
		return
	}
	s.running = true
	// What filled and read the ring before is done, and was waited for on other streams. A device that looks at the order
	// of what is done to its memory sees that here; there is nothing to wait for.
	_ = s.stream.Sync(context.Background())
	n := 2 * len(s.order)
	s.computed, s.arrived = make(chan device.Event, n), make(chan device.Event, n)
	s.read = make(chan fed, plan.StagingSlots)
	s.free = make(chan device.Event, plan.StagingSlots)
	for range plan.StagingSlots {
		s.free <- nil
	}
	most := s.copiers
	if most == 0 {
		most = goruntime.GOMAXPROCS(0)
	}
	most = max(most, s.readers)
	s.start()
	s.decoders(s.blockReads())
	s.disks = s.disks[:0]
	for _, v := range s.order {
		for _, disk := range v.disks {
			if !slices.ContainsFunc(s.disks, func(d readerDisk) bool { return d.disk == disk }) {
				s.disks = append(s.disks, readerDisk{disk, s.pool(most, most), make(chan struct{}, s.readers)})
			}
		}
	}
	if len(s.disks) > 1 {
		s.underWay, s.on = make(chan feeding, len(s.disks)), make(map[storage.Disk]chan struct{})
		s.idle.Go(s.handOver)
	}
	s.idle.Go(s.feed)
	s.idle.Go(s.copy)
}

// blockReads is room for the reads that bring blocks which are then decoded; 0 where there are none.
func (s *Staged) blockReads() (n int) {
	for _, v := range s.order {
		for e := range extents(v.Group.Spans) {
			if _, ok := e.Source.(storage.InPlaceSource); ok && v.InPlace == nil {
				n += int(e.Bytes/pieceBytes) + 1
			}
		}
	}
	return n
}

// feed brings the bytes of one visit after the other into host memory, pass after pass, as far ahead as there is room.
// Visits that lie on different disks are on their way at once.
func (s *Staged) feed() {
	slot := 0
	for n := 0; ; n++ {
		v := s.order[n%len(s.order)]
		if !s.idles(v) || !s.take(v) {
			return
		}
		list, from := v.pieces, v.Copy
		switch {
		case v.Held != nil && *v.Held:
			list = nil
		case v.passing():
			select {
			case e := <-s.free:
				if e == nil {
					break
				}
				if err := e.Sync(s.ctx); err != nil {
					s.fail(&Error{v.path, err})
					return
				}
			case <-s.ctx.Done():
				return
			}
			list, from = v.slots[slot], v.Slots[slot]
			slot = (slot + 1) % plan.StagingSlots
		}
		f := feeding{fed: fed{stagedVisit: v, from: from}, reads: len(list) > 0}
		if f.reads {
			s.loads.stamp(&f.began)
			v.visit.held = Copiers(s.readers, s.copiers, extents(v.Group.Spans)) > s.readers
			if !s.request(&v.visit, list) {
				return
			}
		}
		if len(s.disks) <= 1 {
			// The next visit's reads begin when this one's are under way to their end: the host memory of a visit is
			// handed on in order.
			if !s.hand(f) {
				return
			}
			continue
		}
		f.there = make(chan struct{})
		for _, disk := range v.disks {
			s.on[disk] = f.there
		}
		select {
		case s.underWay <- f:
		case <-s.ctx.Done():
			return
		}
	}
}

// idles waits until nothing is under way from the disks that a visit is read from, as far as it matters, and reports
// whether that is so.
func (s *Staged) idles(v *stagedVisit) bool {
	if len(s.disks) <= 1 {
		return true
	}
	for _, disk := range v.disks {
		if there := s.on[disk]; there != nil {
			select {
			case <-there:
			case <-s.ctx.Done():
				return false
			}
		}
	}
	return true
}

// handOver hands on the visits that are under way, in order.
func (s *Staged) handOver() {
	for {
		select {
		case f := <-s.underWay:
			if !s.hand(f) {
				return
			}
		case <-s.ctx.Done():
			return
		}
	}
}

// hand hands on a visit once it is there, to be copied, and reports whether it could.
func (s *Staged) hand(f feeding) bool {
	v := f.stagedVisit
	if f.reads {
		select {
		case <-v.visit.arrived:
		case <-s.failed:
			return false
		case <-s.ctx.Done():
			return false
		}
		s.loads.stamp(&f.ended)
		if v.Held != nil {
			*v.Held = true
		}
	}
	if f.there != nil {
		close(f.there)
	}
	select {
	case s.read <- f.fed:
		return true
	case <-s.ctx.Done():
		return false
	}
}

// take takes the memory of a visit's copy where it is not there yet, and reports whether it could.
func (s *Staged) take(v *stagedVisit) bool {
	if v.InPlace != nil || !v.Group.Copied || v.Copy != nil {
		return true
	}
	mem, err := v.Take()
	if err != nil {
		s.fail(&Error{v.path, err})
		return false
	}
	v.Copy, v.pieces = mem, pieces(v.Group.Spans, mem, pieceBytes, &v.visit)
	return true
}

// copy gives the copies of one visit after the other to the device, each behind the event after which its slot is free.
func (s *Staged) copy() {
	var last device.Event
	done := 0
	for n := 0; ; n++ {
		var v fed
		select {
		case v = <-s.read:
		case <-s.ctx.Done():
			return
		}
		if err := s.check(v); err != nil {
			s.fail(v.failed(err))
			return
		}
		for need := v.need(n, len(s.order)); done < need; done++ {
			select {
			case last = <-s.computed:
			case <-s.ctx.Done():
				return
			}
		}
		if last != nil && v.after > 0 {
			s.stream.Wait(last)
			if s.loads != nil { // the copy is to be measured, and not what it waits for
				if err := last.Sync(s.ctx); err != nil {
					s.fail(&Error{v.path, err})
					return
				}
			}
			last = nil // what comes next is behind it
		}
		var begin time.Time
		s.loads.stamp(&begin)
		if err := s.bring(v); err != nil {
			s.fail(&Error{v.path, err})
			return
		}
		e := s.stream.Record()
		if v.passing() {
			s.free <- e
		}
		select {
		case s.arrived <- e:
		case <-s.ctx.Done():
			return
		}
		if s.loads != nil {
			err := e.Sync(s.ctx)
			s.loads.copied(Load{
				Group: v.visit.group, Path: v.path, Bytes: v.Group.SlotBytes,
				Begin: v.began, End: v.ended, CopyBegin: begin, CopyEnd: time.Now(),
			}, err)
			if err != nil {
				s.fail(&Error{v.path, err})
				return
			}
		}
	}
}

// bring copies the parts of a group to its slot.
func (s *Staged) bring(v fed) error {
	if v.Blocks != nil {
		return s.unpack(v)
	}
	for i := range v.copies {
		c := &v.copies[i]
		from := c.from
		if from == nil {
			from = v.from[c.run.Staged:][:c.bytes]
		}
		to := device.Region{Memory: s.ring, Offset: v.Group.SlotOffset + c.run.Offset, Bytes: c.bytes}
		if err := s.stream.CopyIn(to, from); err != nil {
			return err
		}
	}
	return nil
}

// Ready has the stream of the ops wait for the next visit's copies, and returns once these were given to the device.
func (s *Staged) Ready(ctx context.Context, _ int) error {
	select {
	case e := <-s.arrived:
		s.compute.Wait(e)
		s.loads.await()
		return nil
	case <-s.failed:
		return s.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Tick does nothing: goroutines read and copy.
func (s *Staged) Tick() {}

// Done notes the event after which the slot of the group whose ops were given to the device is free.
func (s *Staged) Done(int) { s.computed <- s.compute.Record() }

// Reset stops everything and waits for it. What is held in host memory stays.
func (s *Staged) Reset() {
	if !s.running {
		return
	}
	s.running = false
	s.end()
	_ = s.stream.Sync(context.Background()) // the error is that of the pass that was given up
	for _, v := range s.order {
		v.forget()
	}
	s.loads.forget()
}

// Close stops everything and gives the stream back.
func (s *Staged) Close() error {
	s.Reset()
	if s.stream == nil {
		return nil
	}
	err := s.stream.Close()
	s.stream = nil
	return err
}
