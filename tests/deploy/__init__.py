"""`make test-deploy`: the unmodified Dockerfile built, and the unmodified docker-compose.yml brought up, by a real Docker engine.

Debian's packages of the same programs replace the base images, so that no registry is needed. `machine` prepares the
machine, `engine` runs Docker in a separate folder, `standins` makes the images, `project` starts the system, and
`test_*.py` check it. `machine` always removes everything at the end.
"""
