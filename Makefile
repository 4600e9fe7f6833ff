# deed. `make help` lists the targets.
SHELL := /bin/bash
GO ?= go
BIN := $(CURDIR)/.cache/bin
TESTFLAGS ?=
MINUTES ?= 10
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

.PHONY: help demo test ci build lint torture fuzz packaging setup tools clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

demo: setup ## the main job before your eyes, on a private PostgreSQL (INPUT=file for your own NDJSON)
	@cd e2e && $(GO) build -o $(CURDIR)/.cache/demo ./demo
	@./.cache/demo --input $(abspath $(or $(INPUT),examples/flights.ndjson)) $(DEMOFLAGS)

test: setup ## all tests, on a PostgreSQL of their own
	@.ci/setup systemd
	$(GO) run ./internal/pgtest/cluster -- $(GO) test -timeout 20m $(TESTFLAGS) ./...
	cd e2e && $(GO) test -timeout 10m $(TESTFLAGS) ./...

ci: setup tools lint ## what CI runs: lint, then the tests once, under the race detector
	.ci/noskip $(MAKE) test TESTFLAGS='-race -count=1 -v'

build: ## bin/deed
	$(GO) build -trimpath -ldflags '-X main.version=$(VERSION)' -o bin/deed ./cmd/deed

lint: tools ## gofumpt, vet, staticcheck, go mod tidy, generated files
	@test -z "$$($(BIN)/gofumpt -l .)" || { $(BIN)/gofumpt -l .; echo 'run gofumpt -w on these'; exit 1; }
	$(GO) vet ./... && $(GO) vet -tags deedcrash,torture ./...
	$(BIN)/staticcheck ./... && cd e2e && $(GO) vet -tags packaging ./... && $(BIN)/staticcheck -tags packaging ./...
	$(GO) mod tidy -diff && cd e2e && $(GO) mod tidy -diff

torture: setup ## crashes, races and faults for MINUTES (10), with a report
	$(GO) run ./internal/pgtest/cluster -- $(GO) test -tags torture -run '^TestTorture$$' -count=1 -v -timeout 0 . -minutes $(MINUTES)

fuzz: setup ## every fuzz target for a minute
	.ci/fuzz 60s

packaging: $(BIN)/goreleaser $(BIN)/helm ## builds and checks all packages and the Helm chart; publishes nothing
	$(BIN)/goreleaser check
	$(BIN)/goreleaser release --snapshot --clean --skip=publish
	@.ci/setup systemd
	.ci/noskip $(GO) -C e2e test -tags packaging -count=1 -v ./packaging/

setup: ## what the tests need and the machine lacks: PostgreSQL, gcc
	@.ci/setup

tools: $(BIN)/gofumpt $(BIN)/staticcheck

$(BIN)/gofumpt:
	GOBIN=$(BIN) $(GO) install mvdan.cc/gofumpt@v0.12.0

$(BIN)/staticcheck:
	GOBIN=$(BIN) $(GO) install honnef.co/go/tools/cmd/staticcheck@v0.8.2

$(BIN)/goreleaser:
	GOBIN=$(BIN) $(GO) install github.com/goreleaser/goreleaser/v2@v2.16.0

$(BIN)/helm:
	GOBIN=$(BIN) $(GO) install helm.sh/helm/v3/cmd/helm@v3.22.0

clean: ## what make made
	rm -rf bin dist .cache
