// Command service answers requests for a model of the program's own over HTTP, in the protocols that clients know, within a
// budget that is smaller than its weights: waiting requests share a pass.
//
//	go run ./examples/service examples/digits/digits.pt2
//	curl localhost:8080/v2/models/model
package main

import (
	"context"
	"log"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/serve"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	listener, err := net.Listen("tcp", "localhost:8080")
	if err != nil {
		log.Fatal(err)
	}
	if err := run(ctx, listener, os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

// run serves the model of a file until ctx is done, and then what has begun. A program with a mux of its own mounts
// registry.Handler() there.
func run(ctx context.Context, listener net.Listener, path string) error {
	ckpt, err := loader.Open(path)
	if err != nil {
		return err
	}
	defer ckpt.Close()
	model, err := models.Build(ckpt, models.Options{})
	if err != nil {
		return err
	}
	registry, err := serve.New(serve.Options{Memory: 200 << 10, MaxBody: 1 << 20, MaxQueue: 64})
	if err != nil {
		return err
	}
	defer registry.Close()
	if err := registry.Add(ctx, "model", model); err != nil {
		return err
	}
	handler := serve.Guard{Local: true}.Protect(registry.Handler())
	return registry.Serve(ctx, 10*time.Second, &serve.Site{Listener: listener, Server: serve.NewServer(handler)})
}
