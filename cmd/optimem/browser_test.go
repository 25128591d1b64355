//go:build !files

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	profiling "github.com/optimem/optimem/profile"
	"github.com/optimem/optimem/profile/profilehttp"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/serve"
	"github.com/optimem/optimem/tensor"
)

// A browser is a Chromium that is told what to do through two pipes, in the DevTools protocol.
type browser struct {
	t       *testing.T
	to      *os.File
	answers chan reply
	last    int
	// wrong are errors that pages reported, fetched what they asked for.
	wrong, fetched []string
}

// A reply is a message of the browser's.
type reply struct {
	ID     int
	Method string
	Params json.RawMessage
	Result json.RawMessage
	Error  *struct{ Message string }
}

// browserWait bounds how long a browser takes to answer, or a page to be what it is to be.
const browserWait = 3 * time.Minute

// openBrowser starts the browser that OPTIMEM_BROWSER names, as 'make browser' sets it.
func openBrowser(t *testing.T) *browser {
	t.Helper()
	path := os.Getenv("OPTIMEM_BROWSER")
	if path == "" {
		t.Skip("OPTIMEM_BROWSER names no Chromium: 'make browser' runs this")
	}
	in, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	folder, err := os.MkdirTemp("", "browser") // its processes may write there a little longer than it lives
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--remote-debugging-pipe", "--user-data-dir="+folder, "about:blank")
	cmd.ExtraFiles = []*os.File{in, out} // 3 and 4
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	b := &browser{t: t, to: to, answers: make(chan reply)}
	done := make(chan struct{})
	go func() { // ends with the pipe, which the browser's end closes
		defer close(done)
		defer close(b.answers)
		read(from, b.answers)
	}()
	t.Cleanup(func() {
		_ = errors.Join(in.Close(), out.Close(), to.Close())
		cancel()
		_ = cmd.Wait()
		_ = from.Close()
		for range b.answers { // whatever it said last
		}
		<-done
		for range 100 {
			if err = os.RemoveAll(folder); err == nil {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
		t.Logf("the browser's folder is left: %v", err)
	})
	return b
}

// read sends the messages of a pipe, which a zero ends each.
func read(from *os.File, to chan<- reply) {
	var text []byte
	piece := make([]byte, 1<<16)
	for {
		n, err := from.Read(piece)
		text = append(text, piece[:n]...)
		for {
			one, rest, whole := bytes.Cut(text, []byte{0})
			if !whole {
				break
			}
			var a reply
			if json.Unmarshal(one, &a) == nil {
				to <- a
			}
			text = bytes.Clone(rest)
		}
		if err != nil {
			return
		}
	}
}

// call has the browser do something, in a page where session is not "", and returns what it says.
func (b *browser) call(session, method string, params map[string]any) json.RawMessage {
	b.t.Helper()
	b.last++
	text, err := json.Marshal(map[string]any{"id": b.last, "method": method, "params": params, "sessionId": session})
	if session == "" {
		text, err = json.Marshal(map[string]any{"id": b.last, "method": method, "params": params})
	}
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := b.to.Write(append(text, 0)); err != nil {
		b.t.Fatalf("%s: %v", method, err)
	}
	for {
		select {
		case a, ok := <-b.answers:
			switch {
			case !ok:
				b.t.Fatalf("%s: the browser ended", method)
			case a.ID == b.last && a.Error != nil:
				b.t.Fatalf("%s: %s", method, a.Error.Message)
			case a.ID == b.last:
				return a.Result
			case a.Method == "Runtime.exceptionThrown", a.Method == "Log.entryAdded" && bytes.Contains(a.Params, []byte(`"level":"error"`)):
				b.wrong = append(b.wrong, string(a.Params))
			case a.Method == "Network.requestWillBeSent":
				var r struct{ Request struct{ URL string } }
				if json.Unmarshal(a.Params, &r) == nil {
					b.fetched = append(b.fetched, r.Request.URL)
				}
			}
		case <-time.After(browserWait):
			b.t.Fatalf("%s: no answer", method)
		}
	}
}

// A page is one that a browser shows.
type page struct {
	*browser
	session string
}

// open shows a page, so many pixels wide, and waits until it is there.
func (b *browser) open(url string, width int, dark bool) *page {
	b.t.Helper()
	var target struct{ TargetID, SessionID string }
	must := func(text json.RawMessage) {
		b.t.Helper()
		if err := json.Unmarshal(text, &target); err != nil {
			b.t.Fatal(err)
		}
	}
	must(b.call("", "Target.createTarget", map[string]any{"url": "about:blank"}))
	must(b.call("", "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}))
	p := &page{b, target.SessionID}
	for _, domain := range []string{"Runtime", "Log", "Network", "Page"} {
		b.call(p.session, domain+".enable", nil)
	}
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	b.call(p.session, "Emulation.setEmulatedMedia", map[string]any{
		"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}},
	})
	b.call(p.session, "Emulation.setDeviceMetricsOverride", map[string]any{
		"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false,
	})
	b.wrong, b.fetched = nil, nil
	b.call(p.session, "Page.navigate", map[string]any{"url": url})
	p.until(`location.href !== "about:blank" && document.readyState === "complete"`)
	return p
}

// eval returns what an expression of the page's gives, and fails where that is an exception.
func (p *page) eval(expression string, to any) {
	p.t.Helper()
	var r struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct{ Exception struct{ Description string } }
	}
	text := p.call(p.session, "Runtime.evaluate", map[string]any{
		"expression": expression, "returnByValue": true, "awaitPromise": true,
	})
	if err := json.Unmarshal(text, &r); err != nil {
		p.t.Fatal(err)
	}
	if r.ExceptionDetails != nil {
		p.t.Fatalf("%.200s: %s", expression, r.ExceptionDetails.Exception.Description)
	}
	if err := json.Unmarshal(r.Result.Value, to); err != nil {
		p.t.Fatalf("%.200s: %s: %v", expression, r.Result.Value, err)
	}
}

// until waits until a condition of the page's holds.
func (p *page) until(condition string) {
	p.t.Helper()
	for end := time.Now().Add(browserWait); ; time.Sleep(20 * time.Millisecond) {
		var holds bool
		if p.eval("!!("+condition+")", &holds); holds {
			return
		}
		if time.Now().After(end) {
			p.t.Fatalf("never: %s", condition)
		}
	}
}

// clean fails where a page reported an error, asked for anything beside itself, or is wider than what shows it.
func (p *page) clean(own string) {
	p.t.Helper()
	var wide []int
	p.eval("[document.documentElement.scrollWidth, innerWidth]", &wide)
	if wide[0] > wide[1] {
		p.t.Errorf("%s is %d pixels wide, of %d that are shown", own, wide[0], wide[1])
	}
	for _, w := range p.wrong {
		p.t.Errorf("%s: %s", own, w)
	}
	for _, url := range p.fetched {
		if !strings.HasPrefix(url, own) {
			p.t.Errorf("%s asks for %s", own, url)
		}
	}
}

// shapes looks at a picture: how many shapes are drawn, which of them are nowhere, and which texts lie outside of the
// page.
const shapes = `(() => {
	const bad = [];
	let drawn = 0;
	for (const e of document.querySelectorAll("svg path, svg rect, svg circle, svg text")) {
		const b = e.getBBox(), r = e.getBoundingClientRect();
		if (![b.x, b.y, b.width, b.height].every(Number.isFinite)) bad.push(e.outerHTML.slice(0, 200));
		if (e.tagName === "path" && !(e.getTotalLength() > 0)) bad.push(e.outerHTML.slice(0, 200));
		if (e.tagName === "text" && (r.left < -1 || r.right > innerWidth + 1)) bad.push(r.left + "…" + r.right + ": " + e.textContent);
		if (r.width > 0 && r.height > 0) drawn++;
	}
	const of = s => { const c = document.createElement("canvas").getContext("2d"); c.fillStyle = s; return c.fillStyle; };
	const style = getComputedStyle(document.body);
	return {
		Bad: bad, Drawn: drawn, Peak: document.getElementById("peak")?.textContent ?? "",
		Titles: document.querySelectorAll("svg rect > title").length, Background: of(style.backgroundColor), Text: of(style.color),
	};
})()`

// TestPicturesInABrowser: a browser draws all of a profile's picture, in light and dark, in wide and narrow windows,
// reports no error, and asks for nothing else.
func TestPicturesInABrowser(t *testing.T) {
	b := openBrowser(t)
	digits := digitsFolder + "digits.pt2"
	for name, args := range map[string][]string{
		"page":     {digits, "--mode", "page", "--memory", "216KiB", "--device", "cpu"},
		"resident": {digits, "--mode", "resident", "--device", "cpu"},
		"auto":     {digits, "--memory", "2MiB", "--batch", "16", "--device", "cpu"},
		"emulated": {digits, "--mode", "page", "--device", "emu:memory=1MiB,bandwidth=1GB/s"},
	} {
		file := filepath.Join(t.TempDir(), name+".html")
		done(t, append([]string{"profile", "--runs", "1", "--html", file}, args...)...)
		url := "file://" + file
		var backgrounds []string
		for _, dark := range []bool{false, true} {
			for _, width := range []int{1300, 500} {
				p := b.open(url, width, dark)
				var seen struct {
					Bad                    []string
					Drawn, Titles          int
					Peak, Background, Text string
				}
				p.eval(shapes, &seen)
				if len(seen.Bad) > 0 || seen.Drawn < 20 || seen.Titles < 10 || seen.Peak == "" || seen.Background == seen.Text {
					t.Errorf("%s, dark: %v, %d pixels: %+v", name, dark, width, seen)
				}
				backgrounds = append(backgrounds, seen.Background)
				p.clean(url)
			}
		}
		if backgrounds[0] == backgrounds[2] {
			t.Errorf("%s: %v in light and dark", name, backgrounds)
		}
	}
}

// TestProfilePageInABrowser: modules of a service's profile fold and unfold.
func TestProfilePageInABrowser(t *testing.T) {
	b := openBrowser(t)
	watched := profiling.New(profiling.Options{})
	model := openDigits(t)
	s, err := runtime.Auto(t.Context(), model, runtime.AutoOptions{Observe: watched.Observe})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	pixels := tensor.Of(make([]float32, 64), 1, 1, 8, 8)
	for range 3 {
		if _, err := s.Run(t.Context(), runtime.Values{model.Inputs()[0].Name: pixels}); err != nil {
			t.Fatal(err)
		}
	}
	server := httptest.NewServer(profilehttp.Handler(watched))
	defer server.Close()
	p := b.open(server.URL+"/", 1300, false)
	var folds struct{ Details, Before, Closed, After int }
	p.eval(`(() => {
		const all = [...document.querySelectorAll("details")], shown = () => [...document.querySelectorAll(".row")].filter(e => e.checkVisibility()).length;
		const before = shown();
		all[0].querySelector("summary").click();
		const closed = shown();
		all[0].querySelector("summary").click();
		return {Details: all.length, Before: before, Closed: closed, After: shown()};
	})()`, &folds)
	if folds.Details < 2 || folds.Closed >= folds.Before || folds.After != folds.Before {
		t.Errorf("%+v", folds)
	}
	p.clean(server.URL)
}

func openDigits(t *testing.T) *models.Model {
	t.Helper()
	ckpt, err := loader.Open(digitsFolder + "digits.pt2")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ckpt.Close() })
	model, err := models.Build(ckpt, models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return model
}

// TestServersPageInABrowser: the page of administration shows the models, and its buttons unload and load one.
func TestServersPageInABrowser(t *testing.T) {
	b := openBrowser(t)
	dir := t.TempDir()
	text, err := os.ReadFile(digitsFolder + "digits.pt2")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "digits.pt2"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := serve.Open(t.Context(), dir, serve.Options{Memory: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	server := httptest.NewServer(r.Admin())
	defer server.Close()
	p := b.open(server.URL+"/ui", 1300, true)
	for _, state := range []string{"ready", "unloaded", "ready"} {
		p.until(fmt.Sprintf(`document.querySelector("#models tr")?.cells[2].textContent.toLowerCase().includes(%q)`, state))
		if state == "unloaded" {
			p.until(`!document.querySelector("#models button").disabled`)
		}
		p.eval(`(() => { document.querySelector("#models button").click(); return 0; })()`, new(int))
	}
	p.clean(server.URL)
}

// TestTracesInAViewer: Chrome's trace viewer, in a browser, reads of a trace every event, without a warning, and draws
// its lanes. Each step of a flow, and its end, are an arrow there.
func TestTracesInAViewer(t *testing.T) {
	b := openBrowser(t)
	catapult := os.Getenv("OPTIMEM_CATAPULT")
	if catapult == "" {
		t.Fatal("OPTIMEM_CATAPULT names no checkout of catapult: 'make browser' makes one")
	}
	digits := digitsFolder + "digits.pt2"
	dir := t.TempDir()
	for name, args := range map[string][]string{
		"page":     {digits, "--mode", "page", "--memory", "216KiB", "--device", "cpu"},
		"batch":    {digits, "--memory", "2MiB", "--batch", "16", "--runs", "3", "--device", "cpu"},
		"chunk":    {digits, "--mode", "chunk", "--capacity", "1e3", "--device", "emu:memory=1MiB,bandwidth=1GB/s"},
		"emulated": {digits, "--mode", "page", "--device", "emu:memory=1MiB,bandwidth=1GB/s"},
	} {
		file := filepath.Join(dir, name+".json")
		done(t, append([]string{"run", "--input", "random", "--trace", file}, args...)...)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var trace struct{ TraceEvents []struct{ Ph, Name string } }
		if err := json.Unmarshal(text, &trace); err != nil {
			t.Fatal(err)
		}
		count := make(map[string]int)
		for _, e := range trace.TraceEvents {
			count[e.Ph]++
		}
		view := file + ".html"
		out, err := exec.CommandContext(t.Context(), "python3", filepath.Join(catapult, "tracing/bin/trace2html"), file, "--output", view).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		p := b.open("file://"+view, 1300, false)
		p.until(`document.querySelector("tr-ui-timeline-view")?.model?.getAllThreads().length > 0`)
		var got struct {
			Slices, Flows, Samples int
			Warnings, Lanes        []string
		}
		p.eval(`(() => {
			const m = document.querySelector("tr-ui-timeline-view").model;
			let slices = 0, samples = 0;
			for (const thread of m.getAllThreads()) slices += thread.sliceGroup.length + thread.asyncSliceGroup.length;
			for (const c of m.getAllCounters()) samples += c.timestamps.length;
			return {Slices: slices, Samples: samples, Flows: m.flowEvents.length, Warnings: m.importWarnings.map(w => w.message),
				Lanes: m.getAllThreads().map(thread => thread.name)};
		})()`, &got)
		if got.Slices != count["X"] || got.Flows != count["t"]+count["f"] || got.Samples != count["C"] || len(got.Warnings) > 0 || count["X"] == 0 {
			t.Errorf("%s: the viewer has %+v, the file %v", name, got, count)
		}
		for _, lane := range got.Lanes {
			p.until(fmt.Sprintf(`document.body.innerText.includes(%q)`, lane))
		}
		for _, w := range b.wrong {
			t.Errorf("%s: %s", name, w)
		}
		t.Logf("%s: %+v", name, got)
	}
}
