//go:build !files

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/optimem/optimem/cmd/optimem/internal/command"
	"github.com/optimem/optimem/cmd/optimem/internal/jsonout"
	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/internal/ascii"
	"github.com/optimem/optimem/text/template"
	"github.com/optimem/optimem/text/tokenizer"
)

const tokenizeLong = `Say what a text is to a language model: the numbers of its tokens, and how the vocabulary spells them. MODEL is a
folder with tokenizer.json, tokenizer.model, tekken.json, vocab.json and merges.txt, vocab.txt or a .tiktoken file, one of
these files, or a GGUF file. Each TEXT is encoded by itself; without any, standard input is one text, as it comes.

Ids and offsets are those of Hugging Face's tokenizers (of sentencepiece and tiktoken for their files).`

const tokenizeExamples = `  optimem tokenize ./model "Hello, world!"
  optimem tokenize ./model --json < prompt.txt | jq '.ids | length'
  optimem tokenize ./model --decode 9906 11 1917 0`

func tokenizeCommand(c *command.Line) *cobra.Command {
	t := tokenize{Line: c}
	cmd := &cobra.Command{
		Use:     "tokenize MODEL [TEXT...] [flags]",
		Short:   "Turn text into a model's tokens, or back",
		Long:    tokenizeLong,
		Example: tokenizeExamples,
		Args: c.Arguments(func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("no model given")
			}
			return nil
		}),
		RunE: c.Enter(func(_ *cobra.Command, args []string) error { return t.run(args[0], args[1:]) }),
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVar(
		&t.asJSON, "json", false, "print one JSON object: {ids, tokens, offsets}, or texts[] of them for several",
	)
	flags.BoolVar(&t.decode, "decode", false, "the arguments are ids; print the text they stand for")
	flags.BoolVar(
		&t.options.AddSpecial, "special", false,
		"add what the model expects around a text; --decode prints special tokens too",
	)
	flags.BoolVar(
		&t.options.SpecialAsText, "plain", false,
		"special tokens in the text are only the characters they are spelt with",
	)
	flags.StringVar(
		&t.chat, "chat", "",
		"encode what the chat template makes of the messages in a `FILE` of JSON, - for standard input",
	)
	flags.BoolVar(&t.rendered, "text", false, "with --chat: print the rendered text")
	return cmd
}

// A tokenize is one run of the command.
type tokenize struct {
	*command.Line
	asJSON, decode bool
	options        tokenizer.Options
	chat           string
	rendered       bool
}

// tokensJSON is a text as tokens; keys may be added to, never renamed.
type tokensJSON struct {
	IDs     []uint32 `json:"ids"`
	Tokens  []string `json:"tokens"`
	Offsets [][2]int `json:"offsets"` // in bytes of the text
}

func (t *tokenize) run(model string, args []string) error {
	switch {
	case t.rendered && t.chat == "":
		return command.UsageError(t.Called, errors.New("--text is for --chat"))
	case t.chat != "" && (t.decode || len(args) > 0):
		return command.UsageError(t.Called, errors.New("--chat has the messages: there is no place for a text"))
	}
	tok, err := openTokenizer(model)
	if err != nil {
		return tokenizeError(err)
	}
	if t.chat != "" {
		text, err := t.conversation(model)
		if err != nil {
			return err
		}
		if t.rendered {
			_, err := io.WriteString(t.Stdout, text)
			return err
		}
		args = []string{text}
	}
	if t.decode {
		return t.decodeIDs(tok, args)
	}
	if len(args) == 0 {
		text, err := io.ReadAll(os.Stdin)
		if err != nil {
			return err
		}
		args = []string{string(text)}
	}
	all := make([]tokensJSON, len(args))
	for i, text := range args {
		e, err := tok.Encode(text, t.options)
		if err != nil {
			return tokenizeError(err)
		}
		all[i] = tokensJSON{
			append([]uint32{}, e.IDs...), append([]string{}, e.Tokens...), make([][2]int, len(e.Offsets)),
		}
		for j, at := range e.Offsets {
			all[i].Offsets[j] = [2]int{at.Start, at.End}
		}
	}
	if t.asJSON {
		return t.printJSON(all)
	}
	for i, one := range all {
		if i > 0 {
			if _, err := fmt.Fprintln(t.Stdout); err != nil {
				return err
			}
		}
		rows := ascii.NewTable(ascii.Column{Right: true}, ascii.Column{})
		for j, id := range one.IDs {
			rows.Row(strconv.FormatUint(uint64(id), 10), strconv.Quote(one.Tokens[j]))
		}
		if _, err := io.WriteString(t.Stdout, rows.String()); err != nil {
			return err
		}
	}
	return nil
}

// openTokenizer opens the tokenizer of a folder, a file of one, or a GGUF file.
func openTokenizer(model string) (*tokenizer.Tokenizer, error) {
	head := make([]byte, 4)
	if f, err := os.Open(model); err == nil {
		_, err = io.ReadFull(f, head)
		f.Close()
		if err == nil && string(head) == "GGUF" {
			text, err := generate.OpenText(model)
			if err != nil {
				return nil, err
			}
			return text.Tokenizer(), nil
		}
	}
	return tokenizer.Open(model)
}

func (t *tokenize) printJSON(all []tokensJSON) error {
	if len(all) == 1 {
		e := json.NewEncoder(t.Stdout)
		e.SetEscapeHTML(false)
		return e.Encode(all[0])
	}
	o := jsonout.New(t.Stdout)
	var texts iter.Seq[tokensJSON] = func(yield func(tokensJSON) bool) {
		for _, one := range all {
			if !yield(one) {
				return
			}
		}
	}
	jsonout.Array(o, "texts", texts)
	return o.Close()
}

// conversation returns what the chat template of a folder makes of the messages of --chat: a list of them, or an object with
// messages and, perhaps, tools and documents.
func (t *tokenize) conversation(model string) (string, error) {
	from := os.Stdin
	if t.chat != "-" {
		f, err := os.Open(t.chat)
		if err != nil {
			return "", err
		}
		defer f.Close()
		from = f
	}
	data, err := io.ReadAll(io.LimitReader(from, maxPrompt+1))
	if err != nil {
		return "", err
	}
	if len(data) > maxPrompt {
		return "", command.UsageError(t.Called, fmt.Errorf("%s has more than %d bytes", t.chat, maxPrompt))
	}
	said, err := template.ParseJSON(data)
	if err != nil {
		return "", command.UsageError(t.Called, fmt.Errorf("%s: %w", t.chat, err))
	}
	r := template.Request{Messages: said}
	if o, ok := said.(*template.Object); ok {
		r.Messages, _ = o.Get("messages")
		r.Tools, _ = o.Get("tools")
		r.Documents, _ = o.Get("documents")
	}
	if r.Messages == nil {
		return "", command.UsageError(t.Called, fmt.Errorf("%s has no messages", t.chat))
	}
	text, err := generate.OpenText(model)
	if err != nil {
		return "", textError(err)
	}
	rendered, err := text.Render(generate.TextRequest{Chat: r})
	return rendered, textError(err)
}

// decodeIDs prints the text of ids, which are arguments or words of standard input.
func (t *tokenize) decodeIDs(tok *tokenizer.Tokenizer, args []string) error {
	if len(args) == 0 {
		text, err := io.ReadAll(os.Stdin)
		if err != nil {
			return err
		}
		args = strings.Fields(string(text))
	}
	ids := make([]uint32, len(args))
	for i, arg := range args {
		id, err := strconv.ParseUint(arg, 10, 32)
		if err == nil {
			if _, known := tok.Token(uint32(id)); !known {
				err = errors.New("unknown")
			}
		}
		if err != nil {
			return command.UsageError(t.Called, fmt.Errorf("%q is no token's id; there are %d tokens", arg, tok.VocabSize()))
		}
		ids[i] = uint32(id)
	}
	text := tok.Decode(ids, !t.options.AddSpecial)
	if t.asJSON {
		e := json.NewEncoder(t.Stdout)
		e.SetEscapeHTML(false)
		return e.Encode(struct {
			Text string `json:"text"`
		}{text})
	}
	_, err := fmt.Fprintln(t.Stdout, text)
	return err
}

// tokenizeError gives an error its exit code.
func tokenizeError(err error) error {
	var format *tokenizer.FormatError
	var unsupported *tokenizer.UnsupportedError
	switch {
	case errors.As(err, &format):
		return &command.Failure{Err: err, Code: command.ExitUnsafe, Hints: []string{"a download that stopped early looks like this: compare the " +
			"file's size with the original's"}}
	case errors.As(err, &unsupported):
		return &command.Failure{Err: err, Code: command.ExitUnsupported}
	}
	return err
}
