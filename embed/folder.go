// Package embed makes vectors of texts, as the folders of sentence-transformers and model2vec say: a transformer's states of
// tokens that are pooled into one vector, or vectors of tokens that are averaged, and what comes after that.
//
//	folder, err := embed.Open("all-MiniLM-L6-v2")
//	ckpt, err := loader.Open(folder.Checkpoint())                            // defer ckpt.Close()
//	model, err := models.Build(ckpt, models.Options{Arch: folder.Class()})
//	embedder, err := embed.New(ctx, folder, model, embed.Options{})          // defer embedder.Close()
//	result, err := embedder.Embed(ctx, embed.Request{Texts: texts})
//
// A text's vector is the same bits whatever texts are beside it and in whatever order, mode, budget or number of threads:
// texts of about one length go through the model together, padded to the longest, and padding changes no bit.
//
// It knows files of folders, pooling and lengths. It does not know architectures, or how a session runs.
package embed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/optimem/optimem/models/transformers"
	"github.com/optimem/optimem/text/tokenizer"
)

// A Folder is what a folder says of how vectors are made of texts. It may be shared between goroutines.
type Folder struct {
	path string
	// inner is the folder of the transformer or the table, with its tokenizer.
	inner     string
	tokenizer *tokenizer.Tokenizer

	// encoder is the transformer, nil where there is a table.
	encoder *transformers.Encoder
	pooling pooling
	table   *table
	head    []layer

	maxTokens  int
	lower      bool
	prompts    map[string]string
	prompt     string
	similarity string
	dim        int
}

// A moduleEntry is one of modules.json.
type moduleEntry struct {
	Name string `json:"name"`
	Path string `json:"path"`
	Type string `json:"type"`
}

// Open reads what a folder says: one of sentence-transformers, with modules.json; one of model2vec; or that of a transformer
// alone, whose states are averaged, or the last is taken where it is a causal language model. The weights of the transformer are
// not read.
func Open(path string) (*Folder, error) { return OpenContext(context.Background(), path) }

// OpenContext is Open until ctx is done.
func OpenContext(ctx context.Context, path string) (_ *Folder, err error) {
	f := &Folder{path: path}
	defer func() {
		if err != nil {
			_ = f.Close()
		}
	}()
	if err := f.readSentences(); err != nil {
		return nil, err
	}
	var modules []moduleEntry
	found, err := f.readJSON("modules.json", &modules)
	if err != nil {
		return nil, err
	}
	switch {
	case !found:
		err = f.openPlain(ctx)
	case len(modules) == 0:
		err = wrong("modules.json", "lists no modules")
	default:
		err = f.openModules(ctx, modules)
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Close closes the table of a folder that has one. An embedder of the folder must be closed before.
func (f *Folder) Close() error {
	if f.table == nil {
		return nil
	}
	return f.table.close()
}

// Checkpoint is the path of the transformer's checkpoint, "" where the folder has a table of vectors and no transformer.
func (f *Folder) Checkpoint() string {
	if f.encoder == nil {
		return ""
	}
	return filepath.Join(f.path, f.inner)
}

// Class is the transformer's class for [models.Options.Arch].
func (f *Folder) Class() string {
	if f.encoder == nil {
		return ""
	}
	return f.encoder.Class
}

// MaxTokens is how many tokens of a text count, 0 where all do.
func (f *Folder) MaxTokens() int { return f.maxTokens }

// Similarity is the name of how the folder compares vectors: cosine, dot, euclidean or manhattan.
func (f *Folder) Similarity() string { return f.similarity }

// Prompts are the names of the folder's prompts, sorted.
func (f *Folder) Prompts() []string { return slices.Sorted(maps.Keys(f.prompts)) }

// Prompt returns the text that goes before texts. "" is the folder's default, often none; "query" and "document" are for
// searching, and are none where the folder has none.
func (f *Folder) Prompt(name string) (string, error) {
	names := []string{name}
	switch name {
	case "":
		return f.prompt, nil
	case "document":
		names = []string{"document", "passage", "corpus"}
	}
	for _, n := range names {
		if text, ok := f.prompts[n]; ok {
			return text, nil
		}
	}
	if name == "query" || name == "document" {
		return "", nil
	}
	known := "it has none"
	if len(f.prompts) > 0 {
		known = "it has " + strings.Join(f.Prompts(), ", ")
	}
	return "", &RequestError{"prompt", fmt.Sprintf("the folder has none that is called %q: %s", name, known)}
}

// sentencesFile says what is said of all modules together.
const sentencesFile = "config_sentence_transformers.json"

func (f *Folder) readSentences() error {
	var c struct {
		Prompts    map[string]string `json:"prompts"`
		Default    *string           `json:"default_prompt_name"`
		Similarity *string           `json:"similarity_fn_name"`
		Dim        *int              `json:"truncate_dim"`
	}
	if _, err := f.readJSON(sentencesFile, &c); err != nil {
		return err
	}
	f.prompts, f.similarity = c.Prompts, "cosine"
	if c.Default != nil {
		text, ok := c.Prompts[*c.Default]
		if !ok {
			return wrong(sentencesFile, "default_prompt_name %q is none of its prompts", *c.Default)
		}
		f.prompt = text
	}
	if c.Similarity != nil {
		if similarities[*c.Similarity] == nil {
			return unsupported(sentencesFile, "the similarity %q", *c.Similarity)
		}
		f.similarity = *c.Similarity
	}
	if c.Dim != nil {
		if f.dim = *c.Dim; f.dim < 1 {
			return wrong(sentencesFile, "truncate_dim is %d", f.dim)
		}
	}
	return nil
}

// openPlain opens a folder without modules.json.
func (f *Folder) openPlain(ctx context.Context) error {
	text, err := f.read("config.json")
	if err != nil {
		return err
	}
	if text == nil {
		return unsupported(filepath.Base(f.path), "a folder with neither modules.json nor config.json")
	}
	var c struct {
		Type      string `json:"model_type"`
		Normalize bool   `json:"normalize"`
		MaxLength *int   `json:"max_length"`
	}
	if json.Unmarshal(text, &c) == nil && c.Type == "model2vec" {
		if c.Normalize {
			f.head = append(f.head, normalize{})
		}
		return f.openModel2Vec(ctx, c.MaxLength)
	}
	if err := f.openTransformer(""); err != nil {
		return err
	}
	f.pooling = pooling{modes: []string{"mean"}, prompts: true}
	if f.encoder.Causal {
		f.pooling.modes[0] = "lasttoken"
	}
	return nil
}

// openModules opens the modules in order.
func (f *Folder) openModules(ctx context.Context, modules []moduleEntry) error {
	if len(modules) > maxModules {
		return wrong("modules.json", "lists %d modules, more than %d", len(modules), maxModules)
	}
	for i, m := range modules {
		if m.Path != "" && !filepath.IsLocal(m.Path) {
			return wrong("modules.json", "module %d is at %q, outside the folder", i, m.Path)
		}
		if !strings.HasPrefix(m.Type, "sentence_transformers.") {
			return unsupported("modules.json", "a module of the class %q", m.Type)
		}
		kind := m.Type[strings.LastIndexByte(m.Type, '.')+1:]
		first := kind == "Transformer" || kind == "StaticEmbedding"
		switch pooled := len(f.pooling.modes) > 0 || f.table != nil; {
		case first != (i == 0):
			return unsupported("modules.json", "%s as module %d", kind, i)
		case !first && (kind == "Pooling") == pooled:
			return unsupported("modules.json", "%s as module %d", kind, i)
		}
		var l layer
		var err error
		switch kind {
		case "Transformer":
			err = f.openTransformer(m.Path)
		case "StaticEmbedding":
			err = f.openStatic(ctx, m.Path)
		case "Pooling":
			err = f.openPooling(m.Path)
		case "Dense":
			l, err = f.openDense(ctx, m.Path)
		case "LayerNorm":
			l, err = f.openNorm(ctx, m.Path)
		case "Normalize":
			l, err = f.openNormalize(m.Path)
		case "Dropout": // does nothing once a model is trained
		default:
			err = unsupported("modules.json", "a module of the class %q", m.Type)
		}
		if err != nil {
			return err
		}
		if l != nil {
			f.head = append(f.head, l)
		}
	}
	if len(f.pooling.modes) == 0 && f.table == nil {
		return unsupported("modules.json", "a model without Pooling")
	}
	return nil
}

// maxModules bounds the modules of a folder.
const maxModules = 64

// transformerFiles are the names under which a transformer's module says what it does, by its family.
var transformerFiles = []string{
	"sentence_bert_config.json", "sentence_roberta_config.json", "sentence_distilbert_config.json",
	"sentence_camembert_config.json", "sentence_albert_config.json", "sentence_xlm-roberta_config.json",
	"sentence_xlnet_config.json",
}

// openTransformer reads what is said of the transformer in a folder.
func (f *Folder) openTransformer(inner string) error {
	f.inner = inner
	file := filepath.Join(inner, "config.json")
	text, err := f.read(file)
	if err != nil {
		return err
	}
	if text == nil {
		return wrong(file, "is missing")
	}
	if f.encoder, err = transformers.EncoderOf(text); err != nil {
		return encoderError(file, err)
	}
	var c struct {
		MaxTokens *int    `json:"max_seq_length"`
		Lower     bool    `json:"do_lower_case"`
		Task      *string `json:"transformer_task"`
		Output    *string `json:"module_output_name"`
	}
	for _, name := range transformerFiles {
		file = filepath.Join(inner, name)
		found, err := f.readJSON(file, &c)
		if err != nil {
			return err
		}
		if found {
			break
		}
	}
	switch {
	case c.MaxTokens != nil && *c.MaxTokens < 1:
		return wrong(file, "max_seq_length is %d", *c.MaxTokens)
	case c.Task != nil && *c.Task != "feature-extraction":
		return unsupported(file, "the task %q", *c.Task)
	case c.Output != nil && *c.Output != "token_embeddings":
		return unsupported(file, "the output %q", *c.Output)
	}
	f.lower = c.Lower
	if err := f.openTokenizer(); err != nil {
		return err
	}
	var t struct {
		MaxTokens *float64 `json:"model_max_length"`
		Side      string   `json:"truncation_side"`
	}
	file = filepath.Join(inner, "tokenizer_config.json")
	if _, err := f.readJSON(file, &t); err != nil {
		return err
	}
	if side := f.tokenizer.Truncation(); t.Side != "" && (t.Side == "left") != (side != nil && side.Left) {
		return unsupported(file, "texts that are cut at the %s", t.Side)
	}
	// What nobody bounds is a number of thirty digits there.
	const unbounded = 1 << 40
	if c.MaxTokens == nil && t.MaxTokens != nil && *t.MaxTokens < unbounded {
		if *t.MaxTokens < 1 {
			return wrong(file, "model_max_length is %v", *t.MaxTokens)
		}
		n := int(*t.MaxTokens)
		c.MaxTokens = &n
	}
	f.maxTokens = f.encoder.Positions
	if c.MaxTokens != nil && (f.maxTokens == 0 || *c.MaxTokens < f.maxTokens) {
		f.maxTokens = *c.MaxTokens
	}
	return nil
}

// encoderError gives an error of a configuration its place.
func encoderError(file string, err error) error {
	var unknown *transformers.UnsupportedError
	var config *transformers.ConfigError
	switch {
	case errors.Is(err, transformers.ErrNoType):
		return unsupported(file, "a configuration without a model_type")
	case errors.As(err, &unknown):
		return unsupported(file, "%s", unknown.Error())
	case errors.As(err, &config):
		return wrong(file, "%s", strings.TrimSpace(config.Key+" "+config.Msg))
	}
	return err
}

func (f *Folder) openTokenizer() (err error) {
	f.tokenizer, err = tokenizer.Open(filepath.Join(f.path, f.inner))
	return err
}

// maxConfigBytes bounds each of the files that say how vectors are made.
const maxConfigBytes = 8 << 20

// read reads a file of the folder, nil where there is none.
func (f *Folder) read(file string) ([]byte, error) {
	opened, err := os.Open(filepath.Join(f.path, file))
	if errors.Is(err, fs.ErrNotExist) {
		if _, missing := os.Stat(f.path); missing != nil {
			return nil, missing
		}
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	if info, err := opened.Stat(); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, wrong(file, "is no file")
	}
	text, err := io.ReadAll(io.LimitReader(opened, maxConfigBytes+1))
	if err == nil && len(text) > maxConfigBytes {
		err = wrong(file, "has more than %d bytes", maxConfigBytes)
	}
	return text, err
}

// readJSON reads a file of JSON of the folder and tells whether it is there.
func (f *Folder) readJSON(file string, to any) (bool, error) {
	text, err := f.read(file)
	if err != nil || text == nil {
		return false, err
	}
	if err := json.Unmarshal(text, to); err != nil {
		return true, wrong(file, "%v", err)
	}
	return true, nil
}
