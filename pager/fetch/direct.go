package fetch

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/storage"
)

// A Direct fetcher reads into the device's memory. Reads that sources can queue are begun by the goroutine that runs
// the pass, at the moment at which a slot becomes free: while all processors compute, another goroutine would get to it
// late. What sources do not queue, because it lies in the page cache or because they cannot, is read by goroutines.
type Direct struct {
	reader
	readers int
	visits  []*directVisit // by group, nil for groups that are not paged
	order   []*directVisit
	queues  []*queue
	// begun counts the visits whose reads were all begun, of the next one those of at parts; arrived and finished count
	// those that are there, and that the device is done with.
	begun, at, arrived, finished int
	// held says that what is next waits for reads that are under way, not for its slot.
	held bool
	// underWay counts the reads in queues, batch how many they were when the last was begun. mostBytes is how much is
	// begun at once, beyond one visit.
	underWay, batch int
	mostBytes       int64
	// diskBound says that ops are expected to wait for the disk whatever is done.
	diskBound bool
	// broken is what a read failed with that nobody waited for.
	broken  error
	running bool
	// once says that every visit is made once, and not again for the next pass. Queues are given back once all has
	// arrived; unqueued says that there are none.
	once, unqueued bool
	retired        sync.WaitGroup
	// pieceBytes is how much a read takes at most, noWait a context that is done.
	pieceBytes int64
	noWait     context.Context
}

// A directVisit is a visit whose pieces may be in queues.
type directVisit struct {
	visit
	bytes int64
	parts []part
	// fromQueue says that a queue was given one of them to read since the visit was ready last.
	fromQueue bool
}

// A part is a piece that may be in a queue.
type part struct {
	piece
	queue   *queue
	pending bool
}

// A queue is that of one source, with the parts that are under way by number.
type queue struct {
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
		pieceBytes: cmp.Or(o.PieceBytes, pieceBytes), noWait: noWait,
	}
	d.bytes, d.loads = o.Read, o.Loads
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
	}
	return d
}

// Brings reports whether the fetcher brings something for a group, which then has to be waited for.
func (d *Direct) Brings(k int) bool { return d.visits[k] != nil }

// add adds reads into memory to a visit.
func (d *Direct) add(v *directVisit, list []plan.Span, into []byte) {
	v.bytes += plan.SpanBytes(list)
	for _, piece := range pieces(list, into, d.pieceBytes, &v.visit) {
		v.parts = append(v.parts, part{piece: piece, queue: d.queueOf(piece.request[0].Extent.Source)})
	}
}

// queueOf returns the queue of a source, nil where it has none.
func (d *Direct) queueOf(source storage.Source) *queue {
	s, ok := source.(storage.QueuedSource)
	if !ok || d.unqueued {
		return nil
	}
	for _, q := range d.queues {
		if q.source == s {
			return q
		}
	}
	q := &queue{source: s, free: make([]int, 0, queued)}
	d.queues = append(d.queues, q)
	return q
}

// open asks the source for a queue. A source that has none is read by goroutines.
func (q *queue) open() {
	if q.reads, _ = q.source.Queue(queued); q.reads == nil {
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
	room := 0
	for _, v := range d.order {
		room += len(v.parts)
	}
	d.start(d.readers, room) // so that handing them a piece never waits
	for _, q := range d.queues {
		if q.reads == nil {
			q.open()
		}
	}
	d.begun, d.at, d.arrived, d.finished, d.underWay, d.batch = 0, 0, 0, 0, 0, 0
	d.broken = d.advance()
}

// advance begins the reads of one visit after the other, pass after pass, each once the plan says that its slot is
// free, a batch of them at once.
func (d *Direct) advance() error {
	err := d.beginNext()
	for _, q := range d.queues {
		if q.reads != nil {
			q.reads.Flush()
		}
	}
	return err
}

func (d *Direct) beginNext() error {
	d.held = false
	if err := d.look(); err != nil {
		return err
	}
	room, open := d.mostBytes, d.few()
	if d.starved() {
		room = soonBytes
	}
	for !d.once || d.begun < len(d.order) {
		v := d.order[d.begun%len(d.order)]
		if d.at == 0 {
			if v.need(d.begun, len(d.order)) > d.finished {
				return nil
			}
			if d.held = !open || d.underWay > 0 && v.bytes > room; d.held {
				return nil
			}
			v.left.Store(1) // until all are begun
			d.loads.stamp(&v.began)
		}
		before := d.underWay
		for ; d.at < len(v.parts); d.at++ {
			p := &v.parts[d.at]
			if q := p.queue; q != nil && q.reads != nil {
				if len(q.free) == 0 {
					d.held = true
					return nil
				}
				if q.begin(p) {
					v.fromQueue = true
					d.underWay++
					d.batch = d.underWay
					continue
				}
			}
			v.left.Add(1)
			d.work <- p.piece
		}
		if d.underWay > before {
			room -= v.bytes
		}
		d.at = 0
		d.begun++
		if v.left.Add(-1) == 0 {
			d.loads.stamp(&v.ended)
			v.visit.arrived <- struct{}{}
		}
	}
	return nil
}

// starved reports whether ops need the next visit while the disk does nothing. Where ops wait for the disk anyway,
// large batches are better.
func (d *Direct) starved() bool { return !d.diskBound && d.underWay == 0 && d.begun == d.arrived }

// few reports whether so few reads of the last batch are left that the next may be begun.
func (d *Direct) few() bool { return d.underWay <= min(d.batch/lowShare, mostLow) }

// look notes the reads that have ended, without waiting for one.
func (d *Direct) look() error {
	for _, q := range d.queues {
		for q.reads != nil && len(q.free) < queued {
			if err := d.reap(d.noWait, q); errors.Is(err, context.Canceled) {
				break
			} else if err != nil {
				return err
			}
		}
	}
	return nil
}

// begin reports whether the read of a part was begun.
func (q *queue) begin(p *part) bool {
	number := q.free[len(q.free)-1]
	if !q.reads.Begin(number, p.request[0].Into, p.request[0].Extent.Offset) {
		return false
	}
	q.free = q.free[:len(q.free)-1]
	q.parts[number], p.pending = p, true
	return true
}

// reap waits for a read of a queue to end. One that the queue could not make is made again, to know why.
func (d *Direct) reap(ctx context.Context, q *queue) error {
	number, filled, err := q.reads.Wait(ctx)
	if err != nil {
		return err
	}
	p := q.parts[number]
	q.free, p.pending = append(q.free, number), false
	d.underWay--
	d.loads.stamp(&p.visit.reaped)
	if !filled {
		return d.fill(p.piece)
	}
	d.bytes.Add(p.request[0].Extent.Bytes)
	return nil
}

// Ready returns once group k of this pass is in its slot, or with why it will not be.
func (d *Direct) Ready(ctx context.Context, k int) error {
	if d.broken != nil {
		return d.broken
	}
	v := d.visits[k]
	for d.begun == d.arrived {
		if err := d.step(ctx); err != nil {
			return err
		}
	}
	waited := false
	for i := range v.parts {
		for p := &v.parts[i]; p.pending; waited = true {
			if err := d.reap(ctx, p.queue); err != nil {
				return err
			}
			if d.held && d.few() {
				if err := d.advance(); err != nil {
					return err
				}
			}
		}
	}
	if waited && d.held {
		if err := d.advance(); err != nil {
			return err
		}
	}
	if err := d.wait(ctx, &v.visit); err != nil {
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

// retire begins to give the queues back, which takes tens of milliseconds.
func (d *Direct) retire() {
	for _, q := range d.queues {
		if reads := q.reads; reads != nil {
			q.reads, q.free = nil, q.free[:0]
			d.retired.Go(func() { q.broken = reads.Close() })
		}
	}
}

// step waits for a read to end and begins what is next if it can. It is for a visit of which not all reads are begun.
func (d *Direct) step(ctx context.Context) error {
	for _, q := range d.queues {
		if d.held && q.reads != nil && len(q.free) < queued {
			if err := d.reap(ctx, q); err != nil {
				return err
			}
			return d.advance()
		}
	}
	panic("BUG: the slot of a group is not free when the group is to run")
}

// Tick begins what is next where that waited for reads and they have ended.
func (d *Direct) Tick() {
	if d.held && d.broken == nil {
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
	for _, q := range d.queues {
		for q.reads != nil && len(q.free) < queued {
			number, _, err := q.reads.Wait(context.Background())
			if err != nil {
				break // closing waits, too
			}
			q.parts[number].pending = false
			q.free = append(q.free, number)
		}
	}
	for _, v := range d.order {
		v.forget()
	}
}

// Close gives the queues back, with the first error of each.
func (d *Direct) Close() error {
	d.Reset()
	d.retire()
	d.retired.Wait()
	var errs []error
	for _, q := range d.queues {
		errs = append(errs, q.broken)
		q.broken = nil
	}
	return errors.Join(errs...)
}
