package embed

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/optimem/optimem/tensor"
	"github.com/optimem/optimem/text/tokenizer"
)

// A table has a vector for every token; a text's is their mean. Rows are read from the file as texts name them.
type table struct {
	open  *weights
	rows  tensor.Weight
	width int
	// row and scale are the row of a token and what it is multiplied with, nil where it is the token's own, as it is.
	row   []int64
	scale []float32
	// unknown is the token that does not count, −1 for none.
	unknown int
	// maxLetters is how many characters of a text are looked at, 0 for all.
	maxLetters int
}

func (t *table) close() error { return t.open.ckpt.Close() }

// openStatic opens the table of a folder of sentence-transformers.
func (f *Folder) openStatic(ctx context.Context, inner string) error {
	if inner == "." {
		inner = ""
	}
	f.inner = inner
	w, err := f.openWeights(ctx, inner)
	if err != nil {
		return err
	}
	f.table = &table{open: w, unknown: -1} // which [Folder.Close] closes
	rows, ok := w.find("embedding.weight", -1, -1)
	if !ok && w.err == nil {
		if rows, ok = w.find("embeddings", -1, -1); ok {
			f.table.readFolded()
		}
	}
	switch layout := rows.Layout; {
	case w.err != nil:
		return w.err
	case !ok:
		return wrong(w.file, "has neither embedding.weight nor embeddings")
	case layout.Shape[1] < 1 || layout.Shape[1] > maxWidth:
		return wrong(w.file, "%s is %v", rows.Name, layout.Shape)
	case layout.Strides[1] != 1 && layout.Shape[1] > 1 || rows.BigEndian || rows.Neg:
		return unsupported(w.file, "%s that is not stored row by row", rows.Name)
	case !widen(nil, rows.DType, nil):
		return unsupported(w.file, "%s of %v", rows.Name, rows.DType)
	}
	if err := rows.Check(); err != nil {
		return fmt.Errorf("%s: %w", w.file, err)
	}
	f.table.rows, f.table.width = rows, rows.Layout.Shape[1]
	return f.openTokenizer()
}

// readFolded reads which row and weight a token has in a table with fewer rows than tokens.
func (t *table) readFolded() {
	if m, ok := t.open.find("mapping", -1); ok {
		contents, err := m.Contents(t.open.ctx)
		if err != nil {
			t.open.err = err
			return
		}
		t.row = make([]int64, m.NumElements())
		for i := range t.row {
			switch contents.DType {
			case tensor.Int64:
				t.row[i] = int64(binary.NativeEndian.Uint64(contents.Data[8*i:]))
			case tensor.Int32:
				t.row[i] = int64(int32(binary.NativeEndian.Uint32(contents.Data[4*i:])))
			default:
				t.open.err = unsupported(t.open.file, "mapping of %v", contents.DType)
				return
			}
		}
	}
	if _, ok := t.open.find("weights", -1); ok {
		t.scale = t.open.read("weights", -1)
	}
}

// openModel2Vec opens the table of a folder that model2vec reads by itself. It leaves out unknown tokens, and looks at the
// beginning of a text only.
func (f *Folder) openModel2Vec(ctx context.Context, maxTokens *int) error {
	if err := f.openStatic(ctx, ""); err != nil {
		return err
	}
	text, err := f.read("tokenizer.json")
	if err != nil {
		return err
	}
	var file struct {
		Model struct {
			Token *string `json:"unk_token"`
			ID    *int    `json:"unk_id"`
		} `json:"model"`
	}
	if text == nil || json.Unmarshal(text, &file) != nil {
		return wrong("tokenizer.json", "does not say which token is unknown")
	}
	if m := file.Model; m.Token != nil {
		if id, ok := f.tokenizer.ID(*m.Token); ok {
			f.table.unknown = int(id)
		}
	} else if m.ID != nil {
		f.table.unknown = *m.ID
	}
	f.maxTokens = 512 // as there where nobody says
	if maxTokens != nil {
		f.maxTokens = *maxTokens
	}
	if f.maxTokens < 1 {
		return wrong("config.json", "max_length is %d", f.maxTokens)
	}
	f.table.maxLetters = f.maxTokens * medianLetters(f.tokenizer)
	return nil
}

// medianLetters is how many characters a token of the vocabulary has in the middle.
func medianLetters(t *tokenizer.Tokenizer) int {
	lengths := make([]int, 0, t.VocabSize())
	for id := range t.VocabSize() {
		if token, ok := t.Token(uint32(id)); ok {
			lengths = append(lengths, utf8.RuneCountInString(token))
		}
	}
	if len(lengths) == 0 {
		return 1
	}
	slices.Sort(lengths)
	return (lengths[(len(lengths)-1)/2] + lengths[len(lengths)/2]) / 2
}

// tokens returns what counts of the tokens of a text.
func (t *table) tokens(ids []uint32) []uint32 {
	return slices.DeleteFunc(ids, func(id uint32) bool { return t.unknown >= 0 && id == uint32(t.unknown) })
}

// letters cuts a text.
func (t *table) letters(text string) string {
	if t.maxLetters == 0 || len(text) <= t.maxLetters {
		return text
	}
	n := 0
	for at := range text {
		if n == t.maxLetters {
			return text[:at]
		}
		n++
	}
	return text
}

// mean writes the mean of tokens' rows, zeros for none. cache has the rows that were read before.
func (t *table) mean(ctx context.Context, to []float32, ids []uint32, cache map[int64][]float32) error {
	sums := make([]float64, t.width)
	for _, id := range ids {
		row, scale := int64(id), 1.0
		if t.row != nil {
			if row = -1; int(id) < len(t.row) {
				row = t.row[id]
			}
		}
		if t.scale != nil && int(id) < len(t.scale) {
			scale = float64(t.scale[id])
		} else if t.scale != nil {
			row = -1
		}
		if row < 0 || row >= int64(t.rows.Layout.Shape[0]) {
			return wrong(t.open.file, "token %d has no row of the %d", id, t.rows.Layout.Shape[0])
		}
		values, ok := cache[row]
		if !ok {
			var err error
			if values, err = t.read(ctx, row); err != nil {
				return err
			}
			cache[row] = values
		}
		for i, v := range values {
			sums[i] += float64(float32(float64(v) * scale))
		}
	}
	for i, s := range sums {
		to[i] = float32(s / float64(max(len(ids), 1)))
	}
	return nil
}

// read reads one row.
func (t *table) read(ctx context.Context, row int64) ([]float32, error) {
	size := int64(t.rows.DType.Size())
	raw := make([]byte, int64(t.width)*size)
	at := (int64(t.rows.Layout.Offset) + row*int64(t.rows.Layout.Strides[0])) * size
	if err := t.rows.Extent.ReadAt(ctx, raw, at); err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		return nil, errors.Join(wrong(t.open.file, "row %d cannot be read", row), err)
	}
	values := make([]float32, t.width)
	widen(values, t.rows.DType, raw)
	return values, nil
}

// widen turns elements into float32, and reports whether there is a way.
func widen(to []float32, d tensor.DType, raw []byte) bool {
	order := binary.NativeEndian
	for i := range to {
		switch d {
		case tensor.Float32:
			to[i] = math.Float32frombits(order.Uint32(raw[4*i:]))
		case tensor.Float64:
			to[i] = float32(math.Float64frombits(order.Uint64(raw[8*i:])))
		case tensor.Float16:
			to[i] = tensor.Float16ToFloat32(order.Uint16(raw[2*i:]))
		case tensor.BFloat16:
			to[i] = tensor.BFloat16ToFloat32(order.Uint16(raw[2*i:]))
		case tensor.Int8:
			to[i] = float32(int8(raw[i]))
		}
	}
	switch d {
	case tensor.Float32, tensor.Float64, tensor.Float16, tensor.BFloat16, tensor.Int8:
		return true
	}
	return false
}
