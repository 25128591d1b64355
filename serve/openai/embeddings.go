package openai

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"net/http"

	"github.com/optimem/optimem/embed"
)

// A vectorObject is the vector of a text: a list of numbers, or base64 of float32s in little-endian order.
type vectorObject struct {
	Object    string `json:"object"`
	Index     int    `json:"index"`
	Embedding any    `json:"embedding"`
}

// A vectorsObject has the vectors of all texts.
type vectorsObject struct {
	Object string         `json:"object"`
	Data   []vectorObject `json:"data"`
	Model  string         `json:"model"`
	Usage  vectorsUsage   `json:"usage"`
}

type vectorsUsage struct {
	Prompt int `json:"prompt_tokens"`
	Total  int `json:"total_tokens"`
}

// An embeddingsRequest is one for /v1/embeddings.
type embeddingsRequest struct {
	model  string
	texts  []string
	base64 bool
	// dim is how many numbers the vectors have, 0 for all.
	dim int
	// prompt is the name of the folder's text that goes before each text.
	prompt string
	// cut tells that texts that are too long are to be cut.
	cut bool
}

// embeddingsRequest takes a request apart.
func (h *Handler) embeddingsRequest(p *params) (*embeddingsRequest, error) {
	r := &embeddingsRequest{model: p.text("model"), prompt: p.text("prompt_name")}
	if r.model == "" {
		p.fail(invalid("model", "you must provide a model parameter"))
	}
	inputs := prompts(p, "input")
	if len(inputs) > h.opts.MaxInputs {
		p.fail(invalid("input", "input has %d texts: %d at once are possible", len(inputs), h.opts.MaxInputs))
	}
	for _, input := range inputs {
		if input.tokens != nil {
			// Clients who send them made them with a tokenizer of OpenAI's, whose numbers mean other words here.
			p.fail(unsupported("input", "input has tokens, and only texts are supported here: tokens of another model's tokenizer would "+
				"give vectors of other words. With LangChain, set check_embedding_ctx_length=False"))
			break
		}
		r.texts = append(r.texts, input.text)
	}
	switch format := p.text("encoding_format"); format {
	case "", "float":
	case "base64":
		r.base64 = true
	default:
		p.fail(invalid("encoding_format", "encoding_format is %q: it must be float or base64", format))
	}
	if x, ok := p.integer("dimensions", 1, maxInteger); ok {
		r.dim = int(x)
	}
	if x, ok := p.integer("truncate_prompt_tokens", -1, -1); ok { // what other servers call it: as many as the model takes
		r.cut = x < 0
	}
	p.drop("user")
	return r, p.done()
}

// embeddings answers POST /v1/embeddings.
func (h *Handler) embeddings(w http.ResponseWriter, r *http.Request) error {
	p, err := h.body(w, r)
	if err != nil {
		return err
	}
	request, err := h.embeddingsRequest(p)
	if err != nil {
		return err
	}
	lease, err := h.models.Embedder(r.Context(), Need{request.model, len(request.texts)})
	if err != nil {
		return err
	}
	if lease.Release != nil {
		defer lease.Release()
	}
	if dim := lease.Embedder.Dim(); request.dim > dim {
		return invalid("dimensions", "dimensions is %d, and the model's vectors have %d", request.dim, dim)
	}
	if h.opts.Reserve != nil {
		// Numbers wait, are in the result, and are written in JSON, which grows by doubling and is copied.
		numberBytes := int64(4 + 4 + 3*16)
		if request.base64 {
			numberBytes = 4 + 4 + 4 + 4*6
		}
		free, err := h.opts.Reserve(r.Context(), int64(len(request.texts))*int64(lease.Embedder.Dim())*numberBytes)
		if err != nil {
			return err
		}
		defer free()
	}
	result, err := lease.Embedder.Embed(r.Context(), embed.Request{Texts: request.texts, Prompt: request.prompt})
	if err != nil {
		return err
	}
	if result.Cut > 0 && !request.cut {
		e := invalid("input", "%d of the texts have more tokens than the model takes; truncate_prompt_tokens: -1 cuts them", result.Cut)
		e.Code = "context_length_exceeded"
		return e
	}
	answer(w, http.StatusOK, request.object(result))
	return nil
}

// object is the answer.
func (r *embeddingsRequest) object(result *embed.Result) vectorsObject {
	o := vectorsObject{Object: "list", Data: make([]vectorObject, len(r.texts)), Model: r.model}
	for i := range r.texts {
		vector := shortened(result.Vector(i), r.dim)
		o.Data[i] = vectorObject{"embedding", i, vector}
		if r.base64 {
			bytes := make([]byte, 0, 4*len(vector))
			for _, x := range vector {
				bytes = binary.LittleEndian.AppendUint32(bytes, math.Float32bits(x))
			}
			o.Data[i].Embedding = base64.StdEncoding.EncodeToString(bytes)
		}
		o.Usage.Prompt += result.Tokens[i]
	}
	o.Usage.Total = o.Usage.Prompt
	return o
}

// shortened returns the first numbers of a vector. One of the length 1 has that length after it, too.
func shortened(vector []float32, dim int) []float32 {
	if dim == 0 || dim == len(vector) {
		return vector
	}
	length := func(v []float32) float64 {
		var sum float64
		for _, x := range v {
			sum += float64(x) * float64(x)
		}
		return math.Sqrt(sum)
	}
	const near = 1e-3
	whole := length(vector)
	cut := append([]float32(nil), vector[:dim]...)
	part := length(cut)
	if math.Abs(whole-1) > near || part == 0 {
		return cut
	}
	for i, x := range cut {
		cut[i] = float32(float64(x) / part)
	}
	return cut
}
