// Command serve asks a server for inferences and prints how long they took: at a fixed rate, whoever is late (an open
// loop, in which waiting is seen), or with so many clients that each wait for their answer (a closed one, which finds
// the capacity). And it runs the model by itself, for what the server costs.
//
// It speaks the Open Inference Protocol, or sends any body to any path, and knows nothing of the server. With -pid it
// says what processor time the server's processes took for an answer, and how much memory they have.
//
//	serve -url http://127.0.0.1:8000 -model digits -input input -shape 1,1,8,8 -rate 200 -seconds 20
//	serve -url http://127.0.0.1:8000 -model digits -input input -shape 1,1,8,8 -clients 32 -grpc
//	serve -url http://127.0.0.1:8000 -post /v1/embeddings -body request.json -type application/json -clients 8 -pid 4711
//	serve -url http://127.0.0.1:8000 -model digits -input input -shape 1,1,8,8 -print
//	serve -echo socket -shape 16777216
//	serve -direct digits.pt2 -input input -shape 1,1,8,8
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// A report is what is printed. Times are in seconds, from when a request was due.
type report struct {
	Asked      int         `json:"asked"`
	Statuses   map[int]int `json:"statuses"`
	Seconds    float64     `json:"seconds"`
	PerSecond  float64     `json:"answered_per_second"`
	P50        float64     `json:"p50_seconds"`
	P99        float64     `json:"p99_seconds"`
	Max        float64     `json:"max_seconds"`
	RefusedP99 float64     `json:"refused_p99_seconds"`
	Bytes      int64       `json:"request_bytes"`
	Copy       float64     `json:"copy_seconds,omitempty"`
	// Processor is what the server's processes took for an answer, Resident what they have in the end.
	Processor float64 `json:"processor_seconds_per_answer,omitempty"`
	Resident  int64   `json:"resident_bytes,omitempty"`
	// Generator is what asking took, of processors that the server could else have.
	Generator float64 `json:"generator_processor_seconds,omitempty"`
	// Tokens are those that answers of OpenAI's protocol say that they have.
	Tokens float64 `json:"tokens_per_second,omitempty"`
}

// A load is what is asked, and how.
type load struct {
	url, model, input string
	shape             []int
	grpc              bool
	body              []byte
	client            *http.Client
	// post is a path to which the body is sent as it is, with each {n} of it a number of its own, as kind says.
	post, kind string
	count      atomic.Int64
	tokens     atomic.Int64
}

func main() {
	l := &load{}
	flag.StringVar(&l.url, "url", "http://127.0.0.1:8000", "server")
	flag.StringVar(&l.model, "model", "", "name of the model")
	flag.StringVar(&l.input, "input", "input", "name of its input, of FP32")
	flag.BoolVar(&l.grpc, "grpc", false, "by gRPC, not REST with binary tensors")
	shape := flag.String("shape", "1", "shape of the input")
	rate := flag.Float64("rate", 0, "requests in a second, an open loop")
	clients := flag.Int("clients", 1, "clients of a closed loop, where there is no rate")
	seconds := flag.Float64("seconds", 10, "for how long")
	direct := flag.String("direct", "", "file of a model to run by itself")
	memory := flag.Int64("memory", 0, "its budget in bytes")
	flag.StringVar(&l.post, "post", "", "path to send -body to, instead of a request of the protocol")
	flag.StringVar(&l.kind, "type", "application/octet-stream", "its content type")
	body := flag.String("body", "", "file that is the body; {n} in it is a number that is another in each request. Without one: the input's elements")
	pid := flag.Int("pid", 0, "process whose processor time and memory count, with those of its children")
	echo := flag.String("echo", "", "send the input's bytes to what sends them back, which is what copying costs: socket, or http (HTTP/2 with -grpc)")
	show := flag.Bool("print", false, "ask once and write the answer to standard output")
	flag.Parse()
	for _, n := range strings.Split(*shape, ",") {
		size, err := strconv.Atoi(n)
		if err != nil || size < 1 {
			fail(fmt.Errorf("-shape %s", *shape))
		}
		l.shape = append(l.shape, size)
	}
	if *direct != "" {
		print(l.direct(*direct, *memory, *seconds))
		return
	}
	l.connect()
	switch {
	case l.post == "":
		l.body = l.request()
	case *body == "":
		l.body = l.elements()
	default:
		var err error
		if l.body, err = os.ReadFile(*body); err != nil {
			fail(err)
		}
	}
	switch {
	case *echo == "socket":
		print(l.echo(*seconds))
		return
	case *echo == "http":
		print(l.echoHTTP(*clients, *seconds))
		return
	case *echo != "":
		fail(fmt.Errorf("-echo %s", *echo))
	case *show:
		if status := l.askFor(os.Stdout); status != http.StatusOK {
			fail(fmt.Errorf("status %d", status))
		}
		return
	}
	run := func() (*report, error) {
		if *rate > 0 {
			return l.open(*rate, *seconds)
		}
		return l.closed(*clients, *seconds)
	}
	if *pid == 0 {
		print(run())
		return
	}
	before, own := processes(*pid), processes(os.Getpid())
	r, err := run()
	if err == nil {
		after := processes(*pid)
		r.Generator = processes(os.Getpid()).seconds - own.seconds
		r.Processor = (after.seconds - before.seconds) / max(r.PerSecond*r.Seconds, 1)
		r.Resident = after.bytes
	}
	print(r, err)
}

// connect makes the client of the protocol.
func (l *load) connect() {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!l.grpc)
	protocols.SetUnencryptedHTTP2(l.grpc)
	l.client = &http.Client{
		Transport: &http.Transport{Protocols: protocols, MaxIdleConnsPerHost: 4096, DisableCompression: true}, Timeout: 5 * time.Minute,
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "serve:", err)
	os.Exit(1)
}

func print(r *report, err error) {
	if err != nil {
		fail(err)
	}
	text, err := json.Marshal(r)
	if err != nil {
		fail(err)
	}
	fmt.Println(string(text))
}

// elements are the input's bytes: numbers from 0 to 1.
func (l *load) elements() []byte {
	n := 1
	for _, size := range l.shape {
		n *= size
	}
	data := make([]byte, 0, 4*n)
	for i := range n {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(i%17)/16))
	}
	return data
}

// request is the body of a request.
func (l *load) request() []byte {
	data := l.elements()
	if !l.grpc {
		head := l.head(len(data))
		return append(head, data...)
	}
	field := func(to []byte, number int, value []byte) []byte {
		to = binary.AppendUvarint(to, uint64(number)<<3|2)
		to = binary.AppendUvarint(to, uint64(len(value)))
		return append(to, value...)
	}
	var dims, input, message []byte
	for _, n := range l.shape {
		dims = binary.AppendUvarint(dims, uint64(n))
	}
	input = field(field(field(nil, 1, []byte(l.input)), 2, []byte("FP32")), 3, dims)
	message = field(field(field(nil, 1, []byte(l.model)), 5, input), 7, data)
	framed := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message)))
	return append(framed, message...)
}

// head is the JSON before the bytes of so many elements.
func (l *load) head(size int) []byte {
	text, err := json.Marshal(map[string]any{
		"inputs": []any{map[string]any{
			"name": l.input, "shape": l.shape, "datatype": "FP32",
			"parameters": map[string]any{"binary_data_size": size},
		}},
		"parameters": map[string]any{"binary_data_output": true},
	})
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return text
}

// ask sends a request and returns the status of the answer, as HTTP's.
func (l *load) ask() int { return l.askFor(io.Discard) }

// tokensOf finds what an answer says of its tokens.
var tokensOf = regexp.MustCompile(`"completion_tokens": ?([0-9]+)`)

// askFor writes what is answered.
func (l *load) askFor(to io.Writer) int {
	path, body := "/v2/models/"+l.model+"/infer", l.body
	switch {
	case l.post != "":
		path = l.post
		if bytes.Contains(body, []byte("{n}")) {
			body = bytes.ReplaceAll(body, []byte("{n}"), strconv.AppendInt(nil, l.count.Add(1), 10))
		}
	case l.grpc:
		path = "/inference.GRPCInferenceService/ModelInfer"
	}
	req, err := http.NewRequest(http.MethodPost, l.url+path, bytes.NewReader(body))
	if err != nil {
		return 0
	}
	if l.post != "" {
		req.Header.Set("Content-Type", l.kind)
	} else if l.grpc {
		req.Header.Set("Content-Type", "application/grpc")
		req.Header.Set("Te", "trailers")
	} else {
		req.Header.Set("Inference-Header-Content-Length", strconv.Itoa(len(l.body)-len(l.tail())))
	}
	resp, err := l.client.Do(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	if l.kind == "application/json" {
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			return 0
		}
		if found := tokensOf.FindSubmatch(text); found != nil {
			n, _ := strconv.ParseInt(string(found[1]), 10, 64)
			l.tokens.Add(n)
		}
		_, _ = to.Write(text)
		return resp.StatusCode
	}
	if _, err := io.Copy(to, resp.Body); err != nil {
		return 0
	}
	if !l.grpc || resp.StatusCode != http.StatusOK {
		return resp.StatusCode
	}
	status := resp.Trailer.Get("Grpc-Status") + resp.Header.Get("Grpc-Status")
	return map[string]int{"0": 200, "8": 429, "4": 504, "14": 503}[status]
}

// tail is a slice as long as the elements, which are the end of the body.
func (l *load) tail() []byte {
	n := 4
	for _, size := range l.shape {
		n *= size
	}
	return l.body[len(l.body)-n:]
}

// A tally gathers answers.
type tally struct {
	mu       sync.Mutex
	statuses map[int]int
	answered []float64
	refused  []float64
}

func (t *tally) add(status int, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.statuses[status]++
	if status == http.StatusOK {
		t.answered = append(t.answered, took.Seconds())
	} else {
		t.refused = append(t.refused, took.Seconds())
	}
}

func quantile(list []float64, q float64) float64 {
	if len(list) == 0 {
		return 0
	}
	return list[min(int(q*float64(len(list))), len(list)-1)]
}

func (t *tally) report(took time.Duration, size int) *report {
	slices.Sort(t.answered)
	slices.Sort(t.refused)
	return &report{
		Asked: len(t.answered) + len(t.refused), Statuses: t.statuses, Seconds: took.Seconds(),
		PerSecond: float64(len(t.answered)) / took.Seconds(),
		P50:       quantile(t.answered, 0.5), P99: quantile(t.answered, 0.99), Max: quantile(t.answered, 1),
		RefusedP99: quantile(t.refused, 0.99), Bytes: int64(size),
	}
}

// open asks at a rate, and counts from when a request was due.
func (l *load) open(rate, seconds float64) (*report, error) {
	t := &tally{statuses: make(map[int]int)}
	var wait sync.WaitGroup
	begin := time.Now()
	for i := range int(rate * seconds) {
		due := begin.Add(time.Duration(float64(i) / rate * float64(time.Second)))
		time.Sleep(time.Until(due))
		wait.Go(func() { t.add(l.ask(), time.Since(due)) })
	}
	wait.Wait()
	r := t.report(time.Since(begin), len(l.body))
	r.Tokens = float64(l.tokens.Load()) / r.Seconds
	return r, nil
}

// closed has clients that ask again when they are answered. It says, too, what a copy of a request's bytes and back
// takes.
func (l *load) closed(clients int, seconds float64) (*report, error) {
	t := &tally{statuses: make(map[int]int)}
	var wait sync.WaitGroup
	begin := time.Now()
	for range clients {
		wait.Go(func() {
			for time.Since(begin).Seconds() < seconds {
				asked := time.Now()
				t.add(l.ask(), time.Since(asked))
			}
		})
	}
	wait.Wait()
	r := t.report(time.Since(begin), len(l.body))
	r.Tokens = float64(l.tokens.Load()) / r.Seconds
	there, back := make([]byte, len(l.body)), make([]byte, len(l.body))
	copy(there, l.body) // so that the pages are there
	copy(back, there)
	begin = time.Now()
	copy(there, l.body)
	copy(back, there)
	r.Copy = time.Since(begin).Seconds()
	return r, nil
}

// direct runs a model by itself.
func (l *load) direct(path string, memory int64, seconds float64) (*report, error) {
	ckpt, err := loader.Open(path)
	if err != nil {
		return nil, err
	}
	defer ckpt.Close()
	model, err := models.Build(ckpt, models.Options{})
	if err != nil {
		return nil, err
	}
	s, err := runtime.Start(context.Background(), model, runtime.Options{Memory: memory})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	x := &tensor.Tensor{DType: tensor.Float32, Layout: tensor.Contiguous(l.shape...), Data: l.elements()}
	if _, err := s.Run(context.Background(), runtime.Values{l.input: x}); err != nil { // which brings the weights
		return nil, err
	}
	t := &tally{statuses: make(map[int]int)}
	begin := time.Now()
	for time.Since(begin).Seconds() < seconds {
		asked := time.Now()
		if _, err := s.Run(context.Background(), runtime.Values{l.input: x}); err != nil {
			return nil, err
		}
		t.add(http.StatusOK, time.Since(asked))
	}
	return t.report(time.Since(begin), len(x.Data)), nil
}
