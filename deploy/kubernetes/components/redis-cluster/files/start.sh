#!/bin/sh
# Starts Redis with the users of users.acl and their passwords from the mounted secrets. The generated file contains only
# hashes, and is stored in memory.
#
# If CLUSTER_NODES contains the host names of all nodes, it starts the node NODE_NAME. create-cluster.sh creates the cluster.
set -eu
umask 077

secret() { # NAME
  tr -d '\n' <"/run/secrets/$1"
}

hash_of() { # NAME: prints the hash of a secret in the form of an ACL rule
  secret "$1" | sha256sum | cut -d ' ' -f 1
}

sed -e '/^ *#/d' -e '/^$/d' /etc/redis/users.acl \
  | sed -e ':join' -e '/\\$/{' -e 'N' -e 's/ *\\\n */ /' -e 'bjoin' -e '}' \
  | sed -e "s/@REDIS_PASSWORD@/$(hash_of redis_password)/" -e "s/@REDIS_API_PASSWORD@/$(hash_of redis_api_password)/" \
    -e "s/@REDIS_PRODUCER_PASSWORD@/$(hash_of redis_producer_password)/" \
    -e "s/@REDIS_ADMIN_PASSWORD@/$(hash_of redis_admin_password)/" \
  >/run/redis/users.acl

if [ -z "${CLUSTER_NODES:-}" ]; then
  exec redis-server /etc/redis/redis.conf
fi

# Replicas connect to their primaries as this user.
echo "user replica on #$(hash_of redis_replica_password) resetchannels -@all +psync +replconf +ping" >>/run/redis/users.acl
{
  echo "include /etc/redis/cluster.conf"
  echo "cluster-announce-hostname $NODE_NAME"
  echo "masteruser replica"
  echo "masterauth \"$(secret redis_replica_password)\""
} >/run/redis/node.conf

admin() {
  REDISCLI_AUTH=$(secret redis_admin_password) redis-cli --user admin "$@" 2>/dev/null
}

# Nodes remember each other by address. After a restart of all containers, the addresses may differ, and no node finds another.
# Each node therefore introduces itself to the others for a few minutes.
introduce() {
  for _ in $(seq 60); do
    sleep 3
    nodes=$(admin cluster nodes) || continue
    [ "$(echo "$nodes" | wc -l)" -gt 1 ] || continue
    for name in $CLUSTER_NODES; do
      [ "$name" != "$NODE_NAME" ] || continue
      address=$(getent hosts "$name" | head -n 1 | cut -d ' ' -f 1)
      [ -z "$address" ] || echo "$nodes" | grep -F " $address:" | grep -qv fail || admin cluster meet "$address" 6379
    done
  done
}
introduce >/dev/null &

exec redis-server /run/redis/node.conf
