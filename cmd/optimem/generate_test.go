//go:build !files

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/cmd/optimem/internal/command"
	"github.com/optimem/optimem/cmd/optimem/internal/running"
	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/internal/hostmem"
)

// chatModel is a tiny model that answers a few questions.
const chatModel = "../../generate/testdata/chat"

// TestGenerate: an answer is text on standard output, what it cost is on standard error, and --json has both.
func TestGenerate(t *testing.T) {
	out, facts := done(t, "generate", chatModel, "What is the capital of Peru?")
	if out != "The capital of Peru is Lima.\n" || !strings.Contains(facts, "optimem: done: ") {
		t.Errorf("%q, %q", out, facts)
	}
	out, _ = done(t, "generate", chatModel, "What is the capital of Peru?", "--json", "--logprobs", "2", "--mode", "page", "--memory", "2MiB")
	var answer struct {
		Text     string
		Tokens   int
		TokenIDs []int   `json:"token_ids"`
		Finish   string  `json:"finish_reason"`
		Prompt   int     `json:"prompt_tokens"`
		KV       int64   `json:"kv_bytes"`
		Peak     int64   `json:"peak_device_bytes"`
		Moved    float64 `json:"bytes_moved_per_token"`
		Logprobs []struct {
			ID  int
			Top []struct{ ID int }
		}
	}
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		t.Fatal(err)
	}
	if answer.Text != "The capital of Peru is Lima." || answer.Tokens != len(answer.TokenIDs) || answer.Finish != "stop" ||
		answer.Prompt == 0 || answer.KV == 0 || answer.Peak > 2<<20 || answer.Moved == 0 || len(answer.Logprobs) != answer.Tokens {
		t.Errorf("%+v", answer)
	}
	for i, p := range answer.Logprobs {
		if len(p.Top) != 2 || p.Top[0].ID != answer.TokenIDs[i] || p.ID != answer.TokenIDs[i] {
			t.Errorf("place %d: %+v", i, p)
		}
	}
}

// TestGenerateFlags: flags bound what is written, a seed gives the same text in every mode, and --raw makes no conversation.
func TestGenerateFlags(t *testing.T) {
	question := []string{"generate", chatModel, "Count to ten.", "--quiet"}
	if out, _ := done(t, append(question, "--stop", ", three")...); out != "One, two\n" {
		t.Errorf("got %q", out)
	}
	out, facts := done(t, append(question[:3:3], "--max-tokens", "3")...)
	if len(out) > 20 || !strings.Contains(facts, "--max-tokens") {
		t.Errorf("got %q, %q", out, facts)
	}
	draw := append(question, "--temperature", "3", "--seed", "5", "--max-tokens", "20")
	want, _ := done(t, draw...)
	for _, mode := range []string{"page", "resident", "chunk"} {
		if got, _ := done(t, append(draw, "--mode", mode, "--threads", "1")...); got != want {
			t.Errorf("--mode %s: %q, want %q", mode, got, want)
		}
	}
	if other, _ := done(t, append(draw, "--seed", "6")...); other == want {
		t.Errorf("another seed gives the same: %q", other)
	}
	prompt := filepath.Join(t.TempDir(), "prompt.txt")
	if err := os.WriteFile(prompt, []byte("<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, _ := done(t, "generate", chatModel, "--raw", "--prompt", prompt, "--quiet", "--max-tokens", "30"); out == "" {
		t.Error("nothing was written")
	}
}

// TestGenerateErrors: each mistake has the exit code of its kind, and nothing goes to standard output.
func TestGenerateErrors(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		text string
	}{
		{nil, command.ExitUsage, "no model given"},
		{[]string{"a", "b", "c"}, command.ExitUsage, "in quotes"},
		{[]string{chatModel, "x", "--prompt", "f"}, command.ExitUsage, "both given"},
		{[]string{chatModel, "x", "--top-p", "1.5"}, command.ExitUsage, "--top-p"},
		{[]string{chatModel, "x", "--temperature", "-1"}, command.ExitUsage, "--temperature"},
		{[]string{chatModel, "x", "--max-tokens", "0"}, command.ExitUsage, "--max-tokens"},
		{[]string{chatModel, "x", "--kv", "int4"}, command.ExitUsage, running.KVNames},
		{[]string{chatModel, "x", "--context", "100000"}, command.ExitUsage, "256 tokens"},
		{[]string{chatModel, strings.Repeat("word ", 300)}, command.ExitUsage, "Prompt"},
		{[]string{chatModel, "x", "-o", "f.jsonl"}, command.ExitUsage, "--batch"},
		{[]string{chatModel, "x", "--logprobs", "2"}, command.ExitUsage, "--json"},
		{[]string{chatModel, "x", "--stop", ""}, command.ExitUsage, "--stop"},
		{[]string{chatModel, "x", "--memory", "10KiB"}, running.ExitDoesNotFit, "--memory"},
		{[]string{digitsFolder + "digits.pt2", "x"}, command.ExitUsage, "folder"},
		{[]string{digitsFolder, "x"}, command.ExitUnsupported, ""},
		{[]string{filepath.Join(chatModel, "missing"), "x"}, command.ExitFailed, ""},
	} {
		out, text, code := execute(t, append([]string{"generate"}, c.args...)...)
		if code != c.code || out != "" || !strings.Contains(text, c.text) {
			t.Errorf("%q: exit code %d, want %d: %q %q", c.args, code, c.code, out, text)
		}
	}
}

// TestGenerateBatch: prompts of a file are answered in their order, each as alone, and a bad line is named before anything runs.
func TestGenerateBatch(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	prompts := write("in.jsonl", `{"id": 7, "prompt": "What is the capital of Italy?"}

{"id": "b", "messages": [{"role": "user", "content": "What is the capital of Japan?"}]}
{"prompt": "Count to ten.", "max_tokens": 3}
`)
	answers := filepath.Join(dir, "out.jsonl")
	done(t, "generate", chatModel, "--batch", prompts, "-o", answers)
	text, err := os.ReadFile(answers)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(string(text)) {
		var a struct {
			ID     json.RawMessage
			Text   string
			Tokens int
			Finish generate.Finish `json:"finish_reason"`
		}
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			t.Fatal(err)
		}
		if a.Tokens == 3 {
			a.Text = "…"
		}
		got = append(got, string(a.ID)+" "+a.Text+" "+string(a.Finish))
	}
	want := []string{`7 The capital of Italy is Rome. stop`, `"b" The capital of Japan is Tokyo. stop`, `null … length`}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, bad := range []string{`{"id": 1}`, `{"prompt": "a", "messages": [{"role": "user", "content": "b"}]}`, `nothing`,
		`{"prompt": "a", "max_tokens": -1}`} {
		out := filepath.Join(dir, "none.jsonl")
		_, text, code := execute(t, "generate", chatModel, "--batch", write("bad.jsonl", "{\"prompt\": \"x\"}\n"+bad+"\n"), "-o", out)
		if code != command.ExitUsage || !strings.Contains(text, "bad.jsonl:2") {
			t.Errorf("%s: exit code %d: %s", bad, code, text)
		}
		if _, err := os.Stat(out); err == nil {
			t.Errorf("%s: left a file", bad)
		}
	}
}

// TestChat: a conversation goes on, is saved, is forgotten, and ends with the input.
func TestChat(t *testing.T) {
	saved := filepath.Join(t.TempDir(), "talk.json")
	talk := func(input string, args ...string) (string, string, int) {
		var out, text strings.Builder
		c := command.NewLine(&out, &text)
		chat := chatting{writing: writing{Run: running.Run{Line: c}}, stdin: strings.NewReader(input)}
		cmd := chat.command()
		cmd.SetArgs(append([]string{chatModel}, args...))
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetContext(t.Context())
		code := c.Report(t.Context(), cmd.Execute())
		for p := hostmem.Weights; p <= hostmem.Staging; p++ {
			if n := hostmem.InUse(p); n != 0 {
				t.Errorf("%d bytes of %v are still in use", n, p)
			}
		}
		return out.String(), text.String(), code
	}
	out, text, code := talk("Who are you?\n\n/save " + saved + "\n/nonsense\n/reset\nHello\n")
	if code != command.ExitDone || out != "I am a small model. I know a few capitals. 🙂\nHello! How can I help you today?\n" ||
		!strings.Contains(text, "/nonsense") || !strings.Contains(text, "2 messages") {
		t.Errorf("exit code %d: %q %q", code, out, text)
	}
	out, text, code = talk("Hello\nWhat is your name?\nAnd more.\n", "--context", "64")
	if code != command.ExitDone || strings.Count(out, "\n") != 2 || !strings.Contains(text, "cut off by --max-tokens or the context") ||
		!strings.Contains(text, "/reset begins anew") {
		t.Errorf("a conversation that is longer than its context: exit code %d: %q %q", code, out, text)
	}
	var said []generate.Message
	data, err := os.ReadFile(saved)
	if err == nil {
		err = json.Unmarshal(data, &said)
	}
	if err != nil || len(said) != 2 || said[1].Role != "assistant" || said[0].Content != "Who are you?" {
		t.Errorf("saved %+v: %v", said, err)
	}
	if out, text, code = talk("/exit\nHello\n", "--history", saved); code != command.ExitDone || out != "" || !strings.Contains(text, "need not be read") {
		t.Errorf("exit code %d: %q %q", code, out, text)
	}
	// Keys and values go on where the messages do: the same answer, of which less is read; without them, or with another's, it is read
	// anew; broken ones are refused.
	next := "What is the capital of Peru?\n"
	anew, _, _ := talk(next, "--history", saved, "--kv", "fp32", "--quiet")
	kv := saved + savedKV
	file, err := os.ReadFile(kv)
	if err != nil {
		t.Fatal(err)
	}
	out, text, code = talk(next, "--history", saved, "--verbose")
	if code != command.ExitDone || out == "" || !strings.Contains(text, "48 tokens of the conversation need not be read") {
		t.Errorf("exit code %d: %q %q", code, out, text)
	}
	if other, text, code := talk(next, "--history", saved, "--kv", "fp32"); code != command.ExitDone || other != anew || !strings.Contains(text, "is read anew") {
		t.Errorf("exit code %d: %q, want %q: %q", code, other, anew, text)
	}
	if err := os.WriteFile(kv, file[:len(file)-1], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, text, code := talk(next, "--history", saved); code != command.ExitUnsafe || !strings.Contains(text, savedKV) {
		t.Errorf("cut off: exit code %d: %q", code, text)
	}
	if err := os.Remove(kv); err != nil {
		t.Fatal(err)
	}
	if without, text, code := talk(next, "--history", saved); code != command.ExitDone || without != out {
		t.Errorf("exit code %d: %q, want %q: %q", code, without, out, text)
	}
	if _, text, code = talk("Hello\n", "--json"); code != command.ExitUsage {
		t.Errorf("exit code %d: %q", code, text)
	}
	// What does not fit into the context is said, and the conversation goes on.
	long := strings.Repeat("word ", 200)
	if out, text, code = talk(long + "\nHello\n"); code != command.ExitDone || !strings.Contains(text, "/reset") || out != "Hello! How can I help you today?\n" {
		t.Errorf("exit code %d: %q %q", code, out, text)
	}
}

// TestTokenizeChat: messages are rendered by the folder's template, and encoded as it wrote them.
func TestTokenizeChat(t *testing.T) {
	messages := filepath.Join(t.TempDir(), "m.json")
	for _, text := range []string{
		`[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]`,
		`{"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]}`,
	} {
		if err := os.WriteFile(messages, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		want := "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
		if out, _ := done(t, "tokenize", chatModel, "--chat", messages, "--text"); out != want {
			t.Errorf("%q, want %q", out, want)
		}
		var ids struct{ IDs []int }
		out, _ := done(t, "tokenize", chatModel, "--chat", messages, "--json")
		if err := json.Unmarshal([]byte(out), &ids); err != nil || len(ids.IDs) < 10 || ids.IDs[0] != 1 {
			t.Errorf("%q: %v", out, err)
		}
	}
	for _, args := range [][]string{{"--text", "x"}, {"--chat", messages, "x"}, {"--chat", filepath.Join(chatModel, "config.json")}} {
		if out, text, code := execute(t, append([]string{"tokenize", chatModel}, args...)...); code != command.ExitUsage || out != "" {
			t.Errorf("%q: exit code %d: %q %q", args, code, out, text)
		}
	}
}

// TestGenerateBounded: answers are what a schema or a grammar asks for, also those of lines of a file; one that is cut off says so;
// what cannot be followed is refused with its place.
func TestGenerateBounded(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	schema := write("city.json", `{"properties": {"city": {"enum": ["Lima", "Rome"]}}, "required": ["city"]}`)
	counting := write("count.gbnf", `root ::= "One" (", " [a-z]+)+ "."`)
	question := "What is the capital of Peru?"
	var city struct{ City string }
	out, _ := done(t, "generate", chatModel, question, "--schema", schema, "--quiet", "--temperature", "9", "--seed", "3")
	if err := json.Unmarshal([]byte(out), &city); err != nil || city.City != "Lima" && city.City != "Rome" {
		t.Errorf("%q: %v", out, err)
	}
	out, facts := done(t, "generate", chatModel, "Count to ten.", "--grammar", counting, "--max-tokens", "4", "--json")
	if !strings.Contains(out, `"complete": false`) || !strings.Contains(out, `"finish_reason": "length"`) {
		t.Errorf("%s %s", out, facts)
	}
	if _, facts = done(t, "generate", chatModel, "Count to ten.", "--grammar", counting, "--max-tokens", "4"); !strings.Contains(facts, "not yet what") {
		t.Errorf("%s", facts)
	}
	lines := write("in.jsonl", `{"id": 1, "prompt": "Count to ten."}
{"id": 2, "prompt": "What is the capital of Peru?", "schema": {"const": "Oslo"}}
{"id": 3, "prompt": "Hello", "grammar": "root ::= \"abc\""}
`)
	out, _ = done(t, "generate", chatModel, "--batch", lines, "--grammar", counting, "--quiet")
	for _, want := range []string{
		`"text":"One, two, three, four, five, six, seven, eight, nine, ten."`, `"text":"\"Oslo\""`, `"text":"abc"`, `"complete":true`,
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%s: want %s", out, want)
		}
	}
	bad := write("bad.gbnf", "root ::= a\na ::= \"x\n")
	for _, c := range []struct {
		args []string
		code int
		text string
	}{
		{[]string{"x", "--grammar", bad}, command.ExitUsage, "bad.gbnf: line 3: syntax error"},
		{[]string{"x", "--schema", write("bad.json", `{"items": {"uniqueItems": true}}`)}, command.ExitUsage, "bad.json: /items/uniqueItems"},
		{[]string{"x", "--schema", write("empty.json", " ")}, command.ExitUsage, "is empty"},
		{[]string{"x", "--schema", schema, "--grammar", counting}, command.ExitUsage, "both given"},
		{[]string{"x", "--schema", filepath.Join(dir, "missing")}, command.ExitFailed, "missing"},
		{[]string{"--batch", write("in2.jsonl", "{\"prompt\": \"x\"}\n{\"prompt\": \"x\", \"grammar\": \"y\"}\n")}, command.ExitUsage, "in2.jsonl:2: Grammar: line 1"},
	} {
		out, text, code := execute(t, append([]string{"generate", chatModel}, c.args...)...)
		if code != c.code || out != "" || !strings.Contains(text, c.text) {
			t.Errorf("%q: exit code %d: %q %q", c.args, code, out, text)
		}
	}
}

// TestGenerateSeveral: several answers are drawn with a seed each, or are the best of those that were followed; what does not go
// together is refused.
func TestGenerateSeveral(t *testing.T) {
	type answer struct {
		Text  string
		Score *float64
		Seed  *uint64
	}
	of := func(args ...string) []answer {
		t.Helper()
		var list struct{ Answers []answer }
		out, _ := done(t, append([]string{"generate", chatModel, "--json"}, args...)...)
		if err := json.Unmarshal([]byte(out), &list); err != nil {
			t.Fatal(err)
		}
		return list.Answers
	}
	drawn := of("Hello", "-n", "3", "--temperature", "3", "--seed", "7", "--max-tokens", "12")
	if len(drawn) != 3 || drawn[0].Text == drawn[1].Text {
		t.Fatalf("%+v", drawn)
	}
	for i, a := range drawn {
		alone, _ := done(t, "generate", chatModel, "Hello", "--temperature", "3", "--seed", fmt.Sprint(7+i), "--max-tokens", "12", "--quiet")
		if a.Seed == nil || *a.Seed != uint64(7+i) || a.Score != nil || strings.TrimSuffix(alone, "\n") != strings.TrimSuffix(a.Text, "\n") {
			t.Errorf("answer %d is %+v, alone %q", i, a, alone)
		}
	}
	question := "What is the capital of Peru?"
	best := of(question, "--beams", "4", "-n", "2", "--memory", "1MiB", "--mode", "page")
	if len(best) != 2 || best[0].Text != "The capital of Peru is Lima." || best[0].Score == nil || *best[0].Score <= *best[1].Score || best[0].Seed != nil {
		t.Errorf("%+v", best)
	}
	out, _ := done(t, "generate", chatModel, question, "--beams", "4", "-n", "2", "--quiet")
	if want := best[0].Text + "\n---\n" + best[1].Text + "\n"; out != want {
		t.Errorf("%q, want %q", out, want)
	}
	for _, args := range [][]string{
		{"-n", "2"}, {"-n", "0"}, {"--beams", "0"}, {"--beams", "2", "-n", "3"}, {"--beams", "2", "--temperature", "1"}, {"--length-penalty", "2"},
		{"--beams", "2", "--early-stopping", "soon"}, {"--beams", "99"}, {"--beams", "2", "--stop", "x"}, {"-n", "2", "--temperature", "1", "--json", "--logprobs", "1"},
	} {
		out, text, code := execute(t, append([]string{"generate", chatModel, "x"}, args...)...)
		if code != command.ExitUsage || out != "" {
			t.Errorf("%q: exit code %d: %q %q", args, code, out, text)
		}
	}
}

// TestGenerateBranches: several guesses at once change no text, and a number that cannot be is refused.
func TestGenerateBranches(t *testing.T) {
	ask := []string{"generate", chatModel, "one two three one two four one two", "--raw", "--max-tokens", "40", "--quiet"}
	want, _ := done(t, ask...)
	if got, _ := done(t, append(ask, "--branches", "4", "--speculate", "3")...); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for _, n := range []string{"0", "9"} {
		if _, text, code := execute(t, append(ask, "--branches", n)...); code != command.ExitUsage || !strings.Contains(text, "--branches takes") {
			t.Errorf("--branches %s: exit code %d: %q", n, code, text)
		}
	}
}

// TestPeakText: where others hold the memory, as over stages, no peak is said rather than one of nothing, and of several devices the
// peak of each.
func TestPeakText(t *testing.T) {
	if got := peakText(nil) + peakText([]int64{3 << 20}) + peakText([]int64{1 << 20, 2 << 20}); got != ", peak 3.00 MiB, peak 1.00 MiB and 2.00 MiB" {
		t.Error(got)
	}
}
