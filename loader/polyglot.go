package loader

import (
	"strconv"
	"strings"

	"github.com/optimem/optimem/loader/internal/fault"
	"github.com/optimem/optimem/loader/internal/limit"
	"github.com/optimem/optimem/loader/internal/pickle"
	"github.com/optimem/optimem/storage"
)

// A polyglot is a file of one format here and of another elsewhere. The readers of zip and legacy files leave no byte
// unexplained; what is left are files that some loader would unpickle or take for a tar.

// refusePolyglot reports a file that is a pickle or a tar besides what its first bytes say. Unknown is set where they
// say nothing that is known.
func (o *opener) refusePolyglot(src storage.Source, kind fileKind, unknown bool) error {
	if kind != kindPickle && kind != kindSafetensors && kind != kindGGUF && kind != kindPacked && !unknown {
		return nil // torch.load tries zip first, and no JSON document begins as a pickle
	}
	if kind != kindPickle || unknown {
		if err := o.refusePickle(src); err != nil {
			return err
		}
	}
	tar, err := o.isTar(src)
	switch {
	case err != nil || !tar:
		return err
	case unknown:
		return fault.New(fault.ErrUnsupported, -1,
			"a legacy tar checkpoint (torch ≤ 0.1.10): load and re-save it with a current PyTorch")
	}
	return o.problem(
		"", fault.New(fault.ErrUnsafe, 0, "the file is a tar archive as well, which torch.load takes it for"),
	)
}

// refusePickle reports a file that is not a pickle here but runs when it is unpickled. It reads no further than the
// opcodes go, which in other files is a few bytes, or a line.
func (o *opener) refusePickle(src storage.Source) error {
	const meterBytes = 1 << 20 // its own, since most of a header may pass for one long string
	report, err := pickle.Scan(readerAt{ctx: o.ctx, src: src}, 0, src.Size(), pickle.Options{
		Policy: torchPolicy, Meter: limit.New(meterBytes), Depth: o.opts.Limits.Depth, Persistent: true, Sparing: true,
	})
	if err != nil {
		return err
	}
	for _, p := range report.Problems {
		// What breaks off as no pickle does is none; what goes beyond the limits has not broken off.
		if class := Class(p); class == ErrUnsafe || class == ErrLimit {
			return o.problem("", fault.New(fault.ErrUnsafe, p.Offset, "the file is a pickle as well: %s", p.Msg))
		}
	}
	for _, g := range report.Globals {
		if g.Class != pickle.Data {
			return o.problem(
				"", fault.New(fault.ErrUnsafe, g.Offset, "the file is a pickle as well: it names %v", g.Global),
			)
		}
	}
	return nil
}

// tarBlockBytes is the size of a tar header.
const tarBlockBytes = 512

// isTar reports whether the file begins with a tar header as Python's tarfile judges it: by its checksum alone.
// torch.load tries tar before it tries legacy pickles.
func (o *opener) isTar(src storage.Source) (bool, error) {
	const at, size = 148, 8
	if src.Size() < tarBlockBytes {
		return false, nil
	}
	var block [tarBlockBytes]byte
	if err := src.ReadAt(o.ctx, block[:size], at); err != nil {
		return false, err
	}
	want, ok := tarNumber(block[:size])
	if !ok {
		return false, nil
	}
	if err := src.ReadAt(o.ctx, block[:], 0); err != nil {
		return false, err
	}
	unsigned, signed := int64(size*' '), int64(size*' ')
	for i, b := range block {
		if i < at || i >= at+size {
			unsigned += int64(b)
			signed += int64(int8(b))
		}
	}
	return want == unsigned || want == signed, nil
}

// tarNumber reads a number as tarfile does: in octal, with whatever else Python's int takes, or in base 256.
func tarNumber(field []byte) (int64, bool) {
	if field[0] == 0x80 {
		n := int64(0)
		for _, b := range field[1:] {
			n = n<<8 | int64(b)
		}
		return n, true
	}
	text, _, _ := strings.Cut(string(field), "\x00")
	text = strings.TrimPrefix(strings.TrimSpace(text), "+")
	text = strings.TrimPrefix(strings.ToLower(text), "0o")
	n, err := strconv.ParseInt(strings.ReplaceAll(text, "_", ""), 8, 64)
	return n, err == nil
}
