package lint

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A document is a Markdown file.
type document struct {
	path, text string
}

// exists reports whether a path from the root is there. Tests of the rules replace it.
type exists func(name string) bool

func onDisk(name string) bool {
	_, err := os.Stat(filepath.Join(root, filepath.FromSlash(name)))
	return err == nil
}

func documents(t *testing.T) []document {
	t.Helper()
	var docs []document
	err := walk(func(name string) error {
		if path.Ext(name) != ".md" {
			return nil
		}
		text, err := read(name)
		docs = append(docs, document{name, text})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return docs
}

var (
	fence   = regexp.MustCompile("(?ms)^```([a-z]*)[^\n]*\n(.*?)^```$")
	code    = regexp.MustCompile("`[^`\n]+`")
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
)

// anchors returns the fragments that a document's headings can be reached by, as GitHub makes them.
func anchors(text string) []string {
	var all []string
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		var b strings.Builder
		for _, r := range strings.ToLower(m[1]) {
			switch {
			case r == ' ':
				b.WriteByte('-')
			case r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r > 127:
				b.WriteRune(r)
			}
		}
		all = append(all, b.String())
	}
	return all
}

// checkLinks finds relative links to files or headings that are not there. It asks nothing of the network.
func checkLinks(docs []document, there exists) []string {
	var found []string
	for _, d := range docs {
		prose := code.ReplaceAllString(fence.ReplaceAllString(d.text, ""), "")
		for _, m := range link.FindAllStringSubmatch(prose, -1) {
			target := m[1]
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			file, fragment, _ := strings.Cut(target, "#")
			to := d.path
			if file != "" {
				to = path.Join(path.Dir(d.path), file)
			}
			if !there(to) {
				found = append(found, fmt.Sprintf("%s: link to %s, which is not there", d.path, target))
				continue
			}
			i := slices.IndexFunc(docs, func(o document) bool { return o.path == to })
			if fragment != "" && i >= 0 && !slices.Contains(anchors(docs[i].text), fragment) {
				found = append(found, fmt.Sprintf("%s: link to %s, but there is no such heading", d.path, target))
			}
		}
	}
	return found
}

var named = regexp.MustCompile("\\[`([a-z]+\\.)?([A-Za-z_]+)`\\]\\(([^)#\\s]+\\.go)\\)")

// checkNamed finds links of the form [`name`](file.go) whose file declares no such function, method, type, constant or
// variable.
func checkNamed(docs []document, text func(name string) (string, error)) []string {
	var found []string
	for _, d := range docs {
		for _, m := range named.FindAllStringSubmatch(d.text, -1) {
			to := path.Join(path.Dir(d.path), m[3])
			src, err := text(to)
			if err != nil {
				continue // checkLinks tells
			}
			declares := regexp.MustCompile(`(?m)^(func (\([^)]+\) )?|type |var |const |\t)` + m[2] + `\b`)
			if !declares.MatchString(src) {
				found = append(found, fmt.Sprintf("%s: %s declares no %s", d.path, to, m[2]))
			}
		}
	}
	return found
}

var selector = regexp.MustCompile(`\b([a-z]+)\.([A-Z][A-Za-z0-9]*)`)

// checkGoBlocks finds names of this module's packages (loader.Open) in "go" blocks that no file of the package declares.
func checkGoBlocks(docs []document, files []*source) []string {
	declared := make(map[string]bool) // "package" and "package.Name"
	for _, s := range files {
		if s.test || s.file.Name.Name != path.Base(s.dir) {
			continue
		}
		declared[s.file.Name.Name] = true
		for name := range s.file.Scope.Objects {
			declared[s.file.Name.Name+"."+name] = true
		}
	}
	var found []string
	for _, d := range docs {
		for _, m := range fence.FindAllStringSubmatch(d.text, -1) {
			if m[1] != "go" {
				continue
			}
			for _, sel := range selector.FindAllStringSubmatch(m[2], -1) {
				if declared[sel[1]] && !declared[sel[0]] {
					found = append(found, fmt.Sprintf("%s: there is no %s", d.path, sel[0]))
				}
			}
		}
	}
	return found
}

// commands returns the command lines of a document: in "console" blocks what follows a dollar sign, in "sh" blocks
// every line, without comments and with continued lines joined.
func commands(text string) []string {
	var all []string
	for _, m := range fence.FindAllStringSubmatch(text, -1) {
		body := strings.ReplaceAll(m[2], "\\\n", " ")
		for line := range strings.Lines(body) {
			line = strings.TrimSpace(line)
			if m[1] == "console" {
				after, isCommand := strings.CutPrefix(line, "$ ")
				if !isCommand {
					continue
				}
				line = after
			} else if m[1] != "sh" {
				continue
			}
			line, _, _ = strings.Cut(line, " #")
			if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
				all = append(all, line)
			}
		}
	}
	return all
}

// A world is what commands may name.
type world struct {
	there       exists
	makeTargets []string
	subcommands []string
}

// checkCommand finds, in one command line, names of things that are not there.
func (w world) checkCommand(line string) error {
	words := strings.Fields(line)
	for len(words) > 0 && strings.Contains(words[0], "=") { // environment in front of a command
		words = words[1:]
	}
	if len(words) == 0 {
		return nil
	}
	first, args := words[0], words[1:]
	switch {
	case first == "go" && len(args) > 1 && (args[0] == "run" || args[0] == "build" || args[0] == "install"):
		return w.checkGo(args[1:])
	case first == "go" && len(args) > 0 && (args[0] == "test" || args[0] == "vet" || args[0] == "generate"):
		return w.checkPackages(args[1:])
	case first == "make":
		for _, target := range args {
			if !strings.Contains(target, "=") && !slices.Contains(w.makeTargets, target) {
				return fmt.Errorf("no make target %q", target)
			}
		}
		return nil
	case first == "optimem":
		return w.checkSubcommand(args)
	case first == ".ci/run" || strings.HasPrefix(first, "./"):
		if !w.there(path.Clean(first)) {
			return fmt.Errorf("%s is not there", first)
		}
		return nil
	case slices.Contains([]string{"git", "cd", "python", "python3", "curl", "go", "gofmt"}, first):
		return nil
	}
	return fmt.Errorf("%q is no command that this test knows", first)
}

func (w world) checkGo(args []string) error {
	for i, arg := range args {
		if strings.HasPrefix(arg, "-") {
			continue
		}
		dir, isPath := strings.CutPrefix(arg, "./")
		dir = path.Clean(strings.TrimSuffix(dir, "..."))
		if pkg, version, ok := strings.Cut(arg, "@"); ok && version != "" {
			if dir, isPath = inModule(pkg); !isPath {
				return nil // another module's program
			}
		}
		if !isPath || !w.there(dir) {
			return fmt.Errorf("package %s is not there", arg)
		}
		if path.Base(dir) == "optimem" {
			return w.checkSubcommand(args[i+1:])
		}
		return nil
	}
	return nil
}

func (w world) checkPackages(args []string) error {
	for _, arg := range args {
		if dir, ok := strings.CutPrefix(arg, "./"); ok {
			if dir = strings.TrimSuffix(dir, "..."); !w.there(path.Clean(dir)) {
				return fmt.Errorf("package %s is not there", arg)
			}
		}
	}
	return nil
}

func (w world) checkSubcommand(args []string) error {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		return nil
	}
	if !slices.Contains(w.subcommands, args[0]) {
		return fmt.Errorf("optimem has no command %q", args[0])
	}
	for _, arg := range args[1:] {
		// What a session makes itself (big.pt) has no directory; what lies in the repository has one.
		if strings.Contains(arg, "/") && !strings.HasPrefix(arg, "-") && !w.there(path.Clean(arg)) {
			return fmt.Errorf("%s is not there", arg)
		}
	}
	return nil
}

var (
	makeTarget = regexp.MustCompile(`(?m)^([a-z][a-z-]*):`)
	cobraUse   = regexp.MustCompile(`Use:\s*"([a-z]+)[ "]`)
)

func names(re *regexp.Regexp, text string) []string {
	set := make(map[string]bool)
	for _, m := range re.FindAllStringSubmatch(text, -1) {
		set[m[1]] = true
	}
	return slices.Sorted(maps.Keys(set))
}

func thisRepository(t *testing.T) world {
	t.Helper()
	w := world{there: onDisk}
	makefile, err := read("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	w.makeTargets = names(makeTarget, makefile)
	files, err := tree()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range files {
		if match([]string{"cmd/optimem", "cmd/optimem/..."}, s.dir) && !s.test {
			w.subcommands = append(w.subcommands, names(cobraUse, s.text)...)
		}
	}
	return w
}

func TestLinks(t *testing.T) {
	for _, finding := range checkLinks(documents(t), onDisk) {
		t.Error(finding)
	}
}

func TestNamed(t *testing.T) {
	for _, finding := range checkNamed(documents(t), read) {
		t.Error(finding)
	}
}

func TestGoBlocks(t *testing.T) {
	files, err := tree()
	if err != nil {
		t.Fatal(err)
	}
	for _, finding := range checkGoBlocks(documents(t), files) {
		t.Error(finding)
	}
}

// Whoever types what a document shows gets what it promises, as far as names go.
func TestCommands(t *testing.T) {
	w := thisRepository(t)
	n := 0
	for _, d := range documents(t) {
		for _, line := range commands(d.text) {
			n++
			if err := w.checkCommand(line); err != nil {
				t.Errorf("%s: %s: %v", d.path, line, err)
			}
		}
	}
	if n < 5 {
		t.Errorf("found only %d commands in all documents", n)
	}
}

// CI runs the test command that the README gives, so that the README stays true.
func TestReadmeTestCommand(t *testing.T) {
	readme, err := read("README.md")
	if err != nil {
		t.Fatal(err)
	}
	ci, err := read(".ci/run")
	if err != nil {
		t.Fatal(err)
	}
	const command = "go test ./..."
	if !slices.Contains(commands(readme), command) {
		t.Errorf("the README does not show %q", command)
	}
	if !regexp.MustCompile(`(?m)\b` + regexp.QuoteMeta(command) + `$`).MatchString(ci) {
		t.Errorf(".ci/run does not run %q", command)
	}
}

// Every package has its line in ARCHITECTURE.md.
func TestArchitectureNamesPackages(t *testing.T) {
	text, err := read("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := tree()
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for _, s := range files {
		if !seen[s.dir] && !strings.Contains(text, s.dir) {
			t.Errorf("ARCHITECTURE.md does not mention %s", s.dir)
		}
		seen[s.dir] = true
	}
}

func TestCheckLinks(t *testing.T) {
	docs := []document{
		{"README.md", "[a](SECURITY.md) [b](docs/x.md#how-to-add-it) [c](#top-1) [d](https://example.com/no)\n# Top 1\n" +
			"`[not](a-link)`\n```\n[nor](this)\n```\n[e](gone.md) [f](docs/x.md#no) [g](#nothing)"},
		{"docs/x.md", "## How to `add` it?\n[up](../README.md) [wrong](README.md)"},
	}
	there := func(name string) bool {
		return slices.Contains([]string{"README.md", "SECURITY.md", "docs/x.md"}, name)
	}
	got := strings.Join(checkLinks(docs, there), "\n")
	want := strings.Join([]string{
		"README.md: link to gone.md, which is not there",
		"README.md: link to docs/x.md#no, but there is no such heading",
		"README.md: link to #nothing, but there is no such heading",
		"docs/x.md: link to README.md, which is not there",
	}, "\n")
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestCheckNamed(t *testing.T) {
	docs := []document{{"docs/a.md", "[`f`](../x.go) [`m`](../x.go) [`x.T`](../x.go) [`g`](../x.go) [`f`](../y.go)"}}
	text := func(name string) (string, error) {
		if name != "x.go" {
			return "", os.ErrNotExist
		}
		return "package x\n\nfunc f() {}\n\nfunc (t T) m() {}\n\ntype T int\n\nvar s = `g`\n", nil
	}
	got := checkNamed(docs, text)
	if len(got) != 1 || got[0] != "docs/a.md: x.go declares no g" {
		t.Errorf("got %q", got)
	}
}

func TestCheckGoBlocks(t *testing.T) {
	s, err := parse("loader/open.go", "package loader\nfunc Open() {}\ntype Options struct{}")
	if err != nil {
		t.Fatal(err)
	}
	docs := []document{{"a.md", "loader.No\n```go\nloader.Open(loader.Options{}, fmt.Gone); loader.Gone()\n```\n"}}
	if got := checkGoBlocks(docs, []*source{s}); len(got) != 1 || got[0] != "a.md: there is no loader.Gone" {
		t.Errorf("got %q", got)
	}
}

func TestCheckCommand(t *testing.T) {
	const text = "```console\n$ optimem scan a.pt  # says so\noutput\n$ go run ./cmd/optimem \\\n  inspect x\n```\n" +
		"```sh\n# all\nmake lint\n```\n```go\nloader.Open(x)\n```\n"
	want := []string{"optimem scan a.pt", "go run ./cmd/optimem    inspect x", "make lint"}
	if got := commands(text); !slices.Equal(got, want) {
		t.Errorf("commands: got %q, want %q", got, want)
	}
	there := func(name string) bool {
		return slices.Contains([]string{".", "cmd/optimem", "loader", "loader/testdata/a.pt", ".ci/run"}, name)
	}
	w := world{there: there, makeTargets: []string{"lint"}, subcommands: []string{"scan", "inspect"}}
	for _, tt := range []struct{ line, want string }{
		{"go install github.com/optimem/optimem/cmd/optimem@latest", ""},
		{"go install github.com/optimem/optimem/cmd/gone@latest", "package github.com/optimem/optimem/cmd/gone@latest is"},
		{"go run honnef.co/go/tools/cmd/staticcheck@v0.7.0 ./...", ""},
		{"go run ./cmd/optimem inspect loader/testdata/a.pt", ""},
		{"go run -tags noasm ./cmd/gone", "package noasm is not there"},
		{"go run -tags=noasm ./cmd/gone", "package ./cmd/gone is not there"},
		{"go run ./cmd/optimem inspect loader/testdata/b.pt", "loader/testdata/b.pt is not there"},
		{"go run ./cmd/optimem explode x.pt", `optimem has no command "explode"`},
		{"go test ./...", ""},
		{"go test -run=X ./loader/...", ""},
		{"go test ./gone", "package ./gone is not there"},
		{"make lint", ""},
		{"make coffee", `no make target "coffee"`},
		{"optimem scan *.pt", ""},
		{"optimem --version", ""},
		{"optimem fly", `optimem has no command "fly"`},
		{".ci/run", ""},
		{"./gone", "./gone is not there"},
		{"GOOS=darwin go build ./...", ""},
		{"sudo rm", `"sudo" is no command`},
	} {
		err := w.checkCommand(tt.line)
		if tt.want == "" && err != nil {
			t.Errorf("%s: %v", tt.line, err)
		}
		if tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: got %v, want %q", tt.line, err, tt.want)
		}
	}
}
