package loader

// Limits bound what opening a file may cost, whatever the file says. The zero value is the default, under which a hostile
// file of up to 2.5 MiB costs at most 64 MiB of memory and 2 seconds.
type Limits struct {
	// MemoryBytes bounds the memory taken while opening: the records' names, the objects of all pickles, graphs and code.
	// The default is twelve bytes for each byte of the files, at least 32 MiB and at most 256 MiB: a tensor of a single
	// element takes about as much in any format, so that 100,000 of them open. The garbage collector may hold as much again.
	MemoryBytes int64
	// Depth bounds the nesting of pickled objects, JSON and code. Default 200.
	Depth int
	// Records bounds the records of an archive and the files of a sharded checkpoint. Default 200,000.
	Records int
}

// Default limits; see [Limits]. The default of the memory grows with the files from DefaultMemoryBytes to MostMemoryBytes.
const (
	DefaultMemoryBytes = 32 << 20
	MostMemoryBytes    = 256 << 20
	DefaultDepth       = 200
	DefaultRecords     = 200_000
)

// MemoryFor is the limit of memory for a checkpoint whose files have so many bytes together.
func (l Limits) MemoryFor(fileBytes int64) int64 {
	const perByte = 12
	if l.MemoryBytes > 0 {
		return l.MemoryBytes
	}
	return max(DefaultMemoryBytes, min(fileBytes, MostMemoryBytes/perByte)*perByte)
}

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
