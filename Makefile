# deed. `make help` lists the targets.
SHELL := /bin/bash
GO ?= go
BIN := $(CURDIR)/.cache/bin
TESTFLAGS ?=
MINUTES ?= 10
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

.PHONY: help demo bench test ci build lint torture fuzz setup tools clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

demo: setup ## the main job before your eyes, on a private PostgreSQL (INPUT=file for your own NDJSON)
	@cd e2e && $(GO) build -o $(CURDIR)/.cache/demo ./demo
	@./.cache/demo --input $(abspath $(or $(INPUT),examples/flights.ndjson)) $(DEMOFLAGS)

bench: setup ## deed beside River, measured on a private PostgreSQL (BENCHFLAGS='--runs 1 --only drain', --help)
	@cd bench && $(GO) build -ldflags '-X main.version=$(VERSION)' -o $(CURDIR)/.cache/bench .
	@./.cache/bench $(BENCHFLAGS)

test: setup ## all tests, on a PostgreSQL of their own
	$(GO) run ./internal/pgtest/cluster -- $(GO) test -timeout 20m $(TESTFLAGS) ./...
	cd e2e && $(GO) test -timeout 10m $(TESTFLAGS) ./...
	cd bench && $(GO) test -timeout 10m $(TESTFLAGS) ./...

ci: setup tools lint ## what CI runs: lint, then the tests once, under the race detector
	.ci/noskip $(MAKE) test TESTFLAGS='-race -count=1 -v'

build: ## bin/deed
	$(GO) build -trimpath -ldflags '-X main.version=$(VERSION)' -o bin/deed ./cmd/deed

lint: tools ## gofumpt, vet, staticcheck, go mod tidy, generated files
	@test -z "$$($(BIN)/gofumpt -l .)" || { $(BIN)/gofumpt -l .; echo 'run gofumpt -w on these'; exit 1; }
	$(GO) vet ./... && $(GO) vet -tags deedcrash,torture ./...
	$(BIN)/staticcheck ./... && cd e2e && $(GO) vet ./... && $(BIN)/staticcheck ./...
	cd bench && $(GO) vet ./... && $(BIN)/staticcheck ./...
	$(GO) mod tidy -diff && cd e2e && $(GO) mod tidy -diff && cd ../bench && $(GO) mod tidy -diff

torture: setup ## crashes, races and faults for MINUTES (10), with a report
	$(GO) run ./internal/pgtest/cluster -- $(GO) test -tags torture -run '^TestTorture$$' -count=1 -v -timeout 0 . -minutes $(MINUTES)

fuzz: setup ## every fuzz target for a minute
	.ci/fuzz 60s

setup: ## what the tests need and the machine lacks: PostgreSQL, gcc
	@.ci/setup

tools: $(BIN)/gofumpt $(BIN)/staticcheck

$(BIN)/gofumpt:
	GOBIN=$(BIN) $(GO) install mvdan.cc/gofumpt@v0.12.0

$(BIN)/staticcheck:
	GOBIN=$(BIN) $(GO) install honnef.co/go/tools/cmd/staticcheck@v0.8.2

clean: ## what make made
	rm -rf bin .cache
