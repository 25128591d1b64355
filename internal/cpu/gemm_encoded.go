package cpu

import (
	"github.com/optimem/optimem/internal/cpu/tasks"
	"github.com/optimem/optimem/tensor/encoded"
)

// A right factor whose lines are blocks of codes is decoded where other factors are packed: a panel at a time, of blockK of
// the depth, which stays in the cache for the tiles that read it. So sums have the order that they have over numbers, and
// products their bits.

// blocksAt returns where in a line of blocks number k begins, which a block begins with.
func blocksAt(e *encoded.Encoding, k int) int { return k / int(e.Elements) * int(e.Bytes) }

// decodedLines is how many lines are decoded before they are turned.
const decodedLines = 8

// decode writes the numbers [k0, k1) of lines to a group, as pack does. A block begins at k0 and ends at k1: depths are cut
// at multiples of blockK, which no block is larger than.
func (m *matrix[T]) decode(group []float32, width, l, lines, k0, k1 int) {
	n, from, end := k1-k0, blocksAt(m.encoding, k0), blocksAt(m.encoding, k1)
	room := tasks.Take[[decodedLines * blockK]float32]()
	defer tasks.Give(room)
	for r := 0; r < lines; r += decodedLines {
		some := min(decodedLines, lines-r)
		for i := range some {
			at := m.lineAt(l + r + i)
			m.encoding.Decode(room[i*blockK:][:n], m.data[at+from:at+end])
		}
		k := 0
		if some == decodedLines && m.set != nil {
			k = n &^ 7
			m.set.Transpose(n/8, room[:], blockK, group[r:], width)
		}
		for ; k < n; k++ {
			for i := range some {
				group[k*width+r+i] = room[i*blockK+k]
			}
		}
	}
}
