SHELL := bash
# Short names for what people type often. What CI checks is in .ci/run, and the checks here call its steps.

.PHONY: build test race noasm browser fuzz fuzz-long lint vuln bench bench-page bench-paging bench-peers fixtures mutants zoo fit ci clean sim-zoo ptxas cubins gpu-kit release release-check deploy-check unit-check soak bench-serve bench-serve-peers bench-text families

PYTHON ?= python3
LOG := benchmarks/results/fuzz-$(shell date +%Y-%m-%d).txt

build:
	go build -o bin/ ./cmd/...

test:
	go test ./...

race:
	.ci/run race

noasm:
	.ci/run noasm

# Pictures and pages in Chromium, traces in Chrome's trace viewer, snapshots in PyTorch's: make browser PYTHON=.venv/bin/python
browser:
	.ci/browser $(PYTHON)

# A few seconds for each target.
fuzz:
	.ci/run fuzz

# Ten minutes for each target, logged. A find is written to the package's testdata/fuzz; keep it under a name.
fuzz-long:
	mkdir -p $(dir $(LOG))
	set -o pipefail; FUZZ_SECONDS=600 .ci/run fuzz 2>&1 | tee $(LOG)

# Every model of the zoo on the CPU, of which the tests take a third: a quarter of an hour of a slow core.
zoo:
	go test ./models -run Zoo -timeout 2h -zoo-all

# What the installed transformers computes otherwise than the one that the families were recorded with: PYTHON is one that has
# it. Prints what differs, and the types that are new; about ten minutes of a core.
families:
	cd models/testdata && $(PYTHON) make_decoders.py --only-compare
	cd models/testdata && $(PYTHON) make_recurrents.py --only-compare
	cd models/testdata && $(PYTHON) list_causal.py --only-compare

# The memory predicted for batches of 1 to 128 rows, of every model of the zoo, beside what passes take: a quarter of an hour.
fit:
	go test ./models -run TestBatchesTakeWhatIsPredicted -timeout 2h -v -fit-all

# Every model of the zoo on the simulated GPU: about ten minutes of one core.
sim-zoo:
	OPTIMEM_REQUIRE_SIM=1 go test ./models -run TestZooOnGPU -timeout 2h -v -sim-zoo all

# Every kernel assembled for the GPUs that are sold: none takes more of each thread's own memory than cuda/kernels/ptxas.txt lists.
ptxas:
	.ci/run ptxas

# The kernels assembled for five capabilities, which a release of Linux carries beside the program if they are there: no GPU's
# driver then has to compile them. Needs ptxas, which .ci/ptxas downloads.
cubins:
	rm -rf dist/cubins
	for capability in 75 80 90 100 120; do OPTIMEM_PTXAS=$$(.ci/ptxas) go run ./cuda/kernels/_ptxas -only $$capability -cubins dist/cubins || exit 1; done

# A folder that checks and measures on a machine with a GPU and no Go: benchmarks/gpu/README.md.
gpu-kit:
	benchmarks/gpu/make_kit.sh dist/gpu-kit

# What a release has: archives for five systems, their parts (CycloneDX) and checksums, into dist/release; offline.
release:
	deploy/release.sh

# goreleaser's snapshot for all systems and the Dockerfiles, built and run: make release-check STAND_IN=1 where no registry is reached.
# Needs the network; what else is not there is said.
release-check:
	STAND_IN=$(STAND_IN) deploy/release_check.sh

# The unit, and the manifests of deploy/ against the schemas of Kubernetes, KEDA and KServe, strictly. Needs the network: the schemas are large.
KUBE_SCHEMAS := https://raw.githubusercontent.com/yannh/kubernetes-json-schema/master/v1.32.0-standalone-strict/{{.ResourceKind}}{{.KindSuffix}}.json
CRD_SCHEMAS := https://raw.githubusercontent.com/datreeio/CRDs-catalog/7b1e26ef9deea49293714d204c1a2270aab1178f/{{.Group}}/{{.ResourceKind}}_{{.ResourceAPIVersion}}.json
deploy-check:
	go run github.com/yannh/kubeconform/cmd/kubeconform@v0.7.0 -strict -summary \
		-schema-location '$(KUBE_SCHEMAS)' -schema-location '$(CRD_SCHEMAS)' deploy/*.yaml
	$(MAKE) unit-check

# The systemd unit, by systemd itself: that it is understood, and how exposed the service is at most. A program stands for optimem's.
unit-check:
	mkdir -p dist/unit
	sed 's#^ExecStart=/usr/local/bin/optimem#ExecStart=/bin/true#' deploy/optimem.service > dist/unit/optimem.service
	systemd-analyze verify dist/unit/optimem.service
	systemd-analyze security --offline=true --threshold=20 dist/unit/optimem.service

lint:
	.ci/run format vet static
	go test ./internal/lint

# Needs the network: the database of known vulnerabilities is at vuln.go.dev.
vuln:
	.ci/run vuln

bench:
	go test -run='^$$' -bench=. -benchmem ./...

# Mixed requests to a server under faults, for twenty minutes: make soak SOAK=24h
SOAK := 20m
soak:
	go test ./serve -run TestSoak -count=1 -v -timeout 0 -args -soak $(SOAK)

# What a server costs and how it bears twice its capacity; ten minutes of a quiet machine.
bench-serve:
	benchmarks/run_serve.sh > benchmarks/results/serve-$(shell date +%Y-%m-%d).jsonl

# The same beside ONNX Runtime behind FastAPI, TorchServe and llama.cpp's server, and what has no peer: half an hour of a quiet machine.
# make bench-serve-peers PYTHON=.venv/bin/python MINILM=all-MiniLM-L6-v2 SMOLLM=SmolLM2-135M-Instruct.Q4_1.gguf
SERVE_PEERS := benchmarks/results/serve-peers-$(shell date +%Y-%m-%d)
bench-serve-peers:
	$(PYTHON) benchmarks/run_serve_peers.py $(MINILM) $(SMOLLM) --rounds 3 > $(SERVE_PEERS).jsonl

# Text beside transformers, llama.cpp and OpenVINO GenAI, a model of 1.1 billion weights and sixteen texts at once; a quarter of an hour of a
# quiet machine: make bench-text PYTHON=.venv/bin/python SMOLLM=SmolLM2-135M-Instruct
bench-text:
	PYTHON=$(PYTHON) benchmarks/run_text.sh $(SMOLLM) > benchmarks/results/text-$(shell date +%Y-%m-%d).txt

# Speed on the CPU beside PyTorch, ONNX Runtime and OpenVINO, which it installs into benchmarks/data; about two hours.
bench-peers:
	benchmarks/run_speed.sh
	benchmarks/run_speed.sh --isa avx2 --engines eager,channels_last,openvino
	benchmarks/run_speed.sh --precision bf16 resnet101-512@1 bert@1
	benchmarks/run_speed.sh first

# Page mode beside resident weights, from the disk and from the page cache: half an hour.
bench-page:
	benchmarks/run_speed.sh page

# Models larger than memory beside their peers, which need PyTorch: make bench-paging PYTHON=.venv/bin/python
bench-paging:
	OPTIMEM_PYTHON=$(PYTHON) benchmarks/run_paging.sh

# Makes the fixtures again with the scripts beside them, which need PyTorch: make fixtures PYTHON=.venv/bin/python
fixtures:
	for script in $$(git ls-files '*/testdata/make_*.py'); do echo "$$script"; $(PYTHON) "$$script" || exit 1; done

# Plants the mistakes that internal/mutants/lists names, one at a time, and prints how many the tests notice; hours for all.
# One package: make mutants PACKAGES=plan
MUTANTS := benchmarks/results/mutants-$(shell date +%Y-%m-%d).txt
mutants:
	go run ./internal/mutants -o $(MUTANTS) $(PACKAGES)

ci:
	.ci/run

clean:
	rm -rf bin dist
	go clean -testcache
