package openai

import (
	"context"
	"unicode/utf8"

	"github.com/optimem/optimem/generate"
)

// streamed writes the answers as chunks.
func (a *chatAnswer) streamed(ctx context.Context, x *writing) error {
	a.head.Object = "chat.completion.chunk"
	if err := x.run(ctx); err != nil {
		return err
	}
	if a.request.usage {
		if err := a.stream.send(answerObject{a.head, []chatDelta{}, a.usage()}); err != nil {
			return err
		}
	}
	return a.stream.done()
}

// chunk sends a part of an answer.
func (a *chatAnswer) chunk(d chatDelta) error {
	o := answerObject{head: a.head, Choices: []chatDelta{d}}
	if a.request.usage {
		o.Usage = null
	}
	return a.stream.send(o)
}

// chunks sends what an answer came to.
func (a *chatAnswer) chunks(choice int, content string, tokens []generate.Token, parts []callObject) error {
	s := &a.choices[choice]
	if s.result == nil && content == "" && len(tokens) == 0 && len(parts) == 0 {
		return nil
	}
	if !s.begun {
		s.begun = true
		empty := ""
		first := delta{Role: "assistant", Content: &empty}
		if err := a.chunk(chatDelta{Index: choice, Delta: first}); err != nil {
			return err
		}
	}
	if content != "" || len(tokens) > 0 {
		d := chatDelta{Index: choice, Delta: delta{Content: &content}}
		if a.request.top >= 0 {
			d.Logprobs = a.spell.chat(tokens, a.request.top)
		}
		if err := a.chunk(d); err != nil {
			return err
		}
	}
	for _, c := range parts {
		if err := a.calling(choice, c); err != nil {
			return err
		}
	}
	if s.result == nil {
		return nil
	}
	why := a.finish(s)
	return a.chunk(chatDelta{Index: choice, Finish: &why})
}

// callPart is about how many bytes of a call's arguments go into a chunk.
const callPart = 512

// calling sends a part of a call, in chunks that are not too large.
func (a *chatAnswer) calling(choice int, c callObject) error {
	arguments := c.Function.Arguments
	for {
		n := min(callPart, len(arguments))
		for n < len(arguments) && !utf8.RuneStart(arguments[n]) {
			n++
		}
		c.Function.Arguments, arguments = arguments[:n], arguments[n:]
		if err := a.chunk(chatDelta{Index: choice, Delta: delta{Calls: []callObject{c}}}); err != nil || arguments == "" {
			return err
		}
	}
}
