package generate_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/runtime"
)

func chatText(t *testing.T) *generate.Text {
	t.Helper()
	text, err := generate.OpenText(chatFolder)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

const placeSchema = `{"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"]}`

// TestGrammarsAreInTheBudget: what grammars take is not there for weights and activations, and a budget that is too small for both is told
// what it has to be.
func TestGrammarsAreInTheBudget(t *testing.T) {
	text := chatText(t)
	shared, own, err := text.GrammarBytes(generate.TextRequest{Schema: json.RawMessage(placeSchema)})
	if err != nil || shared < 1<<10 || own < 1<<10 {
		t.Fatalf("%d bytes and %d: %v", shared, own, err)
	}
	if a, b, err := text.GrammarBytes(generate.TextRequest{Prompt: "no grammar"}); a != 0 || b != 0 || err != nil {
		t.Errorf("no grammar takes %d and %d bytes: %v", a, b, err)
	}
	opts := generate.Options{Context: 64, Grammars: 3 << 20}
	opts.Session.Memory = 64 << 20
	e := chatWriter(t, opts).Engine()
	if budget, _ := e.Session().Budget(); budget != 61<<20 {
		t.Errorf("the session has %d bytes", budget)
	}
	opts.Session.Memory = 3<<20 + 1000
	_, err = generate.New(t.Context(), folderModel(t, chatFolder), opts)
	var full *runtime.CapacityError
	if !errors.As(err, &full) || full.HaveBytes != opts.Session.Memory || full.MinBytes < 3<<20 {
		t.Fatalf("%v", err)
	}
	opts.Session.Memory = full.MinBytes
	chatWriter(t, opts)
}

// TestGrammarsAreReserved: the vocabulary of masks is reserved once and for good, each grammar as long as it is there; where there is no room a
// request is refused, and there is again once those that are kept gave way.
func TestGrammarsAreReserved(t *testing.T) {
	text := chatText(t)
	var held, room atomic.Int64
	errFull := errors.New("full")
	text.Reserve(func(n int64) (func(), error) {
		if held.Add(n) > room.Load() {
			held.Add(-n)
			return nil, errFull
		}
		return func() { held.Add(-n) }, nil
	})
	request := func(max int) generate.TextRequest {
		return generate.TextRequest{Grammar: fmt.Sprintf(`root ::= "a"{1,%d}`, max)}
	}
	if _, err := text.Constraint(request(1)); !errors.Is(err, errFull) || held.Load() != 0 {
		t.Fatalf("%v, %d bytes", err, held.Load())
	}
	room.Store(1 << 40)
	shared, own, err := text.GrammarBytes(request(1))
	if err != nil || held.Load() != shared+own {
		t.Fatalf("%d bytes are reserved for %d and %d: %v", held.Load(), shared, own, err)
	}
	room.Store(shared + 2*own + own/2)
	for max := 2; max <= 9; max++ { // each needs that others give way
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			if _, err = text.Constraint(request(max)); err == nil {
				break
			}
			if !errors.Is(err, errFull) || time.Now().After(deadline) {
				t.Fatal(err)
			}
		}
		if held.Load() > room.Load() || held.Load() <= shared {
			t.Fatalf("%d bytes are reserved, %d are there", held.Load(), room.Load())
		}
	}
}
