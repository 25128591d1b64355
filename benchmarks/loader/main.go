// Command loader is our side of the loader's benchmarks: it writes the test checkpoint, and opens and reads files on
// request in one process, so that a driver can interleave it with other readers.
//
// It knows package loader and the clock. It does not know who it is compared with: benchmarks/run_loader.sh does.
//
//	loader make 10000 OUT.pth     write a checkpoint of 10,000 small tensors
//	loader serve                  answer requests on standard input, one a line:
//	                              "open PATH" and "read PATH IN-FLIGHT", with nanoseconds and a count
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/optimem/optimem/internal/hostmem"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "loader:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 3 && args[0] == "make":
		n, err := strconv.Atoi(args[1])
		if err != nil {
			return err
		}
		return makeCheckpoint(context.Background(), args[2], n)
	case len(args) == 1 && args[0] == "serve":
		return serve(context.Background())
	}
	return fmt.Errorf("usage: loader make TENSORS FILE | loader serve")
}

// makeCheckpoint writes a file of n small tensors under the names that a transformer's have.
func makeCheckpoint(ctx context.Context, path string, n int) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 1<<20)
	if err := loader.WriteTorchZip(ctx, w, "archive", transformer(n)); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return f.Close()
}

// transformer names n tensors as a decoder's state dict does, each of 16 × 16 elements or a row of that.
func transformer(n int) []loader.TensorData {
	parts := []string{
		"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight", "self_attn.o_proj.weight",
		"mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight",
		"input_layernorm.weight", "post_attention_layernorm.weight",
	}
	tensors := make([]loader.TensorData, n)
	for i := range tensors {
		shape := tensor.Shape{16, 16}
		part := parts[i%len(parts)]
		if strings.Contains(part, "layernorm") {
			shape = shape[1:]
		}
		random := loader.Random{Tensor: uint64(i), DType: tensor.Float32, Scale: 0.02}
		tensors[i] = loader.TensorData{
			Name:   fmt.Sprintf("model.layers.%d.%s", i/len(parts), part),
			DType:  tensor.Float32,
			Shape:  shape,
			ReadAt: random.ReadAt,
		}
	}
	return tensors
}

// serve answers requests until its input ends.
func serve(ctx context.Context) error {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		request := strings.Fields(lines.Text())
		start := time.Now()
		n, err := int64(0), error(nil)
		switch {
		case len(request) == 2 && request[0] == "open":
			n, err = open(ctx, request[1])
		case len(request) == 3 && request[0] == "read":
			n, err = read(ctx, request[1], request[2])
		default:
			err = fmt.Errorf("what is %q?", lines.Text())
		}
		if err != nil {
			return err
		}
		fmt.Println(time.Since(start).Nanoseconds(), n)
	}
	return lines.Err()
}

// open opens and closes a checkpoint and returns how many weights it has.
func open(ctx context.Context, path string) (int64, error) {
	ckpt, err := loader.OpenWith(ctx, path, loader.Options{})
	if err != nil {
		return 0, err
	}
	return int64(len(ckpt.Weights)), ckpt.Close()
}

// slotBytes is the memory that weights are read into, over and over, as a pager does. It is as large as fio's four blocks
// together: from the page cache, where the bytes land decides the speed.
const slotBytes = 32 << 20

var slot *hostmem.Buf

// read reads all weights of a checkpoint, each in aligned pieces of at most a slot, and returns how many bytes they
// have.
func read(ctx context.Context, path, inFlight string) (int64, error) {
	n, err := strconv.Atoi(inFlight)
	if err != nil {
		return 0, err
	}
	if slot == nil {
		if slot, err = hostmem.Alloc(slotBytes, hostmem.Weights); err != nil {
			return 0, err
		}
	}
	ckpt, err := loader.OpenWith(ctx, path, loader.Options{})
	if err != nil {
		return 0, err
	}
	defer ckpt.Close()
	total := int64(0)
	for _, w := range ckpt.Weights {
		around, _ := w.Extent.Aligned()
		for off := int64(0); off < around.Bytes; off += slotBytes {
			piece := storage.Extent{
				Source: around.Source,
				Offset: around.Offset + off,
				Bytes:  min(slotBytes, around.Bytes-off),
			}
			if err := storage.Read(
				ctx, n, storage.Request{Extent: piece, Into: slot.Bytes()[:piece.Bytes]},
			); err != nil {
				return 0, err
			}
		}
		total += w.Bytes()
	}
	return total, nil
}
