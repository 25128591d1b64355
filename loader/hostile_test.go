package loader

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/optimem/optimem/internal/fixtures"
)

func hostileFolder() string { return fixtures.Folder("testdata/hostile/files.tar.bz2") }

// A hostileRow says what must be answered to a file; testdata/hostile/README.md explains the fields.
type hostileRow struct {
	Class, Record, Fragment, Why string
	Offset                       int64
}

func hostileRows(t testing.TB) map[string]hostileRow {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(hostileFolder(), "expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	var rows map[string]hostileRow
	if err := json.Unmarshal(text, &rows); err != nil {
		t.Fatal(err)
	}
	return rows
}

// TestHostile opens and scans every hostile file and compares the answers with expected.json.
func TestHostile(t *testing.T) {
	rows := hostileRows(t)
	if len(rows) < 60 {
		t.Errorf("only %d hostile files", len(rows))
	}
	for name, want := range rows {
		t.Run(name, func(t *testing.T) {
			err := refused(t, filepath.Join(hostileFolder(), name))
			if want.Class == "missing" {
				if !errors.Is(err, fs.ErrNotExist) {
					t.Fatalf("got %v; want a file that does not exist", err)
				}
				return
			}
			var placed *Error
			if !errors.As(err, &placed) {
				t.Fatalf("%v is no *Error", err)
			}
			if !errors.Is(err, classByName[want.Class]) || !strings.Contains(err.Error(), want.Fragment) {
				t.Errorf("got %v: %v\nwant %s: …%s…", Class(err), err, want.Class, want.Fragment)
			}
			if strings.ToValidUTF8(placed.Record, "\uFFFD") != want.Record || placed.Offset != want.Offset {
				t.Errorf("got record %q, offset %d; want %q, %d: %v", placed.Record, placed.Offset, want.Record, want.Offset, err)
			}
		})
	}
}

// refused opens and scans a file that must be refused, both with the same answer, and returns it.
func refused(t *testing.T, path string) error {
	t.Helper()
	// Nothing takes seconds; the bound only keeps what hangs from hanging the test.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ckpt, err := OpenWith(ctx, path, Options{})
	if err == nil {
		ckpt.Close()
		t.Fatal("it opens")
	}
	report, scanErr := Scan(ctx, path, Options{})
	if ctx.Err() != nil {
		t.Fatal(ctx.Err())
	}
	if report == nil {
		if Class(err) != nil || scanErr == nil || scanErr.Error() != err.Error() {
			t.Errorf("open says %v; scan says %v", err, scanErr)
		}
		return err
	}
	if !report.Verdict.Refused() || scanErr != nil || report.Verdict == VerdictUnread && Class(err) != ErrLimit && Class(err) != ErrUnsupported {
		t.Errorf("verdict %q, error %v", report.Verdict, scanErr)
	}
	same := func(p *Error) bool {
		// Where exactly the meter runs out depends on how tables of interned strings happen to grow.
		return p.Error() == err.Error() || Class(err) == ErrLimit && Class(p) == ErrLimit
	}
	if !slices.ContainsFunc(report.Problems, same) {
		t.Errorf("open says %v\nwhich is not among what scan says: %v", err, report.Problems)
	}
	for _, p := range report.Problems {
		if Class(p) == nil {
			t.Errorf("a problem without a class: %v", p)
		}
	}
	return err
}

// TestHostileListing holds the folder and expected.json to each other, and to one file for each check.
func TestHostileListing(t *testing.T) {
	rows := hostileRows(t)
	listed := make(map[string]bool)
	checks := make(map[[3]string]string)
	for name, row := range rows {
		top, _, _ := strings.Cut(name, "/")
		listed[top] = true
		if classByName[row.Class] == nil && row.Class != "missing" || row.Fragment == "" || row.Why == "" {
			t.Errorf("%s: an incomplete row %+v", name, row)
		}
		format, _, _ := strings.Cut(name, "_")
		check := [3]string{format, row.Class, row.Fragment}
		if other, dup := checks[check]; dup {
			t.Errorf("%s and %s are of one format and check", name, other)
		}
		checks[check] = name
	}
	entries, err := os.ReadDir(hostileFolder())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		name := e.Name()
		if name == "expected.json" {
			continue
		}
		if !listed[name] {
			t.Errorf("%s is not in expected.json", name)
		}
		delete(listed, name)
	}
	for name := range listed {
		t.Errorf("%s is in expected.json and not in the folder", name)
	}
}

// TestTruncated cuts small files of each format at every byte: what is left never opens.
func TestTruncated(t *testing.T) {
	files := map[string][]byte{
		"safetensors": safetensorsFile(`{"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}}`, 9),
	}
	for _, name := range []string{"legacy_tensor.pt", "zip_tensor.pt", "t16_zip_mlp.pt"} {
		file, err := os.ReadFile(filepath.Join(validFolder(), name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = file
	}
	for name, file := range files {
		open := func(n int) error {
			return newOpener(t.Context(), name, Options{}).openSource(&Checkpoint{}, bytesSource(file[:n]))
		}
		if err := open(len(file)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for n := range file {
			if err := open(n); Class(err) == nil {
				t.Fatalf("%s: the first %d bytes give %v", name, n, err)
			}
		}
	}
}

// TestOdd opens what looks like an attack and is none: refusing it would refuse honest files.
func TestOdd(t *testing.T) {
	tensors := func(body string) string { return pickleStart + ones(1) + "}(" + body + "u." }
	rebuilt := pickleRebuild + pickleView
	for name, test := range map[string]struct {
		pickle string
		want   []string // names of weights
	}{
		"a key twice":              {tensors(pickleString("w") + rebuilt + pickleString("w") + rebuilt), []string{"w"}},
		"a list that holds itself": {pickleStart + ones(1) + "]q\x01(h\x01" + rebuilt + "e.", []string{"1"}},
		"LONG1 of no bytes":        {tensors("\x8a\x00" + rebuilt), []string{"0"}},
		"a tensor many times":      {tensors(pickleString("a") + rebuilt + "q\x01" + pickleString("b") + "h\x01"), []string{"a", "b"}},
		"a name like a path":       {tensors(pickleString("../../etc/passwd") + rebuilt), []string{"../../etc/passwd"}},
		"no tensor at all":         {pickleStart + "N.", nil},
	} {
		t.Run(name, func(t *testing.T) {
			path := writeArchive(t, test.pickle)
			ckpt, err := Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer ckpt.Close()
			var names []string
			for _, w := range ckpt.Weights {
				names = append(names, w.Name)
			}
			if !slices.Equal(names, test.want) {
				t.Errorf("weights %q, want %q", names, test.want)
			}
			report, err := Scan(t.Context(), path, Options{})
			if err != nil || report.Verdict != VerdictData {
				t.Errorf("scan says %v, %v", report, err)
			}
		})
	}
}
