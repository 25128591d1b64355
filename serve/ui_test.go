package serve

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var (
	chromium    = flag.String("chromium", "", "program of Chromium that opens /ui; without one its test is skipped")
	screenshots = flag.String("screenshots", "", "folder for pictures of /ui")
)

// A browser is Chromium, spoken to by DevTools' protocol over pipes.
type browser struct {
	t       *testing.T
	to      *os.File
	from    *bufio.Reader
	session string
	last    int
	// events are those that were not waited for.
	events []devMessage
}

type devMessage struct {
	ID      int             `json:"id,omitempty"`
	Session string          `json:"sessionId,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  any             `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
}

func startBrowser(t *testing.T) *browser {
	t.Helper()
	theirs, ours, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	back, theirBack, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	folder, err := os.MkdirTemp("", "chromium-")
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), *chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
		"--remote-debugging-pipe", "--user-data-dir="+folder, "about:blank")
	c.ExtraFiles = []*os.File{theirs, theirBack}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = theirs.Close(), theirBack.Close()
	b := &browser{t: t, to: ours, from: bufio.NewReader(back)}
	t.Cleanup(func() {
		_, _ = fmt.Fprint(ours, `{"id":1000000,"method":"Browser.close"}`+"\x00")
		_ = c.Wait()
		_ = os.RemoveAll(folder) // where a helper of Chromium's has not ended yet, something stays
		_, _ = ours.Close(), back.Close()
	})
	var target struct{ TargetID, SessionID string }
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &target)
	b.session = target.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Network", "DOM"} {
		b.call(domain+".enable", nil, nil)
	}
	return b
}

// call calls a method and waits for what it returns.
func (b *browser) call(method string, params map[string]any, result any) {
	b.t.Helper()
	b.last++
	text, err := json.Marshal(devMessage{ID: b.last, Session: b.session, Method: method, Params: params})
	if err == nil {
		_, err = b.to.Write(append(text, 0))
	}
	for err == nil {
		var got []byte
		if got, err = b.from.ReadBytes(0); err != nil {
			break
		}
		var m devMessage
		if err = json.Unmarshal(bytes.TrimSuffix(got, []byte{0}), &m); err != nil {
			break
		}
		if m.ID != b.last {
			b.events = append(b.events, m)
			continue
		}
		if m.Error != nil {
			b.t.Fatalf("%s: %s", method, m.Error)
		}
		if result != nil {
			err = json.Unmarshal(m.Result, result)
		}
		if err == nil {
			return
		}
	}
	b.t.Fatalf("%s: %v", method, err)
}

// eval returns what an expression of the page's is, as text.
func (b *browser) eval(expression string) string {
	b.t.Helper()
	var got struct {
		Result struct {
			Value any
		}
		ExceptionDetails json.RawMessage
	}
	b.call("Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true, "returnByValue": true}, &got)
	if got.ExceptionDetails != nil {
		b.t.Fatalf("%s: %s", expression, got.ExceptionDetails)
	}
	return fmt.Sprint(got.Result.Value)
}

// until waits for an expression to be so.
func (b *browser) until(expression string) {
	b.t.Helper()
	for range 1200 {
		if b.eval(expression) == "true" {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	b.t.Fatalf("never: %s; the page is\n%s", expression, b.eval("document.body.innerText"))
}

// press presses a key, which may write a text.
func (b *browser) press(key, text string) {
	b.t.Helper()
	code := map[string]int{"Tab": 9, "Enter": 13}[key]
	b.call("Input.dispatchKeyEvent", map[string]any{"type": "keyDown", "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text}, nil)
	b.call("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": key, "code": key, "windowsVirtualKeyCode": code}, nil)
}

func (b *browser) screenshot(name string) {
	if *screenshots == "" {
		return
	}
	var got struct{ Data string }
	b.call("Page.captureScreenshot", map[string]any{"captureBeyondViewport": true}, &got)
	data, err := base64.StdEncoding.DecodeString(got.Data)
	if err == nil {
		err = os.WriteFile(filepath.Join(*screenshots, name), data, 0o600)
	}
	if err != nil {
		b.t.Error(err)
	}
}

// TestInBrowser opens /ui in Chromium: models and memory are told, a picture and a message are answered, by keyboard
// alone, models are unloaded and loaded; each control has a name for who does not see it; nothing fails and nothing
// comes from another address.
func TestInBrowser(t *testing.T) {
	if *chromium == "" {
		t.Skip("no Chromium: go test ./serve -run TestInBrowser -args -chromium $(which chromium)")
	}
	r := open(t, directory(t, map[string]string{
		"digits.pt2": digits, "chat": chat, "look.pt2": pictureFiles + "look.pt2",
		"look.model.json": `{"preprocess": {"input": "x", "spec": "` + pictureSpec + `"}}`,
	}), Options{})
	s := httptest.NewServer(Guard{Local: true}.Protect(r.Admin()))
	defer s.Close()
	b := startBrowser(t)
	b.call("Page.navigate", map[string]any{"url": s.URL + "/ui"}, nil)
	b.until(`document.querySelectorAll("#models tr").length === 3 && document.getElementById("chat-model").options.length === 1`)
	if text := b.eval("document.body.innerText"); !strings.Contains(text, "digits/1") || !strings.Contains(text, "Ready.") || !strings.Contains(text, "64") {
		t.Errorf("the page is\n%s", text)
	}
	b.eval(`document.getElementById("chat-model").focus()`)
	b.press("Tab", "")
	if at := b.eval("document.activeElement.id"); at != "chat-text" {
		t.Fatalf("the key Tab leads to %q", at)
	}
	b.call("Input.insertText", map[string]any{"text": "What is the capital of France?"}, nil)
	b.press("Enter", "\r")
	b.until(`document.querySelector("#chat-log [data-done]") !== null`)
	if text := b.eval(`document.getElementById("chat-log").innerText`); !strings.Contains(text, "Paris") {
		t.Errorf("the conversation is %q", text)
	}
	var file struct {
		Result struct{ ObjectID string }
	}
	b.call("Runtime.evaluate", map[string]any{"expression": `document.getElementById("picture-file")`}, &file)
	path, err := filepath.Abs(pictureFiles + "odd.png")
	if err != nil {
		t.Fatal(err)
	}
	b.call("DOM.setFileInputFiles", map[string]any{"files": []string{path}, "objectId": file.Result.ObjectID}, nil)
	b.eval(`document.querySelector("#picture button").click()`)
	b.until(`document.querySelectorAll("#picture-best li").length === 5`)
	if text := b.eval(`document.getElementById("picture-says").innerText`); !strings.Contains(text, "FP32 [1, 3, 32, 32]") {
		t.Errorf("the picture is %q", text)
	}
	b.screenshot("ui.png")
	button := `document.querySelector('button[aria-label="%s digits"]')`
	b.eval(fmt.Sprintf(button, "unload") + ".click()")
	b.until(fmt.Sprintf(button, "load") + " !== null")
	b.eval(fmt.Sprintf(button, "load") + ".click()")
	b.until(fmt.Sprintf(button, "unload") + " !== null")
	b.named()
	for _, e := range b.events {
		text, err := json.Marshal(e.Params)
		if err != nil {
			t.Fatal(err)
		}
		switch e.Method {
		case "Runtime.exceptionThrown", "Log.entryAdded":
			t.Errorf("%s: %s", e.Method, text)
		case "Network.requestWillBeSent":
			var sent struct{ Request struct{ URL string } }
			if err := json.Unmarshal(text, &sent); err != nil || !strings.HasPrefix(sent.Request.URL, s.URL) {
				t.Errorf("the page asks %s", sent.Request.URL)
			}
		}
	}
}

// named looks whether each control has a name in what screen readers are told.
func (b *browser) named() {
	b.t.Helper()
	var tree struct {
		Nodes []struct {
			Ignored bool
			Role    struct{ Value any }
			Name    struct{ Value any }
		}
	}
	b.call("Accessibility.getFullAXTree", nil, &tree)
	count := 0
	for _, n := range tree.Nodes {
		switch n.Role.Value {
		case "button", "textbox", "combobox", "meter", "table", "log":
			if count++; n.Name.Value == nil || n.Name.Value == "" {
				b.t.Errorf("a %v has no name", n.Role.Value)
			}
		}
	}
	if count < 10 {
		b.t.Errorf("%d controls", count)
	}
}
