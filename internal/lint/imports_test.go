package lint

import (
	"go/ast"
	"maps"
	"slices"
	"strings"
	"testing"
)

// diagram is the import diagram of ARCHITECTURE.md: a package, and which packages of this module it may import. What
// is not here is not allowed, and a package that is not here must not exist. "x/..." is x and all below it.
var diagram = map[string][]string{
	"storage": {},
	// Files of fewer bytes, as sources.
	"storage/packed": {"storage"},
	"tensor":         {"storage"},
	// What the blocks of GGUF files stand for.
	"tensor/encoded": {"storage", "tensor"},

	// Bytes and names. A graph or code leaves the loader parsed, never evaluated.
	"loader": {
		"storage", "storage/packed", "tensor", "tensor/encoded", "loader/exported", "loader/script", "loader/internal/...",
	},
	"loader/exported":            {"tensor", "loader/internal/fault", "loader/internal/limit", "loader/internal/strictjson"},
	"loader/script":              {"tensor", "loader/internal/fault", "loader/internal/limit"},
	"loader/internal/fault":      {},
	"loader/internal/limit":      {"loader/internal/fault"},
	"loader/internal/strictjson": {"tensor", "loader/internal/fault", "loader/internal/limit"},
	"loader/internal/ziparchive": {"storage", "tensor", "loader/internal/fault", "loader/internal/limit"},
	"loader/internal/gguf":       {"tensor", "tensor/encoded", "loader/internal/fault", "loader/internal/limit"},
	"loader/internal/pickle":     {"tensor", "loader/internal/fault", "loader/internal/limit"},

	// Shapes and ops.
	"graph":         {"tensor", "tensor/encoded"},
	"graph/rewrite": {"graph", "storage", "tensor", "tensor/encoded"},
	"layers":        {"tensor"},
	"models": {
		"loader", "loader/exported", "loader/script", "layers", "graph", "graph/rewrite", "storage", "tensor", "tensor/encoded",
		"models/aten", "models/aten/call", "models/aten/cells", "models/lora", "models/lora/stretch", "models/quantized", "models/torchvision", "models/transformers", "models/torchscript",
	},
	"models/aten": {"models/aten/...", "graph", "tensor"},
	// Memory and views of a graph that is written, calls, then what overloads mean, by kind.
	"models/aten/cells":    {"graph", "tensor"},
	"models/aten/call":     {"models/aten/cells", "loader/exported", "graph", "tensor"},
	"models/aten/elements": {"models/aten/call", "models/aten/cells", "graph", "tensor"},
	"models/aten/views":    {"models/aten/call", "models/aten/cells", "loader/exported", "graph", "tensor"},
	"models/aten/products": {"models/aten/call", "models/aten/cells", "graph", "tensor"},
	"models/aten/signals":  {"models/aten/call", "models/aten/cells", "models/aten/elements", "graph", "tensor"},
	"models/lora":          {"layers", "tensor"},
	"models/lora/stretch":  {"storage", "tensor", "internal/cpu/kernel"},
	"models/quantized":     {"loader", "models/aten/cells", "storage", "tensor", "tensor/encoded"},
	"models/torchvision":   {"layers", "tensor"},
	"models/transformers":  {"models/transformers/...", "layers", "tensor"},
	// What families share, then families by what they read.
	"models/transformers/family":   {"layers", "tensor"},
	"models/transformers/encoders": {"models/transformers/family", "layers", "tensor"},
	"models/transformers/seq2seq":  {"models/transformers/family", "layers", "tensor"},
	"models/transformers/pictures": {
		"models/transformers/encoders", "models/transformers/seq2seq", "models/transformers/family", "layers", "tensor",
	},
	"models/transformers/sounds": {"models/transformers/seq2seq", "models/transformers/family", "layers", "tensor"},
	"models/torchscript":         {"loader/script", "layers", "tensor"},
	"models/internal/zoo":        {"loader", "loader/exported", "storage", "tensor"},

	// Ops and buffers.
	"device":            {"graph", "tensor"},
	"device/devicetest": {"device", "models/aten", "graph", "tensor", "tensor/encoded"},
	"device/null":       {"device", "graph", "tensor"},
	"device/emulated":   {"device", "internal/cpu", "graph", "tensor"},
	"device/late":       {"device", "graph"},
	"cuda":              {"device", "graph", "graph/rewrite", "tensor", "tensor/encoded", "cuda/..."},
	"cuda/...":          {"device", "graph", "internal/replace", "tensor", "cuda/..."},
	"internal/cpu": {
		"device", "graph", "tensor", "tensor/encoded", "internal/cpu/axes", "internal/cpu/blocked", "internal/cpu/codes", "internal/cpu/elementwise",
		"internal/cpu/images", "internal/cpu/index", "internal/cpu/kernel", "internal/cpu/ops", "internal/cpu/states", "internal/cpu/tasks",
	},
	"internal/cpu/axes":        {"graph", "tensor", "internal/cpu/kernel", "internal/cpu/ops", "internal/cpu/tasks"},
	"internal/cpu/elementwise": {"graph", "tensor", "tensor/encoded", "internal/cpu/kernel", "internal/cpu/ops", "internal/cpu/tasks"},
	"internal/cpu/images":      {"graph", "tensor", "internal/cpu/axes", "internal/cpu/kernel", "internal/cpu/ops", "internal/cpu/tasks"},
	"internal/cpu/states":      {"graph", "internal/cpu/kernel", "internal/cpu/ops", "tensor"},
	"internal/cpu/index":       {"graph", "tensor", "internal/cpu/ops", "internal/cpu/tasks"},
	"internal/cpu/ops":         {"device", "graph", "tensor", "internal/cpu/kernel", "internal/cpu/tasks"},
	"internal/cpu/arrange": {
		"internal/cpu", "graph", "graph/rewrite", "tensor", "internal/cpu/blocked", "internal/cpu/elementwise", "internal/cpu/kernel",
	},
	"internal/cpu/blocked": {"tensor", "internal/cpu/kernel", "internal/cpu/tasks"},
	"internal/cpu/tasks":   {},
	"internal/cpu/codes":   {"internal/cpu/kernel", "internal/cpu/ops", "tensor", "tensor/encoded"},
	"internal/cpu/kernel":  {},

	// Graph and bytes, then the interpreters of what was planned.
	"cost":        {"graph", "storage", "tensor"},
	"plan":        {"plan/slots", "graph", "storage", "tensor"},
	"plan/share":  {},
	"plan/slots":  {},
	"plan/search": {"plan", "plan/slots", "cost", "graph", "graph/rewrite", "storage", "tensor"},
	"pager":       {"pager/fetch", "plan", "plan/slots", "device", "graph", "storage", "tensor"},
	"pager/fetch": {"plan", "device", "storage"},
	"chunker":     {"pager", "plan", "plan/slots", "device", "graph", "tensor"},

	// Only machine knows all devices, and runtime everyone.
	"internal/machine": {
		"pager", "chunker", "cuda", "internal/cpu", "internal/cpu/arrange", "cost", "plan", "plan/slots", "device", "device/emulated", "graph",
		"graph/rewrite",
	},
	"runtime": {
		"memory", "models", "internal/machine", "pager", "cuda", "cost", "plan", "plan/search", "plan/share", "plan/slots", "device", "graph",
		"graph/rewrite", "storage", "tensor", "loader",
	},
	"adapt":               {"tensor"},
	"runtime/optimemtest": {"runtime"},

	// What watches sessions.
	"trace":               {"pager", "plan"},
	"memory":              {"plan", "graph", "storage", "tensor", "tensor/encoded"},
	"profile":             {"pager", "plan", "graph", "cost"},
	"profile/profilehttp": {"profile"},
	"top":                 {"runtime"},

	"cmd/optimem": {
		"runtime", "memory", "profile", "trace", "top", "models", "loader", "loader/exported", "loader/script", "cost", "plan", "plan/slots", "device",
		"graph", "layers", "storage", "tensor", "tensor/encoded",
		"internal/npy", "internal/preprocess", "internal/calibrate", "text/tokenizer", "text/template", "generate", "embed", "serve",
		"serve/otlp", "quantize", "quantize/moments", "pack", "storage/packed", "perplexity", "work", "pipeline",
		"cmd/optimem/internal/...",
	},
	"cmd/optimem/internal/command": {
		"cmd/optimem/internal/newfile", "loader", "storage", "storage/packed",
	},
	"cmd/optimem/internal/running": {
		"cmd/optimem/internal/arrays", "cmd/optimem/internal/command", "cmd/optimem/internal/courtesy",
		"cmd/optimem/internal/jsonout", "cmd/optimem/internal/listing", "cmd/optimem/internal/newfile",
		"cmd/optimem/internal/planned", "cmd/optimem/internal/profiled", "cmd/optimem/internal/values",
		"cmd/optimem/internal/wording", "cost", "device", "generate", "graph", "internal/calibrate", "internal/npy",
		"internal/preprocess", "internal/replace", "layers", "loader", "memory", "models", "pipeline", "plan", "plan/slots", "profile",
		"runtime", "storage", "tensor", "top", "trace",
	},
	"cmd/optimem/internal/listing": {
		"cmd/optimem/internal/jsonout", "models", "loader", "loader/exported", "loader/script", "storage", "storage/packed", "tensor", "tensor/encoded",
	},
	"cmd/optimem/internal/profiled": {
		"cmd/optimem/internal/listing", "cmd/optimem/internal/jsonout", "cmd/optimem/internal/wording", "runtime", "memory", "plan", "storage",
	},
	"cmd/optimem/internal/arrays": {"cmd/optimem/internal/values", "internal/npy", "loader", "tensor"},
	"cmd/optimem/internal/values": {"tensor"},
	"cmd/optimem/internal/heard": {
		"cmd/optimem/internal/jsonout", "cmd/optimem/internal/wording", "internal/ascii", "internal/npy", "tensor",
	},
	"cmd/optimem/internal/planned":  {"cmd/optimem/internal/wording", "plan"},
	"cmd/optimem/internal/jsonout":  {},
	"cmd/optimem/internal/newfile":  {},
	"cmd/optimem/internal/courtesy": {"runtime"},
	"cmd/optimem/internal/wording":  {},

	// Folders made of folders.
	"quantize": {"loader", "layers", "models/transformers", "tensor", "tensor/encoded", "text/tokenizer"},
	"pack":     {"loader", "storage", "storage/packed"},
	// What a model's layers are given, for quantize.
	"quantize/moments": {"perplexity", "runtime", "models", "graph", "tensor"},

	// What is around a session that takes text.
	"generate": {"runtime", "models", "loader", "plan", "graph", "tensor", "text/tokenizer", "text/template", "text/grammar", "internal/sound"},
	// Logits of a text's tokens, whoever made them.
	"perplexity": {"runtime", "models", "tensor"},
	"embed":      {"runtime", "models", "models/transformers", "loader", "tensor", "text/tokenizer"},

	// Protocols over what runs models.
	"serve": {
		"runtime", "top", "models", "loader", "plan", "tensor", "generate", "embed", "serve/oip", "serve/openai", "serve/otlp", "serve/internal/inference",
		"internal/preprocess",
	},
	"serve/otlp":               {},
	"serve/internal/inference": {},
	"serve/oip":                {"tensor"},
	"serve/openai":             {"generate", "embed", "text/tokenizer", "text/template", "text/grammar"},

	// Work for many machines.
	"work": {"serve", "generate", "embed", "runtime", "loader", "tensor", "internal/npy", "internal/preprocess"},

	// One model over many machines.
	"pipeline": {"runtime", "models", "plan", "graph", "tensor"},

	// Text, for models that take it as numbers; they are not known here.
	"text/tokenizer":     {"text/tokenizer/internal/..."},
	"text/tokenizer/...": {"text/tokenizer/internal/..."},

	"examples/chat":  {"generate", "runtime", "models", "loader"},
	"examples/...":   {"serve", "runtime", "models", "loader", "layers", "graph", "plan", "memory", "tensor"},
	"benchmarks/...": {"runtime", "models", "loader", "cost", "plan", "plan/slots", "graph", "device", "internal/calibrate", "storage", "tensor"},

	"text/template":                 {"text/template/internal/python"},
	"text/template/internal/python": {},
	"text/grammar":                  {},

	"internal/calibrate":       {"device", "internal/cpu", "internal/cpu/arrange", "graph", "cost", "plan", "storage", "storage/packed", "tensor", "internal/replace"},
	"internal/npy":             {"tensor"},
	"internal/preprocess":      {"tensor", "internal/preprocess/jpeg"},
	"internal/preprocess/jpeg": {},
	"internal/sound":           {},
	"internal/hostmem":         {},
	"internal/sysmem":          {},
	"internal/ascii":           {},
	"internal/recent":          {},
	"internal/panicked":        {},
	"internal/replace":         {},
	"internal/fixtures":        {},
	"internal/lint":            {},
	"internal/mutants":         {},
}

// everyone may import these.
var everyone = []string{"internal/hostmem", "internal/sysmem", "internal/ascii", "internal/recent", "internal/panicked"}

// dependencies says which packages may import which other modules. The longest path that fits decides.
var dependencies = map[string][]string{
	"github.com/nlpodyssey/gopickle/pickle":  {"loader/internal/pickle"},
	"github.com/nlpodyssey/gopickle/types":   {"loader/internal/pickle"},
	"github.com/nlpodyssey/gopickle/pytorch": {"benchmarks/..."},
	"github.com/schollz/progressbar/v3":      {"cmd/..."},
	"github.com/spf13/cobra":                 {"cmd/..."},
	"github.com/spf13/pflag":                 {"cmd/..."},
	"golang.org/x/term":                      {"cmd/..."},
	"golang.org/x/text/unicode/norm":         {"text/tokenizer"},
	"github.com/rivo/uniseg":                 {"text/tokenizer"},
	"github.com/x448/float16":                {"tensor", "loader", "internal/cpu/..."},
	"connectrpc.com/connect":                 {"serve"},
	"google.golang.org/protobuf":             {"serve", "serve/internal/inference"},
	"github.com/nats-io/nats.go":             {"work"},
	"github.com/nats-io/nats-server/v2":      {"work"},
	"github.com/nats-io/nkeys":               {"work"},
	"golang.org/x/image":                     {"internal/preprocess"},
	"golang.org/x/sync":                      {"..."},
	"golang.org/x/sys":                       {"storage", "storage/packed", "cuda/...", "cmd/...", "internal/..."},
	"github.com/ebitengine/purego":           {"cuda/..."},
	"github.com/klauspost/compress/zstd":     {"models/internal/zoo", "device/devicetest"},
	"gorgonia.org/cu":                        {"cuda/..."},
}

// testDependencies may be imported by every test, beside those above.
var testDependencies = []string{
	"github.com/google/go-cmp", "github.com/rogpeppe/go-internal", "pgregory.net/rapid",
}

// standard says which packages, or single files, may import those parts of the standard library that not everybody
// may. Tests may import all but "C" and "plugin".
var standard = map[string][]string{
	// Behind the build tag gorgonia.
	"C":        {"cuda/internal/driver/provider_gorgonia.go"},
	"plugin":   {},
	"os/exec":  {"cuda/sim", "internal/mutants"},
	"net":      {"examples/...", "cmd/...", "top", "serve", "work", "pipeline", "benchmarks/serve"},
	"net/http": {"examples/...", "cmd/...", "profile/profilehttp", "serve/...", "benchmarks/serve"},
	"log":      {"cmd/...", "examples/..."},
	"log/slog": {"cmd/...", "examples/...", "runtime", "serve/...", "work", "pipeline"},
	"testing":  {"device/devicetest", "cuda/sim"},
	// storage looks at a buffer's address, to tell whether O_DIRECT takes it, and makes system calls.
	"unsafe": {
		"storage", "tensor", "internal/hostmem", "internal/sysmem/sysmem_windows.go",
		"internal/cpu/...", "cuda/...", "serve/internal/inference/gen_inference.pb.go",
	},
}

var importRules = []rule{
	each("diagram", checkDiagram),
	each("dependencies", checkDependencies),
	each("standard library", checkStandard),
	each("goruntime", checkGoRuntime),
	each("no dot imports", checkDot),
}

// inModule cuts the module path off an import.
func inModule(imp string) (string, bool) {
	if imp == modulePath {
		return ".", true
	}
	return strings.CutPrefix(imp, modulePath+"/")
}

// ownRoom reports whether a package is a command's own room below it, as Go allows.
func ownRoom(command, pkg string) bool {
	above, _, internal := strings.Cut(pkg, "/internal/")
	return internal && (command == above || strings.HasPrefix(command, above+"/"))
}

func checkDiagram(s *source) []string {
	key, listed := lookup(diagram, s.dir)
	if !listed {
		return []string{s.at(s.file.Package, "package %s is not in the diagram", s.dir)}
	}
	var found []string
	for _, imp := range sortedImports(s) {
		pkg, ok := inModule(imp)
		switch {
		case !ok:
		case match([]string{"cmd/..."}, pkg) && !ownRoom(s.dir, pkg):
			found = append(found, s.at(s.file.Package, "%s imports %s: nobody imports a command", s.dir, pkg))
		case s.test || match(everyone, pkg) || match(diagram[key], pkg):
		default:
			found = append(found, s.at(s.file.Package, "%s may not import %s", s.dir, pkg))
		}
	}
	return found
}

// lookup finds the longest key of m that is pkg, or "dir/..." above pkg.
func lookup(m map[string][]string, pkg string) (string, bool) {
	if _, ok := m[pkg]; ok {
		return pkg, true
	}
	best := ""
	for key := range m {
		if match([]string{key}, pkg) && len(key) > len(best) {
			best = key
		}
	}
	return best, best != ""
}

func checkDependencies(s *source) []string {
	var found []string
	for _, imp := range sortedImports(s) {
		first, _, _ := strings.Cut(imp, "/")
		if _, ok := inModule(imp); ok || !strings.Contains(first, ".") {
			continue
		}
		best := ""
		for dep := range dependencies {
			if (imp == dep || strings.HasPrefix(imp, dep+"/")) && len(dep) > len(best) {
				best = dep
			}
		}
		inTests := slices.ContainsFunc(testDependencies, func(dep string) bool { return strings.HasPrefix(imp, dep) })
		switch {
		case s.test && (inTests || best != ""):
		case best == "":
			found = append(found, s.at(s.file.Package, "%s is not a known dependency of %s", imp, s.dir))
		case !match(dependencies[best], s.dir):
			found = append(found, s.at(s.file.Package, "%s may not import %s", s.dir, imp))
		}
	}
	return found
}

func checkStandard(s *source) []string {
	var found []string
	for _, imp := range sortedImports(s) {
		allowed, restricted := standard[imp]
		inTest := s.test && imp != "C" && imp != "plugin"
		if !restricted || inTest || imp == "unsafe" && onlyMeasures(s) || match(allowed, s.dir) || match(allowed, s.path) {
			continue
		}
		found = append(found, s.at(s.file.Package, "%s may not import %s", s.dir, imp))
	}
	return found
}

// onlyMeasures reports whether all that a file takes from package unsafe are sizes, which are constants.
func onlyMeasures(s *source) bool {
	measures := true
	ast.Inspect(s.file, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if id, ok := sel.X.(*ast.Ident); ok && id.Name == s.imports()["unsafe"] && sel.Sel.Name != "Sizeof" {
				measures = false
			}
		}
		return measures
	})
	return measures
}

// Package runtime is optimem's face, so inside the module the standard one carries another name.
func checkGoRuntime(s *source) []string {
	if name, ok := s.imports()["runtime"]; ok && name != "goruntime" {
		return []string{s.at(s.file.Package, `import the standard library's runtime as goruntime "runtime"`)}
	}
	return nil
}

// A dot import would hide calls from the rules.
func checkDot(s *source) []string {
	for imp, name := range s.imports() {
		if name == "." {
			return []string{s.at(s.file.Package, "dot import of %s", imp)}
		}
	}
	return nil
}

func sortedImports(s *source) []string { return slices.Sorted(maps.Keys(s.imports())) }

// The diagram has an order: no package may, through others, import itself.
func TestDiagramHasNoCycle(t *testing.T) {
	if cycle := findCycle(diagram); cycle != nil {
		t.Errorf("%s", strings.Join(cycle, " → "))
	}
	for pkg, allowed := range diagram {
		for _, to := range allowed {
			if key, ok := lookup(diagram, strings.TrimSuffix(to, "/...")); !ok && !strings.HasSuffix(to, "/...") {
				t.Errorf("%s may import %s, which is not in the diagram (%q)", pkg, to, key)
			}
		}
	}
	planted := map[string][]string{"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {}}
	if cycle := findCycle(planted); len(cycle) != 4 {
		t.Errorf("findCycle misses a planted cycle: %v", cycle)
	}
}

func findCycle(graph map[string][]string) []string {
	const entered, left = 1, 2
	state := make(map[string]int)
	var visit func(pkg string, trail []string) []string
	visit = func(pkg string, trail []string) []string {
		trail = append(trail, pkg)
		if state[pkg] == entered {
			return trail
		}
		if state[pkg] == left {
			return nil
		}
		state[pkg] = entered
		for _, to := range graph[pkg] {
			if strings.HasSuffix(to, "/...") {
				continue // a subtree is ordered by its own rows, and by the compiler
			}
			if cycle := visit(to, trail); cycle != nil {
				return cycle
			}
		}
		state[pkg] = left
		return nil
	}
	for _, pkg := range slices.Sorted(maps.Keys(graph)) {
		if cycle := visit(pkg, nil); cycle != nil {
			return cycle
		}
	}
	return nil
}

var importViolations = []violation{
	{"diagram", "models over layers and loader", map[string]string{
		"models/model.go": `package models
			import ("fmt"; "github.com/optimem/optimem/layers"; "github.com/optimem/optimem/loader"
				"github.com/optimem/optimem/internal/ascii")`,
		"cuda/kernels/gen_ptx.go": `package kernels; import "github.com/optimem/optimem/tensor"`,
	}, nil},
	{"diagram", "plan asks a device", map[string]string{
		"plan/plan.go": `package plan; import "github.com/optimem/optimem/device"`,
	}, []string{"plan/plan.go:1: plan may not import device"}},
	{"diagram", "behind a build tag", map[string]string{
		"tensor/x_arm64.go": "//go:build arm64 && never\n\npackage tensor\nimport _ \"github.com/optimem/optimem/loader\"",
	}, []string{"tensor may not import loader"}},
	{"diagram", "a pickle machine outside the loader", map[string]string{
		"models/x.go": `package models; import "github.com/optimem/optimem/loader/internal/pickle"`,
	}, []string{"models may not import loader/internal/pickle"}},
	{"diagram", "an unknown package", map[string]string{
		"shiny/x.go": `package shiny`,
	}, []string{"package shiny is not in the diagram"}},
	{"diagram", "tests import more, but no command", map[string]string{
		"tensor/a_test.go": `package tensor; import "github.com/optimem/optimem/loader"`,
		"tensor/b_test.go": `package tensor; import "github.com/optimem/optimem/cmd/optimem"`,
	}, []string{"tensor imports cmd/optimem"}},
	{"diagram", "a command's own room", map[string]string{
		"cmd/optimem/a.go": `package main; import "github.com/optimem/optimem/cmd/optimem/internal/newfile"`,
	}, nil},
	{"diagram", "another's room", map[string]string{
		"benchmarks/speed/a.go": `package main; import "github.com/optimem/optimem/cmd/optimem/internal/newfile"`,
	}, []string{"nobody imports a command"}},
	{"diagram", "an example imports a command", map[string]string{
		"examples/service/main.go": `package main; import "github.com/optimem/optimem/cmd/optimem"`,
	}, []string{"nobody imports a command"}},

	{"dependencies", "where they belong", map[string]string{
		"loader/internal/pickle/machine.go": `package pickle; import ("github.com/nlpodyssey/gopickle/pickle"; "os")`,
		"cmd/optimem/main.go":               `package main; import ("github.com/spf13/cobra"; "golang.org/x/term")`,
		"pager/pager.go":                    `package pager; import "golang.org/x/sync/errgroup"`,
		"plan/plan_test.go":                 `package plan; import "pgregory.net/rapid"`,
	}, nil},
	{"dependencies", "a second pickle machine", map[string]string{
		"loader/torchzip.go": `package loader; import "github.com/nlpodyssey/gopickle/pickle"`,
	}, []string{"loader may not import github.com/nlpodyssey/gopickle/pickle"}},
	{"dependencies", "gopickle's pytorch package", map[string]string{
		"loader/internal/pickle/x.go": `package pickle; import "github.com/nlpodyssey/gopickle/pytorch"`,
	}, []string{"may not import github.com/nlpodyssey/gopickle/pytorch"}},
	{"dependencies", "a progress bar in a library", map[string]string{
		"pager/x.go":  `package pager; import "github.com/schollz/progressbar/v3"`,
		"loader/x.go": `package loader; import "github.com/spf13/cobra"`,
		"plan/x.go":   `package plan; import "golang.org/x/term"`,
	}, []string{"loader may not import github.com/spf13/cobra", "progressbar", "golang.org/x/term"}},
	{"dependencies", "a module nobody decided on", map[string]string{
		"tensor/x.go":      `package tensor; import "example.com/shiny/v2/thing"`,
		"tensor/x_test.go": `package tensor; import "example.com/shiny/v2/thing"`,
		"tensor/y.go":      `package tensor; import "github.com/google/go-cmp/cmp"`,
	}, []string{"example.com/shiny/v2/thing is not a known", "tensor/x_test.go", "go-cmp/cmp is not a known"}},

	{"standard library", "where they belong", map[string]string{
		"internal/hostmem/mem.go":  `package hostmem; import "unsafe"`,
		"examples/service/main.go": `package main; import "net/http"`,
		"loader/file.go":           `package loader; import "unsafe"`,
		"loader/meter.go":          `package loader; import "unsafe"; const size = unsafe.Sizeof(0)`,
		"loader/x_test.go":         `package loader; import ("os/exec"; "unsafe")`,
	}, nil},
	{"standard library", "where they do not", map[string]string{
		"loader/a.go": `package loader; import "unsafe"; var p = unsafe.Pointer(nil)`,
		"loader/b.go": `package loader; import "os/exec"`,
		"loader/c.go": `package loader; import "C"`,
		"loader/d.go": `package loader; import "net/http"`,
		"loader/e.go": `package loader; import "log"`,
		"loader/f.go": `package loader; import "plugin"`,
		"loader/g.go": `package loader; import "testing"`,
	}, []string{"unsafe", "os/exec", "import C", "net/http", "log", "plugin", "testing"}},
	{"standard library", "not even in a test", map[string]string{
		"loader/c_test.go": `package loader; import "C"`,
	}, []string{"may not import C"}},

	{"goruntime", "named", map[string]string{
		"pager/a.go": `package pager; import goruntime "runtime"`,
		"pager/b.go": `package pager; import "runtime/debug"`,
	}, nil},
	{"goruntime", "bare", map[string]string{
		"pager/a.go":      `package pager; import "runtime"`,
		"pager/b_test.go": `package pager; import rt "runtime"`,
	}, []string{"pager/a.go:1", "pager/b_test.go:1"}},

	{"no dot imports", "plain", map[string]string{"pager/a.go": `package pager; import _ "os"`}, nil},
	{"no dot imports", "dot", map[string]string{"pager/a.go": `package pager; import . "os"`}, []string{"dot import of os"}},
}
