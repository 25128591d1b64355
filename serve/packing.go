package serve

import (
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"io"
	"strings"
	"sync"

	"github.com/optimem/optimem/serve/oip"
)

// packing is what an answer may be packed with, by what a client accepts.
func packing(accept string) string {
	for _, part := range strings.Split(accept, ",") {
		name, q, _ := strings.Cut(strings.TrimSpace(part), ";")
		if name = strings.ToLower(strings.TrimSpace(name)); name == "gzip" || name == "deflate" {
			if strings.TrimSpace(q) != "q=0" {
				return name
			}
		}
	}
	return ""
}

// A packer packs what is written to it.
type packer interface {
	io.WriteCloser
	Reset(to io.Writer)
}

// packers are those that nobody uses: one takes most of a megabyte, which is more work than a small answer.
var packers = map[string]*sync.Pool{
	"gzip": {New: func() any {
		z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed)
		return z
	}},
	"deflate": {New: func() any {
		z, _ := zlib.NewWriterLevel(nil, zlib.BestSpeed)
		return z
	}},
	"sample": {New: func() any {
		z, _ := flate.NewWriter(nil, flate.BestSpeed)
		return z
	}},
}

const (
	// leastPacked is the size below which nothing is packed: it is in a few packets as it is.
	leastPacked = 16 << 10
	// packedSample is how much is packed to see what it comes to.
	packedSample = 32 << 10
)

// worthPacking reports whether packing saves a quarter of an answer, as a sample of its largest tensor tells. Nearly
// all clients say that they take packed answers, as the libraries below them do, and random mantissas take long and
// stay nearly as they are. Numbers in JSON do shrink.
func worthPacking(response *oip.Response) bool {
	size := int64(0)
	var largest *oip.Output
	for i := range response.Outputs {
		o := &response.Outputs[i]
		n := o.RawBytes()
		size += n
		if largest == nil || n > largest.RawBytes() {
			largest = o
		}
	}
	if size < leastPacked {
		return false
	}
	if !largest.Binary {
		return true
	}
	raw := largest.Raw()
	raw = raw[:min(len(raw), packedSample)]
	var n counter
	z := packers["sample"].Get().(packer)
	defer packers["sample"].Put(z)
	z.Reset(&n)
	_, _ = z.Write(raw)
	_ = z.Close() // a counter takes all
	return int(n) < len(raw)-len(raw)/4
}

// A counter counts the bytes that are written to it.
type counter int

// Write counts.
func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}
