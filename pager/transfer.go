package pager

import (
	"github.com/optimem/optimem/internal/hostmem"
	"github.com/optimem/optimem/plan"
)

// transfers are inputs and outputs on their way through memory that the device copies from and to by itself: else each
// copy of an output waits for all that the device was given before, and the host with it.
type transfers struct {
	// room is what is left of the memory for this pass, empty where what passes does so by itself.
	room []byte
	// due are outputs that are there once the stream was waited for.
	due []dueOutput
}

// A dueOutput is where bytes of an output go, and where they are before.
type dueOutput struct{ to, from []byte }

// growTransfers takes the memory that a plan wants, for inputs and outputs of whole passes.
func (g *Pager) growTransfers(p *plan.Plan) error {
	return g.sizeHost(&g.transferMemory, p.TransferBytes, hostmem.Staging)
}

// beginTransfers has inputs and outputs of the pass that begins go through host memory of the pager's.
func (g *Pager) beginTransfers(p *plan.Plan) {
	g.transfers.due = g.transfers.due[:0]
	if g.transferMemory != nil && p.TransferBytes > 0 {
		g.transfers.room = g.transferMemory.Bytes()
	}
}

// endTransfers has inputs and outputs that come next go by themselves, and forgets outputs that nobody will get.
func (g *Pager) endTransfers() {
	g.transfers.room = nil
	clear(g.transfers.due)
	g.transfers.due = g.transfers.due[:0]
}

// through returns room for n bytes that nobody else has in this pass, nil where there is none.
func (g *Pager) through(n int) []byte {
	t := &g.transfers
	if n == 0 || n > len(t.room) {
		return nil
	}
	mem := t.room[:n:n]
	t.room = t.room[min((n+transferAlign-1)/transferAlign*transferAlign, len(t.room)):]
	return mem
}

// transferAlign is what places in that memory are multiples of.
const transferAlign = 256

// handOut copies the outputs that are there to whom they belong. The stream was waited for.
func (g *Pager) handOut() {
	for _, x := range g.transfers.due {
		copy(x.to, x.from)
	}
	clear(g.transfers.due)
	g.transfers.due = g.transfers.due[:0]
}
