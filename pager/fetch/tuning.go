package fetch

import "time"

// What keeps disks busy, and why. All of these were found by timing whole models (benchmarks/PAGING.md) on virtual
// machines with an NVMe disk; none changes what is read or the order of passes, only when reads are asked for.
const (
	// pieceBytes is how much one read takes at most: smaller ones cost system calls, larger ones leave the last reader
	// alone and are cut again by block devices.
	pieceBytes = 1 << 20

	// Of what the host holds in memory all but one of heldParts are to be there, or it is for the disk to read.
	heldParts = 16

	// queued is how many reads of a source are under way at most. Together they are what a disk has to do while an op
	// runs, and less than what block devices take before they let the caller wait.
	queued = 160

	// queuesPay is how much has to be read for queues to be worth the tens of milliseconds that giving them back takes,
	// where there is one pass alone.
	queuesPay = 128 << 20

	// firstBytes is how much of the weights that stay is asked for at once where they come during a pass: enough to keep a
	// disk busy while an op runs. There is no ring whose half would bound it.
	firstBytes = 64 << 20

	// Some disks, those of virtual machines among them, say that reads have ended once they have nothing to do: what is
	// asked for meanwhile delays what was asked for before. So reads are begun in batches, of half the ring where that is
	// more than one visit, the next once at most one in lowShare of the reads of the last one is under way, and no more
	// than mostLow.
	lowShare = 4
	mostLow  = 8

	// soonBytes are asked for first where ops would wait for a whole batch although they take longer than the disk: the
	// disk has nothing to do and the next group is needed now.
	soonBytes = 1 << 20

	// glance is how long one disk is waited for before others are looked after, where there are several.
	glance = 2 * time.Millisecond

	// waited is how long a wait for the last read of a batch takes at least where that ended then, and not before.
	waited = 100 * time.Microsecond
)
