package cost

// What is the same on every host, as far as it is known: a search for a plan takes these for granted. Numbers that say
// so were measured on virtual machines with an NVMe disk; what a host measures of itself is in its [Rates].
const (
	// A disk gives what it is asked for in fits: what is on its way may come later than at its rate, by MostLateSeconds,
	// or where that is less by LateShare of what all that is on its way takes, since it is asked for half a ring at a
	// time. So it is idle at times unless more is asked for.
	MostLateSeconds = 10e-3
	LateShare       = 0.45

	// Reads into a ring that processors' caches hold are faster than those into a larger one: a virtual machine's disk
	// gave 5.8 GB/s into 32 MiB, 5.4 into 64, 5.1 into 128 and 4.8 into 400. Rates are those of a ring of NearBytes; reads
	// into a larger one take longer by FarShare.
	NearBytes = 96 << 20
	FarShare  = 0.125

	// DiskDoubt is by how much longer reads from a disk may take than its rate says, since others use it too: a ring is
	// large enough for that. It costs memory where reads take less time than ops, and changes little where they take more.
	DiskDoubt = 0.5

	// CachedReadSeconds is what a read of what the page cache holds costs whatever its size: no disk is waited for. A Xeon
	// took 0.7 µs.
	CachedReadSeconds = 1e-6

	// TouchedBytes is how much memory is touched for the first time in a second: a guess for a virtual machine, of which 1
	// to 12 GB were measured.
	TouchedBytes = 2.5e9

	// QueueCloseSeconds is about what closing the kernel's queue of asynchronous reads takes: reading while ops run must
	// gain more.
	QueueCloseSeconds = 0.04
)
