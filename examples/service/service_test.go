package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

const (
	digitsModel = "../digits/digits.pt2"
	// memoryBytes is less than the weights take.
	memoryBytes = 200 << 10
)

// open starts a session that the test closes.
func open(t *testing.T, opts optimem.Options) *optimem.Session {
	t.Helper()
	ckpt, err := loader.Open(digitsModel)
	if err != nil {
		t.Fatal(err)
	}
	model, err := models.Build(ckpt, models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := optimem.Page(t.Context(), model, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := ckpt.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// serve starts a service and returns it with its address.
func serve(t *testing.T) (*service, string) {
	t.Helper()
	s := newService(open(t, optimem.Options{Memory: memoryBytes}))
	server := httptest.NewServer(s.handler())
	t.Cleanup(server.Close)
	return s, server.URL
}

// pictures returns the pictures beside the model, and the digits that they are.
func pictures(t *testing.T) (pixels []float32, labels []int) {
	t.Helper()
	file, err := os.ReadFile("../digits/pictures.npy")
	if err != nil {
		t.Fatal(err)
	}
	if pixels, err = readNPY(bytes.NewReader(file)); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../digits/digits.json")
	if err != nil {
		t.Fatal(err)
	}
	var recorded struct{ Labels []int }
	if err := json.Unmarshal(text, &recorded); err != nil || len(recorded.Labels)*64 != len(pixels) {
		t.Fatalf("%d labels: %v", len(recorded.Labels), err)
	}
	return pixels, recorded.Labels
}

func bodyOf(t *testing.T, pixels []float32) []byte {
	t.Helper()
	var request struct {
		Pictures [][]float32 `json:"pictures"`
	}
	for from := 0; from < len(pixels); from += 64 {
		request.Pictures = append(request.Pictures, pixels[from:from+64])
	}
	text, err := json.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// npyOf writes an array as NumPy does.
func npyOf(shape string, pixels []float32) []byte {
	header := fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': (%s), }", shape)
	header += strings.Repeat(" ", 117-len(header)) + "\n"
	out := append([]byte("\x93NUMPY\x01\x00"), byte(len(header)), 0)
	out = append(out, header...)
	for _, x := range pixels {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(x))
	}
	return out
}

func post(url, kind string, body io.Reader) (status int, text string, err error) {
	response, err := http.Post(url+"/classify", kind, body)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	read, err := io.ReadAll(response.Body)
	return response.StatusCode, string(read), err
}

// TestClients has 32 clients ask at once, each for pictures of its own, as JSON and as arrays: all get what the model
// gives by itself, and requests share passes.
func TestClients(t *testing.T) {
	const clients, requests = 32, 8
	pixels, labels := pictures(t)
	alone := open(t, optimem.Options{})
	s, url := serve(t)
	var wait sync.WaitGroup
	for c := range clients {
		wait.Go(func() {
			for k := range requests {
				which := (c + k) % len(labels)
				own := append([]float32(nil), pixels[which*64:(which+1)*64]...)
				own[c] += float32(k) / 64
				kind, body := "application/json", bodyOf(t, own)
				if (c+k)%2 == 0 {
					kind, body = "application/x-npy", npyOf("1, 1, 8, 8", own)
				}
				status, text, err := post(url, kind, bytes.NewReader(body))
				var got answer
				if err == nil && status == http.StatusOK {
					err = json.Unmarshal([]byte(text), &got)
				}
				if err != nil || status != http.StatusOK {
					t.Errorf("client %d: %d %s, %v", c, status, text, err)
					return
				}
				out, err := alone.Run(t.Context(), optimem.Values{"input": tensor.Of(own, 1, 1, 8, 8)})
				if err != nil {
					t.Error(err)
					return
				}
				for _, y := range out {
					want, _ := tensor.Slice[float32](y)
					if !reflect.DeepEqual(got.Scores, [][]float32{want}) {
						t.Errorf("client %d got %v, want %v", c, got.Scores, want)
					}
				}
				if got.Digits[0] != labels[which] {
					t.Errorf("client %d got a %d, want a %d", c, got.Digits[0], labels[which])
				}
			}
		})
	}
	wait.Wait()
	m := s.session.Metrics()
	if m.Calls != clients*requests || m.Runs+m.Joined != m.Calls || m.MovedBytes == 0 {
		t.Errorf("%d calls, %d passes, %d joined, %d bytes moved", m.Calls, m.Runs, m.Joined, m.MovedBytes)
	}
	if m.PeakBytes > memoryBytes {
		t.Errorf("%d of %d bytes were held", m.PeakBytes, memoryBytes)
	}
}

// TestRecorded gives the service the pictures that PyTorch was given.
func TestRecorded(t *testing.T) {
	_, labels := pictures(t)
	_, url := serve(t)
	file, err := os.Open("../digits/pictures.npy")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	status, text, err := post(url, "application/x-npy", file)
	var got answer
	if err != nil || status != http.StatusOK || json.Unmarshal([]byte(text), &got) != nil {
		t.Fatalf("%d %s, %v", status, text, err)
	}
	if !reflect.DeepEqual(got.Digits, labels) {
		t.Errorf("got %v, want %v", got.Digits, labels)
	}
}

// TestRefused: what is not a request is told so, and costs nothing.
func TestRefused(t *testing.T) {
	s, url := serve(t)
	one := make([]float32, 64)
	infinite := append([]float32{float32(math.Inf(1))}, one[1:]...)
	for name, c := range map[string]struct {
		kind, body string
		status     int
	}{
		"no pictures":   {"application/json", `{"pictures": []}`, 400},
		"short picture": {"application/json", `{"pictures": [[1, 2]]}`, 400},
		"other field":   {"application/json", `{"images": []}`, 400},
		"no JSON":       {"application/json", `{"pictures": [[`, 400},
		"more follows":  {"application/json", string(bodyOf(t, one)) + "1", 400},
		"a string":      {"application/json", `{"pictures": "all"}`, 400},
		"large number":  {"application/json", `{"pictures": [[1e99]]}`, 400},
		"large":         {"application/json", `{"pictures": [[` + strings.Repeat("1,", maxBodyBytes/2) + `1]]}`, 413},
		"many":          {"application/json", string(bodyOf(t, make([]float32, 64*(maxPictures+1)))), 400},
		"text":          {"text/plain", "7", 415},
		"no type":       {"", "7", 415},
		"no array":      {"application/x-npy", "7777777777777777", 400},
		"short array":   {"application/x-npy", string(npyOf("1, 8, 8", one[1:])), 400},
		"long array":    {"application/x-npy", string(npyOf("1, 8, 8", one)) + "7", 400},
		"other shape":   {"application/x-npy", string(npyOf("64,", one)), 400},
		"lying shape":   {"application/x-npy", string(npyOf("256, 256, 256, 256, 8, 8", one)), 400},
		"not finite":    {"application/x-npy", string(npyOf("8, 8", infinite)), 400},
	} {
		status, text, err := post(url, c.kind, strings.NewReader(c.body))
		if err != nil || status != c.status || text == "" {
			t.Errorf("%s: %d %q, %v; want %d", name, status, text, err, c.status)
		}
	}
	if response, err := http.Get(url + "/classify"); err != nil || response.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("GET: %v, %v", response, err)
	}
	if status, _, err := post(url, "application/json", bytes.NewReader(bodyOf(t, one))); err != nil || status != 200 {
		t.Errorf("afterwards: %d, %v", status, err)
	}
	for range maxRequests { // all places are taken
		s.slots <- struct{}{}
	}
	if status, _, err := post(url, "application/json", bytes.NewReader(bodyOf(t, one))); err != nil || status != 503 {
		t.Errorf("too many at once: %d, %v", status, err)
	}
}

// TestClientGone: a client that does not wait ends its run and is counted; the next one is served.
func TestClientGone(t *testing.T) {
	s, url := serve(t)
	body := bodyOf(t, make([]float32, 64))
	entered, letGo := make(chan struct{}), make(chan struct{})
	first := true
	s.session = open(t, optimem.Options{Observe: func(optimem.Event) { // the first pass waits
		if first {
			first = false
			close(entered)
			<-letGo
		}
	}})
	answered := make(chan error, 1)
	go func() {
		_, _, err := post(url, "application/json", bytes.NewReader(body))
		answered <- err
	}()
	<-entered
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		request, err := http.NewRequestWithContext(ctx, "POST", url+"/classify", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		gone := make(chan struct{})
		go func() {
			if response, err := http.DefaultClient.Do(request); err == nil {
				response.Body.Close()
			}
			close(gone)
		}()
		for len(s.slots) < 2 { // it is being read, or it waits
			time.Sleep(time.Millisecond)
		}
		cancel()
		<-gone
		for len(s.slots) > 1 {
			time.Sleep(time.Millisecond)
		}
	}
	close(letGo)
	if err := <-answered; err != nil {
		t.Error(err)
	}
	s.mu.Lock()
	gone := s.answered[clientGone]
	s.mu.Unlock()
	if gone != 3 || s.session.Metrics().Runs != 1 {
		t.Errorf("%d of 3 requests were given up, %d passes", gone, s.session.Metrics().Runs)
	}
	if status, text, err := post(url, "application/json", bytes.NewReader(bodyOf(t, make([]float32, 64)))); err != nil || status != 200 {
		t.Errorf("afterwards: %d %s, %v", status, text, err)
	}
}

// TestMetrics reads the metrics as Prometheus would.
func TestMetrics(t *testing.T) {
	_, url := serve(t)
	for range 3 {
		if status, text, err := post(url, "application/json", bytes.NewReader(bodyOf(t, make([]float32, 64)))); err != nil || status != 200 {
			t.Fatalf("%d %s, %v", status, text, err)
		}
	}
	response, err := http.Get(url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	sample := regexp.MustCompile(`^([a-z_]+)(\{[a-z]+="[a-z0-9]+"\})? ([0-9.e+-]+)$`)
	values := make(map[string]float64)
	typed := make(map[string]bool)
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		if name, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, _, _ = strings.Cut(name, " ")
			typed[name] = true
			continue
		}
		if strings.HasPrefix(line, "# HELP ") {
			continue
		}
		m := sample.FindStringSubmatch(line)
		if m == nil || !typed[m[1]] {
			t.Errorf("%q is no sample of a known type", line)
			continue
		}
		if values[m[1]+m[2]], err = strconv.ParseFloat(m[3], 64); err != nil {
			t.Error(err)
		}
	}
	if values[`service_requests_total{status="200"}`] != 3 || values["optimem_passes_total"] != 3 ||
		values["optimem_moved_bytes_total"] < 3*100_000 || values[`optimem_held_bytes{purpose="ring"}`] == 0 {
		t.Errorf("got %v", values)
	}
}

// TestShutdown: a service that is told to end answers what is under way, and leaves nothing open.
func TestShutdown(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, listener, digitsModel, 0, optimem.PageOptions{Memory: memoryBytes}) }()
	url := "http://" + listener.Addr().String()
	// A request whose body comes slowly is under way when the service is told to end.
	reader, writer := io.Pipe()
	answered := make(chan error, 1)
	go func() {
		status, text, err := post(url, "application/json", reader)
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("%d %s", status, text)
		}
		answered <- err
	}()
	body := bodyOf(t, make([]float32, 64))
	if _, err := writer.Write(body[:20]); err != nil {
		t.Fatal(err)
	}
	for flying := false; !flying; { // until it is being read
		response, err := http.Get(url + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(response.Body)
		response.Body.Close()
		flying = strings.Contains(string(text), "service_requests_in_flight 1\n")
	}
	cancel()
	for refused := false; !refused; { // until nobody else is let in
		response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Get(url + "/healthz")
		if refused = err != nil; !refused {
			response.Body.Close()
		}
	}
	if _, err := writer.Write(body[20:]); err != nil {
		t.Fatal(err)
	}
	writer.Close()
	if err := <-answered; err != nil {
		t.Errorf("the request that was under way: %v", err)
	}
	if err := <-ended; err != nil {
		t.Errorf("the service ended with %v", err)
	}
}

// TestRest: a service that nobody asks holds no memory, and answers as before when somebody does.
func TestRest(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, listener, digitsModel, time.Millisecond, optimem.PageOptions{Memory: memoryBytes})
	}()
	url := "http://" + listener.Addr().String()
	pixels, _ := pictures(t)
	body := bodyOf(t, pixels[:64])
	first := ""
	for range 3 {
		status, text, err := post(url, "application/json", bytes.NewReader(body))
		if err != nil || status != http.StatusOK {
			t.Fatalf("%d %s %v", status, text, err)
		}
		if first == "" {
			first = text
		}
		if text != first {
			t.Errorf("%s, and before %s", text, first)
		}
		held := regexp.MustCompile(`(?m)^optimem_held_bytes{.*} [1-9]`)
		for resting := false; !resting; time.Sleep(time.Millisecond) {
			response, err := http.Get(url + "/metrics")
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(response.Body)
			response.Body.Close()
			if err != nil {
				t.Fatal(err)
			}
			resting = !held.Match(text)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestNotServed: a service without a model does not start, and neither does one of a model that takes no pictures, or none in
// its memory.
func TestNotServed(t *testing.T) {
	for _, c := range []struct {
		path        string
		memoryBytes int64
	}{
		{"nowhere.pt2", 0}, {"../custom_op/double.pt2", 0}, {digitsModel, 1000},
	} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if err := run(t.Context(), listener, c.path, time.Second, optimem.PageOptions{Memory: c.memoryBytes}); err == nil {
			t.Errorf("%s in %d bytes: no error", c.path, c.memoryBytes)
		}
		if _, err := net.Dial("tcp", listener.Addr().String()); err == nil {
			t.Errorf("%s in %d bytes: it still listens", c.path, c.memoryBytes)
		}
	}
}
