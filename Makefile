# deed. `make help` lists the targets.
SHELL := /bin/bash
GO ?= go
BIN := $(CURDIR)/.cache/bin
TESTFLAGS ?=
MINUTES ?= 10
PG ?= 18
# Tests wait more than they work, so that more go at once than there are processors, up to what one server has connections for.
ATONCE ?= $(shell n=$$(getconf _NPROCESSORS_ONLN); [ $$n -lt 4 ] || n=4; echo -p $$((n + 1)) -parallel $$((4 * n)))
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

.PHONY: help demo bench test test-pg test-pooler test-newest test-brokers test-upgrade conformance ci build lint torture fuzz packaging setup tools clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

demo: setup ## the main job before your eyes, on a private PostgreSQL (INPUT=file for your own NDJSON)
	@.ci/step 'building the demo' $(GO) build -C e2e -o $(CURDIR)/.cache/demo ./demo
	@./.cache/demo --input $(abspath $(or $(INPUT),examples/flights.ndjson)) --airports $(abspath examples/airports.csv) $(DEMOFLAGS)

bench: setup ## deed beside River, measured on a private PostgreSQL (BENCHFLAGS='--runs 1 --only drain', --help)
	@.ci/step 'building the benchmarks' $(GO) build -C bench -ldflags '-X main.version=$(VERSION)' -o $(CURDIR)/.cache/bench .
	@./.cache/bench $(BENCHFLAGS)

test: setup ## all tests, on a PostgreSQL of their own
	@.ci/setup kcat systemd-analyze python3-psycopg
	$(GO) run ./internal/pgtest/cluster -- $(GO) test -timeout 20m $(ATONCE) $(TESTFLAGS) ./...
	cd e2e && $(GO) test -timeout 10m $(ATONCE) $(TESTFLAGS) ./...
	cd bench && $(GO) test -timeout 10m $(ATONCE) $(TESTFLAGS) ./...

test-pg: setup ## all tests that ask a PostgreSQL, on that of PG=18 (15, 16, 17), whose server npm brings
	@.ci/setup kcat systemd-analyze python3-psycopg
	bin=$$(.ci/postgres $(PG)) && export DEED_PG_BIN=$$bin && packages=$$(.ci/with-postgres) && \
	$(GO) run ./internal/pgtest/cluster -- $(GO) test -timeout 20m $(ATONCE) $(TESTFLAGS) $$packages && \
	cd e2e && $(GO) test -timeout 10m $(ATONCE) -skip '^(TestHold_ADump|TestRestore_)' $(TESTFLAGS) ./... # npm brings no pg_dump: see test-upgrade

# Not through PgBouncer go tests of plans, of packets that vanish, of transactions prepared or left open by more sessions than the pool has, and of processes that end at
# once: PgBouncer 1.18 may crash when who asked it to cancel a statement is gone.
UNPOOLED := TestPlan_|TestFault_BlackHoled|TestCrash_|TestWindows_|TestRelay_S|TestDev|TestREADME|TestContract_O18_OverlappingReg|TestContract_D7_NobodyWritesForARemovedTenant

test-pooler: ## the core's tests through PgBouncer in transaction mode, on the PostgreSQL of PG=18
	@.ci/setup pgbouncer
	bin=$$(.ci/postgres $(PG)) && export DEED_PG_BIN=$$bin && \
	$(GO) run ./internal/pgtest/cluster -pooler -- $(GO) test -timeout 10m $(TESTFLAGS) -skip '^($(UNPOOLED))' . ./cmd/deed

# Adapters say the same on each server; TestDev and TestREADME run one of their own. Random histories and kills of campaigns and deliveries, which take
# longest, are checked on one version.
test-newest: setup ## what is left of test-pg when test-pooler has run, on the same PostgreSQL, but for adapters
	@.ci/setup python3-psycopg
	bin=$$(.ci/postgres $(PG)) && export DEED_PG_BIN=$$bin && \
	packages=$$(.ci/with-postgres | grep -vE '^github.com/deedhq/deed(|/cmd/deed|/(provider|sink)/.*)$$') && \
	$(GO) run ./internal/pgtest/cluster -- bash -ec "$(GO) test -timeout 20m $(ATONCE) $(TESTFLAGS) -skip '^(TestContract_(C3_ModelOf|C4_|D5_Killed|D5_ModelOf|D13_ModelOf)|TestRun_CountsAddUp|TestVerify_NoLoss)' $$(echo $$packages); \
		$(GO) test -timeout 20m $(ATONCE) $(TESTFLAGS) -run '^($(UNPOOLED))' -skip '^(TestDev|TestREADME)' . ./cmd/deed"

test-brokers: setup ## the Kafka sink on Apache Kafka's own server, which Maven brings: one, and three that fail; SES and SNS with moto, which pip brings
	@.ci/setup java mvn kcat
	export DEED_KAFKA=$$(.ci/kafka) DEED_MOTO=$$(.ci/moto) && cd e2e && \
	$(GO) run ./broker/run -- $(GO) test -timeout 20m -tags brokers $(TESTFLAGS) ./kafka ./aws

test-upgrade: setup ## pg_upgrade, and pg_dump and pg_restore, from PostgreSQL 15 to 18 in the middle of work
	export DEED_PG_OLD=$$(.ci/postgres-full 15) DEED_PG_NEW=$$(.ci/postgres-full 18) && cd e2e && \
	$(GO) test -timeout 15m -tags upgrade $(TESTFLAGS) ./upgrade

conformance: setup ## the tests of the contracts alone, and docs/contracts.md as a table of what passed
	@$(GO) run ./internal/pgtest/cluster -- $(GO) run ./internal/conformance $(TESTFLAGS)

# lint has vetted every package: go test need not, once for each way of building. The race detector sees every test but one, which has a single
# goroutine and computes for minutes under it: test-newest runs it.
ci: setup tools lint ## what CI runs: lint, the tests under the race detector, then on the newest PostgreSQL, those of the core through PgBouncer
	.ci/noskip $(MAKE) test TESTFLAGS='-race -count=1 -v -vet=off -skip=^TestAttacks_AreBounded$$$$'
	.ci/noskip $(MAKE) test-pooler PG=18 TESTFLAGS='-count=1 -v -vet=off'
	.ci/noskip $(MAKE) test-newest PG=18 TESTFLAGS='-count=1 -v -vet=off'
	.ci/noskip $(MAKE) test-brokers TESTFLAGS='-count=1 -v -vet=off'
	.ci/noskip $(MAKE) test-upgrade TESTFLAGS='-count=1 -v -vet=off'

build: ## bin/deed
	$(GO) build -trimpath -ldflags '-X main.version=$(VERSION)' -o bin/deed ./cmd/deed

lint: tools ## gofumpt, vet, staticcheck, go mod tidy, generated files
	@test -z "$$($(BIN)/gofumpt -l .)" || { $(BIN)/gofumpt -l .; echo 'run gofumpt -w on these'; exit 1; }
	$(GO) vet ./... && $(GO) vet -tags deedcrash,torture ./...
	$(BIN)/staticcheck ./... && cd e2e && $(GO) vet -tags packaging,brokers,upgrade ./... && $(BIN)/staticcheck -tags packaging,brokers,upgrade ./...
	cd bench && $(GO) vet ./... && $(BIN)/staticcheck ./...
	$(GO) mod tidy -diff && cd e2e && $(GO) mod tidy -diff && cd ../bench && $(GO) mod tidy -diff

torture: setup ## crashes, races and faults for MINUTES (10), with a report
	$(GO) run ./internal/pgtest/cluster -- $(GO) test -tags torture -run '^TestTorture' -count=1 -v -timeout 0 . -minutes $(MINUTES)
	DEED_TORTURE=1 $(GO) run ./internal/pgtest/cluster -- $(GO) test -run '^TestModel_KeysInStrictOrder$$' -count=1 -timeout 0 . -rapid.checks=100 -rapid.steps=300
	DEED_TORTURE=1 $(GO) run ./internal/pgtest/cluster -- $(GO) test -run '^TestContract_D5_KilledAtEveryStep$$' -count=1 -v -timeout 0 ./delivery
	DEED_TORTURE=1 $(GO) run ./internal/pgtest/cluster -- $(GO) test -run '^TestContract_C4_(RelaysKilledEverySecond|ServerKilled)$$' -count=1 -v -timeout 0 ./campaign
	DEED_TORTURE=1 $(GO) run ./internal/pgtest/cluster -- $(GO) test -run '^TestContract_C3_ModelOfRuns$$' -count=1 -timeout 0 ./campaign -rapid.checks=500 -rapid.steps=100

fuzz: setup ## every fuzz target for a minute
	.ci/fuzz 60s

packaging: $(BIN)/goreleaser $(BIN)/helm ## builds and checks all packages and the Helm chart; publishes nothing
	$(BIN)/goreleaser check
	$(BIN)/goreleaser release --snapshot --clean --skip=publish
	@.ci/setup systemd-analyze
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
