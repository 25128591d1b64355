package loader

// Limits bound what opening a file may cost, whatever the file says. The zero value is the default, under which a
// hostile file costs at most 64 MiB of memory and 2 seconds.
type Limits struct {
	// MemoryBytes bounds the memory taken while opening: the records' names, the objects of all pickles, graphs and
	// code. Default 32 MiB, enough for about 25,000 tensors in a file of torch.save; the garbage collector may hold
	// as much again.
	MemoryBytes int64
	// Depth bounds the nesting of pickled objects, JSON and code. Default 200.
	Depth int
	// Records bounds the records of an archive and the files of a sharded checkpoint. Default 200,000.
	Records int
}

// Default limits; see [Limits].
const (
	DefaultMemoryBytes = 32 << 20
	DefaultDepth       = 200
	DefaultRecords     = 200_000
)

func (l Limits) withDefaults() Limits {
	if l.MemoryBytes <= 0 {
		l.MemoryBytes = DefaultMemoryBytes
	}
	if l.Depth <= 0 {
		l.Depth = DefaultDepth
	}
	if l.Records <= 0 {
		l.Records = DefaultRecords
	}
	return l
}
