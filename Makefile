# `make help` lists the targets. `.ci/run` calls the same ones.

MODULES := . benchmarks cmd/weir examples redislimit verify
TOOLS   := $(CURDIR)/.tools
LINT    := $(TOOLS)/golangci-lint-2.15.0
FUZZTIME ?= 30s

.DEFAULT_GOAL := help
.PHONY: help test race standalone 386 lint fuzz bench nightly ci need

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## /{printf "%-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

need: # what the tests run against: a real Redis, a real browser
	@.ci/need redis-server chromium

test: need ## every test of every module, with the race detector
	go test -race -shuffle=on -timeout 8m $$(go list work | grep -v /redislimit)
	go test -race -shuffle=on -timeout 8m -p 1 ./redislimit/... # one at a time: they hold a real server to milliseconds

race: need ## the same at 1, 2 and 8 processors; slow
	go test -race -shuffle=on -cpu 1,2,8 -timeout 60m work

standalone: ## each module by itself, as its importers see it
	@set -e; for m in $(MODULES); do echo "== $$m"; \
	  (cd $$m && GOWORK=off go vet ./... && GOWORK=off go test -run '^$$' ./...); done
	GOWORK=off go test -short ./...

386: ## the core on a 32-bit machine
	GOARCH=386 CGO_ENABLED=0 go test -short .

lint: $(LINT) ## golangci-lint on every module
	@set -e; for m in $(MODULES); do echo "== $$m"; (cd $$m && $(LINT) run ./...); done

$(LINT):
	@mkdir -p $(TOOLS)
	GOWORK=off GOBIN=$(TOOLS) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
	@mv $(TOOLS)/golangci-lint $@

fuzz: ## every fuzz target for FUZZTIME
	@.ci/fuzz $(FUZZTIME)

bench: ## the rivals side by side; writes BENCHMARKS.md
	cd benchmarks && go run .

nightly: need fuzz ## the long forms of the evidence
	WEIR_VERIFY=full go test -race -timeout 3h work

ci: test 386 standalone lint ## what .ci/run runs
