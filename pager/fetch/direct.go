package fetch

import (
	"cmp"
	"context"
	"errors"
	goruntime "runtime"
	"sync"
	"time"

	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/storage"
)

// A Direct fetcher reads into the device's memory. Reads that sources can queue are begun by the goroutine that runs
// the pass, at the moment at which a slot becomes free: while all processors compute, another goroutine would get to it
// late. What sources do not queue, because it lies in the page cache or because they cannot, is read by goroutines.
//
// Each disk is read by itself, with queues and goroutines of its own and as far ahead as slots are free: a slow one
// never holds up another.
type Direct struct {
	reader
	readers int
	visits  []*directVisit // by group, nil for groups that are not paged
	order   []*directVisit
	// lanes are the disks, in the order in which they are needed.
	lanes []*lane
	// arrived and finished count the visits that are there, and that the device is done with.
	arrived, finished int
	// mostBytes is how much is begun at once of a disk, beyond one visit.
	mostBytes int64
	// diskBound says that ops are expected to wait for the disk whatever is done.
	diskBound bool
	// undecoded are pieces whose blocks queues have read, and that nobody decodes yet.
	undecoded []piece
	// broken is what a read failed with that nobody waited for.
	broken  error
	running bool
	// past says that what the page cache holds is read from the disk, too.
	past bool
	// once says that every visit is made once, and not again for the next pass. Queues are given back once all has
	// arrived; unqueued says that there are none.
	once, unqueued bool
	retired        sync.WaitGroup
	// pieceBytes is how much a read takes at most, noWait a context that is done.
	pieceBytes int64
	noWait     context.Context
}

// A lane is a disk and what is under way from there.
type lane struct {
	disk   storage.Disk
	queues []*queue
	work   chan piece
	// begun counts the visits of which all that lies on the disk was begun, and of the next one at parts were.
	begun, at int
	// held says that what is next waits for reads that are under way, not for its slot.
	held bool
	// underWay counts the reads in queues, batch how many they were when the last was begun.
	underWay, batch int
	// since is a moment at which it was known what queues had read, zero where that was not known since they had nothing to
	// do; got is what they have read since.
	since time.Time
	got   int64
}

// A directVisit is a visit whose pieces may be in queues.
type directVisit struct {
	visit
	bytes int64
	lots  []lot
	// unbegun is how many lots are not begun whole, 0 where none is begun.
	unbegun int
	// fromQueue says that a queue was given one of them to read since the visit was ready last.
	fromQueue bool
}

// A lot is what of a visit lies on one disk.
type lot struct {
	lane  *lane
	bytes int64
	parts []part
}

// lotOf returns what of a visit lies on a disk, nil where nothing does.
func (v *directVisit) lotOf(l *lane) *lot {
	for i := range v.lots {
		if v.lots[i].lane == l {
			return &v.lots[i]
		}
	}
	return nil
}

// A part is a piece that may be in a queue.
type part struct {
	piece
	queue   *queue
	pending bool
}

// A queue is that of one source, with the parts that are under way by number.
type queue struct {
	lane   *lane
	source storage.QueuedSource
	reads  storage.ReadQueue
	// broken is what giving reads back failed with.
	broken error
	parts  [queued]*part
	free   []int
}

// DeviceMemory is what a [Direct] fetcher reads into: memory of the device that the host can write to.
type DeviceMemory struct {
	// Slot returns the bytes of a paged group's slot in the ring.
	Slot func(group *plan.Group) []byte
	// Decoded returns the reads of a group that is decoded from blocks that stay, of sources that have these.
	Decoded func(group *plan.Group) []plan.Span
	// Fixed is the arena of the weights that stay. It is needed where these are fetched.
	Fixed []byte
}

// NewDirect returns a fetcher of the groups that a plan pages, into the ring, and, where stays is not nil, of what each
// group is the first to need of the weights that stay (see [plan.Plan.FirstReads]). That is brought once, as all is for
// a single pass.
func NewDirect(p *plan.Plan, to DeviceMemory, stays [][]plan.Span, o Options) *Direct {
	noWait, done := context.WithCancel(context.Background())
	done()
	d := &Direct{
		readers: o.Readers, visits: make([]*directVisit, len(p.Groups)), mostBytes: p.RingBytes / 2,
		diskBound: p.Forecast.Bound != "compute", once: p.Once || stays != nil,
		unqueued:   p.Once && stays == nil && p.MovedBytes < cmp.Or(o.QueuesPay, queuesPay),
		pieceBytes: cmp.Or(o.PieceBytes, pieceBytes), noWait: noWait, past: p.PastCache,
	}
	d.bytes, d.loads, d.meter = o.Read, o.Loads, o.Meter
	if stays != nil {
		d.mostBytes = max(d.mostBytes, firstBytes)
	}
	for k := range p.Groups {
		group := &p.Groups[k]
		brings := stays != nil && len(stays[k]) > 0
		if !group.Paged() && !brings {
			continue
		}
		v := &directVisit{visit: newVisit(k, group)}
		d.visits[k] = v
		d.order = append(d.order, v)
		if group.Paged() { // counted over more visits than the plan counts, it waits for what the plan says or later
			list := group.Spans
			if group.Decoded {
				list = to.Decoded(group)
			}
			d.add(v, list, to.Slot(group))
		}
		if brings {
			d.add(v, stays[k], to.Fixed)
		}
		if v.lots == nil { // there is nothing to read of it
			if d.lanes == nil {
				d.laneOf(nil)
			}
			v.lots = []lot{{lane: d.lanes[0]}}
		}
	}
	return d
}

// laneOf returns the lane of the disk that a source lies on.
func (d *Direct) laneOf(source storage.Source) *lane {
	disk := storage.DiskOf(source)
	for _, l := range d.lanes {
		if l.disk == disk {
			return l
		}
	}
	l := &lane{disk: disk}
	d.lanes = append(d.lanes, l)
	return l
}

// Brings reports whether the fetcher brings something for a group, which then has to be waited for.
func (d *Direct) Brings(k int) bool { return d.visits[k] != nil }

// add adds reads into memory to a visit.
func (d *Direct) add(v *directVisit, list []plan.Span, into []byte) {
	v.bytes += plan.SpanBytes(list)
	for _, piece := range pieces(list, into, d.pieceBytes, &v.visit) {
		l := d.laneOf(piece.request[0].Extent.Source)
		of := v.lotOf(l)
		if of == nil {
			v.lots = append(v.lots, lot{lane: l})
			of = &v.lots[len(v.lots)-1]
		}
		of.bytes += piece.request[0].Extent.Bytes
		of.parts = append(of.parts, part{piece: piece, queue: d.queueOf(l, piece.reads()[0].Extent.Source)})
	}
}

// queueOf returns the queue of a source, nil where it has none.
func (d *Direct) queueOf(l *lane, source storage.Source) *queue {
	s, ok := source.(storage.QueuedSource)
	if !ok || d.unqueued {
		return nil
	}
	for _, q := range l.queues {
		if q.source == s {
			return q
		}
	}
	q := &queue{lane: l, source: s, free: make([]int, 0, queued)}
	l.queues = append(l.queues, q)
	return q
}

// open asks the source for a queue. A source that has none is read by goroutines.
func (q *queue) open(past bool) {
	ask := q.source.Queue
	if s, ok := q.source.(storage.PastSource); ok && past {
		ask = s.QueuePast
	}
	if q.reads, _ = ask(queued); q.reads == nil {
		return
	}
	for i := range queued {
		q.free = append(q.free, i)
	}
}

// Begin starts to read where nothing is under way.
func (d *Direct) Begin() {
	if len(d.order) == 0 {
		return
	}
	if d.once && d.arrived == len(d.order) { // a pass that was not expected
		d.Reset()
	}
	if d.running {
		return
	}
	d.running = true
	d.start()
	d.arrived, d.finished = 0, 0
	d.undecoded = d.undecoded[:0]
	d.decoders(d.blockReads())
	for _, l := range d.lanes {
		room := 0
		for _, v := range d.order {
			if of := v.lotOf(l); of != nil {
				room += len(of.parts)
			}
		}
		l.work = d.pool(d.readers, room) // so that handing them a piece never waits
		for _, q := range l.queues {
			if q.reads == nil {
				q.open(d.past)
			}
		}
		l.begun, l.at, l.underWay, l.batch, l.held = 0, 0, 0, 0, false
	}
	d.broken = d.advance()
}

// blockReads returns how many reads of a pass bring blocks that are then decoded.
func (d *Direct) blockReads() (n int) {
	for _, v := range d.order {
		for i := range v.lots {
			for j := range v.lots[i].parts {
				if v.lots[i].parts[j].blocks != nil {
					n++
				}
			}
		}
	}
	return n
}

// advance begins the reads of one visit after the other, pass after pass, each once the plan says that its slot is
// free, a batch of them at once of each disk.
func (d *Direct) advance() error {
	err := d.look()
	for _, l := range d.lanes {
		if err == nil {
			err = d.beginNext(l)
		}
		for _, q := range l.queues {
			if q.reads != nil {
				q.reads.Flush()
			}
		}
	}
	return err
}

// beginNext does that with one disk.
func (d *Direct) beginNext(l *lane) error {
	l.held = false
	room, open := d.mostBytes, l.few()
	if d.starved(l) {
		room = soonBytes
	}
	for !d.once || l.begun < len(d.order) {
		v := d.order[l.begun%len(d.order)]
		of := v.lotOf(l)
		if of == nil { // it lies elsewhere
			l.begun++
			continue
		}
		if l.at == 0 {
			if v.need(l.begun, len(d.order)) > d.finished {
				return nil
			}
			if l.held = !open || l.underWay > 0 && of.bytes > room; l.held {
				return nil
			}
			if v.unbegun == 0 {
				v.unbegun = len(v.lots)
				v.left.Store(1) // until all are begun
				d.loads.stamp(&v.began)
			}
		}
		before := l.underWay
		for ; l.at < len(of.parts); l.at++ {
			p := &of.parts[l.at]
			if q := p.queue; q != nil && q.reads != nil {
				if len(q.free) == 0 {
					l.held = true
					return nil
				}
				if q.begin(p) {
					v.fromQueue = true
					d.ask(l, p)
					continue
				}
			}
			v.left.Add(1)
			l.work <- p.piece
		}
		if l.underWay > before {
			room -= of.bytes
		}
		l.at = 0
		l.begun++
		if v.unbegun--; v.unbegun == 0 && v.left.Add(-1) == 0 {
			d.loads.stamp(&v.ended)
			v.visit.arrived <- struct{}{}
		}
	}
	return nil
}

// ask notes that a read is under way in a queue.
func (d *Direct) ask(l *lane, p *part) {
	if p.blocks != nil { // goroutines look after it once it was read
		p.visit.left.Add(1)
	}
	if l.underWay == 0 && d.meter != nil {
		l.since, l.got = time.Now(), 0
	}
	l.underWay++
	l.batch = l.underWay
}

// starved reports whether ops need the next visit while the disk does nothing. Where ops wait for the disk anyway,
// large batches are better.
func (d *Direct) starved(l *lane) bool {
	return !d.diskBound && l.underWay == 0 && l.begun == d.arrived
}

// few reports whether so few reads of the last batch are left that the next may be begun.
func (l *lane) few() bool { return l.underWay <= min(l.batch/lowShare, mostLow) }

// held reports whether what is next on a disk waits for reads that are under way.
func (d *Direct) held() bool {
	for _, l := range d.lanes {
		if l.held {
			return true
		}
	}
	return false
}

// look notes the reads that have ended, without waiting for one.
func (d *Direct) look() error {
	for _, l := range d.lanes {
		for _, q := range l.queues {
			for q.reads != nil && len(q.free) < queued {
				if err := d.reap(d.noWait, q); errors.Is(err, context.Canceled) {
					break
				} else if err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// begin reports whether the read of a part was begun.
func (q *queue) begin(p *part) bool {
	number := q.free[len(q.free)-1]
	r := &p.reads()[0]
	if !q.reads.Begin(number, r.Into, r.Extent.Offset) {
		return false
	}
	q.free = q.free[:len(q.free)-1]
	q.parts[number], p.pending = p, true
	return true
}

// reap waits for a read of a queue to end. One that the queue could not make is made again, to know why.
func (d *Direct) reap(ctx context.Context, q *queue) error {
	var from time.Time
	if d.meter != nil && ctx != d.noWait {
		from = time.Now()
	}
	number, filled, err := q.reads.Wait(ctx)
	if err != nil {
		return err
	}
	p, l := q.parts[number], q.lane
	q.free, p.pending = append(q.free, number), false
	l.underWay--
	if d.meter != nil {
		d.measure(l, from, p.reads()[0].Extent.Bytes)
	}
	d.loads.stamp(&p.visit.reaped)
	if filled {
		d.bytes.Add(p.request[0].Extent.StoredBytes())
	} else if err := d.fill(p.piece); err != nil {
		return err
	}
	if p.blocks != nil {
		d.undecoded = append(d.undecoded, p.piece)
	}
	return nil
}

// decodeSome has decoded what is waited for, and of what comes later as much as keeps those busy who decode. It is called
// where ops wait: while they run nothing is given to decode, since that would take processors from them, and all of them
// would wait for those.
func (d *Direct) decodeSome() {
	now, left := &d.order[d.arrived%len(d.order)].visit, d.undecoded[:0]
	for _, p := range d.undecoded {
		if p.visit == now || len(d.blocks) < goruntime.GOMAXPROCS(0) {
			d.has(p)
		} else {
			left = append(left, p)
		}
	}
	clear(d.undecoded[len(left):])
	d.undecoded = left
}

// measure notes what a disk gave where a read has ended that was waited for from a time on: it ended then, and not long
// before.
func (d *Direct) measure(l *lane, from time.Time, bytes int64) {
	l.got += bytes
	now := time.Now()
	switch {
	case !from.IsZero() && now.Sub(from) >= waited:
		if !l.since.IsZero() {
			d.meter.note(l.disk, l.got, now.Sub(l.since))
		}
		l.since, l.got = now, 0
	case l.underWay == 0:
		l.since = time.Time{}
	}
}

// await waits for a read of a queue to end. Where there are several disks it may return before, once it has looked after
// the others.
func (d *Direct) await(ctx context.Context, q *queue) error {
	d.decodeSome()
	if len(d.lanes) == 1 {
		return d.reap(ctx, q)
	}
	_, err := d.glance(ctx, func(ctx context.Context) error { return d.reap(ctx, q) })
	return err
}

// glance waits as it is told, for a moment, and looks after all disks where that was in vain.
func (d *Direct) glance(ctx context.Context, wait func(context.Context) error) (ended bool, err error) {
	short, done := context.WithTimeout(ctx, glance)
	defer done()
	if err := wait(short); err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
		return true, err
	}
	return false, d.advance()
}

// Ready returns once group k of this pass is in its slot, or with why it will not be.
func (d *Direct) Ready(ctx context.Context, k int) error {
	if d.broken != nil {
		return d.broken
	}
	v := d.visits[k]
	for i := range v.lots {
		for v.lots[i].lane.begun <= d.arrived {
			if err := d.step(ctx, v.lots[i].lane); err != nil {
				return err
			}
		}
	}
	waited := false
	for i := range v.lots {
		l := v.lots[i].lane
		for j := range v.lots[i].parts {
			for p := &v.lots[i].parts[j]; p.pending; waited = true {
				if err := d.await(ctx, p.queue); err != nil {
					return err
				}
				if l.held && l.few() {
					if err := d.advance(); err != nil {
						return err
					}
				}
			}
		}
	}
	if waited && d.held() {
		if err := d.advance(); err != nil {
			return err
		}
	}
	if err := d.arrival(ctx, &v.visit); err != nil {
		return err
	}
	if v.fromQueue { // other pieces are looked after by who reads them
		v.fromQueue = false
		if err := v.unchanged(); err != nil {
			return &Error{v.path, err}
		}
	}
	d.loads.read(&v.visit, v.bytes)
	if d.arrived++; d.once && d.arrived == len(d.order) { // the last ops run meanwhile
		d.retire()
	}
	return nil
}

// arrival waits for what goroutines read or decode of a visit, and looks after the queues of several disks meanwhile.
func (d *Direct) arrival(ctx context.Context, v *visit) error {
	d.decodeSome()
	if len(d.lanes) == 1 {
		return d.wait(ctx, v)
	}
	for {
		ended, err := d.glance(ctx, func(ctx context.Context) error { return d.wait(ctx, v) })
		if ended || err != nil {
			return err
		}
	}
}

// retire begins to give the queues back, which takes tens of milliseconds.
func (d *Direct) retire() {
	for _, l := range d.lanes {
		for _, q := range l.queues {
			if reads := q.reads; reads != nil {
				q.reads, q.free = nil, q.free[:0]
				d.retired.Go(func() { q.broken = reads.Close() })
			}
		}
	}
}

// step waits for a read of a disk to end and begins what is next if it can. It is for a visit of which not all reads are
// begun.
func (d *Direct) step(ctx context.Context, l *lane) error {
	for _, q := range l.queues {
		if l.held && q.reads != nil && len(q.free) < queued {
			if err := d.await(ctx, q); err != nil {
				return err
			}
			return d.advance()
		}
	}
	panic("BUG: the slot of a group is not free when the group is to run")
}

// Tick begins what is next where that waited for reads and they have ended.
func (d *Direct) Tick() {
	if d.broken == nil && d.held() {
		d.broken = d.advance()
	}
}

// Done says that the ops of a group are done with its slot, and begins what waited for it.
func (d *Direct) Done(int) {
	d.finished++
	if d.broken == nil {
		d.broken = d.advance()
	}
}

// Reset stops the readers, whose work for the pass that was given up may lie anywhere.
func (d *Direct) Reset() {
	if !d.running {
		return
	}
	d.running = false
	d.end()
	d.retired.Wait()
	for _, l := range d.lanes {
		for _, q := range l.queues {
			for q.reads != nil && len(q.free) < queued {
				number, _, err := q.reads.Wait(context.Background())
				if err != nil {
					break // closing waits, too
				}
				q.parts[number].pending = false
				q.free = append(q.free, number)
			}
		}
	}
	for _, v := range d.order {
		v.unbegun = 0
		v.forget()
	}
}

// Close gives the queues back, with the first error of each.
func (d *Direct) Close() error {
	d.Reset()
	d.retire()
	d.retired.Wait()
	var errs []error
	for _, l := range d.lanes {
		for _, q := range l.queues {
			errs = append(errs, q.broken)
			q.broken = nil
		}
	}
	return errors.Join(errs...)
}
