package main

import (
	"math"

	"github.com/optimem/optimem/internal/cpu/kernel/_generate/bodies"
)

// silu writes x ÷ (1 + e^−x) in place: fewer instructions than the function of that name takes, with an error that is
// small beside 1 where x is negative, not beside the result. The power is 2^t for t = −x·log₂e, as the polynomial of what
// is above ⌊t⌋. Steps of eight floats depend on one another; they are written for two eights side by side.
func silu(f *file) {
	k := f.kernel("silu128", "count int, y *float32",
		"computes count times 8 floats, which lie one behind the other, in place; count is even and not 0.")
	count, y := k.arg("count"), k.arg("y")
	v := newVec(k)
	const side = 2
	var x, t, e, below [side]pair
	for i := range side {
		x[i], t[i], e[i], below[i] = v.t(), v.t(), v.t(), v.t()
	}
	each := func(body func(i int)) {
		for i := range side {
			body(i)
		}
	}
	k.label("loop")
	each(func(i int) { k.loadQQ(x[i][0], x[i][1], y, 32*i) })
	each(func(i int) { v.max(x[i], x[i], v.c(-87)) })
	each(func(i int) { v.mul(t[i], x[i], v.c(-math.Log2E)) })
	each(func(i int) { v.max(t[i], t[i], v.c(-126)) })
	each(func(i int) { v.two(frintmS, below[i], t[i]) })
	each(func(i int) { v.sub(t[i], t[i], below[i]) })
	each(func(i int) { v.two(fcvtnsS, below[i], below[i]) })
	each(func(i int) { v.horner(t[i], e[i], bodies.Exp2...) })
	each(func(i int) { v.shift(shlS, below[i], below[i], 23) })
	each(func(i int) { v.goes("VADD", "S4", e[i], e[i], below[i]) })
	each(func(i int) { v.add(e[i], e[i], v.c(1)) })
	each(func(i int) { v.div(x[i], x[i], e[i]) })
	each(func(i int) { k.storeQQ(x[i][0], x[i][1], y, 32*i) })
	k.next(y, 32*side)
	k.p("SUBS $%d, %v, %v", side, count, count)
	k.p("BGT loop")
	k.ret()
	v.finish()
}
