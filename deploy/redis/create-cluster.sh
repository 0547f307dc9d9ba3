#!/bin/sh
# Creates the cluster of CLUSTER_NODES with one replica for each primary unless it exists, and waits until it works.
set -eu

REDISCLI_AUTH=$(tr -d '\n' </run/secrets/redis_admin_password)
export REDISCLI_AUTH

admin() {
  redis-cli --user admin "$@"
}

info() { # HOST NAME: prints a value of CLUSTER INFO
  admin -h "$1" cluster info 2>/dev/null | tr -d '\r' | sed -n "s/^$2://p"
}

works() { # HOST: succeeds if the node sees an owner of every slot, and follows its primary if it is a replica
  [ "$(info "$1" cluster_state)" = ok ] && [ "$(info "$1" cluster_slots_ok)" = 16384 ] || return 1
  case $(admin -h "$1" info replication) in
    *role:master* | *master_link_status:up*) ;;
    *) return 1 ;;
  esac
}

addresses=
exists=
for name in $CLUSTER_NODES; do
  echo "waiting for $name"
  until [ -n "$(info "$name" cluster_known_nodes)" ]; do
    sleep 1
  done
  addresses="$addresses $(getent hosts "$name" | head -n 1 | cut -d ' ' -f 1):6379"
  [ "$(info "$name" cluster_known_nodes)" = 1 ] || exists=yes
done

if [ -z "$exists" ]; then
  # shellcheck disable=SC2086  # one word for each node
  admin --cluster create $addresses --cluster-replicas 1 --cluster-yes
fi

for name in $CLUSTER_NODES; do
  until works "$name"; do
    echo "waiting until $name works in the cluster"
    sleep 1
  done
done
echo "the cluster works"
