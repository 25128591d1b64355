package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

const (
	digits = "../examples/digits/digits.pt2"
	chat   = "../generate/testdata/chat"
)

// directory makes a directory of models of files of the repository: name → where it comes from.
func directory(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, from := range files {
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(from); err == nil && info.IsDir() {
			if err := os.CopyFS(to, os.DirFS(from)); err != nil {
				t.Fatal(err)
			}
			continue
		}
		text, err := os.ReadFile(from)
		if err != nil {
			text = []byte(from) // what is to be in the file
		}
		if err := os.WriteFile(to, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func open(t testing.TB, dir string, opts Options) *Registry {
	t.Helper()
	if opts.Memory == 0 {
		opts.Memory = 64 << 20
	}
	r, err := Open(t.Context(), dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		for range 12000 { // handlers of connections that were cut off end a little later
			if r.bodies.heldBytes() == 0 {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
		t.Errorf("%d bytes of bodies are still held", r.bodies.heldBytes())
	})
	return r
}

// ask sends a request and returns the status, the header and the body.
func ask(h http.Handler, method, path, body string, header ...string) (int, http.Header, string) {
	req := httptest.NewRequest(method, path, strings.NewReader(body))
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	return w.Code, w.Header(), w.Body.String()
}

// picture is a digit, from the file of the example.
func pictures(t testing.TB, n int) []float32 {
	t.Helper()
	data, err := os.ReadFile("../examples/digits/pictures.npy")
	if err != nil {
		t.Fatal(err)
	}
	data = data[len(data)-8*64*4:]
	list := make([]float32, 64*n)
	for i := range list {
		list[i] = math.Float32frombits(uint32(data[4*i]) | uint32(data[4*i+1])<<8 | uint32(data[4*i+2])<<16 | uint32(data[4*i+3])<<24)
	}
	return list
}

// scores is what a session alone makes of pictures.
func scores(t testing.TB, pixels []float32) []float32 {
	t.Helper()
	ckpt, err := loader.Open(digits)
	if err != nil {
		t.Fatal(err)
	}
	defer ckpt.Close()
	model, err := models.Build(ckpt, models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := runtime.Resident(context.Background(), model, runtime.ResidentOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	out, err := s.Run(context.Background(), runtime.Values{"input": tensor.Of(pixels, len(pixels)/64, 1, 8, 8)})
	if err != nil {
		t.Fatal(err)
	}
	list, err := tensor.Slice[float32](out["linear_1"])
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func jsonRequest(pixels []float32) string {
	text, err := json.Marshal(pixels)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf(`{"id":"7","inputs":[{"name":"input","shape":[%d,1,8,8],"datatype":"FP32","data":%s}]}`, len(pixels)/64, text)
}

func floatBytes(list []float32) []byte {
	return bytes.Clone(tensor.Of(list, len(list)).Data)
}

type answered struct {
	ModelName string `json:"model_name"`
	Version   string `json:"model_version"`
	ID        string `json:"id"`
	Outputs   []struct {
		Name       string         `json:"name"`
		Datatype   string         `json:"datatype"`
		Shape      []int          `json:"shape"`
		Data       []float32      `json:"data"`
		Parameters map[string]int `json:"parameters"`
	} `json:"outputs"`
}

func sameFloats(a, b []float32) bool { return bytes.Equal(floatBytes(a), floatBytes(b)) }

// TestInfer: an answer in JSON, and one in bytes, of a request in either, have the bits of a session alone.
func TestInfer(t *testing.T) {
	r := open(t, directory(t, map[string]string{"digits.pt2": digits}), Options{Memory: 1 << 20})
	h := r.Handler()
	pixels := pictures(t, 2)
	want := scores(t, pixels)
	check := func(name string, status int, header http.Header, body string) {
		t.Helper()
		if status != 200 {
			t.Fatalf("%s: %d %s", name, status, body)
		}
		text, tail := body, ""
		if n := header.Get(headerLength); n != "" {
			k, err := strconv.Atoi(n)
			if err != nil || k > len(body) {
				t.Fatalf("%s: header length %q", name, n)
			}
			text, tail = body[:k], body[k:]
		}
		var a answered
		if err := json.Unmarshal([]byte(text), &a); err != nil {
			t.Fatalf("%s: %v in %s", name, err, text)
		}
		if a.ModelName != "digits" || a.Version != "1" || len(a.Outputs) != 1 {
			t.Fatalf("%s: %+v", name, a)
		}
		o := a.Outputs[0]
		if o.Name != "linear_1" || o.Datatype != "FP32" || fmt.Sprint(o.Shape) != "[2 10]" {
			t.Fatalf("%s: output %+v", name, o)
		}
		if tail != "" {
			if o.Parameters["binary_data_size"] != len(tail) || tail != string(floatBytes(want)) {
				t.Errorf("%s: other bytes than a session's", name)
			}
		} else if !sameFloats(o.Data, want) {
			t.Errorf("%s: %v, a session gives %v", name, o.Data, want)
		}
	}
	const at = "/v2/models/digits/infer"
	status, header, body := ask(h, "POST", at, jsonRequest(pixels))
	check("JSON", status, header, body)
	if !strings.Contains(body, `"id":"7"`) {
		t.Errorf("the id is not that of the request: %s", body)
	}
	raw := floatBytes(pixels)
	head := fmt.Sprintf(`{"inputs":[{"name":"input","shape":[2,1,8,8],"datatype":"FP32","parameters":{"binary_data_size":%d}}],`+
		`"parameters":{"binary_data_output":true}}`, len(raw))
	status, header, body = ask(h, "POST", at, head+string(raw), headerLength, strconv.Itoa(len(head)))
	check("binary", status, header, body)
	if header.Get(headerLength) == "" {
		t.Error("the answer is not binary")
	}
	status, header, body = ask(h, "POST", "/v2/models/digits/versions/1/infer", string(raw), headerLength, "0")
	check("raw", status, header, body)
}

// TestMetadata: what clients ask before they infer.
func TestMetadata(t *testing.T) {
	r := open(t, directory(t, map[string]string{"digits.pt2": digits}), Options{})
	h := r.Handler()
	for path, want := range map[string]string{
		"/v2":                          `"binary_tensor_data"`,
		"/v2/health/live":              `{"live":true}`,
		"/v2/health/ready":             `{"ready":true}`,
		"/v2/models/digits":            `"outputs":[{"name":"linear_1","datatype":"FP32","shape":[-1,10]}]`,
		"/v2/models/digits/ready":      `"state":"READY"`,
		"/v2/models/digits/config":     `"input":[{"name":"input","data_type":"TYPE_FP32","dims":[-1,1,8,8]}]`,
		"/v2/models/digits/stats":      `"inference_count":0`,
		"/v2/models/stats":             `"model_stats":[{"name":"digits"`,
		"/v2/models/digits/versions/1": `"versions":["1"]`,
	} {
		status, header, body := ask(h, "GET", path, "")
		if status != 200 || !strings.Contains(body, want) || header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %s, which has not %s", path, status, body, want)
		}
	}
	for path, want := range map[string]int{
		"/v2/models/none": 404, "/v2/models/digits/versions/2": 404, "/v2/none": 404, "/": 404, "/v2/models/none/ready": 404,
	} {
		status, _, body := ask(h, "GET", path, "")
		var e struct {
			Error string `json:"error"`
		}
		if err := json.Unmarshal([]byte(body), &e); status != want || err != nil || e.Error == "" {
			t.Errorf("%s: %d %s, not %d with an error", path, status, body, want)
		}
	}
}
