#!/bin/sh
# Starts Redis with the users of users.acl and their passwords from the mounted secrets. The generated file contains only
# hashes, and is kept in memory.
set -eu

hash_of() { # NAME: prints the hash of a secret in the form of an ACL rule
  tr -d '\n' <"/run/secrets/$1" | sha256sum | cut -d ' ' -f 1
}

sed -e '/^ *#/d' -e '/^$/d' /etc/redis/users.acl \
  | sed -e ':join' -e '/\\$/{' -e 'N' -e 's/ *\\\n */ /' -e 'bjoin' -e '}' \
  | sed -e "s/@REDIS_PASSWORD@/$(hash_of redis_password)/" -e "s/@REDIS_API_PASSWORD@/$(hash_of redis_api_password)/" \
    -e "s/@REDIS_PRODUCER_PASSWORD@/$(hash_of redis_producer_password)/" \
    -e "s/@REDIS_ADMIN_PASSWORD@/$(hash_of redis_admin_password)/" \
  >/run/redis/users.acl

exec redis-server /etc/redis/redis.conf
