"""Applies every overlay of deploy/kubernetes to a real API server: `make kubernetes-apiserver`.

An etcd and a kube-apiserver run on free ports of 127.0.0.1. Each overlay gets a separate namespace. Resources must not
cause warnings, and each pod must be admitted by the restricted Pod Security Standard, which its namespace enforces.
Without controllers, no pod is started.
"""

from __future__ import annotations

import re
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from check import HERE, built, overlays
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

if TYPE_CHECKING:
    from collections.abc import Iterator

_STARTS_WITHIN = 120.0
_WORKLOADS = {"Deployment", "Job", "StatefulSet"}


class Server:
    """A running API server, and kubectl for it."""

    def __init__(self, port: int, token: str) -> None:
        self._access = [f"--server=https://127.0.0.1:{port}", f"--token={token}", "--insecure-skip-tls-verify"]

    def kubectl(self, *arguments: str, stdin: str = "") -> tuple[int, str, str]:
        """Its exit code, output and errors."""
        done = subprocess.run(
            ["kubectl", *self._access, *arguments],
            input=stdin, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        return done.returncode, done.stdout.strip(), done.stderr.strip()

    def apply(self, what: str, *texts: dict[str, Any]) -> list[str]:
        """Apply resources, and return errors including warnings."""
        code, out, err = self.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(texts))
        sys.stdout.write(f"== {what}\n{out}\n")
        return [f"{what}: {err or 'failed'}"] if code or err else []

    def admits(self, namespace: str, name: str, pod: dict[str, Any]) -> str:
        """The reason why a pod is rejected, or an empty text if it is admitted."""
        resource = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace},
            "spec": pod,
        }
        code, _, err = self.kubectl("create", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(resource))
        return err or ("refused" if code else "")


def main() -> int:
    """The exit code is 1 if a resource is rejected or causes a warning."""
    with running() as server:
        code, version, err = server.kubectl("version", "--output=yaml")
        if code:
            sys.stdout.write(f"{err}\n")
            return 1
        sys.stdout.write(f"a kube-apiserver {yaml.safe_load(version)['serverVersion']['gitVersion']}\n")
        definitions = [
            each for path in sorted(HERE.glob("crds/*.yaml")) for each in yaml.safe_load_all(path.read_text("utf-8"))
        ]
        problems = server.apply("custom resource definitions", *definitions)
        server.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        for overlay in overlays():
            problems += _apply(server, overlay)
    sys.stdout.write("".join(f"{problem}\n" for problem in problems) or "applied, without a warning\n")
    return 1 if problems else 0


def _apply(server: Server, overlay: Path) -> list[str]:
    resources = list(yaml.safe_load_all(built(overlay, "kubectl")))
    for resource in resources:
        metadata = resource["metadata"]
        if resource["kind"] == "Namespace":
            metadata["name"] = overlay.name
        else:
            metadata["namespace"] = overlay.name
    problems = server.apply(overlay.name, *resources)
    # A controller creates it in each namespace.
    server.kubectl("create", "serviceaccount", "default", f"--namespace={overlay.name}")
    pods = {each["metadata"]["name"]: _pod(each["spec"]) for each in resources if each["kind"] in _WORKLOADS}
    for name, pod in pods.items():
        if reason := server.admits(overlay.name, name, {"restartPolicy": "Always", **pod}):
            problems.append(f"{overlay.name}: pod {name}: {reason}")
    return problems + _control(server, overlay.name, pods)


def _pod(spec: dict[str, Any]) -> dict[str, Any]:
    """The pod of a workload, with a volume for each claim that a StatefulSet would make."""
    pod = dict(spec["template"]["spec"])
    claims = [{"name": each["metadata"]["name"], "emptyDir": {}} for each in spec.get("volumeClaimTemplates", ())]
    return pod | {"volumes": [*pod["volumes"], *claims]}


def _control(server: Server, namespace: str, pods: dict[str, dict[str, Any]]) -> list[str]:
    """Check that the namespace rejects a pod without a security context."""
    name, pod = next(iter(pods.items()))
    reason = server.admits(namespace, name, {**pod, "securityContext": {}})
    violated = re.search(r'violates PodSecurity "[^"]+"', reason)
    if violated is None:
        return [f"{namespace}: a pod without a security context is admitted: {reason}"]
    sys.stdout.write(f"admitted: {', '.join(pods)}; refused without its security context: {name} {violated[0]}\n")
    return []


@contextmanager
def running() -> Iterator[Server]:
    """An API server with an empty store."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        store, peer, port, token = _free_port(), _free_port(), _free_port(), secrets.token_hex(16)
        _write_credentials(folder, token)
        client = f"http://127.0.0.1:{store}"
        peers = f"http://127.0.0.1:{peer}"
        etcd = [
            "etcd", f"--data-dir={folder}/etcd", f"--listen-client-urls={client}", f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peers}", f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}", "--unsafe-no-fsync",
        ]  # fmt: skip
        apiserver = [
            "kube-apiserver", f"--etcd-servers={client}", "--bind-address=127.0.0.1", f"--secure-port={port}",
            f"--cert-dir={folder}/certificates", f"--token-auth-file={folder}/tokens", "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={folder}/key",
            f"--service-account-signing-key-file={folder}/key", "--service-cluster-ip-range=10.96.0.0/16",
        ]  # fmt: skip
        for command in (etcd, apiserver):
            stack.enter_context(_process(command, folder / f"{command[0]}.log"))
        server = Server(port, token)
        _until_ready(server, folder / "kube-apiserver.log")
        yield server


def _write_credentials(folder: Path, token: str) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    (folder / "key").write_bytes(key.private_bytes(encoding, form, serialization.NoEncryption()))
    (folder / "tokens").write_text(f"{token},test,test,system:masters\n", encoding="utf-8")


@contextmanager
def _process(command: list[str], log: Path) -> Iterator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _until_ready(server: Server, log: Path) -> None:
    until = time.monotonic() + _STARTS_WITHIN
    while server.kubectl("get", "--raw=/readyz")[0] or server.kubectl("get", "namespace", "default")[0]:
        if time.monotonic() > until:
            lines = log.read_text("utf-8", errors="replace").splitlines()
            raise SystemExit("\n".join(["the API server does not start:", *lines[-10:]]))
        time.sleep(0.5)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())
