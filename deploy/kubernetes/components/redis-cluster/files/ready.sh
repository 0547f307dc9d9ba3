#!/bin/sh
# Succeeds if a node of the cluster serves its slots or follows its primary. A node that has not joined a cluster is ready,
# because create-cluster.sh waits for it.
set -eu

REDISCLI_AUTH=$(tr -d '\n' </run/secrets/redis_admin_password)
export REDISCLI_AUTH

cluster=$(redis-cli --user admin cluster info)
case $cluster in
  *cluster_known_nodes:1[!0-9]*) exit 0 ;;
  *cluster_state:ok*) ;;
  *) exit 1 ;;
esac
case $(redis-cli --user admin info replication) in
  *role:master*) ;;
  *master_link_status:up*) ;;
  *) exit 1 ;;
esac
