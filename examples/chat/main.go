// Command chat answers conversations over HTTP, the text as it is written. Callers share the passes of one model, which
// may be larger than its budget.
//
//	go run ./examples/chat -memory 1073741824 SmolLM2-135M-Instruct
//	curl -N localhost:8080 -d '{"messages": [{"role": "user", "content": "Why is the sky blue?"}]}'
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"log"
	"net/http"
	"time"

	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/runtime"
)

func main() {
	address := flag.String("address", "localhost:8080", "where to listen")
	memory := flag.Int64("memory", 0, "budget in bytes; 0 is what there is")
	flag.Parse()
	writer, err := open(context.Background(), flag.Arg(0), *memory)
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Addr: *address, Handler: answer(writer), ReadTimeout: 30 * time.Second}
	log.Fatal(server.ListenAndServe())
}

// open starts a model for eight conversations at once. It stays open as long as the program runs.
func open(ctx context.Context, path string, memoryBytes int64) (*generate.Writer, error) {
	text, err := generate.OpenText(path)
	if err != nil {
		return nil, err
	}
	ckpt, err := loader.Open(path)
	if err != nil {
		return nil, err
	}
	model, err := models.Build(ckpt, models.Options{})
	if err != nil {
		return nil, err
	}
	engine, err := generate.New(
		ctx, model, generate.Options{Session: runtime.Options{Memory: memoryBytes}, Sequences: 8},
	)
	return generate.NewWriter(text, engine), err
}

// answer streams what the model says to a conversation. It ends when the caller goes away, and so does the work for it.
func answer(w *generate.Writer) http.Handler {
	return http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		var asked struct{ Messages []generate.Message }
		if err := json.NewDecoder(http.MaxBytesReader(out, in.Body, 1<<20)).Decode(&asked); err != nil ||
			len(asked.Messages) == 0 {
			http.Error(out, `send {"messages": [{"role": "user", "content": "…"}]}`, http.StatusBadRequest)
			return
		}
		r := generate.TextRequest{Messages: asked.Messages}
		r.Request.MaxTokens, r.Request.Sampling = 512, w.Defaults().Sampling
		out.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, err := w.Write(in.Context(), r, func(piece string) error {
			_, err := io.WriteString(out, piece)
			return errors.Join(err, http.NewResponseController(out).Flush())
		})
		if bad := new(generate.RequestError); errors.As(err, &bad) {
			http.Error(out, err.Error(), http.StatusBadRequest) // nothing was written yet
		} else if err != nil {
			log.Print(err)
		}
	})
}
