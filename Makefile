# Every target is a script under dev/, which can be run by hand as well. What is built once is kept outside the checkout,
# in $$FELIX_CACHE (~/.cache/felix), by content. Only dev/kube asks for root.

.DEFAULT_GOAL := help
.PHONY: help demo demo-local test lint unit e2e bench kube-up kube-down images clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-11s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

demo: ## Felix on a real Kubernetes, a benchmark in it, its figures (CLUSTER=kind or CLUSTER=current for other clusters)
	@dev/demo

demo-local: ## a broker in this process and the latency matrix on loopback: no Kubernetes, no root
	@dev/demo-local

test: ## everything that is checked: lint, unit, dev/kube, e2e (E2E=0 leaves out what needs root)
	@dev/test

lint: ## rustfmt, clippy, cargo-deny, shellcheck, helm lint
	@dev/lint

unit: ## the tests that need neither root nor Kubernetes
	@dev/unit

e2e: ## the tests on a real Kubernetes (needs root for dev/kube)
	@dev/e2e

bench: ## the broker against relays and NATS, an hour on a quiet machine (ARGS='--only layout2,1to1-256')
	@dev/bench $(ARGS)

kube-up: ## a real Kubernetes of three nodes on this machine (NODES=0..3)
	@dev/kube up $(or $(NODES),3)

kube-down: ## end that Kubernetes and remove every trace of it
	@dev/kube down

images: ## the container images, as archives whose paths are printed
	@images/build

clean: ## remove everything that was built and cached
	@dev/clean
