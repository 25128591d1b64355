package storage

import (
	"fmt"
	"os"
	"testing"

	"github.com/optimem/optimem/internal/hostmem"
)

// BenchmarkRead reads the file that OPTIMEM_BENCH_FILE names, some GiB on the disk to be measured, from front to back:
// cold in bulk, warm in bulk and warm by plain reads, each into 64 MiB of memory over and over, as a pager does.
//
//	OPTIMEM_BENCH_FILE=/tmp/big go test -run - -bench Read -benchtime 1x -count 5 ./loader
func BenchmarkRead(b *testing.B) {
	path := os.Getenv("OPTIMEM_BENCH_FILE")
	if path == "" {
		b.Skip("OPTIMEM_BENCH_FILE names no file")
	}
	const slotBytes = 64 << 20
	slot, err := hostmem.Alloc(slotBytes, hostmem.Weights)
	if err != nil {
		b.Fatal(err)
	}
	defer slot.Free()
	clear(slot.Bytes()) // so that no page of it is new
	for _, mode := range []string{"cold", "warm", "plain"} {
		for _, inFlight := range []int{1, 2, 4, 8} {
			b.Run(fmt.Sprintf("%s/%d", mode, inFlight), func(b *testing.B) {
				src := mustOpenFile(b, path)
				size := src.Size() / slotBytes * slotBytes
				b.SetBytes(size)
				for range b.N {
					b.StopTimer()
					if mode == "cold" {
						dropCache(b, src, 0, src.Size())
					} else {
						warm(b, src)
					}
					b.StartTimer()
					for off := int64(0); off < size; off += slotBytes {
						e := Extent{Source: src, Offset: off, Bytes: slotBytes}
						if mode == "plain" {
							e.Source = plainSource{src}
						}
						if err := Read(b.Context(), inFlight, Request{Extent: e, Into: slot.Bytes()}); err != nil {
							b.Fatal(err)
						}
					}
				}
			})
		}
	}
}

// plainSource hides that a source can read in bulk.
type plainSource struct{ Source }

// warm brings the file into the page cache.
func warm(b *testing.B, src *File) {
	p := make([]byte, pieceBytes)
	for off := int64(0); off < src.Size(); off += pieceBytes {
		if err := src.ReadAt(b.Context(), p[:min(pieceBytes, src.Size()-off)], off); err != nil {
			b.Fatal(err)
		}
	}
}
