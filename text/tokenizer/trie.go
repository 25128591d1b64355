package tokenizer

import (
	"slices"
	"sort"
)

// A trie holds byte strings, each with a number. The children of a node lie one after the other, sorted by label, and
// so do the nodes: the memory of a trie is a small multiple of that of its strings.
type trie struct {
	root  [256]int32 // child of node 0 by label; 0 is none
	first []int32    // first child
	count []uint16   // children
	label []byte     // of the edge that leads here
	value []int32    // of the string that ends here, -1 for none
}

// newTrie makes a trie of strings and the numbers that at gives them. The last of equal strings counts.
func newTrie(keys []string, at func(int) int32) *trie {
	order := make([]int32, 0, len(keys))
	for i, k := range keys {
		if k != "" {
			order = append(order, int32(i))
		}
	}
	sort.SliceStable(order, func(i, j int) bool { return keys[order[i]] < keys[order[j]] })
	t := &trie{first: []int32{0}, count: []uint16{0}, label: []byte{0}, value: []int32{-1}}
	type work struct {
		node   int32
		lo, hi int32 // of order: the strings below the node
		depth  int32
	}
	queue := []work{{0, 0, int32(len(order)), 0}}
	for len(queue) > 0 {
		w := queue[0]
		queue = queue[1:]
		lo := w.lo
		for lo < w.hi && len(keys[order[lo]]) == int(w.depth) {
			t.value[w.node] = at(int(order[lo]))
			lo++
		}
		t.first[w.node] = int32(len(t.label))
		for lo < w.hi {
			b := keys[order[lo]][w.depth]
			hi := lo + int32(
				sort.Search(int(w.hi-lo), func(i int) bool { return keys[order[lo+int32(i)]][w.depth] > b }),
			)
			child := int32(len(t.label))
			t.first, t.count = append(t.first, 0), append(t.count, 0)
			t.label, t.value = append(t.label, b), append(t.value, -1)
			t.count[w.node]++
			queue = append(queue, work{child, lo, hi, w.depth + 1})
			lo = hi
		}
	}
	for i := range int32(t.count[0]) {
		c := t.first[0] + i
		t.root[t.label[c]] = c
	}
	return t
}

// child is where the edge b of a node leads, 0 for nowhere.
func (t *trie) child(node int32, b byte) int32 {
	if node == 0 {
		return t.root[b]
	}
	first, n := t.first[node], int32(t.count[node])
	labels := t.label[first : first+n]
	if n <= 8 {
		for i, l := range labels {
			if l == b {
				return first + int32(i)
			}
		}
		return 0
	}
	if i, ok := slices.BinarySearch(labels, b); ok {
		return first + int32(i)
	}
	return 0
}

// A finder finds for every place of a text the longest of its strings that begins there, in time that grows with the
// text and no more. It reads the text backwards through a trie of the reversed strings, with Aho and Corasick's links.
type finder struct {
	t      *trie
	fail   []int32 // the node of the longest suffix
	best   []int32 // the value of the longest string that ends the node's, -1 for none
	length []int32 // of that string
}

// newFinder makes a finder of strings; equal ones count as the last of them.
func newFinder(keys []string) *finder {
	reversed := make([]string, len(keys))
	for i, k := range keys {
		b := []byte(k)
		slices.Reverse(b)
		reversed[i] = string(b)
	}
	f := &finder{t: newTrie(reversed, func(i int) int32 { return int32(i) })}
	n := len(f.t.label)
	f.fail, f.best, f.length = make([]int32, n), make([]int32, n), make([]int32, n)
	f.best[0] = -1
	for node := range int32(n) { // parents come before children, and shorter strings before longer ones
		for i := range int32(f.t.count[node]) {
			c := f.t.first[node] + i
			if node != 0 {
				f.fail[c] = f.step(f.fail[node], f.t.label[c])
			}
			if v := f.t.value[c]; v >= 0 {
				f.best[c], f.length[c] = v, int32(len(keys[v]))
			} else {
				f.best[c], f.length[c] = f.best[f.fail[c]], f.length[f.fail[c]]
			}
		}
	}
	return f
}

func (f *finder) step(node int32, b byte) int32 {
	for {
		if c := f.t.child(node, b); c != 0 {
			return c
		}
		if node == 0 {
			return 0
		}
		node = f.fail[node]
	}
}

// A hit is a string that was found.
type hit struct {
	start, end int
	key        int32
}

// find returns the strings in a text from left to right, the longest where several begin, none over another.
func (f *finder) find(text string, hits []hit) []hit {
	hits = hits[:0]
	node := int32(0)
	for i := len(text) - 1; i >= 0; i-- {
		if node == 0 {
			if node = f.t.root[text[i]]; node == 0 {
				continue
			}
		} else {
			node = f.step(node, text[i])
		}
		if v := f.best[node]; v >= 0 {
			hits = append(hits, hit{i, i + int(f.length[node]), v})
		}
	}
	slices.Reverse(hits)
	kept := hits[:0]
	end := 0
	for _, h := range hits {
		if h.start >= end {
			kept = append(kept, h)
			end = h.end
		}
	}
	return kept
}
