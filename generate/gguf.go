package generate

import (
	"errors"
	"fmt"
	"slices"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/text/template"
	"github.com/optimem/optimem/text/tokenizer"
)

// ErrNoText is returned for a file that says nothing of text.
var ErrNoText = errors.New("is neither a Hugging Face folder, with config.json and a tokenizer, nor a GGUF file")

const (
	ggufTokenizer = "tokenizer.ggml."
	ggufTemplate  = "tokenizer.chat_template"
)

// openGGUF reads what a GGUF file says of text.
func openGGUF(path string) (*Text, error) {
	ckpt, err := loader.Open(path)
	if err != nil {
		return nil, err
	}
	defer ckpt.Close()
	if ckpt.Format != loader.FormatGGUF {
		return nil, fmt.Errorf("%s: %w", path, ErrNoText)
	}
	t, meta := new(Text), ckpt.Metadata
	if t.tokenizer, err = tokenizer.FromGGUF(meta); err != nil {
		return nil, err
	}
	t.defaults = ggufDefaults(meta)
	if t.chat, err = ggufChat(meta); errors.Is(err, ErrNoChat) {
		t.chatError, err = err, nil
	}
	return t, err
}

// turnEnds are tokens that end an answer of models whose files name no other end of a turn than that of a text.
var turnEnds = []string{"<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>"}

// ggufDefaults returns the tokens that a file says texts begin and end with.
func ggufDefaults(meta map[string]any) Defaults {
	d := Defaults{Begin: -1}
	tokens, _ := meta[ggufTokenizer+"tokens"].([]string)
	id := func(key string) (int, bool) {
		n, ok := loader.GGUFInteger(meta, ggufTokenizer+key)
		return int(n), ok && n >= 0 && n < int64(len(tokens))
	}
	if n, ok := id("bos_token_id"); ok {
		d.Begin = n
	}
	add := func(n int) {
		if !slices.Contains(d.End, n) {
			d.End = append(d.End, n)
		}
	}
	for _, key := range []string{"eos_token_id", "eot_token_id", "eom_token_id"} {
		if n, ok := id(key); ok {
			add(n)
		}
	}
	if _, said := id("eot_token_id"); !said && meta[ggufTemplate] != nil {
		types, _ := meta[ggufTokenizer+"token_type"].([]int32)
		const control = 3
		for n, token := range tokens {
			if slices.Contains(turnEnds, token) && n < len(types) && types[n] == control {
				add(n)
			}
		}
	}
	return d
}

// ggufChat returns the chat templates of a file, [ErrNoChat] where it has none.
func ggufChat(meta map[string]any) (*template.Chat, error) {
	var files template.ChatFiles
	files.Jinja, _ = meta[ggufTemplate].(string)
	names, _ := meta["tokenizer.chat_templates"].([]string)
	for _, name := range names {
		if source, ok := meta[ggufTemplate+"."+name].(string); ok {
			if files.Named == nil {
				files.Named = make(map[string]string)
			}
			files.Named[name] = source
		}
	}
	tokens, _ := meta[ggufTokenizer+"tokens"].([]string)
	special := template.NewObject()
	for _, key := range [][2]string{
		{"bos_token", "bos_token_id"}, {"eos_token", "eos_token_id"}, {"unk_token", "unknown_token_id"},
		{"pad_token", "padding_token_id"}, {"sep_token", "seperator_token_id"}, {"cls_token", "cls_token_id"},
		{"mask_token", "mask_token_id"},
	} {
		if n, ok := loader.GGUFInteger(meta, ggufTokenizer+key[1]); ok && n >= 0 && n < int64(len(tokens)) {
			special.Set(key[0], tokens[n])
		}
	}
	if files.Jinja == "" && files.Named == nil {
		return nil, ErrNoChat
	}
	return template.ReadChat(files, special)
}
