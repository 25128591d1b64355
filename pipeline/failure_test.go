package pipeline_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"errors"
	"io"
	"math/big"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/optimem/optimem/pipeline"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// TestInputError: an input that a stage cannot compute with is that call's error, and the stages go on.
func TestInputError(t *testing.T) {
	model := open(t, llama)
	opts := pipeline.Options{}
	var computed [3]atomic.Int64
	for i := range computed {
		observed := runtime.Options{Observe: func(e runtime.Event) {
			if e.Kind == runtime.PassDone {
				computed[i].Add(1)
			}
		}}
		opts.Stages = append(opts.Stages, serve(t, model, pipeline.StageOptions{Session: observed}).address)
	}
	in := inputs(llama, 0)
	p := pipe(t, model, shapesOf(in), opts)
	wrong := runtime.Values{"input_ids": tensor.Of([]int64{1, 2, 3, 400, 5, 6, 7, 8, 9}, 1, 9)}
	for range 3 {
		_, err := p.Run(t.Context(), wrong)
		var input *runtime.InputError
		var stage *pipeline.StageError
		if !errors.As(err, &input) || !errors.As(err, &stage) || stage.Stage != 0 || input.Input != "input_ids" {
			t.Fatalf("got %v", err)
		}
		got, err := p.Run(t.Context(), in)
		if err == nil {
			err = sameBits(got, alone(t, model, in))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range computed {
		if n := computed[i].Load(); n < 3 || i > 0 && n > 3 {
			t.Errorf("stage %d computed %d passes: 3 were good, and it does nothing for those that failed before", i+1, n)
		}
	}
	for name, in := range map[string]runtime.Values{
		"another dtype":  {"input_ids": tensor.Of(make([]int32, 9), 1, 9)},
		"larger":         {"input_ids": tensor.Of(make([]int64, 20), 1, 20)},
		"an unknown one": {"x": tensor.Of(make([]int64, 9), 1, 9)},
		"none":           {},
		"nil":            {"input_ids": nil},
	} {
		if _, err := p.Run(t.Context(), in); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	out := runtime.Values{"logits": tensor.Of(make([]float32, 3), 3)}
	var output *runtime.OutputError
	if err := p.RunInto(t.Context(), in, out); !errors.As(err, &output) {
		t.Errorf("an output that does not fit: %v", err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Run(over, in); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := p.Run(t.Context(), in); err != nil {
		t.Errorf("after all that: %v", err)
	}
}

// TestStageDies: when a stage goes away, what is under way ends in an error that names it, and can be run again.
func TestStageDies(t *testing.T) {
	model := open(t, digits)
	in := inputs(digits, 1)
	want := alone(t, model, in)
	for dying := range 3 {
		opts := pipeline.Options{}
		var stages []served
		for range 3 {
			stages = append(stages, serve(t, model, pipeline.StageOptions{}))
			opts.Stages = append(opts.Stages, stages[len(stages)-1].address)
		}
		p := pipe(t, model, shapesOf(in), opts)
		var all sync.WaitGroup
		first := make(chan struct{}, 4)
		for range 4 {
			all.Go(func() {
				for n := 0; ; n++ {
					got, err := p.Run(context.Background(), in)
					if err != nil {
						var stage *pipeline.StageError
						if !errors.As(err, &stage) {
							t.Errorf("without stage %d: %v", dying, err)
						}
						return
					}
					if err := sameBits(got, want); err != nil {
						t.Error(err)
					}
					if n == 0 {
						first <- struct{}{}
					}
				}
			})
		}
		<-first
		stages[dying].stop()
		all.Wait()
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if _, err := p.Run(t.Context(), in); err == nil {
			t.Error("a pipeline that ended runs")
		}
		opts.Stages[dying] = serve(t, model, pipeline.StageOptions{}).address
		got, err := pipe(t, model, shapesOf(in), opts).Run(t.Context(), in)
		if err == nil {
			err = sameBits(got, want)
		}
		if err != nil {
			t.Errorf("again, after stage %d: %v", dying, err)
		}
	}
}

// TestOneHead: a stage computes for one head at a time, and for the next one when that is gone.
func TestOneHead(t *testing.T) {
	model := open(t, digits)
	in := inputs(digits, 1)
	opts := pipeline.Options{Slower: true, Wait: time.Millisecond}
	for range 2 {
		opts.Stages = append(opts.Stages, serve(t, model, pipeline.StageOptions{}).address)
	}
	p := pipe(t, model, shapesOf(in), opts)
	if _, err := pipeline.Open(t.Context(), model, shapesOf(in), opts); !errors.Is(err, pipeline.ErrBusy) {
		t.Errorf("a second head: %v", err)
	}
	p.Close()
	if _, err := p.Run(t.Context(), in); !errors.Is(err, pipeline.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	opts.Wait = 0
	if _, err := pipe(t, model, shapesOf(in), opts).Run(t.Context(), in); err != nil {
		t.Error(err)
	}
}

// TestRefusals: what cannot work is refused before anything runs.
func TestRefusals(t *testing.T) {
	model := open(t, digits)
	shapes := shapesOf(inputs(digits, 0))
	var two []string
	for range 2 {
		two = append(two, serve(t, model, pipeline.StageOptions{Token: []byte("the token of all")}).address)
	}
	token := []byte("the token of all")
	var slower *pipeline.SlowerError
	if _, err := pipeline.Open(t.Context(), model, shapes, pipeline.Options{Stages: two, Token: token, LinkSeconds: 10}); !errors.As(err, &slower) ||
		slower.PassSeconds < 10 || slower.AloneSeconds <= 0 || slower.AloneSeconds >= slower.PassSeconds {
		t.Errorf("over a slow link: %v", err)
	}
	var auth *pipeline.AuthError
	if _, err := pipeline.Open(t.Context(), model, shapes, pipeline.Options{Stages: two, Token: []byte("another")}); !errors.As(err, &auth) {
		t.Errorf("another token: %v", err)
	}
	if _, err := pipeline.Open(t.Context(), open(t, llama), shapes, pipeline.Options{Stages: two, Token: token}); !errors.Is(err, pipeline.ErrModel) {
		t.Errorf("another model: %v", err)
	}
	for name, opts := range map[string]pipeline.Options{
		"one stage":   {Stages: two[:1]},
		"a place":     {Stages: two, At: []string{"nowhere"}},
		"many places": {Stages: two, At: []string{"pool", "top"}},
		"a window":    {Stages: two, Window: 1000},
	} {
		opts.Token, opts.Slower = token, true
		if p, err := pipeline.Open(t.Context(), model, shapes, opts); err == nil {
			p.Close()
			t.Errorf("%s is taken", name)
		}
	}
	conn, err := net.Dial("tcp", two[0])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if pipeline.Intrude(t, conn) {
		t.Error("who does not know the token is answered")
	}
	small := serve(t, model, pipeline.StageOptions{Token: token, Session: runtime.Options{Memory: 5000}}).address
	var full *runtime.CapacityError
	if _, err := pipeline.Open(t.Context(), model, shapes, pipeline.Options{Stages: []string{small, two[1]}, Token: token, At: []string{"hidden"}}); !errors.As(err, &full) ||
		full.MinBytes <= 5000 {
		t.Errorf("too little memory: %v", err)
	}
}

// pair makes a certificate for this host, and the settings of both ends.
func pair(t *testing.T) (listens, dials *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "stages"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	raw, err := x509.CreateCertificate(rand.Reader, about, about, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	known := x509.NewCertPool()
	known.AddCert(cert)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{raw}, PrivateKey: key}}, MinVersion: tls.VersionTLS13},
		&tls.Config{RootCAs: known, MinVersion: tls.VersionTLS13}
}

// TestTLS: stages with certificates speak TLS with heads and with each other, and with nobody who does not.
func TestTLS(t *testing.T) {
	model := open(t, digits)
	in := inputs(digits, 1)
	listens, dials := pair(t)
	token := []byte("the token of all")
	opts := pipeline.Options{Token: token, TLS: dials}
	for range 3 {
		opts.Stages = append(opts.Stages, serve(t, model, pipeline.StageOptions{Token: token, TLS: listens, Dial: dials}).address)
	}
	p := pipe(t, model, shapesOf(in), opts)
	got, err := p.Run(t.Context(), in)
	if err == nil {
		err = sameBits(got, alone(t, model, in))
	}
	if err != nil {
		t.Error(err)
	}
	p.Close()
	_, strangers := pair(t)
	for name, config := range map[string]*tls.Config{"plain": nil, "another authority": strangers} {
		opts.TLS = config
		if p, err := pipeline.Open(t.Context(), model, shapesOf(in), opts); err == nil {
			p.Close()
			t.Errorf("%s is taken", name)
		}
	}
}

// TestHostile: whoever says something else than a head does is cut off, and a head that comes then is served.
func TestHostile(t *testing.T) {
	model := open(t, digits)
	in := inputs(digits, 1)
	opts := pipeline.Options{}
	for range 2 {
		opts.Stages = append(opts.Stages, serve(t, model, pipeline.StageOptions{}).address)
	}
	header := func(kind byte, n uint64) []byte {
		h := make([]byte, 24)
		h[0] = kind
		binary.BigEndian.PutUint64(h[16:], n)
		return h
	}
	for name, said := range map[string][]byte{
		"nothing":      nil,
		"HTTP":         []byte("GET / HTTP/1.1\r\nHost: stage\r\n\r\n" + strings.Repeat("x", 64)),
		"zeros":        make([]byte, 4096),
		"long JSON":    header(1, 1<<40),
		"no JSON":      append(header(1, 4), "{{{{"...),
		"a pass early": header(3, 1<<40),
		"a kind":       header(200, 0),
		"a length":     header(1, 1<<63),
	} {
		conn, err := net.Dial("tcp", opts.Stages[0])
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(name, "HTTP") || name == "zeros" || name == "nothing" {
			_, _ = conn.Write(said)
		} else {
			pipeline.Greet(t, conn)
			_, _ = conn.Write(said)
		}
		if name == "nothing" {
			conn.Close()
			continue
		}
		_, _ = io.Copy(io.Discard, conn) // until it is cut off
		conn.Close()
	}
	got, err := pipe(t, model, shapesOf(in), opts).Run(t.Context(), in)
	if err == nil {
		err = sameBits(got, alone(t, model, in))
	}
	if err != nil {
		t.Error(err)
	}
}

// TestHostilePass: a head whose passes are not as they were agreed on is cut off, and takes no memory by that.
func TestHostilePass(t *testing.T) {
	model := open(t, digits)
	shapes := shapesOf(inputs(digits, 0))
	stage := serve(t, model, pipeline.StageOptions{})
	for _, frame := range []struct {
		name string
		n    uint64
		body string
	}{
		{"no shapes", 0, ""},
		{"long shapes", 1 << 40, "\xff\xff\xff\xff"},
		{"shapes beyond the frame", 6, "\x00\x00\x00\x09{}"},
		{"no JSON", 6, "\x00\x00\x00\x02}{"},
		{"other shapes", 1 << 40, "\x00\x00\x00\x1a{\"input\":[1000000,1,8,8]}  "},
		{"shapes below zero", 1 << 40, "\x00\x00\x00\x14{\"input\":[-1,1,8,8]}"},
		{"more bytes", 4 + 19 + 1<<40, "\x00\x00\x00\x13{\"input\":[2,1,8,8]}"},
	} {
		conn := pipeline.OpenLast(t, stage.address, model, shapes, "hidden")
		h := make([]byte, 24)
		h[0] = 3
		binary.BigEndian.PutUint64(h[16:], frame.n)
		if _, err := conn.Write(append(h, frame.body...)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, conn); err != nil && !strings.Contains(err.Error(), "reset") {
			t.Errorf("%s: %v", frame.name, err)
		}
		conn.Close()
	}
}

// TestStuck: a stage that is there and does nothing is noticed.
func TestStuck(t *testing.T) {
	model := open(t, digits)
	in := inputs(digits, 1)
	stopped := make(chan struct{})
	opts := pipeline.Options{Patience: 300 * time.Millisecond}
	opts.Stages = append(opts.Stages, serve(t, model, pipeline.StageOptions{}).address)
	opts.Stages = append(opts.Stages, between(t, serve(t, model, pipeline.StageOptions{}).address, stopped))
	for { // a machine that is slow may take longer than that to begin
		p := pipe(t, model, shapesOf(in), opts)
		if _, err := p.Run(t.Context(), in); err != nil {
			if !errors.Is(err, pipeline.ErrStuck) {
				t.Fatal(err)
			}
			p.Close()
			opts.Patience *= 2
			continue
		}
		close(stopped)
		_, err := p.Run(t.Context(), in)
		var stage *pipeline.StageError
		if !errors.Is(err, pipeline.ErrStuck) || !errors.As(err, &stage) || stage.Stage != 1 {
			t.Errorf("got %v", err)
		}
		return
	}
}

// between passes on what goes to an address and comes back, until stopped is closed: then nothing goes any more.
func between(t *testing.T, address string, stopped <-chan struct{}) string {
	t.Helper()
	return relay(t, address, func(to, from net.Conn) {
		defer to.Close()
		defer from.Close()
		room := make([]byte, 64<<10)
		for {
			n, err := from.Read(room)
			select {
			case <-stopped:
				<-t.Context().Done()
				return
			default:
			}
			if _, failed := to.Write(room[:n]); err != nil || failed != nil {
				return
			}
		}
	})
}
