//go:build !files

package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/optimem/optimem/cmd/optimem/internal/command"
	"github.com/optimem/optimem/internal/fixtures"
)

// TestGenerateHead: --draft takes the folder of a head, of which the text is the same; one of another model is refused with the
// reason, and so is one that is run alone, which is told what it is for.
func TestGenerateHead(t *testing.T) {
	write := func(e *fixtures.Eagle, words int) string {
		folder := filepath.Join(t.TempDir(), "head")
		if err := e.Write(folder, words); err != nil {
			t.Fatal(err)
		}
		return folder
	}
	eagle := write(fixtures.SmallEagle(64, 420, nil, fixtures.Every(420, 1)), 420)
	third := write(fixtures.SmallEagle(64, 420, []int{0, 1, 2}, fixtures.Every(420, 3)), 420)
	other := write(fixtures.SmallEagle(32, 420, nil, fixtures.Every(420, 1)), 420)
	ask := []string{"generate", chatModel, "Count to ten."}
	want, _ := done(t, ask...)
	for _, head := range []string{eagle, third} {
		for _, more := range [][]string{{"--speculate", "3"}, {"--speculate", "2", "--branches", "3", "--mode", "page"}, nil} {
			out, _ := done(t, append(append(ask, "--json", "--draft", head), more...)...)
			var got struct {
				Text    string
				Guessed int `json:"guessed_tokens"`
			}
			if err := json.Unmarshal([]byte(out), &got); err != nil {
				t.Fatal(err)
			}
			if got.Text != strings.TrimSuffix(want, "\n") || more != nil && got.Guessed == 0 {
				t.Errorf("%v: %+v, want %q", more, got, want)
			}
		}
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{append(ask, "--draft", other), command.ExitUsage, "its hidden_size is 32, and that of the model is 64"},
		{[]string{"plan", third}, command.ExitUnsupported, "--draft " + third},
		{append(ask, "--draft", third, "--stages", "127.0.0.1:1,127.0.0.1:2"), command.ExitUsage, "for one machine"},
	} {
		_, text, code := execute(t, c.args...)
		if code != c.code || !strings.Contains(text, c.want) {
			t.Errorf("%v: code %d, %s", c.args, code, text)
		}
	}
}
