package serve

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// states lists what is served: name/version state reason.
func states(r *Registry) string {
	var all []string
	for _, m := range r.Models() {
		all = append(all, strings.TrimSpace(fmt.Sprintf("%s/%s %s %s", m.Name, m.Version, m.State, m.Reason)))
	}
	return strings.Join(all, "\n")
}

// TestDirectory: what is in a directory, as which model, of which version, and why something is not.
func TestDirectory(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a second")
	}
	dir := directory(t, map[string]string{
		"one.pt2": digits, "script.pt": "../examples/digits/digits_script.pt", "module/model.pt": "../examples/digits/digits_module.pt",
		"versions/1/model.pt2": digits, "versions/10/model.pt2": digits, "versions/2/model.pt2": digits, "versions/model.json": `{"aliases": ["other"]}`,
		"same.pt2": digits, "same.pth": "../examples/digits/digits.pth", "same.model.json": `{"arch": "resnet18"}`,
		"two/a.pt2": digits, "two/b.pt2": digits, "chat": chat, "notes.txt": "nothing", "empty/readme.txt": "nothing", "broken.pt2": "not a file of torch",
		"settings.pt2": digits, "settings.model.json": `{"arhc": "resnet18"}`, ".hidden.pt2": digits, "späße.pt2": digits,
		"code.pth": "../examples/digits/digits.pth", "code.model.json": `{"code": "one.pt2"}`,
	})
	r := open(t, dir, Options{})
	got := states(r)
	for _, want := range []string{
		"one/1 READY", "script/1 READY", "module/1 READY", "versions/1 UNAVAILABLE not opened yet", "versions/2 UNAVAILABLE not opened yet",
		"versions/10 READY", "same.pt2/1 READY", "chat/1 READY", "code/1 READY",
		"two/1 UNAVAILABLE which of a.pt2, b.pt2 is the model? Call it model.pt2", "settings/1 UNAVAILABLE settings.model.json: json: unknown field",
		"broken/1 UNAVAILABLE ", "same.pth/1 UNAVAILABLE ",
	} {
		if !strings.Contains("\n"+got, "\n"+want) {
			t.Errorf("not %q", want)
		}
	}
	if n := strings.Count(got, "\n") + 1; n != 13 || strings.Contains(got, dir) || t.Failed() {
		t.Errorf("%d lines:\n%s", n, got)
	}
	h := r.Handler()
	pixels := pictures(t, 1)
	for _, path := range []string{"/v2/models/one", "/v2/models/other", "/v2/models/versions", "/v2/models/versions/versions/2", "/v2/models/code"} {
		if status, _, body := ask(h, "POST", path+"/infer", jsonRequest(pixels)); status != 200 {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	if status, _, body := ask(h, "POST", "/v2/models/broken/infer", jsonRequest(pixels)); status != 503 || strings.Contains(body, dir) {
		t.Errorf("%d %s", status, body)
	}
}

// TestLinks: no link leads out of the directory, whether it is a model, a folder, or a file in one.
func TestLinks(t *testing.T) {
	outside := directory(t, map[string]string{"digits.pt2": digits, "chat": chat})
	dir := directory(t, map[string]string{"chat": chat, "mine.pt2": digits})
	for name, to := range map[string]string{
		"file.pt2": filepath.Join(outside, "digits.pt2"), "folder": filepath.Join(outside, "chat"), "up.pt2": "../" + filepath.Base(outside) + "/digits.pt2",
		"inside.pt2": "mine.pt2", "nowhere.pt2": "nothing.pt2",
	} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Skip(err)
		}
	}
	weights := filepath.Join(dir, "chat", "model.safetensors")
	if err := os.Remove(weights); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(outside, "chat", "model.safetensors"), weights); err != nil {
		t.Fatal(err)
	}
	r := open(t, dir, Options{})
	const want = `chat/1 UNAVAILABLE a link leads out of the directory of models, or nowhere
file/1 UNAVAILABLE a link leads out of the directory of models, or nowhere
folder/1 UNAVAILABLE a link leads out of the directory of models, or nowhere
inside/1 READY
mine/1 READY
nowhere/1 UNAVAILABLE a link leads out of the directory of models, or nowhere
up/1 UNAVAILABLE a link leads out of the directory of models, or nowhere`
	if got := states(r); got != want {
		t.Errorf("%s", got)
	}
}

// TestShares: models beside the pool have what model.json says, or their part; what does not fit says what would.
func TestShares(t *testing.T) {
	dir := directory(t, map[string]string{"digits.pt2": digits, "chat": chat, "chat/model.json": `{"memory": "1MiB"}`})
	r := open(t, dir, Options{Memory: 4 << 20})
	if got := r.Pool().Metrics().BudgetBytes; got != 3<<20 {
		t.Errorf("the pool has %d bytes", got)
	}
	if m := r.Models(); m[0].BudgetBytes != 1<<20 || m[0].State != Ready {
		t.Errorf("%+v", m[0])
	}
	small := open(t, dir, Options{Memory: 1<<20 + 20<<10})
	got := states(small)
	if !strings.Contains(got, "digits/1 UNAVAILABLE it does not fit: it needs ") || !strings.Contains(got, "chat/1 READY") {
		t.Error(got)
	}
	if _, err := Open(t.Context(), dir, Options{Memory: 1 << 19}); err == nil || !strings.Contains(err.Error(), "more than the budget") {
		t.Errorf("shares beyond the budget: %v", err)
	}
	divided := open(t, directory(t, map[string]string{"digits.pt2": digits, "chat": chat}), Options{Memory: 8 << 20})
	sum := divided.Pool().Metrics().BudgetBytes + divided.Models()[0].BudgetBytes
	if sum > 8<<20 || sum < 8<<20-8 {
		t.Errorf("the parts are %d bytes of %d", sum, 8<<20)
	}
}

// TestControl: models are opened and closed on the address of administration alone, with no files and no configuration.
func TestControl(t *testing.T) {
	r := open(t, directory(t, map[string]string{"digits.pt2": digits, "seldom/model.pt2": digits, "seldom/model.json": `{"on_demand": true}`}), Options{})
	client, admin := r.Handler(), r.Admin()
	const load, unload = "/v2/repository/models/digits/load", "/v2/repository/models/digits/unload"
	if status, _, _ := ask(client, "POST", unload, "{}"); status != 403 {
		t.Errorf("a client closes a model: %d", status)
	}
	infer := func(want int) {
		t.Helper()
		if status, _, body := ask(client, "POST", "/v2/models/digits/infer", jsonRequest(pictures(t, 1))); status != want {
			t.Errorf("%d %s, not %d", status, body, want)
		}
	}
	infer(200)
	if status, _, body := ask(admin, "POST", unload, `{"parameters":{"unload_dependents":false}}`); status != 200 {
		t.Errorf("%d %s", status, body)
	}
	infer(503)
	if status, _, _ := ask(client, "GET", "/v2/models/digits/ready", ""); status != 503 {
		t.Errorf("ready: %d", status)
	}
	until(t, "its memory is free", func() bool { return len(r.Pool().Metrics().Members) == 0 })
	for body, want := range map[string]int{
		`{"parameters":{"file:1/model.pt2":"AAAA"}}`: 501, `{"parameters":{"config":"{}"}}`: 501, `[]`: 400, `{"parameters":7}`: 400,
	} {
		if status, _, _ := ask(admin, "POST", load, body); status != want {
			t.Errorf("%s: %d", body, status)
		}
	}
	infer(503)
	if status, _, body := ask(admin, "POST", load, ""); status != 200 {
		t.Errorf("%d %s", status, body)
	}
	infer(200)
	for _, name := range []string{"none", "..%2fdigits", "%2e%2e"} {
		if status, _, body := ask(admin, "POST", "/v2/repository/models/"+name+"/load", ""); status != 404 {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
	_, _, index := ask(client, "POST", "/v2/repository/index", `{"ready":true}`)
	if !strings.Contains(index, `"digits"`) || strings.Contains(index, "seldom") {
		t.Error(index)
	}
	if status, _, body := ask(client, "POST", "/v2/models/seldom/infer", jsonRequest(pictures(t, 1))); status != 200 {
		t.Errorf("the first request opens a model: %d %s", status, body)
	}
}

// TestHotSwap: while a model is opened anew again and again, no request is lost and no answer is another's.
func TestHotSwap(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	dir := directory(t, map[string]string{"digits/1/model.pt2": digits, "chat": chat})
	r := open(t, dir, Options{})
	h := r.Handler()
	want := scores(t, pictures(t, 1))
	var done atomic.Bool
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			for !done.Load() {
				status, _, body := ask(h, "POST", "/v2/models/digits/infer", jsonRequest(pictures(t, 1)))
				if status != 200 || !strings.Contains(body, fmt.Sprint(want[0])) {
					t.Errorf("%d %s", status, body)
					return
				}
			}
		})
	}
	wait.Go(func() {
		for !done.Load() {
			status, _, body := ask(h, "POST", "/v1/completions", `{"model":"chat","prompt":"hello","max_tokens":3,"temperature":0}`, "Content-Type", "application/json")
			if status != 200 {
				t.Errorf("%d %s", status, body)
				return
			}
		}
	})
	for i := range 6 {
		if i == 3 { // from here on there is a newer version
			if err := os.CopyFS(filepath.Join(dir, "digits", "2"), os.DirFS(filepath.Join(dir, "digits", "1"))); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.Load(t.Context(), "digits"); err != nil {
			t.Error(err)
		}
		if err := r.Load(t.Context(), "chat"); err != nil {
			t.Error(err)
		}
	}
	// A file that is broken leaves what is there.
	broken := filepath.Join(dir, "broken") // in the place of the file, which is open
	if err := os.WriteFile(broken, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(broken, filepath.Join(dir, "digits", "2", "model.pt2")); err != nil {
		t.Fatal(err)
	}
	if err := r.Load(t.Context(), "digits"); err == nil {
		t.Error("a broken file was opened")
	}
	done.Store(true)
	wait.Wait()
	if status, _, body := ask(h, "POST", "/v2/models/digits/infer", jsonRequest(pictures(t, 1))); status != 200 || !strings.Contains(body, `"model_version":"2"`) {
		t.Errorf("%d %s", status, body)
	}
}

// TestSettings: what model.json says is what is done, and a mistake in it is one.
func TestSettings(t *testing.T) {
	good := `{"kind":"text","arch":"a","code":"b.pt2","aliases":["x","y-1"],"memory":"2MiB","max_join":3,"mode":"page","context":7,"sequences":2,"kv":"bf16","on_demand":true}`
	read := func(text string) (settings, error) {
		dir := directory(t, map[string]string{"model.json": text})
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		return readSettings(root, "model.json")
	}
	s, err := read(good)
	if err != nil || s.Kind != Text || s.Arch != "a" || s.Memory != 2<<20 || s.MaxJoin != 3 || s.Context != 7 || s.Sequences != 2 || !s.OnDemand || len(s.Aliases) != 2 {
		t.Errorf("%+v %v", s, err)
	}
	if s, err := read(`{"memory": 4096}`); err != nil || s.Memory != 4096 {
		t.Errorf("%+v %v", s, err)
	}
	for _, bad := range []string{
		`{"arhc":"a"}`, `{"kind":"pictures"}`, `{"mode":"chunk"}`, `{"kv":"int8"}`, `{"aliases":["a/b"]}`, `{"aliases":[".."]}`, `{"code":"../b.pt2"}`,
		`{"code":"b.py"}`, `{"memory":"much"}`, `{"max_join":-1}`, `{"context":1.5}`, `[`,
	} {
		if _, err := read(bad); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}

// TestEmbeddings: a folder of vectors of tokens makes vectors of texts, over OpenAI's protocol and the other, the same.
func TestEmbeddings(t *testing.T) {
	tokenizer := `{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":null,"pre_tokenizer":{"type":"Whitespace"},` +
		`"post_processor":null,"decoder":null,"model":{"type":"WordLevel","vocab":{"[UNK]":0,"a":1,"b":2},"unk_token":"[UNK]"}}`
	head := `{"embeddings":{"dtype":"F32","shape":[3,2],"data_offsets":[0,24]}}`
	weights := string(append(binary.LittleEndian.AppendUint64(nil, uint64(len(head))), head...)) + string(floatBytes([]float32{0, 0, 3, 0, 0, 4}))
	r := open(t, directory(t, map[string]string{
		"words/tokenizer.json": tokenizer, "words/config.json": `{"model_type":"model2vec","normalize":false}`, "words/model.safetensors": weights,
		"words/model.json": `{"kind":"embeddings"}`,
	}), Options{})
	if got := states(r); got != "words/1 READY" {
		t.Fatal(got)
	}
	h := r.Handler()
	status, _, body := ask(h, "POST", "/v2/models/words/infer", `{"inputs":[{"name":"text","shape":[3],"datatype":"BYTES","data":["a","b","a b"]}]}`)
	if status != 200 || !strings.Contains(body, `"shape":[3,2],"data":[3,0,0,4,1.5,2]`) {
		t.Errorf("%d %s", status, body)
	}
	status, _, body = ask(h, "POST", "/v1/embeddings", `{"model":"words","input":["a b"],"encoding_format":"float"}`, "Content-Type", "application/json")
	if status != 200 || !strings.Contains(body, `[1.5,2]`) {
		t.Errorf("%d %s", status, body)
	}
	if _, _, body := ask(h, "GET", "/v2/models/words", ""); !strings.Contains(body, `"shape":[-1,2]`) {
		t.Error(body)
	}
}

// TestVersionsOfText: versions of a model that writes have one share, so that one of them is open, and no client changes which.
func TestVersionsOfText(t *testing.T) {
	dir := directory(t, map[string]string{"chat/1": chat, "chat/2": chat})
	r := open(t, dir, Options{})
	h := r.Handler()
	body := `{"inputs":[{"name":"text_input","shape":[1],"datatype":"BYTES","data":["hello"]}],"parameters":{"max_tokens":2}}`
	check := func(version string, want int) {
		t.Helper()
		if status, _, answer := ask(h, "POST", "/v2/models/chat/versions/"+version+"/infer", body); status != want {
			t.Errorf("version %s: %d %s", version, status, answer)
		}
	}
	check("2", 200)
	check("1", 503)
	if err := os.CopyFS(filepath.Join(dir, "chat", "3"), os.DirFS(chat)); err != nil {
		t.Fatal(err)
	}
	if err := r.Load(t.Context(), "chat"); err != nil {
		t.Fatal(err)
	}
	check("3", 200)
	check("2", 503)
	if status, _, answer := ask(h, "POST", "/v2/models/chat/infer", body); status != 200 || !strings.Contains(answer, `"model_version":"3"`) {
		t.Errorf("%d %s", status, answer)
	}
}
