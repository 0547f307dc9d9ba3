"""`make test-deploy`: the unmodified Dockerfile built, and the unmodified docker-compose.yml brought up, by a real Docker engine.

The base images that they name are stood in for by Debian's packages of the same programs, so no registry is needed:
`machine` prepares the machine, `engine` runs Docker in a folder of its own, `standins` makes the images, `project` brings
the system up, and `test_*.py` look at it. Whatever happens, `machine` removes everything again.
"""
