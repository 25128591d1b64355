package serve

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/optimem/optimem/models"
)

// A Kind is what is done with a model.
type Kind string

// The kinds of models.
const (
	// Tensors is a model that takes tensors and gives tensors: it is a member of the pool.
	Tensors Kind = "tensors"
	// Text is a causal language model, which writes.
	Text Kind = "text"
	// Embeddings is a model that makes vectors of texts.
	Embeddings Kind = "embeddings"
)

// Bounds of a directory of models.
const (
	maxModels       = 10_000
	maxModelFiles   = 10_000
	maxSidecarBytes = 1 << 20
)

// modelName is what models, versions and aliases may be called: nothing that means something in a path or an address.
var modelName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// modelFiles are the ends of the names of files that are models, in the order in which one is taken where several are.
var modelFiles = []string{".pt2", ".gguf", ".safetensors", ".pt", ".pth", ".bin"}

// A found is a version of a model in the directory.
type found struct {
	name, version string
	// path is where it is, within the directory: a file, or a folder of Hugging Face's.
	path string
	kind Kind
	// fileBytes is how much its files take.
	fileBytes int64
	settings  settings
	// err says why it cannot be opened.
	err error
}

// scan lists what is in the directory, by names. Everything is looked at through root, so that no link leads out of it.
func scan(root *os.Root) ([]found, error) {
	entries, err := readDir(root, ".")
	if err != nil {
		return nil, err
	}
	var all []found
	for _, e := range entries {
		name := e.Name()
		if !modelName.MatchString(name) {
			continue
		}
		if len(all) > maxModels {
			return nil, fmt.Errorf("more than %d models", maxModels)
		}
		info, err := root.Stat(name) // follows links, within the directory
		switch {
		case err != nil:
			if ext := modelFile(name); ext != "" || e.Type()&fs.ModeSymlink != 0 {
				all = append(all, found{name: strings.TrimSuffix(name, ext), version: "1", path: name, err: outside(err)})
			}
		case info.IsDir():
			all = append(all, scanFolder(root, name)...)
		case modelFile(name) != "":
			all = append(all, single(root, name))
		}
	}
	return unlike(all), nil
}

// unlike gives files that share a name but for its end their whole names.
func unlike(all []found) []found {
	count := make(map[string]int)
	for _, f := range all {
		if f.version == "1" {
			count[f.name]++
		}
	}
	for i := range all {
		if count[all[i].name] > 1 && modelFile(all[i].path) != "" && !strings.Contains(all[i].path, "/") {
			all[i].name = all[i].path
		}
	}
	slices.SortStableFunc(all, func(a, b found) int {
		return cmp.Or(strings.Compare(a.name, b.name), compareVersions(a.version, b.version))
	})
	return all
}

// compareVersions orders versions by their numbers.
func compareVersions(a, b string) int {
	m, _ := strconv.ParseInt(a, 10, 64)
	n, _ := strconv.ParseInt(b, 10, 64)
	return cmp.Compare(m, n)
}

// isVersion reports whether a folder's name is that of a version.
func isVersion(name string) bool {
	n, err := strconv.ParseInt(name, 10, 64)
	return err == nil && n > 0 && strconv.FormatInt(n, 10) == name
}

func modelFile(name string) string {
	for _, ext := range modelFiles {
		if strings.HasSuffix(strings.ToLower(name), ext) {
			return name[len(name)-len(ext):]
		}
	}
	return ""
}

// readDir lists a folder in order.
func readDir(root *os.Root, name string) ([]fs.DirEntry, error) {
	f, err := root.Open(name)
	if err != nil {
		return nil, outside(err)
	}
	defer f.Close()
	entries, err := f.ReadDir(maxModels + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(entries) > maxModels {
		return nil, fmt.Errorf("a folder with more than %d entries", maxModels)
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, nil
}

// errOutside says that a link leads out of the directory. It says nothing of where.
var errOutside = errors.New("a link leads out of the directory of models, or nowhere")

// outside takes the paths out of an error.
func outside(err error) error {
	var at *fs.PathError
	if !errors.As(err, &at) {
		return err
	}
	if errors.Is(err, fs.ErrNotExist) || strings.Contains(at.Err.Error(), "escapes") {
		return errOutside
	}
	return at.Err
}

// scanFolder looks at DIR/NAME, which is a model, or has a folder for each version.
func scanFolder(root *os.Root, name string) []found {
	entries, err := readDir(root, name)
	if err != nil {
		return []found{{name: name, version: "1", path: name, err: err}}
	}
	shared, err := readSettings(root, path.Join(name, "model.json"))
	if err != nil {
		return []found{{name: name, version: "1", path: name, err: err}}
	}
	var versions []found
	for _, e := range entries {
		if isVersion(e.Name()) {
			if info, err := root.Stat(path.Join(name, e.Name())); err == nil && info.IsDir() {
				versions = append(versions, folderVersion(root, name, e.Name(), path.Join(name, e.Name()), shared))
			}
		}
	}
	if len(versions) > 0 {
		return versions
	}
	f := folderVersion(root, name, "1", name, shared)
	if errors.Is(f.err, errNoModel) {
		return nil // some other folder
	}
	return []found{f}
}

var errNoModel = errors.New("no model is in the folder")

// folderVersion looks at the folder of a version.
func folderVersion(root *os.Root, name, number, folder string, shared settings) found {
	f := found{name: name, version: number, path: folder, settings: shared, kind: Tensors}
	names := make(map[string]bool)
	f.fileBytes, f.err = measure(root, folder, func(file string) { names[file] = true })
	if f.err != nil {
		return f
	}
	if names["model.json"] && folder != name {
		if f.settings, f.err = readSettings(root, path.Join(folder, "model.json")); f.err != nil {
			return f
		}
	}
	switch {
	case names["modules.json"], !names["config.json"] && names["embeddings.safetensors"]:
		f.kind = Embeddings
	case names["config.json"]:
		f.kind, f.err = kindOf(root, folder, names)
	default:
		f.path, f.err = modelIn(folder, names)
		if strings.HasSuffix(strings.ToLower(f.path), ".gguf") {
			f.kind = Text
		}
	}
	f.kind = cmp.Or(f.settings.Kind, f.kind)
	return f
}

// modelIn chooses the file that is the model of a folder without config.json.
func modelIn(folder string, names map[string]bool) (string, error) {
	var indexes, files []string
	for name := range names {
		switch {
		case strings.Contains(name, "/"):
		case strings.HasSuffix(name, ".index.json"):
			indexes = append(indexes, name)
		case modelFile(name) != "":
			files = append(files, name)
		}
	}
	if len(indexes) == 1 {
		return path.Join(folder, indexes[0]), nil
	}
	slices.Sort(files)
	if len(files) == 1 {
		return path.Join(folder, files[0]), nil
	}
	for _, ext := range modelFiles {
		if names["model"+ext] {
			return path.Join(folder, "model"+ext), nil
		}
	}
	if len(files) == 0 {
		return folder, errNoModel
	}
	return folder, fmt.Errorf("which of %s is the model? Call it model%s", strings.Join(files, ", "), modelFile(files[0]))
}

// kindOf says what a Hugging Face folder's model does, by its class.
func kindOf(root *os.Root, folder string, names map[string]bool) (Kind, error) {
	text, err := readSmall(root, path.Join(folder, "config.json"))
	if err != nil {
		return Tensors, err
	}
	var config struct {
		Architectures []string        `json:"architectures"`
		Vision        json.RawMessage `json:"vision_config"`
	}
	if err := json.Unmarshal(text, &config); err != nil {
		return Tensors, errors.New("config.json is not JSON, or not that of a model")
	}
	tokens := names["tokenizer.json"] || names["vocab.txt"] || names["tokenizer.model"] || names["vocab.json"]
	seeing, _, _ := models.Seeing(text)
	for _, class := range config.Architectures {
		switch {
		case strings.HasSuffix(class, "ForCausalLM"), strings.HasSuffix(class, "LMHeadModel"), class == seeing:
			if tokens {
				return Text, nil
			}
		case strings.HasSuffix(class, "Model") && tokens && config.Vision == nil: // one that sees, too, takes tensors
			return Embeddings, nil
		}
	}
	return Tensors, nil
}

// single looks at DIR/NAME.pt2 and the like, beside which NAME.model.json may lie.
func single(root *os.Root, file string) found {
	stem := strings.TrimSuffix(file, modelFile(file))
	f := found{name: stem, version: "1", path: file, kind: Tensors}
	info, err := root.Stat(file)
	if err != nil || !info.Mode().IsRegular() {
		f.err = errors.New("it is no regular file")
		return f
	}
	f.fileBytes = info.Size()
	if f.settings, f.err = readSettings(root, stem+".model.json"); f.err != nil {
		return f
	}
	if strings.EqualFold(modelFile(file), ".gguf") {
		f.kind = Text
	}
	f.kind = cmp.Or(f.settings.Kind, f.kind)
	return f
}

// measure adds up the files of a folder, and refuses one of which something lies elsewhere.
func measure(root *os.Root, folder string, file func(name string)) (int64, error) {
	total, files := int64(0), 0
	var walk func(at string, deep int) error
	walk = func(at string, deep int) error {
		entries, err := readDir(root, at)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if files++; files > maxModelFiles {
				return fmt.Errorf("more than %d files", maxModelFiles)
			}
			name := path.Join(at, e.Name())
			info, err := root.Stat(name)
			switch {
			case err != nil:
				return outside(err)
			case info.IsDir() && deep < 4:
				if err := walk(name, deep+1); err != nil {
					return err
				}
			case info.Mode().IsRegular():
				total += info.Size()
				file(strings.TrimPrefix(name, folder+"/"))
			}
		}
		return nil
	}
	err := walk(folder, 0)
	return total, err
}

// readSmall reads a small file.
func readSmall(root *os.Root, name string) ([]byte, error) {
	f, err := root.Open(name)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fs.ErrNotExist
		}
		return nil, outside(err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", path.Base(name))
	}
	text, err := io.ReadAll(io.LimitReader(f, maxSidecarBytes+1))
	if err == nil && len(text) > maxSidecarBytes {
		err = fmt.Errorf("%s has more than %d bytes", path.Base(name), maxSidecarBytes)
	}
	return text, err
}

// place is where a found is on the disk.
func (f *found) place(dir string) string { return filepath.Join(dir, filepath.FromSlash(f.path)) }
