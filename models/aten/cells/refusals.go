package cells

import "strings"

// The reasons why optimem does not compute what it knows of.
const (
	SizeOfData    = "the size of its result depends on data, and shapes are fixed before a run"
	valueOfData   = "it turns data into a number of the program, and programs are fixed before a run"
	loopOfData    = "how often its body runs depends on data, and programs are fixed before a run"
	random        = "it is random; export the model after model.eval()"
	factorisation = "of the factorisations of matrices only L and U are computed"
)

// Refusals says why an op has no meaning here, by its name without the overload.
var Refusals = func() map[string]string {
	all := make(map[string]string)
	for why, names := range map[string][]string{
		SizeOfData: {
			"aten._unique", "aten.unique_dim_consecutive", "aten.to_sparse",
		},
		valueOfData: {
			"aten.item", "aten._local_scalar_dense", "aten.is_nonzero", "aten.equal", "aten.allclose", "aten.Bool",
			"aten.Int",
			"aten.Float",
		},
		loopOfData: {"higher_order.while_loop"},
		random: {
			"aten.rand", "aten.rand_like", "aten.randn", "aten.randn_like", "aten.randint", "aten.randint_like",
			"aten.randperm", "aten.bernoulli", "aten.bernoulli_", "aten.multinomial", "aten.normal", "aten.normal_",
			"aten.uniform", "aten.uniform_", "aten.exponential", "aten.exponential_", "aten.poisson", "aten.binomial",
			"aten.random_", "aten.random", "aten.native_dropout", "aten.alpha_dropout", "aten.feature_dropout",
			"aten.rrelu_with_noise", "aten.gumbel_softmax",
		},
		factorisation: {
			"aten.linalg_svd", "aten._linalg_svd", "aten.svd", "aten.linalg_svdvals", "aten.linalg_qr", "aten.qr",
			"aten.linalg_eig", "aten.linalg_eigvals", "aten.linalg_eigh", "aten._linalg_eigh", "aten.linalg_eigvalsh",
			"aten.linalg_cholesky", "aten.linalg_cholesky_ex", "aten.cholesky", "aten.linalg_pinv", "aten.linalg_lu",
			"aten.linalg_lstsq",
			"aten.linalg_solve_triangular", "aten.triangular_solve", "aten.cholesky_solve", "aten.linalg_matrix_exp",
		},
	} {
		for _, name := range names {
			all[name] = why
		}
	}
	return all
}()

// Why returns the reason why optimem lacks it, "" where it is only unknown.
func (m Missing) Why() string {
	if m.Reason != "" {
		return m.Reason
	}
	name := strings.TrimPrefix(m.Name, "torch.ops.")
	space, rest, _ := strings.Cut(name, ".")
	base, _, _ := strings.Cut(rest, ".")
	return Refusals[space+"."+base]
}
