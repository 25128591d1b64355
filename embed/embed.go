package embed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	goruntime "runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
	"github.com/optimem/optimem/text/tokenizer"
)

// Options say how an embedder works. The zero value is right.
type Options struct {
	// Session is how the session of the transformer runs: its mode, device, memory, …. BatchAxes is the embedder's.
	Session runtime.Options
	// Dim cuts vectors to their first numbers, for models that were trained for it (Matryoshka). Those of a folder that
	// normalizes have the length 1 after that, too. 0 is what the folder says.
	Dim int
	// Normalize gives vectors the length 1 whatever the folder says.
	Normalize bool
	// MaxTokens cuts texts to fewer tokens than the folder does; 0 is as the folder says.
	MaxTokens int
}

// An Embedder makes vectors of texts. It may be shared between goroutines, whose texts share passes where they have
// about the same length. The checkpoint of its model must stay open until it was closed.
type Embedder struct {
	folder  *Folder
	opts    Options
	session *runtime.Session
	// mask says that the model takes an attention mask.
	mask bool
	// pooled is how many numbers a vector has after pooling, dim how many it has in the end.
	pooled, dim int
	line        line
	// paged says that passes bring weights: fewer passes are better then than less padding.
	paged atomic.Bool
	// near is how many tokens go through the model at once where passes bring no weights.
	near int
}

// A Request is texts whose vectors are wanted.
type Request struct {
	Texts []string
	// Prompt goes before each text: see [Folder.Prompt].
	Prompt string
	// Priority says which of the requests that wait goes first. A pass that has begun is not interrupted.
	Priority runtime.Priority
	// Done, where it is not nil, is told how many texts more are done.
	Done func(texts int)
}

// A Result has a vector for each text of a request.
type Result struct {
	// Dim is how many numbers a vector has; Data are all vectors, one behind the other.
	Dim  int
	Data []float32
	// Tokens is how many tokens of each text counted, with its prompt and those that are added. Cut says how many texts were
	// longer than that.
	Tokens []int
	Cut    int
}

// Vector is that of a text.
func (r *Result) Vector(text int) []float32 { return r.Data[text*r.Dim:][:r.Dim:r.Dim] }

// New returns an embedder. The model is that of [Folder.Checkpoint] with the class [Folder.Class], nil for a folder without.
func New(ctx context.Context, folder *Folder, model *models.Model, opts Options) (*Embedder, error) {
	e := &Embedder{folder: folder, opts: opts, line: line{now: time.Now}}
	switch {
	case opts.Dim < 0:
		return nil, &RequestError{"Dim", fmt.Sprintf("%d numbers", opts.Dim)}
	case opts.MaxTokens < 0:
		return nil, &RequestError{"MaxTokens", fmt.Sprintf("%d tokens", opts.MaxTokens)}
	case folder.maxTokens > 0 && opts.MaxTokens > folder.maxTokens:
		return nil, &RequestError{"MaxTokens", fmt.Sprintf("%d tokens, and the folder cuts texts to %d", opts.MaxTokens,
			folder.maxTokens)}
	}
	if e.opts.MaxTokens == 0 {
		e.opts.MaxTokens = folder.maxTokens
	}
	width, err := e.open(ctx, model)
	if err != nil {
		return nil, err
	}
	e.pooled = width
	for _, l := range folder.head {
		if width, err = l.width(width); err != nil {
			return nil, errors.Join(err, e.Close())
		}
	}
	e.dim = width
	if cut := cmp.Or(opts.Dim, min(folder.dim, width)); cut > 0 {
		if cut > width {
			return nil, errors.Join(&RequestError{"Dim", fmt.Sprintf("%d numbers, and a vector has %d", cut, width)},
				e.Close())
		}
		e.dim = cut
	}
	return e, nil
}

// open starts the session and returns how many numbers a vector has after pooling.
func (e *Embedder) open(ctx context.Context, model *models.Model) (int, error) {
	f := e.folder
	if f.table != nil {
		return f.table.width, nil
	}
	if model == nil {
		return 0, &RequestError{"model", "is missing, and the folder has a transformer"}
	}
	axes := make(map[string]int)
	for _, p := range model.Inputs() {
		if p.Name == idsInput || p.Name == maskInput {
			axes[p.Name] = 0
		}
		e.mask = e.mask || p.Name == maskInput
	}
	if _, ok := axes[idsInput]; !ok {
		return 0, unsupported(f.inner, "a model without %s", idsInput)
	}
	// The shape of its states, at no cost: nothing is planned.
	shape := tensor.Shape{1, 1}
	shapes := map[string]tensor.Shape{idsInput: shape}
	if e.mask {
		shapes[maskInput] = shape
	}
	g, err := model.GraphContext(ctx, shapes, nil)
	if err != nil {
		return 0, err
	}
	width := 0
	for _, o := range g.Outputs {
		if s := o.Operand.Layout.Shape; o.Name == stateOutput && len(s) == 3 &&
			g.Values[o.Operand.Value].DType == tensor.Float32 {
			width = s[2]
		}
	}
	if width < 1 || width > maxWidth {
		return 0, unsupported(f.inner, "a model without %s", stateOutput)
	}
	if p := f.pooling; p.width != 0 && p.width != width {
		return 0, wrong(p.file, "pools states of %d numbers, and the model's have %d", p.width, width)
	}
	opts := e.opts.Session
	opts.BatchAxes = axes
	e.near = nearTokens(width, opts)
	if e.session, err = runtime.Start(ctx, model, opts); err != nil {
		return 0, err
	}
	return width * len(f.pooling.modes), nil
}

// The names of a transformer's inputs and output.
const (
	idsInput    = "input_ids"
	maskInput   = "attention_mask"
	stateOutput = "last_hidden_state"
)

// Close ends the session. The folder and the model's checkpoint are the caller's.
func (e *Embedder) Close() error {
	if e.session == nil {
		return nil
	}
	return e.session.Close()
}

// Dim is how many numbers a vector has.
func (e *Embedder) Dim() int { return e.dim }

// Session is that of the transformer, nil where the folder has none.
func (e *Embedder) Session() *runtime.Session { return e.session }

// maxTexts bounds a request.
const maxTexts = 1 << 24

// Embed returns the vectors of texts.
func (e *Embedder) Embed(ctx context.Context, r Request) (*Result, error) {
	if len(r.Texts) > maxTexts {
		return nil, &RequestError{"Texts", fmt.Sprintf("%d texts, more than %d", len(r.Texts), maxTexts)}
	}
	since := r.Priority.Since(e.line.now())
	result := &Result{Dim: e.dim, Data: make([]float32, len(r.Texts)*e.dim), Tokens: make([]int, len(r.Texts))}
	texts := make([]encoded, len(r.Texts))
	prompt := 0
	if e.folder.encoder != nil && !e.folder.pooling.prompts && r.Prompt != "" {
		var err error
		if prompt, err = e.promptTokens(r.Prompt); err != nil {
			return nil, err
		}
	}
	for i, text := range r.Texts {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("embed: %w", err)
		}
		ids, cut, err := e.tokens(r.Prompt + text)
		if err != nil {
			return nil, fmt.Errorf("text %d: %w", i+1, err)
		}
		if cut {
			result.Cut++
		}
		texts[i], result.Tokens[i] = encoded{index: i, ids: ids}, len(ids)
	}
	give := func(text int, vector []float32) {
		for _, l := range e.folder.head {
			vector = l.run(vector)
		}
		vector = vector[:e.dim]
		if e.opts.Normalize || e.folder.normalizes() {
			normalized(vector)
		}
		copy(result.Vector(text), vector)
		if r.Done != nil {
			r.Done(1)
		}
	}
	var err error
	if e.folder.table != nil {
		err = e.means(ctx, texts, give)
	} else {
		err = e.states(ctx, &job{since: since, prompt: prompt, texts: texts}, give)
	}
	if err != nil {
		return nil, err
	}
	return result, nil
}

// An encoded is a text as tokens.
type encoded struct {
	index int
	ids   []uint32
	// of is whose it is, once it waits for the model.
	of *job
}

// tokens are those of a text that count, and whether it was cut.
func (e *Embedder) tokens(text string) ([]uint32, bool, error) {
	f := e.folder
	o := tokenizer.Options{AddSpecial: f.table == nil, Truncate: f.table != nil, MaxTokens: e.opts.MaxTokens}
	if f.lower {
		text = strings.ToLower(text)
	}
	whole := len(text)
	if f.table != nil {
		text = f.table.letters(text)
	}
	encoded, err := f.tokenizer.Encode(text, o)
	if err != nil {
		return nil, false, err
	}
	cut := encoded.Cut > 0 || len(text) < whole
	if f.table != nil {
		return f.table.tokens(encoded.IDs), cut, nil
	}
	return encoded.IDs, cut, nil
}

// promptTokens is how many tokens of a text are its prompt's: all but the one that ends a text.
func (e *Embedder) promptTokens(prompt string) (int, error) {
	ids, _, err := e.tokens(prompt)
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	if added, ok := e.folder.tokenizer.AddedTokens()[ids[len(ids)-1]]; ok && added.Special {
		return len(ids) - 1, nil
	}
	return len(ids), nil
}

// means gives the means of the tokens' rows.
func (e *Embedder) means(ctx context.Context, texts []encoded, give func(text int, vector []float32)) error {
	const rows = 1 << 14 // that are kept
	cache := make(map[int64][]float32)
	vector := make([]float32, e.folder.table.width)
	for _, t := range texts {
		if len(cache) > rows {
			clear(cache)
		}
		if err := e.folder.table.mean(ctx, vector, t.ids, cache); err != nil {
			return err
		}
		give(t.index, vector)
	}
	return nil
}

// passTokens is how many tokens go through the model at once, more or less: where weights are paged, they are brought once for them.
const passTokens = 8192

// On the CPU, what tokens of a narrow model become should stay in the caches next to its processors: bringing weights
// there once more, in order, takes less time than bringing states back. In wide models weights are more than what
// becomes of tokens.
const (
	nearWidth = 576
	nearBytes = 2 << 20
	// nearFloats is how many numbers there are of a token at a time, in widths of the model.
	nearFloats = 4
)

// nearTokens is how many tokens go through a model of a width at once where its weights are in memory.
func nearTokens(width int, o runtime.Options) int {
	if width > nearWidth || o.Device != "" && o.Device != "cpu" {
		return passTokens
	}
	threads := o.Threads
	if threads == 0 {
		threads = goruntime.GOMAXPROCS(0)
	}
	return min(max(threads, 1)*nearBytes/(4*nearFloats*width), passTokens)
}

// passTokens is how many tokens the next pass has, more or less.
func (e *Embedder) passTokens() int {
	if e.paged.Load() {
		return passTokens
	}
	return e.near
}

// A pass is worth so many tokens of padding: what its plan and its ops' beginnings take, or the weights that are
// brought.
const (
	passWorth  = 24
	pagedWorth = passTokens / 2
)

// states gives the pooled states of the model. The longest texts come first: what does not fit is known at once.
func (e *Embedder) states(ctx context.Context, j *job, give func(text int, vector []float32)) error {
	slices.SortStableFunc(j.texts, func(a, b encoded) int { return len(b.ids) - len(a.ids) })
	for n := len(j.texts); n > 0 && len(j.texts[n-1].ids) == 0; n-- { // nothing to have a state
		give(j.texts[n-1].index, make([]float32, e.pooled))
		j.texts = j.texts[:n-1]
	}
	if len(j.texts) == 0 {
		return nil
	}
	return e.wait(ctx, j, give)
}

// together is how many of the texts, the longest first, are padded to the length of the first, so that padding and
// passes, each worth so many tokens, are the least for all of them. Texts without tokens have no pass.
func (e *Embedder) together(texts []encoded, worth int) int {
	// Runs of texts of one padded length, from the shortest: least[i] is what the texts from run i on cost, next[i] the
	// run that the second of their passes begins with.
	var lengths, starts []int
	end := len(texts)
	for i, t := range texts {
		length := e.padded(len(t.ids))
		if length == 0 {
			end = i
			break
		}
		if len(lengths) == 0 || length != lengths[len(lengths)-1] {
			lengths, starts = append(lengths, length), append(starts, i)
		}
	}
	starts = append(starts, end)
	tokens := e.passTokens()
	least, next := make([]int, len(lengths)+1), make([]int, len(lengths))
	for i := len(lengths) - 1; i >= 0; i-- {
		least[i] = math.MaxInt
		for j := i + 1; j <= len(lengths); j++ {
			rows := starts[j] - starts[i]
			passes := (rows + max(tokens/lengths[i], 1) - 1) / max(tokens/lengths[i], 1)
			if cost := rows*lengths[i] + passes*worth + least[j]; cost < least[i] {
				least[i], next[i] = cost, j
			}
		}
	}
	return starts[next[0]]
}

// padded is the least length to which a text of so many tokens is made longer, so that not every length needs a plan of
// its own. From eight on a vector's bits do not depend on it: what padding adds to sums is exactly nothing, and comes
// last. Shorter rows may be summed another way.
func (e *Embedder) padded(n int) int {
	if n == 0 {
		return 0
	}
	step := 2
	for n > 32*step {
		step *= 2
	}
	n = (max(n, shortest) + step - 1) / step * step
	if most := e.folder.encoder.Positions; most > 0 {
		n = min(n, most)
	}
	return n
}

// shortest is the shortest row that is run, where the model has as many positions.
const shortest = 8

// pass runs texts that are padded to one length, and gives their states to those who wait for them.
func (e *Embedder) pass(ctx context.Context, parts []part, length int) error {
	rows := 0
	for _, p := range parts {
		rows += len(p.texts)
	}
	ids, mask := make([]int64, rows*length), make([]int64, rows*length)
	at := 0
	for _, p := range parts {
		for _, t := range p.texts {
			row, seen := ids[at*length:][:length], mask[at*length:][:length]
			for j := range row {
				if j < len(t.ids) {
					row[j], seen[j] = int64(t.ids[j]), 1
				} else {
					row[j] = int64(e.folder.encoder.Padding)
				}
			}
			at++
		}
	}
	in := runtime.Values{idsInput: tensor.Of(ids, rows, length)}
	if e.mask {
		in[maskInput] = tensor.Of(mask, rows, length)
	}
	out, err := e.session.RunBatch(ctx, in)
	if err != nil {
		return err
	}
	e.paged.Store(e.session.Metrics().MovedBytes > 0)
	states, err := tensor.Slice[float32](out[stateOutput].Contiguous())
	if err != nil {
		return err
	}
	width := len(states) / (rows * length)
	for _, p := range parts {
		for _, t := range p.texts {
			vector := make([]float32, len(e.folder.pooling.modes)*width)
			e.folder.pooling.pool(vector, states[:len(t.ids)*width], width, p.prompt)
			states = states[length*width:]
			p.out <- pooled{text: t.index, vector: vector}
		}
	}
	return nil
}
