#!/bin/sh
# Starts Redis with the users of users.acl, each with the password that is mounted as a secret. What is written holds hashes
# only, and lies in memory.
set -eu

hash_of() { # NAME: the hash of a secret as an ACL rule wants it
  tr -d '\n' <"/run/secrets/$1" | sha256sum | cut -d ' ' -f 1
}

sed -e '/^ *#/d' -e '/^$/d' /etc/redis/users.acl \
  | sed -e ':join' -e '/\\$/{' -e 'N' -e 's/ *\\\n */ /' -e 'bjoin' -e '}' \
  | sed -e "s/@REDIS_PASSWORD@/$(hash_of redis_password)/" -e "s/@REDIS_ADMIN_PASSWORD@/$(hash_of redis_admin_password)/" \
  >/run/redis/users.acl

exec redis-server /etc/redis/redis.conf
