package slots

// A history is what passes have shown of the experts of a layer, and what the next pass may need of them.
//
// Of each expert it knows how large a share of passes needed it, with four memories: of the last pass alone, and of about 5,
// 33 and 500 passes. How much each of these says about the next pass is a matter of the text and of the model: it is
// learned. Before each pass every expert has a chance to be needed, the sum of its shares, each by a weight that all experts of
// the layer have in common; after it the weights are those with which the chances of the last hundreds of passes would have
// erred the least (least squares). So who is needed in turns stays where passes resemble the one before, who is needed
// often where they do not, and what was long ago is forgotten where it misleads.
//
// All of it is a function of what passes needed: products are rounded before they are added, so that processors which could do
// both at once give the same bits.
type history struct {
	// seen has the experts that were needed, in the order in which they first were; others have no shares.
	seen []int32
	// passes is what passes add up to in each memory, weights what a share in it counts.
	passes, weights [memories]float64
	// squares and products are the equations that the weights solve; of squares the lower half.
	squares  [memories][memories]float64
	products [memories]float64
	// last is the last pass, as the set counts them.
	last int64
}

const (
	memories = 4
	// fading is what a chance counts in the equations of the next pass.
	fading = 0.998
	// rare keeps experts that are hardly ever needed from counting more than others: errors are weighed by the chance,
	// since the square of an error that is to be expected is as large as that.
	rare = 0.1
	// forgotten is what is left of needs where nothing is left: numbers that are too small make processors slow.
	forgotten = 1e-9
	// firm is how many errors speak for the weights that are assumed first.
	firm = 4
)

// memory is what is left of a need in each memory when the next pass comes, assumed what weights are at first.
var (
	memory  = [memories]float64{0, 0.8, 0.97, 0.998}
	assumed = [memories]float64{0, 0, 0.6, 0.4}
)

// An expertHistory is how often an expert was needed in each memory, its shares of passes, its chance to be needed in the
// next pass, and whether it is among those seen.
type expertHistory struct {
	uses, shares [memories]float64
	chance       float64
	seen         bool
}

// see adds an expert to those seen.
func (h *history) see(all []expertHistory, e int32) {
	if !all[e].seen {
		all[e].seen = true
		h.seen = append(h.seen, e)
	}
}

// pass adds what a pass needs. All that it needs are among those seen.
func (h *history) pass(all []expertHistory, needed func(int32) bool) {
	if h.passes[0] > 0 {
		h.learn(all, needed)
		h.solve()
	}
	h.note(all, needed)
}

// learn compares the chances with what a pass needs.
func (h *history) learn(all []expertHistory, needed func(int32) bool) {
	for i := range h.squares {
		h.products[i] = float64(h.products[i] * fading)
		for k := range i + 1 {
			h.squares[i][k] = float64(h.squares[i][k] * fading)
		}
	}
	squares, products := h.squares, h.products
	for _, e := range h.seen {
		x := &all[e]
		weight := 1 / (rare + max(x.chance, 0))
		came := needed(e)
		for i, s := range x.shares {
			if s == 0 {
				continue
			}
			s = float64(s * weight)
			row := &squares[i]
			for k, other := range x.shares[:i+1] {
				row[k] += float64(s * other)
			}
			if came {
				products[i] += s
			}
		}
	}
	h.squares, h.products = squares, products
}

// solve finds the weights, by Gauss: with firm in the diagonal no pivot is small.
func (h *history) solve() {
	var rows [memories][memories + 1]float64
	for i := range rows {
		for k := range memories {
			rows[i][k] = h.squares[max(i, k)][min(i, k)]
		}
		rows[i][i] += firm
		rows[i][memories] = h.products[i] + float64(firm*assumed[i])
	}
	for i := range rows {
		for below := i + 1; below < memories; below++ {
			times := rows[below][i] / rows[i][i]
			for k := i; k <= memories; k++ {
				rows[below][k] -= float64(times * rows[i][k])
			}
		}
	}
	for i := memories - 1; i >= 0; i-- {
		x := rows[i][memories]
		for k := i + 1; k < memories; k++ {
			x -= float64(rows[i][k] * h.weights[k])
		}
		h.weights[i] = x / rows[i][i]
	}
}

// note notes what a pass needs and gives all experts their chances for the next.
func (h *history) note(all []expertHistory, needed func(int32) bool) {
	for i, m := range memory {
		h.passes[i] = float64(h.passes[i]*m) + 1
	}
	for _, e := range h.seen {
		x := &all[e]
		came := 0.0
		if needed(e) {
			came = 1
		}
		x.chance = 0
		for i, m := range memory {
			uses := float64(x.uses[i]*m) + came
			if uses < forgotten {
				uses = 0
			}
			x.uses[i], x.shares[i] = uses, uses/h.passes[i]
			x.chance += float64(h.weights[i] * x.shares[i])
		}
	}
}
