package serve

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/optimem/optimem/internal/preprocess"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/serve/internal/inference"
	"github.com/optimem/optimem/tensor"
)

const (
	pictureFiles = "../internal/preprocess/testdata/"
	pictureSpec  = "imagenet:resize=61,crop=32,filter=bicubic"
)

// serveLook serves a program that gives back what it gets, for pictures.
func serveLook(t testing.TB, spec string, opts Options) *Registry {
	t.Helper()
	return open(t, directory(t, map[string]string{
		"look.pt2": pictureFiles + "look.pt2", "look.model.json": fmt.Sprintf(`{"preprocess": {"input": "x", "spec": %q}}`, spec),
	}), opts)
}

// encodedPictures reads files of pictures.
func encodedPictures(t testing.TB, names ...string) [][]byte {
	t.Helper()
	var all [][]byte
	for _, name := range names {
		text, err := os.ReadFile(pictureFiles + name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, text)
	}
	return all
}

// pictureJSON is a request with pictures in base64.
func pictureJSON(files ...[]byte) string {
	texts := make([]string, len(files))
	for i, file := range files {
		texts[i] = base64.StdEncoding.EncodeToString(file)
	}
	data, err := json.Marshal(texts)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf(`{"inputs":[{"name":"x","shape":[%d],"datatype":"BYTES","data":%s}],"outputs":[{"name":"same"}]}`, len(files), data)
}

// withLengths is what the protocol has for texts: the length before each.
func withLengths(files [][]byte) []byte {
	var all []byte
	for _, file := range files {
		all = append(binary.LittleEndian.AppendUint32(all, uint32(len(file))), file...)
	}
	return all
}

// recordedValues are values that torchvision made of a picture, by their place.
func recordedValues(t testing.TB, file, spec string, each int) map[int]float32 {
	t.Helper()
	f, err := os.Open(pictureFiles + "expected.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var recorded []struct {
		File, Spec string
		Values     []float32
	}
	if err := json.NewDecoder(text).Decode(&recorded); err != nil {
		t.Fatal(err)
	}
	at := make(map[int]float32)
	for _, r := range recorded {
		if r.File == file && r.Spec == spec {
			for i, v := range r.Values {
				at[int(uint64(i)*2654435761%uint64(each))] = v
			}
		}
	}
	if len(at) == 0 {
		t.Fatalf("nothing is recorded of %s with %s", file, spec)
	}
	return at
}

// TestPictures: pictures in base64 and in bytes, in REST and gRPC, are the numbers that torchvision makes of them, as
// optimem run's are; and numbers go where pictures do.
func TestPictures(t *testing.T) {
	r := serveLook(t, pictureSpec, Options{})
	h := r.Handler()
	names := []string{"odd.png", "lossy_odd.webp"}
	files := encodedPictures(t, names...)
	const each, at = 3 * 32 * 32, "/v2/models/look/infer"
	var first []float32
	check := func(name string, got []float32) {
		t.Helper()
		if len(got) != 2*each {
			t.Fatalf("%s: %d values", name, len(got))
		}
		for n, file := range names {
			for i, want := range recordedValues(t, file, pictureSpec, each) {
				if math.Float32bits(got[n*each+i]) != math.Float32bits(want) {
					t.Errorf("%s: %s: value %d is %v, torchvision's %v", name, file, i, got[n*each+i], want)
				}
			}
		}
		if first == nil {
			first = got
		}
		if !sameFloats(got, first) {
			t.Errorf("%s: other values than of JSON", name)
		}
	}
	rest := func(name, body string, header ...string) {
		t.Helper()
		status, _, text := ask(h, "POST", at, body, header...)
		var a answered
		if err := json.Unmarshal([]byte(text), &a); status != 200 || err != nil || len(a.Outputs) != 1 {
			t.Fatalf("%s: %d %v %.200s", name, status, err, text)
		}
		check(name, a.Outputs[0].Data)
	}
	rest("JSON", pictureJSON(files...))
	texts := [][]byte{[]byte(base64.StdEncoding.EncodeToString(files[0])), files[1]}
	for name, list := range map[string][][]byte{"bytes": files, "base64 among bytes": texts} {
		raw := withLengths(list)
		head := fmt.Sprintf(`{"inputs":[{"name":"x","shape":[2,1],"datatype":"BYTES","parameters":{"binary_data_size":%d}}],"outputs":[{"name":"same"}]}`, len(raw))
		rest(name, head+string(raw), headerLength, strconv.Itoa(len(head)))
	}
	numbers, err := json.Marshal(first)
	if err != nil {
		t.Fatal(err)
	}
	rest("numbers", fmt.Sprintf(`{"inputs":[{"name":"x","shape":[2,3,32,32],"datatype":"FP32","data":%s}],"outputs":[{"name":"same"}]}`, numbers))
	server, client := serveHTTP(t, h)
	input := func() *inference.InferRequest_Input {
		return &inference.InferRequest_Input{Name: "x", Datatype: "BYTES", Shape: []int64{2}}
	}
	typed := &inference.InferRequest{ModelName: "look", Inputs: []*inference.InferRequest_Input{input()}}
	typed.Inputs[0].Contents = &inference.Contents{Texts: files}
	raw := &inference.InferRequest{ModelName: "look", Inputs: []*inference.InferRequest_Input{input()}, Raw: [][]byte{withLengths(files)}}
	for name, q := range map[string]*inference.InferRequest{"gRPC": typed, "gRPC's raw contents": raw} {
		q.Outputs = []*inference.InferRequest_Output{{Name: "same"}}
		a, err := call1[inference.InferRequest, inference.InferResponse](t, client, server, service+"ModelInfer", q)
		if err != nil {
			t.Fatal(name, err)
		}
		got, err := tensor.Slice[float32](&tensor.Tensor{DType: tensor.Float32, Layout: tensor.Contiguous(2 * each), Data: slices.Clone(a.Raw[0])})
		if err != nil {
			t.Fatal(err)
		}
		check(name, got)
	}
	typed.Inputs[0].Contents.Texts[1] = []byte("no picture")
	_, err = call1[inference.InferRequest, inference.InferResponse](t, client, server, service+"ModelInfer", typed)
	if connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), "row 1") {
		t.Error(err)
	}
	if _, _, body := ask(h, "GET", "/v2/models/look", ""); !strings.Contains(body, `"datatype":"FP32"`) ||
		!strings.Contains(body, `"parameters":{"pictures":"BYTES","preprocess":"`+pictureSpec+`"}`) {
		t.Error(body)
	}
}

// hugePNG is a PNG that says it has so many pixels, and ends.
func hugePNG(width, height uint32) []byte {
	chunk := binary.BigEndian.AppendUint32([]byte("IHDR"), width)
	chunk = append(binary.BigEndian.AppendUint32(chunk, height), 8, 2, 0, 0, 0)
	file := append([]byte("\x89PNG\r\n\x1a\n\x00\x00\x00\x0d"), chunk...)
	return binary.BigEndian.AppendUint32(file, crc32.ChecksumIEEE(chunk))
}

// TestBadPictures: a picture that is none, is cut short, or would take too much, is refused with its row, and nothing
// is held.
func TestBadPictures(t *testing.T) {
	r := serveLook(t, pictureSpec, Options{MaxBody: 128 << 10})
	plain := serveLook(t, "none", Options{MaxBody: 1 << 20})
	files := encodedPictures(t, "odd.png", "420.jpg", "lossy.webp", "animated.webp", "tall.png")
	good := files[0]
	for name, c := range map[string]struct {
		r          *Registry
		body, want string
	}{
		"cut PNG":       {r, pictureJSON(good, files[0][:1000]), "row 1: not a valid picture"},
		"cut JPEG":      {r, pictureJSON(files[1][:1000]), "row 0: not a valid picture"},
		"cut WebP":      {r, pictureJSON(good, good, files[2][:500]), "row 2: not a valid picture"},
		"animated":      {r, pictureJSON(good, files[3]), "row 1: unsupported picture"},
		"huge":          {r, pictureJSON(good, hugePNG(1<<20, 1<<20)), "row 1: picture exceeds the limit"},
		"large":         {r, pictureJSON(good, hugePNG(1000, 1000)), "row 1: picture exceeds the limit"},
		"nothing":       {r, pictureJSON(good, nil), "row 1: not a valid picture"},
		"no base64":     {r, `{"inputs":[{"name":"x","shape":[1],"datatype":"BYTES","data":["iVBORw0"]}]}`, "row 0: neither a picture nor base64"},
		"text":          {r, `{"inputs":[{"name":"x","shape":[1],"datatype":"BYTES","data":["a cat."]}]}`, "row 0: not a valid picture"},
		"no picture":    {r, `{"inputs":[{"name":"x","shape":[0],"datatype":"BYTES","data":[]}]}`, "0 pictures"},
		"shape":         {r, strings.Replace(pictureJSON(good, good), `[2]`, `[1,2]`, 1), "a picture is a row"},
		"unlike":        {plain, pictureJSON(good, files[4]), "row 1: it becomes "},
		"too many":      {r, pictureJSON(slices.Repeat(encodedPictures(t, "small.jpg"), 12)...), "take more bytes than a request may have"},
		"another input": {r, strings.Replace(pictureJSON(good), `"x"`, `"y"`, 1), `the model takes no BYTES`},
	} {
		status, _, body := ask(c.r.Handler(), "POST", "/v2/models/look/infer", c.body)
		if status != 400 || !strings.Contains(body, c.want) {
			t.Errorf("%s: %d %s, not 400 with %q", name, status, body, c.want)
		}
		if held := c.r.bodies.heldBytes(); held != 0 {
			t.Errorf("%s: %d bytes are held", name, held)
		}
	}
	if status, _, body := ask(r.Handler(), "POST", "/v2/models/look/infer", pictureJSON(good)); status != 200 {
		t.Errorf("after bad ones: %d %s", status, body)
	}
}

// TestPicturesHeld: rows are bytes of requests under way, and a request for which there is no room comes back.
func TestPicturesHeld(t *testing.T) {
	r := serveLook(t, pictureSpec, Options{MaxBody: 64 << 10, MaxBodies: 64 << 10})
	files := encodedPictures(t, "odd.png")
	body := pictureJSON(files...)
	text := int64(5 * len(body)) // the body, and what numbers in JSON may take
	file, row := int64(base64.StdEncoding.DecodedLen(base64.StdEncoding.EncodedLen(len(files[0])))), int64(3*32*32*4)
	v, err := r.find("look", "")
	if err != nil {
		t.Fatal(err)
	}
	pixels := runtime.Values{"x": tensor.Of(make([]float32, row/4), 1, 3, 32, 32)}
	_, answer := v.current().runner.(*tensorRunner).answer(t.Context(), pixels, 1)
	if answer == 0 {
		t.Error("the answer takes nothing")
	}
	whole := text + row + max(file, answer) // the file is free when its row is there
	for free, want := range map[int64]int{text + file - 1: 429, text + file + row - 1: 429, whole - 1: 429, whole: 200} {
		others := r.bodies.most - free
		r.bodies.take(others)
		status, header, answer := ask(r.Handler(), "POST", "/v2/models/look/infer", body)
		if status != want || want == 429 && header.Get("Retry-After") == "" {
			t.Errorf("%d bytes of room: %d %.200s, not %d", free, status, answer, want)
		}
		if held := r.bodies.heldBytes(); held != others {
			t.Errorf("%d bytes of room: %d bytes are held, not %d", free, held, others)
		}
		r.bodies.give(others)
	}
}

// TestPicturesWait: one picture is decoded at a time, and a request that nobody waits for any longer decodes none.
func TestPicturesWait(t *testing.T) {
	r := serveLook(t, pictureSpec, Options{})
	files := encodedPictures(t, "odd.png")
	r.decoding <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	status := make(chan int)
	go func() {
		req := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v2/models/look/infer", strings.NewReader(pictureJSON(files...)))
		w := httptest.NewRecorder()
		r.Handler().ServeHTTP(w, req)
		status <- w.Code
	}()
	select {
	case got := <-status:
		t.Fatalf("%d while another picture is decoded", got)
	case <-time.After(20 * time.Millisecond):
	}
	cancel()
	if got := <-status; got != statusClientGone {
		t.Errorf("%d for a client that is gone", got)
	}
	<-r.decoding
	p := &pictureBatch{pictureInput: &pictureInput{preparation: preparation{}, mostBytes: 1 << 20, bodies: &r.bodies, turn: r.decoding}, count: 1}
	for range 8 { // whichever of two ways is open is taken
		if err := p.add(ctx, 0, files[0]); err == nil || p.values != nil {
			t.Errorf("a picture was decoded for nobody: %v", err)
		}
	}
	if len(r.decoding) != 0 {
		t.Error("the turn is not given on")
	}
}

// TestPictureSettings: a model.json that says of pictures what cannot be is told of when the model is opened.
func TestPictureSettings(t *testing.T) {
	for text, want := range map[string]string{
		`{"preprocess": {"input": "y", "spec": "imagenet"}}`:          `the model has no input "y"`,
		`{"preprocess": {"input": "x", "spec": "cifar"}}`:             `unknown preprocessing "cifar": there is imagenet`,
		`{"preprocess": {"input": "x", "spec": "imagenet", "is": 1}}`: "unknown field",
		`{"preprocess": {"input": "x", "spec": "imagenet:crop=300"}}`: "larger than the resized picture",
	} {
		r := open(t, directory(t, map[string]string{"look.pt2": pictureFiles + "look.pt2", "look.model.json": text}), Options{})
		if got := states(r); !strings.HasPrefix(got, "look/1 UNAVAILABLE") || !strings.Contains(got, want) {
			t.Errorf("%s: %s", text, got)
		}
	}
	r := open(t, directory(t, map[string]string{"chat": chat, "chat/model.json": `{"preprocess": {"input": "x", "spec": "vit"}}`}), Options{})
	if got := states(r); !strings.Contains(got, "the model takes no tensors") {
		t.Error(got)
	}
}

// TestFolderPictures: a Hugging Face folder's input takes pictures as its preprocessor_config.json says, with what
// optimem makes of the numbers themselves; one whose processor is not known takes numbers, and says why no pictures.
func TestFolderPictures(t *testing.T) {
	const vit = "../models/testdata/families/hf/tiny_vit"
	const config = `{"image_processor_type":"ViTImageProcessorFast","size":{"height":8,"width":8},"resample":3,"image_mean":0.5,"image_std":0.25}`
	r := open(t, directory(t, map[string]string{
		"vit": vit, "vit/preprocessor_config.json": config, "other": vit,
		"other/preprocessor_config.json": `{"image_processor_type":"SamImageProcessor"}`, "plain": vit,
	}), Options{})
	h := r.Handler()
	files := encodedPictures(t, "odd.png", "lossy_odd.webp")
	spec, err := preprocess.ParseConfig([]byte(config))
	if err != nil {
		t.Fatal(err)
	}
	const each = 3 * 8 * 8
	pixels := make([]float32, 2*each)
	for i, file := range files {
		p, err := preprocess.Decode(bytes.NewReader(file), preprocess.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if err := spec.Apply(t.Context(), p, pixels[i*each:][:each]); err != nil {
			t.Fatal(err)
		}
	}
	want, err := r.Infer(t.Context(), "plain", runtime.Values{"pixel_values": tensor.Of(pixels, 2, 3, 8, 8)})
	if err != nil {
		t.Fatal(err)
	}
	logits, err := tensor.Slice[float32](want["logits"].Contiguous())
	if err != nil {
		t.Fatal(err)
	}
	body := strings.NewReplacer(`"name":"x"`, `"name":"pixel_values"`, `"same"`, `"logits"`).Replace(pictureJSON(files...))
	status, _, text := ask(h, "POST", "/v2/models/vit/infer", body)
	var a answered
	if err := json.Unmarshal([]byte(text), &a); status != 200 || err != nil || len(a.Outputs) != 1 || !sameFloats(a.Outputs[0].Data, logits) {
		t.Errorf("%d %v %.300s", status, err, text)
	}
	if _, _, text := ask(h, "GET", "/v2/models/vit", ""); !strings.Contains(text, `"pictures":"BYTES"`) || !strings.Contains(text, "preprocessor_config.json") {
		t.Error(text)
	}
	if status, _, text := ask(h, "POST", "/v2/models/other/infer", body); status != 501 || !strings.Contains(text, "SamImageProcessor") {
		t.Errorf("an unknown processor: %d %s", status, text)
	}
	if status, _, _ := ask(h, "POST", "/v2/models/plain/infer", body); status != 400 {
		t.Errorf("no processor: %d", status)
	}
}
