package generate

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// A SavedError says why keys and values that were saved cannot be used.
type SavedError struct {
	Msg string
	// Other says that they are whole, but another model's, or were computed or kept in another way.
	Other bool
}

// Error says it.
func (e *SavedError) Error() string { return "saved keys and values: " + e.Msg }

// The form: a line that says what it is; the length of the header in four bytes, the lowest first; the header in JSON;
// the blocks, of each block the rows of every cache in turn, at first of those whose modules see all, then, of the last
// blocks, which are seen from behind them, of those with a window; the state; the SHA-256 of all before.
const savedMagic = "optimem keys and values, 1\n"

// maxSavedHeader bounds a header: two million tokens.
const maxSavedHeader = 16 << 20

// A savedHeader says what is saved.
type savedHeader struct {
	// Model is the fingerprint of what computed the keys and values, KV what they are kept as: see [Engine.Save].
	Model string `json:"model"`
	KV    string `json:"kv"`
	// BlockTokens is how many tokens a block has, and BlockBytes how many bytes, of all caches.
	BlockTokens int   `json:"block_tokens"`
	BlockBytes  int64 `json:"block_bytes"`
	// StateBytes is how many bytes the state behind them has, which follows the blocks if there are any.
	StateBytes int64 `json:"state_bytes,omitempty"`
	// WindowBytes is how many bytes more those blocks have that a window sees behind the last one.
	WindowBytes int64 `json:"window_bytes,omitempty"`
	// Tokens are those of the blocks, as the adapter of the name sees them.
	Tokens  []int  `json:"tokens"`
	Adapter string `json:"adapter,omitempty"`
}

// A keptCache is a cache, and how many bytes of it are a block, or a state.
type keptCache struct {
	name  string
	bytes int
}

// A kept is what an engine's keys and values are: their caches, those of modules with a window of so many positions,
// and those of states, in order, and the fingerprint of what computes them.
type kept struct {
	caches, windows, states             []keptCache
	blockBytes, windowBytes, stateBytes int
	window                              int
	model                               string
}

// all returns every cache.
func (k *kept) all() []keptCache { return slices.Concat(k.caches, k.windows, k.states) }

// seen returns the first of so many blocks whose rows in the caches with a window are saved.
func (k *kept) seen(blocks int) int {
	if k.windowBytes == 0 {
		return blocks
	}
	return windowBegins(blocks*graph.BlockRows, k.window)
}

// Save writes the keys and values of the beginning of a request's prompt, as far as whole blocks of it are there, and returns of
// how many tokens: of a text that was written, the prompt and what was written after it. An engine of the same model that
// restores them goes on after these tokens without reading them, with the same bits. Of the request nothing but its prompt and
// its adapter counts. Other requests go on meanwhile.
//
// Of a model that keeps states it is the beginning up to the last token whose state was kept: the end of the last whole
// block of what was written last, or of a prompt. Of one whose modules see no more than a window it is the beginning up
// to the last block behind which all that a window sees is still there; it waits while requests need all blocks of
// windows that there are.
//
// What is written begins with a fingerprint of the model: of what its step computes, and of a sample of every weight.
func (e *Engine) Save(ctx context.Context, w io.Writer, r Request) (int, error) {
	k, err := e.keeps(ctx)
	if err != nil {
		return 0, err
	}
	adapter, err := e.model.AdapterNumber(r.Adapter)
	if err != nil {
		return 0, &RequestError{"Adapter", err.Error()}
	}
	s := &sequence{state: noState, marked: noState}
	defer e.oneState()()
	if err := e.whenRoom(ctx, func() (bool, error) {
		table := e.blocks.known(0, adapter, r.Prompt)
		table = table[:e.blocks.unpromised(table)]
		table = table[:e.blocks.cut(table)]
		if w := e.blocks.windows; w != nil {
			if !w.promise(s, len(table)-windowBegins(len(table)*graph.BlockRows, w.size)) {
				return false, nil
			}
			w.begin(e.blocks, s, table)
		}
		if states := e.blocks.states; states != nil && len(table) > 0 {
			s.state = states.held[e.blocks.of[table[len(table)-1]].serial]
			states.use(s.state)
		}
		s.table = table
		e.pin(s)
		return true, nil
	}); err != nil {
		return 0, err
	}
	defer e.unpin(s)
	n := len(s.table) * graph.BlockRows
	sum := sha256.New()
	out := io.MultiWriter(w, sum)
	if err := writeSavedHeader(out, &savedHeader{
		Model: k.model, KV: e.kvType().String(), BlockTokens: graph.BlockRows, BlockBytes: int64(k.blockBytes),
		WindowBytes: int64(k.windowBytes), StateBytes: int64(k.stateBytes), Tokens: r.Prompt[:n], Adapter: r.Adapter,
	}); err != nil {
		return 0, err
	}
	room := make([]byte, k.blockBytes+k.windowBytes)
	for i := range s.table {
		part := room[:k.bytes(i, len(s.table))]
		if err := e.between(ctx, func() error { return e.copyBlock(ctx, k, s, i, true, part, e.session.ReadCache) }); err != nil {
			return 0, err
		}
		if _, err := out.Write(part); err != nil {
			return 0, err
		}
	}
	if n > 0 {
		if err := e.eachState(ctx, k, s.state, e.session.ReadCache, nil, out); err != nil {
			return 0, err
		}
	}
	_, err = w.Write(sum.Sum(nil))
	return n, err
}

// Restore reads what [Engine.Save] wrote, and returns the tokens whose keys and values are there now: a prompt that begins with
// them goes on behind them. Where there is no room for all, it is those at the beginning. They give way like all that no request
// uses.
//
// What another model computed, and what is not as it was written, is a [*SavedError], and the engine is as before.
func (e *Engine) Restore(ctx context.Context, r io.Reader) ([]int, error) {
	k, err := e.keeps(ctx)
	if err != nil {
		return nil, err
	}
	sum := sha256.New()
	in := io.TeeReader(r, sum)
	h, err := e.readSavedHeader(in, k)
	if err != nil {
		return nil, err
	}
	s := &sequence{tokens: h.Tokens, state: noState, marked: noState}
	if s.adapter, err = e.model.AdapterNumber(h.Adapter); err != nil {
		return nil, &SavedError{"an adapter saw them that is not here", true}
	}
	defer e.oneState()()
	if err := e.whenRoom(ctx, func() (bool, error) { return e.makeRoom(ctx, k, s) }); err != nil {
		return nil, err
	}
	defer e.unpin(s)
	room, blocks := make([]byte, k.blockBytes+k.windowBytes), len(h.Tokens)/graph.BlockRows
	for i := range blocks {
		part := room[:k.bytes(i, blocks)]
		if _, err := io.ReadFull(in, part); err != nil {
			return nil, cutOff(err)
		}
		fresh := i >= s.registered && i < len(s.table) // others are there, or cannot be
		if err := e.between(ctx, func() error { return e.copyBlock(ctx, k, s, i, fresh, part, e.session.WriteCache) }); err != nil {
			return nil, err
		}
	}
	if len(h.Tokens) > 0 {
		if err := e.eachState(ctx, k, s.state, e.session.WriteCache, in, io.Discard); err != nil {
			return nil, err
		}
	}
	want := sum.Sum(nil)
	got := make([]byte, len(want))
	if _, err := io.ReadFull(r, got); err != nil {
		return nil, cutOff(err)
	}
	if !bytes.Equal(got, want) {
		return nil, &SavedError{Msg: "they are not as they were written: the checksum differs"}
	}
	n := len(s.table) * graph.BlockRows
	err = e.between(ctx, func() error {
		s.cached, s.registered, s.after = n, 0, s.root
		e.blocks.register(s)
		if states := e.blocks.states; states != nil && n == len(h.Tokens) && n > 0 { // a state is of all tokens or of none
			states.keep(e.blocks.behind(s, n), s.state)
		}
		n = e.blocks.cut(e.blocks.known(s.root, s.adapter, h.Tokens[:n])) * graph.BlockRows
		return nil
	})
	return h.Tokens[:n], err
}

// eachState copies the state in a place of every cache of states from or to a file. Without a place what is read is
// passed over.
func (e *Engine) eachState(
	ctx context.Context, k *kept, state int, how func(context.Context, string, []byte, int64) error, in io.Reader, out io.Writer,
) error {
	for _, c := range k.states {
		room := make([]byte, c.bytes)
		if in != nil {
			if _, err := io.ReadFull(in, room); err != nil {
				return cutOff(err)
			}
		}
		if state != noState {
			if err := e.between(ctx, func() error { return how(ctx, c.name, room, int64(state)*int64(c.bytes)) }); err != nil {
				return err
			}
		}
		if _, err := out.Write(room); err != nil {
			return err
		}
	}
	return nil
}

// makeRoom gives a sequence the blocks that hold its tokens already, then such as can be taken; those are written to later.
// It reports whether there are as many blocks of windows as it takes.
func (e *Engine) makeRoom(ctx context.Context, k *kept, s *sequence) (bool, error) {
	// Caches have memory once there was a pass: one without a token does.
	if err := e.session.ReadCache(ctx, k.all()[0].name, nil, 0); errors.Is(err, runtime.ErrNoCache) {
		if err := e.blank(ctx); err != nil {
			return false, err
		}
	} else if err != nil {
		return false, err
	}
	blocks := len(s.tokens) / graph.BlockRows
	if w := e.blocks.windows; w != nil {
		s.window.from = k.seen(blocks)
		if !w.promise(s, blocks-s.window.from) {
			return false, nil
		}
		w.extend(s, blocks)
	}
	s.table = e.blocks.known(0, s.adapter, s.tokens)
	s.table = s.table[:e.blocks.unpromised(s.table)]
	s.registered = len(s.table)
	e.pin(s)
	for len(s.table) < blocks {
		i, ok := e.blocks.take()
		if !ok {
			break
		}
		s.table = append(s.table, i)
	}
	if e.growing.blocks > 0 && len(s.table) > 0 && slices.Max(s.table) >= e.growing.now { // the next pass takes the memory
		if err := e.growTo(ctx, slices.Max(s.table)+1); err != nil {
			return false, err
		}
		if err := e.blank(ctx); err != nil {
			return false, err
		}
	}
	if states := e.blocks.states; states != nil {
		if i, ok := states.take(); ok {
			s.state = i
		}
	}
	return true, nil
}

// blank runs a pass without a token.
func (e *Engine) blank(ctx context.Context) error {
	e.pass.parts = e.pass.parts[:0]
	return e.run(ctx, 0)
}

// bytes is how many bytes of a block of so many are saved.
func (k *kept) bytes(block, blocks int) int {
	if block < k.seen(blocks) {
		return k.blockBytes
	}
	return k.blockBytes + k.windowBytes
}

// copyBlock copies a sequence's block from or to room: what caches of modules that see all have of it, which is left
// out unless fresh says that it is the sequence's to write, and then, if room has more, what those with a window have.
func (e *Engine) copyBlock(
	ctx context.Context, k *kept, s *sequence, i int, fresh bool, room []byte, how func(context.Context, string, []byte, int64) error,
) error {
	rows, seen := room[:k.blockBytes], room[k.blockBytes:]
	if fresh {
		if err := copyRows(ctx, k.caches, s.table[i], rows, how); err != nil {
			return err
		}
	}
	switch {
	case len(seen) > 0 && e.blocks.windows != nil:
		return copyRows(ctx, k.windows, s.window.blocks[i-s.window.from], seen, how)
	case len(seen) > 0 && fresh:
		return copyRows(ctx, k.windows, s.table[i], seen, how)
	}
	return nil
}

// copyRows copies a block of caches from or to memory.
func copyRows(ctx context.Context, caches []keptCache, block int, room []byte, how func(context.Context, string, []byte, int64) error) error {
	for _, c := range caches {
		if err := how(ctx, c.name, room[:c.bytes], int64(block)*int64(c.bytes)); err != nil {
			return err
		}
		room = room[c.bytes:]
	}
	return nil
}

// whenRoom runs f between two passes, again and again until it reports that there was room.
func (e *Engine) whenRoom(ctx context.Context, f func() (bool, error)) error {
	for {
		done := false
		if err := e.between(ctx, func() (err error) {
			done, err = f()
			return err
		}); err != nil || done {
			return err
		}
		select {
		case <-time.After(roomPause):
		case <-ctx.Done():
			return ctx.Err()
		case <-e.stopped.Done():
			return ErrClosed
		}
	}
}

// roomPause is after how long who waits for room looks again.
const roomPause = 5 * time.Millisecond

// oneState waits until nobody else saves or restores a state, and returns what lets the next one.
func (e *Engine) oneState() (done func()) {
	if e.blocks.states == nil {
		return func() {}
	}
	e.stating.Lock()
	return e.stating.Unlock
}

// pin keeps the blocks of a sequence that is not written; unpin lets them go.
func (e *Engine) pin(s *sequence) {
	e.pinned++
	for _, i := range s.table {
		e.blocks.use(i)
	}
}

func (e *Engine) unpin(s *sequence) {
	_ = e.between(context.Background(), func() error { // an engine that is closed has no blocks
		e.pinned--
		e.blocks.release(s)
		return nil
	})
}

// between runs f in the loop, between two passes.
func (e *Engine) between(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	select {
	case e.tasks <- func() { done <- f() }:
	case <-ctx.Done():
		return ctx.Err()
	case <-e.stopped.Done():
		return ErrClosed
	}
	return <-done
}

func (e *Engine) kvType() tensor.DType {
	if e.opts.KV == tensor.Invalid {
		return tensor.Float32
	}
	return e.opts.KV
}

func writeSavedHeader(w io.Writer, h *savedHeader) error {
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	if len(text) > maxSavedHeader {
		return &RequestError{"Tokens", fmt.Sprintf("are %d, too many to be saved", len(h.Tokens))}
	}
	head := binary.LittleEndian.AppendUint32([]byte(savedMagic), uint32(len(text)))
	_, err = w.Write(append(head, text...))
	return err
}

// readSavedHeader reads a header and compares it with what the engine keeps.
func (e *Engine) readSavedHeader(r io.Reader, k *kept) (*savedHeader, error) {
	head := make([]byte, len(savedMagic)+4)
	if _, err := io.ReadFull(r, head); err != nil && !isCut(err) {
		return nil, err
	} else if err != nil || string(head[:len(savedMagic)]) != savedMagic {
		return nil, &SavedError{Msg: "this is none"}
	}
	size := binary.LittleEndian.Uint32(head[len(savedMagic):])
	if size > maxSavedHeader {
		return nil, &SavedError{Msg: fmt.Sprintf("a header of %d bytes", size)}
	}
	text, err := io.ReadAll(io.LimitReader(r, int64(size))) // takes memory as there are bytes
	if err != nil {
		return nil, err
	}
	if len(text) < int(size) {
		return nil, cutOff(io.ErrUnexpectedEOF)
	}
	h := new(savedHeader)
	if err := json.Unmarshal(text, h); err != nil {
		return nil, &SavedError{Msg: "the header is no JSON of its kind: " + err.Error()}
	}
	switch {
	case h.KV != e.kvType().String():
		return nil, &SavedError{fmt.Sprintf("they are %.20q, and here keys and values are %v", h.KV, e.kvType()), true}
	case h.Model != k.model:
		return nil, &SavedError{"another model computed them, or another version of this program", true}
	case h.BlockTokens != graph.BlockRows || h.BlockBytes != int64(k.blockBytes) || h.WindowBytes != int64(k.windowBytes) ||
		h.StateBytes != int64(k.stateBytes):
		return nil, &SavedError{
			Msg: fmt.Sprintf("blocks of %d tokens and %d bytes, %d more in windows, and states of %d", h.BlockTokens, h.BlockBytes, h.WindowBytes, h.StateBytes),
		}
	case len(h.Tokens)%graph.BlockRows != 0:
		return nil, &SavedError{Msg: fmt.Sprintf("%d tokens in whole blocks", len(h.Tokens))}
	}
	for _, id := range h.Tokens {
		if id < 0 || id >= e.vocabulary {
			return nil, &SavedError{Msg: fmt.Sprintf("token %d, and the model has %d", id, e.vocabulary)}
		}
	}
	return h, nil
}

func isCut(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }

// cutOff makes the end of what is read an error of its own.
func cutOff(err error) error {
	if isCut(err) {
		return &SavedError{Msg: "the end is missing"}
	}
	return err
}

// keeps returns what the engine's keys and values are. It is found out once.
func (e *Engine) keeps(ctx context.Context) (*kept, error) {
	e.keeping.Lock()
	defer e.keeping.Unlock()
	if e.kept != nil {
		return e.kept, nil
	}
	if e.remote != nil {
		return nil, &models.UnsupportedError{What: "saving keys and values that lie on other machines", Hint: "write again"}
	}
	if e.source > 0 {
		return nil, &models.UnsupportedError{What: "saving the keys and values of a model that reads a source", Hint: "keep the source, and write again"}
	}
	shapes := e.shapes(1, 1)
	delete(shapes, models.StepWindowBlocks) // whether there is one depends on the context
	g, err := e.whole.GraphContext(ctx, shapes, nil)
	if err != nil {
		return nil, err
	}
	k := &kept{window: e.whole.Window()}
	state, window := make(map[graph.ValueID]bool), make(map[graph.ValueID]bool)
	for i := range g.Ops {
		op := &g.Ops[i]
		if in, ok := op.Kind.StateOperand(); ok && in < len(op.In) {
			state[op.In[in].Value] = true
		}
		if sees := graph.Sees(op.Attrs.Int("window"), op.Attrs.Int("chunk")); op.Kind == "attend" && sees > 0 && sees <= k.window {
			window[op.In[3].Value], window[op.In[4].Value] = true, true
		}
	}
	for i := range g.Values {
		v := &g.Values[i]
		if v.Role != graph.Cache {
			continue
		}
		bytes := int(v.Bytes() / int64(v.Shape[0]))
		switch {
		case state[graph.ValueID(i)]:
			k.states = append(k.states, keptCache{v.Name, bytes})
			k.stateBytes += bytes
		case window[graph.ValueID(i)]:
			k.windows = append(k.windows, keptCache{v.Name, bytes * graph.BlockRows})
			k.windowBytes += bytes * graph.BlockRows
		default:
			k.caches = append(k.caches, keptCache{v.Name, bytes * graph.BlockRows})
			k.blockBytes += bytes * graph.BlockRows
		}
	}
	if len(k.all()) == 0 {
		return nil, &models.UnsupportedError{What: "saving the keys and values of a model that keeps none"}
	}
	if k.model, err = e.fingerprint(ctx, g); err != nil {
		return nil, err
	}
	e.kept = k
	return k, nil
}

// Of a weight that is larger than wholeBytes some places are in a fingerprint, of so many bytes each.
const (
	wholeBytes   = 64 << 10
	samplePlaces = 4
	sampleBytes  = 256
)

// Fingerprint tells engines apart that write other texts for the same request: by what a step computes, on which kind
// of device and how, and by some bytes of every weight, which it reads. How much memory, context and room there is does
// not matter.
func (e *Engine) Fingerprint(ctx context.Context) (string, error) {
	g, err := e.model.GraphContext(ctx, e.shapes(1, 1), nil)
	if err != nil {
		return "", err
	}
	return e.fingerprint(ctx, g)
}

// fingerprint tells programs apart that leave other keys and values: by what a step computes, on which kind of device and how,
// and by bytes of every weight. How many blocks and positions there is room for is not in it.
func (e *Engine) fingerprint(ctx context.Context, g *graph.Graph) (string, error) {
	sum := sha256.New()
	kind, _, _ := strings.Cut(e.opts.Session.Device, ":")
	if kind == "emu" || kind == "" { // computes as the CPU does
		kind = "cpu"
	}
	fmt.Fprintf(sum, "%s %s %t\n", kind, e.opts.Session.Precision, e.opts.Session.Exact)
	for i := range g.Values {
		if err := sampleValue(ctx, sum, &g.Values[i]); err != nil {
			return "", err
		}
	}
	for i := range g.Ops {
		op := &g.Ops[i]
		fmt.Fprintf(sum, "op %s %q", op.Kind, op.Path)
		for _, name := range slices.Sorted(maps.Keys(op.Attrs)) {
			fmt.Fprintf(sum, " %s=%v", name, op.Attrs[name])
		}
		for _, in := range op.In {
			fmt.Fprintf(sum, " %d", in.Value)
			if in.Value != graph.NoValue && g.Values[in.Value].Role != graph.Cache && g.Values[in.Value].Role != graph.Input {
				fmt.Fprintf(sum, "%v", in.Layout)
			}
		}
		fmt.Fprintln(sum, " →", op.Out)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// sampleValue adds a value of a graph to a fingerprint.
func sampleValue(ctx context.Context, sum hash.Hash, v *graph.Value) error {
	fmt.Fprintf(sum, "value %v %v", v.Role, v.DType)
	if v.Role == graph.Cache || v.Role == graph.Input { // as long as the context
		fmt.Fprintf(sum, " %q\n", v.Name)
		return nil
	}
	fmt.Fprintf(sum, " %v %d %x\n", v.Shape, len(v.Const), sha256.Sum256(v.Const))
	x := v.Weight.Extent
	if x.Source == nil || x.Bytes == 0 {
		return nil
	}
	places, bytes := int64(1), x.Bytes
	if x.Bytes > wholeBytes {
		places, bytes = samplePlaces, sampleBytes
	}
	sample := make([]byte, bytes)
	fmt.Fprintf(sum, "%q %d ", v.Weight.Name, x.Bytes)
	for i := range places {
		if err := x.ReadAt(ctx, sample, (x.Bytes-bytes)*i/max(places-1, 1)); err != nil {
			return fmt.Errorf("%s: %w", v.Weight.Name, err)
		}
		_, _ = sum.Write(sample)
	}
	return nil
}
