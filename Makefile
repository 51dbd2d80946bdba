# `make help` lists the targets. `.ci/run` calls the same ones.

# Every module of go.work, and those of adapters/go.work: a workspace of its own, so that the frameworks and
# their dependencies select no versions here, and `make test` does not compile them. Those whose go.mod does
# not say "not published" have no replace directive, and require real versions of each other.
MODULES   := $(shell awk '$$1 ~ /^\./ {print $$1}' go.work)
ADAPTERS  := $(patsubst ./%,%,$(shell awk '$$1 ~ /^\.\.?\// {print $$1}' adapters/go.work))
# Those that prove, and those that compile many libraries for a few tests, are tested in make verify; release in
# make packing.
LATER     := ./examples ./metrics/weirotel ./metrics/weirprom ./proofs ./tools/inventory
# The packages of the tool that import gRPC, Prometheus or what drives a browser, by themselves or in their
# tests: these are two thirds of what would be compiled. -e lists packages with mistakes, too.
SERVERS    = $(sort $(patsubst %.test,%,$(shell go list -e -test -f '{{range .Deps}}{{if or (eq . "google.golang.org/grpc") \
             (eq . "github.com/prometheus/client_golang/prometheus") (eq . "github.com/chromedp/chromedp")}}{{or $$.ForTest \
             $$.ImportPath}} {{end}}{{end}}' ./cmd/weir/...)))
TESTED     = $(addsuffix /...,$(filter-out ./cmd/weir ./tools $(LATER),$(MODULES))) \
             $(filter-out $(SERVERS),$(shell go list -e ./cmd/weir/...))
TOOLS     := $(CURDIR)/.tools
LINT      := $(TOOLS)/golangci-lint-2.15.0
AXE       := $(TOOLS)/axe-core-4.14.1.min.js
FUZZTIME  ?= 30s
MUTANTS   ?= 330
# The packages of pure functions, whose own tests must kill every mutant.
PURE      := internal/core/algorithm internal/stores/budget

# By default each program with the race detector sleeps for a second before it exits: the tests of each
# package, and each run of the tool in its tests.
export GORACE ?= atexit_sleep_ms=0

# Without what debuggers need the compiler takes a tenth less CPU, and half for Redis's client, which is the
# largest package by far, without inlining. One setting for all of them, so that none compiles what another has.
test quick verify adapters nightly race lint: export GOFLAGS := $(shell go env GOFLAGS) -gcflags=all=-dwarf=false \
  '-gcflags=github.com/redis/go-redis/v9=-dwarf=false -l'

# With fewer garbage collections the compiler takes a fifth less CPU. The tests have the default.
GOTEST := GOGC=400 go test -race -vet=off -shuffle=on -ldflags '-s -w' -exec 'env -u GOGC'

.DEFAULT_GOAL := help
.PHONY: help pictures test quick verify nightly race 386 standalone packing cross dist release tidy lint fuzz mutants functions bench ci need needs axe recovery scaling overload adapters

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## /{printf "%-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

need: # what all tests run against: a real Redis
	@.ci/need redis-server

needs: need axe # what those of make verify run against besides: a real browser, curl, Prometheus
	@.ci/need chromium curl prometheus

axe: $(AXE) # what checks the pages in the browser

$(AXE):
	@.ci/need npm
	@.ci/axe 4.14.1 29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c $@

test: need ## the tests, with the race detector, without those of verify: some 4 minutes on 2 idle cores
	$(GOTEST) -timeout 20m ./redislimit $(TESTED) # the longest first

quick: ## the tests of the core and of fallback, without the race detector: seconds, half a minute to compile
	GOGC=400 CGO_ENABLED=0 go test -vet=off -ldflags '-s -w' -exec 'env -u GOGC' . ./internal/core/algorithm ./internal/core/slots ./internal/core/states ./internal/core/windows ./fallback

recovery: need ## measure the table of proofs/hybrid/RESULTS.md; writes recovery.md
	cd proofs/hybrid && WEIR_VERIFY=1 RECOVERY_TABLE=$(CURDIR)/recovery.md go test -timeout 10m -run TestRecoveryTable .

scaling: ## simulate and compute the tables of proofs/fleet/RESULTS.md; writes them there
	SCALING_TABLES=1 go test -timeout 30m -run TestScalingTables ./proofs/fleet

overload: ## simulate the tables of proofs/overload/RESULTS.md, writes them there, and holds the guard to its bars
	OVERLOAD_TABLE=1 WEIR_VERIFY=full go test -timeout 30m ./proofs/overload

verify: needs ## the slow tests: linearizability, memory, leases, recovery, a real Redis in all its faults; the servers, proofs, examples, adapters
	@.ci/verify $(LATER:=/...) $(SERVERS)

adapters: need ## the tests of the modules in adapters, each in the framework itself, and of proofs/interop, with the race detector
	cd adapters && WEIR_VERIFY=$${WEIR_VERIFY:-1} $(GOTEST) -timeout 15m work

nightly: needs ## every test in its longest form, every fuzz target, and mutants
	@status=0; WEIR_VERIFY=full go test -race -timeout 3h -p 1 work || status=1; \
	  WEIR_VERIFY=full $(MAKE) --no-print-directory adapters cross 386 || status=1; .ci/fuzz $(FUZZTIME) || status=1; \
	  $(MAKE) --no-print-directory mutants || status=1; exit $$status

race: needs ## the tests at 1, 2 and 8 processors
	go test -race -shuffle=on -cpu 1,2,8 -timeout 60m $(TESTED) $(LATER:=/...) $(SERVERS)

386: ## the packages of the root module that count on a 32-bit machine, or in an emulator of one
	@.ci/386

standalone: ## each module by itself, as its importers see it: its types, and those of its tests
	@go run ./tools/release standalone

packing: ## go install and go get in an empty folder, from a file-based module proxy; this tree beside the last release
	@go test -timeout 20m ./tools/release
	@go run ./tools/release mixed

cross: ## the published modules on Linux, macOS, Windows, FreeBSD and js/wasm
	@.ci/cross

dist: ## static binaries of the tool for Linux, macOS and Windows, and of Caddy for Linux, with licences and SBOMs
	@.ci/dist

release: ## commit and tag VERSION=v0.2.0 of every published module; pushes nothing
	@go run ./tools/release tag "$(VERSION)"

pictures: ## the README's pictures, in docs
	@.ci/need chromium curl
	@.ci/pictures

tidy: ## go mod tidy in each module; it finds the others unreleased
	@go run ./tools/release tidy

# vet is one of the linters, so that test, verify and adapters leave it out. What is imported is compiled once, with
# the race detector, for the tests and for the linters.
lint: $(LINT) ## golangci-lint on every module
	@export GOFLAGS="$$GOFLAGS -race"; failed=; for m in $(MODULES); do echo "== $$m"; (cd $$m && $(LINT) run ./...) || failed="$$failed $$m"; done; \
	  for m in $(ADAPTERS); do echo "== adapters/$$m"; (cd adapters/$$m && GOWORK=$(CURDIR)/adapters/go.work $(LINT) run ./...) || failed="$$failed adapters/$$m"; done; \
	  [ -z "$$failed" ] || { echo "failed:$$failed" >&2; exit 1; }

$(LINT):
	@mkdir -p $(TOOLS)
	GOWORK=off GOBIN=$(TOOLS) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
	@mv $(TOOLS)/golangci-lint $@

fuzz: ## every fuzz target for FUZZTIME
	@.ci/fuzz $(FUZZTIME)

mutants: ## what the tests notice of MUTANTS small faults of the core and its layers, each tested by itself, of all in PURE, and of named ones
	go run ./proofs/mutants -named
	go run ./proofs/mutants -n $(MUTANTS)
	@for p in $(PURE); do echo "== $$p"; go run ./proofs/mutants -n 0 -package $$p || exit 1; done

functions: ## how many functions a decision passes, the lines of the core, methods away from their types
	go run ./proofs/functions

bench: ## the rivals side by side; writes proofs/benchmarks/RESULTS.md
	cd proofs/benchmarks && go run .

ci: ## what every change must pass
	@.ci/run
