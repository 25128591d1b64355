package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
)

// TestService: a picture is told over HTTP, in less memory than the weights take, and the service ends when it is asked to.
func TestService(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, listener, "../digits/digits.pt2") }()
	file, err := os.ReadFile("../digits/pictures.npy")
	if err != nil {
		t.Fatal(err)
	}
	pixel := string(file[len(file)-64*4:])
	req, err := http.NewRequest("POST", "http://"+listener.Addr().String()+"/v2/models/model/infer", strings.NewReader(pixel))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Inference-Header-Content-Length", "0") // nothing but a picture
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var told struct {
		Outputs []struct{ Shape []int }
	}
	if err := json.NewDecoder(resp.Body).Decode(&told); err != nil || resp.StatusCode != 200 || told.Outputs[0].Shape[0] != 1 || told.Outputs[0].Shape[1] != 10 {
		t.Errorf("%d %+v %v", resp.StatusCode, told, err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := run(t.Context(), listener, "nowhere.pt2"); err == nil {
		t.Error("a service without a model")
	}
}
