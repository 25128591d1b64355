//go:build !files

package main

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/optimem/optimem/cmd/optimem/internal/command"
	"github.com/optimem/optimem/cmd/optimem/internal/courtesy"
	"github.com/optimem/optimem/cmd/optimem/internal/running"
	"github.com/optimem/optimem/cuda/sim"
	"github.com/optimem/optimem/internal/fixtures"
)

var rewrite = flag.Bool("rewrite", false, "write what is printed into the scripts as what is expected")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"optimem": main})
}

// The scripts are the specification of the command line, one promise each. $FIXTURES is the folder of files that
// PyTorch wrote, $DIGITS that of the trained example, $PROGRAMS that of small programs, $MODELS that of models and
// their code, $PICTURES that of pictures, $CHAT that of a model that answers, $SIMULATED the simulated CUDA driver,
// which is there under the condition [sim]. There is no other.
func TestScripts(t *testing.T) {
	files, err := filepath.Abs(filepath.FromSlash("../../loader/testdata"))
	if err != nil {
		t.Fatal(err)
	}
	driver := ""
	if withCUDA {
		driver = sim.Find(t)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		UpdateScripts:       *rewrite,
		Setup: func(e *testscript.Env) error {
			e.Setenv("FIXTURES", filepath.Clean(fixturesFolder()))
			e.Setenv("HOSTILE", fixtures.Folder(filepath.Join(files, "hostile/files.tar.bz2")))
			e.Setenv("DIGITS", filepath.Join(files, "../../examples/digits"))
			e.Setenv("PICTURES", filepath.Join(files, "../../internal/preprocess/testdata"))
			e.Setenv("CHAT", filepath.Join(files, "../../generate/testdata/chat"))
			e.Setenv("MODELS", filepath.Join(files, "../../models/testdata"))
			e.Setenv("PROGRAMS", filepath.Join(files, "../../runtime/testdata"))
			e.Setenv("SIMULATED", driver)
			e.Setenv("GORACE", os.Getenv("GORACE"))
			e.Setenv(running.LibraryVariable, filepath.Join(e.WorkDir, "there-is-no-driver"))
			return nil
		},
		Condition: func(name string) (bool, error) {
			if name != "sim" {
				return false, fmt.Errorf("no condition %q", name)
			}
			return driver != "", nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":       exits,
			"interrupted": interrupted,
			"terminated":  terminated,
			"killable":    killable,
			"polite":      polite,
			"keys":        keys,
			"json":        jsonValue,
			"jsonenv":     jsonEnv,
			"atmost":      atMost,
			"empty":       empty,
			"plain":       plain,
			"truncated":   truncated,
			"flipped":     flipped,
			"rewritten":   rewritten,
		},
	})
}

// exits CODE PROGRAM ARGS... demands an exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARGS...")
	}
	code := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		code = exit.ExitCode()
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

// interrupted GLOB PROGRAM ARGS... starts a program, interrupts it once a file matches GLOB, and demands that it exits
// with 130. What it wrote to standard error goes to the file stderr.txt.
func interrupted(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: interrupted GLOB PROGRAM ARGS...")
	}
	signalled(ts, os.Interrupt, args)
}

// terminated does the same with the signal by which systems end services.
func terminated(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: terminated GLOB PROGRAM ARGS...")
	}
	signalled(ts, syscall.SIGTERM, args)
}

func signalled(ts *testscript.TestScript, signal os.Signal, args []string) {
	stderr, err := os.Create(ts.MkAbs("stderr.txt"))
	ts.Check(err)
	defer stderr.Close()
	cmd := exec.Command(args[1], args[2:]...)
	cmd.Dir = ts.MkAbs(".")
	cmd.Stderr = stderr
	ts.Check(cmd.Start())
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if found, _ := filepath.Glob(ts.MkAbs(args[0])); len(found) > 0 {
			break
		}
		if time.Now().After(deadline) {
			_ = cmd.Process.Kill()
			ts.Fatalf("nothing matches %s", args[0])
		}
	}
	ts.Check(cmd.Process.Signal(signal))
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 130 {
		ts.Fatalf("ended with %v, want exit code 130", err)
	}
}

// polite PROGRAM ARGS... starts a program that runs until it is interrupted, asks it to give its memory back and then to go on, and
// waits each time for it to say so.
func polite(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: polite PROGRAM ARGS...")
	}
	name := ts.MkAbs("stderr.txt")
	stderr, err := os.Create(name)
	ts.Check(err)
	defer stderr.Close()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Stderr = ts.MkAbs("."), stderr
	ts.Check(cmd.Start())
	for _, step := range []struct {
		says   string
		signal os.Signal
	}{
		{"opened and understood", courtesy.GiveBackSignals[0]}, {"memory was given back", courtesy.GoOnSignals[0]}, {"goes on", os.Interrupt},
	} {
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			text, err := os.ReadFile(name)
			ts.Check(err)
			if strings.Contains(string(text), step.says) {
				break
			}
			if time.Now().After(deadline) {
				_ = cmd.Process.Kill()
				ts.Fatalf("it does not say %q but:\n%s", step.says, text)
			}
		}
		ts.Check(cmd.Process.Signal(step.signal))
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 130 {
		ts.Fatalf("ended with %v, want exit code 130", err)
	}
}

// killable PROGRAM ARGS... starts a program of whose answer nobody reads more than the first byte, so that it hangs, and demands
// that interrupts end it: the first one only asks it to stop, which it does not get to, the next one kills it.
func killable(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: killable PROGRAM ARGS...")
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = ts.MkAbs(".")
	stdout, err := cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	_, err = io.ReadFull(stdout, make([]byte, 1))
	ts.Check(err)
	ended := make(chan error, 1)
	go func() {
		_, err := cmd.Process.Wait()
		ended <- err
	}()
	for range 1000 {
		_ = cmd.Process.Signal(os.Interrupt) // it may have ended
		select {
		case err := <-ended:
			ts.Check(err)
			ts.Check(stdout.Close())
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
	_ = cmd.Process.Kill()
	<-ended
	ts.Fatalf("a thousand interrupts do not end it")
}

// keys FILE KEY... demands that the JSON object in FILE has exactly these keys, in order.
func keys(ts *testscript.TestScript, neg bool, args []string) {
	d := json.NewDecoder(strings.NewReader(ts.ReadFile(args[0])))
	var got []string
	depth := 0
	for {
		token, err := d.Token()
		if err != nil {
			break
		}
		switch delim, _ := token.(json.Delim); delim {
		case '{', '[':
			depth++
			continue
		case '}', ']':
			depth--
			continue
		}
		if depth == 1 {
			got = append(got, token.(string))
			var value json.RawMessage
			ts.Check(d.Decode(&value))
		}
	}
	if neg || strings.Join(got, " ") != strings.Join(args[1:], " ") {
		ts.Fatalf("the keys are %v", got)
	}
}

// json FILE PATH VALUE demands that what lies at PATH (keys and indices with dots between) in the JSON in FILE is
// VALUE, which is JSON. "count" at the end of the path is the length.
func jsonValue(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: json FILE PATH VALUE")
	}
	if got := jsonAt(ts, args[0], args[1]); (got == args[2]) == neg {
		ts.Fatalf("%s is %s", args[1], got)
	}
}

// jsonenv VARIABLE FILE PATH [ADD] sets an environment variable to what lies at PATH in the JSON in FILE, plus a
// number.
func jsonEnv(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 || len(args) > 4 {
		ts.Fatalf("usage: jsonenv VARIABLE FILE PATH [ADD]")
	}
	value := jsonAt(ts, args[1], args[2])
	if len(args) == 4 {
		n, err := strconv.ParseInt(value, 10, 64)
		ts.Check(err)
		add, err := strconv.ParseInt(args[3], 10, 64)
		ts.Check(err)
		value = strconv.FormatInt(n+add, 10)
	}
	ts.Setenv(args[0], value)
}

// atmost FILE PATH NUMBER demands that the number at PATH in the JSON in FILE is no larger.
func atMost(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: atmost FILE PATH NUMBER")
	}
	got, err := strconv.ParseFloat(jsonAt(ts, args[0], args[1]), 64)
	ts.Check(err)
	most, err := strconv.ParseFloat(args[2], 64)
	ts.Check(err)
	if (got <= most) == neg {
		ts.Fatalf("%s is %v", args[1], got)
	}
}

// jsonAt returns what lies at a path in the JSON in a file.
func jsonAt(ts *testscript.TestScript, file, path string) string {
	var v any
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(file)), &v))
	for part := range strings.SplitSeq(path, ".") {
		switch x := v.(type) {
		case map[string]any:
			next, ok := x[part]
			if !ok {
				ts.Fatalf("no key %q", part)
			}
			v = next
		case []any:
			if part == "count" {
				v = len(x)
				continue
			}
			i, err := strconv.Atoi(part)
			if err != nil || i >= len(x) {
				ts.Fatalf("no element %q of %d", part, len(x))
			}
			v = x[i]
		default:
			ts.Fatalf("nothing below %v", v)
		}
	}
	got, err := json.Marshal(v)
	ts.Check(err)
	return string(got)
}

// empty DIR demands that a folder holds nothing.
func empty(ts *testscript.TestScript, neg bool, args []string) {
	entries, err := os.ReadDir(ts.MkAbs(args[0]))
	ts.Check(err)
	if (len(entries) == 0) == neg {
		ts.Fatalf("%s holds %v", args[0], entries)
	}
}

// plain FILE demands that a text has no character that a terminal acts on, line ends apart.
func plain(ts *testscript.TestScript, neg bool, args []string) {
	i := strings.IndexFunc(ts.ReadFile(args[0]), func(r rune) bool {
		return r < ' ' && r != '\n' || r >= 0x7f && r < 0xa0 || r >= 0x202a && r <= 0x202e || r == '\uFFFD'
	})
	if (i < 0) == neg {
		ts.Fatalf("%s has a control character at byte %d", args[0], i)
	}
}

// truncated FROM BYTES TO copies the first bytes of a file.
func truncated(ts *testscript.TestScript, neg bool, args []string) {
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	data := ts.ReadFile(args[0])
	if neg || n >= len(data) {
		ts.Fatalf("%s has %d bytes", args[0], len(data))
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[2]), []byte(data[:n]), 0o666))
}

// flipped FILE OFFSET COPY writes a copy of a file in which a bit of the byte at an offset is another.
func flipped(ts *testscript.TestScript, neg bool, args []string) {
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	data := []byte(ts.ReadFile(args[0]))
	if neg || n >= len(data) {
		ts.Fatalf("%s has %d bytes", args[0], len(data))
	}
	data[n] ^= 4
	ts.Check(os.WriteFile(ts.MkAbs(args[2]), data, 0o666))
}

// rewritten FILE OLD NEW COPY writes a copy of an archive in which each text OLD, in names of records and in code, is NEW.
func rewritten(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 4 {
		ts.Fatalf("usage: rewritten FILE OLD NEW COPY")
	}
	from, err := zip.OpenReader(ts.MkAbs(args[0]))
	ts.Check(err)
	defer from.Close()
	replacer := strings.NewReplacer(args[1], strings.ReplaceAll(args[2], `\n`, "\n"))
	var archive bytes.Buffer
	to := zip.NewWriter(&archive)
	replaced := false
	for _, f := range from.File {
		r, err := f.Open()
		ts.Check(err)
		data, err := io.ReadAll(r)
		ts.Check(err)
		text, name := string(data), replacer.Replace(f.Name)
		if strings.HasSuffix(f.Name, ".py") {
			text = replacer.Replace(text)
		}
		replaced = replaced || text != string(data) || name != f.Name
		w, err := to.CreateRaw(&zip.FileHeader{
			Name: name, Method: zip.Store, CRC32: crc32.ChecksumIEEE([]byte(text)),
			CompressedSize64: uint64(len(text)), UncompressedSize64: uint64(len(text)),
		})
		ts.Check(err)
		_, err = io.WriteString(w, text)
		ts.Check(err)
	}
	ts.Check(to.Close())
	if !replaced {
		ts.Fatalf("%s has no %q", args[0], args[1])
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[3]), archive.Bytes(), 0o666))
}

// TestInspectFixtures compares what inspect says of every file that PyTorch wrote with what PyTorch said.
func TestInspectFixtures(t *testing.T) {
	folder := fixturesFolder()
	text, err := os.ReadFile(folder + "expected_scan.json")
	if err != nil {
		t.Fatal(err)
	}
	var verdicts map[string]struct{ Verdict, Class string }
	if err := json.Unmarshal(text, &verdicts); err != nil {
		t.Fatal(err)
	}
	for name, want := range verdicts {
		codes := []int{command.ExitDone}
		switch {
		case want.Class == "unsupported":
			codes = []int{command.ExitUnsupported}
		case want.Verdict == "refused":
			codes = []int{command.ExitUnsupported, command.ExitUnsafe}
		case want.Verdict == "unsafe":
			codes = []int{command.ExitUnsafe}
		}
		t.Run(name, func(t *testing.T) { inspectFixture(t, folder+name, codes) })
	}
}

func inspectFixture(t *testing.T, path string, codes []int) {
	type tensorView struct {
		Name       string  `json:"name"`
		DType      string  `json:"dtype"`
		Shape      []int   `json:"shape"`
		Stride     []int   `json:"stride"`
		Offset     int     `json:"offset"`
		SharesWith *string `json:"shares_with"`
	}
	var want, got struct {
		Format  string       `json:"format"`
		Tensors []tensorView `json:"tensors"`
	}
	var stdout, stderr strings.Builder
	if code := doMain([]string{"inspect", "--json", path}, &stdout, &stderr); !slices.Contains(codes, code) {
		t.Fatalf("exit code %d, want one of %v: %s", code, codes, stderr.String())
	}
	if codes[0] != command.ExitDone {
		if stdout.Len() > 0 {
			t.Errorf("refused, and answered: %s", stdout.String())
		}
		return
	}
	text, err := os.ReadFile(path + ".golden.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(stdout.String()), &got); err != nil {
		t.Fatal(err)
	}
	if got.Format != want.Format {
		t.Errorf("format %q, want %q", got.Format, want.Format)
	}
	describe := func(list []tensorView) string {
		var b strings.Builder
		for _, v := range list {
			shares := ""
			if v.SharesWith != nil {
				shares = *v.SharesWith
			}
			fmt.Fprintf(&b, "%s %s %v %v %d %s\n", v.Name, v.DType, v.Shape, v.Stride, v.Offset, shares)
		}
		return b.String()
	}
	got.Tensors = slices.DeleteFunc(got.Tensors, func(v tensorView) bool {
		return strings.HasPrefix(v.Name, "CONSTANTS.") // PyTorch lists them apart
	})
	if g, w := describe(got.Tensors), describe(want.Tensors); g != w {
		t.Errorf("got\n%swant\n%s", g, w)
	}
}
