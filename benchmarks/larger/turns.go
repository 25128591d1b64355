package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// A turn is a row of some work in one of several rounds, as run and larger_peers.py print it.
type turn struct {
	Name      string  `json:"name"`
	Round     int     `json:"round"`
	Sequences int     `json:"sequences"`
	RowsEach  int     `json:"rows_each"`
	Passes    int     `json:"passes"`
	Tokens    float64 `json:"tokens"`
	PerSecond float64 `json:"tokens_per_second"`
	OfLimit   float64 `json:"of_limit"`
	DiskBytes float64 `json:"disk_bytes_per_second"`
	Hash      string  `json:"logits_hash"`
	Bytes     float64 `json:"bytes_per_token"`
	// Of experts: those that were read in all passes and the least, whether nothing else was read, and how often another
	// program found the same next token.
	Reads  int64    `json:"expert_reads"`
	Least  int64    `json:"belady_reads"`
	Exact  *bool    `json:"exact"`
	Agreed *float64 `json:"agreed"`
}

// A work is what gives the same logits.
type work struct {
	sequences, rows, passes int
	tokens                  float64
}

func (t *turn) work() work { return work{t.Sequences, t.RowsEach, t.Passes, t.Tokens} }

// each is how many tokens a pass writes.
func (t *turn) each() float64 { return t.Tokens / float64(t.Passes) }

// A summary is what all rounds come to. What another program was measured with is in it, too.
type summary struct {
	Name   string `json:"name"`
	Rounds int    `json:"rounds"`
	// PerSecond, OfLimit and DiskBytes are medians over the rounds, by work.
	PerSecond map[string]float64 `json:"tokens_per_second"`
	OfLimit   map[string]float64 `json:"of_limit"`
	DiskBytes map[string]float64 `json:"disk_bytes_per_second"`
	// Ratios are how many times the tokens a second of the first work each other one has: the median of what each round
	// says for itself, since rates of a disk drift from round to round. Least and Most are of the rounds that say least
	// and most.
	Ratios map[string]float64 `json:"ratios"`
	Least  map[string]float64 `json:"least_ratios"`
	Most   map[string]float64 `json:"most_ratios"`
	// OfPasses are how many times the passes a second of the first work each has that has more rows in a pass: what is left
	// of as many times its tokens as a pass writes. They are medians of rounds, as ratios are.
	OfPasses map[string]float64 `json:"of_passes,omitempty"`
	// Bytes are medians of what was read for a token. OfLeast is how many times the experts were read that had to be,
	// Exact whether nothing else was read in any round, Agreed the least of what other programs say.
	Bytes   map[string]float64 `json:"bytes_per_token"`
	OfLeast map[string]float64 `json:"reads_of_least,omitempty"`
	Exact   *bool              `json:"exact,omitempty"`
	Agreed  *float64           `json:"agreed,omitempty"`
}

// sumTurns reads rows, a line of JSON each, and prints a summary of them.
func sumTurns(in io.Reader, out io.Writer) error {
	var rows []turn
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var t turn
		if err := json.Unmarshal(lines.Bytes(), &t); err != nil {
			return fmt.Errorf("turns: row %d: %w", len(rows)+1, err)
		}
		rows = append(rows, t)
	}
	if err := lines.Err(); err != nil {
		return err
	}
	s, err := summed(rows)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(s)
}

// summed is the summary of rows, of which the first is of the work that others are compared with.
func summed(rows []turn) (*summary, error) {
	if len(rows) == 0 {
		return nil, errors.New("turns: no rows")
	}
	s := &summary{
		Name: "in turns", PerSecond: make(map[string]float64), OfLimit: make(map[string]float64),
		DiskBytes: make(map[string]float64),
		Ratios:    make(map[string]float64), Least: make(map[string]float64), Most: make(map[string]float64),
		Bytes: make(map[string]float64), OfLeast: make(map[string]float64), OfPasses: make(map[string]float64),
	}
	first := make(map[int]turn)
	hashes := make(map[work]string)
	rates, parts, disks, ratios, read := make(map[string][]float64), make(map[string][]float64),
		make(map[string][]float64), make(map[string][]float64), make(map[string][]float64)
	passes := make(map[string][]float64)
	for _, t := range rows {
		if t.PerSecond <= 0 {
			return nil, fmt.Errorf("turns: round %d: %s: no tokens", t.Round, t.Name)
		}
		if before, known := hashes[t.work()]; t.Hash != "" && known && before != t.Hash {
			return nil, fmt.Errorf("turns: round %d: %s: logits differ from those of the same work before", t.Round,
				t.Name)
		} else if t.Hash != "" {
			hashes[t.work()] = t.Hash
		}
		if t.Name == rows[0].Name {
			first[t.Round] = t
		}
		rates[t.Name], read[t.Name] = append(rates[t.Name], t.PerSecond), append(read[t.Name], t.Bytes)
		s.experts(t)
		if t.DiskBytes > 0 {
			parts[t.Name], disks[t.Name] = append(parts[t.Name], t.OfLimit), append(disks[t.Name], t.DiskBytes)
		}
	}
	s.Rounds = len(first)
	for _, t := range rows {
		if one, ok := first[t.Round]; ok && t.Name != one.Name {
			ratios[t.Name] = append(ratios[t.Name], t.PerSecond/one.PerSecond)
			if t.RowsEach > 1 && t.Tokens > 0 && one.Tokens > 0 {
				of := t.PerSecond / one.PerSecond * one.each() / t.each()
				passes[t.Name] = append(passes[t.Name], of)
			}
		}
	}
	for from, to := range map[*map[string][]float64]map[string]float64{&rates: s.PerSecond, &parts: s.OfLimit,
		&disks: s.DiskBytes, &read: s.Bytes, &passes: s.OfPasses} {
		for name, list := range *from {
			to[name] = median(list)
		}
	}
	for name, list := range ratios {
		key := name + " / " + rows[0].Name
		s.Ratios[key], s.Least[key], s.Most[key] = median(list), slices.Min(list), slices.Max(list)
	}
	return s, nil
}

// experts counts a row of experts: the worst of all rounds counts.
func (s *summary) experts(t turn) {
	if t.Least > 0 {
		s.OfLeast[t.Name] = max(s.OfLeast[t.Name], float64(t.Reads)/float64(t.Least))
	}
	if t.Exact != nil && (s.Exact == nil || *s.Exact) {
		s.Exact = t.Exact
	}
	if t.Agreed != nil && (s.Agreed == nil || *t.Agreed < *s.Agreed) {
		s.Agreed = t.Agreed
	}
}

// median is the middle of numbers, or of the two in the middle; they are sorted then.
func median(list []float64) float64 {
	slices.Sort(list)
	n := len(list)
	return (list[(n-1)/2] + list[n/2]) / 2
}

// turns is sumTurns of what the command is given.
func turns() error { return sumTurns(os.Stdin, os.Stdout) }
