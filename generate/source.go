package generate

import (
	"container/list"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"sync"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// A Source is what a model with an encoder reads before it writes: the tokens of a text, the features of a sound, or
// the pixels of a picture. Requests with the same one share what is kept of it. It is not changed once it was used.
type Source struct {
	// Tokens are those of a text.
	Tokens []int
	// Features are those of a sound or the pixels of a picture, as [models.Model.Sound] has them.
	Features []float32

	once sync.Once
	key  sourceKey
}

// A sourceKey tells sources apart.
type sourceKey [sha256.Size]byte

func (s *Source) keyOf() sourceKey {
	s.once.Do(func() {
		sum := sha256.New()
		var b [8]byte
		put := func(x uint64) {
			binary.LittleEndian.PutUint64(b[:], x)
			_, _ = sum.Write(b[:])
		}
		put(uint64(len(s.Tokens)))
		for _, id := range s.Tokens {
			put(uint64(id))
		}
		for _, x := range s.Features {
			put(uint64(math.Float32bits(x)))
		}
		copy(s.key[:], sum.Sum(nil))
	})
	return s.key
}

// sources are those that were read, or are to be, and where in their caches they lie. One that nobody uses stays until
// its place is wanted: the one that was used longest ago goes first.
type sources struct {
	// free are blocks of no source, idle the sources that nobody uses, the first to go in front.
	free []int
	idle *list.List
	held map[sourceKey]*source
}

// A source has a place in the caches.
type source struct {
	*Source
	// positions is how many of them it has in the caches, table where they lie.
	positions int
	table     []int
	// serial is what the first blocks of sequences that write of it are known under; read says that it was read.
	serial uint64
	read   bool
	users  int
	idle   *list.Element
}

func newSources(blocks int) *sources {
	s := &sources{idle: list.New(), held: make(map[sourceKey]*source)}
	for i := range blocks {
		s.free = append(s.free, i)
	}
	return s
}

// take returns a source of so many positions for who uses it, nil where there is no room. serial is for one that is
// new.
func (s *sources) take(of *Source, positions int, serial uint64) *source {
	x := s.held[of.keyOf()]
	if x == nil {
		want := graph.Blocks(positions)
		room := len(s.free)
		for e := s.idle.Front(); e != nil && room < want; e = e.Next() {
			room += len(e.Value.(*source).table)
		}
		if room < want {
			return nil
		}
		for len(s.free) < want {
			s.drop(s.idle.Front().Value.(*source))
		}
		x = &source{Source: of, positions: positions, table: append([]int(nil), s.free[:want]...), serial: serial}
		s.free = s.free[want:]
		s.held[of.keyOf()] = x
	}
	if x.idle != nil {
		s.idle.Remove(x.idle)
		x.idle = nil
	}
	x.users++
	return x
}

// release is for who used one. One that was not read is of no use to others.
func (s *sources) release(x *source) {
	if x.users--; x.users > 0 {
		return
	}
	x.idle = s.idle.PushBack(x)
	if !x.read {
		s.drop(x)
	}
}

// drop forgets a source that nobody uses.
func (s *sources) drop(x *source) {
	s.idle.Remove(x.idle)
	s.free = append(s.free, x.table...)
	delete(s.held, x.keyOf())
}

// checkSource returns an error for a request whose source the model cannot read.
func (e *Engine) checkSource(s *Source) error {
	wrong := func(format string, args ...any) error { return &RequestError{"Source", fmt.Sprintf(format, args...)} }
	sound, isSound := e.model.Sound()
	switch {
	case e.source == 0 && s != nil:
		return wrong("is given, and the model reads none")
	case e.source == 0:
		return nil
	case s == nil:
		return wrong("is missing: the model reads a text, a sound or a picture before it writes")
	case isSound:
		want := 1
		for _, n := range sound.Shape[1:] {
			want *= n
		}
		if len(s.Tokens) > 0 || len(s.Features) != want {
			return wrong("has %d features, and the model reads %v of a sound or a picture", len(s.Features), sound.Shape[1:])
		}
		return nil
	case len(s.Features) > 0 || len(s.Tokens) == 0:
		return wrong("has no token, and the model reads a text")
	case len(s.Tokens) > e.source:
		return wrong("has %d tokens, and there is room for %d", len(s.Tokens), e.source)
	}
	for _, id := range s.Tokens {
		if id < 0 || id >= e.sourceWords {
			return wrong("has token %d, and the model knows %d", id, e.sourceWords)
		}
	}
	return nil
}

// sourceWords is how many tokens the texts have that a graph reads: the rows of the tables that it looks them up in.
func sourceWords(g *graph.Graph) int {
	words := 0
	for _, op := range g.Ops {
		if op.Kind != "embedding" || g.Values[op.In[1].Value].Name != models.StepSource {
			continue
		}
		if n := op.In[0].Layout.Shape[0]; words == 0 || n < words {
			words = n
		}
	}
	return words
}

// takeSource gives a sequence its source's place. It reports whether there was room.
func (e *Engine) takeSource(s *sequence) bool {
	if e.source == 0 {
		return true
	}
	positions := e.source
	if n := len(s.Source.Tokens); n > 0 {
		positions = n
	}
	e.blocks.serial++
	if s.source = e.sources.take(s.Source, positions, e.blocks.serial); s.source == nil {
		return false
	}
	s.root = s.source.serial
	return true
}

// release gives back what a sequence has of the caches.
func (e *Engine) release(s *sequence) {
	e.blocks.release(s)
	if s.source != nil {
		e.sources.release(s.source)
		s.source = nil
	}
}

// A reading is the memory of the inputs and the output of passes that read a source.
type reading struct {
	tokens, mask, at, tables []int64
	done                     [1]float32
}

// sourceRows is how many positions a pass has that reads a source of so many.
func (e *Engine) sourceRows(positions int) int {
	if _, isSound := e.model.Sound(); isSound {
		return e.source
	}
	return min(max(bucket(positions), graph.BlockRows), e.source)
}

// sourceShapes are those of the inputs of a pass that reads a source.
func (e *Engine) sourceShapes(positions int) map[string]tensor.Shape {
	n := e.sourceRows(positions)
	shapes := map[string]tensor.Shape{models.StepSourceAt: {n}, models.StepSourceBlocks: {n, graph.Blocks(e.source)}}
	if sound, isSound := e.model.Sound(); isSound {
		shapes[models.StepSource] = append(tensor.Shape{1}, sound.Shape[1:]...)
	} else {
		shapes[models.StepSource], shapes[models.StepSourceMask] = tensor.Shape{1, n}, tensor.Shape{1, n}
	}
	return shapes
}

// read runs the pass that reads a source. What pads a text is seen by none of its tokens.
func (e *Engine) read(ctx context.Context, x *source) error {
	r, width := &e.reading, graph.Blocks(e.source)
	n := e.sourceRows(x.positions)
	r.tokens, r.mask, r.at, r.tables = resized(r.tokens, n), resized(r.mask, n), resized(r.at, n), resized(r.tables, n*width)
	for i := range n {
		r.tokens[i], r.mask[i], r.at[i] = 0, 0, -1
		if i < x.positions {
			r.mask[i], r.at[i] = 1, int64(i)
		}
		if i < len(x.Tokens) {
			r.tokens[i] = int64(x.Tokens[i])
		}
		putTable(r.tables[i*width:][:width], 0, x.table)
	}
	in := runtime.Values{models.StepSourceAt: tensor.Of(r.at, n), models.StepSourceBlocks: tensor.Of(r.tables, n, width)}
	if sound, isSound := e.model.Sound(); isSound {
		in[models.StepSource] = tensor.Of(x.Features, append([]int{1}, sound.Shape[1:]...)...)
	} else {
		in[models.StepSource], in[models.StepSourceMask] = tensor.Of(r.tokens, 1, n), tensor.Of(r.mask, 1, n)
	}
	err := e.session.RunInto(ctx, in, runtime.Values{models.StepSourceRead: tensor.Of(r.done[:], 1, 1, 1)})
	if err != nil {
		return fmt.Errorf("reading a source of %d positions: %w", x.positions, err)
	}
	x.read = true
	e.count(1, x.positions, 0)
	return nil
}

// readNext reads the source of the sequence that waits for that longest, if one does.
func (e *Engine) readNext(ctx context.Context) error {
	for _, s := range e.running {
		if s.source != nil && !s.source.read {
			return e.read(ctx, s.source)
		}
	}
	return nil
}

// ready reports whether a sequence can be written.
func (s *sequence) ready() bool { return s.source == nil || s.source.read }

// Source returns how many positions a source may have, of a model that reads one; 0 of others.
func (e *Engine) Source() int { return e.source }
