package pattern

import (
	"unicode/utf8"

	"github.com/optimem/optimem/text/tokenizer/internal/chars"
)

// A machine runs a pattern's program on one text. In its fast form it forgets what failed, as a backtracking matcher
// does, and counts its steps. A search that takes more than stepsPerByte for each byte of the text that it passes is done
// again by the safe program, where the result of each choice at each place is kept: whatever the pattern, a choice is then
// made once for each byte.
type machine struct {
	p     *Pattern
	text  string
	stack []frame
	steps int
	limit int
	safe  bool
	memo  [][]*[memoPage]int32 // by choice, by page of places: 0 unknown, 1 fails, 2 + end
	pages int
	err   error
}

const (
	stepsPerByte = 64
	freeSteps    = 4096
	memoPage     = 1024
)

// A frame is a choice that can be made otherwise.
type frame struct {
	pc  int32 // to go on at
	pos int32
	// Of a loop: it may give back characters, or take more, while pos is not there.
	bound int32
	count int32
	in    *instr // the loop; nil for a plain choice
	tried bool   // safe: the second way is being tried
}

func (m *machine) begin(p *Pattern, text string) {
	m.p, m.text = p, text
	m.stack = m.stack[:0]
	m.safe = false
	m.memo = nil
	m.pages = 0
	m.steps, m.limit = 0, freeSteps
	m.err = nil
	if len(text) > 1<<31-16 {
		m.err = &ErrMemory{p.source}
	}
}

// search finds the first match that begins at from or later; start is -1 if there is none.
func (m *machine) search(from int) (start, end int, err error) {
	if m.err != nil {
		return -1, -1, m.err
	}
	prog := m.p.fast
	for at := from; ; {
		if prog.first.can(m.text, at) {
			end := -1
			if !m.safe {
				m.limit = max(m.limit, freeSteps+stepsPerByte*at)
				end = m.run(prog, 0, at)
				if m.safe { // too many steps: again
					m.stack = m.stack[:0]
				}
			}
			if m.safe {
				end = m.runSafe(m.p.safe, 0, at)
			}
			if m.err != nil {
				return -1, -1, m.err
			}
			if end >= 0 {
				m.limit = max(m.limit, freeSteps+stepsPerByte*end)
				return at, end, nil
			}
		}
		if at >= len(m.text) {
			return -1, -1, nil
		}
		if m.text[at] < utf8.RuneSelf {
			at++
		} else {
			_, size := utf8.DecodeRuneInString(m.text[at:])
			at += size
		}
	}
}

// run matches from a place and returns where the match ends, or -1. It sets m.safe when it gives up.
func (m *machine) run(prog *program, pc int32, pos int) int {
	base := len(m.stack)
	text := m.text
	for {
		in := &prog.code[pc]
		ok := true
		switch in.op {
		case opMatch:
			m.stack = m.stack[:base]
			return pos
		case opFail:
			ok = false
		case opClass:
			n := in.class.match(text, pos)
			if ok = n > 0; ok {
				pos += n
				pc++
			}
		case opLoop:
			if pos, ok = m.loop(in, pc, pos); ok {
				pc++
			}
		case opSplit:
			switch {
			case !in.firstX.can(text, pos):
				pc = in.y
			case !in.firstY.can(text, pos):
				pc = in.x
			default:
				m.stack = append(m.stack, frame{pc: in.y, pos: int32(pos)})
				pc = in.x
			}
		case opJump:
			pc = in.x
		case opAssert:
			if ok = m.holds(in.assert, pos); ok {
				pc++
			}
		case opLook:
			if ok = (m.run(prog, in.x, pos) >= 0) != in.negate; ok {
				pc = in.y
			}
		case opBehind:
			back, can := m.back(pos, int(in.min))
			if ok = (can && m.run(prog, in.x, back) == pos) != in.negate; ok {
				pc = in.y
			}
		case opAtomic:
			end := m.run(prog, in.x, pos)
			if ok = end >= 0; ok {
				pos, pc = end, in.y
			}
		}
		m.steps++
		if m.safe || m.steps > m.limit {
			m.safe = true
			return -1
		}
		if !ok {
			if pc, pos, ok = m.retreat(base); !ok {
				return -1
			}
		}
	}
}

// loop takes characters of a class, as many or as few as it likes, and leaves a frame if it could do otherwise.
func (m *machine) loop(in *instr, pc int32, pos int) (int, bool) {
	count := int32(0)
	c, text := in.class, m.text
	for count < in.min {
		n := c.match(text, pos)
		if n == 0 {
			return pos, false
		}
		pos += n
		count++
	}
	least := pos
	if in.greed == lazy {
		if in.max < 0 || count < in.max {
			m.stack = append(m.stack, frame{pc: pc + 1, pos: int32(pos), count: count, in: in})
		}
		return pos, true
	}
	for in.max < 0 || count < in.max {
		n := c.match(text, pos)
		if n == 0 {
			break
		}
		pos += n
		count++
	}
	m.steps += (pos - least) >> 3
	if in.greed == greedy && pos > least {
		m.stack = append(m.stack, frame{pc: pc + 1, pos: int32(pos), bound: int32(least), in: in})
	}
	return pos, true
}

// retreat goes back to the last choice that can be made otherwise.
func (m *machine) retreat(base int) (pc int32, pos int, ok bool) {
	for len(m.stack) > base {
		top := &m.stack[len(m.stack)-1]
		switch {
		case top.in == nil:
			pc, pos = top.pc, int(top.pos)
			m.stack = m.stack[:len(m.stack)-1]
			return pc, pos, true
		case top.in.greed == lazy:
			n := top.in.class.match(m.text, int(top.pos))
			if n == 0 {
				m.stack = m.stack[:len(m.stack)-1]
				continue
			}
			top.pos += int32(n)
			top.count++
			pc, pos = top.pc, int(top.pos)
			if top.in.max >= 0 && top.count >= top.in.max {
				m.stack = m.stack[:len(m.stack)-1]
			}
			return pc, pos, true
		default:
			_, size := utf8.DecodeLastRuneInString(m.text[:top.pos])
			top.pos -= int32(size)
			pc, pos = top.pc, int(top.pos)
			if top.pos <= top.bound {
				m.stack = m.stack[:len(m.stack)-1]
			}
			return pc, pos, true
		}
	}
	return 0, 0, false
}

// runSafe does what run does and keeps what came of every choice.
func (m *machine) runSafe(prog *program, pc int32, pos int) int {
	base := len(m.stack)
	for {
		in := &prog.code[pc]
		ok := true
		switch in.op {
		case opMatch:
			return m.succeed(prog, base, pos)
		case opFail, opLoop:
			ok = false
		case opClass:
			n := in.class.match(m.text, pos)
			if ok = n > 0; ok {
				pos += n
				pc++
			}
		case opSplit:
			cell := m.cell(prog, in.choice, pos)
			if cell == nil {
				return -1
			}
			switch *cell {
			case 0:
				m.stack = append(m.stack, frame{pc: pc, pos: int32(pos)})
				pc = in.x
			case 1:
				ok = false
			default:
				return m.succeed(prog, base, int(*cell-2))
			}
		case opJump:
			pc = in.x
		case opAssert:
			if ok = m.holds(in.assert, pos); ok {
				pc++
			}
		case opLook:
			if ok = (m.runSafe(prog, in.x, pos) >= 0) != in.negate; ok {
				pc = in.y
			}
		case opBehind:
			back, can := m.back(pos, int(in.min))
			if ok = (can && m.runSafe(prog, in.x, back) == pos) != in.negate; ok {
				pc = in.y
			}
		case opAtomic:
			end := m.runSafe(prog, in.x, pos)
			if ok = end >= 0; ok {
				pos, pc = end, in.y
			}
		}
		if m.err != nil {
			return -1
		}
		for !ok {
			if len(m.stack) == base {
				return -1
			}
			top := &m.stack[len(m.stack)-1]
			choice := &prog.code[top.pc]
			if !top.tried {
				top.tried = true
				pc, pos, ok = choice.y, int(top.pos), true
				break
			}
			if cell := m.cell(prog, choice.choice, int(top.pos)); cell != nil {
				*cell = 1
			}
			m.stack = m.stack[:len(m.stack)-1]
		}
	}
}

// succeed keeps that every choice that still stands leads to a match.
func (m *machine) succeed(prog *program, base, end int) int {
	for _, f := range m.stack[base:] {
		if cell := m.cell(prog, prog.code[f.pc].choice, int(f.pos)); cell != nil {
			*cell = int32(end) + 2
		}
	}
	m.stack = m.stack[:base]
	return end
}

// cell is where the result of a choice at a place is kept; nil, with an error, when there is no more memory for it.
func (m *machine) cell(prog *program, choice int32, pos int) *int32 {
	if m.memo == nil {
		m.memo = make([][]*[memoPage]int32, prog.choices)
	}
	pages := m.memo[choice]
	if pages == nil {
		pages = make([]*[memoPage]int32, len(m.text)/memoPage+1)
		m.memo[choice] = pages
	}
	page := pages[pos/memoPage]
	if page == nil {
		if m.pages++; m.pages > maxMemory/(4*memoPage) {
			m.err = &ErrMemory{m.p.source}
			return nil
		}
		page = new([memoPage]int32)
		pages[pos/memoPage] = page
	}
	return &page[pos%memoPage]
}

func (m *machine) back(pos, n int) (int, bool) {
	for ; n > 0; n-- {
		if pos == 0 {
			return 0, false
		}
		_, size := utf8.DecodeLastRuneInString(m.text[:pos])
		pos -= size
	}
	return pos, true
}

func (m *machine) holds(a assertion, pos int) bool {
	text := m.text
	switch a {
	case lineStart:
		// Oniguruma's ^ does not match after a newline that ends the text.
		return pos == 0 || text[pos-1] == '\n' && pos < len(text)
	case lineEnd:
		return pos == len(text) || text[pos] == '\n'
	case textStart:
		return pos == 0
	case textEnd:
		return pos == len(text)
	case textEndNewline:
		return pos == len(text) || pos == len(text)-1 && text[pos] == '\n'
	}
	before, after := false, false
	if pos > 0 {
		r, _ := utf8.DecodeLastRuneInString(text[:pos])
		before = chars.Of(r).Is(chars.Word)
	}
	if pos < len(text) {
		r, _ := utf8.DecodeRuneInString(text[pos:])
		after = chars.Of(r).Is(chars.Word)
	}
	return (before != after) == (a == wordEdge)
}
