# make check: what CI does, in the environment that is there. make ci: the same from nothing.
.PHONY: check ci test docs
check:
	.ci/run --keep
ci:
	.ci/run
test:
	.venv/bin/python -m pytest -q -n auto
docs:
	bash bin/docs
