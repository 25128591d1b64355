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
	// Features are those of a sound or the pixels of a picture, as [models.Model.Sound] has them; of a model that sees
	// pictures in texts ([models.Model.Pictures]), of all pictures one behind the other.
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
	// Source is what is read, nil once it was: what it takes is the request's.
	*Source
	key sourceKey
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
		x = &source{Source: of, key: of.keyOf(), positions: positions, table: append([]int(nil), s.free[:want]...), serial: serial}
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
	delete(s.held, x.key)
}

// checkSource returns an error for a request whose source the model cannot read.
func (e *Engine) checkSource(s *Source) error {
	wrong := func(format string, args ...any) error { return &RequestError{"Source", fmt.Sprintf(format, args...)} }
	sound, isSound := e.model.Sound()
	switch {
	case e.source == 0 && s != nil:
		return wrong("is given, and the model reads none")
	case e.source == 0, e.places > 0 && s == nil:
		return nil
	case e.places > 0:
		want := elements(sound.Shape[1:])
		if n := len(s.Features); len(s.Tokens) > 0 || n == 0 || n%want != 0 || n/want > e.source/e.places {
			return wrong("has %d numbers, and the model sees 1 to %d pictures of %v", n, e.source/e.places, sound.Shape[1:])
		}
		return nil
	case s == nil:
		return wrong("is missing: the model reads a text, a sound or a picture before it writes")
	case isSound:
		want := elements(sound.Shape[1:])
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

// elements is how many there are of a shape.
func elements(shape tensor.Shape) int {
	n := 1
	for _, x := range shape {
		n *= x
	}
	return n
}

// Pictures returns what stands for a part of a picture in a prompt, and how many of these tokens do for each picture of
// the request's source, of a model that sees some; no places of others.
func (e *Engine) Pictures() (token, places int) { return e.picture, e.places }

// MostPictures returns how many pictures a request may have.
func (e *Engine) MostPictures() int { return e.source / max(e.places, 1) * min(e.places, 1) }

// pictures is how many a source has.
func (e *Engine) pictures(s *Source) int {
	sound, _ := e.model.Sound()
	if e.places == 0 || s == nil {
		return 0
	}
	return len(s.Features) / elements(sound.Shape[1:])
}

// WithPlaces returns a prompt in which one token stands for each picture of a source as one that has all places of the
// pictures. A prompt that has another number of these tokens is as it is.
func (e *Engine) WithPlaces(prompt []int, s *Source) []int {
	n, named := e.pictures(s), 0
	for _, id := range prompt {
		if id == e.picture {
			named++
		}
	}
	if n == 0 || named != n {
		return prompt
	}
	whole := make([]int, 0, len(prompt)+n*(e.places-1))
	for _, id := range prompt {
		times := 1
		if id == e.picture {
			times = e.places
		}
		for range times {
			whole = append(whole, id)
		}
	}
	return whole
}

// seenPlaces says of each token of a prompt which position of its pictures stands in its place, nil of a request without
// some.
func (e *Engine) seenPlaces(r Request) ([]int32, error) {
	n := e.pictures(r.Source)
	if n == 0 {
		return nil, nil // the token stands for itself
	}
	seen, next := make([]int32, len(r.Prompt)), int32(0)
	for i, id := range r.Prompt {
		if seen[i] = -1; id == e.picture {
			seen[i] = next
			next++
		}
	}
	if int(next) != n*e.places {
		return nil, &RequestError{"Prompt", fmt.Sprintf("has token %d %d times, and %d pictures have %d places", e.picture, next, n, n*e.places)}
	}
	return seen, nil
}

// sees is the last position of its source that one of a sequence's tokens sees; of pictures the one that stands in its
// place, negative for none.
func (s *sequence) sees(at int) int64 {
	switch {
	case at < len(s.seen):
		return int64(s.seen[at])
	case s.seen != nil || s.source == nil:
		return -1
	}
	return int64(s.source.positions - 1)
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
	if e.source == 0 || s.Source == nil {
		return true
	}
	positions := e.source
	if n := len(s.Source.Tokens); n > 0 {
		positions = n
	} else if e.places > 0 {
		positions = e.places * e.pictures(s.Source)
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
	if d := e.draft; d != nil {
		if d.forget(s); d.head != nil {
			d.head.give(s)
		}
	}
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
	if _, isSound := e.model.Sound(); e.places > 0 {
		return e.places
	} else if isSound {
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

// read runs the pass that reads a source, or one for each of its pictures.
func (e *Engine) read(ctx context.Context, x *source) error {
	for k := range max(e.pictures(x.Source), 1) {
		if err := e.readPart(ctx, x, k); err != nil {
			return fmt.Errorf("reading a source of %d positions: %w", x.positions, err)
		}
	}
	x.read, x.Source = true, nil
	return nil
}

// readPart reads a source, or picture k of one. What pads a text is seen by none of its tokens.
func (e *Engine) readPart(ctx context.Context, x *source, k int) error {
	r, width := &e.reading, graph.Blocks(e.source)
	n := e.sourceRows(x.positions)
	r.tokens, r.mask, r.at, r.tables = resized(r.tokens, n), resized(r.mask, n), resized(r.at, n), resized(r.tables, n*width)
	first := k * e.places
	for i := range n {
		r.tokens[i], r.mask[i], r.at[i] = 0, 0, -1
		if first+i < x.positions {
			r.mask[i], r.at[i] = 1, int64(first+i)
		}
		if i < len(x.Tokens) {
			r.tokens[i] = int64(x.Tokens[i])
		}
		putTable(r.tables[i*width:][:width], 0, x.table)
	}
	in := runtime.Values{models.StepSourceAt: tensor.Of(r.at, n), models.StepSourceBlocks: tensor.Of(r.tables, n, width)}
	if sound, isSound := e.model.Sound(); isSound {
		each := elements(sound.Shape[1:])
		in[models.StepSource] = tensor.Of(x.Features[k*each:][:each], append([]int{1}, sound.Shape[1:]...)...)
	} else {
		in[models.StepSource], in[models.StepSourceMask] = tensor.Of(r.tokens, 1, n), tensor.Of(r.mask, 1, n)
	}
	err := e.session.RunInto(ctx, in, runtime.Values{models.StepSourceRead: tensor.Of(r.done[:], 1, 1, 1)})
	if err == nil {
		e.count(1, min(n, x.positions-first), 0)
	}
	return err
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
