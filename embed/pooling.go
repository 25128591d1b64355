package embed

import (
	"encoding/json"
	"math"
	"path/filepath"
)

// A pooling makes one vector of the states of a text's tokens.
type pooling struct {
	// modes are made each into a vector, one behind the other.
	modes []string
	// width is how many numbers a state has, 0 where the folder does not say.
	width int
	// prompts says that the tokens of the prompt count, too.
	prompts bool
	// file is where that is said.
	file string
}

// poolings are the modes, in the order in which the older entries of a configuration put their vectors.
var poolings = []struct {
	name, flag string
	pool       func(to, states []float32, width, from int)
}{
	{"cls", "pooling_mode_cls_token", poolFirst},
	{"max", "pooling_mode_max_tokens", poolMax},
	{"mean", "pooling_mode_mean_tokens", poolMean},
	{"mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens", poolRoot},
	{"weightedmean", "pooling_mode_weightedmean_tokens", poolWeighted},
	{"lasttoken", "pooling_mode_lasttoken", poolLast},
}

// maxModes bounds the modes of a pooling: each may be there once and some more.
const maxModes = 16

func (f *Folder) openPooling(path string) error {
	file := filepath.Join(path, "config.json")
	var c map[string]json.RawMessage
	found, err := f.readJSON(file, &c)
	if err != nil {
		return err
	}
	if !found || c == nil {
		return wrong(file, "does not say how to pool")
	}
	p := pooling{prompts: true, file: file}
	read := func(key string, to any) {
		if raw := c[key]; err == nil && raw != nil && string(raw) != "null" {
			if json.Unmarshal(raw, to) != nil {
				err = wrong(file, "%s is %.60s", key, raw)
			}
		}
	}
	read("word_embedding_dimension", &p.width)
	read("embedding_dimension", &p.width)
	read("include_prompt", &p.prompts)
	switch raw := c["pooling_mode"]; {
	case len(raw) > 0 && raw[0] == '[':
		read("pooling_mode", &p.modes)
	case raw != nil && string(raw) != "null":
		p.modes = make([]string, 1)
		read("pooling_mode", &p.modes[0])
	default:
		for _, mode := range poolings {
			var on bool
			if read(mode.flag, &on); on {
				p.modes = append(p.modes, mode.name)
			}
		}
		if len(p.modes) == 0 {
			p.modes = []string{"mean"}
		}
	}
	if err != nil {
		return err
	}
	if len(p.modes) == 0 || len(p.modes) > maxModes || p.width < 0 {
		return wrong(file, "has %d modes for states of %d numbers", len(p.modes), p.width)
	}
	for _, mode := range p.modes {
		if p.index(mode) < 0 {
			return unsupported(file, "the pooling %q", mode)
		}
	}
	f.pooling = p
	return nil
}

func (p *pooling) index(mode string) int {
	for i := range poolings {
		if poolings[i].name == mode {
			return i
		}
	}
	return -1
}

// pool writes the vector of a text's states, width numbers for each of its tokens, of which the first ones are the prompt's.
func (p *pooling) pool(to, states []float32, width, prompt int) {
	from := 0
	if !p.prompts {
		from = min(prompt, len(states)/width)
	}
	for i, mode := range p.modes {
		poolings[p.index(mode)].pool(to[i*width:][:width], states, width, from)
	}
}

// poolFirst takes the first token that counts, or the first at all.
func poolFirst(to, states []float32, width, from int) {
	if from == len(states)/width {
		from = 0
	}
	copy(to, states[from*width:][:width])
}

// poolLast takes the last token, zeros where none counts.
func poolLast(to, states []float32, width, from int) {
	clear(to)
	if n := len(states) / width; from < n {
		copy(to, states[(n-1)*width:])
	}
}

func poolMax(to, states []float32, width, from int) {
	for i := range to {
		to[i] = float32(math.Inf(-1))
	}
	for at := from * width; at < len(states); at += width {
		for i, x := range states[at:][:width] {
			to[i] = max(to[i], x)
		}
	}
}

func poolMean(to, states []float32, width, from int) {
	sum(to, states, width, from, func(int) float64 { return 1 }, func(n float64) float64 { return n })
}

func poolRoot(to, states []float32, width, from int) {
	sum(to, states, width, from, func(int) float64 { return 1 }, math.Sqrt)
}

// poolWeighted gives later tokens more weight: their place, from 1 on, of the whole text.
func poolWeighted(to, states []float32, width, from int) {
	sum(
		to, states, width, from, func(token int) float64 { return float64(token + 1) },
		func(n float64) float64 { return n },
	)
}

// sum adds up the states with weights, in float64, and divides by what divisor makes of the sum of the weights.
func sum(to, states []float32, width, from int, weight func(token int) float64, divisor func(float64) float64) {
	sums, all := make([]float64, width), 0.0
	for token := from; token < len(states)/width; token++ {
		w := weight(token)
		all += w
		for i, x := range states[token*width:][:width] {
			sums[i] += w * float64(x)
		}
	}
	const least = 1e-9 // as in sentence-transformers
	d := divisor(max(all, least))
	for i, s := range sums {
		to[i] = float32(s / d)
	}
}

// normalized makes a vector's length 1, as torch.nn.functional.normalize does.
func normalized(x []float32) {
	const least = 1e-12
	n := 0.0
	for _, v := range x {
		n += float64(v) * float64(v)
	}
	n = max(math.Sqrt(n), least)
	for i, v := range x {
		x[i] = float32(float64(v) / n)
	}
}

// normalizes reports whether a folder's vectors have the length 1 in the end.
func (f *Folder) normalizes() bool {
	if len(f.head) == 0 {
		return false
	}
	_, last := f.head[len(f.head)-1].(normalize)
	return last
}
