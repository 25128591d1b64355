//go:build !files

package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/optimem/optimem/cmd/optimem/internal/arrays"
	"github.com/optimem/optimem/cmd/optimem/internal/command"
	"github.com/optimem/optimem/cmd/optimem/internal/jsonout"
	"github.com/optimem/optimem/cmd/optimem/internal/newfile"
	"github.com/optimem/optimem/cmd/optimem/internal/running"
	"github.com/optimem/optimem/embed"
	"github.com/optimem/optimem/internal/ascii"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

const embedLong = `Make vectors of texts. MODEL is a folder of sentence-transformers or model2vec, or the Hugging Face folder of a model of
texts, whose states are averaged then. How texts are cut, pooled and normalised is what the folder says. Without TEXT and
--input, standard input has a text in each line.

A text's vector is the same bits whatever texts are beside it, in every mode, budget and number of threads.

The name of --output chooses the format: .npy, .safetensors and .json have one array of all vectors, .jsonl has a line for
each text, {"id", "tokens", "embedding"}.`

const embedExamples = `  optimem embed ./all-MiniLM-L6-v2 "A man is eating food." "Someone eats." --similarity
  optimem embed ./e5-large --input passages.txt --prompt-name passage -o passages.npy --memory 500MiB
  optimem embed ./Qwen3-Embedding-0.6B --input queries.jsonl --prompt-name query --dim 256 -o queries.jsonl`

func embedCommand(c *command.Line) *cobra.Command {
	e := embedding{Run: running.Run{Line: c}}
	cmd := &cobra.Command{
		Use:     "embed MODEL [TEXT...] [flags]",
		Short:   "Make vectors of texts",
		Long:    embedLong,
		Example: embedExamples,
		Args: c.Arguments(func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("no model given")
			}
			return nil
		}),
		RunE: c.Enter(func(cmd *cobra.Command, args []string) error {
			e.Cmd, e.Model, e.args = cmd, args[0], args[1:]
			return e.Place(embedError(e.embed(cmd.Context())))
		}),
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	e.Precision, e.Runs = running.Precisions[0], 1
	flags.StringVar(&e.input, "input", "", "read a text from each line of a `FILE`, - for standard input; lines of a .jsonl file are "+
		`"text" or {"id", "text"}`)
	flags.StringVar(
		&e.promptName, "prompt-name", "",
		"begin each text with the folder's prompt of a `NAME`, such as query or document",
	)
	flags.StringVar(&e.prompt, "prompt", "", "begin each text with this `TEXT`")
	flags.IntVar(&e.maxTokens, "max-tokens", 0, "cut texts to `N` tokens (default: as the folder says)")
	command.Grouped(flags, command.WritingGroup, "input", "prompt-name", "prompt", "max-tokens")
	flags.IntVar(&e.dim, "dim", 0, "cut vectors to their first `N` numbers, for models that were trained for it")
	flags.BoolVar(&e.normalize, "normalize", false, "give vectors the length 1 whatever the folder says")
	flags.BoolVar(&e.similarity, "similarity", false, "print how alike the texts are, as the folder compares them")
	flags.StringVarP(&e.output, "output", "o", "", "write the vectors to a `FILE`: .npy, .safetensors, .json or .jsonl")
	command.Grouped(flags, command.OutputGroup, "dim", "normalize", "similarity", "output")
	e.SessionFlags(cmd)
	return cmd
}

// An embedding is one run of the command embed.
type embedding struct {
	running.Run
	args                   []string
	input, output          string
	prompt, promptName     string
	dim, maxTokens         int
	normalize, similarity  bool
	texts                  []inputText
	folder                 *embed.Folder
	peakBytes, loadedBytes int64
	// loading is how long it took to bring the weights that stay, before anything was computed.
	loading  time.Duration
	computed bool
}

const (
	// mostSimilar bounds the texts that are compared, each with each.
	mostSimilar = 2000
	// embedAtOnce is how many texts are looked at together, so that those of like length are computed together.
	embedAtOnce = 4096
)

func (e *embedding) check() error {
	changed := e.Cmd.Flags().Changed
	switch format := arrays.FormatOf(e.output); {
	case e.input != "" && len(e.args) > 0:
		return e.Usage("", "TEXT and --input are both given")
	case changed("prompt") && changed("prompt-name"):
		return e.Usage("", "--prompt and --prompt-name are both given")
	case changed("dim") && e.dim < 1 || e.dim < 0:
		return e.Usage("", "--dim takes a number of 1 or more")
	case changed("max-tokens") && e.maxTokens < 1 || e.maxTokens < 0:
		return e.Usage("", "--max-tokens takes a number of 1 or more")
	case e.output != "" && format != ".jsonl" && arrays.Formats[format] == nil:
		return e.Usage("there is: .npy, .safetensors, .json, .jsonl", "%s: unknown format of vectors", e.output)
	}
	return e.CheckFlags()
}

func (e *embedding) embed(ctx context.Context) (err error) {
	if err := e.check(); err != nil {
		return err
	}
	info, err := os.Stat(e.Model)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return e.Usage("", "%s is a file: it takes a folder with a model of texts and its tokenizer", e.Model)
	}
	if e.folder, err = embed.OpenContext(ctx, e.Model); err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, e.folder.Close()) }()
	if e.promptName != "" || e.prompt == "" {
		if e.prompt, err = e.folder.Prompt(e.promptName); err != nil {
			return err
		}
	}
	if e.texts, err = e.readTexts(); err != nil {
		return err
	}
	if e.similarity && len(e.texts) > mostSimilar {
		return e.Usage("", "%d texts: --similarity takes %d at most", len(e.texts), mostSimilar)
	}
	embedder, done, err := e.start(ctx)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, done()) }()
	begun := time.Now()
	result, err := e.all(ctx, embedder)
	if err != nil {
		return err
	}
	seconds := time.Since(begun).Seconds()
	if e.output != "" {
		if err := newfile.Write(e.output, func(f *os.File) error { return e.write(ctx, f, result) }); err != nil {
			return err
		}
	}
	if e.AsJSON {
		err = e.printJSON(result, seconds)
	} else if e.similarity || e.output == "" {
		_, err = io.WriteString(e.Stdout, e.table(result))
	}
	if err == nil && !e.Quiet {
		e.Say("done", e.facts(result, seconds))
	}
	return err
}

// start opens the transformer, where there is one, and starts what runs it.
func (e *embedding) start(ctx context.Context) (*embed.Embedder, func() error, error) {
	opts := embed.Options{Dim: e.dim, Normalize: e.normalize, MaxTokens: e.maxTokens}
	if e.folder.Checkpoint() == "" {
		embedder, err := embed.New(ctx, e.folder, nil, opts)
		return embedder, func() error { return nil }, err
	}
	named := e.Model
	e.Model, e.Class = e.folder.Checkpoint(), e.folder.Class()
	m, err := e.OpenModel(ctx)
	e.Model = named
	if err != nil {
		return nil, nil, err
	}
	opts.Session = e.Options(nil, 0)
	opts.Session.Observe = func(ev runtime.Event) {
		switch {
		case ev.Kind == runtime.GroupDone:
			e.computed = true
		case ev.Kind == runtime.WeightsLoaded && !e.computed:
			e.loading += ev.Took
		}
	}
	embedder, err := embed.New(ctx, e.folder, m.Model, opts)
	if err != nil {
		return nil, nil, errors.Join(err, m.Close())
	}
	return embedder, func() error { return cmp.Or(embedder.Close(), m.Close()) }, nil
}

// all embeds all texts, some thousand at a time.
func (e *embedding) all(ctx context.Context, embedder *embed.Embedder) (*embed.Result, error) {
	bar := command.NewCounter(e.Stderr, "texts", int64(len(e.texts)))
	defer bar.Clear()
	all := &embed.Result{Dim: embedder.Dim(), Data: make([]float32, 0, len(e.texts)*embedder.Dim())}
	for from := 0; from < len(e.texts); from += embedAtOnce {
		some := e.texts[from:min(from+embedAtOnce, len(e.texts))]
		r := embed.Request{Prompt: e.prompt, Done: bar.Add}
		for _, t := range some {
			r.Texts = append(r.Texts, t.text)
		}
		result, err := embedder.Embed(ctx, r)
		if err != nil {
			return nil, err
		}
		all.Data, all.Tokens = append(all.Data, result.Data...), append(all.Tokens, result.Tokens...)
		all.Cut += result.Cut
	}
	if s := embedder.Session(); s != nil {
		m := s.Metrics()
		e.peakBytes, e.loadedBytes = m.PeakBytes, m.MovedBytes
	}
	return all, nil
}

// facts is the line that ends a run.
func (e *embedding) facts(r *embed.Result, seconds float64) string {
	tokens := 0
	for _, n := range r.Tokens {
		tokens += n
	}
	line := fmt.Sprintf(
		"%s of %s in %s", running.Counted(len(r.Tokens), "vector"), running.Counted(r.Dim, "number"), running.SecondsText(seconds),
	)
	if seconds > 0 {
		line += fmt.Sprintf(", %.0f tokens a second", float64(tokens)/seconds)
	}
	if e.peakBytes > 0 {
		line += ", peak " + ascii.FormatSize(e.peakBytes)
	}
	if e.loadedBytes > 0 {
		line += ", moved " + ascii.FormatSize(e.loadedBytes)
	}
	if r.Cut > 0 {
		line += fmt.Sprintf("; %s cut to %d tokens", running.Counted(r.Cut, "text"), cmp.Or(e.maxTokens, e.folder.MaxTokens()))
	}
	return line
}

// table is what is printed for people: how alike texts are, or how their vectors begin.
func (e *embedding) table(r *embed.Result) string {
	if !e.similarity {
		rows := ascii.NewTable(ascii.Left("text"), ascii.Right("tokens"), ascii.Left("vector"))
		for i, t := range e.texts {
			rows.Row(ascii.Printable(words(t.text)), strconv.Itoa(r.Tokens[i]), beginning(r.Vector(i)))
		}
		return rows.String()
	}
	columns := []ascii.Column{{Title: e.folder.Similarity()}}
	for i := range e.texts {
		columns = append(columns, ascii.Column{Title: strconv.Itoa(i + 1), Right: true})
	}
	rows := ascii.NewTable(columns...)
	for i, t := range e.texts {
		cells := []string{fmt.Sprintf("%d  %s", i+1, ascii.Printable(words(t.text)))}
		for j := range e.texts {
			cells = append(cells, strconv.FormatFloat(e.folder.Compare(r.Vector(i), r.Vector(j)), 'f', 4, 64))
		}
		rows.Row(cells...)
	}
	return rows.String()
}

// beginning is the first numbers of a vector.
func beginning(vector []float32) string {
	const first = 4
	var parts []string
	for _, x := range vector[:min(first, len(vector))] {
		parts = append(parts, strconv.FormatFloat(float64(x), 'f', 4, 32))
	}
	if len(vector) > first {
		parts = append(parts, "…")
	}
	return strings.Join(parts, " ")
}

// A vectorJSON is a vector in JSON, where NaN and infinities are null.
type vectorJSON []float32

// MarshalJSON writes the shortest texts that give the same float32.
func (v vectorJSON) MarshalJSON() ([]byte, error) {
	b := []byte{'['}
	for i, x := range v {
		if i > 0 {
			b = append(b, ',')
		}
		if f := float64(x); math.IsNaN(f) || math.IsInf(f, 0) {
			b = append(b, "null"...)
		} else {
			b = strconv.AppendFloat(b, f, 'g', -1, 32)
		}
	}
	return append(b, ']'), nil
}

func (e *embedding) printJSON(r *embed.Result, seconds float64) error {
	o := jsonout.New(e.Stdout)
	o.Set("dim", r.Dim)
	o.Set("tokens", append([]int{}, r.Tokens...))
	o.Set("cut", r.Cut)
	o.Set("seconds", seconds)
	o.Set("load_seconds", e.loading.Seconds())
	o.Set("peak_device_bytes", e.peakBytes)
	o.Set("bytes_moved", e.loadedBytes)
	if e.output == "" {
		jsonout.Array(o, "embeddings", e.rows(func(i int) vectorJSON { return r.Vector(i) }))
	}
	if e.similarity {
		o.Set("similarity_fn_name", e.folder.Similarity())
		jsonout.Array(o, "similarity", e.rows(func(i int) vectorJSON {
			row := make(vectorJSON, len(e.texts))
			for j := range row {
				row[j] = float32(e.folder.Compare(r.Vector(i), r.Vector(j)))
			}
			return row
		}))
	}
	return o.Close()
}

// rows gives what is made of each text.
func (e *embedding) rows(of func(i int) vectorJSON) iter.Seq[vectorJSON] {
	return func(yield func(vectorJSON) bool) {
		for i := range e.texts {
			if !yield(of(i)) {
				return
			}
		}
	}
}

// write writes the vectors to a file.
func (e *embedding) write(ctx context.Context, f *os.File, r *embed.Result) error {
	if format := arrays.FormatOf(e.output); format != ".jsonl" {
		x := tensor.Of(r.Data, len(r.Tokens), r.Dim)
		return arrays.Formats[format](ctx, arrays.Writer(ctx, f), []arrays.Named{{Name: "embeddings", Tensor: x}})
	}
	w := bufio.NewWriter(arrays.Writer(ctx, f))
	for i, t := range e.texts {
		if err := t.line(w, r.Tokens[i], r.Vector(i)); err != nil {
			return err
		}
	}
	return w.Flush()
}

// embedError gives an error of a folder or a request its exit code.
func embedError(err error) error {
	var folder *embed.FolderError
	var unknown *embed.UnsupportedError
	var request *embed.RequestError
	var format *models.UnsupportedError
	switch {
	case err == nil || errors.As(err, &format):
		return err
	case errors.As(err, &folder):
		return &command.Failure{Err: err, Code: command.ExitUnsafe, Hints: []string{
			"a download that stopped early looks like this: compare the folder with the original"}}
	case errors.As(err, &unknown):
		return &command.Failure{Err: err, Code: command.ExitUnsupported}
	case errors.As(err, &request):
		return &command.Failure{Err: requestFlag(err, request), Code: command.ExitUsage}
	}
	return textError(err)
}

// requestFlag says what is wrong with the flag that a field is set by.
func requestFlag(err error, r *embed.RequestError) error {
	if flag := map[string]string{"Dim": "--dim", "MaxTokens": "--max-tokens", "prompt": "--prompt-name"}[r.Field]; flag != "" {
		return errors.New(flag + ": " + r.Msg)
	}
	return err
}

// isJSONLines reports whether a file has a JSON value in each line.
func isJSONLines(path string) bool {
	ext := strings.ToLower(filepath.Ext(path))
	return ext == ".jsonl" || ext == ".ndjson"
}
