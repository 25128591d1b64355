package grammar

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"testing"
)

var schemaFile = flag.String("schemas", "", "a further file that testdata/schemas.py wrote")

// TestSchemasTakeWhatJsonschemaTakes: the recorded values are written so that a grammar must take the valid ones and no other.
func TestSchemasTakeWhatJsonschemaTakes(t *testing.T) {
	files := []string{"testdata/schemas.jsonl.gz"}
	if *schemaFile != "" {
		files = append(files, *schemaFile)
	}
	for _, path := range files {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		z, err := gzip.NewReader(f)
		if err != nil {
			t.Fatal(err)
		}
		valid, invalid, nothing := 0, 0, 0
		s := bufio.NewScanner(z)
		s.Buffer(nil, 4<<20)
		for s.Scan() {
			var line struct {
				Schema json.RawMessage
				Values [][2]any
			}
			if err := json.Unmarshal(s.Bytes(), &line); err != nil {
				t.Fatal(err)
			}
			g, err := ParseSchema(line.Schema, SchemaOptions{})
			if err != nil && !errors.Is(err, ErrNothing) {
				t.Errorf("%s: %v", line.Schema, err)
				continue
			}
			for _, v := range line.Values {
				text, want := v[0].(string), v[1].(bool)
				if err != nil {
					nothing++
				}
				if got := err == nil && accepts(t, g, text); got != want {
					t.Errorf("%s: %s: %v, jsonschema says %v", line.Schema, text, got, want)
				}
				if want {
					valid++
				} else {
					invalid++
				}
			}
		}
		if err := s.Err(); err != nil {
			t.Fatal(err)
		}
		if valid < 300 || invalid < 300 {
			t.Errorf("%s: %d valid and %d invalid values are too few", path, valid, invalid)
		}
		t.Logf("%s: %d valid values taken, %d invalid ones not, %d by schemas that nothing fits", path, valid, invalid, nothing)
	}
}
