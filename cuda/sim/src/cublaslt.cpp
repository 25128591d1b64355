// What of libcublasLt.so the CUDA device calls: products of matrices that lie by columns, computed by the host.
#include "call.h"

#include <cmath>

enum { ok = 0, not_ready_yet = 1, wrong_value = 7, execution_failed = 13, not_supported = 15 };

// The types of elements and of sums, as the library numbers them.
enum { r_32f = 0, r_16f = 2, r_16bf = 14, sum_32f = 68, sum_16bf = 75, sum_tf32 = 77 };

// Attributes are what their number says; the numbers of a description, a layout and a preference overlap.
struct lt_object {
	std::map<int, int64_t> attributes;
	int64_t get(int attribute, int64_t absent) const {
		auto i = attributes.find(attribute);
		return i == attributes.end() ? absent : i->second;
	}
};

struct lt_algo {
	uint64_t data[8];
};

struct lt_result {
	lt_algo algo;
	size_t workspace;
	int state;
	float waves;
	int reserved[4];
};

enum { trans_a = 3, trans_b = 4, epilogue = 7, bias_pointer = 8, compute = 100 };
enum { type = 0, rows = 2, columns = 3, leading = 4, batches = 5, batch_step = 6 };
enum { most_workspace = 1, reductions = 3, least_alignment = 5 };
static const uint64_t magic = 0x6c74;

static int made(lt_object **to) {
	world &w = the();
	locked lock(w.mutex);
	if (current < 0 || w.sticky)
		return not_ready_yet;
	*to = new lt_object();
	w.blas.insert(*to);
	return ok;
}

static int gone(lt_object *o) {
	world &w = the();
	locked lock(w.mutex);
	if (!w.blas.erase(o))
		return wrong_value;
	delete o;
	return ok;
}

static int set(lt_object *o, int attribute, const void *from, size_t bytes) {
	world &w = the();
	locked lock(w.mutex);
	if (!w.blas.count(o) || (bytes != 4 && bytes != 8))
		return wrong_value;
	o->attributes[attribute] = bytes == 4 ? *(const int32_t *)from : *(const int64_t *)from;
	return ok;
}

API cublasLtCreate(lt_object **to) {
	{
		locked lock(the().mutex);
		if (injected("cublasLtCreate"))
			return not_ready_yet;
	}
	return made(to);
}
API cublasLtDestroy(lt_object *o) { return gone(o); }
API cublasLtMatmulDescCreate(lt_object **to, int sums, int scales) {
	if (scales != r_32f || (sums != sum_32f && sums != sum_16bf && sums != sum_tf32))
		return not_supported;
	if (int code = made(to))
		return code;
	(*to)->attributes[compute] = sums;
	return ok;
}
API cublasLtMatmulDescDestroy(lt_object *o) { return gone(o); }
API cublasLtMatmulDescSetAttribute(lt_object *o, int attribute, const void *from, size_t bytes) {
	return set(o, attribute, from, bytes);
}
API cublasLtMatrixLayoutCreate(lt_object **to, int element, uint64_t r, uint64_t c, int64_t ld) {
	if (element != r_32f && element != r_16f && element != r_16bf)
		return not_supported;
	if (r == 0 || c == 0 || ld < (int64_t)r)
		return wrong_value;
	if (int code = made(to))
		return code;
	(*to)->attributes = {{type, element}, {rows, (int64_t)r}, {columns, (int64_t)c}, {leading, ld}};
	return ok;
}
API cublasLtMatrixLayoutDestroy(lt_object *o) { return gone(o); }
API cublasLtMatrixLayoutSetAttribute(lt_object *o, int attribute, const void *from, size_t bytes) {
	return set(o, attribute, from, bytes);
}
API cublasLtMatmulPreferenceCreate(lt_object **to) { return made(to); }
API cublasLtMatmulPreferenceDestroy(lt_object *o) { return gone(o); }
API cublasLtMatmulPreferenceSetAttribute(lt_object *o, int attribute, const void *from, size_t bytes) {
	return set(o, attribute, from, bytes);
}

// fits reports whether a description and layouts are of one product.
static bool fits(const lt_object *d, const lt_object *a, const lt_object *b, const lt_object *c) {
	bool ta = d->get(trans_a, 0), tb = d->get(trans_b, 0);
	int64_t m = a->get(ta ? columns : rows, 0), k = a->get(ta ? rows : columns, 0);
	return b->get(tb ? columns : rows, 0) == k && b->get(tb ? rows : columns, 0) == c->get(columns, 0) && m == c->get(rows, 0) &&
		a->get(type, 0) == c->get(type, 0) && b->get(type, 0) == c->get(type, 0) &&
		a->get(batches, 1) == c->get(batches, 1) && b->get(batches, 1) == c->get(batches, 1);
}

// alike reports whether what is added has the results' sizes.
static bool alike(const lt_object *c, const lt_object *out) {
	for (int attribute : {type, rows, columns, batches})
		if (c->get(attribute, 1) != out->get(attribute, 1))
			return false;
	return true;
}

// needs is the workspace of a way: both parts' sums.
static size_t needs(const lt_algo &algo, const lt_object *out) {
	return algo.data[1] ? 2 * 4 * out->get(rows, 0) * out->get(columns, 0) * out->get(batches, 1) : 0;
}

// The way found takes its terms in two parts where there is room for them, and wants matrices aligned as was said. How many terms
// the first part has follows from the number of rows, so that nobody relies on the way of another product.
API cublasLtMatmulAlgoGetHeuristic(lt_object *handle, lt_object *d, lt_object *a, lt_object *b, lt_object *c, lt_object *out,
								   lt_object *preference, int most, lt_result *to, int *found) {
	world &w = the();
	locked lock(w.mutex);
	*found = 0;
	if (injected("cublasLtMatmulAlgoGetHeuristic"))
		return not_supported;
	if (!w.blas.count(handle) || most < 1 || !fits(d, a, b, out) || !alike(c, out))
		return wrong_value;
	lt_algo algo{{magic, 1 + (uint64_t)out->get(rows, 0) / 8 % 3, (uint64_t)preference->get(least_alignment, 256)}};
	if (needs(algo, out) > (size_t)preference->get(most_workspace, 0) || !(preference->get(reductions, -1) & 2))
		algo.data[1] = 0;
	*to = lt_result{algo, needs(algo, out), 0, 1, {}};
	*found = 1;
	return ok;
}

// Any product is computed by another one's way.
API cublasLtMatmulAlgoCheck(lt_object *handle, lt_object *d, lt_object *a, lt_object *b, lt_object *c, lt_object *out,
							const lt_algo *algo, lt_result *to) {
	world &w = the();
	locked lock(w.mutex);
	if (injected("cublasLtMatmulAlgoCheck"))
		return not_supported;
	if (!w.blas.count(handle) || algo->data[0] != magic || !fits(d, a, b, out) || !alike(c, out))
		return wrong_value;
	*to = lt_result{{}, needs(*algo, out), 0, 1, {}};
	return ok;
}

static float read(const char *at, int64_t element, int64_t i, int sums) {
	float x;
	uint32_t bits;
	if (element == r_16f)
		return (float)((const _Float16 *)at)[i];
	if (element == r_16bf) {
		bits = (uint32_t)((const uint16_t *)at)[i] << 16;
		return memcpy(&x, &bits, 4), x;
	}
	x = ((const float *)at)[i];
	memcpy(&bits, &x, 4);
	if (sums == sum_16bf && x == x)
		bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
	if (sums == sum_tf32 && x == x)
		bits = (bits + 0x1000) & 0xffffe000;
	return memcpy(&x, &bits, 4), x;
}

static void write(char *at, int64_t element, int64_t i, float x) {
	uint32_t bits;
	memcpy(&bits, &x, 4);
	if (element == r_32f)
		((float *)at)[i] = x;
	else if (element == r_16f)
		((_Float16 *)at)[i] = (_Float16)x;
	else
		((uint16_t *)at)[i] = x == x ? (bits + 0x7fff + (bits >> 16 & 1)) >> 16 : 0x7fff;
}

// A matrix is where it lies and how, when the product was given.
struct matrix {
	char *at;
	int64_t element, ld, step, rows, columns, batches;
	bool transposed;
	size_t size() const { return element == r_32f ? 4 : 2; }
	size_t bytes() const { return ((batches - 1) * step + (columns - 1) * ld + rows) * size(); }
	int64_t index(int64_t z, int64_t i, int64_t j) const { return z * step + (transposed ? i * ld + j : j * ld + i); }
};

static matrix lies(const void *at, const lt_object *l, bool transposed) {
	return {(char *)at, l->get(type, 0), l->get(leading, 0), l->get(batch_step, 0), l->get(rows, 0), l->get(columns, 0),
		l->get(batches, 1), transposed};
}

API cublasLtMatmul(lt_object *handle, lt_object *d, const float *alpha, const void *a, lt_object *a_layout, const void *b,
				   lt_object *b_layout, const float *beta, const void *c, lt_object *c_layout, void *to, lt_object *layout,
				   const lt_algo *algo, void *workspace, size_t workspace_bytes, stream *s) {
	world &w = the();
	locked lock(w.mutex);
	int late = 0;
	if (injected("cublasLtMatmul", &late) || w.sticky)
		return execution_failed;
	if (current < 0 || !w.blas.count(handle) || !alive(s))
		return not_ready_yet;
	matrix x = lies(a, a_layout, d->get(trans_a, 0)), y = lies(b, b_layout, d->get(trans_b, 0)), out = lies(to, layout, false);
	matrix added = lies(c, c_layout, false);
	size_t parts = needs(*algo, layout);
	int64_t first = algo->data[1];
	uint64_t bias = d->get(bias_pointer, 0);
	int64_t ending = d->get(epilogue, 1);
	bool adds = ending & 4, clips = ending & 2;
	struct region {
		uint64_t at;
		size_t bytes;
		bool writes;
	};
	auto regions = std::make_shared<std::vector<region>>();
	*regions = {{(uint64_t)a, x.bytes(), false}, {(uint64_t)b, y.bytes(), false}, {(uint64_t)to, out.bytes(), true}};
	if (*beta != 0)
		regions->push_back({(uint64_t)c, added.bytes(), false});
	if (adds)
		regions->push_back({bias, out.rows * out.size(), false});
	if (parts)
		regions->push_back({(uint64_t)workspace, parts, true});
	if (algo->data[0] != magic || !fits(d, a_layout, b_layout, layout) || !alike(c_layout, layout) || parts > workspace_bytes)
		return refuse("cublasLtMatmul: the way is of another product", wrong_value);
	for (const region &r : *regions)
		if (!find(r.at, r.bytes) || r.at % algo->data[2])
			return refuse("cublasLtMatmul: a matrix that is not there or not aligned", wrong_value);
	int sums = (int)d->get(compute, 0);
	float by = *alpha, with = *beta;
	std::function<std::string()> run = [=] {
		for (int64_t z = 0; z < out.batches; z++)
			for (int64_t j = 0; j < out.columns; j++)
				for (int64_t i = 0; i < out.rows; i++) {
					int64_t terms = x.transposed ? x.rows : x.columns, half = parts ? terms * first / 4 : terms;
					float total = 0, second = 0;
					for (int64_t k = 0; k < terms; k++) {
						float product = read(x.at, x.element, x.index(z, i, k), sums) * read(y.at, y.element, y.index(z, k, j), sums);
						(k < half ? total : second) += product;
					}
					total = by * (total + second);
					if (with != 0)
						total += with * read(added.at, added.element, added.index(z, i, j), 0);
					if (adds)
						total += read((char *)bias, out.element, i, 0);
					write(out.at, out.element, out.index(z, i, j), clips && total < 0 ? 0 : total);
				}
		if (parts) // whatever lay there is gone
			memset(workspace, 0xff, parts);
		return std::string();
	};
	if (late)
		run = failing(late, "cublasLtMatmul");
	auto give = [=](stream *s) {
		for (const region &r : *regions)
			touch(s, r.at, r.bytes, r.writes, "cublasLtMatmul");
		the().products++;
		enqueue(s, the().set.launch_ns, run);
	};
	if (s->keeping)
		s->keeping->launches.push_back(give);
	else
		give(s);
	return ok;
}
